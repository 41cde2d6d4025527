//! From what is seen to a Ready cluster.
//!
//! 1. `steps`: every step that a cluster ever needs, from nothing to Ready, with what holds when it is done;
//! 2. those that are done already are left out: what is seen decides, not what was done before;
//! 3. images and templates are left out too when nothing that is left needs them.
//!
//! Where a number is somebody else's VM, no step is about that VM. The machine is only waited for, so that the plan
//! is not empty; [`preflight`](crate::preflight()) says what stands in the way.
//!
//! So a cluster that is Ready has an empty plan, and one that was interrupted anywhere has the rest.

use std::{collections::BTreeSet, time::Duration};

use ichor_model::{
    Desired, HostName, Observed, VmId,
    desired::{ConfigDelivery, Image, Machine, Role, Template},
    observed::{Owner, Sight},
    step::{Impact, Lane, Plan, Reason, StepId, Verdict},
};

use crate::{
    action::{Action, ClusterPlan, ClusterStep, Condition},
    files::{
        Names, has_passing_media, has_seed, host_of, image_place, seed_volume, stale_seeds, template_host,
        template_of,
    },
    voters::stale_member,
};

/// Plans the way to a Ready cluster.
pub fn up(desired: &Desired, observed: &Observed, names: &Names) -> ClusterPlan {
    let steps = Draft { desired, observed, names, steps: Vec::new() }.draw_up();
    let left: Vec<ClusterStep> = steps.into_iter().filter_map(|step| unless_done(step, observed)).collect();
    let needed = without_idle_supplies(left);
    // Needs are made from the same list, each step after those that it needs, so this is a plan.
    Plan::new(needed).unwrap_or_else(|wrong| unreachable!("steps are drawn up in order: {wrong}"))
}

/// Leaves out a step that is done; gives the others their reason.
fn unless_done(mut step: ClusterStep, observed: &Observed) -> Option<ClusterStep> {
    step.because = match step.done.judge(observed) {
        Verdict::Holds => return None,
        Verdict::Fails(why) => Reason::Missing(why),
        Verdict::Unknown(why) => Reason::Unseen(why),
    };
    Some(step)
}

/// Leaves out images, templates and pools that nothing needs, and needs that are met.
fn without_idle_supplies(mut steps: Vec<ClusterStep>) -> Vec<ClusterStep> {
    loop {
        let needed: BTreeSet<StepId> = steps.iter().flat_map(|step| step.needs.clone()).collect();
        let before = steps.len();
        steps.retain(|step| !is_supply(&step.action) || needed.contains(&step.id));
        if steps.len() == before {
            break;
        }
    }
    let there: BTreeSet<StepId> = steps.iter().map(|step| step.id.clone()).collect();
    for step in &mut steps {
        step.needs.retain(|need| there.contains(need));
    }
    steps
}

const fn is_supply(action: &Action) -> bool {
    matches!(
        action,
        Action::MakePool { .. }
            | Action::FetchImage { .. }
            | Action::BuildTemplate { .. }
            | Action::RemoveTemplate { .. }
            | Action::UploadSeed { .. }
    )
}

/// How long a kind of step usually takes, and may take in all.
#[derive(Clone, Copy)]
struct Times {
    expected: Duration,
    deadline: Duration,
}

const fn times(expected_ms: u64, deadline_minutes: u64) -> Times {
    Times {
        expected: Duration::from_millis(expected_ms),
        deadline: Duration::from_secs(60 * deadline_minutes),
    }
}

struct Draft<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    names: &'a Names,
    steps: Vec<ClusterStep>,
}

