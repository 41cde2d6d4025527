//! Schematics as clients post them.

use ichor_machineconfig::schematic::{Bootloader, EnrollKeys, MetaValue, Overlay, Schematic};
use serde::Deserialize;

use super::{Failure, catalogue};

/// A schematic as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipe {
    /// What it says.
    pub schematic: Schematic,
}

impl Recipe {
    /// Whether its kernel arguments leave cards the names that the kernel gives them.
    pub fn has_plain_names(&self) -> bool {
        self.schematic.kernel_args.iter().any(|arg| arg == "net.ifnames=0")
    }

    /// Reads YAML, of which JSON is a part. Unknown fields are errors, and so is more than one document.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(body).map_err(|_| "schematic is not UTF-8 text".to_owned())?;
        let posted: Option<Posted> = if text.trim().is_empty() {
            None
        } else {
            serde_saphyr::from_str(text).map_err(|error| format!("error decoding schematic: {error}"))?
        };
        posted.unwrap_or_default().into_recipe()
    }

    /// Returns the id.
    pub fn id(&self) -> String {
        self.schematic.id()
    }

    /// Returns the canonical YAML, of which the id is the hash.
    pub fn canonical_yaml(&self) -> String {
        self.schematic.canonical_yaml()
    }

    /// Says which extension a release lacks. The factory looks only when an image is asked for.
    pub(super) fn check_extensions(&self, version: &str) -> Result<(), Failure> {
        let missing = self.schematic.extensions.iter().find(|name| !catalogue::has_extension(version, name));
        match missing {
            None => Ok(()),
            Some(name) => Err((
                400,
                format!(
                    "error enhancing profile from schematic: official extension {name:?} is not available for Talos \
                     version {version}"
                ),
            )),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Posted {
    owner: Option<String>,
    overlay: Option<PostedOverlay>,
    customization: Option<Customization>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PostedOverlay {
    image: Option<String>,
    name: Option<String>,
    options: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Customization {
    embedded_machine_configuration: Option<String>,
    extra_kernel_args: Option<Vec<String>>,
    meta: Option<Vec<PostedMeta>>,
    system_extensions: Option<SystemExtensions>,
    bootloader: Option<String>,
    secureboot: Option<SecureBoot>,
    disk_image: Option<DiskImage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PostedMeta {
    key: u8,
    value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct SystemExtensions {
    official_extensions: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct SecureBoot {
    enroll_keys: Option<String>,
    include_well_known_certificates: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct DiskImage {
    sector_size: Option<u32>,
}

impl Posted {
    fn into_recipe(self) -> Result<Recipe, String> {
        if self.owner.is_some_and(|owner| !owner.is_empty()) {
            return Err("schematic owner is not supported: enterprise not enabled".into());
        }
        let custom = self.customization.unwrap_or_default();
        let secureboot = custom.secureboot.unwrap_or_default();
        let meta = custom.meta.unwrap_or_default();
        Ok(Recipe {
            schematic: Schematic {
                owner: String::new(),
                overlay: self.overlay.map(PostedOverlay::into_overlay).transpose()?.flatten(),
                embedded_config: custom.embedded_machine_configuration.unwrap_or_default(),
                kernel_args: custom.extra_kernel_args.unwrap_or_default(),
                meta: meta.into_iter().map(|PostedMeta { key, value }| MetaValue { key, value }).collect(),
                extensions: custom
                    .system_extensions
                    .unwrap_or_default()
                    .official_extensions
                    .unwrap_or_default(),
                bootloader: custom.bootloader.as_deref().map(bootloader).transpose()?,
                enroll_keys: secureboot.enroll_keys.as_deref().map(enroll_keys).transpose()?,
                well_known_certificates: secureboot.include_well_known_certificates.unwrap_or(false),
                sector_size: custom.disk_image.unwrap_or_default().sector_size.unwrap_or(0),
            },
        })
    }
}

impl PostedOverlay {
    fn into_overlay(self) -> Result<Option<Overlay>, String> {
        if self.options.is_some_and(|options| !options.is_empty()) {
            // Options are part of the id, and only boards have them: the lab has no boards.
            return Err("overlay options are not known here".into());
        }
        let overlay = Overlay { image: self.image.unwrap_or_default(), name: self.name.unwrap_or_default() };
        Ok((!overlay.image.is_empty() || !overlay.name.is_empty()).then_some(overlay))
    }
}

fn bootloader(word: &str) -> Result<Bootloader, String> {
    let all = [Bootloader::DualBoot, Bootloader::SdBoot, Bootloader::Grub];
    all.into_iter()
        .find(|known| known.word() == word)
        .ok_or_else(|| format!("{word} does not belong to BootloaderKind values"))
}

fn enroll_keys(word: &str) -> Result<EnrollKeys, String> {
    let all = [EnrollKeys::Off, EnrollKeys::Manual, EnrollKeys::IfSafe, EnrollKeys::Force];
    all.into_iter()
        .find(|known| known.word() == word)
        .ok_or_else(|| format!("invalid value for enrollKeys: {word:?}"))
}
