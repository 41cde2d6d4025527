//! A cluster, and a world in which each action brings about what it is for.

use std::{collections::BTreeMap, fs, path::Path};

use ichor_model::{
    Desired, Findings, HostName, MachineName, Observed, VmId, World,
    desired::{Machine, Role},
    observed::{
        MachineSeen, MemberSeen, NodeSeen, Owner, Release, Sight, StorageSeen, TalosSeen, VmSeen, VolumeSeen,
    },
    step::Verdict,
};
use ichor_plan::{
    Action, ClusterPlan, ClusterStep, Extent,
    files::{Names, has_passing_media},
};
use ichor_spec::{Layers, Sources};

/// What people keep in the examples, in the order in which later files lie over earlier ones.
pub const EXAMPLES: [(&str, &[&str]); 7] = [
    ("minimal", &["minimal/ichor.yaml"]),
    ("private-network", &["private-network/ichor.yaml"]),
    ("tailscale", &["tailscale/ichor.yaml"]),
    ("templates", &["templates/ichor.yaml"]),
    ("capacity", &["capacity/ichor.yaml"]),
    ("dev", &["environments/dev/cluster.yaml", "environments/dev/nodes.yaml"]),
    ("prod", &["environments/prod/cluster.yaml", "environments/prod/nodes.yaml"]),
];

/// Two control planes' worth of hosts with disk images, a pool, and cidata volumes that bring the address only.
pub const POOLED: &str = "cluster: {name: pooled, talos: v1.13.9, kubernetes: v1.36.3}\n\
    network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.2}\n\
    proxmox: {endpoint: 'https://pve:8006', hosts: [pve1, pve2], pool: k8s}\n\
    boot: {address: cidata}\n\
    machines: {cp: {role: control-plane, count: 3}, w: {role: worker, count: 2}}\n";

/// A template that somebody else made, and one of ours, in a pool.
pub const CLONED: &str = "cluster: {name: cloned, talos: v1.13.9, kubernetes: v1.36.3}\n\
    network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.2}\n\
    proxmox: {endpoint: 'https://pve:8006', hosts: [pve1, pve2], pool: k8s}\n\
    image: {source: template, templates: {control-plane: 900, worker: {vmid: 901, host: pve2, existing: true}}}\n\
    machines: {cp: {role: control-plane}, w: {role: worker, count: 2}}\n";

/// A cluster and what is seen of it.
#[derive(Clone)]
pub struct Stage {
    pub desired: Desired,
    pub names: Names,
    pub observed: Observed,
    /// How many members etcd ever had.
    joined: u64,
}

pub fn resolve(defaults: Option<String>, texts: Vec<String>) -> Desired {
    let mut sources = Sources::default();
    let defaults = defaults.map(|text| sources.add("defaults.yaml", text)).into_iter().collect();
    let files = texts.into_iter().map(|text| sources.add("ichor.yaml", text)).collect();
    let mut findings = Findings::new();
    let inventory =
        ichor_spec::load(&sources, &Layers { defaults, files }, &mut findings).expect("an inventory");
    assert!(!findings.has_errors(), "{findings:?}");
    let resolution = ichor_plan::resolve(&inventory, &World::default());
    resolution.desired.unwrap_or_else(|| panic!("{:?}", resolution.findings))
}

impl Stage {
    /// A cluster of which nothing is there, and that is known.
    pub fn of(text: &str) -> Self {
        Self::empty(resolve(None, vec![text.to_owned()]))
    }

