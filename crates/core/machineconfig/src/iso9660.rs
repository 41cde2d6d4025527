//! Writes small ISO 9660 images (ECMA-119): a few files in the root, and nothing that depends on time or place.
//!
//! Sectors in order: 16 empty ones, the descriptors, the path tables, the root directory twice, the files.
//! Joliet's directory has the names as they are. The plain one has them in capitals with an empty extension,
//! `USER-DATA.;1`, which Linux shows as `user-data`: so both kinds of readers see the same names.

use std::{collections::BTreeSet, fmt};

use thiserror::Error;
use zeroize::Zeroizing;

const SECTOR: usize = 2048;
const PRIMARY: usize = 16;
const JOLIET: usize = 17;
const TERMINATOR: usize = 18;
/// Where the path tables of a tree stand, the one with little ends first.
const PLAIN_TABLES: usize = 19;
const JOLIET_TABLES: usize = 21;
const DIRECTORIES: usize = 23;
/// The table has one entry, for the root.
const TABLE_BYTES: u32 = 10;
/// Far more than machine configs have. Numbers in the format have 32 bits.
const MOST_BYTES: usize = 64 << 20;
/// The second level of interchange allows so many characters, without the dot and the version.
const LONGEST_NAME: usize = 30;
/// A label has 32 bytes, and Joliet writes two for each character.
const LONGEST_LABEL: usize = 16;

/// An image. It may hold secrets: it is not shown, and wiped when it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(Zeroizing<Vec<u8>>);

impl Image {
    /// Returns the bytes themselves.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[secret image of {} bytes]", self.0.len())
    }
}

/// Why there is no image.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unfit {
    /// A label that not every reader shows as it is.
    #[error("`{0}` is no label: it has 1 to {LONGEST_LABEL} letters, digits, `-` and `_`")]
    Label(String),
    /// A name that not every reader shows as it is.
    #[error(
        "`{0}` is no name for a file: it has 1 to {LONGEST_NAME} small letters, digits, `-` and `_`, and one dot at most between them"
    )]
    Name(String),
    /// Two files of one name.
    #[error("two files are called `{0}`")]
    Twice(String),
    /// Too much content.
    #[error("the files have more than {} MiB together", MOST_BYTES >> 20)]
    TooLarge,
}

/// Writes an image with a label and files, given by name and content.
pub fn image(label: &str, files: &[(&str, &[u8])]) -> Result<Image, Unfit> {
    check(label, files)?;
    let layout = Layout::of(files)?;
    // All room is taken at once: a vector that grows leaves copies of secrets behind.
    let mut image = Zeroizing::new(vec![0; layout.sectors * SECTOR]);
    put(&mut image, PRIMARY * SECTOR, &descriptor(Tree::Plain, label, &layout));
    put(&mut image, JOLIET * SECTOR, &descriptor(Tree::Joliet, label, &layout));
    put(&mut image, TERMINATOR * SECTOR, &terminator());
    for tree in [Tree::Plain, Tree::Joliet] {
        let [little, big] = path_tables(layout.directory(tree));
        put(&mut image, tree.tables() * SECTOR, &little);
        put(&mut image, (tree.tables() + 1) * SECTOR, &big);
        let directory = directory(tree, layout.directory(tree), files, &layout.files);
        put(&mut image, layout.directory(tree).sector * SECTOR, &directory);
    }
    for ((_, content), extent) in files.iter().zip(&layout.files) {
        put(&mut image, extent.sector * SECTOR, content);
    }
    Ok(Image(image))
}

fn check(label: &str, files: &[(&str, &[u8])]) -> Result<(), Unfit> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if label.is_empty() || label.len() > LONGEST_LABEL || !label.chars().all(letter) {
        return Err(Unfit::Label(label.to_owned()));
    }
    let mut names = BTreeSet::new();
    for (name, _) in files {
        let (stem, extension) = parts(name);
        let small = |c: char| letter(c) && !c.is_ascii_uppercase();
        let half_empty = stem.is_empty() || (extension.is_empty() && name.contains('.'));
        let characters = stem.len() + extension.len();
        if half_empty || characters > LONGEST_NAME || !stem.chars().chain(extension.chars()).all(small) {
            return Err(Unfit::Name((*name).to_owned()));
        }
        if !names.insert(name) {
            return Err(Unfit::Twice((*name).to_owned()));
        }
    }
    Ok(())
}

