//! The inventory as the user writes it.
//!
//! Reading goes in three steps, each of which reports everything it finds:
//!
//! 1. [`yaml`] turns bytes into a tree that knows where every value stands, within limits;
//! 2. [`mod@load`] lays shared defaults under an inventory and joins the files of a directory;
//! 3. [`read`] turns the tree into the types of [`inventory`], which say only what was written.
//!
//! What the values mean together is decided by `ichor-plan`.

pub mod inventory;
pub mod load;
pub mod read;
mod schema;
mod suggest;
pub mod values;
pub mod yaml;

pub use inventory::Inventory;
pub use load::{Layers, Sources, load};
pub use schema::json_schema;
pub use suggest::nearest;
