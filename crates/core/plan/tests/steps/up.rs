use std::collections::BTreeMap;

use ichor_model::{
    Code, MachineName, Observed, VmId,
    desired::Role,
    observed::{MachineSeen, Owner, Sight, TalosSeen, VmSeen},
    step::{Impact, Reason, StepId, Verdict},
};
use ichor_plan::{Action, ClusterStep, Condition};

use crate::stage::{CLONED, POOLED, Stage, ids, vm};

/// The VM that an action changes, if it is one of a machine or a template.
fn changes(stage: &Stage, step: &ClusterStep) -> Option<VmId> {
    match &step.action {
        Action::BuildTemplate { vmid, .. }
        | Action::RemoveTemplate { vmid }
        | Action::CreateVm { vmid, .. }
        | Action::StartVm { vmid, .. }
        | Action::DetachMedium { vmid, .. }
        | Action::StopVm { vmid, .. }
        | Action::DeleteVm { vmid, .. } => Some(*vmid),
        Action::ApplyConfig { machine } | Action::UploadSeed { machine, .. } => {
            Some(stage.machine(machine.as_str()).vmid)
        }
        _ => None,
    }
}

#[test]
fn the_steps_of_a_plan_lead_from_nothing_to_an_empty_plan() {
    for (name, mut stage) in Stage::all() {
        let plan = stage.up();
        assert!(!plan.is_empty(), "{name}");
        for step in plan.steps() {
            stage.perform(step);
        }
        assert_eq!(ids(&stage.up()), [""; 0], "{name}");
    }
}

#[test]
fn wherever_a_run_stops_the_next_plan_is_the_rest() {
    for (name, mut stage) in Stage::all() {
        let plan = stage.up();
        let all = ids(&plan);
        for (done, step) in plan.steps().iter().enumerate() {
            let rest = stage.up();
            assert_eq!(ids(&rest), all[done..], "{name} after {done} steps");
            for (left, first) in rest.steps().iter().zip(&plan.steps()[done..]) {
                assert_eq!(
                    (&left.action, &left.guards, &left.done),
                    (&first.action, &first.guards, &first.done)
                );
            }
            stage.perform(step);
        }
    }
}

/// Steps run side by side, so a run may stop after any of them whose needs are met.
#[test]
fn in_whatever_order_steps_run_the_next_plan_is_the_rest() {
    for (name, empty) in Stage::all() {
        for seed in 1..=8_usize {
            let mut stage = empty.clone();
            let mut draw = seed;
            loop {
                let plan = stage.up();
                let ready: Vec<&ClusterStep> =
                    plan.steps().iter().filter(|step| may_run(&stage, step)).collect();
                if plan.is_empty() {
                    break;
                }
                assert!(!ready.is_empty(), "{name}: nothing can run of {:?}", ids(&plan));
                // A linear congruential generator: the same orders in every run of the test.
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let next = ready[(draw >> 33) % ready.len()];
                stage.perform(next);
                let expected: Vec<String> =
                    ids(&plan).into_iter().filter(|id| id != next.id.as_str()).collect();
                assert_eq!(ids(&stage.up()), expected, "{name}, seed {seed}, after {}", next.id);
            }
        }
    }
}

/// The engine waits for a guard that cannot be judged yet, and does other things meanwhile.
fn may_run(stage: &Stage, step: &ClusterStep) -> bool {
    let unknown = |guard: &Condition| matches!(guard.judge(&stage.observed), Verdict::Unknown(_));
    step.needs.is_empty() && !step.guards.iter().any(unknown)
}

