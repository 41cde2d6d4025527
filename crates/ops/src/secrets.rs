//! `ichor secrets`: makes, imports, restores, encrypts, edits, exports and shows the secrets of a cluster.

mod edit;
mod export;
mod identity;
mod import;
mod lost;
mod new;
mod rekey;
mod restore;
mod show;
mod subject;

pub use edit::edit;
pub use export::export;
pub use identity::{Own, identity};
pub use import::{Imported, import};
pub use lost::lost;
pub use new::{New, new, new_within};
pub use rekey::{add_recipients, encrypt, remove_recipients, rotate_key};
pub use restore::{Restored, Wanted, restore};
pub use show::{Authority, Kept, show};
pub(crate) use subject::Holding;
pub use subject::{Change, Changed, Subject};
