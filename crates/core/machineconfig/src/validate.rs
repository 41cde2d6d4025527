//! Judging a config as a node of a given Talos would, before any node sees it.
//!
//! 1. `release`: kinds, keys and words that this Talos does not know.
//! 2. `documents`: documents that cannot stand beside each other.
//! 3. `legacy`: the rules of the document with `machine` and `cluster`.
//! 4. `network`, `block`, `kube`, `container` and `system`: the rules of each other kind.
//! 5. `cross`: deprecated fields together with the documents that replaced them, and rules about
//!    the config as a whole.
//!
//! Findings use Talos' own words where it has some. What only a node can know is left to it: disks
//! that match, CEL expressions, and whether certificates and keys belong together.

mod block;
mod container;
mod cross;
mod documents;
mod judge;
mod kube;
mod legacy;
mod network;
mod release;
mod system;
mod text;

use ichor_model::{Code, Finding, Findings, Minor};

use crate::document::{Config, Document};

pub(crate) use cross::replaced_twice;
pub(crate) use documents::conflicting as conflicting_documents;
use judge::Judge;
pub(crate) use release::too_new;

/// Where the machine runs, which decides what a config must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Installed to a disk by its config, as from an ISO.
    Metal,
    /// Running from a disk image, as nocloud machines do.
    Cloud,
}

impl Mode {
    /// Returns the word that Talos uses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Metal => "metal",
            Self::Cloud => "cloud",
        }
    }
}

/// Says everything that a node of this Talos would refuse or complain about.
pub fn validate(config: &Config, talos: Minor, mode: Mode) -> Findings {
    let mut findings = Findings::new();
    if config.documents().is_empty() {
        let finding = Finding::error(Code::CONFIG_REFUSED, None, "config not found: there is no document");
        findings.push(finding.remedy("generate a config, or check that the file is the right one"));
        return findings;
    }
    findings.extend(too_new(config.documents(), talos));
    findings.extend(conflicting_documents(config, talos));
    for document in config.documents() {
        judge_document(&mut Judge::new(config, document, talos, mode, &mut findings));
    }
    cross::check(config, talos, &mut findings);
    findings
}

fn judge_document(judge: &mut Judge<'_>) {
    let kind = judge.document.identity().kind.clone();
    if judge.document.is_legacy() {
        legacy::check(judge);
    } else if judge.document.schema().is_some() {
        named(judge);
        network::check(&kind, judge);
        block::check(&kind, judge);
        kube::check(&kind, judge);
        system::check(&kind, judge);
        container::check(&kind, judge);
    }
}

/// Nearly every kind that has a name needs one.
fn named(judge: &mut Judge<'_>) {
    const NAMELESS: [&str; 2] = ["PCIDriverRebindConfig", "TrustedRootsConfig"];
    if judge.document.schema().is_some_and(|kind| kind.named && !NAMELESS.contains(&kind.name)) {
        judge.required("name", "name must be specified");
    }
}

/// Whether a document makes a machine a control plane.
pub(crate) fn is_control_plane(legacy: Option<&Document>) -> bool {
    let kind = legacy.and_then(|legacy| legacy.value("machine.type")).and_then(|node| node.as_text());
    matches!(kind, Some("controlplane" | "init"))
}
