//! How long it takes to read, check and place an inventory, and how much memory.
//!
//! Each case runs in a process of its own, so that its peak memory is its own. The time is also
//! given as a multiple of what the YAML parser alone needs for the same text: the lower bound for
//! anything that reads the file.
//!
//!     cargo bench -p ichor-plan

#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use std::{
    env,
    fmt::Write as _,
    hint::black_box,
    process::Command,
    time::{Duration, Instant},
};

use ichor_model::{Desired, Findings, Size, World, world::SeenMachine};
use ichor_spec::{Layers, Sources};
use ipnet::IpNet;
use serde_saphyr::granit_parser::Parser;

const CASES: &[(&str, u32, u32)] = &[
    ("groups", 1_000, 32),
    ("named", 1_000, 32),
    ("groups", 10_000, 200),
    ("named", 10_000, 200),
    ("existing", 10_000, 200),
];
const RUNS: usize = 9;

#[expect(clippy::disallowed_methods, reason = "each case runs in a process of its own")]
fn main() {
    match env::args().skip_while(|arg| arg != "--case").nth(1) {
        Some(case) => run(CASES[case.parse::<usize>().expect("a case number")]),
        None => run_all(),
    }
}

fn run_all() {
    println!(
        "{:<8} {:>8} {:>6} {:>12} {:>12} {:>8} {:>10}",
        "entries", "machines", "hosts", "time", "YAML alone", "ratio", "peak"
    );
    let own = env::current_exe().expect("own path");
    for case in 0..CASES.len() {
        let status =
            Command::new(&own).args(["--case", &case.to_string()]).status().expect("a child process");
        assert!(status.success());
    }
}

fn run((kind, machines, hosts): (&str, u32, u32)) {
    let text = inventory(kind, machines, hosts);
    // A machine that exists is looked up, not placed.
    let world = if kind == "existing" {
        world_of(&check(&text, machines, &World::default()))
    } else {
        World::default()
    };
    let ours = median(|| drop(black_box(check(&text, machines, &world))));
    let floor = median(|| assert!(Parser::new_from_str(&text).all(|event| black_box(event).is_ok())));
    println!(
        "{kind:<8} {machines:>8} {hosts:>6} {:>10.1}ms {:>10.2}ms {:>7.0}x {:>7.1}MiB",
        ours.as_secs_f64() * 1e3,
        floor.as_secs_f64() * 1e3,
        ours.as_secs_f64() / floor.as_secs_f64(),
        peak_mib(),
    );
}

fn check(text: &str, machines: u32, world: &World) -> Desired {
    let mut sources = Sources::default();
    let layers = Layers { defaults: Vec::new(), files: vec![sources.add("ichor.yaml", text)] };
    let mut findings = Findings::new();
    let inventory = ichor_spec::load(&sources, &layers, &mut findings).expect("an inventory");
    let resolution = ichor_plan::resolve(&inventory, world);
    let desired = resolution.desired.unwrap_or_else(|| panic!("{:?}", resolution.findings));
    assert_eq!(desired.machines.len(), machines as usize);
    desired
}

/// The world in which every machine of a plan has its VM.
fn world_of(desired: &Desired) -> World {
    let machines = desired.machines.iter().map(|machine| SeenMachine {
        name: machine.name.clone(),
        host: machine.host.known().expect("hosts are known").clone(),
        vmid: machine.vmid,
        generation: machine.generation,
        addresses: machine.nics[0]
            .addresses
            .iter()
            .filter_map(|address| address.known())
            .map(IpNet::addr)
            .collect(),
        cluster: None,
        cpu: 0,
        memory: Size::default(),
    });
    World { machines: machines.collect(), ..World::default() }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn median(work: impl Fn()) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

/// The most memory this process ever had, where the system tells.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

fn inventory(kind: &str, machines: u32, hosts: u32) -> String {
    let mut text = String::from(
        "cluster: {name: big, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}, ha: true}\n\
         network: {cidr: 10.0.0.0/16, gateway: 10.0.0.1, dns: 10.0.0.1, pods: 10.128.0.0/9, services: 10.96.0.0/16}\n\
         proxmox:\n  endpoint: https://pve.lab.example:8006\n  hosts:\n",
    );
    for host in 0..hosts {
        let _ = writeln!(text, "    pve{host}: {{cpu: 512, memory: 2TiB, zone: rack-{}}}", host % 8);
    }
    text += "roles: {worker: {vmid: 10000-99999}}\nmachines:\n  cp: {role: control-plane, count: 5}\n";
    if kind != "named" {
        let _ = writeln!(
            text,
            "  worker: {{role: worker, count: {}, cpu: 4, memory: 16GiB, disk: 80GiB}}",
            machines - 5
        );
        return text;
    }
    for worker in 0..machines - 5 {
        let _ = writeln!(
            text,
            "  worker-{worker}: {{role: worker, cpu: 4, memory: 16GiB, disk: 80GiB, labels: {{tier: apps}}}}"
        );
    }
    text
}
