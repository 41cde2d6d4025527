//! An encrypted file, and what becomes of it with a key.

use std::{collections::BTreeMap, fmt};

use sha2::{Digest, Sha256, Sha512};
use zeroize::Zeroizing;

use crate::{
    Entropy, Flaw, FlawKind, Format, Identity, Recipient, Rule, Tree,
    age::{self, Refused},
    cipher::{DataKey, Kind, is_sealed},
    emit::{self, bare},
    metadata::{KEY, Metadata, Wrapped},
    rules::Judge,
    tree::{Comment, Entry, Item, Map, Scalar, Value},
    walk::{self, Leaf, place, shown},
};

/// What the checksum begins with where it covers encrypted values alone, so that nobody can pass one kind off
/// as the other: the SHA-256 of `sops`.
const MAC_ONLY_ENCRYPTED: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b, 0x0b,
    0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// A file whose values are encrypted.
#[derive(Clone, PartialEq)]
pub struct Sealed {
    format: Format,
    documents: Vec<Map>,
    metadata: Metadata,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed for {:?}", self.recipients())
    }
}

/// How a new file is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// To whom.
    pub recipients: Vec<Recipient>,
    /// What of it.
    pub rule: Rule,
    /// Whether values that stay plain may be changed by everybody.
    pub mac_only_encrypted: bool,
}

/// A file that was decrypted, and found as it was written.
pub struct Opened {
    plain: Tree,
    key: DataKey,
    sealed: Sealed,
    /// What is encrypted already, so that what does not change keeps its text.
    known: Known,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened {:?}", self.sealed)
    }
}

/// Encrypted values by a digest of the key, their place, type and plain value.
type Known = BTreeMap<[u8; 32], String>;

fn digest_of(key: &DataKey, place: &str, kind: Kind, plain: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(key.expose());
    digest.update(place.len().to_le_bytes());
    digest.update(place);
    digest.update([kind as u8]);
    digest.update(plain);
    digest.finalize().into()
}

impl Sealed {
    /// Reads an encrypted file.
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, Flaw> {
        let mut documents = Tree::parse(bytes, format)?.documents;
        let mut blocks = Vec::new();
        for document in &mut documents {
            let is_block = |entry: &Entry| matches!(entry, Entry::Pair(key, _) if key == KEY);
            let at = document.iter().position(is_block);
            blocks.push(at.map(|at| document.remove(at)));
        }
        let Some(Some(Entry::Pair(_, Value::Map(block)))) = blocks.into_iter().next() else {
            return Err(without_block(&documents));
        };
        Ok(Self { format, metadata: Metadata::parse(&block)?, documents })
    }

    /// Returns the age recipients, as they are written.
    pub fn recipients(&self) -> Vec<&str> {
        self.metadata.wrapped.iter().map(|wrapped| wrapped.recipient.as_str()).collect()
    }

    /// Returns when it was last changed.
    pub fn last_modified(&self) -> &str {
        &self.metadata.last_modified
    }

    /// Writes the file.
    pub fn to_text(&self) -> String {
        let mut documents = self.documents.clone();
        if documents.is_empty() {
            documents.push(Vec::new());
        }
        for document in &mut documents {
            document.push(Entry::Pair(KEY.to_owned(), self.metadata.to_value()));
        }
        match self.format {
            Format::Yaml => emit::yaml(&documents),
            Format::Json => emit::json(&documents[0]),
        }
    }

    /// Decrypts the file, or says why nothing of it can be had.
    pub fn open(&self, identities: &[Identity]) -> Result<Opened, Flaw> {
        let key = self.data_key(identities)?;
        let judge = self.metadata.rule.judge()?;
        let mut known = Known::new();
        let mut mac = Mac::new(self.metadata.mac_only_encrypted);
        let documents = walk::documents(self.documents.clone(), &mut |leaf, keys| {
            let is_encrypted = judge.is_encrypted(keys);
            let leaf = if is_encrypted { opened(leaf, keys, &key, &mut known)? } else { leaf };
            mac.add(&leaf, is_encrypted);
            Ok(leaf)
        })?;
        let written = key.open(&self.metadata.mac, &self.metadata.last_modified);
        if written.is_none_or(|(_, written)| written.as_slice() != mac.finish().as_bytes()) {
            return Err(Flaw::tampered("was changed since it was encrypted: its checksum is another one"));
        }
        Ok(Opened { plain: Tree { documents }, key, sealed: self.clone(), known })
    }

