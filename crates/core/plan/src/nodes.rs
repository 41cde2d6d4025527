//! Nodes that only Kubernetes still believes in.
//!
//! A node is as its kubelet last said, for the best part of a minute after the machine is gone. The uuid of a machine
//! tells nothing then: one that is made anew has it again. What names a boot does.

use ichor_model::{
    MachineName, Observed,
    desired::Machine,
    observed::{MachineSeen, NodeSeen, Sight, TalosSeen},
    step::Verdict,
};

const EARLIER_BOOT: &str = "its kubelet has not spoken since the machine booted";
const EARLIER_MACHINE: &str = "it is of an earlier machine: this one has no config yet";

/// Says why a node cannot be the machine of its name any more, if that is certain.
pub fn stale_node(observed: &Observed, machine: &Machine) -> Option<&'static str> {
    let node = observed.nodes.seen()?.get(machine.name.as_str())?;
    if matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(None))) {
        return Some("its VM is gone");
    }
    match observed.machines.get(&machine.name)?.seen()? {
        MachineSeen::Ours(talos) if is_of_earlier_boot(talos, node) => Some(EARLIER_BOOT),
        MachineSeen::Maintenance => Some(EARLIER_MACHINE),
        _ => None,
    }
}

/// Judges whether a node stands for a machine that is there: the machine answers, and its kubelet has spoken since it
/// booted.
pub(crate) fn stands_for(observed: &Observed, machine: &MachineName, node: &NodeSeen) -> Verdict {
    match observed.machines.get(machine) {
        Some(Sight::Seen(MachineSeen::Ours(talos))) => {
            Verdict::of(!is_of_earlier_boot(talos, node), || EARLIER_BOOT.into())
        }
        Some(Sight::Seen(MachineSeen::Maintenance)) => Verdict::Fails(EARLIER_MACHINE.into()),
        Some(Sight::Seen(MachineSeen::Silent(why) | MachineSeen::Stranger(why))) => {
            Verdict::Fails(format!("only Kubernetes still speaks of the machine: {why}"))
        }
        Some(Sight::Unseen(why)) => Verdict::Unknown(why.clone()),
        None => Verdict::Unknown("nobody looked".into()),
    }
}

/// Where one of the two does not say which boot it is, nothing speaks against the node.
fn is_of_earlier_boot(talos: &TalosSeen, node: &NodeSeen) -> bool {
    matches!((&talos.boot, &node.boot), (Some(is), Some(was)) if is != was)
}
