//! Inventories against a world: what exists, what has left, and what belongs to others.

use ichor_model::{Findings, World};
use ichor_plan::Resolution;
use ichor_spec::{Layers, Sources};

const HEAD: &str = "cluster: {name: x, talos: v1.13.9, kubernetes: v1.36.3}\n\
    network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.2}\n";
const HOSTS: &str = "proxmox: {endpoint: 'https://pve:8006', hosts: [pve1, pve2, pve3]}\n";
const NO_HOSTS: &str = "proxmox: {endpoint: 'https://pve:8006'}\n";

fn resolve(rest: &str, world: &str) -> Resolution {
    resolve_all(&format!("{HEAD}{rest}"), world)
}

fn resolve_all(text: &str, world: &str) -> Resolution {
    let mut sources = Sources::default();
    let layers = Layers { defaults: Vec::new(), files: vec![sources.add("ichor.yaml", text.to_owned())] };
    let mut findings = Findings::new();
    let inventory = ichor_spec::load(&sources, &layers, &mut findings).expect("an inventory");
    assert!(findings.is_empty(), "{findings:?}");
    let world: World = serde_json::from_str(world).expect("a world");
    ichor_plan::resolve(&inventory, &world)
}

fn codes(resolution: &Resolution) -> Vec<String> {
    resolution.findings.iter().map(|finding| finding.code.to_string()).collect()
}

/// Name, host, VMID and address of every machine.
fn machines(resolution: &Resolution) -> Vec<String> {
    let desired = resolution.desired.as_ref().unwrap_or_else(|| panic!("{:?}", resolution.findings));
    let shown = desired.machines.iter().map(|machine| {
        let host = machine.host.known().map_or("live", |host| host.as_str());
        let address =
            machine.nics[0].addresses[0].known().map_or("lease".into(), |net| net.addr().to_string());
        format!("{} {host} {} {address}", machine.name, machine.vmid)
    });
    shown.collect()
}

#[test]
fn a_machine_that_left_the_inventory_keeps_its_number_and_address_until_it_is_gone() {
    let world = r#"{"machines": [
        {"name": "w-1", "host": "pve1", "vmid": 3000, "addresses": ["10.0.0.20"]},
        {"name": "w-9", "host": "pve2", "vmid": 3001, "addresses": ["10.0.0.21"]}]}"#;
    let resolution = resolve(
        &format!("{HOSTS}machines: {{cp: {{role: control-plane}}, w: {{role: worker, count: 2}}}}"),
        world,
    );
    assert_eq!(
        machines(&resolution),
        ["cp pve1 2000 10.0.0.10", "w-1 pve1 3000 10.0.0.20", "w-2 pve2 3002 10.0.0.22"]
    );
    let taken = resolve(&format!("{HOSTS}machines: {{cp: {{role: control-plane, vmid: 3001}}}}"), world);
    assert_eq!(codes(&taken), ["ICH-1405"]);
}

#[test]
fn machines_of_other_clusters_are_strangers() {
    let world = r#"{"machines": [{"name": "cp", "cluster": "y", "host": "pve3", "vmid": 2000, "addresses": ["10.0.0.10"]}]}"#;
    let resolution = resolve(&format!("{HOSTS}machines: {{cp: {{role: control-plane}}}}"), world);
    assert_eq!(machines(&resolution), ["cp pve1 2001 10.0.0.11"]);
    let own = world.replace("\"y\"", "\"x\"");
    let resolution = resolve(&format!("{HOSTS}machines: {{cp: {{role: control-plane}}}}"), &own);
    assert_eq!(machines(&resolution), ["cp pve3 2000 10.0.0.10"]);
}

#[test]
fn a_vm_keeps_its_number_whatever_the_inventory_now_says() {
    let world = r#"{"machines": [{"name": "cp", "host": "pve1", "vmid": 2000}]}"#;
    let resolution = resolve(&format!("{HOSTS}machines: {{cp: {{role: control-plane, vmid: 2100}}}}"), world);
    assert_eq!(machines(&resolution), ["cp pve1 2000 10.0.0.10"]);
    assert_eq!(codes(&resolution), ["ICH-1407"]);
}

#[test]
fn observations_that_contradict_each_other_are_refused() {
    let world = r#"{
        "hosts": [{"name": "pve1", "cpu": 8, "memory": "16GiB"}, {"name": "pve1", "cpu": 8, "memory": "16GiB"}],
        "machines": [{"name": "cp", "host": "pve7", "vmid": 2000}, {"name": "cp", "host": "pve1", "vmid": 2001}],
        "foreign": [{"vmid": 2001, "host": "pve1"}]}"#;
    let resolution = resolve(&format!("{NO_HOSTS}machines: {{cp: {{role: control-plane}}}}"), world);
    assert_eq!(
        resolution.findings.iter().filter(|finding| finding.code.to_string() == "ICH-1710").count(),
        4
    );
    assert!(resolution.desired.is_none());
}

