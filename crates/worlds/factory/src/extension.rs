//! System extensions of a release.

use serde::Deserialize;

/// An official extension, as it is for one release.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Extension {
    /// Its name, such as `siderolabs/qemu-guest-agent`.
    pub name: String,
    /// The container image that it is.
    #[serde(default, rename = "ref")]
    pub reference: String,
    /// That image's digest.
    #[serde(default)]
    pub digest: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
}

/// Names that the factory takes for others: those were renamed, or wrong from the beginning.
const ALIASES: [(&str, &str); 9] = [
    ("siderolabs/gasket", "siderolabs/gasket-driver"),
    ("siderolabs/i915-ucode", "siderolabs/i915"),
    ("siderolabs/nonfree-kmod-nvidia", "siderolabs/nonfree-kmod-nvidia-lts"),
    ("siderolabs/nvidia-container-toolkit", "siderolabs/nvidia-container-toolkit-lts"),
    ("siderolabs/nvidia-open-gpu-kernel-modules", "siderolabs/nvidia-open-gpu-kernel-modules-lts"),
    ("siderolabs/talos-vmtoolsd", "siderolabs/vmtoolsd-guest-agent"),
    ("siderolabs/usb-modem", "siderolabs/usb-modem-drivers"),
    ("siderolabs/v4l-uvc", "siderolabs/v4l-uvc-drivers"),
    ("siderolabs/xe-guest-utilities", "siderolabs/xen-guest-agent"),
];

/// Returns which of the wanted extensions a release does not have, in the order in which they are wanted.
pub fn missing<'w>(wanted: &'w [String], offered: &[Extension]) -> Vec<&'w str> {
    let has = |name: &str| offered.iter().any(|extension| extension.name == name);
    let alias = |name: &str| ALIASES.iter().find(|(old, _)| *old == name).map(|(_, new)| *new);
    let lacks = |name: &&str| !has(name) && !alias(name).is_some_and(has);
    wanted.iter().map(String::as_str).filter(lacks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_extensions_are_not_missed() {
        let offered: Vec<Extension> = serde_json::from_str(
            r#"[{"name": "siderolabs/i915", "ref": "ghcr.io/siderolabs/i915:1", "digest": "sha256:1",
                 "author": "Sidero Labs", "description": "Intel graphics."}, {"name": "siderolabs/zfs"}]"#,
        )
        .expect("extensions");
        let wanted = ["siderolabs/zfs", "siderolabs/i915-ucode", "siderolabs/gasket", "siderolabs/zsf"];
        let wanted = wanted.map(String::from);
        assert_eq!(missing(&wanted, &offered), ["siderolabs/gasket", "siderolabs/zsf"]);
    }
}
