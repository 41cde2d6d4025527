//! Worlds in which a run cannot succeed: what it says, what it leaves alone, and that it goes on once the cause is
//! mended.

mod images;
mod machines;
mod proxmox;
mod rights;
mod runs;
mod vms;
mod votes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ichor_engine::{Cancel, EventSink, Journal, Outcome, Past};
use ichor_lab::{Hall, Inside, Target, proxy::Routes};
use ichor_machineconfig::compose::{Materials, needs};
use ichor_model::{Desired, Findings, Stamp, VmId, stamp::SecretsPrint};
use ichor_sim::{
    Lab,
    faults::{Calls, Fault, Kind, Server, When},
    incident::Incident,
    profile::Profile,
    setup::Setup,
};
use ichor_spec::Sources;
use tokio::time::Instant;

use super::{live::Rehearsal, resolve, rsa, site};
use crate::{
    Halt,
    bundle::{self, Signer},
    converge::{Ended, Goal, converge, first_look, look},
    health,
    live::{Keys, Live, Reach},
    materials,
    memory::{Memory, NOW},
    secrets,
};

/// A control plane and a worker, on two hosts.
const SMALL: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp: {role: control-plane, count: 1, address: 10.0.0.11, host: pve2}
  worker: {role: worker, count: 1, address: 10.0.0.21, host: pve3}
";

/// No step waits longer, and steps that wait for the same cause wait together or not at all.
const LONGEST: Duration = Duration::from_mins(65);

impl Rehearsal {
    fn bad(inventory: &str) -> Self {
        Self::of(inventory, &Setup { strangers: 7, ..Setup::new(1, Profile::Lab) })
    }

    fn of(inventory: &str, setup: &Setup) -> Self {
        let lab = setup.build();
        let routes = Routes::of(&lab).with("pve1", 8006, Target::Pve);
        let inside = Arc::new(Inside::over(Arc::new(Hall::new(lab)), routes));
        Self::in_world(inside, resolve(inventory), 0)
    }

    /// Another inventory of the same name, with secrets of its own, in the same world.
    fn namesake(&self) -> Self {
        Self::in_world(Arc::clone(&self.inside), self.desired.clone(), 1_000_000)
    }

    fn in_world(inside: Arc<Inside>, desired: Desired, drawn: u64) -> Self {
        let memory = Memory::default();
        memory.later.set(ichor_lab::real_time().unix_seconds() - NOW);
        memory.drawn.set(drawn);
        secrets::new(&memory, site(&desired), || Ok(rsa())).expect("secrets");
        Self { inside, memory, desired }
    }

    /// The print of its secrets.
    fn print(&self) -> Option<SecretsPrint> {
        let found = bundle::of_cluster(
            &self.memory,
            site(&self.desired),
            None,
            Signer::Talos,
            &mut Sources::default(),
        );
        found.ok().map(|found| SecretsPrint::of(&found.bundle.cluster_id))
    }

    /// The VMs of clusters of its name: with what secrets they were made, and what they say of themselves.
    fn made(&self) -> BTreeMap<VmId, (Option<SecretsPrint>, String)> {
        let id = &self.desired.cluster.id;
        self.inside.hall().look(|lab| {
            let configs = lab.pve.vms.iter().map(|(vmid, vm)| (*vmid, &vm.config));
            let stamped = configs.filter_map(|(vmid, config)| {
                let stamp = Stamp::read(config.current.get("description")?)?;
                (stamp.cluster == *id).then(|| (vmid, (stamp.secrets, format!("{config:?}"))))
            });
            stamped.collect()
        })
    }

    fn change<T>(&self, act: impl FnOnce(&mut Lab) -> T) -> T {
        self.inside.hall().visit(act)
    }

    fn befall(&self, incident: &str) {
        let incident: Incident = incident.parse().expect("an incident");
        self.change(|lab| lab.befall(&incident)).expect("it can happen");
    }

    /// Lets an incident happen with the n-th call of a kind.
    fn befall_with(&self, call: &str, occurrence: u32, when: When, incident: &str) {
        let event = incident.parse().expect("an incident");
        self.fault(Server::Pve, call, occurrence, Kind::Befall { event, when });
    }

    /// Lets calls go wrong: `POST /nodes/*/qemu`, or a path alone.
    fn fault(&self, server: Server, call: &str, occurrence: u32, fault: Kind) {
        let (method, path) = match call.split_once(' ') {
            Some((method, path)) => (Some(method.to_owned()), path),
            None => (None, call),
        };
        let on = Calls { server, method, path: path.to_owned() };
        self.change(|lab| lab.ground.faults.0.push(Fault { on, occurrence, fault, seen: 0 }));
    }

    fn mend(&self) {
        self.change(|lab| lab.ground.faults.0.clear());
    }

    fn vmid(&self, name: &str) -> VmId {
        let found = self.desired.machines.iter().find(|machine| machine.name.as_str() == name);
        found.expect("a machine").vmid
    }

    async fn attempt(&self) -> Result<Ended, Halt> {
        self.attempt_with(self.reach()).await
    }

    async fn attempt_with(&self, reach: Reach) -> Result<Ended, Halt> {
        let began = Instant::now();
        let ended = self.run_with(reach, &self.desired).await;
        let took = began.elapsed();
        assert!(took < LONGEST, "it took {took:?}");
        self.change(|lab| ichor_sim::strangers::untouched(lab)).expect("nobody touches strangers");
        ended
    }

    async fn run_with(&self, reach: Reach, desired: &Desired) -> Result<Ended, Halt> {
        self.run_to(reach, desired, Goal::up()).await
    }

    async fn run_to(&self, reach: Reach, desired: &Desired, goal: Goal) -> Result<Ended, Halt> {
        self.run_told(reach, desired, goal, Arc::new(())).await
    }

