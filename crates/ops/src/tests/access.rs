//! Talosconfigs and kubeconfigs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ichor_machineconfig::{pki::TalosRole, secrets::Bundle, talosconfig::Talosconfig};
use ichor_spec::Sources;

use super::{INVENTORY, Memory, codes, lab, messages, resolve, site, with_secrets};
use crate::{
    Halt, HaltKind, Site,
    access::{self, KUBECONFIG_LIFETIME, Kind, Made, Server, TalosAccess, Target},
    bundle::{self, Signer},
    secrets,
};

fn admin() -> TalosAccess {
    TalosAccess { roles: vec![TalosRole::Admin], lifetime: Duration::from_hours(1) }
}

fn bundle(memory: &Memory) -> Bundle {
    bundle::of_cluster(memory, site(lab()), None, Signer::Nobody, &mut Sources::default())
        .expect("secrets")
        .bundle
}

#[test]
fn endpoints_are_the_control_planes_and_never_the_vip() {
    let memory = with_secrets();
    let (made, findings) = access::talosconfig(&memory, lab(), &bundle(&memory), &admin()).expect("made");
    let config = Talosconfig::parse(made.text.expose()).expect("a talosconfig");
    let context = config.context(None).expect("a context");
    assert_eq!((context.name.as_str(), &context.endpoints[..]), ("lab", &["10.0.0.11".to_owned()][..]));
    assert!(findings.is_empty() && context.nodes.is_empty());
}

#[test]
fn servers_are_the_endpoint_the_vip_or_a_control_plane() {
    let memory = with_secrets();
    let make = |word: &str| {
        access::kubeconfig(&memory, lab(), &bundle(&memory), &Server::of(word), KUBECONFIG_LIFETIME)
    };
    for (word, server) in [
        ("endpoint", "https://10.0.0.5:6443"),
        ("vip", "https://10.0.0.5:6443"),
        ("cp-1", "https://10.0.0.11:6443"),
    ] {
        let access = make(word).expect(word);
        assert_eq!(access.leads_to, [server]);
        assert!(access.text.expose().contains(&format!("server: {server}\n")), "{word}");
    }
    for word in ["worker-1", "nonsense"] {
        assert_eq!(codes(&make(word).expect_err(word)), ["ICH-2116"]);
    }
}

#[test]
fn leased_addresses_are_a_finding() {
    let desired = resolve(
        &INVENTORY
            .replace("endpoint: {vip: 10.0.0.5}", "endpoint: {host: api.lab.example}")
            .replace("network: {", "network: {addressing: dhcp, ")
            .replace(", address: 10.0.0.11", "")
            .replace(", address: 10.0.0.21", ""),
    );
    let memory = with_secrets();
    let bundle = bundle(&memory);
    let halt = access::talosconfig(&memory, &desired, &bundle, &admin()).expect_err("leased");
    assert_eq!(codes(&halt), ["ICH-2108"]);
    let to = |server| access::kubeconfig(&memory, &desired, &bundle, &server, KUBECONFIG_LIFETIME);
    assert_eq!(codes(&to(Server::Machine("cp-1".into())).expect_err("leased")), ["ICH-2108"]);
    assert_eq!(codes(&to(Server::Vip).expect_err("none")), ["ICH-2116"]);
    assert!(to(Server::Endpoint).is_ok());
}

fn write(memory: &Memory, made: &Made, path: &str, overwrite: bool) -> Result<(), Halt> {
    let path = Path::new(path);
    let files = [PathBuf::from("home/ichor.yaml")];
    let site = Site { files: &files, ..site(lab()) };
    access::write(memory, site, made, Target { path, overwrite, given: Some(Path::new("given")) })
}

pub fn both(memory: &Memory) -> [Made; 2] {
    let bundle = bundle(memory);
    let (talosconfig, _) = access::talosconfig(memory, lab(), &bundle, &admin()).expect("made");
    let kubeconfig = access::kubeconfig(memory, lab(), &bundle, &Server::Endpoint, KUBECONFIG_LIFETIME);
    [talosconfig, kubeconfig.expect("made")]
}

