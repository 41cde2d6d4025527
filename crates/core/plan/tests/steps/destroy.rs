use ichor_model::{
    Observed, VmId,
    observed::{Owner, Sight, VmSeen},
    step::{Reason, Verdict},
};
use ichor_plan::{Action, Extent, protected_by_others};

use crate::stage::{CLONED, POOLED, Stage, ids, vm};

/// Neighbours on the same hosts, and one machine that has left the inventory.
fn with_neighbours(stage: &mut Stage) -> Vec<(VmId, VmSeen)> {
    let host = stage.desired.hosts[0].name.clone();
    let number = |number: u32| VmId::new(number).expect("a number");
    let neighbours = [
        (number(7001), Owner::Foreign("it has no stamp".into())),
        (number(7002), Owner::OtherCluster("y".into())),
    ];
    let mut theirs = Vec::new();
    for (vmid, owner) in neighbours {
        let vm = VmSeen { running: true, ..vm(&host, owner) };
        stage.put(vmid, vm.clone());
        theirs.push((vmid, vm));
    }
    stage.put(number(7003), VmSeen { running: true, ..vm(&host, Owner::OtherMachine("w-9".into())) });
    theirs
}

fn ours(observed: &Observed) -> Vec<VmId> {
    let seen = observed.vms.iter().filter_map(|(vmid, sight)| Some((vmid, sight.seen()?.as_ref()?)));
    seen.filter(|(_, vm)| vm.owner.is_cluster()).map(|(vmid, _)| *vmid).collect()
}

#[test]
fn after_any_part_of_the_way_up_everything_of_ours_goes_and_nothing_else() {
    for (name, mut stage) in Stage::all() {
        let existing = |stage: &Stage| -> Vec<_> {
            let theirs = stage.desired.templates.iter().filter(|template| template.existing);
            theirs.map(|template| stage.observed.vms[&template.vmid].clone()).collect()
        };
        let plan = stage.up();
        for done in 0..=plan.steps().len() {
            let mut down = stage.clone();
            let (theirs, templates) = (with_neighbours(&mut down), existing(&down));
            let way = down.destroy(Extent::Everything);
            let all = ids(&way);
            for (gone, step) in way.steps().iter().enumerate() {
                assert_eq!(
                    ids(&down.destroy(Extent::Everything)),
                    all[gone..],
                    "{name}, {done} up, {gone} down"
                );
                down.perform(step);
            }
            assert_eq!(ours(&down.observed), [], "{name}, {done} up");
            assert!(
                down.observed.volumes.values().all(|file| *file == Sight::Seen(None)),
                "{name}, {done} up"
            );
            for (vmid, vm) in theirs {
                assert_eq!(down.observed.vms[&vmid], Sight::Seen(Some(vm)), "{name}");
            }
            assert_eq!(existing(&down), templates, "{name}");
            assert_eq!(ids(&down.destroy(Extent::Everything)), [""; 0], "{name}");
            if let Some(step) = plan.steps().get(done) {
                stage.perform(step);
            }
        }
    }
}

#[test]
fn templates_and_images_stay_when_only_the_machines_go() {
    for (name, stage) in Stage::all() {
        let mut stage = stage.ready();
        for step in stage.destroy(Extent::Machines).steps() {
            assert!(
                !matches!(&step.action, Action::DeleteVolume { volume, .. } if !volume.contains("cidata")),
                "{name}"
            );
            stage.perform(step);
        }
        let own = stage.desired.templates.iter().filter(|template| !template.existing);
        let mut templates: Vec<VmId> = own.map(|template| template.vmid).collect();
        templates.sort_unstable();
        assert_eq!(ours(&stage.observed), templates, "{name}");
        let left = stage.up();
        assert!(
            !left
                .steps()
                .iter()
                .any(|step| matches!(step.action, Action::FetchImage { .. } | Action::BuildTemplate { .. })),
            "{name}"
        );
    }
}

