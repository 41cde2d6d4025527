//! What makes a VM ours: its VMID, and the SMBIOS uuid and MACs that follow from its name.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{MacAddress, Problem, net::MacPrefix};

/// The number of a VM, unique in a Proxmox cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmId(u32);

impl VmId {
    /// Smallest number Proxmox takes.
    pub const MIN: u32 = 100;
    /// Largest number Proxmox takes.
    pub const MAX: u32 = 999_999_999;

    /// Makes a VMID if Proxmox would take the number.
    pub const fn new(number: u32) -> Option<Self> {
        if number >= Self::MIN && number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// Returns the number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl FromStr for VmId {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Problem::new("is not a VMID", "write a whole number from 100 to 999999999"));
        }
        if text.len() > 1 && text.starts_with('0') {
            return Err(Problem::new(
                "starts with a zero, which other YAML readers take for an octal number",
                format!("write `{}`", text.trim_start_matches('0')),
            ));
        }
        text.parse().ok().and_then(Self::new).ok_or_else(|| {
            Problem::new("is outside what Proxmox takes", "write a whole number from 100 to 999999999")
        })
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JsonSchema for VmId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VmId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": Self::MIN, "maximum": Self::MAX })
    }
}

/// The uuid in a VM's SMBIOS table, which the guest sees as its system uuid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SmbiosUuid([u8; 16]);

impl fmt::Display for SmbiosUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SmbiosUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SmbiosUuid({self})")
    }
}

impl FromStr for SmbiosUuid {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::new("is not a uuid", "write 32 hex digits in groups of 8-4-4-4-12");
        let groups: Vec<&str> = text.split('-').collect();
        if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
            return Err(wrong());
        }
        let digits = groups.concat();
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for SmbiosUuid {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|problem: Problem| format!("`{text}` {}", problem.message))
    }
}

impl From<SmbiosUuid> for String {
    fn from(uuid: SmbiosUuid) -> Self {
        uuid.to_string()
    }
}

/// What the uuid and the MACs of a machine follow from.
///
/// Nothing here is read back from anywhere: whoever has the inventory can compute the identity of
/// every machine again, so no state file has to survive for a VM to be recognised.
#[derive(Debug, Clone, Copy)]
pub struct Seed<'a> {
    /// The cluster's `id`, by default its name.
    pub cluster: &'a str,
    /// The machine's name.
    pub machine: &'a str,
    /// 1 for the first VM of that name, counted up by each replacement.
    pub generation: u32,
}

impl Seed<'_> {
    /// Derives the SMBIOS uuid: version 8 (RFC 9562) over a SHA-256.
    pub fn uuid(&self) -> SmbiosUuid {
        let hash = self.hash("uuid", 0);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        SmbiosUuid(bytes)
    }

    /// Derives the MAC of one network card: locally administered (46 free bits), or under a prefix
    /// (24 free bits). `attempt` moves on to the next candidate when one is taken.
    pub fn mac(&self, nic: usize, prefix: Option<MacPrefix>, attempt: u32) -> MacAddress {
        let hash = self.hash(&format!("nic{nic}"), attempt);
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&hash[..6]);
        match prefix {
            Some(prefix) => bytes[..3].copy_from_slice(&prefix.bytes()),
            None => bytes[0] = (bytes[0] & 0xfc) | 0x02,
        }
        MacAddress::unicast(bytes)
    }

    fn hash(&self, purpose: &str, attempt: u32) -> [u8; 32] {
        let mut hasher = Sha256::new();
        // A length before each part keeps ("ab", "c") and ("a", "bc") apart.
        for part in ["ichor", purpose, self.cluster, self.machine] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.update(self.generation.to_be_bytes());
        hasher.update(attempt.to_be_bytes());
        hasher.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CP1: Seed<'_> = Seed { cluster: "homelab", machine: "cp-1", generation: 1 };

    #[test]
    fn identity_never_changes_between_releases() {
        // A release that derived other values would disown every VM in the field.
        assert_eq!(CP1.uuid().to_string(), "42031b72-c15d-8c0e-bd95-92b795bb558c");
        assert_eq!(CP1.mac(0, None, 0).to_string(), "42:5d:9a:64:9b:0f");
        let prefix = "BC:24:11".parse().expect("prefix");
        assert_eq!(CP1.mac(0, Some(prefix), 0).to_string(), "bc:24:11:64:9b:0f");
    }

    #[test]
    fn identity_depends_on_every_part() {
        let others = [
            Seed { cluster: "homela", machine: "bcp-1", ..CP1 },
            Seed { machine: "cp-2", ..CP1 },
            Seed { generation: 2, ..CP1 },
        ];
        for other in others {
            assert_ne!(other.uuid(), CP1.uuid());
            assert_ne!(other.mac(0, None, 0), CP1.mac(0, None, 0));
        }
        assert_ne!(CP1.mac(0, None, 0), CP1.mac(1, None, 0));
        assert_ne!(CP1.mac(0, None, 0), CP1.mac(0, None, 1));
    }

    #[test]
    fn derived_macs_are_local_unicast() {
        for i in 0..1000 {
            let name = format!("worker-{i}");
            let first = Seed { machine: &name, ..CP1 }.mac(0, None, 0).bytes()[0];
            assert_eq!(first & 0b11, 0b10, "{name}");
        }
    }

    #[test]
    fn vmids_that_proxmox_refuses_are_refused() {
        assert!("100".parse::<VmId>().is_ok() && "999999999".parse::<VmId>().is_ok());
        for text in ["99", "1000000000", "0401", "0x191", "4e2", "1_000", "-5", "", "99999999999999999999"] {
            assert!(text.parse::<VmId>().is_err(), "{text}");
        }
    }

    #[test]
    fn uuids_read_back() {
        assert_eq!(CP1.uuid().to_string().parse(), Ok(CP1.uuid()));
        for text in ["", "x", "0000000-00000-0000-0000-000000000000", "zzzzzzzz-0000-0000-0000-000000000000"]
        {
            assert!(text.parse::<SmbiosUuid>().is_err(), "{text}");
        }
    }
}
