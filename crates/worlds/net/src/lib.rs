//! Connections to real servers.
//!
//! 1. A [`Dial`]er makes byte streams: directly, or through whatever leads into a private network, such as a
//!    [`proxy`].
//! 2. [`tls`] makes sure who is at the other end ([`Trust`]): by a CA, by a pinned fingerprint, by the system's
//!    roots, or not at all when the user said so.
//! 3. [`HttpClient`] speaks HTTP/1.1 over such streams, within limits of time and size, and follows no redirect;
//!    over a connection of its own it opens websockets ([`Socket`]).

mod dial;
mod http;
pub mod proxy;
pub mod tls;
mod websocket;

pub use dial::{Dial, Dialled, Direct, FirstOf, Stream};
pub use http::{Endpoint, HttpClient, IncomingPieces, NotAnEndpoint};
pub use tls::{Fingerprint, Identity, KeyFingerprint, Trust};
pub use websocket::Socket;
