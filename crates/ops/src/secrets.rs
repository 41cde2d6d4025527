//! `ichor secrets`: makes, imports, exports and shows the secrets of a cluster.

mod export;
mod import;
mod new;
mod show;

pub use export::export;
pub use import::{Imported, import};
pub use new::{New, new};
pub use show::{Authority, Kept, show};
