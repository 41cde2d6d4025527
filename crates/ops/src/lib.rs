//! The verbs: what each of them decides, reads and writes, without printing anything.
//!
//! - [`system`] is the boundary to the machine they run on, [`whole`] writes files that are never half there;
//! - [`contract`] resolves an inventory as the cluster was made, [`shared`] finds clusters with the same
//!   secrets, [`place`] knows what must never be written over;
//! - [`store`] says where a cluster's secrets are kept, [`bundle`] reads them, [`secrets`] makes, imports,
//!   edits, exports and shows them; [`keyring`] has the user's keys, and [`recipients`] those of others;
//! - [`keep`] shares the store: its lock, its generations, its audit trail; [`past`] finds secrets in generations;
//! - [`access`] gives people a talosconfig or a kubeconfig;
//! - [`account`] makes the account on Proxmox that a cluster is run with;
//! - [`health`] checks a cluster that was looked at, [`doctor`] everything that could stand in its way;
//! - [`saved_plan`] keeps a plan in a file, and says what has changed since;
//! - [`image`] names boot images offline;
//! - [`render`] turns a cluster into a directory of files, out of [`materials`] that the inventory names;
//! - [`live`] reaches a cluster's world, [`observe`] looks at it, `steps` change it, and [`converge`] does both
//!   until nothing is left to do.
//!
//! A verb takes a [`Site`], returns what it did, or a [`Halt`] with everything that stood in its way.

pub mod access;
pub mod account;
pub mod bundle;
pub mod contract;
pub mod converge;
pub mod doctor;
mod entropy;
pub mod halt;
pub mod health;
pub mod image;
pub mod init;
pub mod keep;
pub mod keyring;
pub mod live;
pub mod masked;
pub mod materials;
#[cfg(test)]
mod memory;
pub mod observe;
pub mod past;
pub mod place;
pub mod recipients;
pub mod render;
pub mod saved_plan;
mod sealing;
pub mod secrets;
pub mod shared;
pub mod site;
mod steps;
pub mod store;
pub mod system;
#[cfg(test)]
mod tests;
pub mod whole;

pub use halt::{Halt, HaltKind};
pub use site::{Keeping, Origin, Site};
pub use system::System;
