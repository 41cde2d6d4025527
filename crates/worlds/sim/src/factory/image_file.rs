//! Talos images as files: small ones with the structure of real ones, which say what they are.
//!
//! Somewhere inside stands a marker with the description of the image. Whoever gets such a file, downloaded or
//! uploaded, asks [`recognise`] what it is. A file that was cut off is not recognised, as a real one would not boot.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use crate::ground::{Content, TalosImage};

/// What the marker begins with.
const MAGIC: &[u8; 16] = b"ichor-lab-image\n";

/// Where the marker stands on the disk: after boot record and partition table.
const MARKER_AT: usize = 8192;

/// The largest file that is unpacked; what unpacks to more is not one of ours.
const LARGEST_UNPACKED: u64 = 32 << 20;

/// The size of a qcow2 cluster, as the factory makes them (`cluster_size=8k`).
const CLUSTER: usize = 8192;

#[derive(Serialize, Deserialize)]
struct Description {
    /// How long the whole file is, before packing.
    length: usize,
    image: TalosImage,
}

/// Returns the marker of a file of a length.
pub(super) fn marker(image: &TalosImage, length: usize) -> Vec<u8> {
    let description = serde_json::to_vec(&Description { length, image: image.clone() }).unwrap_or_default();
    let mut out = MAGIC.to_vec();
    out.extend(u32::try_from(description.len()).unwrap_or(0).to_le_bytes());
    out.extend(description);
    out
}

/// Says what a file is: an image of the lab, or bytes that mean nothing to it.
pub fn recognise(bytes: &[u8]) -> Content {
    find(bytes).map_or_else(|| Content::Bytes(bytes.to_vec()), Content::Image)
}

/// Returns the image that a file holds, if it is whole.
pub fn find(bytes: &[u8]) -> Option<TalosImage> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes).take(LARGEST_UNPACKED).read_to_end(&mut plain).ok()?;
        return find_plain(&plain);
    }
    find_plain(bytes)
}

fn find_plain(bytes: &[u8]) -> Option<TalosImage> {
    let at = marker_place(bytes)?;
    let rest = bytes.get(at..)?.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let description = rest.get(..u32::from_le_bytes(*length) as usize)?;
    let Description { length, image } = serde_json::from_slice(description).ok()?;
    (bytes.len() >= length).then_some(image)
}

/// Returns where the marker stands in a file of this structure.
fn marker_place(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"QFI\xfb") {
        // The second cluster of the guest's disk: read it as a guest would, through the tables.
        let l1 = number(bytes, 40)?;
        let l2 = number(bytes, l1)? & OFFSET_BITS;
        return Some(number(bytes, l2.checked_add(8)?)? & OFFSET_BITS);
    }
    if bytes.get(0x8001..0x8006) == Some(b"CD001") {
        return Some(ISO_FILE * SECTOR);
    }
    (bytes.get(510..512) == Some(&[0x55, 0xaa])).then_some(MARKER_AT)
}

/// The part of a qcow2 table's entry that is an offset.
const OFFSET_BITS: usize = 0x00ff_ffff_ffff_fe00;

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let chunk = bytes.get(at..at.checked_add(8)?)?.first_chunk()?;
    usize::try_from(u64::from_be_bytes(*chunk)).ok()
}

/// Returns a raw disk. It is shorter than the disk it stands for, whose size the marker tells.
pub fn raw(image: &TalosImage) -> Vec<u8> {
    let length = |marker: &[u8]| (MARKER_AT + marker.len()).next_multiple_of(1 << 20);
    let length = length(&marker(image, usize::MAX >> 8));
    let mut out = boot_record(image.virtual_size);
    out.resize(MARKER_AT, 0);
    out.extend(marker(image, length));
    out.resize(length, 0);
    out
}

