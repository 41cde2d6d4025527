//! From a path to resolved clusters: find, load, choose, resolve, compare.
//!
//! A cluster that was made keeps the contract it was made with, so its record is asked before it counts
//! as resolved.

use std::path::{Path, PathBuf};

use ichor_model::{ClusterName, Code, Desired, Finding, Findings, Span, World};
use ichor_ops::{Keeping, Origin, Site, contract, shared};
use ichor_plan::Resolution;
use ichor_spec::{Inventory, Sources, yaml};

use crate::{
    inventory_files::{self, Found, InventoryFiles},
    operating_system::OperatingSystem,
    render::text,
};

/// The clusters that were asked for, and everything that is wrong with them.
#[derive(Debug)]
pub struct Clusters {
    /// The files, for findings to point into.
    pub sources: Sources,
    /// The clusters, in the order of their files.
    pub list: Vec<Cluster>,
    /// Whether there were several before one was chosen.
    pub are_several: bool,
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
    /// Where its machine-config contract is from.
    pub contract: Origin,
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
        let (directory, files, contract) = (&self.directory, &self.paths, self.contract);
        self.desired().map(|desired| Site {
            desired,
            directory,
            files,
            contract,
            keeping: Keeping::Encrypted,
        })
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
    let are_several = candidates.len() > 1;
    if let Some(name) = chosen.filter(|_| !candidates.is_empty()) {
        findings.extend(choose(&mut candidates, name));
    }
    let mut list = Vec::new();
    for candidate in candidates {
        let (cluster, found) = candidate.resolve(world);
        list.push(cluster);
        findings.extend(found);
    }
    let mut clusters = Clusters { sources, list, are_several, findings };
    let together = ichor_plan::check_together(&clusters.resolved().collect::<Vec<_>>());
    clusters.findings.extend(together);
    let sites = clusters.list.iter().filter_map(Cluster::site);
    let shared = shared::by_place(&OperatingSystem, sites);
    clusters.findings.extend(shared);
    clusters.findings = hide_private_lines(&clusters.sources, &clusters.findings).sorted();
    clusters
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
        let place = (self.files.directory.as_path(), self.files.paths.as_slice());
        let made = self.inventory.as_ref().map(|it| contract::resolve(&OperatingSystem, it, place, world));
        let contract = made.as_ref().map_or(Origin::Assumed, |made| made.contract);
        let resolution = made.map(|made| {
            self.findings.extend(made.findings);
            self.findings.extend(made.resolution.findings.clone());
            made.resolution
        });
        let findings = self.findings.iter().map(|finding| say_where(finding, &self.files)).collect();
        let resolution = resolution.filter(|_| loaded_well);
        let InventoryFiles { names, paths, directory, .. } = self.files;
        (Cluster { name, files: names, paths, directory, contract, resolution }, findings)
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
        _ => finding.because(format!("there are {}", text::list_some(&names, text::MAX_NAMES))),
    };
    Findings::from_iter([finding.remedy("choose one of these with `--cluster`, or leave it out for all")])
}
