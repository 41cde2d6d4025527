//! Paths of assets, such as `nocloud-amd64-secureboot.qcow2`.

use flate2::{Compression, GzBuilder};
use std::io::Write as _;

use super::{image_file, recipe::Recipe};
use crate::ground::TalosImage;

/// What a path asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// The platform.
    pub platform: String,
    /// The processor.
    pub arch: String,
    /// Whether it is to be signed.
    pub secureboot: bool,
    kind: Kind,
    packing: Packing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Iso,
    Raw,
    Qcow2,
    Kernel,
    Initramfs,
    CommandLine,
    Uki,
    Installer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Xz,
    Zstd,
    TarGzip,
}

/// Platforms whose images can be asked for. Those but `metal` and `nocloud` boot nowhere in the lab.
const PLATFORMS: [&str; 20] = [
    "akamai",
    "aws",
    "azure",
    "cloudstack",
    "digital-ocean",
    "equinixMetal",
    "exoscale",
    "gcp",
    "hcloud",
    "metal",
    "nocloud",
    "opennebula",
    "openstack",
    "oracle",
    "scaleway",
    "upcloud",
    "vmware",
    "vultr",
    "yandex",
    "qemu",
];

impl Asset {
    /// Reads a path.
    pub fn parse(path: &str) -> Result<Self, String> {
        let fixed = |platform: &str, rest: &str, kind| {
            let (rest, secureboot) = cut_secureboot(rest);
            Self::new(platform, rest, secureboot, kind)
        };
        if let Some(rest) = path.strip_prefix("kernel-") {
            return fixed("metal", rest, Kind::Kernel);
        }
        if let Some(rest) = path.strip_prefix("cmdline-") {
            return Self::platform_arch(rest, Kind::CommandLine, Packing::None);
        }
        if let Some(rest) = path.strip_prefix("initramfs-").and_then(|rest| rest.strip_suffix(".xz")) {
            return fixed("metal", rest, Kind::Initramfs);
        }
        if let Some(rest) = path.strip_suffix(".iso") {
            return Self::platform_arch(rest, Kind::Iso, Packing::None);
        }
        if let Some(rest) = path.strip_suffix("-uki.efi") {
            return Self::platform_arch(rest, Kind::Uki, Packing::None);
        }
        if let Some(rest) = path.strip_suffix(".tar") {
            let (platform, rest) = rest.split_once("installer-").ok_or_else(|| invalid(path))?;
            let platform = if platform.is_empty() { "metal" } else { platform.trim_end_matches('-') };
            return fixed(platform, rest, Kind::Installer);
        }
        Self::disk(path)
    }

    /// Returns the asset of an installer image.
    pub fn installer(platform: &str, arch: &str, secureboot: bool) -> Result<Self, String> {
        Self::new(platform, arch, secureboot, Kind::Installer)
    }

    fn disk(path: &str) -> Result<Self, String> {
        let packings = [
            (".tar.gz", Packing::TarGzip),
            (".gz", Packing::Gzip),
            (".xz", Packing::Xz),
            (".zst", Packing::Zstd),
        ];
        let packed = packings.into_iter().find_map(|(end, packing)| Some((path.strip_suffix(end)?, packing)));
        let (rest, packing) = packed.unwrap_or((path, Packing::None));
        if let Some(rest) = rest.strip_suffix(".raw") {
            Self::platform_arch(rest, Kind::Raw, packing)
        } else if let Some(rest) = rest.strip_suffix(".qcow2") {
            Self::platform_arch(rest, Kind::Qcow2, packing)
        } else {
            Err(invalid(rest))
        }
    }

    fn platform_arch(text: &str, kind: Kind, packing: Packing) -> Result<Self, String> {
        let (rest, secureboot) = cut_secureboot(text);
        let (platform, arch) =
            rest.rsplit_once('-').ok_or_else(|| format!("invalid platform-arch: {rest:?}"))?;
        Ok(Self { packing, ..Self::new(platform, arch, secureboot, kind)? })
    }

    fn new(platform: &str, arch: &str, secureboot: bool, kind: Kind) -> Result<Self, String> {
        let arch = match arch {
            "amd64" | "x86_64" | "i386" => "amd64",
            "arm64" => "arm64",
            other => return Err(format!("invalid architecture: {other:?}")),
        };
        if !PLATFORMS.contains(&platform) {
            return Err(format!("invalid platform: {platform:?}"));
        }
        Ok(Self { platform: platform.into(), arch: arch.into(), secureboot, kind, packing: Packing::None })
    }

    /// Whether it is installation media.
    pub fn is_iso(&self) -> bool {
        self.kind == Kind::Iso
    }

