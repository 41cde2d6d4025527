//! Decides. Pure and deterministic: the same inventory and the same world give the same cluster.

pub mod placement;
