//! Addresses, networks and names in them.

use std::{net::IpAddr, str::FromStr};

use ichor_model::{Code, Finding, Problem};
use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    read::{Read, Reader},
    yaml::{Node, show},
};

/// A machine's address, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// So many addresses after the network's own.
    Offset(u32),
    /// This one.
    Ip(IpAddr),
    /// Whatever the DHCP server gives.
    Dhcp,
}

impl FromStr for Address {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == "dhcp" {
            return Ok(Self::Dhcp);
        }
        if let Some(offset) = text.strip_prefix('+') {
            let digits = !offset.is_empty() && offset.bytes().all(|b| b.is_ascii_digit());
            return digits.then(|| offset.parse().ok()).flatten().map(Self::Offset).ok_or_else(|| {
                Problem::new("is not an offset", "write `+` and a whole number, as in `+10`")
            });
        }
        parse_ip(text).map(Self::Ip)
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, Problem> {
    let (address, prefix) =
        text.split_once('/').map_or((text, None), |(address, rest)| (address, Some(rest)));
    let parsed = address
        .parse()
        .map_err(|_| Problem::new("is not an address", "write it as in `10.0.0.11` or `fd00::11`"))?;
    match prefix {
        None => Ok(parsed),
        Some(_) => {
            Err(Problem::new("has a prefix length; that of the network is used", format!("write `{parsed}`")))
        }
    }
}

impl JsonSchema for Address {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An address, an offset from the network's first address such as `+10`, or `dhcp`.",
            // To a YAML reader `+10` is a number.
            "anyOf": [
                { "type": "string", "pattern": r"^(\+[0-9]+|dhcp|[0-9a-fA-F:.]+)$" },
                { "type": "integer", "minimum": 0 },
            ],
            "examples": ["+10", "10.0.0.11", "dhcp"],
        })
    }
}

/// A single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(transparent)]
pub struct Ip(pub IpAddr);

impl Read for Ip {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "an address, as in `10.0.0.1`")?;
        parse_ip(text)
            .map(Self)
            .map_err(|problem| reader.problem(Code::BAD_ADDRESS, node.span, text, problem))
            .ok()
    }
}

/// A network, named by its first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr(pub IpNet);

impl Read for Cidr {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a network, as in `10.0.0.0/24`")?;
        let Ok(net) = text.parse::<IpNet>() else {
            let problem =
                Problem::new("is not a network", "write it with its prefix length, as in `10.0.0.0/24`");
            reader.problem(Code::BAD_ADDRESS, node.span, text, problem);
            return None;
        };
        if net != net.trunc() {
            let problem = Problem::new("has host bits set", format!("write `{}`", net.trunc()));
            reader.problem(Code::HOST_BITS, node.span, text, problem);
            return None;
        }
        Some(Self(net))
    }
}

impl JsonSchema for Cidr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cidr".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A network, named by its first address.",
            "type": "string",
            "pattern": "^[0-9a-fA-F:.]+/[0-9]{1,3}$",
            "examples": ["10.0.0.0/24", "fd00:10::/64"],
        })
    }
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// What stands before `://`.
    pub scheme: String,
    /// Everything, without a slash at the end.
    pub text: String,
}

impl Read for Url {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a URL, as in `https://pve1.example:8006`")?;
        match text.parse() {
            Ok(url) => Some(url),
            // What stands before an `@` may be a password: neither it nor its line is shown.
            Err(Problem { message, remedy }) if text.contains('@') => {
                let finding = Finding::error(Code::BAD_URL, node.span, format!("this URL {message}"));
                reader.findings.push(finding.remedy(remedy).private());
                None
            }
            Err(problem) => {
                reader.problem(Code::BAD_URL, node.span, text, problem);
                None
            }
        }
    }
}

impl FromStr for Url {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = |message: &str| Problem::new(message, "write it as in `https://pve1.example:8006`");
        if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong("is not a URL"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| no_scheme(text))?;
        if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
            return Err(wrong("is not a URL"));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains(',') {
            return Err(Problem::new(
                "names several servers",
                "write one URL for each, as a list where the key takes one",
            ));
        }
        let (user, place) =
            authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(Problem::new("has a password in it", "keep secrets out of the inventory: remove it"));
        }
        check_authority(place)?;
        Ok(Self { scheme: scheme.into(), text: text.trim_end_matches('/').into() })
    }
}

fn no_scheme(text: &str) -> Problem {
    if text.contains('@') {
        let remedy = "begin with the scheme, as in `ssh://git@git.example/fleet.git`";
        return Problem::new("has no scheme", remedy);
    }
    Problem::new("has no scheme", format!("write `https://{}`", show(text)))
}

fn check_authority(place: &str) -> Result<(), Problem> {
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or(""))),
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(Problem::new("names no server", "write it as in `https://pve1.example:8006`"));
    }
    if port.is_some_and(|port| port.contains(':')) {
        let remedy = "write the address in brackets, as in `https://[fd00::5]:8006`";
        return Err(Problem::new("has an IPv6 address without brackets, or two ports", remedy));
    }
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |number| number == 0)) {
        return Err(Problem::new(
            "has a port that is not a number from 1 to 65535",
            "write it as in `:8006`",
        ));
    }
    Ok(())
}

/// Whether text is a DNS name. One that ends in a number is a mistyped address.
pub fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit());
    text.len() <= 253 && !numeric && text.split('.').all(label)
}

/// A name or an address that a certificate carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertSan(pub String);

impl FromStr for CertSan {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.parse::<IpAddr>().is_ok() || is_dns_name(text.strip_prefix("*.").unwrap_or(text)) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is neither a DNS name nor an address",
            "write it without scheme and port: `k8s.lab.example`, `*.lab.example` or `10.0.0.5`",
        ))
    }
}

/// Where a machine gets the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeServer(pub String);

impl FromStr for TimeServer {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        // Talos takes PTP clocks by their device.
        let device = text.strip_prefix("/dev/").is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        if device || text.parse::<IpAddr>().is_ok() || is_dns_name(text) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is neither a DNS name nor an address",
            "write it without scheme and port, as in `pool.ntp.org` or `10.0.0.1`",
        ))
    }
}

/// A DNS domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(pub String);

impl FromStr for Domain {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if is_dns_name(text) && !text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new("is not a DNS domain", "use a to z, 0 to 9, `-` and `.`, as in `cluster.local`"))
    }
}
