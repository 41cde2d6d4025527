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
    yaml::show,
};

use super::Context;

/// Above this a plan would be a mistake: Kubernetes itself stops at 5,000 nodes.
const MOST_MACHINES: u32 = 20_000;

/// Entries of `machines`.
type Entries = Vec<(At<MachineName>, At<Machine>)>;

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
    /// The position of its entry in the file.
    pub entry: usize,
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

/// Returns machines in the order in which they are written, control planes first.
///
/// What is shared out goes in this order: an entry added at the end of the file then takes from what
/// is left, wherever its name sorts.
pub fn as_written(drafts: &[Draft]) -> Vec<&Draft> {
    let mut ordered: Vec<&Draft> = drafts.iter().collect();
    ordered.sort_by_key(|draft| (draft.role, draft.entry, draft.ordinal));
    ordered
}

/// Makes the machines of an inventory, control planes first, each role by name.
pub fn expand(cx: &mut Context<'_>, entries: &Map<MachineName, Machine>) -> Vec<Draft> {
    check_shared_settings(cx);
    let shaping = ["role", "count", "first", "name", "like"];
    cx.machines_known &= !entries.0.iter().any(|(_, entry)| shaping.iter().any(|key| entry.unread.has(key)));
    let settled = settle_likes(cx, &entries.0);
    let order: BTreeMap<MachineName, usize> =
        settled.iter().enumerate().map(|(entry, (name, _))| (name.value.clone(), entry)).collect();
    let (groups, mut singles): (Entries, Entries) =
        settled.into_iter().partition(|(_, entry)| entry.count.is_some());
    if too_many(cx, &groups, singles.len()) {
        cx.machines_known = false;
        return Vec::new();
    }
    let (members_with_count, groups) = split_members(cx, groups);
    singles.extend(members_with_count);
    let mut refinements: BTreeMap<MachineName, (At<MachineName>, Machine)> =
        singles.into_iter().map(|(name, entry)| (name.value.clone(), (name, entry.value))).collect();
    let mut drafts = Vec::new();
    for (name, group) in &groups {
        members(cx, name, group, &mut refinements, &mut drafts);
    }
    for (_, (name, machine)) in refinements {
        drafts.extend(single(cx, &name, machine));
    }
    if cx.machines_known {
        report_same_names(cx, &drafts);
    }
    for draft in &mut drafts {
        draft.entry = order.get(&draft.group).copied().unwrap_or_default();
    }
    drafts.sort_by(|a, b| (a.role, &a.name).cmp(&(b.role, &b.name)));
    drafts.dedup_by(|a, b| a.name == b.name);
    drafts
}

/// Whether groups and single machines make more than can be meant.
fn too_many(cx: &mut Context<'_>, groups: &[(At<MachineName>, At<Machine>)], singles: usize) -> bool {
    let mut total = u32::try_from(singles).unwrap_or(u32::MAX);
    if total > MOST_MACHINES {
        let message = format!("there are {total} machines");
        let finding = Finding::error(Code::COUNT, cx.places.machines, message);
        cx.findings.push(
            finding
                .because(format!("at most {MOST_MACHINES} are taken to be meant"))
                .remedy("split the machines over several clusters"),
        );
        return true;
    }
    for count in groups.iter().filter_map(|(_, group)| group.count) {
        total = total.saturating_add(count.value.0);
        if total > MOST_MACHINES {
            cx.findings.push(
                Finding::error(
                    Code::COUNT,
                    count.span,
                    format!("up to here the groups make {total} machines"),
                )
                .because(format!("at most {MOST_MACHINES} are taken to be meant"))
                .remedy("lower the counts, or split the machines over several clusters"),
            );
            return true;
        }
    }
    false
}

