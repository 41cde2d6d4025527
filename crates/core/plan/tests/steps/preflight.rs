use ichor_model::{
    HostName, Severity,
    desired::{CloneKind, Late, Source, Verify},
    observed::{MachineSeen, Owner, Release, Sight, StorageSeen, TalosSeen, VmSeen},
};

use crate::stage::{CLONED, POOLED, Stage, vm};

/// What is found after a change: severity, code, message and reasons, one line each.
fn found(text: &str, change: impl FnOnce(&mut Stage)) -> Vec<String> {
    let mut stage = Stage::of(text);
    change(&mut stage);
    let findings = ichor_plan::preflight(&stage.desired, &stage.observed);
    let shown = findings.iter().map(|finding| {
        assert!(finding.remedy.is_some(), "{finding:?}");
        format!(
            "{} {}: {} ({})",
            finding.severity.word(),
            finding.code,
            finding.message,
            finding.notes.join("; ")
        )
    });
    shown.collect()
}

fn host(name: &str) -> HostName {
    name.parse().expect("a name")
}

fn storage<'a>(stage: &'a mut Stage, on: &str, name: &str) -> &'a mut StorageSeen {
    stage.observed.storages.get_mut(&(host(on), name.to_owned())).expect("a storage")
}

#[test]
fn nothing_stands_in_the_way_of_the_examples() {
    for (name, stage) in Stage::all() {
        let empty = ichor_plan::preflight(&stage.desired, &stage.observed);
        // Only that Cilium comes after the nodes.
        let awaited = usize::from(!ichor_plan::has_network(&stage.desired));
        assert_eq!((empty.has_errors(), empty.iter().count()), (false, awaited), "{name}: {empty:?}");
        let stage = stage.ready();
        let ready = ichor_plan::preflight(&stage.desired, &stage.observed);
        assert!(ready.is_empty(), "{name}: {ready:?}");
    }
}

#[test]
fn numbers_that_are_somebody_elses() {
    let with = |owner: Owner| {
        found(POOLED, |stage| {
            let vmid = stage.machine("w-1").vmid;
            stage.put(vmid, vm(&host("pve1"), owner));
        })
    };
    let says = |why: &str| [format!("error ICH-3108: VM 3000, meant for `w-1`, is somebody else's ({why})")];
    assert_eq!(with(Owner::Foreign("it has no stamp".into())), says("it has no stamp"));
    assert_eq!(with(Owner::OtherCluster("y".into())), says("it belongs to the cluster `y`"));
    assert_eq!(with(Owner::OtherMachine("w-9".into())), says("it is w-9 of this cluster"));
    assert!(with(Owner::Ours).is_empty());
}

#[test]
fn locks_of_vms_that_are_off() {
    let with = |running: bool| {
        found(POOLED, |stage| {
            let vmid = stage.machine("w-1").vmid;
            let addresses = vec![[10, 0, 0, 20].into()];
            let locked =
                VmSeen { addresses, lock: Some("create".into()), running, ..vm(&host("pve1"), Owner::Ours) };
            stage.put(vmid, locked);
        })
    };
    assert_eq!(
        with(false),
        ["warning ICH-3110: VM 3000 of `w-1` is locked (create) (Proxmox works on it, or was interrupted)"]
    );
    assert!(with(true).is_empty());
}

#[test]
fn addresses_that_somebody_else_has() {
    let with = |seen: MachineSeen, there: bool| {
        found(POOLED, |stage| {
            if there {
                let vmid = stage.machine("cp-1").vmid;
                stage.put(vmid, VmSeen { running: true, ..vm(&host("pve1"), Owner::Ours) });
            }
            stage.talk(&"cp-1".parse().expect("a name"), seen);
        })
    };
    let says = |why: &str| {
        [format!("error ICH-3109: somebody else answers at the address 10.0.0.10 of `cp-1` ({why})")]
    };
    assert_eq!(
        with(MachineSeen::Stranger("a certificate of another CA".into()), false),
        says("a certificate of another CA")
    );
    assert_eq!(
        with(MachineSeen::Stranger("a certificate of another CA".into()), true),
        [
            "error ICH-3109: `cp-1` runs, and whoever answers at its address 10.0.0.10 does not know our secrets (a certificate of another CA)"
        ]
    );
    assert_eq!(
        with(MachineSeen::Maintenance, false),
        says("another Talos machine waits for its machine config there")
    );
    assert!(with(MachineSeen::Maintenance, true).is_empty());
}

