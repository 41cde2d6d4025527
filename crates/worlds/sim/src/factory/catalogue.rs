//! What the factory has: releases of Talos, extensions and overlays.

use serde_json::{Value, json};

/// The last patch of each minor release. Older patches of a line exist too, from 0 on.
const LINES: [(u64, u64); 6] = [(8, 4), (9, 6), (10, 9), (11, 6), (12, 11), (13, 9)];

/// Releases that are not final.
const CANDIDATES: [&str; 2] = ["v1.14.0-rc.0", "v1.14.0-rc.1"];

/// Returns the releases, oldest first.
pub fn versions() -> Vec<String> {
    let finals = LINES.into_iter().flat_map(|(minor, last)| (0..=last).map(move |patch| (minor, patch)));
    let finals = finals.map(|(minor, patch)| format!("v1.{minor}.{patch}"));
    finals.chain(CANDIDATES.map(Into::into)).collect()
}

/// Returns the numbers of a version without `v`, or nothing if it is not a semantic version.
pub fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let core = text.split(['-', '+']).next()?;
    let mut numbers = core.split('.').map(|part| {
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = plain && (part == "0" || !part.starts_with('0'));
        canonical.then(|| part.parse().ok()).flatten()
    });
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(version)
}

/// Returns the minor number of a release such as `v1.13.9`; 0 if there is none.
pub fn minor(version: &str) -> u64 {
    parse_version(version.trim_start_matches('v')).map_or(0, |(_, minor, _)| minor)
}

/// Returns how large the disk of an image is when unpacked.
///
/// Dual-boot images exist for amd64 from 1.11 on; arm64 and secure boot have systemd-boot alone.
pub fn virtual_size(version: &str, arch: &str, secureboot: bool) -> u64 {
    const MIB: u64 = 1 << 20;
    match minor(version) {
        ..=10 => 1246 * MIB,
        _ if arch == "arm64" || secureboot => 2246 * MIB,
        _ => 4247 * MIB,
    }
}

/// Extensions: name, the minor release they came with, and what they are.
const EXTENSIONS: [(&str, u64, &str); 42] = [
    ("amd-ucode", 8, "AMD microcode binaries."),
    ("amdgpu", 8, "AMD GPU firmware and drivers."),
    ("binfmt-misc", 9, "Runs binaries of other processors."),
    ("bnx2-bnx2x", 8, "Firmware of Broadcom NetXtreme II cards."),
    ("btrfs", 8, "Kernel module of the Btrfs file system."),
    ("chelsio-drivers", 8, "Drivers of Chelsio cards."),
    ("cloudflared", 8, "A tunnel to Cloudflare."),
    ("crun", 8, "The crun container runtime."),
    ("drbd", 8, "Replicated block devices."),
    ("ecr-credential-provider", 8, "Credentials for Amazon's registry."),
    ("fuse3", 8, "File systems in user space."),
    ("gasket-driver", 8, "Driver of Coral accelerators."),
    ("glibc", 8, "The GNU C library for other extensions."),
    ("gvisor", 8, "The gVisor container runtime."),
    ("hailort", 8, "Driver of Hailo accelerators."),
    ("hyperv-guest-agent", 10, "Guest agent for Hyper-V."),
    ("i915", 10, "Intel graphics."),
    ("intel-ice-firmware", 8, "Firmware of Intel E800 cards."),
    ("intel-ucode", 8, "Intel microcode binaries."),
    ("iscsi-tools", 8, "Open-iSCSI initiator."),
    ("kata-containers", 8, "The Kata container runtime."),
    ("lldpd", 9, "Link layer discovery."),
    ("mdadm", 8, "Software RAID."),
    ("mei", 8, "Intel management engine interface."),
    ("nebula", 8, "The Nebula overlay network."),
    ("netbird", 10, "The NetBird overlay network."),
    ("newt", 11, "A client of Pangolin tunnels."),
    ("nfs-utils", 9, "Locking for NFS version 3."),
    ("nfsd", 9, "Kernel NFS server."),
    ("nut-client", 8, "Client of a network UPS server."),
    ("nvidia-container-toolkit-lts", 8, "The NVIDIA container toolkit."),
    ("nvidia-open-gpu-kernel-modules-lts", 8, "NVIDIA's open kernel modules."),
    ("qemu-guest-agent", 8, "QEMU guest agent."),
    ("realtek-firmware", 8, "Firmware of Realtek cards."),
    ("spin", 8, "The Spin WebAssembly runtime."),
    ("stargz-snapshotter", 8, "Lazy pulling of images."),
    ("tailscale", 8, "The Tailscale overlay network."),
    ("thunderbolt", 8, "Thunderbolt drivers."),
    ("usb-modem-drivers", 8, "Drivers of USB modems."),
    ("util-linux-tools", 8, "Tools such as fstrim and nsenter."),
    ("vmtoolsd-guest-agent", 8, "Guest agent for VMware."),
    ("zfs", 8, "The ZFS file system."),
];

/// Names that the factory still takes for extensions that have another one now.
const ALIASES: [(&str, &str); 6] = [
    ("v4l-uvc", "v4l-uvc-drivers"),
    ("usb-modem", "usb-modem-drivers"),
    ("gasket", "gasket-driver"),
    ("talos-vmtoolsd", "vmtoolsd-guest-agent"),
    ("nvidia-container-toolkit", "nvidia-container-toolkit-lts"),
    ("i915-ucode", "i915"),
];

/// Whether a release has an official extension; its name begins with `siderolabs/`.
pub fn has_extension(version: &str, name: &str) -> bool {
    let Some(bare) = name.strip_prefix("siderolabs/") else { return false };
    let listed =
        |name: &str| EXTENSIONS.iter().any(|(known, since, _)| *known == name && *since <= minor(version));
    listed(bare) || ALIASES.iter().any(|(old, new)| *old == bare && listed(new))
}

/// Returns the official extensions of a release as the factory lists them. Digests are the lab's own.
pub fn extensions_answer(version: &str) -> Value {
    let listed = EXTENSIONS.iter().filter(|(_, since, _)| *since <= minor(version));
    let entry = |(name, _, description): &(&str, u64, &str)| {
        let reference = format!("ghcr.io/siderolabs/{name}:{version}");
        json!({
            "name": format!("siderolabs/{name}"),
            "ref": reference,
            "digest": digest(&reference),
            "author": "Sidero Labs",
            "description": format!("{description}\n"),
        })
    };
    listed.map(entry).collect()
}

/// Overlays: name and image.
const OVERLAYS: [(&str, &str); 6] = [
    ("rpi_generic", "sbc-raspberrypi"),
    ("rpi_5", "sbc-raspberrypi"),
    ("rockpi4", "sbc-rockchip"),
    ("rock64", "sbc-rockchip"),
    ("turingrk1", "sbc-rockchip"),
    ("jetson_nano", "sbc-jetson"),
];

/// Returns the official overlays as the factory lists them.
pub fn overlays_answer(version: &str) -> Value {
    let entry = |(name, image): (&str, &str)| {
        let reference = format!("ghcr.io/siderolabs/{image}:{version}");
        json!({
            "name": name,
            "image": format!("siderolabs/{image}"),
            "ref": reference,
            "digest": digest(&reference),
        })
    };
    OVERLAYS.into_iter().map(entry).collect()
}

fn digest(text: &str) -> String {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
