//! age, as far as a SOPS file needs it: a data key for one recipient, in an armored file.
//!
//! Recipients and identities are X25519 keys of age itself, and Ed25519 keys of SSH. A file has one stanza
//! for each of its recipients, all of which wrap the same file key, an HMAC over the header, and the payload
//! in chunks; a data key fits into the first of them.

mod armor;
mod bech32;
mod edwards;
mod file;
mod primitives;
mod ssh;

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

pub use file::{Refused, decrypt, encrypt};

use crate::{Entropy, Flaw};

/// Says how an age recipient begins, in front of the `1` of bech32.
const RECIPIENT: &str = "age";
/// The same of an identity.
const IDENTITY: &str = "AGE-SECRET-KEY-";

/// Somebody a file is encrypted to. It is no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    text: String,
    key: PublicKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PublicKey {
    X25519([u8; 32]),
    /// The key as SSH writes it, and the point of X25519 that it stands for.
    Ssh {
        wire: Vec<u8>,
        point: [u8; 32],
    },
}

impl Recipient {
    /// Reads `age1…` or `ssh-ed25519 …`.
    pub fn parse(text: &str) -> Result<Self, Flaw> {
        let text = text.trim();
        if text.starts_with("ssh-") {
            let wire = ssh::public(text)?;
            let point = edwards::to_montgomery(&ssh::ed25519_of(&wire)?);
            // The comment after the key is somebody's name or computer, and for them to share or not.
            let words: Vec<&str> = text.split_ascii_whitespace().take(2).collect();
            return Ok(Self { text: words.join(" "), key: PublicKey::Ssh { wire, point } });
        }
        let key =
            bech32::decode(RECIPIENT, text).and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
        let key = key.ok_or_else(|| bad_recipient(text))?;
        Ok(Self { text: text.to_owned(), key: PublicKey::X25519(key) })
    }

    /// Returns the recipient as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn bad_recipient(text: &str) -> Flaw {
    // Somebody may have written the wrong half of a key pair.
    if text.starts_with(IDENTITY) || text.contains("PRIVATE KEY") {
        return Flaw::bad_key(
            "a secret key stands where a recipient is wanted",
            "write the public half, which begins with `age1`, and make a new key: this one is known now",
        );
    }
    let remedy = "write an `age1…` or `ssh-ed25519 …` key";
    if text.starts_with("age1") && text.len() > 70 {
        return Flaw::bad_key(
            "the recipient is of a kind that is not there: plugins and post-quantum keys are not",
            remedy,
        );
    }
    Flaw::bad_key("the recipient is no public key of age or of SSH's Ed25519", remedy)
}

/// What opens files: a secret key.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    secret: Zeroizing<[u8; 32]>,
    recipient: Recipient,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity of {}", self.recipient.text)
    }
}

impl Identity {
    /// Makes a new one.
    pub fn generate(entropy: Entropy<'_>) -> Result<Self, Flaw> {
        let mut secret = Zeroizing::new([0; 32]);
        entropy(secret.as_mut());
        Self::x25519(secret)
    }

    /// Reads `AGE-SECRET-KEY-1…`.
    pub fn parse(text: &str) -> Result<Self, Flaw> {
        let bytes = bech32::decode(IDENTITY, text.trim()).map(Zeroizing::new);
        let secret = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
        Self::x25519(Zeroizing::new(secret.ok_or_else(bad_identity)?))
    }

    /// Reads the private key of `ssh-keygen -t ed25519`, if no passphrase protects it.
    pub fn from_ssh(pem: &str) -> Result<Self, Flaw> {
        let (seed, wire) = ssh::private(pem)?;
        let secret = ssh::scalar(&seed);
        let point = primitives::public(&secret).ok_or_else(ssh::malformed)?;
        if edwards::to_montgomery(&ssh::ed25519_of(&wire)?) != point {
            return Err(ssh::malformed());
        }
        let text = ssh::text_of(&wire);
        Ok(Self { secret, recipient: Recipient { text, key: PublicKey::Ssh { wire, point } } })
    }

    fn x25519(secret: Zeroizing<[u8; 32]>) -> Result<Self, Flaw> {
        let public = primitives::public(&secret).ok_or_else(bad_identity)?;
        let text = bech32::encode(RECIPIENT, &public);
        Ok(Self { secret, recipient: Recipient { text, key: PublicKey::X25519(public) } })
    }

    /// Returns who it is for others.
    pub const fn recipient(&self) -> &Recipient {
        &self.recipient
    }

    /// Returns the line of a keys file; nothing for a key of SSH, which has a file of its own.
    pub fn to_text(&self) -> Option<Zeroizing<String>> {
        match self.recipient.key {
            PublicKey::Ssh { .. } => None,
            PublicKey::X25519(_) => {
                let mut text = bech32::encode(IDENTITY, self.secret.as_ref());
                let upper = Zeroizing::new(text.to_ascii_uppercase());
                text.zeroize();
                Some(upper)
            }
        }
    }
}

fn bad_identity() -> Flaw {
    Flaw::bad_key("a line is no age identity", "write lines that begin with `AGE-SECRET-KEY-1`")
}