#[test]
fn only_access_to_the_same_cluster_is_replaced_unasked() {
    let memory = with_secrets();
    memory.directories.borrow_mut().insert("directory".into());
    for made in both(&memory) {
        memory.put("diary", b"dear diary\n");
        memory.put("config", made.text.expose().as_bytes());
        write(&memory, &made, "config", false).expect("the same cluster");
        memory.files.borrow_mut().remove(Path::new("new"));
        write(&memory, &made, "new", false).expect("a new file");
        for path in ["diary", "directory"] {
            let halt = write(&memory, &made, path, false).expect_err(path);
            assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2109".to_owned()]), "{path}");
        }
        assert_eq!(memory.text("diary").as_deref(), Some("dear diary\n"));
        write(&memory, &made, "diary", true).expect("as asked");
    }
    let [talosconfig, kubeconfig] = both(&memory);
    memory.put("config", talosconfig.text.expose().as_bytes());
    assert!(write(&memory, &kubeconfig, "config", false).is_err(), "of another kind");
    let bundle = Made { kind: Kind::Bundle, ..talosconfig };
    assert!(write(&memory, &bundle, "config", false).is_err());
}

#[test]
fn access_to_other_clusters_is_kept_and_named() {
    let memory = with_secrets();
    let [talosconfig, kubeconfig] = both(&memory);
    let merged =
        kubeconfig.text.expose().replace("users:\n", "users:\n- name: work\n  user: {token: hunter2}\n");
    let other_cluster =
        kubeconfig.text.expose().replace("clusters:\n", "clusters:\n- {name: work, cluster: {server: x}}\n");
    let other_context =
        talosconfig.text.expose().replace("contexts:\n", "contexts:\n    work:\n        endpoints: [a]\n");
    for (made, there, said) in [
        (&kubeconfig, merged, "`user work`"),
        (&kubeconfig, other_cluster, "`cluster work`"),
        (&talosconfig, other_context, "`context work`"),
    ] {
        memory.put("config", there.as_bytes());
        let halt = write(&memory, made, "config", false).expect_err(said);
        let told = messages(&halt.findings);
        assert!(
            halt.kind == HaltKind::Refused && told.contains(said) && told.contains("--overwrite"),
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
        assert_eq!(memory.text("config"), Some(there));
        write(&memory, made, "config", true).expect("as asked");
    }
}

/// Another cluster of the same name.
pub fn elsewhere() -> Memory {
    let elsewhere = Memory::default();
    elsewhere.drawn.set(7);
    secrets::new(&elsewhere, site(lab()), || Ok(super::rsa())).expect("other secrets");
    elsewhere
}

#[test]
fn access_by_another_authority_is_kept() {
    let (memory, elsewhere) = (with_secrets(), elsewhere());
    for (made, other) in both(&memory).iter().zip(both(&elsewhere)) {
        memory.put("config", other.text.expose().as_bytes());
        let halt = write(&memory, made, "config", false).expect_err("another authority");
        assert!(messages(&halt.findings).contains("another certificate authority"));
    }
}

#[test]
fn what_nobody_can_make_again_is_never_written_over() {
    let memory = with_secrets();
    memory.put("given", b"a bundle");
    memory.put("home/ichor.yaml", INVENTORY.as_bytes());
    let [talosconfig, _] = both(&memory);
    for path in ["home/.ichor/lab/secrets.yaml", "home/.ichor/lab/cluster.json", "given", "home/ichor.yaml"] {
        let before = memory.text(path);
        let halt = write(&memory, &talosconfig, path, true).expect_err(path);
        assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2119".to_owned()]), "{path}");
        assert_eq!(memory.text(path), before);
    }
}

#[test]
fn only_the_authority_that_signs_has_to_be_in_its_time() {
    let memory = with_secrets();
    memory.later.set(11 * 365 * 86_400);
    let read = |signer| bundle::of_cluster(&memory, site(lab()), None, signer, &mut Sources::default());
    let told = messages(&read(Signer::Nobody).expect("only looked at").findings);
    assert_eq!(told.matches("expired").count(), 4, "{told}");
    for signer in [Signer::Talos, Signer::Kubernetes] {
        let halt = read(signer).expect_err("signs");
        assert_eq!(codes(&halt).iter().filter(|code| *code == "ICH-2103").count(), 1);
    }
    secrets::show(&memory, site(lab()), &mut Sources::default()).expect("shown");
    secrets::export(&memory, site(lab()), &mut Sources::default()).expect("exported");
    memory.later.set((10 * 365 - 60) * 86_400);
    let told = messages(&read(Signer::Talos).expect("still valid").findings);
    assert_eq!(told.matches("ends at").count(), 4, "{told}");
    memory.later.set((10 * 365 - 100) * 86_400);
    assert!(read(Signer::Talos).expect("valid").findings.is_empty());
}

/// A kubeconfig and a talosconfig of a cluster, as `up` keeps them.
fn beside_secrets(memory: &Memory, desired: &ichor_model::Desired, bundle: &Bundle) -> [(Made, PathBuf); 2] {
    let lifetime = Duration::from_hours(24 * 365);
    let kubeconfig = access::kubeconfig(memory, desired, bundle, &Server::Endpoint, lifetime).expect("made");
    let wanted = TalosAccess { lifetime, ..admin() };
    let (talosconfig, _) = access::talosconfig(memory, desired, bundle, &wanted).expect("made");
    [(kubeconfig, "store/kubeconfig".into()), (talosconfig, "store/talosconfig".into())]
}

#[test]
fn access_that_leads_to_the_cluster_is_kept_and_any_other_made_anew() {
    let memory = with_secrets();
    let own = bundle(&memory);
    let keep = |made: &Made, path: &Path| access::keep_current(&memory, made, path).expect("kept");
    let there = |path: &Path| memory.files.borrow()[path].clone();
    let first = beside_secrets(&memory, lab(), &own);
    for ((made, path), (again, _)) in first.iter().zip(beside_secrets(&memory, lab(), &own)) {
        keep(made, path);
        keep(&again, path);
        assert!(there(path) == made.text.expose().as_bytes(), "it was good as it was");
    }
    let moved = resolve(&INVENTORY.replace("10.0.0.5", "10.0.0.6").replace("10.0.0.11", "10.0.0.12"));
    let other = bundle(&elsewhere());
    for (what, desired, bundle) in [("moved", &moved, &own), ("another bundle", lab(), &other)] {
        for ((old, path), (new, _)) in first.iter().zip(beside_secrets(&memory, desired, bundle)) {
            keep(old, path);
            keep(&new, path);
            assert!(there(path) == new.text.expose().as_bytes(), "{what}");
            memory.files.borrow_mut().remove(path);
        }
    }
    for (made, path) in &first {
        for content in ["", "contexts: [", "apiVersion: v1\nkind: Config\n"] {
            memory.files.borrow_mut().insert(path.clone(), content.into());
            keep(made, path);
            assert!(there(path) == made.text.expose().as_bytes(), "{content:?}");
        }
    }
}

#[test]
fn access_that_ends_soon_is_made_anew() {
    let memory = with_secrets();
    let own = bundle(&memory);
    let first = beside_secrets(&memory, lab(), &own);
    for (later, renewed) in [(300, false), (340, true), (400, true)] {
        for (made, path) in &first {
            memory.files.borrow_mut().insert(path.clone(), made.text.expose().into());
        }
        memory.later.set(later * 24 * 3600);
        for (made, path) in beside_secrets(&memory, lab(), &own) {
            let old = memory.files.borrow()[&path].clone();
            access::keep_current(&memory, &made, &path).expect("kept");
            assert_eq!(memory.files.borrow()[&path] != old, renewed, "{later} days later");
        }
    }
}

#[test]
fn what_somebody_has_put_into_the_store_is_moved_aside() {
    let memory = with_secrets();
    let own = bundle(&memory);
    for (made, path) in beside_secrets(&memory, lab(), &own) {
        memory.files.borrow_mut().insert(path.clone(), b"notes of mine".to_vec());
        access::keep_current(&memory, &made, &path).expect("kept");
        let old = PathBuf::from(format!("{}.old", path.display()));
        assert_eq!(memory.files.borrow()[&old], b"notes of mine");
    }
}
