//! A client of the Image Factory.
//!
//! 1. [`Asset`] is what can be asked for: its file name and its URL.
//! 2. [`Client`] registers schematics, asks what there is for a release, and how large an image is.
//! 3. [`Refusal`] says what a refusal means, and when to come again.
//!
//! Facts that shape it: registering the same schematic twice is as good as once; extensions are looked at only
//! when an image is asked for, so they are checked before; a HEAD builds the image, which may take minutes;
//! checksums are not to be had for nothing (402), so an image is known by its length.
//!
//! Names of installer images are made where machine configs need them, in `ichor_machineconfig::schematic`.

mod asset;
mod client;
mod extension;
mod refusal;

pub use asset::{Asset, Form};
pub use client::{Client, Error, ImageHead, Whereabouts};
pub use extension::{Extension, missing};
pub use refusal::{Kind, Refusal};