/// Takes a name apart at its first dot.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

/// A run of sectors, and how many of its bytes count.
#[derive(Debug, Clone, Copy)]
struct Extent {
    sector: usize,
    bytes: usize,
}

/// Where everything stands.
struct Layout {
    plain: Extent,
    joliet: Extent,
    /// As the files are given.
    files: Vec<Extent>,
    sectors: usize,
}

impl Layout {
    fn of(files: &[(&str, &[u8])]) -> Result<Self, Unfit> {
        let mut next = DIRECTORIES;
        let mut take = |bytes: usize| {
            // What is empty has no place.
            let extent = Extent { sector: if bytes == 0 { 0 } else { next }, bytes };
            next = next.saturating_add(bytes.div_ceil(SECTOR));
            extent
        };
        let plain = take(directory_bytes(Tree::Plain, files));
        let joliet = take(directory_bytes(Tree::Joliet, files));
        let files = files.iter().map(|(_, content)| take(content.len())).collect();
        if next > MOST_BYTES / SECTOR {
            return Err(Unfit::TooLarge);
        }
        Ok(Self { plain, joliet, files, sectors: next })
    }

    const fn directory(&self, tree: Tree) -> Extent {
        match tree {
            Tree::Plain => self.plain,
            Tree::Joliet => self.joliet,
        }
    }
}

/// One of the two directories, with its way to write names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tree {
    Plain,
    Joliet,
}

impl Tree {
    const fn tables(self) -> usize {
        match self {
            Self::Plain => PLAIN_TABLES,
            Self::Joliet => JOLIET_TABLES,
        }
    }

    fn identifier(self, name: &str) -> Vec<u8> {
        match self {
            Self::Plain if name.contains('.') => format!("{};1", name.to_uppercase()).into_bytes(),
            Self::Plain => format!("{}.;1", name.to_uppercase()).into_bytes(),
            // Versions are left out: nobody asks for them, and some readers would show them.
            Self::Joliet => wide(name),
        }
    }

    /// Returns what files are ordered by: the name, then the extension.
    fn rank(self, name: &str) -> (String, String) {
        let written = if self == Self::Plain { name.to_uppercase() } else { name.to_owned() };
        let (stem, extension) = parts(&written);
        (stem.to_owned(), extension.to_owned())
    }

    /// Writes a text into a field, with blanks behind it.
    fn text(self, text: &str, field: &mut [u8]) {
        match self {
            Self::Plain => field.fill(b' '),
            Self::Joliet => {
                // The odd byte at the end of a field of 37 stays zero.
                let blanks = field.chunks_exact_mut(2);
                blanks.for_each(|pair| pair.copy_from_slice(&[0, b' ']));
            }
        }
        let text = if self == Self::Plain { text.as_bytes().to_vec() } else { wide(text) };
        put(field, 0, &text);
    }
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// 1 January 1980: the same in every image, and a date that every file system knows.
const DIRECTORY_TIME: [u8; 7] = [80, 1, 1, 0, 0, 0, 0];
const DESCRIPTOR_TIME: &[u8; 17] = b"1980010100000000\0";
const NO_TIME: &[u8; 17] = b"0000000000000000\0";

fn descriptor(tree: Tree, label: &str, layout: &Layout) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    sector[0] = if tree == Tree::Plain { 1 } else { 2 };
    put(&mut sector, 1, b"CD001\x01");
    tree.text("", &mut sector[8..40]);
    tree.text(label, &mut sector[40..72]);
    put(&mut sector, 80, &both_ends_32(layout.sectors));
    if tree == Tree::Joliet {
        // Level 3: names are UCS-2.
        put(&mut sector, 88, b"%/E");
    }
    put(&mut sector, 120, &both_ends_16(1));
    put(&mut sector, 124, &both_ends_16(1));
    put(&mut sector, 128, &both_ends_16(2048));
    put(&mut sector, 132, &TABLE_BYTES.to_le_bytes());
    put(&mut sector, 136, &TABLE_BYTES.to_be_bytes());
    put(&mut sector, 140, &number(tree.tables()).to_le_bytes());
    put(&mut sector, 148, &number(tree.tables() + 1).to_be_bytes());
    put(&mut sector, 156, &record(&[0], layout.directory(tree), DIRECTORY));
    // Volume set, publisher, preparer, application; then names of files about the volume.
    for field in [190..318, 318..446, 446..574, 574..702, 702..739, 739..776, 776..813] {
        tree.text("", &mut sector[field]);
    }
    for (at, time) in [(813, DESCRIPTOR_TIME), (830, DESCRIPTOR_TIME), (847, NO_TIME), (864, NO_TIME)] {
        put(&mut sector, at, time);
    }
    sector[881] = 1;
    sector
}

