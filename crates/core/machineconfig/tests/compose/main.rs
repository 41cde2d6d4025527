//! Whole machine configs, from an inventory to what a node accepts.
#![allow(clippy::unwrap_used)]

mod disks;
mod features;
mod golden;
mod patches;
mod secrecy;
mod support;
