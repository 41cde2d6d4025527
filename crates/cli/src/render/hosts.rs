//! The table of hosts: what the cluster's machines take of each.

use std::collections::BTreeMap;

use ichor_model::{
    Desired, HostName, Size,
    desired::{Machine, Role},
};

use super::{machines::late, table::Table};

/// What machines take of a host.
#[derive(Debug, Default)]
struct Usage<'a> {
    host: Option<&'a HostName>,
    control_planes: usize,
    workers: usize,
    cpu: u32,
    memory_mib: u64,
    disk_mib: u64,
}

impl<'a> Usage<'a> {
    fn add(&mut self, machine: &'a Machine) {
        self.host = machine.host.known();
        match machine.role {
            Role::ControlPlane => self.control_planes += 1,
            Role::Worker => self.workers += 1,
        }
        self.cpu = self.cpu.saturating_add(machine.cpu.total());
        self.memory_mib = self.memory_mib.saturating_add(machine.memory.mib());
        let disks = machine.disks.iter().map(|disk| disk.size.mib());
        self.disk_mib = disks.fold(self.disk_mib, u64::saturating_add);
    }
}

/// Returns the table, by host.
pub fn table(desired: &Desired, width: Option<u16>) -> String {
    // Hosts that are known come first, in the order in which people count them.
    let mut usage: BTreeMap<(bool, Option<&HostName>, String), Usage<'_>> = BTreeMap::new();
    for host in &desired.hosts {
        usage.entry((false, Some(&host.name), host.name.to_string())).or_default().host = Some(&host.name);
    }
    for machine in &desired.machines {
        let host = machine.host.known();
        usage.entry((host.is_none(), host, late(&machine.host))).or_default().add(machine);
    }
    let mut table = Table::new(["HOST", "CONTROL PLANES", "WORKERS", "CPU", "MEMORY", "DISK"]);
    for ((_, _, name), usage) in usage {
        let host = desired.hosts.iter().find(|host| Some(&host.name) == usage.host);
        let (cpu, memory) = host.map_or((None, None), |host| (host.cpu, host.memory));
        table.row([
            name,
            usage.control_planes.to_string(),
            usage.workers.to_string(),
            of(&usage.cpu, cpu.as_ref()),
            of(&amount(Size::from_mib(usage.memory_mib)), memory.map(amount).as_ref()),
            amount(Size::from_mib(usage.disk_mib)),
        ]);
    }
    table.numbers([1, 2, 3, 4, 5]).render(width)
}

/// Shows what is used, and of how much where that is known.
pub fn of<T: ToString>(used: &T, capacity: Option<&T>) -> String {
    match capacity {
        Some(capacity) => format!("{} of {}", used.to_string(), capacity.to_string()),
        None => used.to_string(),
    }
}

/// Shows a size; nothing needs no unit.
pub fn amount(size: Size) -> String {
    if size == Size::default() { "0".to_owned() } else { size.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_unit() {
        let capacity = amount(Size::from_gib(128));
        assert_eq!(of(&amount(Size::default()), Some(&capacity)), "0 of 128GiB");
        assert_eq!(of(&amount(Size::from_mib(512)), None), "512MiB");
    }
}
