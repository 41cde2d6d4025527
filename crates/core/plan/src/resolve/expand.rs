//! From entries of `machines` to single machines, each with its settings laid over one another:
//! `defaults`, then the role, then the group, then the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use ichor_model::{At, Code, Finding, MachineName, Span, desired::Role};
use ichor_spec::{
    inventory::{Machine, Nic},
    read::{Map, Read},
    values::NamePattern,
};

use super::Context;

/// Above this a plan would be a mistake: Kubernetes itself stops at 5,000 nodes.
const MOST_MACHINES: u32 = 20_000;

/// A machine with its settings, before anything is allocated.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Its name.
    pub name: MachineName,
    /// The entry it comes from.
    pub group: MachineName,
    /// What it does.
    pub role: Role,
    /// Its position in its group, from 0.
    pub ordinal: u32,
    /// The entry to blame: the machine's own if it has one, else the group's.
    pub at: Span,
    /// What is said of this machine alone.
    pub own: Rc<Machine>,
    /// What is said of its group; the same as `own` for a single machine.
    pub of_group: Rc<Machine>,
    /// All settings together; members of a group share them unless they are refined.
    pub all: Rc<Machine>,
}

/// Whose setting a value is, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// This machine's.
    Machine,
    /// Its group's.
    Group,
    /// Its role's.
    Role,
    /// The cluster's, or built in.
    Cluster,
}

impl Draft {
    /// Finds whose setting a value is, and the value.
    pub fn nearest<'a, T>(
        &'a self,
        cx: &'a Context<'_>,
        pick: impl Fn(&'a Machine) -> Option<&'a At<T>>,
    ) -> Option<(Level, &'a At<T>)> {
        let chain = [
            (Level::Machine, Some(&*self.own)),
            (Level::Group, Some(&*self.of_group)),
            (Level::Role, cx.role_settings(self.role)),
            (Level::Cluster, Some(&cx.defaults)),
        ];
        chain.into_iter().find_map(|(level, machine)| Some((level, pick(machine?)?)))
    }

    /// Returns the settings of all levels, the weakest first, for lists that add up.
    pub fn levels<'a>(&'a self, cx: &'a Context<'_>) -> impl Iterator<Item = &'a Machine> {
        let own = (!Rc::ptr_eq(&self.own, &self.of_group)).then_some(&*self.own);
        [Some(&cx.defaults), cx.role_settings(self.role), Some(&*self.of_group), own].into_iter().flatten()
    }
}

/// Makes the machines of an inventory, control planes first, each role by name.
pub fn expand(cx: &mut Context<'_>, entries: &Map<MachineName, Machine>) -> Vec<Draft> {
    check_shared_settings(cx);
    let settled = settle_likes(cx, &entries.0);
    let (groups, singles): (Vec<_>, Vec<_>) =
        settled.into_iter().partition(|(_, entry)| entry.count.is_some());
    check_total(cx, &groups);
    let mut refinements: BTreeMap<MachineName, (At<MachineName>, Machine)> =
        singles.into_iter().map(|(name, entry)| (name.value.clone(), (name, entry.value))).collect();
    let mut drafts = Vec::new();
    for (name, group) in &groups {
        members(cx, name, group, &mut refinements, &mut drafts);
    }
    for (_, (name, machine)) in refinements {
        drafts.extend(single(cx, &name, machine));
    }
    report_same_names(cx, &drafts);
    drafts.sort_by(|a, b| (a.role, &a.name).cmp(&(b.role, &b.name)));
    drafts.dedup_by(|a, b| a.name == b.name);
    drafts
}

fn check_total(cx: &mut Context<'_>, groups: &[(At<MachineName>, At<Machine>)]) {
    let mut total = 0;
    for (name, group) in groups {
        total += group.count.map_or(0, |count| count.value.0);
        if total > MOST_MACHINES {
            cx.findings.push(
                Finding::error(
                    Code::COUNT,
                    name.span,
                    format!("the groups make more than {MOST_MACHINES} machines"),
                )
                .remedy("check the counts"),
            );
            return;
        }
    }
}