    fn data_key(&self, identities: &[Identity]) -> Result<DataKey, Flaw> {
        let mut is_damaged = false;
        for wrapped in &self.metadata.wrapped {
            match age::decrypt(&wrapped.armored, identities) {
                Ok(bytes) => {
                    let key = DataKey::from_bytes(&bytes);
                    return key.ok_or_else(|| Flaw::tampered("has a data key that is none"));
                }
                Err(Refused::NotForUs) => {}
                Err(Refused::Malformed) => is_damaged = true,
            }
        }
        if self.metadata.wrapped.is_empty() {
            let kinds: Vec<&str> = self.metadata.foreign.iter().map(|(kind, _)| kind.as_str()).collect();
            let kinds = if kinds.is_empty() { "none at all".to_owned() } else { kinds.join(", ") };
            return Err(Flaw::unsupported(
                format!("is encrypted to no age recipient, but with keys of other kinds: {kinds}"),
                "add an age recipient with sops, or decrypt it for the command, as in\n    sops -d FILE | ichor secrets import -",
            ));
        }
        if is_damaged {
            return Err(Flaw::tampered("has a data key that was changed or damaged"));
        }
        Err(Flaw::new(
            FlawKind::NoKey,
            format!("is encrypted to others: {}", self.recipients().join(", ")),
            "use one of their identities, or ask one of them to add you as a recipient",
        ))
    }
}

fn without_block(documents: &[Map]) -> Flaw {
    if documents.iter().any(holds_sealed) {
        return Flaw::tampered("has encrypted values, and no `sops` block that tells how to open them");
    }
    Flaw::new(FlawKind::NotSealed, "is not encrypted", "encrypt it, or name another file")
}

fn holds_sealed(map: &Map) -> bool {
    map.iter().any(|entry| match entry {
        Entry::Comment(comment) => is_sealed(&comment.text),
        Entry::Pair(_, value) => is_sealed_within(value),
    })
}

fn is_sealed_within(value: &Value) -> bool {
    match value {
        Value::Scalar(Scalar::Text(text)) => is_sealed(text),
        Value::Map(map) => holds_sealed(map),
        Value::List(items) => items.iter().any(|item| match item {
            Item::Comment(comment) => is_sealed(&comment.text),
            Item::Value(value) => is_sealed_within(value),
        }),
        _ => false,
    }
}

/// The checksum over all plain values, in the order of the file. Comments do not count.
struct Mac {
    digest: Sha512,
    only_encrypted: bool,
}

impl Mac {
    fn new(only_encrypted: bool) -> Self {
        let mut digest = Sha512::new();
        if only_encrypted {
            digest.update(MAC_ONLY_ENCRYPTED);
        }
        Self { digest, only_encrypted }
    }

    fn add(&mut self, leaf: &Leaf, is_encrypted: bool) {
        match leaf {
            Leaf::Scalar(scalar) if is_encrypted || !self.only_encrypted => {
                self.digest.update(&*bytes_of(scalar));
            }
            _ => {}
        }
    }

    fn finish(self) -> String {
        self.digest.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
    }
}

fn bytes_of(scalar: &Scalar) -> Zeroizing<Vec<u8>> {
    match scalar {
        Scalar::Bytes(bytes) => bytes.clone(),
        other => Zeroizing::new(bare(other).as_bytes().to_vec()),
    }
}

const fn kind_of(scalar: &Scalar) -> Kind {
    match scalar {
        Scalar::Text(_) => Kind::Text,
        Scalar::Int(_) => Kind::Int,
        Scalar::Float(_) => Kind::Float,
        Scalar::Bool(_) => Kind::Bool,
        Scalar::Time(_) => Kind::Time,
        Scalar::Bytes(_) => Kind::Bytes,
    }
}