    /// Every example, and those that no example shows.
    pub fn all() -> Vec<(String, Self)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
        let read = |file: &str| fs::read_to_string(folder.join(file)).expect("an example");
        let examples = EXAMPLES.iter().map(|(name, files)| {
            let below = files[0].starts_with("environments").then(|| read("environments/defaults.yaml"));
            let texts = files.iter().map(|file| read(file)).collect();
            ((*name).to_owned(), Self::empty(resolve(below, texts)))
        });
        let own =
            [("pooled", POOLED), ("cloned", CLONED)].map(|(name, text)| (name.to_owned(), Self::of(text)));
        examples.chain(own).collect()
    }

    fn empty(desired: Desired) -> Self {
        let schematics = desired.images.iter().map(|image| (image.id.clone(), "5".repeat(64))).collect();
        let seeds = desired.machines.iter().map(|machine| (machine.name.clone(), "abc".to_owned())).collect();
        let names = Names { schematics, seeds };
        let mut stage = Self { observed: nothing(&desired), desired, names, joined: 0 };
        for step in stage.up().steps() {
            if let Action::FetchImage { host, volume, .. } | Action::UploadSeed { host, volume, .. } =
                &step.action
            {
                stage.observed.volumes.insert((host.clone(), volume.clone()), Sight::Seen(None));
            }
        }
        stage
    }

    pub fn up(&self) -> ClusterPlan {
        ichor_plan::up(&self.desired, &self.observed, &self.names)
    }

    pub fn destroy(&self, extent: Extent) -> ClusterPlan {
        ichor_plan::destroy(&self.desired, &self.observed, &self.names, extent)
    }

    /// Goes all the way up.
    pub fn ready(mut self) -> Self {
        for step in self.up().steps() {
            self.perform(step);
        }
        self
    }

    /// Performs a step as the engine would: not if it is done, not if a guard is against it.
    pub fn perform(&mut self, step: &ClusterStep) {
        let (id, before) = (&step.id, step.done.judge(&self.observed));
        assert_ne!(before, Verdict::Holds, "{id} is done already");
        for guard in &step.guards {
            assert_eq!(guard.judge(&self.observed), Verdict::Holds, "{id}: {guard:?}");
        }
        self.act(&step.action);
        assert_eq!(step.done.judge(&self.observed), Verdict::Holds, "{id} did not do what it is for");
    }

    pub fn machine(&self, name: &str) -> &Machine {
        self.desired.machines.iter().find(|machine| machine.name.as_str() == name).expect("a machine")
    }

    pub fn vm(&mut self, vmid: VmId) -> &mut VmSeen {
        match self.observed.vms.get_mut(&vmid) {
            Some(Sight::Seen(Some(vm))) => vm,
            other => panic!("VM {vmid}: {other:?}"),
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::MakePool { .. } => self.observed.pool = Sight::Seen(true),
            Action::FetchImage { host, volume, .. } | Action::UploadSeed { host, volume, .. } => {
                let file = VolumeSeen { bytes: 1 << 20, wanted: None };
                self.observed.volumes.insert((host.clone(), volume.clone()), Sight::Seen(Some(file)));
            }
            Action::DeleteVolume { host, volume } => {
                self.observed.volumes.insert((host.clone(), volume.clone()), Sight::Seen(None));
            }
            Action::BuildTemplate { vmid, host } => {
                self.put(*vmid, VmSeen { template: true, ..vm(host, Owner::Ours) });
            }
            Action::CreateVm { machine, vmid, host } => {
                let machine = self.machine(machine.as_str());
                let medium = has_passing_media(&self.desired, machine);
                self.put(*vmid, VmSeen { medium, ..vm(host, Owner::Ours) });
            }
            Action::RemoveTemplate { vmid } | Action::DeleteVm { vmid, .. } => {
                assert!(!self.vm(*vmid).running);
                self.observed.vms.insert(*vmid, Sight::Seen(None));
            }
            Action::StartVm { vmid, .. } => self.vm(*vmid).running = true,
            Action::StopVm { vmid, .. } => self.vm(*vmid).running = false,
            Action::DetachMedium { vmid, .. } => self.vm(*vmid).medium = false,
            Action::AwaitTalos { machine } => self.talk(machine, MachineSeen::Maintenance),
            Action::ApplyConfig { machine } | Action::AwaitConfig { machine } => {
                let votes = self.machine(machine.as_str()).role == Role::ControlPlane;
                let etcd = votes.then(|| "Preparing".to_owned());
                self.talk(machine, MachineSeen::Ours(TalosSeen { etcd, ..TalosSeen::default() }));
            }
            Action::RemoveMember { member, .. } => {
                let mut members = self.observed.etcd.seen().cloned().expect("etcd answers");
                members.retain(|_, seen| seen.id != *member);
                self.observed.etcd = Sight::Seen(members);
            }
            Action::BootstrapEtcd { machine } => {
                let etcd = Some("Running".to_owned());
                self.talk(machine, MachineSeen::Ours(TalosSeen { etcd, ..TalosSeen::default() }));
            }
            Action::AwaitMember { machine } => {
                let mut members = self.observed.etcd.seen().cloned().unwrap_or_default();
                self.joined += 1;
                members.insert(machine.to_string(), MemberSeen { id: self.joined, learner: false });
                self.observed.etcd = Sight::Seen(members);
                let etcd = Some("Running".to_owned());
                self.talk(machine, MachineSeen::Ours(TalosSeen { etcd, ..TalosSeen::default() }));
            }
            Action::AwaitKubernetes => self.observed.nodes = Sight::Seen(BTreeMap::new()),
            Action::AwaitNode { machine } => {
                let mut nodes = self.observed.nodes.seen().cloned().expect("Kubernetes answers");
                let node = NodeSeen {
                    ready: true,
                    says: String::new(),
                    version: String::new(),
                    unschedulable: false,
                    addresses: Vec::new(),
                    boot: None,
                };
                nodes.insert(machine.to_string(), node);
                self.observed.nodes = Sight::Seen(nodes);
            }
        }
    }

    pub fn put(&mut self, vmid: VmId, vm: VmSeen) {
        self.observed.vms.insert(vmid, Sight::Seen(Some(vm)));
    }

    pub fn talk(&mut self, machine: &MachineName, seen: MachineSeen) {
        self.observed.machines.insert(machine.clone(), Sight::Seen(seen));
    }
}

