//! Ways into networks that are not reached directly.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use crate::Problem;

/// A server on the way into a private network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// How it is asked to lead on.
    pub kind: HopKind,
    /// As whom; only SSH knows users, and finds one in its own configuration if none is named.
    pub user: Option<String>,
    /// Its name or address, without brackets. For SSH it may be an alias of its configuration.
    pub host: String,
    /// Its port; only SSH has a usual one, or finds it in its own configuration.
    pub port: Option<u16>,
}

/// How a server is asked to lead on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HopKind {
    /// A login with SSH, which forwards connections.
    Ssh,
    /// A SOCKS5 proxy.
    Socks5,
    /// An HTTP proxy that understands CONNECT.
    Http,
}

impl HopKind {
    /// Returns the scheme of its URL.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::Socks5 => "socks5",
            Self::Http => "http",
        }
    }
}

impl FromStr for Hop {
    type Err = Problem;

    /// Reads `ssh://[user@]host[:port]`, `socks5://host:port` or `http://host:port`. Nothing of a URL that may hold
    /// a password is repeated in the problem.
    fn from_str(text: &str) -> Result<Self, Problem> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let kind = match scheme {
            "ssh" => HopKind::Ssh,
            "socks5" => HopKind::Socks5,
            "http" => HopKind::Http,
            "socks5h" => {
                return Err(Problem::new(
                    "is not a way to jump",
                    "write `socks5://host:port`: names are resolved on the far side in any case",
                ));
            }
            _ => return Err(Problem::new("is not a way to jump", WAYS)),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let (host, port) = split(place).ok_or_else(|| Problem::new("names no server", WAYS))?;
        let hop = Self { kind, user: user.map(str::to_owned), host: host.to_owned(), port };
        hop.check().map(|()| hop)
    }
}

const WAYS: &str = "write `ssh://user@host`, `socks5://host:port` or `http://host:port`";
/// Most characters of a name; those of DNS have at most 253.
const MAX_NAME: usize = 253;

impl Hop {
    fn check(&self) -> Result<(), Problem> {
        let known = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let address = self.host.parse::<std::net::Ipv6Addr>().is_ok();
        if self.host.is_empty()
            || self.host.len() > MAX_NAME
            || self.host.starts_with('-')
            || !(address || self.host.chars().all(known))
        {
            return Err(Problem::new(
                "names a server by something that is neither a name nor an address",
                WAYS,
            ));
        }
        match (&self.user, self.kind) {
            (Some(user), HopKind::Ssh) => {
                let plain = |c: char| c.is_alphanumeric() || "-._\\$+".contains(c);
                if user.is_empty()
                    || user.len() > MAX_NAME
                    || user.starts_with('-')
                    || !user.chars().all(plain)
                {
                    return Err(Problem::new(
                        "names a user that cannot be one",
                        "write it as in `ssh://root@pve1.example`",
                    ));
                }
            }
            (Some(_), HopKind::Socks5 | HopKind::Http) => {
                let remedy =
                    "name the proxy alone, and let it know this computer by its address; or jump by `ssh://`";
                return Err(Problem::new("has a user in it, and ichor logs in to no proxy", remedy));
            }
            (None, HopKind::Socks5 | HopKind::Http) if self.port.is_none() => {
                let remedy =
                    format!("write it as in `{}://{}:1080`", self.kind.scheme(), bracketed(&self.host));
                return Err(Problem::new("has no port", remedy));
            }
            (None, _) => {}
        }
        Ok(())
    }
}

/// Splits a host from its port; nothing where there is no host, or no port behind the colon.
fn split(place: &str) -> Option<(&str, Option<u16>)> {
    let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
    match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => Some((host, None)),
        Some((host, rest)) => Some((host, Some(port(rest.strip_prefix(':')?)?))),
        None => match place.split_once(':') {
            Some((host, text)) => Some((host, Some(port(text)?))),
            None => Some((place, None)),
        },
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        f.pad(&format!("{}://{user}{}{port}", self.kind.scheme(), bracketed(&self.host)))
    }
}

impl Serialize for Hop {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_read_and_written_the_same() {
        for text in [
            "ssh://pve1",
            "ssh://root@pve1.example",
            "ssh://root@10.0.0.1:2222",
            "ssh://dom\\ann@[fd00::1]:22",
            "socks5://127.0.0.1:1080",
            "http://proxy.example:3128",
        ] {
            let hop: Hop = text.parse().expect(text);
            assert_eq!(hop.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_hop_is_refused_without_repeating_it() {
        for text in [
            "",
            "pve1",
            "ftp://pve1",
            "https://proxy:443",
            "socks5h://proxy:1080",
            "ssh://",
            "ssh://@pve1",
            "ssh://-oProxyCommand=x",
            "ssh://-l@pve1",
            "ssh://root@-pve1",
            "ssh://root@pve1/path",
            "ssh://root@pve1:0",
            "ssh://root@pve1:ssh",
            "ssh://a@b,ssh://c@d",
            "ssh://root:hunter2@pve1",
            "socks5://proxy",
            "http://proxy",
            "http://ann@proxy:3128",
            "socks5://ann:hunter2@proxy:1080",
            "ssh://fd00::1",
            "ssh://a%20b",
        ] {
            let problem = text.parse::<Hop>().expect_err(text);
            assert!(!problem.message.contains("hunter2") && !problem.remedy.contains("hunter2"), "{text}");
        }
    }
}