fn opened(leaf: Leaf, keys: &[String], key: &DataKey, known: &mut Known) -> Result<Leaf, Flaw> {
    match leaf {
        Leaf::Comment(comment) => Ok(Leaf::Comment(opened_comment(comment, keys, key, known))),
        Leaf::Scalar(Scalar::Text(text)) if text.is_empty() => Ok(Leaf::Scalar(Scalar::Text(text))),
        Leaf::Scalar(Scalar::Text(text)) => {
            let place = place(keys);
            let refused = || Flaw::tampered(format!("has a value that does not belong in `{}`", shown(keys)));
            let (kind, plain) = key.open(&text, &place).ok_or_else(refused)?;
            known.insert(digest_of(key, &place, kind, &plain), text.as_str().to_owned());
            value_of(kind, plain).ok_or_else(refused)
        }
        Leaf::Scalar(_) => {
            Err(Flaw::tampered(format!("has a plain value in `{}`, where encrypted ones are", shown(keys))))
        }
    }
}

/// Comments are not under the checksum, and sops moves them when it writes: one that cannot be decrypted in its
/// place stays as it is, which tells nobody anything.
fn opened_comment(comment: Comment, keys: &[String], key: &DataKey, known: &mut Known) -> Comment {
    if !is_sealed(&comment.text) {
        return comment;
    }
    for end in (0..=keys.len()).rev() {
        let place = place(&keys[..end]);
        if let Some((kind @ Kind::Comment, plain)) = key.open(&comment.text, &place) {
            known.insert(digest_of(key, &place, kind, &plain), comment.text.as_str().to_owned());
            return Comment::new(&String::from_utf8_lossy(&plain), comment.is_inline);
        }
    }
    comment
}

fn value_of(kind: Kind, plain: Zeroizing<Vec<u8>>) -> Option<Leaf> {
    let Ok(text) = std::str::from_utf8(&plain) else {
        return matches!(kind, Kind::Text | Kind::Bytes).then_some(Leaf::Scalar(Scalar::Bytes(plain)));
    };
    Some(Leaf::Scalar(match kind {
        Kind::Text | Kind::Bytes => Scalar::text(text),
        Kind::Int => Scalar::Int(text.parse().ok()?),
        Kind::Float => Scalar::Float(match text {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            _ => text.parse().ok()?,
        }),
        Kind::Bool => Scalar::Bool(match text {
            "True" | "true" | "TRUE" | "t" | "T" | "1" => true,
            "False" | "false" | "FALSE" | "f" | "F" | "0" => false,
            _ => return None,
        }),
        Kind::Time => Scalar::Time(text.to_owned()),
        Kind::Comment => {
            return Some(Leaf::Comment(Comment::new(text, false)));
        }
    }))
}

/// Encrypts a new file.
pub fn seal(
    plain: &Tree,
    format: Format,
    policy: &Policy,
    when: &str,
    entropy: Entropy<'_>,
) -> Result<Sealed, Flaw> {
    let metadata = Metadata::new(policy.rule.clone(), policy.mac_only_encrypted);
    let empty = Sealed { format, documents: Vec::new(), metadata };
    let key = DataKey::generate(entropy);
    let mut sealed = empty.sealed(plain, &key, &Known::new(), when, entropy)?;
    sealed.metadata.wrapped = wrap_all(&key, &policy.recipients, entropy)?;
    Ok(sealed)
}

fn wrap_all(key: &DataKey, recipients: &[Recipient], entropy: Entropy<'_>) -> Result<Vec<Wrapped>, Flaw> {
    if recipients.is_empty() {
        return Err(Flaw::bad_key("would be encrypted to nobody", "name a recipient"));
    }
    recipients.iter().map(|recipient| wrap(key, recipient, entropy)).collect()
}

fn wrap(key: &DataKey, recipient: &Recipient, entropy: Entropy<'_>) -> Result<Wrapped, Flaw> {
    let armored = age::encrypt(recipient, key.expose(), entropy)
        .ok_or_else(|| Flaw::bad_key("has a recipient whose key is none", "write the recipient again"))?;
    Ok(Wrapped { recipient: recipient.text().to_owned(), armored })
}

