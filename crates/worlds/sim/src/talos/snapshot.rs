//! Snapshots of etcd: a bbolt file with one key, followed by its SHA-256, so that etcd's own tools accept it.
//!
//! Facts: etcd's snapshot manager opens the file as bbolt, walks its buckets, and tells a snapshot from a bare
//! database by a size of 32 bytes more than a multiple of 512. The layout is that of bbolt's format version 2.

use sha2::{Digest, Sha256};

const PAGE: usize = 4096;
const HEADER: usize = 16;
const ELEMENT: usize = 16;
const MAGIC: u32 = 0xed0c_daed;
const META: u16 = 0x04;
const FREELIST: u16 = 0x10;
const LEAF: u16 = 0x02;
/// The key under which the lab keeps what Kubernetes gave it.
const KEY: &[u8] = b"/ichor/lab/kubernetes";

/// Writes a snapshot that carries a state, at a revision of etcd.
pub fn write(state: &[u8], revision: u64) -> Vec<u8> {
    let record = key_value(state, revision);
    let mut name = revision.to_be_bytes().to_vec();
    name.push(b'_');
    name.extend_from_slice(&[0; 8]);
    let keys = leaf(&[(0, &name, &record)]);
    let keys_pages = keys.len().div_ceil(PAGE);
    let empty = [&[0; 16][..], &leaf(&[])].concat();
    let mut bucket = 4_u64.to_le_bytes().to_vec();
    bucket.extend_from_slice(&[0; 8]);
    // Buckets stand in the order of their names; those that are empty lie inline.
    let root = leaf(&[(1, b"key", &bucket), (1, b"meta", &empty)]);
    let mut file = Vec::with_capacity((4 + keys_pages) * PAGE + 32);
    let pages = 4 + keys_pages as u64;
    for number in 0..2 {
        file.extend(page(number, META, 0, &meta(number, pages)));
    }
    file.extend(page(2, FREELIST, 0, &[]));
    file.extend(finish(3, root));
    file.extend(finish(4, keys));
    let digest = Sha256::digest(&file);
    file.extend_from_slice(&digest);
    file
}

/// Reads the state that a snapshot carries. Without `trusting` the hash must be there and right; a database copied
/// from a disk has none.
pub fn read(file: &[u8], trusting: bool) -> Result<Option<Vec<u8>>, &'static str> {
    let hashed = file.len() % 512 == 32;
    let body = if hashed { &file[..file.len() - 32] } else { file };
    if !trusting {
        if !hashed {
            return Err("snapshot missing hash but --skip-hash-check=false");
        }
        if Sha256::digest(body)[..] != file[body.len()..] {
            return Err("snapshot file corrupted");
        }
    }
    if number(body, HEADER, 4) != Some(u64::from(MAGIC)) {
        return Err("invalid database");
    }
    Ok(find(body))
}

fn find(body: &[u8]) -> Option<Vec<u8>> {
    let keys = body.get(4 * PAGE..)?;
    let count = number(keys, 10, 2)?;
    for index in 0..usize::try_from(count).ok()? {
        let at = HEADER + index * ELEMENT;
        let position = usize::try_from(number(keys, at + 4, 4)?).ok()?;
        let key = usize::try_from(number(keys, at + 8, 4)?).ok()?;
        let value = usize::try_from(number(keys, at + 12, 4)?).ok()?;
        let start = at.checked_add(position)?.checked_add(key)?;
        if let Some(state) = value_of(keys.get(start..start.checked_add(value)?)?) {
            return Some(state);
        }
    }
    None
}

/// Writes etcd's record of a key: its protobuf message, by hand.
fn key_value(state: &[u8], revision: u64) -> Vec<u8> {
    let mut record = Vec::new();
    put_bytes(&mut record, 1, KEY);
    for field in 2..=3 {
        record.push(field << 3);
        put_varint(&mut record, revision);
    }
    record.extend_from_slice(&[4 << 3, 1]);
    put_bytes(&mut record, 5, state);
    record
}

fn value_of(record: &[u8]) -> Option<Vec<u8>> {
    use ichor_talos_proto::Message;
    /// etcd's record of a key, as far as the lab reads it.
    #[derive(Clone, PartialEq, Message)]
    struct KeyValue {
        #[prost(bytes = "vec", tag = "1")]
        key: Vec<u8>,
        #[prost(bytes = "vec", tag = "5")]
        value: Vec<u8>,
    }
    KeyValue::decode(record).ok().filter(|record| record.key == KEY).map(|record| record.value)
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or(0));
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn meta(number: u64, pages: u64) -> Vec<u8> {
    let mut meta = Vec::new();
    for word in [MAGIC, 2, u32::try_from(PAGE).unwrap_or(0), 0] {
        meta.extend_from_slice(&word.to_le_bytes());
    }
    // Root page and its sequence, freelist page, number of pages, transaction.
    for word in [3, 0, 2, pages, number] {
        meta.extend_from_slice(&word.to_le_bytes());
    }
    let sum = meta.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    meta.extend_from_slice(&sum.to_le_bytes());
    meta
}

/// Writes a leaf page of elements (flags, key, value), without its number.
fn leaf(elements: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    out[8..10].copy_from_slice(&LEAF.to_le_bytes());
    out[10..12].copy_from_slice(&u16::try_from(elements.len()).unwrap_or(0).to_le_bytes());
    let size = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mut data = Vec::new();
    for (index, (flags, key, value)) in elements.iter().enumerate() {
        // Positions count from the element itself.
        let position = (elements.len() - index) * ELEMENT + data.len();
        for word in [*flags, size(position), size(key.len()), size(value.len())] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        data.extend_from_slice(key);
        data.extend_from_slice(value);
    }
    out.extend_from_slice(&data);
    out
}

fn page(number: u64, flags: u16, count: u16, content: &[u8]) -> Vec<u8> {
    let mut out = number.to_le_bytes().to_vec();
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(content);
    out.resize(PAGE, 0);
    out
}

/// Gives a page its number, and fills it up; what does not fit goes on in overflow pages.
fn finish(number: u64, mut content: Vec<u8>) -> Vec<u8> {
    let pages = content.len().div_ceil(PAGE).max(1);
    content[..8].copy_from_slice(&number.to_le_bytes());
    content[12..16].copy_from_slice(&u32::try_from(pages - 1).unwrap_or(0).to_le_bytes());
    content.resize(pages * PAGE, 0);
    content
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + length)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_seen() {
        for size in [0, 10, 5000, 100_000] {
            let state = vec![7; size];
            let mut file = write(&state, 300);
            assert_eq!(file.len() % 512, 32);
            assert_eq!(read(&file, false), Ok(Some(state.clone())), "{size}");
            let bare = file[..file.len() - 32].to_vec();
            assert!(read(&bare, false).is_err());
            assert_eq!(read(&bare, true), Ok(Some(state)));
            file[5 * PAGE - 1] ^= 1;
            assert!(read(&file, false).is_err());
        }
    }

    #[test]
    fn hostile_files_do_no_harm() {
        let file = write(b"state", 1);
        for end in (0..file.len()).step_by(61) {
            let _ = read(&file[..end], true);
        }
        for at in (0..file.len()).step_by(13) {
            let mut damaged = file.clone();
            damaged[at] = 0xff;
            let _ = read(&damaged, true);
        }
    }
}
