//! One encrypted value: AES-256-GCM with 32 bytes of IV, bound to the keys that lead to it.

use aes_gcm::{
    AesGcm, KeyInit,
    aead::{AeadInOut, array::Array, consts::U32},
    aes::Aes256,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::Entropy;

const TAG: usize = 16;
const IV: usize = 32;

/// The key of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<[u8; 32]>);

/// The type of a value, as it is written beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Text,
    Int,
    Float,
    Bool,
    Time,
    Bytes,
    Comment,
}

impl Kind {
    const ALL: [(&'static str, Self); 7] = [
        ("str", Self::Text),
        ("int", Self::Int),
        ("float", Self::Float),
        ("bool", Self::Bool),
        ("time", Self::Time),
        ("bytes", Self::Bytes),
        ("comment", Self::Comment),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("str", |(word, _)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(other, _)| *other == word).map(|(_, kind)| *kind)
    }
}

impl DataKey {
    /// Draws a new one.
    pub fn generate(entropy: Entropy<'_>) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        entropy(bytes.as_mut());
        Self(bytes)
    }

    /// Takes one that was decrypted.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Zeroizing::new([0; 32]);
        (bytes.len() == key.len()).then(|| key.copy_from_slice(bytes))?;
        Some(Self(key))
    }

    /// Returns its bytes, to be encrypted.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    fn cipher(&self) -> AesGcm<Aes256, U32> {
        AesGcm::new(&Array(*self.0))
    }

    /// Encrypts a value. Nothing stays nothing, as sops has it.
    pub fn seal(&self, plain: &[u8], kind: Kind, place: &str, entropy: Entropy<'_>) -> Option<String> {
        if plain.is_empty() {
            return Some(String::new());
        }
        let mut iv = [0; IV];
        entropy(&mut iv);
        let mut data = Zeroizing::new(plain.to_vec());
        let tag =
            self.cipher().encrypt_inout_detached(&Array(iv), place.as_bytes(), data.as_mut_slice().into());
        let tag = tag.ok()?;
        let [data, iv, tag] = [data.as_slice(), &iv, tag.as_slice()].map(|bytes| STANDARD.encode(bytes));
        Some(format!("ENC[AES256_GCM,data:{data},iv:{iv},tag:{tag},type:{}]", kind.word()))
    }

    /// Decrypts a value; nothing, if it is none, or stands in another place, or was changed.
    pub fn open(&self, text: &str, place: &str) -> Option<(Kind, Zeroizing<Vec<u8>>)> {
        let (kind, mut data, iv, tag) = parse(text)?;
        let opened = self.cipher().decrypt_inout_detached(
            &Array(iv),
            place.as_bytes(),
            data.as_mut_slice().into(),
            &Array(tag),
        );
        opened.ok()?;
        Some((kind, data))
    }
}

/// Whether a text looks like an encrypted value.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with("ENC[AES256_GCM,")
}

#[expect(clippy::type_complexity, reason = "the four parts of the text, named where they are used")]
fn parse(text: &str) -> Option<(Kind, Zeroizing<Vec<u8>>, [u8; IV], [u8; TAG])> {
    let rest = text.strip_prefix("ENC[AES256_GCM,data:")?.strip_suffix(']')?;
    let (data, rest) = rest.split_once(",iv:")?;
    let (iv, rest) = rest.split_once(",tag:")?;
    let (tag, kind) = rest.split_once(",type:")?;
    let decode = |text: &str| STANDARD.decode(text).ok();
    let data = Zeroizing::new(decode(data)?);
    Some((Kind::parse(kind)?, data, decode(iv)?.try_into().ok()?, decode(tag)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_opened_in_its_place_only() {
        let key = DataKey::generate(&mut |buffer| buffer.fill(7));
        let sealed = key.seal(b"hunter2", Kind::Text, "a:b:", &mut |buffer| buffer.fill(9)).expect("sealed");
        assert!(!sealed.contains("hunter2"));
        let (kind, plain) = key.open(&sealed, "a:b:").expect("opened");
        assert_eq!((kind, plain.as_slice()), (Kind::Text, b"hunter2".as_slice()));
        assert!(key.open(&sealed, "a:c:").is_none());
        let other = DataKey::generate(&mut |buffer| buffer.fill(8));
        assert!(other.open(&sealed, "a:b:").is_none());
        for broken in [
            "",
            "ENC[]",
            "ENC[AES256_GCM,data:,iv:,tag:,type:str]",
            &sealed[1..],
            &sealed[..sealed.len() - 1],
            &format!("{sealed} "),
            &sealed.replace("type:str", "type:other"),
            &sealed.replace("AES256", "AES128"),
        ] {
            assert!(key.open(broken, "a:b:").is_none(), "{broken}");
        }
        assert_eq!(key.seal(b"", Kind::Text, "a:", &mut |_| {}), Some(String::new()));
    }
}
