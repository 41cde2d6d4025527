//! The patches of a cluster, each read and looked at once.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Code, Desired, Finding, Findings, Minor, Severity,
    desired::{self as d, Machine, PatchContent, PatchScope},
};

use super::{Blamed, Materials};
use crate::{
    lint::{Target, lint},
    patch::Patch,
};

/// All patches of a cluster.
#[derive(Debug, Default)]
pub struct Patches {
    read: BTreeMap<Key, Patch>,
    contract: Option<Minor>,
    notes: Findings,
}

/// What tells patches apart: a file by its path, others by what they say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File(String),
    Inline(String),
}

impl Key {
    fn new(content: &PatchContent) -> Self {
        match content {
            PatchContent::File(path) => Self::File(path.clone()),
            PatchContent::Inline(value) => Self::Inline(value.to_string()),
        }
    }
}

impl Patches {
    /// Reads every patch once, and says what is wrong with those that cannot be read.
    pub fn read(desired: &Desired, materials: &Materials, findings: &mut Findings) -> Self {
        let mut all = Self { contract: Some(desired.cluster.contract), ..Self::default() };
        let mut seen = BTreeSet::new();
        let mut judged = BTreeSet::new();
        for machine in &desired.machines {
            for (i, patch) in machine.patches.iter().enumerate() {
                let key = Key::new(&patch.content);
                if seen.insert(key.clone()) {
                    let read = read(patch, &name(machine, i, patch), materials, findings);
                    all.read.extend(read.map(|read| (key.clone(), read)));
                }
                let talos = machine.talos.minor();
                if let Some(read) = all.read.get(&key)
                    && judged.insert((key, talos))
                {
                    let target = Target { talos, contract: desired.cluster.contract };
                    let odd = lint(read, target);
                    // Whether an error is one shows when the patch is applied: it may mend itself.
                    let odd = odd.iter().filter(|finding| finding.severity == Severity::Warning).cloned();
                    all.notes.extend(odd.collect());
                }
            }
        }
        all.notes = std::mem::take(&mut all.notes).sorted();
        all
    }

    /// Returns what is odd about the patches.
    pub const fn notes(&self) -> &Findings {
        &self.notes
    }

    /// Returns the patches of a machine, in the order in which they apply.
    pub fn of_machine(&self, machine: &Machine) -> Result<Vec<(PatchScope, &Patch)>, Findings> {
        let mut findings = Findings::new();
        let mut patches = Vec::with_capacity(machine.patches.len());
        for (i, patch) in machine.patches.iter().enumerate() {
            match self.read.get(&Key::new(&patch.content)) {
                Some(read) => patches.push((patch.scope, read)),
                None => findings.push(
                    Finding::error(
                        Code::CONFIG_MATERIAL,
                        None,
                        format!("{} was not read", name(machine, i, patch)),
                    )
                    .because(format!("`{}` was not among the cluster's machines", machine.name))
                    .remedy("resolve the inventory again"),
                ),
            }
        }
        // Resolved inventories list them in this order already; the order is ours to keep.
        patches.sort_by_key(|(scope, _)| *scope);
        if findings.has_errors() { Err(findings) } else { Ok(patches) }
    }

    /// Puts what looking at a patch alone says in place of what Talos would say of the whole config: it
    /// knows the remedy.
    pub fn explained(&self, blamed: Vec<Blamed>, patches: &[&Patch], talos: Minor) -> Findings {
        let target = Target { talos, contract: self.contract.unwrap_or(talos) };
        let guilty: BTreeSet<usize> = blamed.iter().filter_map(|(_, patch)| *patch).collect();
        let known: Vec<Finding> = guilty
            .into_iter()
            .flat_map(|i| lint(patches[i], target).iter().cloned().collect::<Vec<_>>())
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        let said = |finding: &Finding| known.iter().any(|known| finding.message.contains(&known.message));
        let rest: Vec<Finding> =
            blamed.into_iter().map(|(finding, _)| finding).filter(|finding| !said(finding)).collect();
        known.into_iter().chain(rest).collect::<Findings>().sorted()
    }
}

fn read(patch: &d::Patch, name: &str, materials: &Materials, findings: &mut Findings) -> Option<Patch> {
    let read = match &patch.content {
        PatchContent::File(file) => {
            let file = materials.file(file, findings)?;
            Patch::parse(name, file.source, &file.bytes)
        }
        PatchContent::Inline(value) => Patch::from_json(name, patch.at, value),
    };
    read.map_err(|found| findings.extend(found)).ok()
}

/// Names a patch: by its file, or by where in the inventory it stands.
fn name(machine: &Machine, i: usize, patch: &d::Patch) -> String {
    if let PatchContent::File(path) = &patch.content {
        return path.clone();
    }
    let number = machine.patches[..i].iter().filter(|other| other.scope == patch.scope).count() + 1;
    match patch.scope {
        PatchScope::Cluster => format!("cluster, number {number}"),
        PatchScope::Role => format!("role {}, number {number}", machine.role),
        PatchScope::Group => format!("group {}, number {number}", machine.group),
        PatchScope::Machine => format!("machine {}, number {number}", machine.name),
    }
}