#[test]
fn an_address_that_a_renamed_machine_has() {
    let told = found(POOLED, |stage| {
        let old = VmSeen { running: true, name: "old-1".into(), ..vm(&host("pve1"), Owner::Ours) };
        stage.put(ichor_model::VmId::new(3900).expect("a number"), old);
        let there = MachineSeen::Stranger("another machine of this cluster answers there".into());
        stage.talk(&"w-1".parse().expect("a name"), there);
    });
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(told.contains(" of `w-1` is taken, perhaps by a machine of this cluster"), "{told}");
    assert!(told.contains("running, and not in the inventory: `old-1` (VM 3900)"), "{told}");
}

#[test]
fn releases_that_cannot_import_images() {
    let old = |stage: &mut Stage| {
        stage.observed.release = Sight::Seen(Release { major: 8, minor: 3 });
        verify(stage, Verify::Cidata);
    };
    let says = |machine: &str| {
        [format!(
            "error ICH-3104: Proxmox 8.3 cannot import the disk image of `{machine}` by its API (that came with Proxmox 8.4)"
        )]
    };
    assert_eq!(found(POOLED, old), says("cp-1"));
    assert_eq!(found(CLONED, old), says("cp"), "our template would have to be built");
    let built = found(CLONED, |stage| {
        old(stage);
        let vmid = stage.desired.templates.iter().find(|template| !template.existing).expect("one").vmid;
        stage.put(vmid, VmSeen { template: true, ..vm(&host("pve1"), Owner::Ours) });
    });
    assert!(built.is_empty(), "{built:?}");
    assert!(found(&POOLED.replace("boot:", "image: {source: iso}\nboot:"), old).is_empty());
    let unseen = found(POOLED, |stage| stage.observed.release = Sight::Unseen("no rights".into()));
    assert!(unseen.is_empty(), "{unseen:?}");
}

fn verify(stage: &mut Stage, by: Verify) {
    stage.desired.machines.iter_mut().for_each(|machine| machine.boot.verify = by);
}

#[test]
fn consoles_that_no_token_may_read() {
    let old = |stage: &mut Stage| stage.observed.release = Sight::Seen(Release { major: 9, minor: 1 });
    assert_eq!(
        found(POOLED, old),
        [
            "error ICH-3104: Proxmox 9.1 shows no console to API tokens, so nobody vouches for the key of `cp-1` (tokens may read consoles since Proxmox 9.2)"
        ]
    );
    let mut ready = Stage::of(POOLED).ready();
    old(&mut ready);
    assert!(
        ichor_plan::preflight(&ready.desired, &ready.observed).is_empty(),
        "nobody has to be verified any more"
    );
}

#[test]
fn networks_that_are_trusted() {
    let trusting = found(POOLED, |stage| verify(stage, Verify::Network));
    assert_eq!(
        trusting,
        [
            "warning ICH-3119: `cp-1` and 4 more will get their configs from us whoever they are (`boot.verify: network` trusts whoever answers at the address)"
        ]
    );
}

#[test]
fn hosts_that_are_not_there() {
    let alone = |change: fn(&mut Stage)| {
        found(POOLED, |stage| {
            stage.desired.machines.truncate(1);
            change(stage);
        })
    };
    let down = alone(|stage| stage.observed.hosts.values_mut().for_each(|answers| *answers = false));
    assert_eq!(down, ["error ICH-3105: `cp-1` cannot be made on host `pve1` (it does not answer)"]);
    let unknown = alone(|stage| stage.observed.hosts.retain(|name, _| name.as_str() != "pve1"));
    assert_eq!(
        unknown,
        ["error ICH-3105: `cp-1` cannot be made on host `pve1` (Proxmox knows no such host)"]
    );
    let nowhere = alone(|stage| stage.desired.machines[0].host = Late::From(Source::LiveHosts));
    assert_eq!(
        nowhere,
        [
            "error ICH-3115: no host could be chosen for `cp-1` (Proxmox shows no host that answers to this token)"
        ]
    );
    assert!(alone(|stage| stage.observed.hosts.clear()).is_empty(), "nobody looked at hosts");
}

