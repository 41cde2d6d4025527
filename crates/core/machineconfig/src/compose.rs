//! The machine configs of a cluster, from what is wanted of it: the way that all commands take.
//!
//! 1. [`needs`] says which files and secrets the configs will hold; somebody reads them into
//!    [`Materials`].
//! 2. `draw` turns the cluster and a machine into a [`Blueprint`], and
//!    [`documents()`] gives it the shape of the contract.
//! 3. `patches` changes it, in the order cluster, role, group, machine. Patches are read once for the
//!    whole cluster.
//! 4. The result is judged as the machine's Talos would judge it; what is wrong with it is told of the
//!    patch that brought it in.
//! 5. `mask` takes secrets and the values of patches out of everything that is said, so that whoever shows
//!    it need not think of them.

mod draw;
mod mask;
mod materials;
mod patches;

use ichor_model::{
    Code, Desired, Finding, Findings, Severity,
    desired::{ImageSource, Machine, PatchScope, Platform, Role},
};

pub use materials::{Material, Materials, Needs, needs};

use crate::{
    document::{Config, Document},
    emit::emit,
    generate::{Blueprint, documents},
    patch::{self, Patch},
    secrets::{Bundle, SecretText},
    validate::{Mode, validate},
};
use mask::Mask;
use patches::Patches;

/// A machine config that its Talos accepts.
#[derive(Debug, Clone)]
pub struct Composed {
    /// The config.
    pub config: Config,
    /// What is odd about it, but no reason to refuse it.
    pub notes: Findings,
}

impl Composed {
    /// Returns the config as text. It holds the cluster's secrets.
    pub fn text(&self) -> SecretText {
        SecretText::new(emit(&self.config))
    }
}

/// Makes the machine configs of one cluster.
#[derive(Debug)]
pub struct Composer<'a> {
    desired: &'a Desired,
    bundle: &'a Bundle,
    roles: [Blueprint; 2],
    patches: Patches,
    notes: Findings,
    mask: Mask,
}

impl<'a> Composer<'a> {
    /// Prepares what all configs share, or says everything that is wrong with it.
    pub fn new(desired: &'a Desired, bundle: &'a Bundle, materials: &Materials) -> Result<Self, Findings> {
        let mask = Mask::new(desired, bundle, materials);
        let mut findings = Findings::new();
        let roles = Role::ALL.map(|role| draw::of_role(desired, role, materials, &mut findings));
        let patches = Patches::read(desired, materials, &mut findings);
        match roles {
            [Some(control_plane), Some(worker)] if !findings.has_errors() => {
                let notes = mask.over(patches.notes());
                Ok(Self { desired, bundle, roles: [control_plane, worker], patches, notes, mask })
            }
            _ => Err(mask.over(&findings).sorted()),
        }
    }

    /// Returns what is odd about the patches themselves.
    pub const fn notes(&self) -> &Findings {
        &self.notes
    }

    /// Makes the config of a machine.
    pub fn machine(&self, machine: &Machine) -> Result<Composed, Findings> {
        self.masked(self.compose_machine(machine))
    }

    /// Makes the config of a role: without the name and the addresses of a machine, and without the
    /// patches of groups and machines.
    pub fn role(&self, role: Role) -> Result<Composed, Findings> {
        self.masked(self.compose_role(role))
    }

    /// Takes secrets out of what is said. Everything that this type returns goes through here.
    fn masked(&self, made: Result<Composed, Findings>) -> Result<Composed, Findings> {
        match made {
            Ok(composed) => Ok(Composed { notes: self.mask.over(&composed.notes), ..composed }),
            Err(findings) => Err(self.mask.over(&findings).sorted()),
        }
    }

    fn compose_machine(&self, machine: &Machine) -> Result<Composed, Findings> {
        let mut findings = Findings::new();
        let blueprint = draw::of_machine(self.of_role(machine.role), self.desired, machine, &mut findings);
        if findings.has_errors() {
            return Err(findings);
        }
        self.compose(&Subject {
            blueprint: &blueprint,
            patches: self.patches.of_machine(machine)?.into_iter().map(|(_, patch)| patch).collect(),
            mode: mode(self.desired, Some(machine)),
            name: format!("machine `{}`", machine.name),
        })
    }

