//! What stands between ichor and a world: transports, and what can go wrong on them.
//!
//! Clients build requests and read answers without a socket. A transport carries them: to a real server, or into
//! the lab in the same process. So the same client code runs in both.

mod http;
mod secret;
mod text;
mod websocket;

pub use http::{Http, HttpStream, Method, Pieces, Request, Response, TransportError};
pub use secret::Secret;
pub use text::{clean, percent};
pub use websocket::{NotOpened, Received, WebSocket, WebSockets};
