//! The lab: a simulated datacentre that real clients accept.
//!
//! One deterministic state machine, the [`Lab`]: hosts, storages, VMs and tasks ([`pve`]), Talos machines and
//! their etcd ([`talos`]), an Image Factory ([`factory`]) and Kubernetes ([`kube`]). It has no thread, socket or
//! wall clock: time is an argument, randomness has a seed, and maps are sorted, so the same calls at the same
//! times give the same world, bit for bit.
//!
//! 1. A door (in process, or a server on loopback) takes a call and asks [`Lab::call`].
//! 2. The lab answers, or says until when the caller must wait ([`Progress`]), as a real server blocks its
//!    client; the door advances time and asks again.
//! 3. What goes on by itself (tasks, boots, elections) stands in the [`agenda`] and happens in
//!    [`Lab::advance`].
//! 4. What goes wrong stands in a plan ([`faults`]), servers that mean harm included ([`hostility`]); what befalls
//!    the datacentre itself is an [`incident`]. [`strangers`] are what must come out of all of it untouched.
//! 5. The parts do not call each other. They share a [`ground::Ground`] (clock, disks, what guests show) and send
//!    [`signal::Signal`]s, which the lab delivers.

pub mod agenda;
pub mod bound;
pub mod clock;
pub mod factory;
pub mod faults;
pub mod ground;
pub mod hostility;
pub mod incident;
#[cfg(feature = "judge")]
pub mod judge;
pub mod kube;
mod lab;
pub mod profile;
pub mod pve;
pub mod random;
pub mod record;
pub mod rehearsal;
pub mod replay;
pub mod setup;
pub mod signal;
pub mod strangers;
pub mod talos;
pub mod tls;
pub mod wire;

pub use lab::{Door, Lab, Progress};
