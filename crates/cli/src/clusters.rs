//! From a path to resolved clusters: find, load, choose, resolve, compare.
//!
//! A cluster that was made keeps the contract it was made with, so its record is asked before it counts
//! as resolved.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ichor_model::{ClusterName, Code, Desired, Finding, Findings, Span, World};
use ichor_ops::{Site, store::Store};
use ichor_plan::Resolution;
use ichor_spec::{Inventory, Sources, yaml};

use crate::{
    inventory_files::{self, Found, InventoryFiles},
    operating_system::OperatingSystem,
    render::text,
};

/// Most cluster names that a message lists.
const MAX_NAMES: usize = 12;

/// The clusters that were asked for, and everything that is wrong with them.
#[derive(Debug)]
pub struct Clusters {
    /// The files, for findings to point into.
    pub sources: Sources,
    /// The clusters, in the order of their files.
    pub list: Vec<Cluster>,
    /// Everything found, in the order of the files.
    pub findings: Findings,
}

/// One cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Its name, if that could be read.
    pub name: Option<ClusterName>,
    /// Its files as they are shown, weakest first.
    pub files: Vec<String>,
    /// Their paths; none on standard input.
    pub paths: Vec<PathBuf>,
    /// The directory that paths in the inventory are relative to.
    pub directory: PathBuf,
    /// What came of its inventory; nothing, when there is an error in it.
    pub resolution: Option<Resolution>,
}

impl Cluster {
    /// Returns the cluster as it is to be, unless there is an error in its inventory.
    pub fn desired(&self) -> Option<&Desired> {
        self.resolution.as_ref()?.desired.as_ref()
    }

    /// Returns the cluster as verbs see it, unless there is an error in its inventory.
    pub fn site(&self) -> Option<Site<'_>> {
        self.desired().map(|desired| Site { desired, directory: &self.directory, files: &self.paths })
    }
}

impl Clusters {
    /// Returns the clusters that are resolved.
    pub fn resolved(&self) -> impl Iterator<Item = &Desired> {
        self.list.iter().filter_map(Cluster::desired)
    }
}

/// Loads and resolves the clusters under a path, or the one that is chosen by name.
pub fn load(path: Option<&Path>, chosen: Option<&str>, world: &World) -> Clusters {
    let Found { sources, inventories, mut findings } = inventory_files::find(path);
    let mut candidates: Vec<Candidate> =
        inventories.into_iter().map(|files| Candidate::load(files, &sources)).collect();
    if let Some(name) = chosen.filter(|_| !candidates.is_empty()) {
        findings.extend(choose(&mut candidates, name));
    }
    let mut list = Vec::new();
    for candidate in candidates {
        let (cluster, found) = candidate.resolve(world);
        list.push(cluster);
        findings.extend(found);
    }
    let mut clusters = Clusters { sources, list, findings };
    let together = ichor_plan::check_together(&clusters.resolved().collect::<Vec<_>>());
    clusters.findings.extend(together);
    clusters.findings.extend(shared_secrets(&clusters.list));
    clusters.findings = hide_private_lines(&clusters.sources, &clusters.findings).sorted();
    clusters
}

/// Finds clusters that keep their secrets in one file.
fn shared_secrets(clusters: &[Cluster]) -> Findings {
    let mut owners: BTreeMap<PathBuf, &str> = BTreeMap::new();
    let mut findings = Findings::new();
    for site in clusters.iter().filter_map(Cluster::site) {
        let Ok(store) = Store::of(site) else { continue };
        if let Some(other) = owners.insert(one_name(store.bundle()), site.name()) {
            let message = format!("clusters `{other}` and `{}` share their secrets", site.name());
            let finding = Finding::error(Code::SHARED_SECRETS, None, message)
                .because(format!("both have them in `{}`", store.bundle().display()));
            findings.push(finding.remedy("give each cluster a `secrets.file` of its own, or leave it out"));
        }
    }
    findings
}

