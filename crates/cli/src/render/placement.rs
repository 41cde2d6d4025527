//! Why machines go where they go, and what the loss of a host would mean.

use ichor_model::{Size, desired::Host};
use ichor_plan::placement::{self as plan, Resources};
use serde::Serialize;

use super::{hosts, table::Table, text};

/// A machine, its host and the reason.
#[derive(Debug, Clone, Serialize)]
pub struct Seat {
    /// The machine.
    pub machine: String,
    /// The host it goes to.
    pub host: String,
    /// Why it goes there, as a sentence.
    pub because: String,
}

/// What the loss of a host would mean.
#[derive(Debug, Clone, Serialize)]
pub struct Loss {
    /// The host.
    pub host: String,
    /// The machines on it.
    pub machines: Vec<String>,
    /// Control planes that would be left.
    pub control_planes_left: usize,
    /// Control planes that must agree.
    pub quorum: usize,
    /// Where lost machines could go.
    pub replaced: Vec<Seat>,
    /// Lost machines that would find no host, each with the reason.
    pub stranded: Vec<Stranded>,
    /// What those need together.
    pub unplaced: Resources,
    /// What the hosts that remain would carry.
    pub usage: Vec<Usage>,
}

/// What a host would carry.
#[derive(Debug, Clone, Serialize)]
pub struct Usage {
    /// The host.
    pub host: String,
    /// Control planes on it.
    pub control_planes: usize,
    /// Workers on it.
    pub workers: usize,
    /// What they take of it.
    pub used: Resources,
    /// What it gives.
    pub capacity: Capacity,
}

/// What a host gives, as far as somebody knows.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Capacity {
    /// Virtual processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
}

/// A machine that would find no host.
#[derive(Debug, Clone, Serialize)]
pub struct Stranded {
    /// The machine.
    pub machine: String,
    /// Why no host takes it, as a sentence.
    pub because: String,
}

impl From<&plan::Seat> for Seat {
    fn from(seat: &plan::Seat) -> Self {
        Self {
            machine: seat.machine.to_string(),
            host: seat.host.to_string(),
            because: seat.because.to_string(),
        }
    }
}

impl From<&plan::Refusal> for Stranded {
    fn from(refusal: &plan::Refusal) -> Self {
        let lacks: Vec<String> =
            refusal.hosts().iter().map(|(host, lack)| format!("`{host}` {lack}")).collect();
        let because = if lacks.is_empty() { refusal.to_string() } else { lacks.join("; ") };
        Self { machine: refusal.machine().to_string(), because }
    }
}

impl Usage {
    fn new(usage: &plan::Usage, hosts: &[Host]) -> Self {
        let host = hosts.iter().find(|host| host.name == usage.host);
        Self {
            host: usage.host.to_string(),
            control_planes: usage.control_planes,
            workers: usage.workers,
            used: usage.used,
            capacity: host
                .map_or_else(Capacity::default, |host| Capacity { cpu: host.cpu, memory: host.memory }),
        }
    }
}

impl Loss {
    /// Gathers what the loss of one of the hosts would mean.
    pub fn new(loss: &plan::Loss, hosts: &[Host]) -> Self {
        Self {
            host: loss.host.to_string(),
            machines: loss.machines.iter().map(ToString::to_string).collect(),
            control_planes_left: loss.quorum.left,
            quorum: loss.quorum.needed,
            replaced: loss.replaced.iter().map(Seat::from).collect(),
            stranded: loss.stranded.iter().map(Stranded::from).collect(),
            unplaced: loss.unplaced,
            usage: loss.usage.iter().map(|usage| Usage::new(usage, hosts)).collect(),
        }
    }
}

/// Returns the table of reasons.
pub fn seats(seats: &[Seat], width: Option<u16>) -> String {
    if seats.is_empty() {
        return "hosts are chosen live: the inventory names none\n".to_owned();
    }
    let mut table = Table::new(["MACHINE", "HOST", "BECAUSE"]);
    for seat in seats {
        table.row([seat.machine.clone(), seat.host.clone(), seat.because.clone()]);
    }
    table.render(width)
}