    fn compose_role(&self, role: Role) -> Result<Composed, Findings> {
        let machine = self.desired.of_role(role).next();
        let mut patches = match machine.or(self.desired.machines.first()) {
            Some(machine) => self.patches.of_machine(machine)?,
            None => Vec::new(),
        };
        let widest = if machine.is_some() { PatchScope::Role } else { PatchScope::Cluster };
        patches.retain(|(scope, _)| *scope <= widest);
        self.compose(&Subject {
            blueprint: self.of_role(role),
            patches: patches.into_iter().map(|(_, patch)| patch).collect(),
            mode: mode(self.desired, machine),
            name: format!("role `{role}`"),
        })
    }

    fn of_role(&self, role: Role) -> &Blueprint {
        let [control_plane, worker] = &self.roles;
        match role {
            Role::ControlPlane => control_plane,
            Role::Worker => worker,
        }
    }

    fn compose(&self, subject: &Subject<'_>) -> Result<Composed, Findings> {
        let base = Config::from_json(&documents(subject.blueprint, self.bundle))?;
        let talos = subject.blueprint.talos;
        let config = patch::apply(&base, subject.patches.iter().copied(), talos)?;
        let findings = validate(&config, talos, subject.mode);
        if !findings.has_errors() {
            return Ok(Composed { config, notes: findings });
        }
        let blamed = subject.blame(&base, &findings);
        Err(self.patches.explained(blamed, &subject.patches, talos))
    }
}

/// What a config is made for and of.
struct Subject<'a> {
    blueprint: &'a Blueprint,
    patches: Vec<&'a Patch>,
    mode: Mode,
    /// Whose config it is, for findings.
    name: String,
}

/// A finding and the patch after which it is there, by its number; none for the generated config.
type Blamed = (Finding, Option<usize>);

impl Subject<'_> {
    /// Finds out which patch each error came with: the one after which it is there for the first time.
    fn blame(&self, base: &Config, findings: &Findings) -> Vec<Blamed> {
        let talos = self.blueprint.talos;
        let mut config = base.clone();
        let mut steps = vec![validate(base, talos, self.mode)];
        for patch in &self.patches {
            let Ok(next) = patch::apply(&config, [*patch], talos) else { break };
            config = next;
            steps.push(validate(&config, talos, self.mode));
        }
        let first = |error: &Finding| {
            steps.iter().position(|step| step.iter().any(|finding| finding.message == error.message))
        };
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).cloned();
        let told = errors.map(|error| match first(&error).and_then(|step| step.checked_sub(1)) {
            Some(i) => {
                let patch = self.patches[i];
                (patch.about(placed(error, patch)), Some(i))
            }
            None => (error.because(format!("in the machine config of {}", self.name)), None),
        });
        told.collect()
    }
}

/// A finding about what was generated points at the document of the patch that made it wrong.
fn placed(finding: Finding, patch: &Patch) -> Finding {
    let about = |document: &&Document| finding.message.contains(&document.identity().label());
    let at = finding.at.or_else(|| patch.documents().find(about).and_then(Document::at));
    Finding { at, ..finding }
}

/// Whether a machine is installed by its config or runs from a disk image.
fn mode(desired: &Desired, machine: Option<&Machine>) -> Mode {
    let image = machine.and_then(|machine| desired.images.iter().find(|image| image.id == machine.image));
    match image {
        Some(image) if image.source == ImageSource::Iso || image.platform == Platform::Metal => Mode::Metal,
        _ => Mode::Cloud,
    }
}

/// Says that something the inventory names was not handed over.
fn missing(what: &str, remedy: &str) -> Finding {
    Finding::error(Code::CONFIG_MATERIAL, None, format!("{what} was not found")).remedy(remedy)
}
