//! Patches of an inventory: their order, what is wrong with them, and whose fault it is.

use ichor_machineconfig::compose::{Composer, Materials};
use ichor_model::{Finding, Findings, desired::Role};

use crate::support::{bundle, machine, materials, resolve, rich, with_composer};

fn compose(talos: (&str, &str), patches: &str, files: &[(&str, &str)]) -> Result<String, Vec<Finding>> {
    let all = |findings: Findings| findings.iter().cloned().collect::<Vec<_>>();
    with_composer(&rich(talos.0, talos.1, patches), files, |desired, composer| {
        let made = composer.and_then(|composer| composer.machine(machine(desired, "worker-1")));
        made.map(|made| made.text().expose().to_owned()).map_err(all)
    })
}

const TALOS: (&str, &str) = ("v1.13.9", "v1.36.3");

#[test]
fn patches_apply_from_the_cluster_to_the_machine() {
    let patch = |target: &str, value: &str| {
        format!("{{{target}inline: {{machine: {{sysctls: {{a.first: '{value}', a.{value}: '1'}}}}}}}}")
    };
    let patches = [
        patch("machine: worker-1, ", "machine"),
        patch("group: worker, ", "group"),
        patch("role: worker, ", "role"),
        patch("", "cluster"),
    ];
    // Whatever order they are written in.
    for patches in [patches.join(", "), patches.iter().rev().cloned().collect::<Vec<_>>().join(", ")] {
        let text = compose(TALOS, &patches, &[]).expect("a config");
        assert!(text.contains("a.first: machine\n"), "the machine's own comes last");
        for scope in ["cluster", "role", "group", "machine"] {
            assert!(text.contains(&format!("a.{scope}: \"1\"")), "{scope}");
        }
        with_composer(&rich(TALOS.0, TALOS.1, &patches), &[], |_, composer| {
            let role = composer.unwrap().role(Role::Worker).unwrap();
            let text = role.text();
            assert!(text.expose().contains("a.first: role\n"));
            assert!(!text.expose().contains("a.group") && !text.expose().contains("a.machine"));
            assert!(!text.expose().contains("10.0.0.30/24"), "no address of a machine");
        });
    }
}

#[test]
fn patching_maps_and_scalars_twice_is_patching_them_once() {
    let patch = "{inline: {machine: {sysctls: {a.b: '1'}, kubelet: {extraArgs: {v: '2'}}}, cluster: {clusterName: other}}}";
    let once = compose(TALOS, patch, &[]).expect("a config");
    assert_eq!(once, compose(TALOS, &format!("{patch}, {patch}"), &[]).expect("a config"));
}

/// The one finding about a patch, which must name the patch.
fn refused(talos: (&str, &str), patch: &str) -> Finding {
    let made = compose(talos, "{file: patches/all.yaml}", &[("patches/all.yaml", patch)]);
    let findings = made.err().unwrap_or_else(|| panic!("accepted: {patch}"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings.into_iter().next().expect("a finding");
    let named = finding.notes.iter().any(|note| note.contains("in patch `patches/all.yaml`"));
    assert!(named, "{finding:?}");
    assert!(finding.remedy.is_some(), "{finding:?}");
    finding
}

#[test]
fn what_is_wrong_with_a_patch_is_told_of_the_patch() {
    let old = ("v1.11.6", "v1.34.1");
    let new = ("v1.14.0", "v1.37.0");
    let cases = [
        (TALOS, "machine:\n  kubelt: {}\n", "ICH-2001"),
        (TALOS, "apiVersion: v1alpha1\nkind: LinkConfg\nname: x\n", "ICH-2002"),
        (old, "apiVersion: v1alpha1\nkind: OOMConfig\n", "ICH-2003"),
        (TALOS, "cluster:\n  controlPlane:\n    $patch: delete\n", "ICH-2004"),
        (TALOS, "cluster:\n  apiServer:\n    certSANs:\n      $patch: delete\n", "ICH-2005"),
        (TALOS, "- {op: add, path: /machine/sysctls/a, value: b}\n", "ICH-2006"),
        (TALOS, "machine:\n  network:\n    hostname: other\n", "ICH-2007"),
        (TALOS, "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n", "ICH-2004"),
        (new, "machine:\n  nodeLabels: {a: b}\n", "ICH-2004"),
        (TALOS, "machine:\n  kubelet:\n    image: ghcr.io/siderolabs/kubelet:v1.20.0\n", "ICH-1202"),
    ];
    for (talos, patch, code) in cases {
        let finding = refused(talos, patch);
        assert_eq!(finding.code.to_string(), code, "{patch}: {finding:?}");
        let placed = finding.at.is_some_and(|at| at.source.0 > 0);
        // What a patch took away has no place any more.
        assert!(placed || patch.contains("$patch"), "{patch}: {finding:?}");
    }
}

#[test]
fn what_is_missing_is_said_at_once_and_not_guessed() {
    let desired = resolve(&rich(TALOS.0, TALOS.1, "{file: patches/all.yaml}"));
    let bundle = bundle();
    let findings = Composer::new(&desired, &bundle, &Materials::default()).unwrap_err();
    let mut missing: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    missing.sort_unstable();
    assert_eq!(
        missing,
        [
            "the file `certs/lab.pem` was not found",
            "the file `manifests/namespace.yaml` was not found",
            "the file `patches/all.yaml` was not found",
            "the secret in the environment variable `REGISTRY_PASSWORD` was not found",
            "the secret in the environment variable `TS_AUTHKEY` was not found",
        ]
    );
    let mut broken = materials(&desired, &[]);
    broken.files.values_mut().for_each(|file| file.bytes = vec![0xff, 0xfe, 0xff]);
    assert!(Composer::new(&desired, &bundle, &broken).is_err());
}

#[test]
fn a_patch_is_looked_at_once_however_many_machines_it_is_for() {
    let patches = "{inline: {machine: {env: {A: b}}}}";
    let inventory = rich(TALOS.0, TALOS.1, patches).replace("count: 2", "count: 40");
    with_composer(&inventory, &[], |_, composer| {
        assert_eq!(composer.unwrap().notes().iter().count(), 1, "`machine.env` was replaced in 1.13");
    });
}
