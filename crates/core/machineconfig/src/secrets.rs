//! The secrets of a cluster.

mod text;

pub use text::SecretText;