impl Sealed {
    /// Encrypts values with a key, by the rule of this file.
    fn sealed(
        &self,
        plain: &Tree,
        key: &DataKey,
        known: &Known,
        when: &str,
        entropy: Entropy<'_>,
    ) -> Result<Self, Flaw> {
        if plain.documents.iter().flatten().any(|entry| matches!(entry, Entry::Pair(key, _) if key == KEY)) {
            return Err(Flaw::unsupported(
                format!("has a key `{KEY}`, which is where encrypted files keep what opens them"),
                "give the key another name; what is encrypted already need not be encrypted again",
            ));
        }
        let judge: Judge = self.metadata.rule.judge()?;
        let mut mac = Mac::new(self.metadata.mac_only_encrypted);
        let documents = walk::documents(plain.documents.clone(), &mut |leaf, keys| {
            let is_encrypted = judge.is_encrypted(keys);
            mac.add(&leaf, is_encrypted);
            if is_encrypted { sealed_leaf(&leaf, keys, key, known, entropy) } else { Ok(leaf) }
        })?;
        let mut metadata = self.metadata.clone();
        when.clone_into(&mut metadata.last_modified);
        metadata.mac = key.seal(mac.finish().as_bytes(), Kind::Text, when, entropy).ok_or_else(too_long)?;
        Ok(Self { format: self.format, documents, metadata })
    }
}

fn too_long() -> Flaw {
    Flaw::limit("has a value that is too long to be encrypted".to_owned())
}

fn sealed_leaf(
    leaf: &Leaf,
    keys: &[String],
    key: &DataKey,
    known: &Known,
    entropy: Entropy<'_>,
) -> Result<Leaf, Flaw> {
    let (kind, plain) = match leaf {
        Leaf::Comment(comment) => (Kind::Comment, Zeroizing::new(comment.text.as_bytes().to_vec())),
        Leaf::Scalar(scalar) => (kind_of(scalar), bytes_of(scalar)),
    };
    let place = place(keys);
    let text = match known.get(&digest_of(key, &place, kind, &plain)) {
        Some(text) => text.clone(),
        None => key.seal(&plain, kind, &place, entropy).ok_or_else(too_long)?,
    };
    Ok(Leaf::Scalar(Scalar::text(text)))
}

impl Opened {
    /// Returns what the file says.
    pub const fn plain(&self) -> &Tree {
        &self.plain
    }

    /// Returns the file that was opened.
    pub const fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// Encrypts another text with the same key to the same recipients. What does not change keeps its text.
    pub fn reseal(&self, plain: &Tree, when: &str, entropy: Entropy<'_>) -> Result<Sealed, Flaw> {
        self.sealed.sealed(plain, &self.key, &self.known, when, entropy)
    }

    /// Lets others open the file too. Nothing else in it changes.
    pub fn add(&self, recipients: &[Recipient], entropy: Entropy<'_>) -> Result<Sealed, Flaw> {
        let mut sealed = self.sealed.clone();
        for recipient in recipients {
            if !sealed.recipients().contains(&recipient.text()) {
                sealed.metadata.wrapped.push(wrap(&self.key, recipient, entropy)?);
            }
        }
        Ok(sealed)
    }

    /// Encrypts everything with a new key to exactly these recipients.
    pub fn rotate(&self, recipients: &[Recipient], when: &str, entropy: Entropy<'_>) -> Result<Sealed, Flaw> {
        if let Some((kind, _)) = self.sealed.metadata.foreign.first() {
            return Err(Flaw::unsupported(
                format!("is also encrypted with keys of another kind: {kind}"),
                "rotate it with sops:\n    sops rotate -i FILE",
            ));
        }
        let key = DataKey::generate(entropy);
        let mut sealed = self.sealed.sealed(&self.plain, &key, &Known::new(), when, entropy)?;
        sealed.metadata.wrapped = wrap_all(&key, recipients, entropy)?;
        Ok(sealed)
    }
}

#[cfg(test)]
mod tests;
