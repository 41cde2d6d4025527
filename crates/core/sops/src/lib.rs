//! Files whose values are encrypted and whose keys can be read: SOPS files with age recipients.
//!
//! 1. [`yaml`](Format::Yaml) or [`json`](Format::Json) text becomes a [`Tree`], comments included;
//! 2. [`seal`] encrypts its values with a data key, and that key to each [`Recipient`];
//! 3. [`Sealed::parse`] reads such a file, and [`Sealed::open`] decrypts it with an [`Identity`], unless
//!    anything in it was changed since;
//! 4. [`Opened`] seals another text with the same key, for other recipients, or with a new key.
//!
//! Everything random and the time come in as arguments. Plain values are wiped when dropped, and no `Debug`
//! shows one. The format is that of sops 3; its real program judges this crate in `conformance`.

mod age;
mod cipher;
mod emit;
mod flaw;
mod json;
mod metadata;
mod rules;
mod scalar;
mod sealed;
mod tree;
mod walk;
mod yaml;

pub use age::{Identity, Recipient, identities};
pub use flaw::{Flaw, FlawKind};
pub use rules::Rule;
pub use sealed::{Opened, Policy, Sealed, seal};
pub use tree::{Format, Tree};

/// Largest file that is read. Real ones have a few KiB.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;
/// Most values in a file.
const MAX_NODES: usize = 200_000;

/// Fills a buffer with random bytes.
pub type Entropy<'a> = &'a mut dyn FnMut(&mut [u8]);
