//! The calls that ichor makes, one function each.

mod node;
mod objects;
mod pod;
mod server;
mod signing;
mod volume;
mod workload;

pub use crate::resource::Served;
pub use node::*;
pub use objects::*;
pub use pod::*;
pub use server::*;
pub use signing::*;
pub use volume::*;
pub use workload::*;