const fn terminator() -> [u8; 7] {
    *b"\xffCD001\x01"
}

fn path_tables(root: Extent) -> [Vec<u8>; 2] {
    let sector = number(root.sector);
    let table = |sector: [u8; 4], parent: [u8; 2]| [&[1, 0][..], &sector, &parent, &[0, 0]].concat();
    [table(sector.to_le_bytes(), 1_u16.to_le_bytes()), table(sector.to_be_bytes(), 1_u16.to_be_bytes())]
}

/// The flag of a record that stands for a directory.
const DIRECTORY: u8 = 2;
const FILE: u8 = 0;

fn directory(tree: Tree, own: Extent, files: &[(&str, &[u8])], extents: &[Extent]) -> Vec<u8> {
    let mut named: Vec<(&str, Extent)> =
        files.iter().zip(extents).map(|((name, _), extent)| (*name, *extent)).collect();
    named.sort_by_key(|(name, _)| tree.rank(name));
    // Itself and, since it is the root, itself as its parent.
    let mut records = vec![record(&[0], own, DIRECTORY), record(&[1], own, DIRECTORY)];
    records.extend(named.iter().map(|(name, extent)| record(&tree.identifier(name), *extent, FILE)));
    let (offsets, bytes) = offsets(&records.iter().map(Vec::len).collect::<Vec<usize>>());
    let mut directory = vec![0; bytes];
    for (offset, record) in offsets.iter().zip(&records) {
        put(&mut directory, *offset, record);
    }
    directory
}

/// Returns the size of a directory before it is known where its files are.
fn directory_bytes(tree: Tree, files: &[(&str, &[u8])]) -> usize {
    let mut names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    names.sort_by_key(|name| tree.rank(name));
    let lengths = names.iter().map(|name| record_bytes(tree.identifier(name).len()));
    offsets(&[record_bytes(1), record_bytes(1)].into_iter().chain(lengths).collect::<Vec<usize>>()).1
}

/// Returns where records of these lengths stand, and the size of the whole: no record crosses sectors.
fn offsets(lengths: &[usize]) -> (Vec<usize>, usize) {
    let mut next: usize = 0;
    let place = |length: &usize| {
        if next % SECTOR + length > SECTOR {
            next = next.next_multiple_of(SECTOR);
        }
        let offset = next;
        next += length;
        offset
    };
    let offsets = lengths.iter().map(place).collect();
    (offsets, next.next_multiple_of(SECTOR))
}

/// The identifier is followed by a byte where that makes the length even.
const fn record_bytes(identifier: usize) -> usize {
    (33 + identifier).next_multiple_of(2)
}

