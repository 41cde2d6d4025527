//! Talos machine configs, patches, secrets and certificates, without talosctl.

pub mod cidata;
pub mod kubeconfig;
pub mod meta;
pub mod pki;
pub mod reservations;
mod scalar;
pub mod schematic;
pub mod secrets;
pub mod talosconfig;
mod tree;
