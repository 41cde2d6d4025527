//! What must hold for any inventory that resolves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use ichor_model::{
    Desired, Findings, World,
    desired::Role,
    world::{ForeignVm, SeenMachine},
};
use ichor_spec::{Layers, Sources};
use proptest::prelude::*;

/// A small inventory, described so that it can be grown.
#[derive(Debug, Clone)]
struct Sketch {
    control_planes: u32,
    groups: Vec<Group>,
    hosts: Vec<(u32, u32)>,
    zones: u32,
    prefix: bool,
    dual_stack: bool,
}

#[derive(Debug, Clone)]
struct Group {
    count: u32,
    cpu: u32,
    memory_gib: u32,
    fixed_vmid: bool,
    fixed_address: bool,
}

impl Sketch {
    fn text(&self) -> String {
        let v6 = if self.dual_stack { ", 'fd00:10::/64'" } else { "" };
        let mut text = format!(
            "cluster: {{name: any, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {{vip: 10.0.0.5}}}}\n\
             network: {{cidr: [10.0.0.0/20{v6}], gateway: 10.0.0.1, dns: 10.0.0.1{}}}\n\
             proxmox:\n  endpoint: https://pve.lab.example:8006\n  hosts:\n",
            if self.prefix { ", mac_prefix: 'BC:24:11'" } else { "" },
        );
        for (i, (cpu, memory)) in self.hosts.iter().enumerate() {
            let zone = u32::try_from(i).unwrap_or(0) % self.zones;
            let _ = writeln!(text, "    pve{i}: {{cpu: {cpu}, memory: {memory}GiB, zone: z{zone}}}");
        }
        let _ = write!(
            text,
            "machines:\n  cp: {{role: control-plane, count: {}, cpu: 2, memory: 4GiB}}\n",
            self.control_planes
        );
        for (i, group) in self.groups.iter().enumerate() {
            let vmid = if group.fixed_vmid { format!(", vmid: {}", 5000 + 100 * i) } else { String::new() };
            let address =
                if group.fixed_address { format!(", address: +{}", 1000 + 100 * i) } else { String::new() };
            let _ = writeln!(
                text,
                "  group{i}: {{role: worker, count: {}, cpu: {}, memory: {}GiB{vmid}{address}}}",
                group.count, group.cpu, group.memory_gib
            );
        }
        text
    }
}

fn group() -> impl Strategy<Value = Group> {
    (0_u32..12, 1_u32..8, 1_u32..16, any::<bool>(), any::<bool>()).prop_map(
        |(count, cpu, memory_gib, fixed_vmid, fixed_address)| Group {
            count,
            cpu,
            memory_gib,
            fixed_vmid,
            fixed_address,
        },
    )
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let hosts = prop::collection::vec((4_u32..64, 8_u32..128), 1..6);
    let groups = prop::collection::vec(group(), 0..4);
    (1_u32..6, groups, hosts, 1_u32..3, any::<bool>(), any::<bool>()).prop_map(
        |(control_planes, groups, hosts, zones, prefix, dual_stack)| Sketch {
            control_planes,
            groups,
            hosts,
            zones,
            prefix,
            dual_stack,
        },
    )
}

fn resolve(text: &str, world: &World) -> Option<Desired> {
    let mut sources = Sources::default();
    let layers = Layers { defaults: Vec::new(), files: vec![sources.add("ichor.yaml", text)] };
    let mut findings = Findings::new();
    let inventory = ichor_spec::load(&sources, &layers, &mut findings).expect("an inventory");
    assert!(!findings.has_errors(), "{text}\n{findings:?}");
    ichor_plan::resolve(&inventory, world).desired
}

/// The world after a plan was carried out to the letter.
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
            .map(ipnet::IpNet::addr)
            .collect(),
        cluster: None,
        cpu: machine.cpu.total(),
        memory: machine.memory,
    });
    World { machines: machines.collect(), ..World::default() }
}

