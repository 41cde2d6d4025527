//! MAC addresses.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Problem;

/// A unicast Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// Makes an address from its bytes, with the group bit cleared: a NIC's own address is unicast.
    pub const fn unicast(mut bytes: [u8; 6]) -> Self {
        bytes[0] &= 0xfe;
        Self(bytes)
    }

    /// Returns the six bytes.
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// Returns the address `offset` further on, if the last three bytes hold it.
    pub fn checked_add(self, offset: u32) -> Option<Self> {
        let [a, b, c, x, y, z] = self.0;
        let sum = u32::from_be_bytes([0, x, y, z]).checked_add(offset).filter(|sum| *sum <= 0x00ff_ffff)?;
        let [_, x, y, z] = sum.to_be_bytes();
        Some(Self([a, b, c, x, y, z]))
    }
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut parts = text.split([':', '-']);
    for byte in &mut bytes {
        let part = parts.next()?;
        if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

impl FromStr for MacAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let bytes = parse_hex::<6>(text).ok_or_else(|| {
            Problem::new("is not a MAC address", "write six pairs of hex digits, as in `bc:24:11:2e:c8:00`")
        })?;
        if bytes[0] & 1 == 1 {
            return Err(Problem::new(
                "is a multicast address; Proxmox refuses it for a network card",
                format!("make the second digit even, as in `{}`", Self::unicast(bytes)),
            ));
        }
        if bytes == [0; 6] {
            return Err(Problem::new("is the zero address", "leave `mac` out: ichor derives one"));
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, x, y, z] = self.0;
        f.pad(&format!("{a:02x}:{b:02x}:{c:02x}:{x:02x}:{y:02x}:{z:02x}"))
    }
}

impl TryFrom<String> for MacAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|problem: Problem| format!("`{text}` {}", problem.message))
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> Self {
        mac.to_string()
    }
}

impl JsonSchema for MacAddress {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MacAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A unicast Ethernet address.",
            "type": "string",
            "pattern": "^[0-9A-Fa-f][02468ACEace]([:-][0-9A-Fa-f]{2}){5}$",
            "examples": ["bc:24:11:2e:c8:00"],
        })
    }
}

/// The first three bytes of derived MAC addresses, such as Proxmox's own `BC:24:11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct MacPrefix([u8; 3]);

impl MacPrefix {
    /// Returns the three bytes.
    pub const fn bytes(self) -> [u8; 3] {
        self.0
    }
}

impl FromStr for MacPrefix {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let bytes = parse_hex::<3>(text).ok_or_else(|| {
            Problem::new("is not a MAC prefix", "write three pairs of hex digits, as in `BC:24:11`")
        })?;
        if bytes[0] & 1 == 1 {
            return Err(Problem::new(
                "is a multicast prefix",
                "make the second digit even, as in `BC:24:11`",
            ));
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}")
    }
}

impl From<MacPrefix> for String {
    fn from(prefix: MacPrefix) -> Self {
        prefix.to_string()
    }
}

impl JsonSchema for MacPrefix {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MacPrefix".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The first three bytes of derived MAC addresses.",
            "type": "string",
            "pattern": "^[0-9A-Fa-f][02468ACEace]([:-][0-9A-Fa-f]{2}){2}$",
            "examples": ["BC:24:11"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_read_and_print() {
        for text in ["BC:24:11:2E:C8:00", "bc-24-11-2e-c8-00"] {
            assert_eq!(text.parse::<MacAddress>().expect(text).to_string(), "bc:24:11:2e:c8:00");
        }
    }

    #[test]
    fn multicast_is_refused() {
        assert!("01:00:5e:00:00:01".parse::<MacAddress>().is_err());
        for text in ["", "bc:24:11:2e:c8", "bc:24:11:2e:c8:00:00", "bc:24:11:2e:c8:0", "bc:24:11:2e:c8:+1"] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn counting_up_stops_at_the_end_of_the_prefix() {
        let mac: MacAddress = "bc:24:11:ff:ff:fe".parse().expect("mac");
        assert_eq!(mac.checked_add(1).expect("one more").to_string(), "bc:24:11:ff:ff:ff");
        assert_eq!(mac.checked_add(2), None);
    }
}
