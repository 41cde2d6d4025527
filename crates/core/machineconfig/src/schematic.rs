//! Schematics: the recipes of the Image Factory, and their ids, without asking the factory.
//!
//! The id is the SHA-256 of the recipe's canonical YAML. What the factory answers still counts: a
//! factory with accounts adds the owner, and so has other ids.

use std::collections::BTreeSet;

use ichor_model::{Minor, desired::Image};
use sha2::{Digest, Sha256};

use crate::scalar::{Dialect, is_release_dependent, scalar};

/// A recipe for images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schematic {
    /// Whose it is; only factories with accounts know owners.
    pub owner: String,
    /// What a single-board computer needs; never a VM.
    pub overlay: Option<Overlay>,
    /// A machine config inside the image, from Talos 1.12 on.
    pub embedded_config: String,
    /// Kernel arguments, in order; one that begins with `-` is taken away.
    pub kernel_args: Vec<String>,
    /// Values of the META partition, in order.
    pub meta: Vec<MetaValue>,
    /// Official extensions, in order: the order changes the id.
    pub extensions: Vec<String>,
    /// The boot loader, if not the usual one.
    pub bootloader: Option<Bootloader>,
    /// When secure-boot keys are enrolled, if not as usual.
    pub enroll_keys: Option<EnrollKeys>,
    /// Whether Microsoft's certificates are enrolled too.
    pub well_known_certificates: bool,
    /// The sector size of disk images; 0 for the usual 512.
    pub sector_size: u32,
}

/// The overlay of a single-board computer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The image it comes from.
    pub image: String,
    /// Its name in there.
    pub name: String,
}

/// A value of the META partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaValue {
    /// Its key.
    pub key: u8,
    /// The value.
    pub value: String,
}

/// A boot loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bootloader {
    /// systemd-boot for UEFI, GRUB for BIOS.
    DualBoot,
    /// systemd-boot.
    SdBoot,
    /// GRUB.
    Grub,
}

impl Bootloader {
    /// Returns the factory's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::DualBoot => "dual-boot",
            Self::SdBoot => "sd-boot",
            Self::Grub => "grub",
        }
    }
}

/// When secure-boot keys are enrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnrollKeys {
    /// Never.
    Off,
    /// When somebody chooses it in the boot menu.
    Manual,
    /// In virtual machines.
    IfSafe,
    /// Always.
    Force,
}

impl EnrollKeys {
    /// Returns the factory's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Manual => "manual",
            Self::IfSafe => "if-safe",
            Self::Force => "force",
        }
    }
}

impl Schematic {
    /// Returns the recipe of an image: its extensions, sorted and each once, and its kernel arguments.
    ///
    /// Secure boot is no part of it: signed images have paths of their own under the same id.
    pub fn of_image(image: &Image) -> Self {
        let extensions: BTreeSet<&String> = image.extensions.iter().collect();
        Self {
            kernel_args: image.kernel_args.clone(),
            extensions: extensions.into_iter().cloned().collect(),
            ..Self::default()
        }
    }

    /// Adds a value of the META partition.
    #[must_use]
    pub fn with_meta(mut self, key: u8, value: impl Into<String>) -> Self {
        self.meta.push(MetaValue { key, value: value.into() });
        self
    }

