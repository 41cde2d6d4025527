//! What a team shares about a cluster: objects behind a small port, and what is built on it.
//!
//! [`Objects`] is the port: read, create what is not there, replace what has not changed, list, delete. A bucket
//! ([`Address::open`]) and a directory ([`Directory`]) keep the same contract. On it stand
//!
//! 1. [`lock`]: one run at a time, with a lease that its holder renews;
//! 2. [`generation`]: everything that must not be lost as one object, each naming the one before it;
//! 3. [`audit`]: one entry for every run that changed something, each naming the one before it.
//!
//! No clock of the wall decides anything: two machines need not agree about the time.

mod address;
pub mod audit;
mod bucket;
mod directory;
pub mod generation;
mod line;
pub mod lock;
mod objects;
mod probe;
#[cfg(test)]
mod tests;

pub use address::{Address, BadAddress, Kind};
pub use bucket::Bucket;
pub use directory::Directory;
pub use objects::{Answer, Fault, MAX_BYTES, Object, Objects, Put, Version, digest};
pub use probe::{Unfit, probe};