/// A VM that is off.
pub fn vm(host: &HostName, owner: Owner) -> VmSeen {
    VmSeen {
        host: host.clone(),
        owner,
        name: "vm".into(),
        running: false,
        template: false,
        lock: None,
        differences: Vec::new(),
        drift: Vec::new(),
        medium: false,
        protected: false,
        addresses: Vec::new(),
    }
}

pub fn ids(plan: &ClusterPlan) -> Vec<String> {
    plan.steps().iter().map(|step| step.id.to_string()).collect()
}

/// Everything was looked at, and nothing of the cluster is there.
fn nothing(desired: &Desired) -> Observed {
    let hosts: Vec<HostName> = desired.hosts.iter().map(|host| host.name.clone()).collect();
    let machines = desired.machines.iter();
    let numbers =
        machines.clone().map(|machine| machine.vmid).chain(desired.templates.iter().map(|own| own.vmid));
    let mut vms: BTreeMap<VmId, Sight<Option<VmSeen>>> =
        numbers.map(|vmid| (vmid, Sight::Seen(None))).collect();
    for template in desired.templates.iter().filter(|template| template.existing) {
        let host = template.host.known().expect("a host");
        let there = VmSeen { template: true, ..vm(host, Owner::Foreign("it has no stamp".into())) };
        vms.insert(template.vmid, Sight::Seen(Some(there)));
    }
    let silent = || Sight::Seen(MachineSeen::Silent("nobody answers".into()));
    Observed {
        release: Sight::Seen(Release { major: 9, minor: 2 }),
        storages: hosts.iter().flat_map(|host| storages(desired, host)).collect(),
        hosts: hosts.into_iter().map(|host| (host, true)).collect(),
        pool: Sight::Seen(false),
        volumes: BTreeMap::new(),
        vms,
        machines: machines.map(|machine| (machine.name.clone(), silent())).collect(),
        etcd: Sight::Unseen("no control plane answers".into()),
        nodes: Sight::Unseen("Kubernetes does not answer".into()),
        ..Observed::default()
    }
}

/// Storages that hold everything: those of templates and disks are shared, so that every host can clone.
fn storages(desired: &Desired, host: &HostName) -> Vec<((HostName, String), StorageSeen)> {
    let own = ichor_plan::files::storage_of(desired, host);
    let names = [&own.disks, &own.images, &own.templates, &own.cloudinit];
    let content: Vec<String> = ["images", "iso", "import"].map(ToOwned::to_owned).to_vec();
    let seen = |name: &String| {
        let shared = !desired.templates.is_empty() && [&own.templates, &own.disks].contains(&name);
        StorageSeen { content: content.clone(), shared, active: true, free: Some(10 << 40) }
    };
    names.into_iter().map(|name| ((host.clone(), name.clone()), seen(name))).collect()
}
