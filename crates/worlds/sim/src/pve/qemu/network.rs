//! Network cards of a VM.

use std::fmt;

use super::property::{Properties, Shape};
use crate::random::Random;

const MODELS: [&str; 14] = [
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];

const SHAPE: Shape = Shape { main: "model", aliases: &[], flags: &["firewall", "link_down"] };

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Net {
    options: Properties,
}

impl Net {
    /// Reads a card: `virtio=<MAC>` says its model and address.
    pub fn read(text: &str) -> Self {
        let mut options = Properties::read(SHAPE, text);
        if let Some(model) = MODELS.into_iter().find(|model| options.get(model).is_some()) {
            let mac = options.remove(model).unwrap_or_default();
            options.set("model", model);
            options.set("macaddr", mac);
        }
        Self { options }
    }

    /// Gives it an address if it has none.
    #[must_use]
    pub fn with_mac(mut self, prefix: &str, random: &mut Random) -> Self {
        if self.mac().is_none() {
            self.set_mac(&random_mac(prefix, random));
        }
        self
    }

    /// Returns its address.
    pub fn mac(&self) -> Option<&str> {
        self.get("macaddr")
    }

    /// Sets its address.
    pub fn set_mac(&mut self, mac: &str) {
        self.options.set("macaddr", mac);
    }

    /// Returns an option.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.options.get(key)
    }

    /// Returns whether a boolean is set.
    pub fn flag(&self, key: &str) -> bool {
        self.options.flag(key)
    }

    /// Returns whether another card in its place can be told to a running VM without pulling it.
    pub fn changes_in_place(&self, new: &Self) -> bool {
        ["model", "macaddr", "queues", "mtu"].iter().all(|key| self.get(key) == new.get(key))
            && self.get("bridge").is_some()
            && new.get("bridge").is_some()
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.get("model").unwrap_or_default();
        match self.mac() {
            Some(mac) => write!(f, "{model}={mac}")?,
            None => write!(f, "{model}")?,
        }
        for (key, value) in self.options.iter().filter(|(key, _)| !["model", "macaddr"].contains(key)) {
            write!(f, ",{key}={value}")?;
        }
        Ok(())
    }
}

/// Returns a random address with a prefix such as `BC:24:11`.
pub fn random_mac(prefix: &str, random: &mut Random) -> String {
    let mut bytes: Vec<u8> =
        prefix.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).take(5).collect();
    while bytes.len() < 6 {
        let byte = random.bits().to_le_bytes()[0];
        // The first byte of a random address says that it is a single card's, and not a vendor's.
        bytes.push(if bytes.is_empty() { byte & 0xfc | 0x02 } else { byte });
    }
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    parts.join(":")
}

/// Returns whether a key of a VM config is a network card.
pub fn is_net(key: &str) -> bool {
    key.strip_prefix("net").is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number < 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_written_as_the_server_writes_it() {
        let net = Net::read("bridge=vmbr0,tag=5,virtio=02:AA:bb:CC:dd:01,firewall=1");
        assert_eq!(net.to_string(), "virtio=02:AA:bb:CC:dd:01,bridge=vmbr0,firewall=1,tag=5");
        let net = Net::read("e1000").with_mac("BC:24:11", &mut Random::new(1)).to_string();
        assert!(net.starts_with("e1000=BC:24:11:") && net.len() == "e1000=BC:24:11:00:00:00".len(), "{net}");
        assert_eq!(
            Net::read("model=virtio,macaddr=02:00:00:00:00:01").to_string(),
            "virtio=02:00:00:00:00:01"
        );
    }

    #[test]
    fn a_new_bridge_needs_no_new_card() {
        let old = Net::read("virtio=02:00:00:00:00:01,bridge=vmbr0");
        assert!(old.changes_in_place(&Net::read("virtio=02:00:00:00:00:01,bridge=vmbr1,tag=3")));
        assert!(!old.changes_in_place(&Net::read("e1000=02:00:00:00:00:01,bridge=vmbr0")));
    }
}