#[test]
fn no_step_is_about_a_vm_that_is_somebody_elses() {
    let owners = [
        Owner::Foreign("it has no stamp".into()),
        Owner::OtherCluster("y".into()),
        Owner::OtherMachine("w-9".into()),
    ];
    for (name, empty) in Stage::all() {
        let own = empty.desired.templates.iter().filter(|template| !template.existing);
        let numbers =
            empty.desired.machines.iter().map(|machine| machine.vmid).chain(own.map(|own| own.vmid));
        for vmid in numbers {
            for (owner, running) in owners.iter().flat_map(|owner| [(owner, false), (owner, true)]) {
                let mut stage = empty.clone();
                let host = stage.desired.hosts[0].name.clone();
                let mut theirs = vm(&host, owner.clone());
                theirs.running = running;
                theirs.template = !running;
                stage.put(vmid, theirs);
                for step in stage.up().steps() {
                    assert_ne!(changes(&stage, step), Some(vmid), "{name}: {}", step.id);
                    let created =
                        matches!(step.action, Action::CreateVm { .. }).then(|| step.action.machine());
                    let source = created.flatten().and_then(|machine| stage.machine(machine).template);
                    assert_ne!(source, Some(vmid), "{name}: {} clones it", step.id);
                }
                assert!(!stage.up().is_empty(), "{name}: the machine is missing, so this is not done");
                let findings = ichor_plan::preflight(&stage.desired, &stage.observed);
                assert!(findings.has_errors(), "{name}: VM {vmid}");
            }
        }
    }
}

#[test]
fn a_machine_whose_vm_was_replaced_by_somebody_elses_is_left_alone() {
    for (name, ready) in Stage::all().into_iter().map(|(name, stage)| (name, stage.ready())) {
        for machine in &ready.desired.machines {
            let mut stage = ready.clone();
            stage.vm(machine.vmid).owner = Owner::Foreign("its uuid is another".into());
            stage.vm(machine.vmid).running = false;
            stage.talk(&machine.name, MachineSeen::Maintenance);
            let plan = stage.up();
            assert!(ids(&plan).contains(&format!("machine/{}/configure", machine.name)), "{name}");
            for step in plan.steps().iter().filter(|step| step.impact != Impact::Waits) {
                assert_eq!(step.id.as_str(), "cluster/bootstrap", "{name}");
                let refuses = |guard: &Condition| matches!(guard.judge(&stage.observed), Verdict::Fails(_));
                assert!(step.guards.iter().any(refuses), "{name}: etcd would begin on somebody else's VM");
            }
        }
    }
}

#[test]
fn nothing_is_supplied_that_no_machine_needs() {
    for (name, ready) in Stage::all().into_iter().map(|(name, stage)| (name, stage.ready())) {
        let mut bare = ready.clone();
        bare.observed.pool = Sight::Seen(false);
        bare.observed.volumes.values_mut().for_each(|file| *file = Sight::Seen(None));
        for template in &ready.desired.templates {
            bare.observed.vms.insert(template.vmid, Sight::Seen(None));
        }
        assert_eq!(ids(&bare.up()), [""; 0], "{name}");
        let last = bare.desired.machines.last().expect("a machine").clone();
        bare.observed.vms.insert(last.vmid, Sight::Seen(None));
        let plan = bare.up();
        let images =
            plan.steps().iter().filter(|step| matches!(step.action, Action::FetchImage { .. })).count();
        let builds = plan.steps().iter().filter_map(|step| match step.action {
            Action::BuildTemplate { vmid, .. } => Some(vmid),
            _ => None,
        });
        assert!(images <= 1, "{name}: {:?}", ids(&plan));
        let own = bare.desired.templates.iter().filter(|template| !template.existing);
        let wanted = own.map(|template| template.vmid).find(|vmid| Some(*vmid) == last.template);
        assert_eq!(builds.collect::<Vec<VmId>>(), wanted.into_iter().collect::<Vec<VmId>>(), "{name}");
    }
}

