//! Decides. Pure and deterministic: the same inventory and the same world give the same cluster.
//!
//! - [`resolve`] turns an inventory into a [`Desired`](ichor_model::Desired) cluster;
//! - [`placement`] finds a host for every machine;
//! - [`support`] knows which Talos runs which Kubernetes;
//! - [`check_together`] compares clusters that live side by side;
//! - [`up`] plans the way from what is seen to a Ready cluster, [`destroy`] the way to nothing; [`action`] says
//!   what steps do and what must hold, [`files`] where images
//!   lie, [`preflight`] what stands in the way, [`privileges`] what the token must be allowed;
//! - [`drift`] says what differs between the inventory and a cluster that runs, and is left as it is.

pub mod action;
mod destroy;
mod drift;
pub mod files;
mod nodes;
pub mod placement;
mod preflight;
pub mod privileges;
mod quorum;
mod resolve;
pub mod support;
mod together;
mod up;
mod voters;
mod whereabouts;

pub use action::{Action, ClusterPlan, ClusterStep, Condition, Phase};
pub use destroy::{Extent, destroy};
pub use drift::drift;
pub use nodes::stale_node;
pub use preflight::{lost_hosts, preflight, protected_by_others};
pub use resolve::{Resolution, resolve};
pub use together::check_together;
pub use up::{has_network, up};
pub use voters::{Voters, remaining, voters};
pub use whereabouts::{Whereabouts, wanted, whereabouts};
