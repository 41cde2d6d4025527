//! What can be asked for.

use std::fmt;

use ichor_model::{
    TalosVersion,
    desired::{Arch, Image, ImageSource, Platform},
};
use ichor_port::percent;

/// What an image file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Installation media.
    Iso,
    /// A disk, as Proxmox imports it.
    Qcow2,
    /// A disk, byte for byte.
    Raw,
}

impl Form {
    const fn ending(self) -> &'static str {
        match self {
            Self::Iso => "iso",
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

/// An image file of a schematic and a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// The platform it is built for.
    pub platform: Platform,
    /// The processor it is built for.
    pub arch: Arch,
    /// Whether it is signed for secure boot.
    pub secureboot: bool,
    /// What it is.
    pub form: Form,
}

impl Asset {
    /// Returns the file that a cluster's image is made of.
    pub fn of(image: &Image) -> Self {
        let form = match image.source {
            ImageSource::Iso => Form::Iso,
            ImageSource::Disk | ImageSource::Template => Form::Qcow2,
        };
        Self { platform: image.platform, arch: image.arch, secureboot: image.secureboot, form }
    }

    /// Returns the path of the file at a factory.
    pub fn path(&self, schematic: &str, talos: &TalosVersion) -> String {
        format!("/image/{}/{}/{self}", percent(schematic), percent(&talos.to_string()))
    }

    /// Returns where a factory, such as `https://factory.talos.dev`, has the file.
    pub fn url(&self, factory: &str, schematic: &str, talos: &TalosVersion) -> String {
        format!("{}{}", factory.trim_end_matches('/'), self.path(schematic, talos))
    }
}

impl fmt::Display for Asset {
    /// Writes the file name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flavour = if self.secureboot { "-secureboot" } else { "" };
        f.pad(&format!("{}-{}{flavour}.{}", self.platform, self.arch, self.form.ending()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_factorys_names() {
        let asset =
            Asset { platform: Platform::Nocloud, arch: Arch::Amd64, secureboot: false, form: Form::Qcow2 };
        let talos: TalosVersion = "v1.13.9".parse().expect("a version");
        let url = asset.url("https://factory.example/", "abc", &talos);
        assert_eq!(url, "https://factory.example/image/abc/v1.13.9/nocloud-amd64.qcow2");
        let signed =
            Asset { platform: Platform::Metal, arch: Arch::Arm64, secureboot: true, form: Form::Iso };
        assert_eq!(signed.to_string(), "metal-arm64-secureboot.iso");
        assert_eq!(Asset { form: Form::Raw, ..asset }.to_string(), "nocloud-amd64.raw");
    }

    #[test]
    fn an_id_cannot_lead_elsewhere() {
        let asset =
            Asset { platform: Platform::Metal, arch: Arch::Amd64, secureboot: false, form: Form::Iso };
        let talos: TalosVersion = "v1.13.9".parse().expect("a version");
        assert_eq!(asset.path("../versions?", &talos), "/image/..%2Fversions%3F/v1.13.9/metal-amd64.iso");
    }
}