/// Keys that say who a machine is have no meaning for all machines, or all of a role.
fn check_shared_settings(cx: &mut Context<'_>) {
    let shared = std::iter::once(cx.defaults.clone())
        .chain(Role::ALL.iter().filter_map(|role| cx.role_settings(*role).cloned()).collect::<Vec<_>>());
    for machine in shared {
        let misplaced = [
            ("role", machine.role.map(|at| at.span)),
            ("count", machine.count.map(|at| at.span)),
            ("first", machine.first.map(|at| at.span)),
            ("name", machine.name.map(|at| at.span)),
            ("like", machine.like.map(|at| at.span)),
            ("mac", machine.mac.map(|at| at.span)),
            ("host", machine.host.map(|at| at.span)),
        ];
        for (key, span) in misplaced.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            cx.findings.push(
                Finding::error(
                    Code::GROUP_IDENTITY,
                    span,
                    format!("`{key}` cannot be shared by many machines"),
                )
                .remedy("move it to an entry of `machines`"),
            );
        }
    }
}

/// Lays every entry over the one it is `like`.
fn settle_likes(
    cx: &mut Context<'_>,
    entries: &[(At<MachineName>, At<Machine>)],
) -> Vec<(At<MachineName>, At<Machine>)> {
    let by_name: BTreeMap<&MachineName, &Machine> =
        entries.iter().map(|(name, machine)| (&name.value, &machine.value)).collect();
    entries
        .iter()
        .map(|(name, machine)| {
            let settled =
                follow_like(cx, &by_name, machine.value.clone(), &mut BTreeSet::from([name.value.clone()]));
            (name.clone(), At::new(settled, machine.span))
        })
        .collect()
}

fn follow_like(
    cx: &mut Context<'_>,
    by_name: &BTreeMap<&MachineName, &Machine>,
    machine: Machine,
    seen: &mut BTreeSet<MachineName>,
) -> Machine {
    let Some(like) = machine.like.clone() else {
        return machine;
    };
    if !seen.insert(like.value.clone()) {
        cx.findings.push(
            Finding::error(Code::LIKE, like.span, format!("`like: {}` goes round in a circle", like.value))
                .remedy("let one of the entries stand on its own"),
        );
        return machine;
    }
    let Some(model) = by_name.get(&like.value) else {
        let names: Vec<&str> = by_name.keys().map(|name| name.as_str()).collect();
        cx.findings.push(
            Finding::error(Code::LIKE, like.span, format!("there is no entry `{}` to be like", like.value))
                .remedy(format!("the entries of `machines` are {}", super::words(&names))),
        );
        return machine;
    };
    let below = follow_like(cx, by_name, (*model).clone(), seen);
    machine.over(without_identity(below))
}

/// What `like` copies: settings, not who a machine is.
fn without_identity(machine: Machine) -> Machine {
    let nics = machine.nics.map(|nics| {
        nics.map(|list| {
            list.into_iter().map(|nic| nic.map(|nic| Nic { mac: None, address: None, ..nic })).collect()
        })
    });
    Machine {
        count: None,
        first: None,
        name: None,
        like: None,
        vmid: None,
        address: None,
        mac: None,
        host: None,
        nics,
        ..machine
    }
}

