//! VMIDs: given, counted up, or the first free of a range.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Code, Finding, MachineName, Span, VmId,
    desired::{Role, Template},
};
use ichor_spec::values::VmIds;

use super::{
    Context,
    expand::{Draft, Level},
};

/// The Proxmox CSI plugin keeps its volumes under this number.
const CSI_VMID: u32 = 9999;
const KEPT_BY_CSI: &str = "the Proxmox CSI plugin keeps its volumes under that number";

/// The VMID of each machine that could get one.
pub type Allocation = BTreeMap<MachineName, VmId>;

/// Where VMIDs come from when nobody says.
fn built_in(role: Role) -> VmIds {
    let (first, last) = match role {
        Role::ControlPlane => (2000, 2999),
        Role::Worker => (3000, 3999),
    };
    let id = |number| VmId::new(number).expect("built-in ranges are within Proxmox's bounds");
    VmIds::Range(id(first), id(last))
}

/// A wish for a VMID.
struct Wish<'a> {
    draft: &'a Draft,
    ids: VmIds,
    at: Span,
    level: Level,
    built_in: bool,
}

impl Wish<'_> {
    /// Whether it leaves no choice.
    const fn is_fixed(&self) -> bool {
        matches!((self.ids, self.level), (VmIds::From(_), Level::Machine | Level::Group))
    }

    fn owner(&self) -> String {
        match self.level {
            Level::Machine => format!("`{}`", self.draft.name),
            Level::Group => format!("group `{}`", self.draft.group),
            Level::Role if self.built_in => format!("role `{}` (built in)", self.draft.role),
            Level::Role => format!("role `{}`", self.draft.role),
            Level::Cluster => "`defaults`".to_owned(),
        }
    }
}

/// Gives every machine its VMID: fixed ones first, so that a range never takes one of them.
pub fn allocate(cx: &mut Context<'_>, drafts: &[Draft], csi: bool) -> Allocation {
    let readable =
        super::expand::as_written(drafts).into_iter().filter(|draft| !draft.all.unread.has("vmid"));
    let wishes: Vec<Wish<'_>> = readable.map(|draft| wish(cx, draft)).collect();
    check_ranges(cx, &wishes, csi);
    let mut allocation = Allocation::new();
    let mut taken: BTreeSet<VmId> = cx.seen.vmids().collect();
    if csi {
        taken.extend(VmId::new(CSI_VMID));
    }
    taken.extend(cx.image.templates.iter().flat_map(|templates| templates.numbers().map(|(_, id)| id.value)));
    let (fixed, ranged): (Vec<_>, Vec<_>) = wishes.into_iter().partition(Wish::is_fixed);
    for wish in &fixed {
        if let Some(id) = fixed_id(cx, wish) {
            let id = kept_or_new(cx, wish, id, csi);
            taken.insert(id);
            allocation.insert(wish.draft.name.clone(), id);
        }
    }
    for wish in &ranged {
        if let Some(seen) = cx.seen.machine(&wish.draft.name) {
            taken.insert(seen.vmid);
            allocation.insert(wish.draft.name.clone(), seen.vmid);
        }
    }
    let mut cursors = BTreeMap::new();
    for wish in &ranged {
        if allocation.contains_key(&wish.draft.name) {
            continue;
        }
        if let Some(id) = first_free(cx, wish, &mut cursors, &taken) {
            taken.insert(id);
            allocation.insert(wish.draft.name.clone(), id);
        }
    }
    allocation
}

fn wish<'a>(cx: &Context<'_>, draft: &'a Draft) -> Wish<'a> {
    match draft.nearest(cx, |machine| machine.vmid.as_ref()) {
        Some((level, ids)) => Wish { draft, ids: ids.value, at: ids.span, level, built_in: false },
        None => {
            let ids = built_in(draft.role);
            Wish { draft, ids, at: draft.at, level: Level::Role, built_in: true }
        }
    }
}

/// Returns the number of a machine whose wish leaves no choice.
fn fixed_id(cx: &mut Context<'_>, wish: &Wish<'_>) -> Option<VmId> {
    let VmIds::From(first) = wish.ids else { return None };
    let offset = if wish.level == Level::Group { wish.draft.ordinal } else { 0 };
    let id = VmId::new(first.number().saturating_add(offset));
    if id.is_none() {
        let message = format!("counting up from {first}, `{}` is beyond what Proxmox takes", wish.draft.name);
        cx.findings.push(
            Finding::error(Code::BAD_VMID, wish.at, message).remedy("start lower: VMIDs end at 999999999"),
        );
    }
    id
}

fn report_bad_choice(cx: &mut Context<'_>, wish: &Wish<'_>, id: VmId, csi: bool) {
    let name = &wish.draft.name;
    if csi && id.number() == CSI_VMID {
        cx.findings.push(
            Finding::error(Code::VMID_RESERVED, wish.at, format!("`{name}` would have VMID 9999"))
                .because(KEPT_BY_CSI)
                .remedy("choose another number"),
        );
    }
    if let Some(holder) = cx.seen.holder_of_vmid(id) {
        let message = format!("VMID {id} for `{name}` belongs to {holder}");
        cx.findings.push(
            Finding::error(Code::VMID_FOREIGN, wish.at, message)
                .remedy("choose another number; what has this one is left alone"),
        );
    }
}

/// A VM cannot change its number, so a machine that has one keeps it.
fn kept_or_new(cx: &mut Context<'_>, wish: &Wish<'_>, id: VmId, csi: bool) -> VmId {
    let Some(seen) = cx.seen.machine(&wish.draft.name) else {
        report_bad_choice(cx, wish, id, csi);
        return id;
    };
    if seen.vmid != id {
        let message = format!("`{}` has VMID {}, and keeps it instead of {id}", seen.name, seen.vmid);
        cx.findings.push(
            Finding::warning(Code::VMID_KEPT, wish.at, message)
                .because("a VM of another number is another VM")
                .remedy("write the number it has; replacing the machine gives it the new one"),
        );
    }
    seen.vmid
}

