//! Machines as a variable for Terraform, which clones, sizes and starts VMs itself.

use ichor_model::{
    Desired, Size,
    desired::{Late, Machine, Nic},
};
use serde_json::{Map, Value, json};

use crate::access::own_address;

/// The name of the file: Terraform reads it by itself.
pub const NAME: &str = "talos-machines.auto.tfvars.json";

/// Writes the variable `talos_machines`: a map by name, with no secret in it.
pub fn variables(desired: &Desired, config_path: impl Fn(&Machine) -> String) -> String {
    let machines: Map<String, Value> = desired
        .machines
        .iter()
        .map(|machine| (machine.name.to_string(), describe(machine, &config_path(machine))))
        .collect();
    let text = serde_json::to_string_pretty(&json!({ "talos_machines": machines })).unwrap_or_default();
    text + "\n"
}

/// Describes a machine. What is not known yet is null, so that every machine has the same attributes, as
/// Terraform wants it of a map of objects.
fn describe(machine: &Machine, config: &str) -> Value {
    let nic = machine.primary_nic();
    let disks = machine.disks.iter().map(
        |disk| json!({ "slot": disk.slot, "name": disk.name, "size_gib": gib(disk.size), "storage": disk.storage }),
    );
    json!({
        "role": machine.role.word(),
        "group": machine.group,
        "vmid": machine.vmid,
        "uuid": machine.uuid,
        "host": machine.host.known(),
        "template": machine.template,
        "image": machine.image,
        "ip": own_address(machine),
        "cidr": nic.addresses.iter().find_map(Late::known),
        "gateway": nic.gateways.first(),
        "mac": nic.mac,
        "bridge": nic.bridge,
        "vlan": nic.vlan,
        "cpu": machine.cpu.total(),
        "cores": machine.cpu.cores,
        "sockets": machine.cpu.sockets,
        "cpu_type": machine.cpu.cpu_type,
        "memory_mib": machine.memory.mib(),
        "disk_gib": gib(machine.system_disk().size),
        "storage": machine.system_disk().storage,
        "disks": disks.collect::<Vec<_>>(),
        "nics": machine.nics.iter().map(card).collect::<Vec<_>>(),
        "machine": machine.vm.machine,
        "bios": machine.vm.bios,
        "tpm": machine.vm.tpm,
        "on_boot": machine.vm.on_boot,
        "tags": machine.vm.tags,
        "talos": machine.talos,
        "kubernetes": machine.kubernetes,
        "machine_config": config,
    })
}

fn card(nic: &Nic) -> Value {
    let addresses: Vec<_> = nic.addresses.iter().filter_map(Late::known).collect();
    json!({
        "slot": nic.slot, "mac": nic.mac, "bridge": nic.bridge, "vlan": nic.vlan, "mtu": nic.mtu,
        "model": nic.model, "addresses": addresses,
    })
}

/// Disks have whole GiB; the inventory sees to it.
const fn gib(size: Size) -> u64 {
    size.mib() / 1024
}
