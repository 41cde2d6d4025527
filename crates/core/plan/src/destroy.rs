//! From what is seen to nothing: VMs are stopped and deleted at once, files go when their VMs are gone.
//!
//! What could not be seen is in the plan too: each step looks again, and does nothing where nothing of ours is.

use std::time::Duration;

use ichor_model::{
    Desired, HostName, Observed, VmId,
    observed::{Sight, VmSeen, VolumeSeen},
    step::{Impact, Lane, Plan, Reason, StepId},
};

use crate::{
    action::{Action, ClusterPlan, ClusterStep, Condition},
    files::{Names, has_seed, host_of, image_place, seed_volume, stale_seeds, template_host, users_of},
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
pub fn destroy(desired: &Desired, observed: &Observed, names: &Names, extent: Extent) -> ClusterPlan {
    let mut steps = Vec::new();
    let mut gone = Vec::new();
    for (vmid, vm) in our_vms(observed).filter(|(_, vm)| !vm.template) {
        gone.push(remove_vm(&mut steps, vmid, &Target::of(vm), &[]));
    }
    for machine in desired.machines.iter().filter(|machine| is_unseen(observed, machine.vmid)) {
        let target = Target::unseen(machine.name.to_string(), host_of(machine));
        gone.push(remove_vm(&mut steps, machine.vmid, &target, &[]));
    }
    for machine in desired.machines.iter().filter(|machine| has_seed(machine)) {
        if let Some(host) = host_of(machine) {
            let after = [StepId::new(format!("vm/{}/delete", machine.vmid))];
            let current = seed_volume(desired, machine, host, names);
            for volume in stale_seeds(desired, observed, machine, names).into_iter().chain([current]) {
                remove_volume(&mut steps, observed, host, &volume, &after);
            }
        }
    }
    if extent == Extent::Everything {
        let machines = gone.clone();
        for (vmid, vm) in our_vms(observed).filter(|(_, vm)| vm.template) {
            gone.push(remove_vm(&mut steps, vmid, &Target::of(vm), &machines));
        }
        let own = desired.templates.iter().filter(|template| !template.existing);
        for template in own.filter(|template| is_unseen(observed, template.vmid)) {
            let host = template_host(desired, observed, template);
            let target = Target::unseen(format!("template {}", template.vmid), host);
            gone.push(remove_vm(&mut steps, template.vmid, &target, &machines));
        }
        for image in desired.images.iter().filter(|image| image.file.is_none()) {
            let schematic = names.schematics.get(&image.id).map_or("", String::as_str);
            for host in users_of(desired, observed, image) {
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
        vm.owner.is_cluster().then_some((*vmid, vm))
    })
}

fn is_unseen(observed: &Observed, vmid: VmId) -> bool {
    observed.vms.get(&vmid).and_then(Sight::seen).is_none()
}

/// A VM that is to go.
struct Target {
    name: String,
    host: Option<HostName>,
    may_run: bool,
    because: Reason,
}

impl Target {
    fn of(vm: &VmSeen) -> Self {
        let (name, host) = (vm.name.clone(), Some(vm.host.clone()));
        Self { name, host, may_run: vm.running, because: Reason::Asked }
    }

    fn unseen(name: String, host: Option<&HostName>) -> Self {
        let because = Reason::Unseen("whether it is there could not be seen".into());
        Self { name, host: host.cloned(), may_run: true, because }
    }
}

fn remove_vm(steps: &mut Vec<ClusterStep>, vmid: VmId, target: &Target, after: &[StepId]) -> StepId {
    let machine = target.name.clone();
    let lanes: Vec<Lane> = target.host.iter().map(|host| Lane::new("host", host.as_str())).collect();
    let mut needs = after.to_vec();
    if target.may_run {
        let action = Action::StopVm { machine: machine.clone(), vmid };
        let mut stop = step(format!("vm/{vmid}/stop"), action, Condition::VmOff { vmid }, needs.clone());
        stop.guards = vec![Condition::VmOfCluster { vmid }];
        stop.lanes.clone_from(&lanes);
        stop.because = target.because.clone();
        needs.push(stop.id.clone());
        steps.push(stop);
    }
    let action = Action::DeleteVm { machine, vmid };
    let mut delete = step(format!("vm/{vmid}/delete"), action, Condition::VmGone { vmid }, needs);
    delete.guards = vec![Condition::VmOfCluster { vmid }];
    delete.lanes = lanes;
    delete.because = target.because.clone();
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
    let because = match there {
        Some(Sight::Seen(None)) => return,
        Some(Sight::Seen(Some(VolumeSeen { .. }))) => Reason::Asked,
        Some(Sight::Unseen(why)) => Reason::Unseen(why.clone()),
        None => Reason::Unseen("nobody looked".into()),
    };
    if steps.iter().any(|step| step.id.as_str() == id) {
        return;
    }
    let done = Condition::VolumeGone { host: host.clone(), volume: volume.clone() };
    let mut delete = step(id, Action::DeleteVolume { host, volume }, done, after.to_vec());
    delete.because = because;
    steps.push(delete);
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