#[test]
fn without_a_list_of_hosts_pins_and_existing_machines_still_count() {
    let world = r#"{"machines": [{"name": "b", "host": "pve9", "vmid": 3000}]}"#;
    let entries = "machines: {cp: {role: control-plane, host: pve7}, a: {role: worker}, b: {role: worker}}";
    let resolution = resolve(&format!("{NO_HOSTS}{entries}"), world);
    assert_eq!(
        machines(&resolution),
        ["cp pve7 2000 10.0.0.10", "a live 3001 10.0.0.20", "b pve9 3000 10.0.0.21"]
    );
}

#[test]
fn a_certain_host_is_nearer_than_a_choice_of_several() {
    let entries = "machines: {cp: {role: control-plane}, w: {role: worker, count: 2, hosts: [pve2, pve3]}, w-2: {host: pve1}}";
    let resolution = resolve(&format!("{HOSTS}{entries}"), "{}");
    assert_eq!(machines(&resolution)[1..], ["w-1 pve2 3000 10.0.0.20", "w-2 pve1 3001 10.0.0.21"]);
}

#[test]
fn cards_of_a_role_count_their_addresses_up() {
    let entries = "roles: {worker: {nics: [{bridge: vmbr1, cidr: 10.9.0.0/24, address: +20}]}}\n\
        machines: {cp: {role: control-plane}, a: {role: worker}, b: {role: worker}}";
    let resolution = resolve(&format!("{HOSTS}{entries}"), "{}");
    let desired = resolution.desired.expect("a cluster");
    let second = |i: usize| desired.machines[i].nics[1].addresses[0].known().map(ToString::to_string);
    assert_eq!([second(1), second(2)], [Some("10.9.0.20/24".into()), Some("10.9.0.21/24".into())]);
}

#[test]
fn an_entry_at_the_end_of_the_file_moves_nobody() {
    let entries = "machines:\n  cp: {role: control-plane}\n  web: {role: worker, count: 2}\n";
    let before = machines(&resolve(&format!("{HOSTS}{entries}"), "{}"));
    let after = machines(&resolve(&format!("{HOSTS}{entries}  app: {{role: worker}}\n"), "{}"));
    for machine in before {
        assert!(after.contains(&machine), "{machine} moved: {after:?}");
    }
}

#[test]
fn many_overlapping_ranges_are_reported_once_each() {
    let mut entries = format!("{HOSTS}machines:\n  cp: {{role: control-plane}}\n");
    for i in 0..300 {
        entries += &format!("  w{i}: {{role: worker, vmid: {}-9000}}\n", 4000 + i);
    }
    let resolution = resolve(&entries, "{}");
    let overlaps =
        resolution.findings.iter().filter(|finding| finding.code.to_string() == "ICH-1403").count();
    assert_eq!(overlaps, 299);
}

/// What the contract of a cluster with Talos 1.13 becomes.
fn contract(written: &str, recorded: &str) -> Result<String, Vec<String>> {
    let head = HEAD.replace("name: x", &format!("name: x{written}"));
    let resolution = resolve_all(
        &format!("{head}{HOSTS}machines: {{cp: {{role: control-plane}}}}"),
        &format!("{{{recorded}}}"),
    );
    match &resolution.desired {
        Some(desired) => Ok(desired.cluster.contract.to_string()),
        None => Err(resolution.findings.iter().map(|finding| finding.message.clone()).collect()),
    }
}

#[test]
fn the_contract_that_was_recorded_outlives_upgrades() {
    assert_eq!(contract("", "").as_deref(), Ok("1.13"), "a new cluster has that of its Talos");
    assert_eq!(contract("", r#""contract": null"#).as_deref(), Ok("1.13"));
    assert_eq!(contract("", r#""contract": "1.11""#).as_deref(), Ok("1.11"));
    assert_eq!(contract(", contract: '1.12'", "").as_deref(), Ok("1.12"));
    assert_eq!(contract(", contract: '1.11'", r#""contract": "1.11""#).as_deref(), Ok("1.11"));
}

#[test]
fn a_contract_that_the_cluster_was_not_made_with_is_an_error() {
    assert_eq!(
        contract(", contract: '1.12'", r#""contract": "1.11""#),
        Err(vec!["contract 1.12 is not the one the cluster was made with".to_owned()])
    );
    assert_eq!(
        contract("", r#""contract": "1.14""#),
        Err(vec!["contract 1.14 does not fit Talos 1.13".to_owned()])
    );
}