/// Returns one name for a file that may not be there, whichever way leads to its directory.
fn one_name(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

/// Keeps lines with secrets out of sight of all findings. The other places of a private finding are
/// as private as its own.
fn hide_private_lines(sources: &Sources, findings: &Findings) -> Findings {
    let private = findings.iter().filter(|finding| finding.private);
    let other_places = private.flat_map(|finding| {
        finding.related.iter().map(|(at, what)| Finding::error(finding.code, *at, what).private())
    });
    let with_other_places: Findings = findings.iter().cloned().chain(other_places).collect();
    let hidden = sources.hide_private_lines(&with_other_places);
    hidden.iter().take(findings.iter().count()).cloned().collect()
}

/// An inventory that was loaded and may be the one that is wanted.
#[derive(Debug)]
struct Candidate {
    files: InventoryFiles,
    inventory: Option<Inventory>,
    findings: Findings,
}

impl Candidate {
    /// Loads the files. An inventory that misses some is not loaded: what it lacks would be
    /// reported as missing, and the reason drown.
    fn load(mut files: InventoryFiles, sources: &Sources) -> Self {
        let mut findings = std::mem::take(&mut files.findings);
        let inventory = if findings.has_errors() {
            None
        } else {
            ichor_spec::load(sources, &files.layers, &mut findings)
        };
        Self { files, inventory, findings }
    }

    fn name(&self) -> Option<&ClusterName> {
        Some(&self.inventory.as_ref()?.cluster.as_ref()?.name.as_ref()?.value)
    }

    fn resolve(mut self, world: &World) -> (Cluster, Findings) {
        let name = self.name().cloned();
        let loaded_well = !self.findings.has_errors();
        let (resolution, record) = match &self.inventory {
            Some(inventory) => resolve_as_made(inventory, &self.files, world),
            None => (None, None),
        };
        if let Some(finding) = record {
            self.findings.push(finding);
        }
        if let Some(resolution) = &resolution {
            self.findings.extend(resolution.findings.clone());
        }
        let findings = self.findings.iter().map(|finding| say_where(finding, &self.files)).collect();
        let resolution = resolution.filter(|_| loaded_well);
        let InventoryFiles { names, paths, directory, .. } = self.files;
        (Cluster { name, files: names, paths, directory, resolution }, findings)
    }
}

/// Resolves an inventory with the contract that the cluster was made with. Where that is recorded only the
/// resolved inventory says, so a record that changes something is followed by a second look.
fn resolve_as_made(
    inventory: &Inventory,
    files: &InventoryFiles,
    world: &World,
) -> (Option<Resolution>, Option<Finding>) {
    let first = ichor_plan::resolve(inventory, world);
    let recorded = first.desired.as_ref().map_or(Ok(None), |desired| {
        let site = Site { desired, directory: &files.directory, files: &files.paths };
        Store::of(site).map_or(Ok(None), |store| store.contract(&OperatingSystem))
    });
    match recorded {
        Err(finding) => (Some(first), Some(*finding)),
        Ok(None) => (Some(first), None),
        Ok(contract) if contract == first.desired.as_ref().map(|desired| desired.cluster.contract) => {
            (Some(first), None)
        }
        Ok(contract) => (Some(ichor_plan::resolve(inventory, &World { contract, ..world.clone() })), None),
    }
}

/// Gives a finding that has no place of its own that of the inventory's own first file.
fn say_where(finding: &Finding, files: &InventoryFiles) -> Finding {
    let whole_file = files.layers.files.first().map(|source| Span { source: *source, start: 0, end: 0 });
    Finding { at: finding.at.or(whole_file), ..finding.clone() }
}

/// Leaves the cluster of a name. If there is none, those inventories are left whose names could not
/// be read, because the wanted one may be among them and their findings say what is wrong.
fn choose(candidates: &mut Vec<Candidate>, wanted: &str) -> Findings {
    let is_wanted = |candidate: &Candidate| candidate.name().is_some_and(|name| name.as_str() == wanted);
    if candidates.iter().any(is_wanted) {
        candidates.retain(is_wanted);
        return Findings::new();
    }
    let names: Vec<String> =
        candidates.iter().filter_map(Candidate::name).map(|n| format!("`{n}`")).collect();
    candidates.retain(|candidate| candidate.name().is_none());
    let finding =
        Finding::error(Code::NO_SUCH_CLUSTER, None, format!("there is no cluster `{}`", yaml::show(wanted)));
    let finding = match names.len() {
        0 => finding.because("no cluster has a name that can be read"),
        1 => finding.because(format!("there is {}", names[0])),
        _ => finding.because(format!("there are {}", text::list_some(&names, MAX_NAMES))),
    };
    Findings::from_iter([finding.remedy("choose one of these with `--cluster`, or leave it out for all")])
}
