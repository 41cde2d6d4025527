//! Patches: those of the cluster, of the role, of the group and of the machine, in that order.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    At, Code, Finding, Span,
    desired::{self as d, Role},
};
use ichor_spec::inventory::{List, Patch, PatchFor};

use super::{Context, expand::Draft};

/// Whom a patch is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Cluster,
    Role(Role),
    Group(String),
    Machine(String),
}

impl Target {
    const fn scope(&self) -> d::PatchScope {
        match self {
            Self::Cluster => d::PatchScope::Cluster,
            Self::Role(_) => d::PatchScope::Role,
            Self::Group(_) => d::PatchScope::Group,
            Self::Machine(_) => d::PatchScope::Machine,
        }
    }
}

/// Gives every machine its patches.
pub fn assign(
    cx: &mut Context<'_>,
    written: Option<&At<List<Patch>>>,
    drafts: &[Draft],
    machines: &mut [d::Machine],
) {
    let mut patches = Vec::new();
    for patch in written.iter().flat_map(|list| &list.value) {
        let full = patch.full(patch.span);
        let target = target(cx, &full, drafts);
        patches.extend(content(cx, &full, patch.span).zip(target));
    }
    for (target, list) in nested(cx, drafts) {
        for patch in &list {
            let full = patch.full(patch.span);
            report_nested_target(cx, &full);
            patches.extend(content(cx, &full, patch.span).map(|content| (content, target.clone())));
        }
    }
    let mut by_target: BTreeMap<Target, Vec<d::Patch>> = BTreeMap::new();
    for ((content, at), target) in patches {
        let patch = d::Patch { scope: target.scope(), at, content };
        by_target.entry(target).or_default().push(patch);
    }
    for machine in machines {
        let own = targets_of(machine).into_iter().filter_map(|target| by_target.get(&target)).flatten();
        machine.patches = own.cloned().collect();
    }
}

/// Whom a patch may be for to concern a machine, in the order in which patches apply.
fn targets_of(machine: &d::Machine) -> [Target; 4] {
    [
        Target::Cluster,
        Target::Role(machine.role),
        Target::Group(machine.group.clone()),
        Target::Machine(machine.name.to_string()),
    ]
}

/// Patches written inside `defaults`, a role, a group or a machine.
fn nested(cx: &Context<'_>, drafts: &[Draft]) -> Vec<(Target, List<Patch>)> {
    let mut found: Vec<(Target, List<Patch>)> = Vec::new();
    let mut add = |target: Target, list: Option<&At<List<Patch>>>| {
        found.extend(list.map(|list| (target, list.value.clone())));
    };
    add(Target::Cluster, cx.defaults.patches.as_ref());
    for role in Role::ALL {
        add(Target::Role(role), cx.role_settings(role).and_then(|machine| machine.patches.as_ref()));
    }
    let mut groups = BTreeSet::new();
    for draft in drafts {
        if groups.insert(draft.group.clone()) {
            add(Target::Group(draft.group.to_string()), draft.of_group.patches.as_ref());
        }
        if !std::rc::Rc::ptr_eq(&draft.own, &draft.of_group) {
            add(Target::Machine(draft.name.to_string()), draft.own.patches.as_ref());
        }
    }
    found
}

/// Returns what a patch says, and its place if it says it here.
fn content(cx: &mut Context<'_>, patch: &PatchFor, at: Span) -> Option<(d::PatchContent, Option<Span>)> {
    match (&patch.file, &patch.inline) {
        (Some(file), None) => Some((d::PatchContent::File(file.value.0.clone()), None)),
        (None, Some(inline)) => Some((d::PatchContent::Inline(inline.value.0.clone()), Some(inline.span))),
        (Some(_), Some(inline)) => {
            cx.findings.push(
                Finding::error(
                    Code::CONFLICTING_KEYS,
                    inline.span,
                    "a patch is a file or written here, not both",
                )
                .remedy("make two patches of it"),
            );
            None
        }
        (None, None) if patch.unread.has("file") || patch.unread.has("inline") => None,
        (None, None) => {
            cx.missing(Some(at), "file` or `inline", "write `{file: patches/all.yaml}` or `{inline: {...}}`");
            None
        }
    }
}

fn target(cx: &mut Context<'_>, patch: &PatchFor, drafts: &[Draft]) -> Option<Target> {
    let spans = [
        patch.role.map(|at| at.span),
        patch.group.as_ref().map(|at| at.span),
        patch.machine.as_ref().map(|at| at.span),
    ];
    let mut given = spans.into_iter().flatten();
    if let (Some(_), Some(second)) = (given.next(), given.next()) {
        cx.findings.push(
            Finding::error(Code::CONFLICTING_KEYS, second, "a patch is for a role, a group or a machine")
                .remedy("keep one of them: a machine has one group, and a group one role"),
        );
        return None;
    }
    if let Some(role) = patch.role {
        return Some(Target::Role(role.value));
    }
    if let Some(group) = &patch.group {
        let groups = drafts.iter().map(|draft| draft.group.as_str());
        return known_or_report(cx, groups.collect(), group, "group").map(Target::Group);
    }
    if let Some(machine) = &patch.machine {
        let machines = drafts.iter().map(|draft| draft.name.as_str());
        return known_or_report(cx, machines.collect(), machine, "machine").map(Target::Machine);
    }
    Some(Target::Cluster)
}

fn known_or_report(
    cx: &mut Context<'_>,
    mut known: Vec<&str>,
    name: &At<String>,
    kind: &str,
) -> Option<String> {
    if known.contains(&name.value.as_str()) {
        return Some(name.value.clone());
    }
    if cx.machines_known {
        known.dedup();
        let shown = ichor_spec::yaml::show(name);
        cx.findings.push(
            Finding::error(Code::PATCH_TARGET, name.span, format!("there is no {kind} `{shown}`"))
                .remedy(format!("the {kind}s are {}", super::words(&known))),
        );
    }
    None
}

/// A patch inside a machine or group is for it already.
fn report_nested_target(cx: &mut Context<'_>, patch: &PatchFor) {
    let spans = [
        patch.role.map(|at| at.span),
        patch.group.as_ref().map(|at| at.span),
        patch.machine.as_ref().map(|at| at.span),
    ];
    if let Some(span) = spans.into_iter().flatten().next() {
        cx.findings.push(
            Finding::error(Code::CONFLICTING_KEYS, span, "this patch is for the entry it stands in")
                .remedy("remove the key, or move the patch to the top-level `patches`"),
        );
    }
}
