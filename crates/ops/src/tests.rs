//! Whole verbs on a machine in memory.

mod access;
mod account;
mod bad_worlds;
mod crashes;
mod doctor;
mod drift;
mod hostile;
mod keep;
mod live;
mod matrix;
mod merging;
mod past;
mod paths;
mod reading;
mod remains;
mod rendering;
mod sealed;
mod store_health;
mod vault;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use ichor_machineconfig::pki::RsaKey;
use ichor_model::{Desired, Findings, World};
use ichor_spec::{Layers, Sources};

use crate::{Halt, Keeping, Origin, Site, memory::Memory, secrets};

/// A small cluster with a patch file and secrets in all places.
const INVENTORY: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', tls: {sha256: 'AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA'}, hosts: [pve1]}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp: {role: control-plane, count: 1, address: 10.0.0.11}
  worker: {role: worker, count: 1, address: 10.0.0.21}
";

/// The key of these tests; making one takes seconds.
fn rsa() -> RsaKey {
    const PEM: &str = include_str!("../../core/machineconfig/tests/golden/service-account.pem");
    RsaKey::from_pem(PEM).expect("a key")
}

fn resolve(inventory: &str) -> Desired {
    resolve_in(inventory, &World::default()).unwrap_or_else(|findings| panic!("{findings:?}"))
}

fn resolve_in(inventory: &str, world: &World) -> Result<Desired, Findings> {
    let mut sources = Sources::default();
    let source = sources.add("ichor.yaml", inventory);
    let layers = Layers { defaults: Vec::new(), files: vec![source] };
    let mut findings = Findings::new();
    let loaded = ichor_spec::load(&sources, &layers, &mut findings).expect("an inventory");
    assert!(!findings.has_errors(), "{findings:?}");
    let resolution = ichor_plan::resolve(&loaded, world);
    resolution.desired.ok_or(resolution.findings)
}

pub fn lab() -> &'static Desired {
    static LAB: OnceLock<Desired> = OnceLock::new();
    LAB.get_or_init(|| resolve(INVENTORY))
}

fn site(desired: &Desired) -> Site<'_> {
    Site {
        desired,
        directory: Path::new("home"),
        files: &[],
        contract: Origin::Recorded,
        keeping: Keeping::Plain,
    }
}

/// A machine on which the lab's secrets were made: the same ones each time, though signatures differ from
/// one making to the next.
fn with_secrets() -> Memory {
    static MADE: OnceLock<BTreeMap<PathBuf, Vec<u8>>> = OnceLock::new();
    let memory = Memory::default();
    let files = MADE.get_or_init(|| {
        secrets::new(&memory, site(lab()), || Ok(rsa())).expect("secrets");
        memory.files.borrow().clone()
    });
    *memory.files.borrow_mut() = files.clone();
    memory
}

fn codes(halt: &Halt) -> Vec<String> {
    halt.findings.iter().map(|finding| finding.code.to_string()).collect()
}

fn messages(findings: &Findings) -> String {
    findings
        .iter()
        .map(|finding| format!("{} {:?} {:?}\n", finding.message, finding.notes, finding.remedy))
        .collect()
}
