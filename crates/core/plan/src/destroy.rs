//! From what is seen to nothing: VMs are stopped and deleted at once, files go when their VMs are gone.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::{
    Desired, HostName, Observed, VmId,
    observed::{Owner, VmSeen},
    step::{Impact, Lane, Plan, Reason, StepId},
};

use crate::{
    action::{Action, ClusterPlan, ClusterStep, Condition},
    files::{has_seed, host_of, image_place, seed_volume, users_of},
};

/// How much of a cluster goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Its machines; images and templates stay for the next time.
    Machines,
    /// Its templates and images too.
    Everything,
}

/// Plans the removal of a cluster. Only VMs that are ours are in it, whatever the inventory says.
pub fn destroy(
    desired: &Desired,
    observed: &Observed,
    schematics: &BTreeMap<String, String>,
    extent: Extent,
) -> ClusterPlan {
    let mut steps = Vec::new();
    let mut gone = Vec::new();
    for (vmid, vm) in our_vms(observed).filter(|(_, vm)| !vm.template) {
        gone.push(remove_vm(&mut steps, vmid, vm, &[]));
    }
    for machine in desired.machines.iter().filter(|machine| has_seed(machine)) {
        if let Some(host) = host_of(machine) {
            let volume = seed_volume(desired, machine, host);
            let after = StepId::new(format!("vm/{}/delete", machine.vmid));
            remove_volume(&mut steps, observed, host, &volume, &[after]);
        }
    }
    if extent == Extent::Everything {
        let templates: Vec<StepId> = our_vms(observed)
            .filter(|(_, vm)| vm.template)
            .map(|(vmid, vm)| remove_vm(&mut steps, vmid, vm, &gone))
            .collect();
        gone.extend(templates);
        for image in desired.images.iter().filter(|image| image.file.is_none()) {
            let schematic = schematics.get(&image.id).map_or("", String::as_str);
            for host in users_of(desired, image) {
                let place = image_place(desired, observed, image, schematic, &host);
                remove_volume(&mut steps, observed, &place.host, &place.volume, &gone);
            }
        }
    }
    finish(steps)
}

/// Returns the VMs that are ours: of this machine or of another one of the same cluster.
fn our_vms(observed: &Observed) -> impl Iterator<Item = (VmId, &VmSeen)> {
    observed.vms.iter().filter_map(|(vmid, sight)| {
        let vm = sight.seen()?.as_ref()?;
        matches!(vm.owner, Owner::Ours | Owner::OtherMachine(_)).then_some((*vmid, vm))
    })
}

fn remove_vm(steps: &mut Vec<ClusterStep>, vmid: VmId, vm: &VmSeen, after: &[StepId]) -> StepId {
    let machine = vm.name.clone();
    let lane = Lane::new("host", vm.host.as_str());
    let mut needs = after.to_vec();
    if vm.running {
        let action = Action::StopVm { machine: machine.clone(), vmid };
        let mut stop = step(format!("vm/{vmid}/stop"), action, Condition::VmOff { vmid }, needs.clone());
        stop.guards = vec![Condition::VmOurs { vmid }];
        stop.lanes = vec![lane.clone()];
        needs.push(stop.id.clone());
        steps.push(stop);
    }
    let action = Action::DeleteVm { machine, vmid };
    let mut delete = step(format!("vm/{vmid}/delete"), action, Condition::VmGone { vmid }, needs);
    delete.guards = vec![Condition::VmOurs { vmid }];
    delete.lanes = vec![lane];
    steps.push(delete.clone());
    delete.id
}

fn remove_volume(
    steps: &mut Vec<ClusterStep>,
    observed: &Observed,
    host: &HostName,
    volume: &str,
    after: &[StepId],
) {
    let (host, volume) = (host.clone(), volume.to_owned());
    let there = observed.volumes.get(&(host.clone(), volume.clone()));
    let id = format!("volume/{host}/{volume}");
    if !there.is_some_and(|sight| sight.seen().is_some_and(Option::is_some))
        || steps.iter().any(|step| step.id.as_str() == id)
    {
        return;
    }
    let done = Condition::VolumeGone { host: host.clone(), volume: volume.clone() };
    steps.push(step(id, Action::DeleteVolume { host, volume }, done, after.to_vec()));
}

fn step(id: String, action: Action, done: Condition, needs: Vec<StepId>) -> ClusterStep {
    ClusterStep {
        id: StepId::new(id),
        action,
        because: Reason::Asked,
        impact: Impact::Destroys,
        needs,
        guards: Vec::new(),
        done,
        lanes: Vec::new(),
        expected: Duration::from_millis(200),
        deadline: Duration::from_mins(15),
    }
}

fn finish(mut steps: Vec<ClusterStep>) -> ClusterPlan {
    let there: Vec<StepId> = steps.iter().map(|step| step.id.clone()).collect();
    for step in &mut steps {
        step.needs.retain(|need| there.contains(need));
    }
    Plan::new(steps).unwrap_or_else(|wrong| unreachable!("each VM is there once: {wrong}"))
}