    /// Returns the media type.
    pub fn content_type(&self) -> &'static str {
        match (self.packing, self.kind) {
            (Packing::Gzip | Packing::TarGzip, _) => "application/gzip",
            (Packing::Xz, _) | (_, Kind::Initramfs) => "application/x-xz",
            (Packing::Zstd, _) => "application/zstd",
            (_, Kind::Iso) => "application/x-iso9660-image",
            (_, Kind::Installer) => "application/x-tar",
            _ => "application/octet-stream",
        }
    }

    /// Returns the file.
    pub fn render(&self, image: &TalosImage, recipe: &Recipe) -> Vec<u8> {
        let file = match self.kind {
            Kind::Iso => image_file::iso(image),
            Kind::Raw => image_file::raw(image),
            Kind::Qcow2 => image_file::qcow2(image),
            Kind::CommandLine => return command_line(image, recipe).into_bytes(),
            Kind::Installer => tar("image.json", &image_file::marker(image, 0)),
            // Nothing in the lab boots these; the marker alone says what they are.
            Kind::Kernel | Kind::Initramfs | Kind::Uki => image_file::marker(image, 0),
        };
        match self.packing {
            Packing::None if self.kind == Kind::Initramfs => xz(&file),
            Packing::None => file,
            Packing::Gzip => gzip(&file),
            Packing::Xz => xz(&file),
            Packing::Zstd => zstd(&file),
            Packing::TarGzip => gzip(&tar("disk.raw", &file)),
        }
    }
}

fn invalid(path: &str) -> String {
    format!("invalid profile path: {path:?}")
}

fn cut_secureboot(text: &str) -> (&str, bool) {
    text.strip_suffix("-secureboot").map_or((text, false), |rest| (rest, true))
}

fn command_line(image: &TalosImage, recipe: &Recipe) -> String {
    let console = if image.arch == "arm64" { "ttyAMA0" } else { "ttyS0" };
    let mut words = vec![
        format!("talos.platform={}", image.platform),
        "console=tty0".into(),
        format!("console={console}"),
    ];
    for word in &recipe.schematic.kernel_args {
        match word.strip_prefix('-') {
            Some(gone) => words.retain(|word| word != gone && !word.starts_with(&format!("{gone}="))),
            None => words.push(word.clone()),
        }
    }
    words.join(" ")
}

/// Packs with gzip. No time of making is written, so the same bytes give the same file.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}

/// Packs with zstd: a frame of raw blocks, which every decoder reads.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    const LARGEST_BLOCK: usize = 128 << 10;
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd];
    // Single segment, content size in eight bytes, no checksum.
    out.push(0b1110_0000);
    out.extend((bytes.len() as u64).to_le_bytes());
    let mut blocks = bytes.chunks(LARGEST_BLOCK).peekable();
    if blocks.peek().is_none() {
        out.extend([1, 0, 0]);
    }
    while let Some(block) = blocks.next() {
        let last = u32::from(blocks.peek().is_none());
        let header = (u32::try_from(block.len()).unwrap_or(0) << 3) | last;
        out.extend(&header.to_le_bytes()[..3]);
        out.extend(block);
    }
    out
}

/// Packs with xz: one block of LZMA2 chunks that are stored as they are.
fn xz(bytes: &[u8]) -> Vec<u8> {
    // The check of the content is CRC-32.
    const FLAGS: [u8; 2] = [0, 1];
    let crc = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_le_bytes()
    };
    let mut out = vec![0xfd, b'7', b'z', b'X', b'Z', 0];
    out.extend(FLAGS);
    out.extend(crc(&FLAGS));
    // Header of the block: 12 bytes, one filter, LZMA2 with a dictionary of 1 MiB.
    let header = [2, 0, 0x21, 1, 16, 0, 0, 0];
    let start = out.len();
    out.extend(header);
    out.extend(crc(&header));
    for (index, chunk) in bytes.chunks(1 << 16).enumerate() {
        out.push(if index == 0 { 1 } else { 2 });
        out.extend(u16::try_from(chunk.len() - 1).unwrap_or(u16::MAX).to_be_bytes());
        out.extend(chunk);
    }
    out.push(0);
    let unpadded = out.len() - start + 4;
    while !(out.len() - start).is_multiple_of(4) {
        out.push(0);
    }
    out.extend(crc(bytes));
    let mut index = vec![0, 1];
    push_varint(&mut index, unpadded as u64);
    push_varint(&mut index, bytes.len() as u64);
    while !index.len().is_multiple_of(4) {
        index.push(0);
    }
    index.extend(crc(&index.clone()));
    let backward = u32::try_from(index.len() / 4 - 1).unwrap_or(0);
    out.extend(index);
    let mut footer = backward.to_le_bytes().to_vec();
    footer.extend(FLAGS);
    out.extend(crc(&footer));
    out.extend(footer);
    out.extend(b"YZ");
    out
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Packs one file with tar.
fn tar(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", bytes.len()).as_bytes());
    put(136, b"00000000000\0");
    // The sum is taken with blanks in its own place.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut out = header.to_vec();
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(512) + 1024, 0);
    out
}