fn assert_distinct<T: Ord>(what: &str, values: impl Iterator<Item = T>) {
    let all: Vec<T> = values.collect();
    let count = all.len();
    assert_eq!(all.into_iter().collect::<BTreeSet<T>>().len(), count, "{what} collide");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_same_inventory_gives_the_same_cluster(sketch in sketch()) {
        let text = sketch.text();
        prop_assert_eq!(resolve(&text, &World::default()), resolve(&text, &World::default()));
    }

    #[test]
    fn no_two_machines_share_a_number_an_address_or_an_identity(sketch in sketch()) {
        let Some(desired) = resolve(&sketch.text(), &World::default()) else { return Ok(()) };
        assert_distinct("VMIDs", desired.machines.iter().map(|machine| machine.vmid));
        assert_distinct("uuids", desired.machines.iter().map(|machine| machine.uuid));
        assert_distinct("names", desired.machines.iter().map(|machine| machine.name.clone()));
        let nics = desired.machines.iter().flat_map(|machine| &machine.nics);
        assert_distinct("MACs", nics.clone().map(|nic| nic.mac));
        let addresses = nics.flat_map(|nic| &nic.addresses).filter_map(|address| address.known());
        assert_distinct("addresses", addresses.clone().map(ipnet::IpNet::addr));
        for address in addresses {
            prop_assert!(desired.network.cidr.iter().any(|net| net.contains(&address.addr())));
            prop_assert_ne!(Some(address.addr()), desired.cluster.endpoint.vip);
            prop_assert_ne!(address.addr().to_string(), "10.0.0.1");
        }
    }

    #[test]
    fn no_host_is_given_more_than_it_has(sketch in sketch()) {
        let Some(desired) = resolve(&sketch.text(), &World::default()) else { return Ok(()) };
        for host in &desired.hosts {
            let here = desired.machines.iter().filter(|machine| machine.host.known() == Some(&host.name));
            let (cpu, mib) = here.fold((0, 0), |(cpu, mib), machine| (cpu + machine.cpu.total(), mib + machine.memory.mib()));
            prop_assert!(cpu <= host.cpu.expect("a budget") && mib <= host.memory.expect("a budget").mib());
        }
    }

    #[test]
    fn control_planes_are_apart_when_every_host_has_room(sketch in sketch()) {
        let Some(desired) = resolve(&sketch.text(), &World::default()) else { return Ok(()) };
        let mut per_host: BTreeMap<_, u32> = BTreeMap::new();
        for machine in desired.of_role(Role::ControlPlane) {
            *per_host.entry(machine.host.known().expect("a host")).or_default() += 1;
        }
        // Every host of a sketch has room for one control plane, so sharing means too few hosts.
        let shared = per_host.values().any(|count| *count > 1);
        prop_assert_eq!(shared, sketch.control_planes as usize > sketch.hosts.len());
    }

    #[test]
    fn growing_an_inventory_moves_nothing_that_exists(sketch in sketch(), more in 1_u32..4, which in 0_usize..4) {
        let Some(before) = resolve(&sketch.text(), &World::default()) else { return Ok(()) };
        let mut grown = sketch.clone();
        match grown.groups.get_mut(which) {
            Some(group) => group.count += more,
            None => grown.groups.push(Group { count: more, cpu: 1, memory_gib: 1, fixed_vmid: false, fixed_address: false }),
        }
        let Some(after) = resolve(&grown.text(), &world_of(&before)) else { return Ok(()) };
        for machine in &before.machines {
            let same = after.machines.iter().find(|other| other.name == machine.name).expect("nothing vanished");
            prop_assert_eq!((&same.host, same.vmid, same.uuid), (&machine.host, machine.vmid, machine.uuid));
            prop_assert_eq!(&same.nics, &machine.nics);
        }
    }

    #[test]
    fn what_has_left_the_inventory_is_in_the_way_until_it_is_gone(sketch in sketch(), which in 0_usize..4) {
        let Some(before) = resolve(&sketch.text(), &World::default()) else { return Ok(()) };
        let mut shrunk = sketch.clone();
        let Some(group) = shrunk.groups.get_mut(which) else { return Ok(()) };
        group.count = group.count.saturating_sub(2);
        shrunk.groups.push(Group { count: 3, cpu: 1, memory_gib: 1, fixed_vmid: false, fixed_address: false });
        let Some(after) = resolve(&shrunk.text(), &world_of(&before)) else { return Ok(()) };
        let addresses = |machine: &ichor_model::desired::Machine| -> Vec<std::net::IpAddr> {
            machine.nics[0].addresses.iter().filter_map(|address| address.known()).map(ipnet::IpNet::addr).collect()
        };
        for gone in before.machines.iter().filter(|old| !after.machines.iter().any(|new| new.name == old.name)) {
            for machine in &after.machines {
                prop_assert_ne!(machine.vmid, gone.vmid);
                prop_assert!(addresses(machine).iter().all(|address| !addresses(gone).contains(address)));
            }
        }
    }

    #[test]
    fn numbers_of_foreign_vms_are_left_alone(sketch in sketch(), taken in prop::collection::btree_set(2000_u32..3010, 0..40)) {
        let host: ichor_model::HostName = "pve0".parse().expect("a name");
        let foreign = taken.iter().map(|number| ForeignVm {
            vmid: ichor_model::VmId::new(*number).expect("in range"),
            host: host.clone(),
            cpu: 0,
            memory: ichor_model::Size::default(),
            macs: Vec::new(),
        });
        let world = World { foreign: foreign.collect(), ..World::default() };
        let Some(desired) = resolve(&sketch.text(), &world) else { return Ok(()) };
        for machine in &desired.machines {
            prop_assert!(!taken.contains(&machine.vmid.number()));
        }
    }
}
