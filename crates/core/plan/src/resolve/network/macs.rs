//! MAC addresses: given, or derived from the machine's identity.

use std::collections::BTreeMap;

use ichor_model::{Code, Finding, MacAddress, MachineName, Span, identity::Seed};

use crate::resolve::{Context, expand::Draft};

/// Gives every network card its address: written ones first, so that a derived one yields to them.
pub fn derive(cx: &mut Context<'_>, drafts: &[Draft]) -> BTreeMap<MachineName, Vec<MacAddress>> {
    let mut taken: BTreeMap<MacAddress, (String, Option<Span>)> = BTreeMap::new();
    taken.extend(cx.seen.macs().map(|(mac, owner)| (mac, (owner.to_owned(), None))));
    for draft in drafts {
        for (mac, at) in written(draft) {
            claim(cx, &mut taken, mac, draft, at);
        }
    }
    let cluster = crate::resolve::cluster::id(cx);
    drafts.iter().map(|draft| (draft.name.clone(), of_machine(cx, draft, &cluster, &mut taken))).collect()
}

/// Returns the addresses that the inventory gives to a machine.
fn written(draft: &Draft) -> Vec<(MacAddress, Span)> {
    let first = draft.own.mac.map(|mac| (mac.value, mac.span));
    let nics = draft.all.nics.iter().flat_map(|nics| &nics.value);
    first.into_iter().chain(nics.filter_map(|nic| nic.mac.map(|mac| (mac.value, mac.span)))).collect()
}

fn claim(
    cx: &mut Context<'_>,
    taken: &mut BTreeMap<MacAddress, (String, Option<Span>)>,
    mac: MacAddress,
    draft: &Draft,
    at: Span,
) {
    let before = taken.insert(mac, (format!("`{}`", draft.name), Some(at)));
    // What a group says is said of all its members; that is reported where groups are made.
    if let Some((owner, other)) = before.filter(|(_, other)| *other != Some(at)) {
        let name = format!("`{}`", draft.name);
        let message = if owner == name {
            format!("two network cards of {name} have the MAC {mac}")
        } else {
            format!("{name} and {owner} both have the MAC {mac}")
        };
        let finding = Finding::error(Code::MAC_TWICE, at, message)
            .remedy("remove `mac` from one of them: ichor derives a distinct one");
        cx.findings.push(match other {
            Some(other) => finding.see(other, "the other one"),
            None => finding,
        });
    }
}

fn of_machine(
    cx: &Context<'_>,
    draft: &Draft,
    cluster: &str,
    taken: &mut BTreeMap<MacAddress, (String, Option<Span>)>,
) -> Vec<MacAddress> {
    let generation = crate::resolve::machine::generation(cx, &draft.name);
    let seed = Seed { cluster, machine: draft.name.as_str(), generation };
    let prefix = cx.network.mac_prefix.map(|prefix| prefix.value);
    let nics = draft.all.nics.iter().flat_map(|nics| &nics.value);
    let given = std::iter::once(draft.own.mac).chain(nics.map(|nic| nic.mac));
    given
        .enumerate()
        .map(|(nic, given)| match given {
            Some(mac) => mac.value,
            None => {
                // A prefix leaves 24 bits, many times more than there can be machines: the search ends.
                let mut candidates = (0..=u32::MAX).map(|attempt| seed.mac(nic, prefix, attempt));
                let mac = candidates
                    .find(|mac| !taken.contains_key(mac))
                    .unwrap_or_else(|| seed.mac(nic, prefix, 0));
                taken.insert(mac, (format!("`{}`", draft.name), None));
                mac
            }
        })
        .collect()
}
