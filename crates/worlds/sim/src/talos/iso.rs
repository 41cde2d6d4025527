//! A small reader of ISO 9660 images, enough for a cidata disc that somebody uploaded: files in the root, under
//! their Rock Ridge or Joliet names. Nothing is read past the end of the image, and no more than needed.

const SECTOR: usize = 2048;
/// Descriptors stand from sector 16 on; a disc has three or four.
const MOST_DESCRIPTORS: usize = 32;
/// More files than any cidata disc has in its root.
const MOST_FILES: usize = 256;
/// A directory of that many bytes holds far more files than that.
const MOST_DIRECTORY: usize = 256 * 1024;

/// What is on a disc.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disc {
    /// Its label, without the blanks that fill it up.
    pub label: String,
    /// The files in its root by name.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Disc {
    /// Returns a file of the root as text.
    pub fn text(&self, name: &str) -> Option<String> {
        let (_, bytes) = self.files.iter().find(|(file, _)| file == name)?;
        String::from_utf8(bytes.clone()).ok()
    }
}

/// Reads a disc, if the bytes are one.
pub fn read(image: &[u8]) -> Option<Disc> {
    let mut primary = None;
    let mut joliet = None;
    for sector in 16..16 + MOST_DESCRIPTORS {
        let descriptor = slice(image, sector * SECTOR, SECTOR)?;
        if descriptor.get(1..6)? != b"CD001" {
            break;
        }
        match descriptor[0] {
            1 if primary.is_none() => primary = Some(descriptor),
            // The escape sequences %/@, %/C and %/E say that names are UCS-2.
            2 if descriptor[88..91].starts_with(b"%/") => joliet = Some(descriptor),
            255 => break,
            _ => {}
        }
    }
    let primary = primary?;
    let label = latin(&primary[40..72]).trim_end().to_owned();
    let plain = root(image, primary, Names::Plain)?;
    let rock_ridge = plain.iter().any(|(_, _, rock_ridge)| *rock_ridge);
    let files = match joliet {
        Some(joliet) if !rock_ridge => root(image, joliet, Names::Joliet)?,
        _ => plain,
    };
    Some(Disc { label, files: files.into_iter().map(|(name, bytes, _)| (name, bytes.to_vec())).collect() })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Plain,
    Joliet,
}

/// A file of a directory: its name, its content, and whether the name is from Rock Ridge.
type File<'a> = (String, &'a [u8], bool);

fn root<'a>(image: &'a [u8], descriptor: &[u8], names: Names) -> Option<Vec<File<'a>>> {
    let record = descriptor.get(156..190)?;
    let directory = slice(image, at(record)?, length(record)?.min(MOST_DIRECTORY))?;
    let mut files = Vec::new();
    let mut position = 0;
    while position < directory.len() && files.len() < MOST_FILES {
        let size = usize::from(directory[position]);
        if size == 0 {
            // Records do not cross sectors: the rest of this one is filled with zeros.
            position = (position / SECTOR + 1) * SECTOR;
            continue;
        }
        let record = slice(directory, position, size)?;
        position += size;
        files.extend(file(image, record, names));
    }
    Some(files)
}

fn file<'a>(image: &'a [u8], record: &[u8], names: Names) -> Option<File<'a>> {
    const DIRECTORY: u8 = 2;
    let flags = *record.get(25)?;
    let name_length = usize::from(*record.get(32)?);
    let name = record.get(33..33 + name_length)?;
    if flags & DIRECTORY != 0 {
        return None;
    }
    let content = slice(image, at(record)?, length(record)?)?;
    // The name is padded to an even length, and the system use area follows.
    let system_use = record.get(33 + name_length + (name_length + 1) % 2..).unwrap_or_default();
    if let Some(name) = rock_ridge_name(system_use) {
        return Some((name, content, true));
    }
    let name = match names {
        Names::Joliet => wide(name),
        Names::Plain => latin(name).to_lowercase(),
    };
    // `;1` is a file version, and a dot at the end an empty extension.
    let name = name.split(';').next().unwrap_or_default().trim_end_matches('.').to_owned();
    Some((name, content, false))
}

