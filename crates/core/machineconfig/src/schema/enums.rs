//! Fields that take one of several words.

/// The words of a field, and which of them Talos takes for "not set".
#[derive(Debug)]
pub struct Enum {
    /// The words, as Talos writes them.
    pub words: &'static [&'static str],
    /// The word of Talos' zero value, which a patch cannot set unless the field is optional.
    pub zero: Option<&'static str>,
    /// Words that came after the field, each with its first Talos 1.x.
    pub newer: &'static [(&'static str, u8)],
}

impl Enum {
    const fn new(words: &'static [&'static str]) -> Self {
        Self { words, zero: Some(words[0]), newer: &[] }
    }

    const fn without_zero(words: &'static [&'static str]) -> Self {
        Self { words, zero: None, newer: &[] }
    }

    const fn newer(self, newer: &'static [(&'static str, u8)]) -> Self {
        Self { newer, ..self }
    }

    /// Returns the first Talos 1.x that knows a word, as far as that is later than the field.
    pub fn since(&self, word: &str) -> u8 {
        self.newer.iter().find(|(newer, _)| *newer == word).map_or(0, |(_, since)| *since)
    }

    /// Returns the word as Talos writes it, whatever its case.
    pub fn find(&self, text: &str) -> Option<&'static str> {
        let lower = text.to_lowercase();
        self.words.iter().find(|word| word.to_lowercase() == lower).copied()
    }
}

pub const BOND_MODE: Enum = Enum::new(&[
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
]);
pub const XMIT_HASH_POLICY: Enum = Enum::new(&["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"]);
pub const ARP_VALIDATE: Enum =
    Enum::new(&["none", "active", "backup", "all", "filter", "filter-active", "filter-backup"]);
pub const ARP_ALL_TARGETS: Enum = Enum::new(&["any", "all"]);
pub const LACP_RATE: Enum = Enum::new(&["slow", "fast"]);
pub const AD_SELECT: Enum = Enum::new(&["stable", "bandwidth", "count"]);
pub const AD_LACP_ACTIVE: Enum = Enum::new(&["off", "on"]);
pub const PRIMARY_RESELECT: Enum = Enum::new(&["always", "better", "failure"]);
pub const FAIL_OVER_MAC: Enum = Enum::new(&["none", "active", "follow"]);
pub const CLIENT_IDENTIFIER: Enum = Enum::new(&["none", "mac", "duid"]);
pub const WAKE_ON_LAN: Enum =
    Enum::without_zero(&["phy", "unicast", "multicast", "broadcast", "magic", "magicsecure", "filter"]);
pub const AUTO_HOSTNAME: Enum = Enum::new(&["off", "talos-addr", "stable"]);
pub const DEFAULT_ACTION: Enum = Enum::new(&["accept", "block"]);
pub const PROTOCOL: Enum = Enum::without_zero(&["icmp", "tcp", "udp", "icmpv6"]);
pub const DNS_PROTOCOL: Enum = Enum::new(&["Do53", "DoT", "DoH"]);
pub const RULE_ACTION: Enum = Enum::new(&["unspec", "unicast", "blackhole", "unreachable", "prohibit"]);
pub const VLAN_PROTOCOL: Enum = Enum::without_zero(&["802.1q", "802.1ad"]);
pub const FILESYSTEM: Enum = Enum::new(&[
    "none", "xfs", "vfat", "ext4", "iso9660", "swapi", "virtiofs", "btrfs",
])
.newer(&[("swapi", 13), ("virtiofs", 13), ("btrfs", 14)]);
pub const ENCRYPTION_PROVIDER: Enum = Enum::new(&["none", "luks2"]);
pub const VOLUME_TYPE: Enum =
    Enum::new(&["partition", "disk", "tmpfs", "directory", "symlink", "overlay", "external"])
        .newer(&[("external", 13)]);
pub const LOGICAL_VOLUME: Enum = Enum::new(&["linear", "raid1", "raid0", "raid10"]);
pub const RAID_LEVEL: Enum = Enum::new(&["raid1"]);
pub const RAID_METADATA: Enum = Enum::new(&["1.0", "1.2"]);