#[test]
fn what_is_unseen_is_not_done() {
    for (name, ready) in Stage::all().into_iter().map(|(name, stage)| (name, stage.ready())) {
        let unseen = |change: &dyn Fn(&mut Observed)| {
            let mut stage = ready.clone();
            change(&mut stage.observed);
            stage.up()
        };
        let blind = || "no rights".to_owned();
        for machine in &ready.desired.machines {
            let plan = unseen(&|seen| drop(seen.vms.insert(machine.vmid, Sight::Unseen(blind()))));
            for what in ["create", "start"] {
                let id = StepId::new(format!("machine/{}/{what}", machine.name));
                let step = plan.steps().iter().find(|step| step.id == id).expect("a step");
                assert_eq!(step.because, Reason::Unseen(blind()), "{name}");
            }
            let plan =
                unseen(&|seen| drop(seen.machines.insert(machine.name.clone(), Sight::Unseen(blind()))));
            assert!(ids(&plan).contains(&format!("machine/{}/configure", machine.name)), "{name}");
        }
        let plan = unseen(&|seen| seen.etcd = Sight::Unseen(blind()));
        let votes =
            ready.desired.of_role(Role::ControlPlane).map(|machine| format!("machine/{}/join", machine.name));
        assert_eq!(ids(&plan), votes.collect::<Vec<String>>(), "{name}");
        let plan = unseen(&|seen| seen.nodes = Sight::Unseen(blind()));
        assert_eq!(plan.steps().len(), 1 + ready.desired.machines.len(), "{name}");
        let plan = unseen(&|seen| *seen = Observed::default());
        assert!(plan.steps().iter().all(|step| matches!(step.because, Reason::Unseen(_))), "{name}");
        assert!(plan.steps().len() > 4 * ready.desired.machines.len(), "{name}");
    }
}

#[test]
fn each_part_of_the_way_needs_only_itself_and_earlier_parts() {
    for (name, stage) in Stage::all() {
        let plan = stage.up();
        for step in plan.steps() {
            for need in &step.needs {
                let need = plan.steps().iter().find(|other| other.id == *need).expect("a step");
                assert!(need.action.phase() <= step.action.phase(), "{name}: {} needs {}", step.id, need.id);
            }
        }
    }
}

#[test]
fn a_backup_of_a_running_vm_is_nothing_to_do_and_an_unfinished_one_is() {
    let mut stage = Stage::of(POOLED).ready();
    let vmid = stage.machine("w-1").vmid;
    stage.vm(vmid).lock = Some("backup".into());
    assert!(stage.up().is_empty());
    stage.vm(vmid).running = false;
    stage.vm(vmid).lock = Some("create".into());
    let plan = stage.up();
    let create = plan.steps().iter().find(|step| step.id.as_str() == "machine/w-1/create").expect("a step");
    assert_eq!(create.because.to_string(), format!("VM {vmid} is locked (create)"));
}

#[test]
fn a_template_of_ours_that_holds_something_else_is_built_anew_when_it_is_needed() {
    let mut stage = Stage::of(CLONED).ready();
    let template = stage.desired.templates.iter().find(|template| !template.existing).expect("one").vmid;
    stage.vm(template).differences = vec!["another image".into()];
    assert!(stage.up().is_empty(), "nobody needs it");
    let vmid = stage.machine("cp").vmid;
    stage.observed.vms.insert(vmid, Sight::Seen(None));
    stage.talk(&"cp".parse().expect("a name"), MachineSeen::Silent("off".into()));
    stage.observed.etcd = Sight::Unseen("no control plane answers".into());
    let plan = stage.up();
    assert_eq!(
        ids(&plan)[..3],
        [
            format!("template/{template}/remove"),
            format!("template/{template}/build"),
            "machine/cp/create".to_owned(),
        ]
    );
    for (done, step) in plan.steps()[..2].iter().enumerate() {
        assert_eq!(ids(&stage.up()), ids(&plan)[done..]);
        stage.perform(step);
    }
}

#[test]
fn templates_without_a_host_are_built_where_the_first_of_their_machines_will_be() {
    let (_, stage) = Stage::all().into_iter().find(|(name, _)| name == "templates").expect("the example");
    let plan = stage.up();
    let builds: Vec<String> = plan
        .steps()
        .iter()
        .filter_map(|step| match &step.action {
            Action::BuildTemplate { vmid, host } => Some(format!("{vmid} {host}")),
            _ => None,
        })
        .collect();
    let first =
        |role| stage.desired.of_role(role).next().and_then(|machine| machine.host.known()).expect("a host");
    assert_eq!(
        builds,
        [format!("998 {}", first(Role::ControlPlane)), format!("999 {}", first(Role::Worker))]
    );
}

