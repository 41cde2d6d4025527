//! A client of the Talos API.
//!
//! 1. [`api`] has a function per call: it builds a [`Call`], or a [`StreamCall`] where many messages come back, typed
//!    by what they give. No socket, no clock.
//! 2. [`resource`] has a type per kind of resource that ichor reads, and says how each is written in YAML.
//! 3. [`Talos`] sends calls to one machine over one connection, which it makes again when it has broken;
//!    [`peek`] looks at the certificate of whoever is at an address, and sends nothing.
//! 4. [`Error`] tells what never arrived, who was not trusted, what was refused, and what may have happened.
//!
//! Facts that shape it: a machine in maintenance mode shows a certificate that it made itself and asks for none; a
//! configured one shows a certificate of its cluster's CA and demands one of ours; and each change of mode, each
//! reboot, ends the connection.

mod address;
pub mod api;
mod call;
mod client;
mod connection;
mod error;
mod grpc;
mod peek;
pub mod resource;

pub use address::{Address, NotAnAddress, PORT};
pub use call::{Call, StreamCall};
pub use client::{Streaming, Talos};
pub use error::{Admission, Code, Error, Refusal};
pub use peek::{Face, Peeked, peek};