#[test]
fn files_go_after_the_vms_that_use_them_and_templates_after_their_clones() {
    let plan = Stage::of(POOLED).ready().destroy(Extent::Everything);
    let needs = |id: &str| {
        let step = plan.steps().iter().find(|step| step.id.as_str().starts_with(id)).expect("a step");
        step.needs.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    let machines: Vec<String> =
        (2000..2003).chain(3000..3002).map(|vmid| format!("vm/{vmid}/delete")).collect();
    assert_eq!(needs("volume/pve1/local:import"), machines);
    assert_eq!(needs("volume/pve1/local:iso/ichor-cidata-cp-1"), ["vm/2000/delete"]);
    assert_eq!(needs("vm/2000/delete"), ["vm/2000/stop"]);
    let plan = Stage::of(CLONED).ready().destroy(Extent::Everything);
    let template = plan.steps().iter().find(|step| step.id.as_str() == "vm/900/delete").expect("a step");
    assert_eq!(template.needs.len(), 3);
}

#[test]
fn what_could_not_be_seen_is_looked_for_again_and_left_if_it_is_not_ours() {
    for (name, mut stage) in Stage::all() {
        stage.observed = Observed {
            hosts: stage.observed.hosts.clone(),
            storages: stage.observed.storages.clone(),
            ..Observed::default()
        };
        let plan = stage.destroy(Extent::Everything);
        for machine in &stage.desired.machines {
            assert!(ids(&plan).contains(&format!("vm/{}/delete", machine.vmid)), "{name}");
        }
        let host = stage.desired.hosts[0].name.clone();
        for step in plan.steps() {
            assert!(matches!(step.because, Reason::Unseen(_)), "{name}: {}", step.id);
            let (Action::StopVm { vmid, .. } | Action::DeleteVm { vmid, .. }) = step.action else { continue };
            let mut theirs = stage.clone();
            theirs.put(vmid, VmSeen { running: true, ..vm(&host, Owner::Foreign("no stamp".into())) });
            assert!(
                step.guards.iter().all(|guard| matches!(guard.judge(&theirs.observed), Verdict::Fails(_))),
                "{name}"
            );
            assert_eq!(step.done.judge(&theirs.observed), Verdict::Holds, "{name}: there is nothing to do");
        }
    }
}

#[test]
fn vms_that_somebody_else_protects_are_named() {
    let (_, mut stage) = Stage::all().into_iter().next().expect("a stage");
    for step in stage.up().steps() {
        stage.perform(step);
    }
    with_neighbours(&mut stage);
    let judge = |stage: &Stage| {
        let plan = stage.destroy(Extent::Everything);
        protected_by_others(&stage.desired, &stage.observed, &plan)
    };
    let protect = |stage: &mut Stage, vmid: VmId| {
        if let Some(Sight::Seen(Some(vm))) = stage.observed.vms.get_mut(&vmid) {
            vm.protected = true;
        }
    };
    assert_eq!(judge(&stage), None);
    protect(&mut stage, VmId::new(7001).expect("a number"));
    assert_eq!(judge(&stage), None, "what does not go may be protected");
    let first = stage.desired.machines[0].vmid;
    stage.desired.machines[0].vm.protection = true;
    protect(&mut stage, first);
    assert_eq!(judge(&stage), None, "the inventory asks for it");
    protect(&mut stage, VmId::new(7003).expect("a number"));
    let finding = judge(&stage).expect("a finding");
    assert!(finding.notes[0].contains("VM 7003") && !finding.notes[0].contains(&first.to_string()));
    stage.desired.machines[0].vm.protection = false;
    let finding = judge(&stage).expect("a finding");
    assert!(finding.notes[0].contains(&format!("VM {first}")), "{:?}", finding.notes);
    assert!(finding.remedy.is_some_and(|remedy| remedy.contains(&format!("qm set {first} --protection 0"))));
}
