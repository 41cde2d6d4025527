//! Hosts: whether they are there, what time they have, what their processors can do, and what room they have.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use ichor_machineconfig::pki::Timestamp;
use ichor_model::{
    Code, Desired, Finding, HostName, Observed,
    desired::Machine,
    observed::{Owner, Sight},
};
use ichor_plan::files::host_of;
use ichor_pve::api::{self, HostStatus};
use tokio::time::Instant;

use super::{Check, Group, WITHIN, counted, some};
use crate::{live::Live, observe::Survey};

/// A clock that is this many seconds off is worth a warning.
const OFF: u64 = 30;
/// A clock that is this many seconds off makes certificates that are not valid yet, or no more.
const FAR_OFF: u64 = 5 * 60;
const GIB: u64 = 1 << 30;

/// What Talos needs of a processor, and what the CPU types of Proxmox promise beyond that, in the words of the kernel.
const V2: [&str; 6] = ["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"];
const AES: [&str; 1] = ["aes"];
const V3: [&str; 8] = ["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"];
const V4: [&str; 5] = ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"];

/// What hosts said.
#[derive(Debug, Default)]
pub struct Seen {
    asked: BTreeMap<HostName, Result<Answer, String>>,
    /// How far each clock is ahead of ours, in seconds.
    ahead: BTreeMap<HostName, i64>,
}

type Answer = HostStatus;

/// Asks the hosts that machines are on, or may come onto, as far as they are up.
pub async fn see(live: &Live<'_>, survey: &Survey, now: Timestamp) -> Seen {
    let begun = Instant::now();
    let up: BTreeSet<&HostName> =
        survey.hosts.iter().filter(|host| host.status == "online").map(|host| &host.node).collect();
    let wanted = used(live.desired);
    let asked = up.into_iter().filter(|host| wanted.is_empty() || wanted.contains(*host));
    let answers = join_all(asked.map(|host| async move {
        let (status, time) = (api::host_status(host), api::host_time(host));
        let (status, time) = tokio::join!(live.pve.send_within(&status, WITHIN), async {
            let told = live.pve.send_within(&time, WITHIN).await;
            (told, begun.elapsed().as_secs())
        });
        (host.clone(), status.map_err(|error| error.to_string()), time)
    }));
    let mut seen = Seen::default();
    for (host, status, (time, passed)) in answers.await {
        if let Ok(time) = time {
            let ours = i64::try_from(now.unix_seconds() + passed).unwrap_or(i64::MAX);
            let theirs = i64::try_from(time.time).unwrap_or(i64::MAX);
            seen.ahead.insert(host.clone(), theirs.saturating_sub(ours));
        }
        seen.asked.insert(host, status);
    }
    seen
}

/// Returns the hosts that machines are on or will be on.
pub fn used(desired: &Desired) -> BTreeSet<HostName> {
    desired.machines.iter().filter_map(host_of).cloned().collect()
}

/// Whether the hosts are there.
pub fn there(desired: &Desired, observed: &Observed) -> Check {
    let wanted = used(desired);
    let is_up = |host: &&HostName| observed.hosts.get(*host) == Some(&true);
    let up = observed.hosts.keys().filter(is_up).count();
    let says = format!("{up} of {} online", counted(observed.hosts.len(), "host"));
    let mut check = Check::new("hosts", Group::Hosts, says);
    // A host that the inventory counts on is down, and nothing is to be made there: preflight is silent then.
    for host in wanted.iter().filter(|host| observed.hosts.get(*host) == Some(&false)) {
        let silent = desired.machines.iter().all(|machine| {
            host_of(machine) != Some(host)
                || matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(Some(vm))) if vm.owner == Owner::Ours)
        });
        if silent {
            let message = format!("host `{host}` does not answer");
            check.findings.push(
                Finding::error(Code::HOST_DOWN, None, message)
                    .because("machines of this cluster are on it")
                    .remedy("bring it back, and see what Proxmox says of it:\n    pvecm status"),
            );
        }
    }
    check
}

impl Seen {
    /// Whether clocks agree with ours.
    pub fn clocks(&self) -> Check {
        const ID: &str = "clock";
        if self.ahead.is_empty() {
            return Check::unknown(ID, Group::Hosts, "no host told its time");
        }
        let most = self.ahead.values().map(|ahead| ahead.unsigned_abs()).max().unwrap_or_default();
        let says = match most {
            0..=2 => "the clocks of all hosts agree with this computer's".to_owned(),
            most => format!("clocks of hosts differ from this computer's by up to {most} s"),
        };
        let wrong = self.ahead.iter().filter(|(_, ahead)| ahead.unsigned_abs() > OFF);
        let findings = wrong.map(|(host, ahead)| {
            let way = if *ahead > 0 { "ahead of" } else { "behind" };
            let message =
                format!("the clock of host `{host}` is {} s {way} this computer's", ahead.unsigned_abs());
            let make = if ahead.unsigned_abs() > FAR_OFF { Finding::error } else { Finding::warning };
            make(Code::CLOCK, None, message)
                .because("machines begin with the clock of their host, and certificates count by the second")
                .remedy("let both follow a time server; see which of them is wrong:\n    timedatectl")
        });
        Check::new(ID, Group::Hosts, says).with(findings)
    }

