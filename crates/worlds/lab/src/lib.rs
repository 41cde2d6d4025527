//! The lab's doors, on loopback and in process: the simulated datacentre behind the real protocols.
//!
//! 1. [`Hall`] holds the lab and lets its clock go as tokio's does.
//! 2. Whoever connects, directly, through the SOCKS5 and HTTP CONNECT [`proxy`], or in process with
//!    [`Inside`], is led by address and port to a server of the lab (`attend`), which presents the certificate that it has at that moment (`tls`).
//! 3. `http` and `grpc` turn bytes into the lab's calls, and its answers into bytes: reason phrases,
//!    broken connections and watches included.
//! 4. [`listen`] opens a port for every machine whose address is a loopback address, and closes it with the
//!    machine.

mod attend;
mod console;
#[cfg(unix)]
pub mod control;
mod grpc;
mod hall;
mod http;
mod inside;
pub mod listen;
pub mod proxy;
pub mod serve;
mod tls;

pub use attend::Target;
pub use hall::{Hall, real_time};
pub use inside::Inside;
pub use tls::fingerprint;
