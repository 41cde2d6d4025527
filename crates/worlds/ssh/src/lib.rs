//! SSH as a way into private networks.
//!
//! 1. [`Route::find`] reads what OpenSSH would read about a host, and says as whom to log in where, with which keys,
//!    by which known keys of hosts, and over which other hosts;
//! 2. a [`Tunnel`] logs in and makes streams: one connection carries all of them, and is made again when it drops;
//! 3. what stands in the way of a login is a [`NotConnected`]. Whoever can ask somebody makes a host's key known with
//!    [`Tunnel::trust`], or opens a key with [`Tunnel::unlock`], and tries again.
//!
//! Nothing is asked of the user, and no file is read here: a [`Local`] does that.

mod config;
mod keys;
mod known_hosts;
mod login;
mod route;
mod tunnel;

pub use keys::{NotUnlocked, Passphrase};
pub use known_hosts::{Entry, HostKey};
pub use login::{NotConnected, Refused};
pub use route::{Asked, Contents, Local, NoRoute, Route};
pub use tunnel::Tunnel;

/// Most characters of a text by a server that are repeated.
const MAX_SHOWN: usize = 300;

/// Returns a text that came from elsewhere as it can be shown: on one line, and not too long.
fn clean(text: &str) -> String {
    let plain: String = text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.trim().to_owned()
}