/// Parts entries that refine a member of a group from the groups: a member is one machine, so a
/// `count` cannot be meant.
fn split_members(cx: &mut Context<'_>, groups: Entries) -> (Entries, Entries) {
    let names: BTreeSet<String> = groups.iter().map(|(name, _)| name.to_string()).collect();
    let mut owners: BTreeMap<String, MachineName> = BTreeMap::new();
    for (name, group) in &groups {
        let members = member_names(name, group).filter(|member| names.contains(member));
        owners.extend(members.map(|member| (member, name.value.clone())));
    }
    let (mut members, groups): (Entries, Entries) =
        groups.into_iter().partition(|(name, _)| owners.contains_key(name.as_str()));
    for (name, member) in &mut members {
        let at = member.value.count.take().map_or(name.span, |count| count.span);
        let (name, group) = (&name.value, &owners[name.as_str()]);
        cx.findings.push(
            Finding::error(
                Code::CONFLICTING_KEYS,
                at,
                format!("`{name}` is a member of group `{group}`, and no group itself"),
            )
            .remedy("remove `count` here, or give the entry another name"),
        );
    }
    (members, groups)
}

/// Returns the names that a group makes, whether they are allowed or not.
fn member_names<'a>(name: &'a MachineName, group: &'a Machine) -> impl Iterator<Item = String> + use<> {
    let written = group.name.as_ref().map(|pattern| pattern.value.clone());
    let pattern = written.unwrap_or_else(|| NamePattern::of_group(name.as_str()));
    let first = group.first.map_or(1, |first| first.value.0);
    let count = group.count.map_or(0, |count| count.value.0);
    (first..first.saturating_add(count)).map(move |number| pattern.name(number))
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
        let cards = machine.nics.iter().flat_map(|nics| &nics.value);
        let cards = cards.map(|nic| ("mac", nic.mac.map(|at| at.span)));
        for (key, span) in misplaced.into_iter().chain(cards).filter_map(|(key, span)| Some((key, span?))) {
            cx.findings.push(
                Finding::error(
                    Code::GROUP_IDENTITY,
                    span,
                    format!("`{key}` cannot be shared by many machines"),
                )
                .remedy(format!("move `{key}` to an entry of `machines`")),
            );
        }
    }
}

/// Lays every entry over the one it is `like`.
fn settle_likes(cx: &mut Context<'_>, entries: &[(At<MachineName>, At<Machine>)]) -> Entries {
    let models: Models<'_> = entries.iter().map(|(name, machine)| (&name.value, &machine.value)).collect();
    let mut settled = BTreeMap::new();
    for (name, _) in entries {
        settle(cx, &models, &name.value, &mut settled);
    }
    let settled = entries
        .iter()
        .map(|(name, machine)| (name.clone(), At::new(settled[&name.value].clone(), machine.span)));
    settled.collect()
}

/// What entries can be like.
type Models<'a> = BTreeMap<&'a MachineName, &'a Machine>;

/// Settles an entry and all that it is like. Chains may be long, so they are not followed by
/// recursion, and what has been settled is not followed again.
fn settle<'a>(
    cx: &mut Context<'_>,
    models: &Models<'a>,
    name: &'a MachineName,
    settled: &mut BTreeMap<&'a MachineName, Machine>,
) {
    let mut chain: Vec<(&MachineName, Machine)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = Some(name);
    while let Some(name) = next.filter(|name| !settled.contains_key(name)) {
        let mut machine = models[name].clone();
        seen.insert(name);
        next = models[name].like.as_ref().and_then(|like| {
            let model = model_of(cx, models, like, &seen);
            if model.is_none() {
                // Whatever it should have been like may have had one.
                machine.unread.add("role");
            }
            model
        });
        chain.push((name, machine));
    }
    let mut below = next.map(|name| settled[name].clone());
    for (name, machine) in chain.into_iter().rev() {
        let whole = match below {
            Some(below) => machine.over(without_identity(below)),
            None => machine,
        };
        settled.insert(name, whole.clone());
        below = Some(whole);
    }
}