#[test]
fn a_shared_image_is_downloaded_once_and_by_a_host_that_answers() {
    let mut stage = Stage::of(POOLED);
    let fetches = |stage: &Stage| -> Vec<String> {
        let plan = stage.up();
        let hosts = plan.steps().iter().filter_map(|step| match &step.action {
            Action::FetchImage { host, .. } => Some(host.to_string()),
            _ => None,
        });
        hosts.collect()
    };
    assert_eq!(fetches(&stage), ["pve1", "pve2"]);
    stage.observed.storages.values_mut().for_each(|storage| storage.shared = true);
    assert_eq!(fetches(&stage), ["pve1"]);
    stage.observed.hosts.insert("pve1".parse().expect("a name"), false);
    assert_eq!(fetches(&stage), ["pve2"]);
}

#[test]
fn etcd_begins_only_where_it_is_certain_that_it_never_ran() {
    let names: Vec<MachineName> = ["cp-1", "cp-2"].map(|name| name.parse().expect("a name")).to_vec();
    let never = Condition::NeverBootstrapped { on: names.clone() };
    let ran = Condition::Bootstrapped { on: names };
    let talos = |etcd: Option<&str>| {
        MachineSeen::Ours(TalosSeen { etcd: etcd.map(ToOwned::to_owned), ..TalosSeen::default() })
    };
    let judge = |seen: MachineSeen, condition: &Condition| {
        let mut stage = Stage::of(POOLED);
        stage.talk(&"cp-1".parse().expect("a name"), talos(Some("Preparing")));
        stage.talk(&"cp-2".parse().expect("a name"), seen);
        condition.judge(&stage.observed)
    };
    for waiting in [talos(None), talos(Some("Preparing")), MachineSeen::Maintenance] {
        assert_eq!(judge(waiting.clone(), &never), Verdict::Holds);
        assert!(matches!(judge(waiting, &ran), Verdict::Fails(_)));
    }
    for state in ["Running", "Failed", "Finished", "Stopping"] {
        assert!(matches!(judge(talos(Some(state)), &never), Verdict::Fails(_)), "{state}");
        assert_eq!(judge(talos(Some(state)), &ran), Verdict::Holds, "{state}");
    }
    for dark in [MachineSeen::Silent("off".into()), MachineSeen::Stranger("who".into())] {
        assert!(matches!(judge(dark, &never), Verdict::Unknown(_)));
    }
}

#[test]
fn a_config_goes_to_a_running_vm_of_ours_and_to_nobody_else() {
    let mut stage = Stage::of(POOLED);
    let plan = stage.up();
    let apply =
        plan.steps().iter().find(|step| step.id.as_str() == "machine/cp-1/configure").expect("a step");
    let held =
        |stage: &Stage| apply.guards.iter().all(|guard| guard.judge(&stage.observed) == Verdict::Holds);
    stage.talk(&"cp-1".parse().expect("a name"), MachineSeen::Maintenance);
    assert!(!held(&stage), "there is no VM");
    let (vmid, host) = (stage.machine("cp-1").vmid, stage.desired.hosts[0].name.clone());
    stage.put(vmid, vm(&host, Owner::Ours));
    assert!(!held(&stage), "it is off");
    stage.vm(vmid).running = true;
    assert!(held(&stage));
    stage.vm(vmid).owner = Owner::OtherCluster("y".into());
    assert!(!held(&stage), "it is not ours");
}

#[test]
fn a_file_that_breaks_off_is_fetched_again() {
    let mut stage = Stage::of(POOLED);
    let fetch =
        stage.up().steps().iter().find(|step| matches!(step.action, Action::FetchImage { .. })).cloned();
    let fetch = fetch.expect("a download");
    stage.perform(&fetch);
    let Condition::VolumeThere { host, volume } = &fetch.done else { panic!("{:?}", fetch.done) };
    let mut size = |bytes, wanted| {
        let file = ichor_model::observed::VolumeSeen { bytes, wanted };
        stage.observed.volumes.insert((host.clone(), volume.clone()), Sight::Seen(Some(file)));
        ids(&stage.up()).contains(&fetch.id.to_string())
    };
    assert!(!size(1000, Some(1000)));
    assert!(size(999, Some(1000)));
    assert!(size(0, None) && size(511, None));
    assert!(!size(512, None));
}