/// Makes the members of a group, each refined by the entry that carries its name.
fn members(
    cx: &mut Context<'_>,
    name: &At<MachineName>,
    group: &At<Machine>,
    refinements: &mut BTreeMap<MachineName, (At<MachineName>, Machine)>,
    drafts: &mut Vec<Draft>,
) {
    let Some(role) = role_of(cx, name, group) else {
        return;
    };
    if let Some(mac) = &group.mac {
        cx.findings.push(
            Finding::error(
                Code::GROUP_IDENTITY,
                mac.span,
                "a MAC address belongs to one machine, not to a group",
            )
            .remedy("leave it out, or give it to a member by an entry with the member's name"),
        );
    }
    let pattern =
        group.name.clone().map_or_else(|| NamePattern::of_group(name.as_str()), |pattern| pattern.value);
    let first = group.first.map_or(1, |first| first.value.0);
    let count = group.count.map_or(0, |count| count.value.0).min(MOST_MACHINES);
    let of_group = Rc::new(group.value.clone());
    let plain = Rc::new(Machine::default());
    let shared = Rc::new(cx.chain(role, group.value.clone()));
    for ordinal in 0..count {
        let text = pattern.name(first + ordinal);
        let Ok(member) = text.parse::<MachineName>() else {
            let at = group.name.as_ref().map_or(name.span, |pattern| pattern.span);
            cx.findings.push(
                Finding::error(
                    Code::BAD_NAME,
                    at,
                    format!("the group makes the name `{text}`, which is not allowed"),
                )
                .remedy("use a to z, 0 to 9 and `-`, at most 63 characters with the number"),
            );
            return;
        };
        let (at, own, all) = match refinements.remove(&member) {
            None => (name.span, plain.clone(), shared.clone()),
            Some((own_name, own)) => {
                let own = refinement(cx, &own_name, own, role);
                let all = cx.chain(role, own.clone().over(group.value.clone()));
                (own_name.span, Rc::new(own), Rc::new(all))
            }
        };
        let of_group = of_group.clone();
        drafts.push(Draft { name: member, group: name.value.clone(), role, ordinal, at, own, of_group, all });
    }
}

/// Checks what refines a member of a group: it cannot change what the group decides.
fn refinement(cx: &mut Context<'_>, name: &At<MachineName>, own: Machine, role: Role) -> Machine {
    if let Some(other) = own.role.filter(|other| other.value != role) {
        cx.findings.push(
            Finding::error(
                Code::CONFLICTING_KEYS,
                other.span,
                format!("`{}` is a member of a group of role `{role}`", name.value),
            )
            .remedy("remove `role` here, or give the entry another name"),
        );
    }
    own
}

fn single(cx: &mut Context<'_>, name: &At<MachineName>, machine: Machine) -> Option<Draft> {
    let role = role_of(cx, name, &machine)?;
    for (key, span) in
        [("first", machine.first.map(|at| at.span)), ("name", machine.name.as_ref().map(|at| at.span))]
    {
        if let Some(span) = span {
            cx.findings.push(
                Finding::error(
                    Code::CONFLICTING_KEYS,
                    span,
                    format!("`{key}` is for groups, and this is one machine"),
                )
                .remedy(format!("add `count`, or remove `{key}`: the machine is called `{}`", name.value)),
            );
        }
    }
    let all = Rc::new(cx.chain(role, machine.clone()));
    let own = Rc::new(machine);
    let (group, of_group) = (name.value.clone(), own.clone());
    Some(Draft { name: name.value.clone(), group, role, ordinal: 0, at: name.span, own, of_group, all })
}

fn role_of(cx: &mut Context<'_>, name: &At<MachineName>, machine: &Machine) -> Option<Role> {
    if machine.role.is_none() {
        cx.findings.push(
            Finding::error(Code::NO_ROLE, name.span, format!("`{}` has no role", name.value))
                .remedy("add `role: control-plane` or `role: worker`"),
        );
    }
    machine.role.map(|role| role.value)
}

fn report_same_names(cx: &mut Context<'_>, drafts: &[Draft]) {
    let mut seen: BTreeMap<&MachineName, Span> = BTreeMap::new();
    for draft in drafts {
        if let Some(first) = seen.insert(&draft.name, draft.at) {
            cx.findings.push(
                Finding::error(
                    Code::NAME_TWICE,
                    draft.at,
                    format!("two machines are called `{}`", draft.name),
                )
                .see(first, "the other one comes from here")
                .remedy("rename the group, or give it a `name` pattern of its own"),
            );
        }
    }
}