fn record(identifier: &[u8], extent: Extent, flags: u8) -> Vec<u8> {
    let mut record = vec![0; record_bytes(identifier.len())];
    // Identifiers have 60 bytes at most, see `check`.
    record[0] = u8::try_from(record.len()).unwrap_or(u8::MAX);
    put(&mut record, 2, &both_ends_32(extent.sector));
    put(&mut record, 10, &both_ends_32(extent.bytes));
    put(&mut record, 18, &DIRECTORY_TIME);
    record[25] = flags;
    put(&mut record, 28, &both_ends_16(1));
    record[32] = u8::try_from(identifier.len()).unwrap_or(u8::MAX);
    put(&mut record, 33, identifier);
    record
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn number(number: usize) -> u32 {
    u32::try_from(number).expect("the layout is no larger than MOST_BYTES")
}

fn both_ends_32(value: usize) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (number(value).to_le_bytes(), number(value).to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

const fn both_ends_16(value: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    type Named = Vec<(String, Vec<u8>)>;

    /// Reads a number that stands in both byte orders.
    fn both(bytes: &[u8], at: usize) -> usize {
        let little = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let big = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes"));
        assert_eq!(little, big);
        little as usize
    }

    fn unwide(bytes: &[u8]) -> String {
        let units: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        String::from_utf16(&units).expect("UTF-16")
    }

    /// Reads a tree as strictly as the format allows: label, and files in the order of the directory.
    fn read(image: &[u8], tree: Tree) -> (String, Named) {
        assert!(image.len().is_multiple_of(SECTOR));
        assert!(image[..16 * SECTOR].iter().all(|byte| *byte == 0), "the system area is empty");
        let at = if tree == Tree::Plain { 16 } else { 17 } * SECTOR;
        let descriptor = &image[at..at + SECTOR];
        assert_eq!(&descriptor[..7], if tree == Tree::Plain { b"\x01CD001\x01" } else { b"\x02CD001\x01" });
        assert_eq!(&image[18 * SECTOR..18 * SECTOR + 7], b"\xffCD001\x01");
        assert_eq!(both(descriptor, 80) * SECTOR, image.len());
        assert_eq!(&descriptor[128..132], [0, 8, 8, 0]);
        let root = &descriptor[156..190];
        let (start, length) = (both(root, 2) * SECTOR, both(root, 10));
        check_path_tables(image, descriptor, start / SECTOR);
        let label = match tree {
            Tree::Plain => String::from_utf8(descriptor[40..72].to_vec()).expect("text"),
            Tree::Joliet => {
                assert_eq!(&descriptor[88..91], b"%/E");
                unwide(&descriptor[40..72])
            }
        };
        let records = records(&image[start..start + length]);
        for (own, name) in records[..2].iter().zip([0_u8, 1]) {
            assert_eq!((own[25], own[32], own[33]), (2, 1, name));
            assert_eq!((both(own, 2) * SECTOR, both(own, 10)), (start, length));
        }
        let files = records[2..].iter().map(|record| {
            let name = &record[33..33 + usize::from(record[32])];
            let name = if tree == Tree::Plain {
                String::from_utf8(name.to_vec()).expect("text")
            } else {
                unwide(name)
            };
            let content = &image[both(record, 2) * SECTOR..][..both(record, 10)];
            assert_eq!(record[25], 0);
            (name, content.to_vec())
        });
        (label.trim_end().to_owned(), files.collect())
    }

    fn check_path_tables(image: &[u8], descriptor: &[u8], root: usize) {
        assert_eq!(both(descriptor, 132), 10);
        let root = u32::try_from(root).expect("small");
        let little =
            u32::from_le_bytes(descriptor[140..144].try_into().expect("four bytes")) as usize * SECTOR;
        let big = u32::from_be_bytes(descriptor[148..152].try_into().expect("four bytes")) as usize * SECTOR;
        assert_eq!(image[little + 2..little + 6], root.to_le_bytes());
        assert_eq!(image[big + 2..big + 6], root.to_be_bytes());
        assert_eq!((image[little], image[little + 6], image[big], image[big + 7]), (1, 1, 1, 1));
    }

    fn records(directory: &[u8]) -> Vec<&[u8]> {
        let mut records = Vec::new();
        for sector in directory.chunks(SECTOR) {
            let mut at = 0;
            while at < SECTOR && sector[at] != 0 {
                let length = usize::from(sector[at]);
                assert!(length.is_multiple_of(2));
                records.push(&sector[at..at + length]);
                at += length;
            }
            assert!(sector[at..].iter().all(|byte| *byte == 0));
        }
        records
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| u8::try_from(i % 251 + 1).expect("small")).collect()
    }

    #[test]
    fn every_size_comes_back_under_both_names() {
        for bytes in [0, 1, 2047, 2048, 2049, 4096, 2 << 20] {
            let content = pattern(bytes);
            let files: [(&str, &[u8]); 3] =
                [("user-data", &content), ("meta-data", b"m"), ("network-config", &content)];
            let image = image("cidata", &files).expect("an image");
            let named = |names: [&str; 3]| {
                let contents = [b"m".to_vec(), content.clone(), content.clone()];
                names.map(ToOwned::to_owned).into_iter().zip(contents).collect::<Named>()
            };
            let (label, plain) = read(image.expose(), Tree::Plain);
            assert_eq!(label, "cidata");
            assert!(plain == named(["META-DATA.;1", "NETWORK-CONFIG.;1", "USER-DATA.;1"]), "{bytes}");
            let (label, joliet) = read(image.expose(), Tree::Joliet);
            assert_eq!(label, "cidata");
            assert!(joliet == named(["meta-data", "network-config", "user-data"]), "{bytes}");
            let sectors = 25 + 2 * bytes.div_ceil(SECTOR) + 1;
            assert_eq!(image.expose().len(), sectors * SECTOR, "no sector more than needed");
        }
    }

    #[test]
    fn many_files_fill_several_sectors_of_a_directory() {
        let names: Vec<String> = (0..300).map(|i| format!("file-with-a-long-name-{i:03}.txt")).collect();
        let files: Vec<(&str, &[u8])> =
            names.iter().map(|name| (name.as_str(), name.as_bytes())).rev().collect();
        let image = image("many", &files).expect("an image");
        for tree in [Tree::Plain, Tree::Joliet] {
            let (_, read) = read(image.expose(), tree);
            assert!(read.iter().map(|(_, content)| content).eq(names.iter().map(String::as_bytes)));
        }
    }

    #[test]
    fn files_are_ordered_by_name_and_then_by_extension_in_each_tree() {
        let files: Vec<(&str, &[u8])> =
            ["a-b", "a.z", "a_b", "ab", "a"].map(|name| (name, &b""[..])).to_vec();
        let image = image("order", &files).expect("an image");
        let names = |tree| read(image.expose(), tree).1.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Tree::Plain), ["A.;1", "A.Z;1", "A-B.;1", "AB.;1", "A_B.;1"]);
        assert_eq!(names(Tree::Joliet), ["a", "a.z", "a-b", "a_b", "ab"]);
    }

    #[test]
    fn the_same_files_give_the_same_bytes_and_nothing_is_shown() {
        let made = || image("cidata", &[("user-data", b"hush")]).expect("an image");
        assert_eq!(made(), made());
        assert_eq!(format!("{:?}", made()), "[secret image of 53248 bytes]");
    }

    #[test]
    fn what_some_reader_would_show_differently_is_refused() {
        let name = |name: &str| image("cidata", &[(name, b"")]).map(|_| ());
        for wrong in ["", ".", ".a", "a.", "a.b.c", "User", "a b", "ä", "a/b", "a;1", &"a".repeat(31)] {
            assert_eq!(name(wrong), Err(Unfit::Name(wrong.to_owned())));
        }
        assert_eq!(name(&"a".repeat(30)), Ok(()));
        for wrong in ["", "a b", "ä", "a-label-of-17-cha"] {
            assert_eq!(image(wrong, &[]), Err(Unfit::Label(wrong.to_owned())));
        }
        assert_eq!(image("x", &[("a", b""), ("a", b"")]), Err(Unfit::Twice("a".into())));
        let large = vec![0; 33 << 20];
        assert_eq!(image("x", &[("a", &large), ("b", &large)]), Err(Unfit::TooLarge));
    }
}