impl Draft<'_> {
    fn draw_up(mut self) -> Vec<ClusterStep> {
        let pool = self.pool();
        for template in self.desired.templates.iter().filter(|template| !template.existing) {
            self.template(template, pool.as_ref());
        }
        for machine in &self.desired.machines {
            self.machine(machine, pool.as_ref());
        }
        self.cluster();
        self.steps
    }

    fn pool(&mut self) -> Option<StepId> {
        let pool = self.desired.proxmox.pool.clone()?;
        Some(self.add("cluster/pool", Action::MakePool { pool }, Condition::PoolThere, &[], times(0, 5)))
    }

    fn add(
        &mut self,
        id: &str,
        action: Action,
        done: Condition,
        needs: &[Option<&StepId>],
        times: Times,
    ) -> StepId {
        let id = StepId::new(id);
        let impact = impact(&action);
        let step = ClusterStep {
            id: id.clone(),
            action,
            because: Reason::Needed,
            impact,
            needs: needs.iter().flatten().copied().cloned().collect(),
            guards: Vec::new(),
            done,
            lanes: Vec::new(),
            expected: times.expected,
            deadline: times.deadline,
        };
        self.steps.push(step);
        id
    }

    fn last(&mut self) -> &mut ClusterStep {
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// The download of an image for a host, once for each place.
    fn image(&mut self, image: &Image, host: &HostName) -> Option<StepId> {
        if image.file.is_some() {
            return None;
        }
        let schematic = self.names.schematics.get(&image.id).map_or("", String::as_str);
        let place = image_place(self.desired, self.observed, image, schematic, host);
        let id = format!("image/{}/{}", place.host, place.volume);
        if let Some(step) = self.steps.iter().find(|step| step.id.as_str() == id) {
            return Some(step.id.clone());
        }
        let (host, volume) = (place.host, place.volume);
        let done = Condition::VolumeThere { host: host.clone(), volume: volume.clone() };
        let lane = Lane::new("download", host.as_str());
        let action = Action::FetchImage { image: image.id.clone(), host, volume };
        let id = self.add(&id, action, done, &[], times(2_000, 60));
        self.last().lanes = vec![lane];
        Some(id)
    }

    fn find_image(&self, id: &str) -> Option<Image> {
        self.desired.images.iter().find(|image| image.id == id).cloned()
    }

    /// Whether a number is taken by a VM that is not the one that should have it.
    fn is_taken(&self, vmid: VmId) -> bool {
        let vm = self.observed.vms.get(&vmid).and_then(Sight::seen).and_then(Option::as_ref);
        vm.is_some_and(|vm| vm.owner != Owner::Ours)
    }

    fn template(&mut self, template: &Template, pool: Option<&StepId>) {
        if self.is_taken(template.vmid) {
            return;
        }
        let host = template_host(self.desired, self.observed, template).cloned();
        let (Some(host), Some(image)) = (host, self.find_image(&template.image)) else {
            return;
        };
        let image = self.image(&image, &host);
        let vmid = template.vmid;
        let stale = self.stale_template(template).then(|| {
            let id = format!("template/{vmid}/remove");
            let id = self.add(
                &id,
                Action::RemoveTemplate { vmid },
                Condition::VmGone { vmid },
                &[],
                times(500, 10),
            );
            self.last().guards = vec![Condition::VmOurs { vmid }];
            id
        });
        let needs = [image.as_ref(), pool, stale.as_ref()];
        let lane = Lane::new("host", host.as_str());
        let action = Action::BuildTemplate { vmid, host };
        let id = format!("template/{vmid}/build");
        self.add(&id, action, Condition::TemplateReady { vmid }, &needs, times(1_000, 30));
        self.last().lanes = vec![lane];
    }

    /// A template of ours that holds another image is rebuilt.
    fn stale_template(&self, template: &Template) -> bool {
        let vm = self.observed.vms.get(&template.vmid).and_then(Sight::seen);
        let ours = vm.and_then(Option::as_ref).filter(|vm| vm.owner == Owner::Ours && vm.lock.is_none());
        ours.is_some_and(|vm| vm.template && !vm.differences.is_empty())
    }

    fn machine(&mut self, machine: &Machine, pool: Option<&StepId>) {
        if self.is_taken(machine.vmid) {
            return self.only_wait(machine);
        }
        let (Some(host), Some(image)) = (host_of(machine).cloned(), self.find_image(&machine.image)) else {
            return self.only_wait(machine);
        };
        let source = match template_of(self.desired, machine) {
            Some(template) if template.existing => None,
            Some(template) => {
                let build = StepId::new(format!("template/{}/build", template.vmid));
                let made = Condition::VmShaped { vmid: machine.vmid }.judge(self.observed) == Verdict::Holds;
                if !made && !self.steps.iter().any(|step| step.id == build) {
                    return self.only_wait(machine);
                }
                Some(build)
            }
            None => self.image(&image, &host),
        };
        let seed = has_seed(machine).then(|| self.seed(machine, &host));
        // As long as the vote is there, so is the proof that its machine is lost: it has no VM.
        let vote = self.remove_vote(machine);
        let needs = [source.as_ref(), seed.as_ref(), pool, vote.as_ref()];
        let create = self.create(machine, &host, &needs);
        let start = self.start(machine, &host, &create);
        // A machine that was made before its vote was seen has only this left to do.
        self.configure(machine, &[Some(&start), vote.as_ref()]);
    }

    /// A machine that cannot be made is missing all the same, and what needs it comes after it.
    fn only_wait(&mut self, machine: &Machine) {
        let name = machine.name.clone();
        let done = Condition::Configured { machine: name.clone() };
        let id = step_id(machine, "configure");
        self.add(&id, Action::AwaitConfig { machine: name }, done, &[], times(0, 20));
    }

    fn seed(&mut self, machine: &Machine, host: &HostName) -> StepId {
        self.sweep_seeds(machine, host);
        let volume = seed_volume(self.desired, machine, host, self.names);
        let done = Condition::VolumeThere { host: host.clone(), volume: volume.clone() };
        let (name, host) = (machine.name.clone(), host.clone());
        let id = step_id(machine, "seed");
        self.add(&id, Action::UploadSeed { machine: name, host, volume }, done, &[], times(200, 10))
    }

    /// A cidata volume that was uploaded for a VM which was then never made, and that would be another one now.
    fn sweep_seeds(&mut self, machine: &Machine, host: &HostName) {
        if !matches!(self.observed.vms.get(&machine.vmid), Some(Sight::Seen(None))) {
            return;
        }
        for volume in stale_seeds(self.desired, self.observed, machine, self.names) {
            let id = format!("volume/{host}/{volume}");
            let done = Condition::VolumeGone { host: host.clone(), volume: volume.clone() };
            self.add(&id, Action::DeleteVolume { host: host.clone(), volume }, done, &[], times(0, 10));
        }
    }

    fn create(&mut self, machine: &Machine, host: &HostName, needs: &[Option<&StepId>]) -> StepId {
        let (vmid, name) = (machine.vmid, machine.name.clone());
        let action = Action::CreateVm { machine: name, vmid, host: host.clone() };
        let done = Condition::VmShaped { vmid };
        let id = self.add(&step_id(machine, "create"), action, done, needs, times(1_000, 30));
        let lanes = match template_of(self.desired, machine) {
            Some(template) => vec![Lane::new("template", &template.vmid.to_string())],
            None => Vec::new(),
        };
        self.last().lanes = lanes;
        self.last().lanes.push(Lane::new("host", host.as_str()));
        id
    }

    /// Before a machine is made anew, the one that it was goes out of etcd.
    fn remove_vote(&mut self, machine: &Machine) -> Option<StepId> {
        let member = stale_member(self.observed, machine)?.id;
        let action = Action::RemoveMember { machine: machine.name.clone(), member };
        let done = Condition::MemberGone { member };
        let id = self.add(&step_id(machine, "vote"), action, done, &[], times(0, 10));
        let on = self.desired.of_role(Role::ControlPlane).map(|machine| machine.name.clone()).collect();
        self.last().guards = vec![Condition::QuorumWithout { machine: machine.name.clone(), on }];
        // Two votes that go at once are judged as if each were the only one.
        self.last().lanes = vec![Lane::new("etcd", "votes")];
        Some(id)
    }

    fn start(&mut self, machine: &Machine, host: &HostName, create: &StepId) -> StepId {
        let (vmid, name) = (machine.vmid, machine.name.clone());
        let action = Action::StartVm { machine: name.clone(), vmid };
        let done = Condition::VmRunning { vmid };
        let id = self.add(&step_id(machine, "start"), action, done, &[Some(create)], times(500, 10));
        self.last().lanes = vec![Lane::new("host", host.as_str())];
        self.last().guards = vec![Condition::VmOurs { vmid }, Condition::AddressFree { machine: name }];
        id
    }

    fn configure(&mut self, machine: &Machine, needs: &[Option<&StepId>]) -> StepId {
        let name = machine.name.clone();
        let done = Condition::Configured { machine: name.clone() };
        if machine.boot.config == ConfigDelivery::Cidata {
            let id = step_id(machine, "configure");
            return self.add(&id, Action::AwaitConfig { machine: name }, done, needs, times(0, 20));
        }
        let talos = Condition::TalosAnswers { machine: name.clone() };
        let id = step_id(machine, "talos");
        let answers = self.add(&id, Action::AwaitTalos { machine: name.clone() }, talos, needs, times(0, 15));
        let id = step_id(machine, "configure");
        let id = self.add(&id, Action::ApplyConfig { machine: name }, done, &[Some(&answers)], times(0, 20));
        // The config holds secrets: nobody gets it whose VM is not ours.
        self.last().guards = vec![Condition::VmRunning { vmid: machine.vmid }];
        id
    }

    /// Only after the machine has joined: it boots from its own disk then, and has its config there.
    fn detach(&mut self, machine: &Machine, joined: &StepId) {
        let (vmid, name) = (machine.vmid, machine.name.clone());
        let action = Action::DetachMedium { machine: name, vmid };
        let id = step_id(machine, "detach");
        self.add(&id, action, Condition::NoMedium { vmid }, &[Some(joined)], times(0, 10));
        self.last().guards = vec![Condition::VmOurs { vmid }];
    }

    /// etcd begins on the first control plane; the others join. A node is waited for when it can come.
    fn cluster(&mut self) {
        let control_planes: Vec<&Machine> = self.desired.of_role(Role::ControlPlane).collect();
        let Some(first) = control_planes.first() else { return };
        let on: Vec<_> = control_planes.iter().map(|machine| machine.name.clone()).collect();
        let configured = |machine: &Machine| StepId::new(step_id(machine, "configure"));
        let bootstrap = self.add(
            "cluster/bootstrap",
            Action::BootstrapEtcd { machine: first.name.clone() },
            Condition::Bootstrapped { on: on.clone() },
            &[Some(&configured(first))],
            times(0, 20),
        );
        self.last().guards =
            vec![Condition::VmRunning { vmid: first.vmid }, Condition::NeverBootstrapped { on }];
        let api = self.add(
            "cluster/kubernetes",
            Action::AwaitKubernetes,
            Condition::KubernetesAnswers,
            &[Some(&bootstrap)],
            times(0, 20),
        );
        let ready = has_network(self.desired);
        for machine in &self.desired.machines {
            let name = machine.name.clone();
            let mut needs = vec![api.clone(), configured(machine)];
            if machine.role == Role::ControlPlane {
                let action = Action::AwaitMember { machine: name.clone() };
                let done = Condition::Votes { machine: name.clone() };
                let id = step_id(machine, "join");
                let after = [Some(&bootstrap), Some(&needs[1])];
                let id = self.add(&id, action, done, &after, times(0, 20));
                needs.push(id);
            }
            let needs: Vec<Option<&StepId>> = needs.iter().map(Some).collect();
            let done = Condition::NodeThere { machine: name.clone(), ready };
            let id = step_id(machine, "ready");
            let ready = self.add(&id, Action::AwaitNode { machine: name }, done, &needs, times(0, 20));
            if has_passing_media(self.desired, machine) && !self.is_taken(machine.vmid) {
                self.detach(machine, &ready);
            }
        }
    }
}

/// Whether nodes can become ready by what the machine configs hold: without a CNI they only register.
pub fn has_network(desired: &Desired) -> bool {
    let choice = desired.addons.get("cni").and_then(|cni| cni.choice.as_deref());
    choice.is_none_or(|choice| choice == "flannel")
}

fn step_id(machine: &Machine, what: &str) -> String {
    format!("machine/{}/{what}", machine.name)
}

const fn impact(action: &Action) -> Impact {
    match action {
        Action::AwaitTalos { .. }
        | Action::AwaitConfig { .. }
        | Action::AwaitMember { .. }
        | Action::AwaitKubernetes
        | Action::AwaitNode { .. } => Impact::Waits,
        Action::DetachMedium { .. } => Impact::Disrupts,
        Action::RemoveTemplate { .. }
        | Action::RemoveMember { .. }
        | Action::StopVm { .. }
        | Action::DeleteVm { .. }
        | Action::DeleteVolume { .. } => Impact::Destroys,
        _ => Impact::Adds,
    }
}
