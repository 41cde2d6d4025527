//! What Talos' machine config documents are made of, for Talos 1.8 to 1.14.
//!
//! The tables below are facts about Talos in our own form: for every kind and field what type it
//! has, since which release it exists, whether the node tells "not set" from "zero", how two
//! values merge, and which document replaced it. Everything else in this crate asks them:
//! reading, writing, merging, linting and validating.

mod block;
mod cluster;
pub(crate) mod enums;
mod kube;
mod machine;
mod network;
mod system;

pub use enums::Enum;

use ichor_model::Minor;

/// The oldest Talos minor that is described.
pub const OLDEST: Minor = Minor::new(1, 8);
/// The newest Talos minor that is described.
pub const NEWEST: Minor = Minor::new(1, 14);

/// The minor number of Talos 1.x; releases beyond the known ones count as the newest known.
pub(crate) fn release(talos: Minor) -> u8 {
    if talos.major > 1 {
        return u8::MAX;
    }
    u8::try_from(talos.minor).unwrap_or(u8::MAX)
}

/// A kind of document.
#[derive(Debug)]
pub struct Kind {
    /// Its name, as in `kind:`; `v1alpha1` for the legacy document, which has none.
    pub name: &'static str,
    /// The first Talos 1.x that knows it.
    pub since: u8,
    /// Whether there may be several, told apart by `name`.
    pub named: bool,
    /// Whether only control planes may have it.
    pub control_plane_only: bool,
    /// Kinds that may not have a document of the same name beside this one.
    pub conflicts: &'static [&'static str],
    /// Its fields, without `apiVersion` and `kind`.
    pub body: Struct,
}

/// The fields of a map.
#[derive(Debug, Clone, Copy)]
pub struct Struct {
    /// The fields, in the order in which Talos writes them.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its key.
    pub name: &'static str,
    /// What it holds.
    pub kind: Type,
    /// The first Talos 1.x that knows it.
    pub since: u8,
    /// Whether Talos tells "not set" from the zero value (a pointer in its source).
    pub optional: bool,
    /// Whether Talos writes it even when it is not set.
    pub always: bool,
    /// Whether it holds a secret.
    pub secret: bool,
    /// How a patch's value meets the one that is there.
    pub merge: Merge,
    /// Which document took over, and since which Talos 1.x.
    pub replaced: Option<Replaced>,
}

/// What took over from a deprecated field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// The first Talos 1.x with the replacement.
    pub since: u8,
    /// The document's kind, or words where there is no single document.
    pub by: &'static str,
}

/// How a patch's value meets the one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// By type: maps are united, lists appended, single values replaced unless zero.
    ByType,
    /// The whole value is replaced.
    Replace,
    /// Like [`Merge::Replace`] since this Talos 1.x, by type before.
    ReplaceSince(u8),
    /// List items with the same key are merged, others appended.
    Keyed(Keyed),
}