/// A cluster that was ready, one of whose control planes is gone with its VM.
fn without_a_control_plane() -> Stage {
    let mut stage = Stage::of(POOLED).ready();
    let lost = stage.machine("cp-2").clone();
    stage.observed.vms.insert(lost.vmid, Sight::Seen(None));
    stage.talk(&lost.name, MachineSeen::Silent("nobody answers".into()));
    stage
}

#[test]
fn the_vote_of_a_lost_control_plane_goes_before_another_machine_takes_its_place() {
    let mut stage = without_a_control_plane();
    assert!(!ichor_plan::preflight(&stage.desired, &stage.observed).has_errors());
    let plan = stage.up();
    let step = |id: &str| plan.steps().iter().find(|step| step.id.as_str() == id).expect("a step");
    let vote = step("machine/cp-2/vote");
    assert_eq!(vote.impact, Impact::Destroys);
    let written = serde_json::to_string(&vote.action).expect("JSON");
    assert_eq!(written, r#"{"do":"remove-member","machine":"cp-2","member":"0000000000000002"}"#);
    assert_eq!(serde_json::from_str::<Action>(&written).expect("an action"), vote.action);
    assert!(!ids(&plan).iter().any(|id| id.contains("cp-1") || id.contains("cp-3")), "{:?}", ids(&plan));
    for later in ["machine/cp-2/create", "machine/cp-2/talos"] {
        assert!(step(later).needs.contains(&vote.id), "{later}");
    }
    for step in plan.steps() {
        // Its node was there before, and stands for it again as soon as it runs.
        if step.done.judge(&stage.observed) != Verdict::Holds {
            stage.perform(step);
        }
    }
    assert!(stage.up().is_empty());
    assert_eq!(stage.observed.etcd.seen().map(BTreeMap::len), Some(3));
}

#[test]
fn a_machine_that_was_made_anew_and_has_not_joined_still_has_an_old_vote() {
    let mut stage = without_a_control_plane();
    let lost = stage.machine("cp-2").clone();
    let host = ichor_plan::files::host_of(&lost).expect("a host").clone();
    stage.put(lost.vmid, VmSeen { running: true, ..vm(&host, Owner::Ours) });
    stage.talk(&lost.name, MachineSeen::Maintenance);
    let plan = stage.up();
    assert!(ids(&plan).contains(&"machine/cp-2/vote".to_owned()), "{:?}", ids(&plan));
    // One that was seen in maintenance, and is about to join when etcd is asked, is not gone.
    let mut members = stage.observed.etcd.seen().cloned().expect("members");
    members.get_mut("cp-2").expect("a member").learner = true;
    stage.observed.etcd = Sight::Seen(members);
    assert!(!ids(&stage.up()).contains(&"machine/cp-2/vote".to_owned()));
}

#[test]
fn no_vote_goes_that_etcd_cannot_do_without() {
    let mut stage = without_a_control_plane();
    let silent = stage.machine("cp-3").name.clone();
    stage.talk(&silent, MachineSeen::Silent("nobody answers".into()));
    let found = ichor_plan::preflight(&stage.desired, &stage.observed);
    let told: Vec<_> = found.iter().filter(|finding| finding.code == Code::STALE_MEMBER).collect();
    assert_eq!(told.len(), 1, "{found:?}");
    let why = "1 of the 2 voters that would be left answer, and 2 are needed; silent, or not in the inventory: `cp-3`";
    assert!(format!("{:?}", told[0].notes).contains(why), "{:?}", told[0]);
    // Whoever begins all the same is stopped by the step's own look.
    let plan = stage.up();
    let vote = plan.steps().iter().find(|step| step.id.as_str() == "machine/cp-2/vote").expect("a step");
    assert_eq!(vote.guards[0].judge(&stage.observed), Verdict::Fails(why.into()));
}
