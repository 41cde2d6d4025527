//! The calls that ichor makes, one function each. Folders follow the API's paths.

mod access;
mod cluster;
mod pools;
mod qemu;
mod storage;
mod tasks;

pub use access::*;
pub use cluster::*;
pub use pools::*;
pub use qemu::*;
pub use storage::*;
pub use tasks::*;
