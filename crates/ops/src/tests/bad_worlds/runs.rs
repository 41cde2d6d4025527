//! Runs that are not alone, are lied to, or find another world at their end.

use std::sync::{Arc, Mutex};

use ichor_engine::{Event, EventSink};
use ichor_lab::Inside;
use ichor_model::VmId;
use ichor_sim::{
    faults::{Kind, Server, When},
    hostility::Hostility,
};

use super::{SMALL, findings, told};
use crate::{
    converge::Goal,
    store::Store,
    tests::{lab, live::Rehearsal, site, with_secrets},
};

#[test]
fn two_runs_at_once_are_one_too_many() {
    let memory = with_secrets();
    let store = Store::of(site(lab())).expect("a store");
    let _held = store.hold(&memory).expect("the first");
    memory.is_locked.set(true);
    let halt = store.hold(&memory).expect_err("the second");
    assert_eq!(halt.kind, crate::HaltKind::Busy);
    assert_eq!(
        findings(&halt.findings),
        "error[ICH-2124]: another run writes to `home/.ichor/lab`\n\
         hint: run the same command again when it has ended\n"
    );
}

#[tokio::test(start_paused = true)]
async fn remote_words_play_no_tricks() {
    for (server, call) in [
        (Server::Pve, "POST /nodes/*/qemu"),
        (Server::Factory, "POST /schematics"),
        (Server::Talos, "/machine.MachineService/ApplyConfiguration"),
    ] {
        let world = Rehearsal::bad(SMALL);
        world.fault(server, call, 0, Kind::Hostile(Hostility::Escapes));
        let said = told(&world.attempt().await);
        let trick = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
        assert!((said.contains("all is well") || said == "done\n") && !said.contains(trick), "{said:?}");
        world.mend();
        world.recovers().await;
    }
}

/// Everything is done, and then Proxmox does not show itself.
#[tokio::test(start_paused = true)]
async fn what_was_done_is_told_though_the_last_look_fails() {
    let broken = || Kind::Status { code: 596, reason: String::new(), when: When::Before };
    // A moment is waited for.
    let rehearsal = Rehearsal::bad(SMALL);
    rehearsal.fault(Server::Pve, "GET /cluster/resources", 3, broken());
    let ended = rehearsal.attempt().await;
    assert!(ended.as_ref().is_ok_and(|ended| ended.done), "{}", told(&ended));
    // A long time is not; what was done is told all the same.
    let rehearsal = Rehearsal::bad(SMALL);
    for occurrence in 3..40 {
        rehearsal.fault(Server::Pve, "GET /cluster/resources", occurrence, broken());
    }
    let events = Arc::new(Looks::default());
    let run =
        rehearsal.run_told(rehearsal.reach(), &rehearsal.desired, Goal::up(), Arc::clone(&events) as _).await;
    let ended = run.expect("no halt: much was done");
    let looks = events.0.lock().expect("lock").clone();
    assert!(looks.len() == 6 && looks[0] == "looking whether anything is left", "{looks:#?}");
    assert!(looks[1..].iter().all(|why| why.contains("596") && why.contains("; again in ")), "{looks:#?}");
    assert!(!ended.done && ended.report.is_some_and(|report| report.is_complete()));
    let said = findings(&ended.findings);
    assert!(
        ended.findings.has_errors() && said.contains("596") && said.contains("every step was done"),
        "{said}"
    );
    assert!(!said.contains("may do"), "the token is not to blame: {said}");
    rehearsal.mend();
    rehearsal.recovers().await;
}

/// Remembers what the world is looked at for.
#[derive(Debug, Default)]
struct Looks(Mutex<Vec<String>>);

impl EventSink for Looks {
    fn emit(&self, event: Event) {
        if let Event::Looking { why } = event {
            self.0.lock().expect("lock").push(why);
        }
    }
}

/// Puts a VM back when the first step has ended.
#[derive(Debug)]
struct Returns {
    hall: Arc<Inside>,
    vm: Mutex<Option<(VmId, ichor_sim::pve::qemu::Vm)>>,
}

impl EventSink for Returns {
    fn emit(&self, event: Event) {
        let vm = matches!(event, Event::Ended { .. }).then(|| self.vm.lock().expect("lock").take()).flatten();
        if let Some((vmid, vm)) = vm {
            self.hall.hall().visit(|lab| lab.pve.vms.insert(vmid, vm));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_in_the_plan_is_not_deleted_after_it() {
    let rehearsal = Rehearsal::bad(SMALL);
    assert!(rehearsal.attempt().await.is_ok_and(|ended| ended.done));
    // Nobody sees the worker when the plan is made; it comes back as if from a backup.
    let vmid = rehearsal.vmid("worker-1");
    let vm = rehearsal.change(|lab| lab.pve.vms.remove(&vmid)).expect("a VM");
    let events = Returns { hall: Arc::clone(&rehearsal.inside), vm: Mutex::new(Some((vmid, vm))) };
    let gone = Goal::Gone(ichor_plan::Extent::Machines);
    let reach = rehearsal.reach();
    let ended = rehearsal.run_told(reach, &rehearsal.desired, gone.clone(), Arc::new(events)).await;
    let ended = ended.expect("no halt: something was done");
    let said = findings(&ended.findings);
    assert!(!ended.done && said.contains(&format!("vm/{vmid}/delete")), "{said}");
    rehearsal.inside.hall().look(|lab| assert!(lab.pve.vms.contains_key(&vmid)));
    // Whoever runs it again sees it in the plan.
    let again = rehearsal.run_to(rehearsal.reach(), &rehearsal.desired, gone).await;
    assert!(again.as_ref().is_ok_and(|ended| ended.done), "{}", told(&again));
    rehearsal.inside.hall().look(|lab| assert!(!lab.pve.vms.contains_key(&vmid)));
}