/// Returns the entry that another is like, or reports that there is none, or that it leads back.
fn model_of<'a>(
    cx: &mut Context<'_>,
    models: &Models<'a>,
    like: &At<MachineName>,
    seen: &BTreeSet<&'a MachineName>,
) -> Option<&'a MachineName> {
    let (message, remedy) = match models.get_key_value(&like.value) {
        Some((name, _)) if !seen.contains(name) => return Some(*name),
        Some(_) => (
            format!("`like: {}` goes round in a circle", like.value),
            "let one of the entries stand on its own".to_owned(),
        ),
        None => {
            let names: Vec<&str> = models.keys().map(|name| name.as_str()).collect();
            (
                format!("there is no entry `{}` to be like", like.value),
                format!("the entries of `machines` are {}", super::words(&names)),
            )
        }
    };
    cx.findings.push(Finding::error(Code::LIKE, like.span, message).remedy(remedy));
    None
}

/// What `like` copies: settings, not who a machine is.
fn without_identity(machine: Machine) -> Machine {
    let nics = machine.nics.map(|nics| {
        nics.map(|list| {
            list.into_iter().map(|nic| nic.map(|nic| Nic { mac: None, address: None, ..nic })).collect()
        })
    });
    let identity = ["count", "first", "name", "like", "vmid", "address", "mac", "host"];
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
        unread: machine.unread.without(&identity),
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
    check_macs(cx, group);
    let of_group = Rc::new(group.value.clone());
    let plain = Rc::new(Machine::default());
    let shared = Rc::new(cx.chain(role, group.value.clone()));
    for (ordinal, text) in (0..).zip(member_names(name, group)) {
        let Ok(member) = text.parse::<MachineName>() else {
            let at = group.name.as_ref().map_or(name.span, |pattern| pattern.span);
            cx.findings.push(
                Finding::error(
                    Code::BAD_NAME,
                    at,
                    format!("the group makes the name `{}`, which is not allowed", show(&text)),
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
        drafts.push(Draft {
            name: member,
            group: name.value.clone(),
            role,
            ordinal,
            entry: 0,
            at,
            own,
            of_group,
            all,
        });
    }
}

/// Reports MACs of a group, whichever of its network cards they are for.
fn check_macs(cx: &mut Context<'_>, group: &Machine) {
    let several = group.count.is_some_and(|count| count.value.0 > 1);
    let cards = group.nics.iter().flat_map(|nics| &nics.value).filter_map(|nic| nic.mac);
    for mac in group.mac.into_iter().chain(cards.filter(|_| several)) {
        cx.findings.push(
            Finding::error(
                Code::GROUP_IDENTITY,
                mac.span,
                "a MAC address belongs to one machine, not to a group",
            )
            .remedy("leave it out, or give it to a member by an entry with the member's name"),
        );
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
    let of_groups = [("first", own.first.map(|at| at.span)), ("name", own.name.as_ref().map(|at| at.span))];
    for (key, span) in of_groups.into_iter().filter_map(|(key, span)| Some((key, span?))) {
        let message = format!("`{key}` is for groups, and `{}` is a member of one", name.value);
        cx.findings.push(
            Finding::error(Code::CONFLICTING_KEYS, span, message).remedy(format!("remove `{key}` here")),
        );
    }
    own
}

fn single(cx: &mut Context<'_>, name: &At<MachineName>, machine: Machine) -> Option<Draft> {
    let role = role_of(cx, name, &machine)?;
    let of_groups =
        [("first", machine.first.map(|at| at.span)), ("name", machine.name.as_ref().map(|at| at.span))];
    for (key, span) in of_groups {
        if let Some(span) = span.filter(|_| !machine.unread.has("count")) {
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
    Some(Draft {
        name: name.value.clone(),
        group,
        role,
        ordinal: 0,
        entry: 0,
        at: name.span,
        own,
        of_group,
        all,
    })
}

fn role_of(cx: &mut Context<'_>, name: &At<MachineName>, machine: &Machine) -> Option<Role> {
    if machine.role.is_none() {
        cx.machines_known = false;
        if !machine.unread.has("role") {
            cx.findings.push(
                Finding::error(Code::NO_ROLE, name.span, format!("`{}` has no role", name.value))
                    .remedy("add `role: control-plane` or `role: worker`"),
            );
        }
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
