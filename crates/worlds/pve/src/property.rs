//! Property strings: comma-separated settings in one parameter, such as `virtio=BC:24:...,bridge=vmbr0`.
//!
//! What is read back differs from what was sent (defaults, order, added sizes), so they are compared as values.

use std::{collections::BTreeMap, fmt};

/// A property string, split into its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// The part without a key, which comes first.
    first: Option<String>,
    parts: BTreeMap<String, String>,
}

impl Properties {
    /// Splits a text. Parts that make no sense are kept as keys without a value, and never match anything.
    pub fn parse(text: &str) -> Self {
        let mut properties = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((key, value)) => drop(properties.parts.insert(key.to_owned(), value.to_owned())),
                None if properties.first.is_none() => properties.first = Some(part.to_owned()),
                None => drop(properties.parts.insert(part.to_owned(), String::new())),
            }
        }
        properties
    }

    /// Begins with a part that has no key.
    pub fn starting_with(first: impl fmt::Display) -> Self {
        Self { first: Some(first.to_string()), parts: BTreeMap::new() }
    }

    /// Adds a part.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.parts.insert(key.to_owned(), value.to_string());
        self
    }

    /// Adds a part that may be absent.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Returns the part without a key.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Returns a part.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.parts.get(key).map(String::as_str)
    }

    /// Returns the parts that have a key, in order.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether a switch is on; inside property strings many words mean so.
    pub fn is_on(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| {
            ["1", "on", "yes", "true"].iter().any(|word| word.eq_ignore_ascii_case(value))
        })
    }
}

impl fmt::Display for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first.clone().into_iter();
        let parts = self.parts.iter().map(|(key, value)| format!("{key}={value}"));
        let all: Vec<String> = first.chain(parts).collect();
        f.pad(&all.join(","))
    }
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkCard {
    /// The emulated model.
    pub model: String,
    /// The MAC address.
    pub mac: String,
    /// The bridge.
    pub bridge: String,
    /// The VLAN.
    pub vlan: Option<u16>,
    /// The MTU; 1 is the bridge's own.
    pub mtu: Option<u16>,
    /// Packet queues.
    pub queues: Option<u16>,
    /// Whether the firewall filters it.
    pub firewall: bool,
}

/// The models that Proxmox knows, any of which may be the key that holds the MAC address.
const MODELS: [&str; 5] = ["virtio", "e1000", "e1000e", "vmxnet3", "rtl8139"];

impl NetworkCard {
    /// Reads a card from a VM's config. Nothing: it is of a kind that ichor never makes.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = Properties::parse(text);
        let (model, mac) = match (parts.get("model"), parts.get("macaddr")) {
            (Some(model), Some(mac)) => (model, mac),
            _ => MODELS.iter().find_map(|model| Some((*model, parts.get(model)?)))?,
        };
        Some(Self {
            model: model.to_owned(),
            mac: mac.to_ascii_lowercase(),
            bridge: parts.get("bridge")?.to_owned(),
            vlan: parts.get("tag").and_then(|tag| tag.parse().ok()),
            mtu: parts.get("mtu").and_then(|mtu| mtu.parse().ok()),
            queues: parts.get("queues").and_then(|queues| queues.parse().ok()),
            firewall: parts.is_on("firewall"),
        })
    }
}

impl fmt::Display for NetworkCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = Properties::default()
            .with(&self.model, self.mac.to_ascii_uppercase())
            .with("bridge", &self.bridge)
            .with_some("tag", self.vlan)
            .with_some("mtu", self.mtu)
            .with_some("queues", self.queues)
            .with_some("firewall", self.firewall.then_some(1));
        f.pad(&parts.to_string())
    }
}

/// What stands behind a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriveSource {
    /// A new, empty disk on a storage, in GiB.
    New {
        /// The storage.
        storage: String,
        /// Its size.
        gib: u64,
    },
    /// A copy of an image, as large as the image.
    Import {
        /// The storage.
        storage: String,
        /// The volume it is copied from.
        from: String,
    },
    /// A volume that is there.
    Volume(String),
    /// An empty optical drive.
    Empty,
}

/// A disk or an optical drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// What stands behind it.
    pub source: DriveSource,
    /// Everything else that was said about it.
    pub options: Properties,
}

impl Drive {
    /// Makes a drive without options.
    pub fn new(source: DriveSource) -> Self {
        Self { source, options: Properties::default() }
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.options = self.options.with(key, value);
        self
    }

    /// Reads a drive from a VM's config, where every drive has a volume.
    pub fn parse(text: &str) -> Option<Self> {
        let mut options = Properties::parse(text);
        let file = options.first.take().or_else(|| options.parts.remove("file"))?;
        let source = if file == "none" { DriveSource::Empty } else { DriveSource::Volume(file) };
        Some(Self { source, options })
    }

    /// Returns the storage of its volume.
    pub fn storage(&self) -> Option<&str> {
        match &self.source {
            DriveSource::New { storage, .. } | DriveSource::Import { storage, .. } => Some(storage),
            DriveSource::Volume(volume) => Some(volume.split_once(':')?.0),
            DriveSource::Empty => None,
        }
    }

    /// Returns its size in bytes, as the server wrote it into the config.
    pub fn size(&self) -> Option<u64> {
        let size = self.options.get("size")?;
        let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: f64 = digits.parse().ok()?;
        let unit = match &size[digits.len()..] {
            "" => 1_u64,
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            _ => return None,
        };
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        (number >= 0.0 && number.is_finite()).then_some((number * unit as f64) as u64)
    }

    /// Whether it is an optical drive.
    pub fn is_optical(&self) -> bool {
        self.options.get("media") == Some("cdrom")
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.options.clone();
        parts.first = Some(match &self.source {
            DriveSource::New { storage, gib } => format!("{storage}:{gib}"),
            DriveSource::Import { storage, from } => {
                parts.parts.insert("import-from".into(), from.clone());
                format!("{storage}:0")
            }
            DriveSource::Volume(volume) => volume.clone(),
            DriveSource::Empty => "none".into(),
        });
        f.pad(&parts.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_survives_its_way_through_a_config() {
        let card = NetworkCard {
            model: "virtio".into(),
            mac: "bc:24:11:00:00:01".into(),
            bridge: "vmbr0".into(),
            vlan: Some(20),
            mtu: None,
            queues: None,
            firewall: true,
        };
        assert_eq!(card.to_string(), "bridge=vmbr0,firewall=1,tag=20,virtio=BC:24:11:00:00:01");
        assert_eq!(NetworkCard::parse(&card.to_string()), Some(card.clone()));
        let echoed = "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=20";
        assert_eq!(NetworkCard::parse(echoed), Some(card));
    }

    #[test]
    fn drives_are_written_for_creation_and_read_from_configs() {
        let import = DriveSource::Import { storage: "data".into(), from: "local:import/talos.qcow2".into() };
        let drive = Drive::new(import).with("discard", "on").with("ssd", 1);
        assert_eq!(drive.to_string(), "data:0,discard=on,import-from=local:import/talos.qcow2,ssd=1");
        let read = Drive::parse("data:401/vm-401-disk-0.raw,discard=on,size=40G,ssd=1").expect("drive");
        assert_eq!((read.storage(), read.size()), (Some("data"), Some(40 << 30)));
        assert_eq!(Drive::parse("x:1,size=4.5M").and_then(|drive| drive.size()), Some(4_718_592));
        assert!(Drive::parse("none,media=cdrom").expect("drive").is_optical());
    }
}