#[test]
fn storages_that_cannot_hold_what_is_wanted() {
    let missing =
        found(POOLED, |stage| drop(stage.observed.storages.remove(&(host("pve1"), "local".into()))));
    assert_eq!(
        missing,
        [
            "error ICH-3106: host `pve1` has no storage `local` for disk images (disk images need the content type `import`)",
            "error ICH-3106: host `pve1` has no storage `local` for cidata volumes (cidata volumes need the content type `iso`)",
        ]
    );
    let content =
        found(POOLED, |stage| storage(stage, "pve2", "local").content = vec!["iso".into(), "backup".into()]);
    assert_eq!(
        content,
        [
            "error ICH-3106: storage `local` on host `pve2` may not hold disk images (disk images need the content type `import`)",
        ]
    );
    let broken = found(POOLED, |stage| storage(stage, "pve2", "local-lvm").active = false);
    assert_eq!(
        broken,
        [
            "error ICH-3106: storage `local-lvm` does not work on host `pve2` (Proxmox says that it is not active there)",
        ]
    );
    let template = found(CLONED, |stage| storage(stage, "pve1", "local").content = vec!["iso".into()]);
    assert_eq!(
        template,
        [
            "error ICH-3106: storage `local` on host `pve1` may not hold disk images (disk images need the content type `import`)",
        ]
    );
    let unseen = found(POOLED, |stage| stage.observed.storages.clear());
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn storages_with_too_little_room() {
    let small = |shared: bool| {
        found(POOLED, |stage| {
            for name in ["pve1", "pve2"] {
                storage(stage, name, "local-lvm").free = Some(80 << 30);
                storage(stage, name, "local-lvm").shared = shared;
            }
            stage.desired.machines.truncate(4);
            for (machine, on) in stage.desired.machines.iter_mut().zip(["pve1", "pve2", "pve1", "pve2"]) {
                machine.host = Late::Known(host(on));
                machine.disks[0].size = "30GiB".parse().expect("a size");
            }
        })
    };
    assert!(small(false).is_empty(), "two of 30 GiB have room on each host");
    assert_eq!(
        small(true),
        [
            "warning ICH-3107: storage `local-lvm` on host `pve1` has too little room (new disks have 120 GiB, and 80 GiB are free)",
        ]
    );
}

#[test]
fn templates_that_cannot_be_cloned() {
    let theirs =
        |stage: &Stage| stage.desired.templates.iter().find(|template| template.existing).expect("one").vmid;
    let own =
        |stage: &Stage| stage.desired.templates.iter().find(|template| !template.existing).expect("one").vmid;
    let says = |machines: &[&str], vmid: u32, why: &str| -> Vec<String> {
        let line =
            |machine| format!("error ICH-3111: `{machine}` cannot be cloned from template {vmid} ({why})");
        machines.iter().map(line).collect()
    };
    let none = found(CLONED, |stage| drop(stage.observed.vms.insert(theirs(stage), Sight::Seen(None))));
    assert_eq!(none, says(&["w-1", "w-2"], 901, "there is no VM 901"));
    let unseen = found(CLONED, |stage| {
        stage.observed.vms.insert(theirs(stage), Sight::Unseen("no rights".into()));
    });
    assert_eq!(unseen, says(&["w-1", "w-2"], 901, "VM 901 could not be seen: no rights"));
    let plain = found(CLONED, |stage| {
        let vmid = theirs(stage);
        stage.vm(vmid).template = false;
    });
    assert_eq!(plain, says(&["w-1", "w-2"], 901, "VM 901 is no template"));
    for (owner, why) in [
        (Owner::Foreign("it has no stamp".into()), "it has no stamp"),
        (Owner::OtherCluster("y".into()), "it belongs to the cluster `y`"),
        (Owner::OtherMachine("w-9".into()), "it is w-9 of this cluster"),
    ] {
        let taken = found(CLONED, |stage| stage.put(own(stage), vm(&host("pve1"), owner)));
        assert_eq!(taken, says(&["cp"], 900, &format!("VM 900 is somebody else's: {why}")));
    }
    let apart = found(CLONED, |stage| {
        stage.observed.storages.values_mut().for_each(|storage| storage.shared = false);
    });
    let lonely = apart.iter().filter(|line| line.contains("is not shared")).count();
    assert!(lonely > 0 && lonely == apart.len(), "{apart:?}");
    let linked = found(CLONED, |stage| {
        stage.desired.templates.iter_mut().for_each(|template| template.clone = CloneKind::Linked);
        stage.desired.machines[0].disks[0].storage = "local".into();
    });
    assert_eq!(linked, says(&["cp"], 900, "a linked clone stays on the template's storage `local-lvm`"));
}

/// Says what is told about a worker that runs, does not answer where the inventory has it, and of which this is known.
fn moved(vm_has: &[&str], node: Option<(&[&str], bool)>, seen: MachineSeen) -> Option<(Severity, String)> {
    let mut stage = Stage::of(POOLED).ready();
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
    let vmid = stage.machine("w-1").vmid;
    stage.vm(vmid).running = true;
    stage.vm(vmid).addresses = addresses(vm_has);
    stage.talk(&"w-1".parse().expect("a name"), seen);
    let Sight::Seen(nodes) = &mut stage.observed.nodes else { panic!("nodes") };
    match node {
        Some((has, ready)) => {
            let node = nodes.get_mut("w-1").expect("a node");
            (node.addresses, node.ready) = (addresses(has), ready);
        }
        None => drop(nodes.remove("w-1")),
    }
    let found = ichor_plan::preflight(&stage.desired, &stage.observed);
    let found = found.iter().find(|finding| finding.code.to_string() == "ICH-3134");
    found.map(|finding| (finding.severity, finding.message.clone()))
}

#[test]
fn a_machine_that_runs_at_another_address_stops_a_run() {
    let silent = || MachineSeen::Silent("nobody answers".into());
    let ours = || MachineSeen::Ours(TalosSeen::default());
    let own = "10.0.0.20";
    let is = |told: Option<(Severity, String)>| told.map(|(severity, _)| severity);
    // Its cloud-init or its agent says so.
    let told = moved(&["10.0.0.99"], None, silent()).expect("a finding");
    assert_eq!(
        told,
        (Severity::Error, format!("`w-1` runs with the address 10.0.0.99, and the inventory gives it {own}"))
    );
    assert_eq!(is(moved(&["10.0.0.99"], None, MachineSeen::Maintenance)), Some(Severity::Error));
    assert_eq!(is(moved(&["10.0.0.99"], Some((&["10.0.0.99"], true)), ours())), Some(Severity::Error));
    // Somebody gave it the new address by hand, and it answers there.
    assert_eq!(is(moved(&["10.0.0.99"], Some((&[own], true)), ours())), None);
    assert_eq!(is(moved(&["10.0.0.99"], None, ours())), None);
    // It boots.
    assert_eq!(is(moved(&[own], None, silent())), None);
    assert_eq!(is(moved(&[own, "fd00::1"], None, silent())), None, "there is no other family to compare");
    // Only its node speaks.
    assert_eq!(is(moved(&[], Some((&["10.0.0.99"], true)), silent())), Some(Severity::Error));
    for node in [None, Some((&["10.0.0.99"][..], false)), Some((&["100.64.0.7"][..], true))] {
        assert_eq!(is(moved(&[], node, silent())), Some(Severity::Warning), "nobody can tell: {node:?}");
    }
    assert_eq!(is(moved(&[], None, MachineSeen::Maintenance)), None);
}
