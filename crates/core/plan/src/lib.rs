//! Decides. Pure and deterministic: the same inventory and the same world give the same cluster.
//!
//! - [`resolve`] turns an inventory into a [`Desired`](ichor_model::Desired) cluster;
//! - [`placement`] finds a host for every machine;
//! - [`support`] knows which Talos runs which Kubernetes;
//! - [`check_together`] compares clusters that live side by side.

pub mod placement;
mod resolve;
pub mod support;
mod together;

pub use resolve::{Resolution, resolve};
pub use together::check_together;
