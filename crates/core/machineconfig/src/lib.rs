//! Talos machine configs, patches, secrets and certificates, without talosctl.
//!
//! - [`document`] reads configs, [`mod@emit`] writes them, and [`schema`] says what there is to read and
//!   write; [`patch`] changes a config as Talos would, [`mod@validate`] judges it as a node would, and
//!   [`mod@lint`] looks at a patch before there is anything to apply it to. [`differences`] says where two
//!   configs differ.
//! - [`secrets`] makes, reads and writes the secrets of a cluster, [`pki`] its certificates;
//!   [`talosconfig`] and [`kubeconfig`] give people access.
//! - [`generate`] draws up the documents of a machine in the shape of its contract; [`compose`] makes the
//!   whole config of a machine or a role, patches included, and is what other crates use.
//! - [`schematic`] names an image offline; [`meta`], [`cidata`] and [`reservations`] give a machine its
//!   first address; [`iso9660`] makes a volume of files.

pub mod cidata;
pub mod compose;
mod differences;
pub mod document;
pub mod emit;
pub mod generate;
pub mod iso9660;
pub mod kubeconfig;
pub mod lint;
pub mod meta;
pub mod patch;
pub mod pki;
pub mod reservations;
mod scalar;
pub mod schema;
pub mod schematic;
pub mod secrets;
mod suggest;
pub mod talosconfig;
mod tree;
pub mod validate;

pub use differences::differences;
pub use document::{Config, Document};
pub use emit::emit;
pub use lint::lint;
pub use patch::{Patch, apply};
pub use validate::validate;
