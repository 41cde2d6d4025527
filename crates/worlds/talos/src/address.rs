//! Where a machine's API is.

use std::{fmt, net::IpAddr, str::FromStr};

use thiserror::Error;

/// The port of the Talos API.
pub const PORT: u16 = 50000;

/// Where a machine's API is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Its address or name, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no `host` or `host:port`")]
pub struct NotAnAddress(String);

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self { host: address.to_string(), port: PORT }
    }
}

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let wrong = || NotAnAddress(text.to_owned());
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(PORT), str::parse).map_err(|_| wrong())?;
        let bracketed = text.starts_with('[');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || bracketed && c == ':';
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        f.pad(&format!("{host}:{}", self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_the_port() {
        for (text, expected) in [
            ("10.0.0.11", "10.0.0.11:50000"),
            ("10.0.0.11:50001", "10.0.0.11:50001"),
            ("fd00::11", "[fd00::11]:50000"),
            ("[fd00::11]", "[fd00::11]:50000"),
            ("[fd00::11]:1", "[fd00::11]:1"),
            ("cp-1.lab", "cp-1.lab:50000"),
        ] {
            assert_eq!(
                text.parse::<Address>().map(|address| address.to_string()),
                Ok(expected.into()),
                "{text}"
            );
        }
        for broken in ["", ":1", "a b", "a:99999", "a:", "[fd00::1", "[a]1", "a/b", "a:b:c"] {
            assert!(broken.parse::<Address>().is_err(), "{broken}");
        }
    }
}