/// Returns what the loss of a host would mean.
pub fn loss(loss: &Loss, width: Option<u16>) -> String {
    let mut lines = text::bold(&format!("Without host `{}`", text::safe_line(&loss.host))) + "\n";
    let machines: Vec<String> =
        loss.machines.iter().map(|name| format!("`{}`", text::safe_line(name))).collect();
    lines += &if machines.is_empty() {
        "  no machine is lost\n".to_owned()
    } else {
        format!("  {} lost: {}\n", text::count(machines.len(), "machine"), text::list(&machines))
    };
    let counts = format!(
        "{} left, {} must agree",
        text::count(loss.control_planes_left, "control plane"),
        loss.quorum
    );
    let quorum = if loss.control_planes_left >= loss.quorum {
        text::good("etcd keeps its quorum")
    } else {
        text::bad("etcd loses its quorum")
    };
    lines += &format!("  {quorum}: {counts}\n");
    if !loss.stranded.is_empty() {
        lines += &format!("  {}: {}\n", text::bad("no host has room for"), loss.unplaced);
    }
    if loss.machines.is_empty() {
        return lines;
    }
    lines += &table_of_lost(loss, width);
    if !loss.usage.is_empty() {
        lines += &format!("\n{}", table_of_usage(&loss.usage, width));
    }
    lines
}

fn table_of_lost(loss: &Loss, width: Option<u16>) -> String {
    let mut table = Table::new(["MACHINE", "COULD GO TO", "BECAUSE"]);
    for seat in &loss.replaced {
        table.row([seat.machine.clone(), seat.host.clone(), seat.because.clone()]);
    }
    for stranded in &loss.stranded {
        table.row([stranded.machine.clone(), "no host".to_owned(), stranded.because.clone()]);
    }
    table.render(width)
}

fn table_of_usage(usage: &[Usage], width: Option<u16>) -> String {
    let mut table = Table::new(["HOST LEFT", "CONTROL PLANES", "WORKERS", "CPU", "MEMORY"]);
    for Usage { host, control_planes, workers, used, capacity } in usage {
        table.row([
            host.clone(),
            control_planes.to_string(),
            workers.to_string(),
            hosts::of(&used.cpu, capacity.cpu.as_ref()),
            hosts::of(&hosts::amount(used.memory), capacity.memory.map(hosts::amount).as_ref()),
        ]);
    }
    table.numbers([1, 2, 3, 4]).render(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(machine: &str, host: &str, because: &str) -> Seat {
        Seat { machine: machine.into(), host: host.into(), because: because.into() }
    }

    #[test]
    fn a_loss_tells_quorum_and_where_machines_could_go() {
        let lost = Loss {
            host: "pve1".into(),
            machines: vec!["cp-1".into(), "worker-1".into()],
            control_planes_left: 1,
            quorum: 2,
            replaced: vec![seat("cp-1", "pve3", "control planes go to distinct hosts")],
            stranded: vec![Stranded { machine: "worker-1".into(), because: "`pve3` lacks 2GiB".into() }],
            unplaced: Resources::new(4, Size::from_gib(16)),
            usage: vec![
                Usage {
                    host: "pve2".into(),
                    control_planes: 0,
                    workers: 0,
                    used: Resources::default(),
                    capacity: Capacity { cpu: Some(8), memory: Some(Size::from_gib(8)) },
                },
                Usage {
                    host: "pve3".into(),
                    control_planes: 2,
                    workers: 1,
                    used: Resources::new(12, Size::from_gib(32)),
                    capacity: Capacity { cpu: Some(32), memory: None },
                },
            ],
        };
        insta::assert_snapshot!(anstream::adapter::strip_str(&loss(&lost, None)).to_string(), @r"
        Without host `pve1`
          2 machines lost: `cp-1` and `worker-1`
          etcd loses its quorum: 1 control plane left, 2 must agree
          no host has room for: 4 vCPU and 16GiB
        MACHINE   COULD GO TO  BECAUSE
        cp-1      pve3         control planes go to distinct hosts
        worker-1  no host      `pve3` lacks 2GiB

        HOST LEFT  CONTROL PLANES  WORKERS       CPU     MEMORY
        pve2                    0        0    0 of 8  0 of 8GiB
        pve3                    2        1  12 of 32      32GiB
        ");
    }

    #[test]
    fn reasons_are_a_table() {
        let shown = seats(&[seat("cp-1", "pve1", "it is pinned there")], None);
        insta::assert_snapshot!(anstream::adapter::strip_str(&shown).to_string(), @r"
        MACHINE  HOST  BECAUSE
        cp-1     pve1  it is pinned there
        ");
        assert!(seats(&[], None).starts_with("hosts are chosen live"));
    }
}
