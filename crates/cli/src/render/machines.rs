//! The table of machines.

use ichor_model::{
    Desired,
    desired::{Disk, Late, Machine, Role},
};

use super::{table::Table, text};

/// Returns the table: control planes, then workers.
pub fn table(desired: &Desired, width: Option<u16>) -> String {
    let titles =
        ["MACHINE", "ROLE", "HOST", "VMID", "ADDRESS", "MAC", "CPU", "MEMORY", "DISKS", "IMAGE", "UUID"];
    let mut table = Table::new(titles);
    for machine in Role::ALL.into_iter().flat_map(|role| desired.of_role(role)) {
        table.row(row(machine));
    }
    table.numbers([3, 6, 7]).dispensable([10, 9, 5, 8, 6, 7]).unbroken([1]).render(width)
}

fn row(machine: &Machine) -> [String; 11] {
    let nic = machine.nics.first();
    let addresses = nic.map(|nic| nic.addresses.iter().map(late).collect::<Vec<_>>().join(", "));
    [
        machine.name.to_string(),
        machine.role.to_string(),
        late(&machine.host),
        machine.vmid.to_string(),
        addresses.unwrap_or_default(),
        nic.map(|nic| nic.mac.to_string()).unwrap_or_default(),
        machine.cpu.total().to_string(),
        machine.memory.to_string(),
        disks(&machine.disks),
        machine.image.clone(),
        machine.uuid.to_string(),
    ]
}

/// Shows a value, or who will give it.
pub fn late<T: ToString>(value: &Late<T>) -> String {
    match value {
        Late::Known(value) => value.to_string(),
        Late::From(source) => source.to_string(),
    }
}

/// Shows the system disk by its size, and the others by name too.
fn disks(disks: &[Disk]) -> String {
    let shown = disks.iter().enumerate().map(|(i, disk)| match i {
        0 => disk.size.to_string(),
        _ => format!("{} {}", disk.name, disk.size),
    });
    text::safe_line(&shown.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_narrow_terminal_shows_whole_roles() {
        let mut desired = fixture::homelab();
        desired.machines[0].name = "a-control-plane-with-a-name-that-is-long".parse().expect("name");
        for width in [40, 50, 60, 80] {
            let shown = anstream::adapter::strip_str(&table(&desired, Some(width))).to_string();
            assert_eq!(shown.matches("control-plane ").count(), 3, "{width}\n{shown}");
        }
        desired.machines.remove(0);
        let shown = anstream::adapter::strip_str(&table(&desired, Some(60))).to_string();
        assert_eq!(shown.lines().count(), 1 + desired.machines.len() + 1, "{shown}");
    }
}