    /// Returns the id: lower-case hex of the SHA-256 of the canonical YAML.
    pub fn id(&self) -> String {
        Sha256::digest(self.canonical_yaml()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the canonical YAML: what the factory hashes, and what can be posted to it.
    pub fn canonical_yaml(&self) -> String {
        let mut out = String::new();
        push(&mut out, 0, "owner", &self.owner);
        if let Some(overlay) = &self.overlay {
            out.push_str("overlay:\n");
            out.push_str(&format!("    image: {}\n", text(&overlay.image, 8)));
            out.push_str(&format!("    name: {}\n", text(&overlay.name, 8)));
        }
        match self.customization() {
            empty if empty.is_empty() => out.push_str("customization: {}\n"),
            customization => {
                out.push_str("customization:\n");
                out.push_str(&customization);
            }
        }
        out
    }

    fn customization(&self) -> String {
        let mut out = String::new();
        push(&mut out, 4, "embeddedMachineConfiguration", &self.embedded_config);
        push_list(&mut out, 4, "extraKernelArgs", &self.kernel_args);
        if !self.meta.is_empty() {
            out.push_str("    meta:\n");
        }
        for MetaValue { key, value } in &self.meta {
            out.push_str(&format!("        - key: {key}\n          value: {}\n", text(value, 12)));
        }
        if !self.extensions.is_empty() {
            out.push_str("    systemExtensions:\n");
            push_list(&mut out, 8, "officialExtensions", &self.extensions);
        }
        push(&mut out, 4, "bootloader", self.bootloader.map_or("", Bootloader::word));
        out.push_str(&self.secureboot());
        if self.sector_size != 0 {
            out.push_str(&format!("    diskImage:\n        sectorSize: {}\n", self.sector_size));
        }
        out
    }

    fn secureboot(&self) -> String {
        let mut out = String::new();
        push(&mut out, 8, "enrollKeys", self.enroll_keys.map_or("", EnrollKeys::word));
        if self.well_known_certificates {
            out.push_str("        includeWellKnownCertificates: true\n");
        }
        if out.is_empty() { out } else { format!("    secureboot:\n{out}") }
    }

    /// Whether factories of different releases may give this recipe different ids.
    ///
    /// They differ in how they quote words such as `off`, which YAML 1.1 took for switches, numbers such
    /// as `12:30`, and text that begins with a newline.
    pub fn is_release_dependent(&self) -> bool {
        let overlay = self.overlay.iter().flat_map(|overlay| [&overlay.image, &overlay.name]);
        let meta = self.meta.iter().map(|meta| &meta.value);
        let texts = [&self.owner, &self.embedded_config].into_iter().chain(overlay).chain(meta);
        texts.chain(&self.kernel_args).chain(&self.extensions).any(|text| is_release_dependent(text))
            || self.enroll_keys == Some(EnrollKeys::Off)
    }
}

/// Returns the id of an image's schematic: the one the user gave, or else that of its recipe.
pub fn image_id(image: &Image) -> String {
    image.schematic.clone().unwrap_or_else(|| Schematic::of_image(image).id())
}

/// Returns the installer for machines that run an image. It carries no META, so its recipe is that of the
/// image without it.
pub fn installer(image: &Image) -> String {
    let factory = image.factory.split_once("://").map_or(image.factory.as_str(), |(_, host)| host);
    let factory = factory.trim_end_matches('/');
    let flavour = if image.secureboot { "-secureboot" } else { "" };
    // From 1.10 on there is an installer for each platform.
    let kind = if image.talos.minor() >= Minor::new(1, 10) {
        format!("{}-installer{flavour}", image.platform)
    } else {
        format!("installer{flavour}")
    };
    format!("{factory}/{kind}/{}:{}", image_id(image), image.talos)
}

fn text(text: &str, column: usize) -> String {
    scalar(text, column, Dialect::Factory)
}

/// Writes a value, unless it is empty.
fn push(out: &mut String, column: usize, key: &str, value: &str) {
    if !value.is_empty() {
        out.push_str(&format!("{:column$}{key}: {}\n", "", text(value, column + 4)));
    }
}

/// Writes a list, unless it is empty. A block in it begins after the dash.
fn push_list(out: &mut String, column: usize, key: &str, values: &[String]) {
    if values.is_empty() {
        return;
    }
    out.push_str(&format!("{:column$}{key}:\n", ""));
    for value in values {
        out.push_str(&format!("{:column$}    - {}\n", "", text(value, column + 6)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extensions(names: &[&str]) -> Schematic {
        let extensions = names.iter().map(|name| format!("siderolabs/{name}")).collect();
        Schematic { extensions, ..Schematic::default() }
    }

    fn args(args: &[&str]) -> Schematic {
        Schematic { kernel_args: args.iter().map(|arg| (*arg).into()).collect(), ..Schematic::default() }
    }

    fn meta(value: &str) -> Schematic {
        Schematic::default().with_meta(10, value)
    }

    /// Vectors 1 to 6 are from the factory's own tests, 7 to 10 from its documentation and from public
    /// use, 11 to 13 were made with the Go encoder.
    #[test]
    fn ids_are_those_of_the_factory() {
        const NETWORK: &str = "addresses:\n    - address: 10.0.0.11/16\n      linkName: eth0\n      family: inet4\n      scope: global\n      flags: permanent\n      layer: platform\n";
        let overlay = Overlay { image: "siderolabs/sbc-raspberrypi".into(), name: "rpi_generic".into() };
        let vectors = [
            (Schematic::default(), "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"),
            (
                args(&["noapic", "nolapic"]),
                "9cba8e32753f91a16c1837ab8abf356af021706ef284aef07380780177d9a06c",
            ),
            (meta("foo"), "d308a2a5ee2277bed5fbaa104fcbc8d59122abfa737df987a95b4ca763459a7f"),
            (
                Schematic { overlay: Some(overlay), ..Schematic::default() },
                "ee21ef4a5ef808a9b7484cc0dda0f25075021691c8c09a276591eedb638ea1f9",
            ),
            (
                Schematic { well_known_certificates: true, ..Schematic::default() },
                "fa8e05f142a851d3ee568eb0a8e5841eaf6b0ebc8df9a63df16ac5ed2c04f3e6",
            ),
            (
                Schematic { sector_size: 4096, ..Schematic::default() },
                "92833e9ddd9bb9e11b2464fa5525429f01866306d52ebd882ee08d7918f6d1ea",
            ),
            (
                extensions(&["qemu-guest-agent"]),
                "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
            ),
            (
                extensions(&["iscsi-tools", "util-linux-tools"]),
                "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245",
            ),
            (
                extensions(&["iscsi-tools", "qemu-guest-agent", "util-linux-tools"]),
                "88d1f7a5c4f1d3aba7df787c448c1d3d008ed29cfb34af53fa0df4336a56040b",
            ),
            (
                Schematic {
                    kernel_args: vec!["net.ifnames=0".into()],
                    ..extensions(&["gvisor", "intel-ucode"])
                },
                "b8e8fbbe1b520989e6c52c8dc8303070cb42095997e76e812fa8892393e1d176",
            ),
            (meta(NETWORK), "5f39a5a1be9e84ee3743a43cc0b3f441fb746c7f67059aab30268ea7d88906e8"),
            (
                meta(r#"{"addresses":[{"address":"10.0.0.11/16"}]}"#),
                "ece280077adc75e01c0f5c32712b0dd70e85c71577ec2281f73d0008a24de4d2",
            ),
            (meta("a: b\nc: d"), "cb0b6ebf41ce94313e037b3298e1d9503d794ab8c9f7f97ef194e8b8ab70b43e"),
            (args(&["vga=791"]), "eea1f9534c46d95c4715a2f13d17eacb927c13a42ef087c79b22c3bd0c49d073"),
        ];
        for (i, (schematic, id)) in vectors.iter().enumerate() {
            assert_eq!(schematic.id(), *id, "vector {}:\n{}", i + 1, schematic.canonical_yaml());
        }
    }

    #[test]
    fn every_field_has_its_place() {
        let schematic = Schematic {
            owner: "me".into(),
            overlay: Some(Overlay { image: "i".into(), name: String::new() }),
            embedded_config: "version: v1alpha1\n".into(),
            kernel_args: vec!["-init_on_alloc".into(), "a: b".into()],
            meta: vec![MetaValue { key: 12, value: "1".into() }],
            extensions: vec!["siderolabs/x".into()],
            bootloader: Some(Bootloader::SdBoot),
            enroll_keys: Some(EnrollKeys::Force),
            well_known_certificates: true,
            sector_size: 4096,
        };
        assert_eq!(
            schematic.canonical_yaml(),
            r#"owner: me
overlay:
    image: i
    name: ""
customization:
    embeddedMachineConfiguration: |
        version: v1alpha1
    extraKernelArgs:
        - -init_on_alloc
        - 'a: b'
    meta:
        - key: 12
          value: "1"
    systemExtensions:
        officialExtensions:
            - siderolabs/x
    bootloader: sd-boot
    secureboot:
        enrollKeys: force
        includeWellKnownCertificates: true
    diskImage:
        sectorSize: 4096
"#
        );
    }

    #[test]
    fn doubtful_ids_are_known_as_such() {
        assert!(args(&["on"]).is_release_dependent());
        assert!(meta("\nx").is_release_dependent());
        assert!(
            Schematic { enroll_keys: Some(EnrollKeys::Off), ..Schematic::default() }.is_release_dependent()
        );
        assert!(
            !args(&["console=ttyS0,115200", "-selinux", "ip=10.0.0.2::10.0.0.1:24"]).is_release_dependent()
        );
    }
}