/// Reads a keys file: one identity in each line, comments with `#`.
pub fn identities(text: &str) -> Result<Vec<Identity>, Flaw> {
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        // Keys of plugins and of the post-quantum kind open nothing here, and are no mistake.
        let is_foreign = line.starts_with("AGE-PLUGIN-") || line.starts_with("AGE-SECRET-KEY-PQ-1");
        if line.is_empty() || line.starts_with('#') || is_foreign {
            continue;
        }
        found.push(Identity::parse(line).map_err(|flaw| flaw.at(i + 1))?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random enough for tests, and the same every time.
    pub fn counting(seed: u8) -> impl FnMut(&mut [u8]) {
        let mut next = seed;
        move |buffer| {
            for byte in buffer {
                next = next.wrapping_mul(167).wrapping_add(13);
                *byte = next;
            }
        }
    }

    #[test]
    fn a_known_pair_fits_together() {
        // The example of age's own manual page.
        let identity =
            Identity::parse("AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX");
        let identity = identity.expect("an identity");
        assert_eq!(
            identity.recipient().text(),
            "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj"
        );
        let text = identity.to_text().expect("text");
        assert_eq!(Identity::parse(&text).expect("again"), identity);
        assert!(!format!("{identity:?}").contains("AGE-SECRET"));
    }

    #[test]
    fn what_was_encrypted_is_decrypted_by_whom_it_is_for() {
        let one = Identity::generate(&mut counting(1)).expect("one");
        let two = Identity::generate(&mut counting(2)).expect("two");
        let armored = encrypt(one.recipient(), b"thirty-two bytes of a data key..", &mut counting(3));
        let armored = armored.expect("encrypted");
        let plain = decrypt(&armored, &[two.clone(), one]).expect("decrypted");
        assert_eq!(plain.as_slice(), b"thirty-two bytes of a data key..");
        assert_eq!(decrypt(&armored, &[two]), Err(Refused::NotForUs));
    }

    #[test]
    fn no_byte_can_be_changed() {
        let one = Identity::generate(&mut counting(1)).expect("one");
        let armored = encrypt(one.recipient(), b"key", &mut counting(3)).expect("encrypted");
        let lines: Vec<&str> = armored.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            for at in 0..line.len() {
                let mut other = (*line).to_owned().into_bytes();
                other[at] = if other[at] == b'A' { b'B' } else { b'A' };
                let mut changed: Vec<&str> = lines.clone();
                let text = String::from_utf8(other).expect("text");
                changed[i] = &text;
                let changed = changed.join("\n");
                assert!(decrypt(&changed, std::slice::from_ref(&one)).is_err(), "{i} {at}");
            }
        }
    }

    /// Writes a private key as ssh-keygen does.
    fn ssh_key(seed: [u8; 32], cipher: &str) -> String {
        use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
        let public = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a pair");
        let public = public.public_key().as_ref();
        let text = |bytes: &[u8]| {
            [u32::try_from(bytes.len()).expect("short").to_be_bytes().as_slice(), bytes].concat()
        };
        let name = text(ssh::NAME.as_bytes());
        let pair = text(&[seed.as_slice(), public].concat());
        let secrets =
            [&[7; 8], name.as_slice(), &text(public), &pair, &text(b"me@here"), &[1, 2, 3]].concat();
        let file = [
            b"openssh-key-v1\0".as_slice(),
            &text(cipher.as_bytes()),
            &text(b"none"),
            &text(b""),
            &1_u32.to_be_bytes(),
            &text(&[name.as_slice(), &text(public)].concat()),
            &text(&secrets),
        ];
        let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, file.concat());
        let lines: Vec<&str> =
            body.as_bytes().chunks(70).map(|it| std::str::from_utf8(it).expect("text")).collect();
        let kind = "OPENSSH PRIVATE KEY";
        format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
    }

    #[test]
    fn keys_of_ssh_open_what_is_for_them() {
        for seed in 0..20 {
            let identity = Identity::from_ssh(&ssh_key([seed; 32], "none")).expect("an identity");
            let line = format!("{} me@here", identity.recipient().text());
            let recipient = Recipient::parse(&line).expect("a recipient");
            assert_eq!(&recipient, identity.recipient());
            let armored = encrypt(&recipient, b"key", &mut counting(seed)).expect("encrypted");
            let plain = decrypt(&armored, std::slice::from_ref(&identity)).expect("decrypted");
            assert_eq!(plain.as_slice(), b"key");
            let other = Identity::from_ssh(&ssh_key([seed + 1; 32], "none")).expect("an identity");
            assert_eq!(decrypt(&armored, &[other]), Err(Refused::NotForUs));
            assert!(identity.to_text().is_none());
        }
        let protected = Identity::from_ssh(&ssh_key([1; 32], "aes256-ctr")).expect_err("a passphrase");
        assert!(protected.problem.message.contains("passphrase"));
        let key = ssh_key([1; 32], "none");
        for broken in ["", "AAAA", &key[..key.len() / 2], &key.replace("BEGIN", "END")] {
            assert!(Identity::from_ssh(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn wrong_keys_are_told_without_repeating_them() {
        let secret = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
        for text in [secret, "age1abc", "ssh-rsa AAAA", "ssh-ed25519 AAAA", "", "hunter2"] {
            let flaw = Recipient::parse(text).expect_err(text);
            assert!(text.is_empty() || !flaw.problem.message.contains(text), "{}", flaw.problem.message);
        }
        assert!(identities("AGE-PLUGIN-YUBIKEY-1QQ\n").expect("nothing wrong").is_empty());
        for text in ["AGE-SECRET-KEY-1QQQ", "hunter2"] {
            let flaw = identities(&format!("# mine\n\n{text}\n")).expect_err(text);
            assert_eq!(flaw.line, Some(3));
            assert!(!flaw.problem.message.contains(text));
        }
    }
}
