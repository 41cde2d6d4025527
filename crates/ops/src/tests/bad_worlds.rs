//! Worlds in which a run cannot succeed: what it says, what it leaves alone, and that it goes on once the cause is
//! mended.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use ichor_engine::{Cancel, Event, EventSink, Journal, Outcome, Past};
use ichor_lab::{Hall, Inside, Target, proxy::Routes};
use ichor_machineconfig::compose::{Materials, needs};
use ichor_model::{Desired, Findings, Observed, VmId};
use ichor_net::{Fingerprint, Trust};
use ichor_plan::{files::image_place, privileges::grant};
use ichor_port::Secret;
use ichor_sim::{
    Lab,
    faults::{Calls, Fault, Kind, Server, When},
    ground::Content,
    hostility::Hostility,
    incident::Incident,
    profile::Profile,
    pve::{
        access::{AclEntry, Subject, all_privileges},
        release::Release,
        storage::web::{File, Page},
    },
    setup::{Setup, USER},
};
use ichor_spec::Sources;
use tokio::time::Instant;

use super::{lab, live::Rehearsal, resolve, rsa, site};
use crate::{
    Halt,
    bundle::{self, Signer},
    converge::{Ended, Goal, converge, first_look, look},
    health,
    live::{Keys, Live, Reach, proxmox},
    materials,
    memory::{Memory, NOW},
    secrets,
    store::Store,
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
        let memory = Memory::default();
        memory.later.set(ichor_lab::real_time().unix_seconds() - NOW);
        let desired = resolve(inventory);
        secrets::new(&memory, site(&desired), || Ok(rsa())).expect("secrets");
        Self { inside, memory, desired }
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
        let pve = proxmox(&desired.proxmox.endpoint, &reach)?;
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
        let pve = proxmox(&self.desired.proxmox.endpoint, &reach).expect("a client");
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

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_not_let_in() {
    let world = Rehearsal::bad(SMALL);
    let mut reach = world.reach();
    reach.token = ichor_pve::Token::parse(&Secret::new("ichor@pve!lab=00000000-0000-0000-0000-000000000000"))
        .expect("a token");
    compare("wrong-token", &world.attempt_with(reach).await);
    assert_eq!(world.changed(), 0);
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_fingerprint_is_not_trusted() {
    let world = Rehearsal::bad(SMALL);
    let mut reach = world.reach();
    reach.proxmox = Trust::Pin(Fingerprint::of(b"another"));
    compare("wrong-fingerprint", &world.attempt_with(reach).await);
    assert_eq!(world.changed(), 0);
    world.befall_with("POST /nodes/pve2/qemu", 1, When::After, "certificate-swapped");
    shows("fingerprint-changes", &world).await;
    world.mend();
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxmox_that_is_not_reached_is_named() {
    let world = Rehearsal::bad(SMALL);
    let nowhere = resolve(&SMALL.replace("https://pve1:8006", "https://pve9:8006"));
    compare("unknown-name", &world.run_with(world.reach(), &nowhere).await);
    world.befall("host-down pve1");
    shows_untouched("not-reached", &world).await;
    world.befall("host-up pve1");
    world.befall_with("POST /nodes/pve2/qemu/*/status/start", 1, When::After, "host-down pve1");
    shows("not-reached-any-more", &world).await;
    world.mend();
    world.befall("host-up pve1");
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_down_is_named() {
    let world = Rehearsal::bad(SMALL);
    world.befall("host-down pve2");
    shows_untouched("host-down", &world).await;
    world.befall("host-up pve2");
    world.befall_with("POST /nodes/pve2/qemu/*/status/start", 1, When::After, "host-down pve2");
    shows("host-down-at-start", &world).await;
    world.mend();
    world.befall("host-up pve2");
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_goes_down_while_it_makes_a_vm_leaves_a_lock() {
    let world = Rehearsal::bad(SMALL);
    world.befall_with("POST /nodes/pve2/qemu", 1, When::After, "host-down pve2");
    shows("host-down-at-create", &world).await;
    world.mend();
    world.befall("host-up pve2");
    shows_untouched("lock-of-nobody", &world).await;
    // As the remedy says.
    world.befall(&format!("vm-deleted {}", world.vmid("cp-1")));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_must_be_able_to_hold_what_it_is_for() {
    let world = Rehearsal::bad(SMALL);
    let content = |world: &Rehearsal, storage: &str, kind: &str, there: bool| {
        world.change(|lab| {
            let content = &mut lab.pve.storage.definitions.get_mut(storage).expect("a storage").content;
            if there { content.insert(kind.to_owned()) } else { content.remove(kind) }
        });
    };
    content(&world, "local", "import", false);
    content(&world, "local-lvm", "images", false);
    news_spread().await;
    shows_untouched("storage-content", &world).await;
    content(&world, "local", "import", true);
    content(&world, "local-lvm", "images", true);
    world.befall("storage-broken local-lvm");
    news_spread().await;
    shows_untouched("storage-broken", &world).await;
    world.befall("storage-mended local-lvm");
    world.befall_with("POST /nodes/*/qemu", 1, When::Before, "storage-broken local-lvm");
    shows("storage-breaks", &world).await;
    world.mend();
    world.befall("storage-mended local-lvm");
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_storage_is_told_before_and_when_it_fails() {
    let world = Rehearsal::bad(SMALL);
    let full = "unable to create image: qemu-img: No space left on device";
    world.fault(Server::Pve, "POST /nodes/*/qemu", 0, Kind::TaskFails(full.into()));
    world.befall("storage-full local-lvm");
    news_spread().await;
    shows("storage-full", &world).await;
    world.mend();
    world.befall("storage-freed local-lvm");
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_stranger_under_our_number_is_left_alone() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    // The same name, the same tags, and nothing else.
    let vmid = world.vmid("worker-1");
    world.befall(&format!("vm-replaced {vmid}"));
    let stranger = world.config(vmid);
    shows_untouched("vmid-taken", &world).await;
    world.unwell(&[("vm-ours", "VM 3000 is not ours: its notes have no stamp of ichor")]).await;
    assert_eq!(world.config(vmid), stranger);
    world.befall(&format!("vm-deleted {vmid}"));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_replaced_during_the_run_is_left_alone() {
    // The first look at a VM that was just made; and the first one after that, if there is one before etcd runs.
    for (number, call) in [(1, "config"), (1, "status/current")] {
        let world = Rehearsal::bad(SMALL);
        let vmid = world.vmid("cp-1");
        let call = format!("GET /nodes/*/qemu/{vmid}/{call}");
        world.befall_with(&call, number, When::Before, &format!("vm-replaced {vmid}"));
        let ended = world.attempt().await;
        if ended.is_ok_and(|ended| ended.done) {
            continue; // It was not there yet, and so was not replaced.
        }
        let config = world.config(vmid);
        assert!(config.contains("size=8G") && !config.contains("ichor:"), "{call} {number}: {config}");
        world.mend();
        shows_untouched("vmid-taken-meanwhile", &world).await;
        world.befall(&format!("vm-deleted {vmid}"));
        world.recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_answers_is_not_taken() {
    let world = Rehearsal::bad(SMALL);
    world.befall("impostor 10.0.0.11");
    shows_untouched("address-taken", &world).await;
    world.befall("impostor-gone 10.0.0.11");
    world.befall("impostor 10.0.0.5");
    shows_untouched("vip-taken", &world).await;
    world.befall("impostor-gone 10.0.0.5");
    let vmid = world.vmid("cp-1");
    world.befall_with(
        &format!("POST /nodes/*/qemu/{vmid}/status/start"),
        1,
        When::After,
        "impostor 10.0.0.11",
    );
    shows("address-taken-meanwhile", &world).await;
    let applied = world.inside.hall().look(|lab| {
        let applies = |call: &&ichor_sim::record::Call| call.path.ends_with("/ApplyConfiguration");
        lab.ground.record.calls.iter().filter(applies).count()
    });
    assert!(applied <= 1, "only the worker gets a machine config");
    world.mend();
    world.befall("impostor-gone 10.0.0.11");
    world.recovers().await;
    world.befall("impostor 10.0.0.21");
    world.unwell(&[("talos-reachable", "worker-1: it waits for its machine config")]).await;
}

/// Whoever waits for a config at an address need not be the VM that the inventory gives it to.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_its_config_is_never_reset() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    world.befall("impostor 10.0.0.31");
    for (from, to) in [("10.0.0.11", "10.0.0.31"), ("10.0.0.21", "10.0.0.31")] {
        let moved = resolve(&SMALL.replace(from, to));
        let ended = world.run_with(world.reach(), &moved).await;
        let said = told(&ended);
        assert!(said.contains("made for another address"), "{said}");
        assert!(said.contains("was not reset"), "{said}");
    }
    let resets = world.inside.hall().look(|lab| {
        let resets =
            lab.ground.record.changing(Server::Pve).filter(|call| call.path.ends_with("/status/reset"));
        resets.count()
    });
    assert_eq!(resets, 0);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_broke_off_is_fetched_again() {
    for source in ["disk", "iso"] {
        let world = Rehearsal::bad(&format!("{SMALL}image: {{source: {source}}}\n"));
        let named = crate::image::name_all(&world.desired).expect("images").remove(0);
        let url = named.url.expect("an address");
        let short = Page::of(File::of_bytes(b"truncated"), "application/octet-stream");
        world.change(|lab| lab.ground.web.pages.insert(url.clone(), short));
        shows(&format!("truncated-{source}"), &world).await;
        world.change(|lab| lab.ground.web.pages.remove(&url));
        world.recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_that_lies_there_broken_is_replaced() {
    for (source, kept) in [("disk", 9), ("iso", 9), ("disk", 4096)] {
        let world = Rehearsal::bad(&format!("{SMALL}image: {{source: {source}}}\n"));
        let images = Goal::Up { phase: Some(ichor_plan::Phase::Images), only: Vec::new() };
        assert!(world.run_to(world.reach(), &world.desired, images).await.is_ok());
        let named = crate::image::name_all(&world.desired).expect("images").remove(0);
        for host in ["pve2", "pve3"] {
            let at = host.parse().expect("a host");
            let image = &world.desired.images[0];
            let volume = image_place(&world.desired, &Observed::default(), image, &named.id, &at).volume;
            world.change(|lab| {
                let file = lab.pve.storage.get_mut(host, &volume).expect("an image");
                (file.size, file.used, file.file) = (kept, kept, None);
                let (content, bytes) = (file.content, vec![b'x'; usize::try_from(kept).expect("small")]);
                lab.ground.media.set(content, Content::Bytes(bytes));
            });
        }
        world.recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_fails_is_named() {
    let world = Rehearsal::bad(SMALL);
    world.fault(Server::Factory, "*", 0, Kind::Close(When::Before));
    shows_untouched("factory-down", &world).await;
    world.mend();
    let answer = format!("{{\"id\":\"{}\"}}", "0".repeat(64));
    world.fault(Server::Factory, "POST /schematics", 0, Kind::Payload(answer));
    shows_untouched("factory-other-id", &world).await;
    world.mend();
    world.fault(Server::Factory, "HEAD /image/*", 0, Kind::Hang(When::Before));
    shows_untouched("factory-silent", &world).await;
    world.mend();
    world.fault(Server::Factory, "GET /version/*/extensions/official", 0, Kind::Payload("[]".into()));
    let extended = resolve(&format!("{SMALL}image: {{extensions: [siderolabs/iscsi-tools]}}\n"));
    compare("factory-without-extension", &world.run_with(world.reach(), &extended).await);
    world.mend();
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_guest_agent_is_waited_for_and_named() {
    let leases = [("vmbr0".to_owned(), ([10, 0, 0, 100].into(), [10, 0, 0, 199].into(), 24))];
    let setup = Setup { leases: leases.into(), ..Setup::new(1, Profile::Lab) };
    let inventory = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1, addressing: dhcp}
image: {extensions: [siderolabs/qemu-guest-agent]}
machines:
  cp: {role: control-plane, count: 1, host: pve2}
";
    let world = Rehearsal::of(inventory, &setup);
    let vmid = world.vmid("cp-1");
    world.befall_with(
        &format!("POST /nodes/*/qemu/{vmid}/status/start"),
        1,
        When::After,
        &format!("agent-silent {vmid}"),
    );
    shows("agent-silent", &world).await;
    world.mend();
    world.befall(&format!("agent-back {vmid}"));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_stays_in_maintenance_mode_is_named() {
    let world = Rehearsal::bad(SMALL);
    let apply = "/machine.MachineService/ApplyConfiguration";
    world.fault(Server::Talos, apply, 0, Kind::Hang(When::Before));
    shows("maintenance-stays", &world).await;
    world.unwell(&[("talos-reachable", "cp-1, worker-1: it waits for its machine config")]).await;
    world.mend();
    let refusal = Kind::Status {
        code: 3,
        reason: "configuration validation failed: 1 error occurred:\n\t* unknown keys".into(),
        when: When::Before,
    };
    world.fault(Server::Talos, apply, 0, refusal);
    shows("config-refused", &world).await;
    world.mend();
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_not_set_is_waited_for_and_named() {
    let world = Rehearsal::bad(SMALL);
    let vmid = world.vmid("cp-1");
    world.befall_with(
        &format!("POST /nodes/*/qemu/{vmid}/status/start"),
        1,
        When::After,
        &format!("clock-lost {vmid}"),
    );
    shows("clock-lost", &world).await;
    world.unwell(&[("time-in-sync", "cp-1: time: ")]).await;
    world.mend();
    world.befall(&format!("clock-set {vmid}"));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn vms_that_are_moved_are_found_again() {
    for when in [When::Before, When::After] {
        let world = Rehearsal::bad(SMALL);
        let vmid = world.vmid("cp-1");
        let start = format!("POST /nodes/*/qemu/{vmid}/status/start");
        world.befall_with(&start, 1, when, &format!("vm-migrated {vmid} pve3"));
        world.recovers().await;
        world.change(|lab| assert_eq!(lab.pve.vms[&vmid].host, "pve3"));
    }
}

#[tokio::test(start_paused = true)]
async fn machines_of_other_secrets_are_left_alone() {
    let mut world = Rehearsal::bad(SMALL);
    world.recovers().await;
    let own = std::mem::take(&mut world.memory);
    world.memory.later.set(own.later.get());
    world.memory.drawn.set(1_000_000);
    secrets::new(&world.memory, site(&world.desired), || Ok(rsa())).expect("secrets");
    shows_untouched("other-secrets", &world).await;
    world.unwell(&[("talos-reachable", "another cluster")]).await;
    world.memory = own;
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_bootstrap_is_no_second_bootstrap() {
    for fault in [Kind::Close(When::After), Kind::Hang(When::After)] {
        let world = Rehearsal::bad(SMALL);
        world.fault(Server::Talos, "/machine.MachineService/Bootstrap", 1, fault);
        world.recovers().await;
        let answers = world.inside.hall().look(|lab| {
            let bootstraps = lab.ground.record.calls.iter().filter(|call| call.path.ends_with("/Bootstrap"));
            bootstraps.map(|call| call.status).collect::<Vec<_>>()
        });
        // The first was lost. While etcd does not show yet it is asked for again, on the same machine: that begins
        // the same etcd, or is told that it has begun.
        assert!(answers.len() <= 2, "{answers:?}");
    }
}

#[test]
fn two_runs_at_once_are_one_too_many() {
    let memory = super::with_secrets();
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

#[tokio::test(start_paused = true)]
async fn health_says_what_is_wrong() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    let worker = world.vmid("worker-1");
    world.befall(&format!("vm-stopped {worker}"));
    news_spread().await;
    world.unwell(&[("vm-running", "worker-1: VM 3000 is off")]).await;
    world.recovers().await;
    world.befall("host-down pve3");
    world.unwell(&[("vm-host-online", "worker-1: host `pve3` is offline")]).await;
    world.befall("host-up pve3");
    world.befall(&format!("vm-deleted {worker}"));
    world.unwell(&[("vm-there", "worker-1: there is no VM 3000")]).await;
}

/// A single machine, quickly.
const ONE: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', pool: lab, hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp: {role: control-plane, count: 1, address: 10.0.0.11, host: pve2}
";

impl Rehearsal {
    /// Leaves the token's user a role with these privileges and nothing else.
    fn allow(&self, privileges: BTreeSet<String>) {
        self.change(|lab| {
            lab.pve.access.roles.insert("Rest".into(), privileges);
            for entry in lab.pve.access.acl.iter_mut().filter(|entry| entry.name == USER) {
                entry.role = "Rest".into();
            }
        });
    }

    /// Runs the commands of a remedy, as an administrator would.
    fn obey(&self, remedy: &str) {
        for line in remedy.lines().map(str::trim).filter(|line| line.starts_with("pveum")) {
            let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
            match words.as_slice() {
                ["pveum", "role", "add", role, "--privs", privileges] => {
                    let privileges = privileges.split(',').map(str::to_owned).collect();
                    self.change(|lab| lab.pve.access.roles.insert((*role).to_owned(), privileges));
                }
                ["pveum", "acl", "modify", path, "--users", user, "--tokens", token, "--roles", role] => {
                    for (subject, name) in [(Subject::User, user), (Subject::Token, token)] {
                        let entry = AclEntry {
                            path: (*path).to_owned(),
                            subject,
                            name: (*name).to_owned(),
                            role: (*role).to_owned(),
                            propagate: true,
                        };
                        self.change(|lab| lab.pve.access.acl.push(entry));
                    }
                }
                other => panic!("no such command: {other:?}"),
            }
        }
    }
}

/// Every privilege that is missing is found before anything is touched, and the commands of the remedy are enough.
#[tokio::test(start_paused = true)]
async fn a_missing_privilege_is_named_with_the_command_that_grants_it() {
    let role = grant("", [], None, &[]);
    let all: BTreeSet<String> =
        role.split('\'').nth(1).expect("a list").split(',').map(str::to_owned).collect();
    assert!(all.is_subset(&all_privileges(Release::V9_2)), "Proxmox knows them all");
    let mut needed = Vec::new();
    for privilege in &all {
        let world = Rehearsal::of(ONE, &Setup::new(1, Profile::Lab));
        let rest = all.iter().filter(|name| *name != privilege).cloned().collect();
        world.allow(rest);
        let ended = world.attempt().await;
        let Err(halt) = &ended else {
            assert!(ended.as_ref().is_ok_and(|ended| ended.done), "{privilege}: {}", told(&ended));
            continue;
        };
        needed.push(privilege.as_str());
        assert_eq!(world.changed(), 0, "{privilege}: nothing is changed");
        let said = findings(&halt.findings);
        assert!(
            said.contains(&format!("token `ichor@pve!lab` lacks `{privilege}` on `/")),
            "{privilege}: {said}"
        );
        world.obey(&said);
        let images = Goal::Up { phase: Some(ichor_plan::Phase::Images), only: Vec::new() };
        let again = world.run_to(world.reach(), &world.desired, images).await;
        assert!(again.as_ref().is_ok_and(|ended| ended.done), "{privilege}: {}", told(&again));
    }
    same("needed-privileges", &needed.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_may_little_is_told_everything_at_once() {
    let world = Rehearsal::bad(SMALL);
    world.allow(["Sys.Audit", "VM.Audit", "Datastore.Audit"].map(str::to_owned).into());
    shows_untouched("many-privileges", &world).await;
    let Err(halt) = world.attempt().await else { panic!("it is refused") };
    world.obey(&findings(&halt.findings));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_privilege_that_is_lost_during_the_run_is_named() {
    let world = Rehearsal::bad(SMALL);
    world.fault(Server::Pve, "POST /nodes/*/qemu/*/status/start", 0, Kind::PermissionLost);
    shows("privilege-lost", &world).await;
    world.mend();
    world.recovers().await;
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
    let ended = rehearsal.attempt().await.expect("no halt: much was done");
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
