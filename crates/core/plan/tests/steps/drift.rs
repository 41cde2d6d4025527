//! What differs between the inventory and a cluster that runs.

use ichor_model::{
    VmId,
    observed::{MachineSeen, Owner, Sight, TalosSeen, VmSeen},
};

use super::stage::{CLONED, POOLED, Stage, vm};

/// Changes what is seen of a cluster that is Ready, and says which differences there are then. No step is about them.
fn differing(change: impl FnOnce(&mut Stage)) -> Vec<String> {
    let mut stage = Stage::of(POOLED).ready();
    change(&mut stage);
    let findings = ichor_plan::drift(&stage.desired, &stage.observed);
    assert!(findings.iter().all(|finding| finding.remedy.is_some()) && !findings.has_errors());
    let told = findings.iter().map(|found| format!("{}: {} {:?}", found.code, found.message, found.notes));
    told.collect()
}

fn talos(stage: &mut Stage, names: &[&str], seen: &TalosSeen) {
    for name in names {
        stage.talk(&name.parse().expect("a name"), MachineSeen::Ours(seen.clone()));
    }
}

fn node<'s>(stage: &'s mut Stage, name: &str) -> &'s mut ichor_model::observed::NodeSeen {
    let Sight::Seen(nodes) = &mut stage.observed.nodes else { panic!("nodes") };
    nodes.get_mut(name).expect("a node")
}

#[test]
fn clusters_that_are_as_the_inventory_says() {
    for (name, stage) in Stage::all() {
        let before = ichor_plan::drift(&stage.desired, &stage.observed);
        let stage = stage.ready();
        let after = ichor_plan::drift(&stage.desired, &stage.observed);
        assert!(before.is_empty() && after.is_empty(), "{name}: {before:?} {after:?}");
    }
}

#[test]
fn options_of_vms_that_run() {
    let memory = || vec!["`memory` is `4096`, wanted `8192`".to_owned()];
    let told = differing(|stage| {
        for name in ["w-1", "w-2"] {
            let vmid = stage.machine(name).vmid;
            stage.vm(vmid).drift = memory();
        }
        let vmid = stage.machine("cp-1").vmid;
        stage.vm(vmid).drift = (0..10).map(|number| format!("`net{number}` is absent")).collect();
    });
    let [crowded, alike] = &told[..] else { panic!("{told:#?}") };
    assert_eq!(
        alike,
        r#"ICH-3130: the VMs of `w-1` and `w-2` are not as the inventory says ["`memory` is `4096`, wanted `8192`"]"#
    );
    assert!(
        crowded.contains("the VM of `cp-1` is not") && crowded.contains(r#"net7` is absent", "and 2 more"]"#)
    );
    let off = differing(|stage| {
        let vmid = stage.machine("w-1").vmid;
        *stage.vm(vmid) = VmSeen { drift: memory(), running: false, ..stage.vm(vmid).clone() };
    });
    assert!(off.is_empty(), "a VM that is off is set right by a step: {off:?}");
}

#[test]
fn a_vm_that_moved() {
    let told = differing(|stage| {
        let vmid = stage.machine("cp-1").vmid;
        stage.vm(vmid).host = "pve9".parse().expect("a host");
    });
    assert_eq!(
        told,
        [
            r#"ICH-3130: the VM of `cp-1` is not as the inventory says ["it is on host `pve9`, wanted `pve1`"]"#
        ]
    );
}

#[test]
fn releases_of_talos_and_kubernetes() {
    let told = differing(|stage| {
        let seen = TalosSeen { version: "v1.13.8".into(), ..TalosSeen::default() };
        talos(stage, &["cp-1", "cp-2", "cp-3"], &seen);
        talos(stage, &["w-1"], &TalosSeen { version: "v1.13.9".into(), ..TalosSeen::default() });
        node(stage, "w-1").version = "v1.36.2".into();
        node(stage, "w-2").version = "v1.36.3".into();
    });
    assert_eq!(
        told,
        [
            "ICH-3131: `cp-1`, `cp-2` and `cp-3` run Talos v1.13.8, and the inventory says v1.13.9 []",
            "ICH-3131: `w-1` runs Kubernetes v1.36.2, and the inventory says v1.36.3 []",
        ]
    );
}

#[test]
fn images_and_machine_configs() {
    let told = differing(|stage| {
        let seen = TalosSeen {
            other_schematic: Some("77".into()),
            config_drift: vec!["machine.install.image".into(), "cluster.controlPlane.endpoint".into()],
            ..TalosSeen::default()
        };
        talos(stage, &["w-1", "w-2"], &seen);
    });
    assert_eq!(
        told,
        [
            r#"ICH-3132: `w-1` and `w-2` run another image than the inventory stands for ["what runs has the schematic 77: its extensions, kernel arguments or META values are others"]"#,
            r#"ICH-3133: `w-1` and `w-2` run with another machine config than the inventory stands for ["it differs at machine.install.image and cluster.controlPlane.endpoint"]"#,
        ]
    );
}

#[test]
fn addresses_that_nodes_tell() {
    let with = |addresses: &[&str]| {
        differing(|stage| {
            stage.talk(&"w-1".parse().expect("a name"), MachineSeen::Silent("nobody answers".into()));
            node(stage, "w-1").addresses =
                addresses.iter().map(|address| address.parse().expect("an address")).collect();
        })
    };
    let own = {
        let stage = Stage::of(POOLED);
        let nic = stage.machine("w-1").primary_nic().addresses[0].known().expect("an address").addr();
        nic.to_string()
    };
    assert!(with(&[]).is_empty() && with(&["fd00::1", &own]).is_empty());
    let [told] = &with(&["10.0.0.99"])[..] else { panic!("one") };
    assert!(
        told.starts_with(&format!(
            "ICH-3134: `w-1` has the address 10.0.0.99, and the inventory says {own} "
        )),
        "{told}"
    );
}

#[test]
fn machines_and_templates_that_the_inventory_does_not_name() {
    let put = |stage: &mut Stage, number: u32, seen: VmSeen| {
        stage.put(VmId::new(number).expect("a number"), seen);
    };
    let host = || "pve2".parse().expect("a host");
    let told = differing(|stage| {
        put(stage, 3005, VmSeen { name: "w-6".into(), running: true, ..vm(&host(), Owner::Ours) });
        put(stage, 9001, VmSeen { name: "talos".into(), template: true, ..vm(&host(), Owner::Ours) });
        put(stage, 9002, vm(&host(), Owner::OtherCluster("prod".into())));
        put(stage, 9003, vm(&host(), Owner::Foreign("it has no stamp".into())));
    });
    assert_eq!(
        told,
        [
            r#"ICH-3135: `w-6` (VM 3005) of this cluster is not in the inventory ["it runs, on host `pve2`"]"#,
            r#"ICH-3135: template `talos` (VM 9001) of this cluster is not in the inventory ["it is on host `pve2`"]"#,
        ]
    );
    let stage = Stage::of(CLONED).ready();
    assert!(ichor_plan::drift(&stage.desired, &stage.observed).is_empty(), "templates that are wanted");
}