    /// Whether processors can do what the CPU types promise.
    pub fn processors(&self, desired: &Desired) -> Check {
        const ID: &str = "cpu";
        let known = self.asked.iter().filter_map(|(host, told)| Some((host, told.as_ref().ok()?)));
        let known: Vec<(&HostName, &Answer)> =
            known.filter(|(_, told)| !told.cpuinfo.flags.is_empty()).collect();
        if known.is_empty() {
            return Check::unknown(ID, Group::Hosts, "no host told what its processors can do");
        }
        let types: BTreeSet<&str> =
            desired.machines.iter().map(|machine| machine.cpu.cpu_type.as_str()).collect();
        let types: Vec<String> = types.into_iter().map(|kind| format!("`{kind}`")).collect();
        let mut check = Check::new(ID, Group::Hosts, format!("CPU type {}", types.join(", ")));
        let mut unable: BTreeMap<(&str, Vec<&str>, &str), Vec<String>> = BTreeMap::new();
        for (host, told) in known {
            let has: BTreeSet<&str> = told.cpuinfo.flags.split_ascii_whitespace().collect();
            // All x86-64 processors have it, and no others.
            if !has.contains("lm") {
                continue;
            }
            let here = desired.machines.iter().filter(|machine| host_of(machine) == Some(host));
            let kinds: BTreeSet<&str> = here.map(|machine| machine.cpu.cpu_type.as_str()).collect();
            for kind in kinds {
                let lacks: Vec<&str> =
                    promised(kind).into_iter().filter(|flag| !has.contains(flag)).collect();
                if !lacks.is_empty() {
                    let hosts = unable.entry((kind, lacks, &told.cpuinfo.model)).or_default();
                    hosts.push(format!("`{host}`"));
                }
            }
        }
        let findings = unable.iter().map(|((kind, lacks, model), hosts)| unfit(hosts, kind, lacks, model));
        check.findings.extend(findings);
        check
    }

    /// Whether there is room for what is still to be started, as hosts are loaded at the moment.
    pub fn capacity(&self, desired: &Desired, observed: &Observed) -> Check {
        const ID: &str = "capacity";
        let mut wanted: BTreeMap<&HostName, u64> = BTreeMap::new();
        for machine in desired.machines.iter().filter(|machine| !runs(observed, machine)) {
            if let Some(host) = host_of(machine) {
                *wanted.entry(host).or_default() += machine.memory.mib() << 20;
            }
        }
        if wanted.is_empty() {
            return Check::new(ID, Group::Hosts, "nothing is still to be started");
        }
        let mut check = Check::new(ID, Group::Hosts, "");
        let mut rooms = Vec::new();
        for (host, bytes) in wanted {
            match self.asked.get(host) {
                Some(Ok(told)) if told.memory.total > 0 => {
                    let left = told.memory.left();
                    rooms.push(format!("{host} needs {} of {} GiB", bytes.div_ceil(GIB), left / GIB));
                    if bytes > left {
                        check.findings.push(too_full(host, bytes, left));
                    }
                }
                Some(Err(why)) => {
                    check.known = false;
                    rooms.push(format!("{host}: {why}"));
                }
                _ => {
                    check.known = false;
                    rooms.push(format!("{host} was not asked"));
                }
            }
        }
        check.says = format!("free memory: {}", some(&rooms));
        check
    }
}

fn runs(observed: &Observed, machine: &Machine) -> bool {
    matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(Some(vm))) if vm.owner == Owner::Ours && vm.running)
}

/// Returns what a CPU type promises to the guest. Of types that are not among the usual ones nothing is known.
fn promised(kind: &str) -> Vec<&'static str> {
    let all: &[&[&str]] = match kind {
        "host" | "max" | "x86-64-v2" => &[&V2],
        "x86-64-v2-AES" => &[&V2, &AES],
        "x86-64-v3" => &[&V2, &AES, &V3],
        "x86-64-v4" => &[&V2, &AES, &V3, &V4],
        _ => &[],
    };
    all.iter().flat_map(|flags| flags.iter().copied()).collect()
}

fn unfit(hosts: &[String], kind: &str, lacks: &[&str], model: &str) -> Finding {
    let message = format!("the processors of host {} cannot be a `{kind}`", some(hosts));
    let model = if model.is_empty() { "they".to_owned() } else { ichor_port::clean(model) };
    let remedy = match kind {
        "host" | "max" | "x86-64-v2" => "Talos needs x86-64-v2: use another host",
        _ => "choose what all hosts can do, as in\n    defaults: {cpu_type: x86-64-v2-AES}",
    };
    Finding::error(Code::CPU_UNABLE, None, message)
        .because(format!("{model} lacks {}", lacks.join(", ")))
        .because("Proxmox would not start the VM")
        .remedy(remedy)
}

fn too_full(host: &HostName, bytes: u64, left: u64) -> Finding {
    let message = format!("host `{host}` has too little free memory at the moment");
    Finding::warning(Code::NO_ROOM_NOW, None, message)
        .because(format!(
            "machines that are to start there have {} GiB, and {} GiB are left",
            bytes.div_ceil(GIB),
            left / GIB
        ))
        .remedy("stop what is not needed there, move machines to another host, or make them smaller")
}
