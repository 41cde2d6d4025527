//! The vocabulary of ichor as plain data: identifiers, quantities, findings, and the two ends of
//! a resolution: what the world offers ([`world`]) and what is wanted ([`desired`]).
//!
//! Nothing here reads a file, a clock or a socket, and nothing here decides anything.

pub mod code;
pub mod desired;
pub mod finding;
pub mod identity;
pub mod jump;
pub mod name;
pub mod net;
pub mod observed;
pub mod secret;
pub mod size;
pub mod source;
pub mod stamp;
pub mod step;
pub mod version;
pub mod world;

pub use code::Code;
pub use desired::Desired;
pub use finding::{Finding, Findings, Severity};
pub use identity::{SmbiosUuid, VmId};
pub use jump::{Hop, HopKind};
pub use name::{ClusterName, HostName, MachineName};
pub use net::MacAddress;
pub use observed::Observed;
pub use secret::SecretRef;
pub use size::Size;
pub use source::{At, SourceId, Span};
pub use stamp::Stamp;
pub use version::{KubernetesVersion, Minor, TalosVersion};
pub use world::World;

/// Why a piece of text is not the value it should be: what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, continuing "`text` ".
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

impl Problem {
    /// Makes a problem from its two halves.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it {}; {}", self.message, self.remedy)
    }
}

impl std::error::Error for Problem {}