    async fn run_told(
        &self,
        reach: Reach,
        desired: &Desired,
        goal: Goal,
        events: Arc<dyn EventSink>,
    ) -> Result<Ended, Halt> {
        let mut sources = Sources::default();
        let found = bundle::of_cluster(&self.memory, site(desired), None, Signer::Talos, &mut sources)?;
        let materials = materials::gather(&self.memory, site(desired), &needs(desired), &mut sources)
            .map_err(Halt::invalid)?;
        let pve = crate::live::proxmox(&desired.proxmox.endpoint, &reach)?;
        first_look(&pve, desired).await?;
        let keys = Keys::new(&self.memory, &found.bundle)?;
        let live = Live::new(desired, pve, reach, Some((keys, &found.bundle)), &materials)?;
        let observed = look(&live).await?;
        let journal = Journal::new("test", Box::new(()));
        converge(&live, &goal, observed, &journal, Past::default(), &events, &Cancel::default()).await
    }

    /// Runs until the cluster is Ready, now that the cause is mended.
    async fn recovers(&self) {
        let ended = self.attempt().await;
        assert!(ended.as_ref().is_ok_and(|ended| ended.done), "{}", told(&ended));
        let changes = self.changed();
        let again = self.attempt().await;
        assert!(again.is_ok_and(|ended| ended.done && ended.report.is_none()));
        assert_eq!(self.changed(), changes, "the second run changes nothing");
    }

    /// Looks at the cluster, and says which checks fail and why; each has a remedy.
    async fn unwell(&self, expected: &[(&str, &str)]) {
        let mut sources = Sources::default();
        let found = bundle::of_cluster(&self.memory, site(&self.desired), None, Signer::Talos, &mut sources)
            .expect("secrets");
        let materials = Materials::default();
        let reach = self.reach();
        let pve = crate::live::proxmox(&self.desired.proxmox.endpoint, &reach).expect("a client");
        let keys = Keys::new(&self.memory, &found.bundle).expect("keys");
        let live =
            Live::new(&self.desired, pve, reach, Some((keys, &found.bundle)), &materials).expect("live");
        let observed = look(&live).await.expect("a look");
        let checks = health::checks(&self.desired, &observed);
        for (id, why) in expected {
            let check = checks.iter().find(|check| check.id == *id).expect("a check");
            assert_eq!(check.state, health::State::Failed, "{check:?}");
            assert!(check.why.as_ref().is_some_and(|said| said.contains(why)), "{check:?}");
            assert!(check.remedy.as_ref().is_some_and(|remedy| remedy.contains("\n    ")), "{check:?}");
        }
    }

    fn config(&self, vmid: VmId) -> String {
        self.inside.hall().look(|lab| format!("{:?}", lab.pve.vms[&vmid].config))
    }

    fn changed(&self) -> usize {
        self.inside.hall().look(|lab| lab.ground.record.changing(Server::Pve).count())
    }
}

/// What a run says at its end.
fn told(ended: &Result<Ended, Halt>) -> String {
    match ended {
        Err(halt) => format!("{:?}\n{}", halt.kind, findings(&halt.findings)),
        Ok(ended) if ended.done => format!("done\n{}", findings(&ended.findings)),
        Ok(ended) => findings(&ended.findings) + &outcomes(ended),
    }
}

fn findings(findings: &Findings) -> String {
    let mut text = String::new();
    for finding in findings {
        text += &format!("{}[{}]: {}\n", word(finding.severity), finding.code, finding.message);
        for note in &finding.notes {
            text += &format!("  {note}\n");
        }
        if let Some(remedy) = &finding.remedy {
            text += &format!("hint: {remedy}\n");
        }
    }
    text
}

fn word(severity: ichor_model::Severity) -> &'static str {
    match severity {
        ichor_model::Severity::Error => "error",
        ichor_model::Severity::Warning => "warning",
    }
}

fn outcomes(ended: &Ended) -> String {
    let report = ended.report.as_ref().expect("steps");
    let mut text = String::new();
    let mut blocked = 0;
    for (step, outcome) in &report.outcomes {
        match outcome {
            Outcome::Failed { message, hint } => {
                text += &format!("failed {step}\n  {message}\n");
                if let Some(hint) = hint {
                    text += &format!("hint: {hint}\n");
                }
            }
            Outcome::Refused { message } => text += &format!("refused {step}\n  {message}\n"),
            Outcome::Unknown { message } => text += &format!("unknown {step}\n  {message}\n"),
            Outcome::Blocked { .. } | Outcome::NotBegun => blocked += 1,
            Outcome::Done | Outcome::Skipped => {}
        }
    }
    format!("{text}not begun: {blocked}\n")
}

/// Runs `up` in a bad world, and compares what it says with what it said when somebody last read that.
async fn shows(name: &str, world: &Rehearsal) {
    compare(name, &world.attempt().await);
}

fn compare(name: &str, ended: &Result<Ended, Halt>) {
    same(name, &told(ended));
}

/// Compares a text with the one that was read last. What is drawn anew in every lab is left out.
fn same(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("bad_worlds");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.add_filter("(?:[0-9A-F]{2}:){31}[0-9A-F]{2}", "[fingerprint]");
    settings.add_filter(r"tmp_dwnl\.\d+", "tmp_dwnl.[number]");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Nothing may be touched before the cause is mended.
async fn shows_untouched(name: &str, world: &Rehearsal) {
    let before = world.changed();
    shows(name, world).await;
    assert_eq!(world.changed(), before, "nothing is changed");
}

/// Hosts speak of their storages and VMs every ten seconds.
async fn news_spread() {
    tokio::time::sleep(Duration::from_secs(25)).await;
}