/// Takes the next free number of a range; `cursors` remembers how far each range is used.
fn first_free(
    cx: &mut Context<'_>,
    wish: &Wish<'_>,
    cursors: &mut BTreeMap<(u32, u32), u32>,
    taken: &BTreeSet<VmId>,
) -> Option<VmId> {
    let (first, last) = match wish.ids {
        VmIds::From(first) => (first.number(), VmId::MAX),
        VmIds::Range(first, last) => (first.number(), last.number()),
    };
    let cursor = cursors.entry((first, last)).or_insert(first);
    while *cursor <= last {
        let id = VmId::new(*cursor)?;
        *cursor += 1;
        if !taken.contains(&id) {
            return Some(id);
        }
    }
    cx.findings.push(
        Finding::error(
            Code::VMID_RANGE_FULL,
            wish.at,
            format!("the VMID range {first}-{last} has no number left for `{}`", wish.draft.name),
        )
        .remedy("widen the range, or give this group one of its own"),
    );
    None
}

/// Ranges that are in use must not run into each other.
fn check_ranges(cx: &mut Context<'_>, wishes: &[Wish<'_>], csi: bool) {
    let mut ranges: BTreeMap<(VmId, VmId), (Span, String)> = BTreeMap::new();
    for wish in wishes {
        if let VmIds::Range(first, last) = wish.ids {
            ranges.entry((first, last)).or_insert_with(|| (wish.at, wish.owner()));
        }
    }
    // The one that reaches furthest so far: of many ranges each is reported once.
    let mut furthest: Option<(VmId, VmId, Span, String)> = None;
    for ((first, last), (at, owner)) in ranges {
        if csi && (first.number()..=last.number()).contains(&CSI_VMID) {
            let message = format!("the range {first}-{last} of {owner} holds 9999");
            cx.findings.push(
                Finding::error(Code::VMID_RESERVED, at, message)
                    .because(KEPT_BY_CSI)
                    .remedy("choose a range without 9999"),
            );
        }
        if let Some((other_first, other_last, other_at, other)) =
            furthest.as_ref().filter(|(_, other_last, ..)| first <= *other_last)
        {
            let message =
                format!("the range {first}-{last} of {owner} overlaps {other_first}-{other_last} of {other}");
            cx.findings.push(
                Finding::error(Code::VMID_RANGES_OVERLAP, at, message)
                    .see(*other_at, "the other range")
                    .remedy("keep the ranges apart"),
            );
        }
        if furthest.as_ref().is_none_or(|(_, other_last, ..)| last > *other_last) {
            furthest = Some((first, last, at, owner));
        }
    }
}

/// Reports numbers that are given twice.
pub fn check_unique(cx: &mut Context<'_>, drafts: &[Draft], allocation: &Allocation, templates: &[Template]) {
    let mut seen: BTreeMap<VmId, (String, Span)> = check_templates(cx, templates);
    for draft in drafts {
        let Some(id) = allocation.get(&draft.name) else { continue };
        let at = draft.nearest(cx, |machine| machine.vmid.as_ref()).map_or(draft.at, |(_, ids)| ids.span);
        if let Some((other, other_at)) = seen.insert(*id, (format!("`{}`", draft.name), at)) {
            cx.findings.push(
                Finding::error(
                    Code::VMID_TWICE,
                    at,
                    format!("`{}` and {other} both have VMID {id}", draft.name),
                )
                .see(other_at, "the other one comes from here")
                .remedy("give each VM a number of its own"),
            );
        }
    }
}

/// Returns the numbers of templates, and reports those that cannot be used. Roles and groups whose
/// machines boot the same image share one.
fn check_templates(cx: &mut Context<'_>, templates: &[Template]) -> BTreeMap<VmId, (String, Span)> {
    let written = cx.image.templates.clone().map(|at| at.value).unwrap_or_default();
    let mut seen: BTreeMap<VmId, (String, Span)> = BTreeMap::new();
    for template in templates {
        let Some(at) = written.place_of(&template.serves) else { continue };
        let name = format!("the template of `{}`", template.serves.join("`, `"));
        if let Some((other, _)) = seen.get(&template.vmid) {
            let message = format!("{other} and {name} both have VMID {}", template.vmid);
            cx.findings.push(
                Finding::error(Code::VMID_TWICE, at, message)
                    .because("their machines boot different images")
                    .remedy("give each VM a number of its own"),
            );
        }
        let holder =
            cx.seen.holder_of_vmid(template.vmid).filter(|_| !template.existing).map(ToOwned::to_owned);
        if let Some(holder) = holder {
            let message = format!("VMID {} for {name} belongs to {holder}", template.vmid);
            cx.findings.push(
                Finding::error(Code::VMID_FOREIGN, at, message)
                    .remedy("choose another number, or write `existing: true` if that VM is the template"),
            );
        }
        seen.entry(template.vmid).or_insert((name, at));
    }
    seen
}

/// Reports templates that would take the number of the CSI plugin.
pub fn check_reserved(cx: &mut Context<'_>, templates: &[Template]) {
    let written = cx.image.templates.clone().map(|at| at.value).unwrap_or_default();
    for template in templates.iter().filter(|template| template.vmid.number() == CSI_VMID) {
        let message = format!("the template of `{}` would have VMID 9999", template.serves.join("`, `"));
        cx.findings.push(
            Finding::error(Code::VMID_RESERVED, written.place_of(&template.serves), message)
                .because(KEPT_BY_CSI)
                .remedy("choose another number"),
        );
    }
}