/// Returns the first sector: a protective boot record, as a disk with a GPT has.
fn boot_record(size: u64) -> Vec<u8> {
    let mut sector = vec![0; 512];
    let sectors = u32::try_from(size / 512 - u64::from(size >= 512)).unwrap_or(u32::MAX);
    sector[446..454].copy_from_slice(&[0x80, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
    sector[454..458].copy_from_slice(&1_u32.to_le_bytes());
    sector[458..462].copy_from_slice(&sectors.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// Returns a qcow2 file, version 3, with the disk's real size.
pub fn qcow2(image: &TalosImage) -> Vec<u8> {
    let mut layout = Layout::of(image, 0);
    // The length is part of what is counted; its digits can only add, so counting again settles it.
    for _ in 0..4 {
        layout = Layout::of(image, layout.length);
    }
    layout.render(image)
}

/// Where the parts of a qcow2 file stand, in clusters: header, refcount table, refcount block, L1, L2, data.
struct Layout {
    guest: Vec<u8>,
    l1_clusters: usize,
    l1_entries: usize,
    length: usize,
}

impl Layout {
    const REFCOUNT_TABLE: usize = 1;
    const REFCOUNT_BLOCK: usize = 2;
    const L1: usize = 3;

    fn of(image: &TalosImage, length: usize) -> Self {
        let mut guest = boot_record(image.virtual_size);
        guest.resize(MARKER_AT, 0);
        guest.extend(marker(image, length));
        guest.resize(guest.len().next_multiple_of(CLUSTER), 0);
        // One L2 table covers this much; the lab's data fits into the first.
        let covered = (CLUSTER / 8 * CLUSTER) as u64;
        let l1_entries = usize::try_from(image.virtual_size.div_ceil(covered)).unwrap_or(1).max(1);
        let l1_clusters = (l1_entries * 8).div_ceil(CLUSTER);
        let clusters = Self::L1 + l1_clusters + 1 + guest.len() / CLUSTER;
        Self { guest, l1_clusters, l1_entries, length: clusters * CLUSTER }
    }

    fn render(&self, image: &TalosImage) -> Vec<u8> {
        let mut out = vec![0; self.length];
        let l2 = Self::L1 + self.l1_clusters;
        out[..104].copy_from_slice(&self.header(image.virtual_size));
        put(&mut out, Self::REFCOUNT_TABLE * CLUSTER, (Self::REFCOUNT_BLOCK * CLUSTER) as u64);
        for cluster in 0..self.length / CLUSTER {
            let at = Self::REFCOUNT_BLOCK * CLUSTER + cluster * 2;
            out[at..at + 2].copy_from_slice(&1_u16.to_be_bytes());
        }
        // The top bit says that the cluster has one user only.
        let used = |cluster: usize| (1 << 63) | (cluster * CLUSTER) as u64;
        put(&mut out, Self::L1 * CLUSTER, used(l2));
        for index in 0..self.guest.len() / CLUSTER {
            put(&mut out, l2 * CLUSTER + index * 8, used(l2 + 1 + index));
        }
        let data = (l2 + 1) * CLUSTER;
        out[data..data + self.guest.len()].copy_from_slice(&self.guest);
        out
    }

    fn header(&self, virtual_size: u64) -> Vec<u8> {
        let mut out = b"QFI\xfb".to_vec();
        out.extend(3_u32.to_be_bytes());
        // No backing file.
        out.extend([0; 12]);
        out.extend(13_u32.to_be_bytes());
        out.extend(virtual_size.to_be_bytes());
        // No encryption.
        out.extend([0; 4]);
        out.extend(u32::try_from(self.l1_entries).unwrap_or(1).to_be_bytes());
        out.extend(((Self::L1 * CLUSTER) as u64).to_be_bytes());
        out.extend(((Self::REFCOUNT_TABLE * CLUSTER) as u64).to_be_bytes());
        out.extend(1_u32.to_be_bytes());
        // No snapshots, no features.
        out.extend([0; 4 + 8 + 24]);
        // Refcounts of 16 bits, and the header's own length.
        out.extend(4_u32.to_be_bytes());
        out.extend(104_u32.to_be_bytes());
        out
    }
}

fn put(out: &mut [u8], at: usize, number: u64) {
    out[at..at + 8].copy_from_slice(&number.to_be_bytes());
}

const SECTOR: usize = 2048;
const ISO_VOLUME: usize = 16;
const ISO_END: usize = 17;
const ISO_PATHS_LITTLE: usize = 18;
const ISO_PATHS_BIG: usize = 19;
const ISO_ROOT: usize = 20;
const ISO_FILE: usize = 21;

/// Returns an ISO 9660 image with one file: the marker.
pub fn iso(image: &TalosImage) -> Vec<u8> {
    let size = |marker: &[u8]| (ISO_FILE * SECTOR + marker.len()).next_multiple_of(SECTOR);
    let length = size(&marker(image, 9_999_999));
    let marker = marker(image, length);
    let mut out = vec![0; length.max(size(&marker))];
    let sectors = u32::try_from(out.len() / SECTOR).unwrap_or(0);
    write(&mut out, ISO_VOLUME, &volume_descriptor(sectors, &label(image)));
    write(&mut out, ISO_END, b"\xffCD001\x01");
    write(&mut out, ISO_PATHS_LITTLE, &[1, 0, 20, 0, 0, 0, 1, 0, 0, 0]);
    write(&mut out, ISO_PATHS_BIG, &[1, 0, 0, 0, 0, 20, 0, 1, 0, 0]);
    let mut root = directory_entry(ISO_ROOT, SECTOR, true, b"\0");
    root.extend(directory_entry(ISO_ROOT, SECTOR, true, b"\x01"));
    root.extend(directory_entry(ISO_FILE, marker.len(), false, b"IMAGE.JSN;1"));
    write(&mut out, ISO_ROOT, &root);
    write(&mut out, ISO_FILE, &marker);
    out
}

fn write(out: &mut [u8], sector: usize, bytes: &[u8]) {
    out[sector * SECTOR..sector * SECTOR + bytes.len()].copy_from_slice(bytes);
}

fn label(image: &TalosImage) -> String {
    let version: String = image
        .talos
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("TALOS_{version}").chars().take(32).collect()
}

/// Writes a number in both byte orders, as this format does.
fn both(number: u32) -> Vec<u8> {
    [number.to_le_bytes(), number.to_be_bytes()].concat()
}

fn both_short(number: u16) -> Vec<u8> {
    [number.to_le_bytes(), number.to_be_bytes()].concat()
}

fn volume_descriptor(sectors: u32, label: &str) -> Vec<u8> {
    let mut out = b"\x01CD001\x01\0".to_vec();
    out.extend([b' '; 32]);
    out.extend(format!("{label:<32}").as_bytes());
    out.extend([0; 8]);
    out.extend(both(sectors));
    out.extend([0; 32]);
    out.extend([both_short(1), both_short(1), both_short(2048)].concat());
    out.extend(both(10));
    out.extend(u32::try_from(ISO_PATHS_LITTLE).unwrap_or(0).to_le_bytes());
    out.extend([0; 4]);
    out.extend(u32::try_from(ISO_PATHS_BIG).unwrap_or(0).to_be_bytes());
    out.extend([0; 4]);
    out.extend(directory_entry(ISO_ROOT, SECTOR, true, b"\0"));
    out.extend([b' '; 623]);
    // Four dates that are not given.
    for _ in 0..4 {
        out.extend(b"0000000000000000\0");
    }
    out.extend([1, 0]);
    out
}

fn directory_entry(sector: usize, size: usize, directory: bool, name: &[u8]) -> Vec<u8> {
    let length = (33 + name.len()).next_multiple_of(2);
    let mut out = vec![u8::try_from(length).unwrap_or(0), 0];
    out.extend(both(u32::try_from(sector).unwrap_or(0)));
    out.extend(both(u32::try_from(size).unwrap_or(0)));
    // 2026-01-01, the lab's first day.
    out.extend([126, 1, 1, 0, 0, 0, 0]);
    out.extend([if directory { 2 } else { 0 }, 0, 0]);
    out.extend(both_short(1));
    out.push(u8::try_from(name.len()).unwrap_or(0));
    out.extend(name);
    out.resize(length, 0);
    out
}
