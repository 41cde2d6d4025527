//! Talos machine configs, patches, secrets and certificates, without talosctl.

pub mod cidata;
pub mod meta;
pub mod pki;
pub mod reservations;
mod scalar;
pub mod schematic;
pub mod secrets;
mod tree;