/// Joins the `NM` entries of a record.
fn rock_ridge_name(mut area: &[u8]) -> Option<String> {
    let mut name = Vec::new();
    while area.len() >= 4 {
        let size = usize::from(area[2]);
        if size < 4 || size > area.len() {
            break;
        }
        if &area[..2] == b"NM" && size > 5 {
            name.extend_from_slice(&area[5..size]);
        }
        area = &area[size..];
    }
    (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
}

fn at(record: &[u8]) -> Option<usize> {
    number(record, 2)?.checked_mul(SECTOR)
}

fn length(record: &[u8]) -> Option<usize> {
    number(record, 10)
}

/// Numbers stand in both byte orders, the little end first.
fn number(record: &[u8], position: usize) -> Option<usize> {
    let bytes = record.get(position..position + 4)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

fn slice(bytes: &[u8], position: usize, length: usize) -> Option<&[u8]> {
    bytes.get(position..position.checked_add(length)?)
}

fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn wide(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use ichor_machineconfig::{
        cidata::{self, Files},
        secrets::SecretText,
    };

    use super::*;

    /// Writes a directory record; `system_use` follows the name.
    fn record(sector: u32, length: u32, flags: u8, name: &[u8], system_use: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 33];
        record[2..6].copy_from_slice(&sector.to_le_bytes());
        record[10..14].copy_from_slice(&length.to_le_bytes());
        record[25] = flags;
        record[32] = u8::try_from(name.len()).expect("short");
        record.extend_from_slice(name);
        if name.len().is_multiple_of(2) {
            record.push(0);
        }
        record.extend_from_slice(system_use);
        record[0] = u8::try_from(record.len()).expect("short");
        record
    }

    fn disc(kind: Kind) -> Vec<u8> {
        let mut image = vec![0; 24 * SECTOR];
        let mut descriptor = |sector: usize, code: u8, escape: &[u8], root: u32| {
            let base = sector * SECTOR;
            image[base] = code;
            image[base + 1..base + 6].copy_from_slice(b"CD001");
            image[base + 40..base + 46].copy_from_slice(b"cidata");
            image[base + 46..base + 72].fill(b' ');
            image[base + 88..base + 88 + escape.len()].copy_from_slice(escape);
            let root = record(root, u32::try_from(SECTOR).expect("small"), 2, &[0], &[]);
            image[base + 156..base + 156 + root.len()].copy_from_slice(&root);
        };
        descriptor(16, 1, &[], 20);
        if kind == Kind::Joliet {
            descriptor(17, 2, b"%/E", 21);
        }
        descriptor(18, 255, &[], 20);
        if kind != Kind::Joliet {
            image[17 * SECTOR] = 0;
            let (_, rest) = image.split_at_mut(17 * SECTOR);
            rest[..SECTOR].fill(0);
            rest[0] = 3;
            rest[1..6].copy_from_slice(b"CD001");
        }
        let rock_ridge: &[u8] = if kind == Kind::RockRidge { b"NM\x0e\x01\x00user-data" } else { &[] };
        let mut plain = record(20, 2048, 2, &[0], &[]);
        plain.extend(record(22, 5, 0, b"USER_DAT.;1", rock_ridge));
        image[20 * SECTOR..20 * SECTOR + plain.len()].copy_from_slice(&plain);
        let wide: Vec<u8> = "user-data;1".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let joliet = record(22, 5, 0, &wide, &[]);
        image[21 * SECTOR..21 * SECTOR + joliet.len()].copy_from_slice(&joliet);
        image[22 * SECTOR..22 * SECTOR + 5].copy_from_slice(b"hello");
        image
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Kind {
        RockRidge,
        Joliet,
        Plain,
    }

    #[test]
    fn rock_ridge_and_joliet_names_are_read() {
        for kind in [Kind::RockRidge, Kind::Joliet] {
            let disc = read(&disc(kind)).expect("a disc");
            assert_eq!((disc.label.as_str(), disc.text("user-data").as_deref()), ("cidata", Some("hello")));
        }
        let plain = read(&disc(Kind::Plain)).expect("a disc");
        assert_eq!(plain.files[0].0, "user_dat");
    }

    #[test]
    fn volumes_of_ours_are_read() {
        for size in [0, 1, SECTOR - 1, SECTOR, SECTOR + 1, 2 << 20] {
            let files = Files {
                user_data: SecretText::new("x".repeat(size)),
                meta_data: "instance-id: cp-1\n".into(),
                network_config: "version: 2\n".into(),
            };
            let disc = read(files.iso().expect("an image").expose()).expect("a disc");
            assert_eq!(disc.label, cidata::LABEL);
            assert_eq!(disc.files.len(), 3);
            assert!(disc.text("user-data").is_some_and(|text| text == files.user_data.expose()), "{size}");
            assert_eq!(disc.text("meta-data"), Some(files.meta_data));
            assert_eq!(disc.text("network-config"), Some(files.network_config));
        }
    }

    #[test]
    fn damaged_discs_are_read_without_harm() {
        let whole = disc(Kind::RockRidge);
        for end in (0..whole.len()).step_by(97) {
            let _ = read(&whole[..end]);
        }
        for at in (16 * SECTOR..22 * SECTOR).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            let _ = read(&damaged);
        }
    }
}