/// By what list items are found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyed {
    /// A field of the item.
    Field(&'static str),
    /// `interface`, or else an equal `deviceSelector`.
    Interface,
    /// `image`; the found item is replaced as a whole.
    ImageReplace,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// Any single value, kept as text.
    Text,
    /// Text whose leading line breaks and tabs are dropped on reading.
    Manifest,
    /// A switch.
    Bool,
    /// A whole number within bounds.
    Int(i64, u64),
    /// File permissions.
    Octal,
    /// A duration such as `1m30s`.
    Duration,
    /// A URL, merged part by part. `true`: an empty one is kept as such.
    Url(bool),
    /// One of several words, in any case.
    Enum(&'static Enum),
    /// A routing table: a number from 1 to 252, `main`, `local`, `default` or `unspec`.
    Table,
    /// An IP address.
    Address,
    /// An IP address with a prefix length.
    Prefix,
    /// An IP address with a port.
    AddressPort,
    /// Bytes in hex, written with colons.
    Mac,
    /// A size such as `10GiB`, kept as written.
    ByteSize,
    /// A size, or since Talos 1.12 a percentage.
    Size,
    /// The size of a partition, written in Talos' own form.
    DiskSize,
    /// A comparison with a size, such as `>= 100GB`.
    SizeMatcher,
    /// A CEL expression, which only Talos can check.
    Expression,
    /// Bytes in base64.
    Base64,
    /// A port or a range of ports.
    PortRange,
    /// Text, or since Talos 1.13 a list of texts.
    Argument,
    /// Any map.
    Free,
    /// A list. Nothing (`null`) in a list is dropped, or refused where items are maps.
    List(&'static Self),
    /// A map with any keys.
    Map(&'static Self),
    /// A map with known keys.
    Struct(&'static Struct),
    /// A map with known keys that is replaced as a whole: certificates and keys.
    Pem(&'static Struct),
}

const TEXT: Type = Type::Text;
const BOOL: Type = Type::Bool;
const INT: Type = Type::Int(i64::MIN, i64::MAX as u64);
const I32: Type = Type::Int(i32::MIN as i64, i32::MAX as u64);
const U8: Type = Type::Int(0, u8::MAX as u64);
const U16: Type = Type::Int(0, u16::MAX as u64);
const U32: Type = Type::Int(0, u32::MAX as u64);
const U64: Type = Type::Int(0, u64::MAX);
const TEXTS: Type = Type::List(&TEXT);
const TEXT_MAP: Type = Type::Map(&TEXT);
const ARGS: Type = Type::Map(&Type::Argument);
const FREE: Type = Type::Free;
const URL: Type = Type::Url(false);

const fn field(name: &'static str, kind: Type) -> Field {
    Field {
        name,
        kind,
        since: 8,
        optional: false,
        always: false,
        secret: false,
        merge: Merge::ByType,
        replaced: None,
    }
}

/// A field that Talos tells apart from its zero value.
const fn opt(name: &'static str, kind: Type) -> Field {
    Field { optional: true, ..field(name, kind) }
}

/// A field that Talos always writes.
const fn must(name: &'static str, kind: Type) -> Field {
    Field { always: true, ..field(name, kind) }
}

const fn list(item: &'static Type) -> Type {
    Type::List(item)
}

const fn map_of(item: &'static Type) -> Type {
    Type::Map(item)
}

const fn fields(fields: &'static [Field]) -> Struct {
    Struct { fields }
}

impl Field {
    const fn always(self) -> Self {
        Self { always: true, ..self }
    }

    const fn since(self, since: u8) -> Self {
        Self { since, ..self }
    }

    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    const fn replace(self) -> Self {
        Self { merge: Merge::Replace, ..self }
    }

    const fn merge(self, merge: Merge) -> Self {
        Self { merge, ..self }
    }

    const fn by(self, key: &'static str) -> Self {
        Self { merge: Merge::Keyed(Keyed::Field(key)), ..self }
    }

    /// Names the document that took over.
    const fn old(self, since: u8, by: &'static str) -> Self {
        Self { replaced: Some(Replaced { since, by }), ..self }
    }
}

impl Struct {
    /// Returns a field by its key.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Kind {
    const fn new(name: &'static str, since: u8, body: Struct) -> Self {
        Self { name, since, named: false, control_plane_only: false, conflicts: &[], body }
    }

    const fn named(name: &'static str, since: u8, body: Struct) -> Self {
        Self { named: true, ..Self::new(name, since, body) }
    }

    const fn control_plane(self) -> Self {
        Self { control_plane_only: true, ..self }
    }

    const fn against(self, conflicts: &'static [&'static str]) -> Self {
        Self { conflicts, ..self }
    }

    /// Whether this is the legacy document with `machine` and `cluster`.
    pub fn is_legacy(&self) -> bool {
        self.name == "v1alpha1"
    }
}

/// The legacy document.
pub static LEGACY: Kind = Kind::new("v1alpha1", 8, machine::ROOT);

static TABLES: [&[Kind]; 4] = [block::KINDS, kube::KINDS, network::KINDS, system::KINDS];

/// Returns every kind there is, the legacy document first.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    std::iter::once(&LEGACY).chain(TABLES.into_iter().flatten())
}

/// Returns a kind by its name.
pub fn kind(name: &str) -> Option<&'static Kind> {
    kinds().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn each_field(body: &Struct, depth: usize, visit: &mut impl FnMut(&Struct, &Field)) {
        assert!(depth < 12, "schemas do not recurse");
        for field in body.fields {
            visit(body, field);
            let mut kind = field.kind;
            while let Type::List(item) | Type::Map(item) = kind {
                kind = *item;
            }
            if let Type::Struct(inner) | Type::Pem(inner) = kind {
                each_field(inner, depth + 1, visit);
            }
        }
    }

    #[test]
    fn every_kind_is_listed_once_and_names_real_kinds() {
        let names: Vec<_> = kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
        for kind in kinds() {
            assert!((8..=14).contains(&kind.since), "{}", kind.name);
            assert!(kind.conflicts.iter().all(|other| names.contains(other)), "{}", kind.name);
            assert_eq!(kind.named, kind.body.field("name").is_some(), "{}", kind.name);
        }
    }

    #[test]
    fn every_field_is_plausible() {
        for kind in kinds() {
            each_field(&kind.body, 0, &mut |body, field| {
                let same = body.fields.iter().filter(|other| other.name == field.name).count();
                assert_eq!(same, 1, "{}: {}", kind.name, field.name);
                assert!((8..=14).contains(&field.since), "{}: {}", kind.name, field.name);
                if let Some(Replaced { since, .. }) = field.replaced {
                    assert!((8..=14).contains(&since), "{}: {}", kind.name, field.name);
                }
                if matches!(field.merge, Merge::Keyed(_)) {
                    assert!(matches!(field.kind, Type::List(_)), "{}: {}", kind.name, field.name);
                }
            });
        }
    }
}
