//! Who votes in etcd, and who of them is there to do so.

use ichor_model::{
    Desired, MachineName, Observed,
    desired::{Machine, Role},
    observed::{MachineSeen, MemberSeen, Sight},
};

use crate::drift::listed;

/// The members of etcd that vote, by whether they are there. Everybody whom etcd lists counts for its quorum, also
/// those who are long gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voters {
    /// Those whose own etcd runs.
    pub answering: Vec<String>,
    /// Those whose etcd does not answer, and whose machine may come back.
    pub silent: Vec<String>,
    /// Those whose machine is gone: nobody will ever cast their vote.
    pub stale: Vec<String>,
}

impl Voters {
    /// Returns how many there are.
    pub const fn all(&self) -> usize {
        self.answering.len() + self.silent.len() + self.stale.len()
    }

    /// Returns how many must answer.
    pub const fn quorum(&self) -> usize {
        self.all() / 2 + 1
    }

    /// Whether enough answer for etcd to go on.
    pub const fn has_quorum(&self) -> bool {
        self.answering.len() >= self.quorum()
    }
}

/// Counts who votes in etcd; nothing if nobody could be asked.
pub fn voters(desired: &Desired, observed: &Observed) -> Option<Voters> {
    let mut voters = Voters::default();
    for (name, _) in observed.etcd.seen()?.iter().filter(|(_, member)| !member.learner) {
        let machine = desired.of_role(Role::ControlPlane).find(|machine| machine.name.as_str() == name);
        let list = match machine {
            Some(machine) if runs_etcd(observed, &machine.name) => &mut voters.answering,
            Some(machine) if is_new(observed, machine) => &mut voters.stale,
            _ => &mut voters.silent,
        };
        list.push(name.clone());
    }
    Some(voters)
}

/// Whether a machine's own etcd runs.
pub(crate) fn runs_etcd(observed: &Observed, machine: &MachineName) -> bool {
    matches!(
        observed.machines.get(machine),
        Some(Sight::Seen(MachineSeen::Ours(talos))) if talos.etcd.as_deref() == Some("Running")
    )
}

/// Returns the member that a control plane was, if etcd still counts it and its machine is to be made anew.
pub(crate) fn stale_member<'o>(observed: &'o Observed, machine: &Machine) -> Option<&'o MemberSeen> {
    if machine.role != Role::ControlPlane || !is_new(observed, machine) {
        return None;
    }
    let without_vm = matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(None)));
    let member = observed.etcd.seen()?.get(machine.name.as_str());
    // A machine that had no config when it was looked at may have joined since.
    member.filter(|member| without_vm || !member.learner)
}

/// Whether a machine has no VM, or holds nothing yet: no member of etcd can be it.
fn is_new(observed: &Observed, machine: &Machine) -> bool {
    matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(None)))
        || matches!(observed.machines.get(&machine.name), Some(Sight::Seen(MachineSeen::Maintenance)))
}

/// Says which control planes are left, and whether etcd goes on with them. Nothing, if none is known to have run it.
pub fn remaining(desired: &Desired, observed: &Observed) -> Option<String> {
    let left: Vec<String> = desired
        .of_role(Role::ControlPlane)
        .filter(|machine| runs_etcd(observed, &machine.name))
        .map(|machine| format!("`{}`", machine.name))
        .collect();
    if left.is_empty() {
        return None;
    }
    let (all, quorum) = match voters(desired, observed) {
        Some(voters) => (voters.all(), voters.quorum()),
        // Without a quorum nobody may be able to tell the members.
        None => (desired.of_role(Role::ControlPlane).count(), desired.quorum()),
    };
    let goes_on = if left.len() >= quorum { "has its quorum and goes on" } else { "has lost its quorum" };
    Some(format!(
        "of the control planes {} still answer{}: {} of {all} voters, {quorum} are needed, so etcd {goes_on}",
        listed(&left),
        if left.len() == 1 { "s" } else { "" },
        left.len()
    ))
}
