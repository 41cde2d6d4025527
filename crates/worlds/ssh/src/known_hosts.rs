//! Keys of hosts that are known: the files `known_hosts` of OpenSSH, and what they say about a key.

use std::{fmt, path::PathBuf, sync::Arc};

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD};
use russh::keys::{Algorithm, HashAlg, PublicKey};

use crate::config::matches;

/// Most lines of a file that are looked at.
const MAX_LINES: usize = 200_000;
/// The usual port, which stands in no entry.
const USUAL_PORT: u16 = 22;

/// Files of known keys, in memory.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    files: Vec<(PathBuf, String)>,
}

/// A key that a host showed.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey(Arc<PublicKey>);

impl HostKey {
    /// Takes a key.
    pub(crate) fn new(key: &PublicKey) -> Self {
        Self(Arc::new(key.clone()))
    }

    /// Returns its fingerprint as `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Returns the name of its kind, as in `ssh-ed25519`.
    pub fn kind(&self) -> String {
        self.0.algorithm().to_string()
    }

    /// Returns the line that makes it known under a name.
    pub fn line(&self, name: &str) -> String {
        let mut key = PublicKey::clone(&self.0);
        key.set_comment("");
        format!("{name} {}", key.to_openssh().unwrap_or_default())
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey({} {})", self.kind(), self.fingerprint())
    }
}

/// An entry of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The kind of its key.
    pub kind: String,
    /// The fingerprint of its key.
    pub fingerprint: String,
}

/// What the files say about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the host's.
    Known,
    /// Nothing is known about the host.
    Unknown,
    /// The host is known by other keys.
    Changed(Vec<Entry>),
    /// It was revoked, for any host that this entry is about.
    Revoked(Entry),
    /// Only an authority vouches for the host, with certificates.
    OnlyAuthority(Entry),
}

/// Returns the name under which a host's key is kept.
pub fn name_of(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == USUAL_PORT { host } else { format!("[{host}]:{port}") }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Revoked,
    Authority,
}

struct Line<'a> {
    mark: Mark,
    hosts: &'a str,
    key: PublicKey,
}

impl KnownHosts {
    /// Takes files as they were read.
    pub fn new(files: Vec<(PathBuf, String)>) -> Self {
        Self { files }
    }

    /// Makes a key known under a name, for as long as this lives.
    pub fn add(&mut self, file: PathBuf, name: &str, key: &HostKey) {
        self.files.push((file, key.line(name)));
    }

    /// Judges the key that a host showed.
    pub fn judge(&self, name: &str, key: &HostKey) -> Verdict {
        let mut others = Vec::new();
        let mut authority = None;
        let mut known = false;
        for (entry, line) in self.about(name) {
            let same = line.key.key_data() == key.0.key_data();
            match line.mark {
                Mark::Revoked if same => return Verdict::Revoked(entry),
                Mark::Authority => authority = authority.or(Some(entry)),
                Mark::None if same => known = true,
                Mark::None => others.push(entry),
                Mark::Revoked => {}
            }
        }
        match (known, others.is_empty(), authority) {
            (true, _, _) => Verdict::Known,
            (false, false, _) => Verdict::Changed(others),
            (false, true, Some(entry)) => Verdict::OnlyAuthority(entry),
            (false, true, None) => Verdict::Unknown,
        }
    }

    /// Returns the kinds of keys by which a host is known. Asked for another one, it would seem to have changed.
    pub fn kinds(&self, name: &str) -> Vec<Algorithm> {
        let plain = self.about(name).filter(|(_, line)| line.mark == Mark::None);
        plain.map(|(_, line)| line.key.algorithm()).collect()
    }

    fn about<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (Entry, Line<'a>)> {
        self.files.iter().flat_map(move |(file, text)| {
            text.lines().take(MAX_LINES).enumerate().filter_map(move |(index, text)| {
                let line = parse(text, name)?;
                let shown = HostKey::new(&line.key);
                let (kind, fingerprint) = (shown.kind(), shown.fingerprint());
                Some((Entry { file: file.clone(), line: index + 1, kind, fingerprint }, line))
            })
        })
    }
}

/// Reads a line, if it is about a host. Keys are only looked at then: reading one takes time.
fn parse<'a>(line: &'a str, name: &str) -> Option<Line<'a>> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next().filter(|word| !word.starts_with('#'))?;
    let (mark, hosts) = match first {
        "@revoked" => (Mark::Revoked, words.next()?),
        "@cert-authority" => (Mark::Authority, words.next()?),
        word if word.starts_with('@') => return None,
        hosts => (Mark::None, hosts),
    };
    if !is_about(hosts, name) {
        return None;
    }
    let (kind, data) = (words.next()?, words.next()?);
    let key = PublicKey::from_openssh(&format!("{kind} {data}")).ok()?;
    Some(Line { mark, hosts, key }).filter(|line| !line.hosts.is_empty())
}

fn is_about(hosts: &str, name: &str) -> bool {
    if let Some(hashed) = hosts.strip_prefix("|1|") {
        return is_hash_of(hashed, name).unwrap_or_default();
    }
    let patterns: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    matches(&patterns, name)
}

/// `SALT|HASH`, where the hash is HMAC-SHA1 of the name under the salt.
fn is_hash_of(hashed: &str, name: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let (salt, hash) = (STANDARD.decode(salt).ok()?, STANDARD.decode(hash).ok()?);
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    Some(hmac::verify(&key, name.as_bytes(), &hash).is_ok())
}

#[cfg(test)]
mod tests {
    use russh::keys::{PrivateKey, key::safe_rng};

    use super::*;

    fn key() -> HostKey {
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
        HostKey::new(key.public_key())
    }

    fn hosts(text: &str) -> KnownHosts {
        KnownHosts::new(vec![("known_hosts".into(), text.to_owned())])
    }

    fn line(hosts: &str, key: &HostKey) -> String {
        format!("{}\n", key.line(hosts))
    }

    fn hashed(name: &str) -> String {
        let salt = [7; 20];
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt), name.as_bytes());
        format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(tag.as_ref()))
    }

    #[test]
    fn hosts_are_known_by_name_list_pattern_and_hash() {
        let key = key();
        for written in
            ["pve1", "PVE1", "other,pve1", "pve*", "*,!other", &hashed("pve1"), "pve1,10.0.0.1 # no comment"]
        {
            let text =
                format!("# a comment\n\n{}", line(written.split(' ').next().unwrap_or_default(), &key));
            assert_eq!(hosts(&text).judge("pve1", &key), Verdict::Known, "{written}");
        }
        for written in ["pve2", "pve*,!pve1", "[pve1]:2222", &hashed("pve2"), "|1|nonsense", "|1|a|b|c"] {
            assert_eq!(hosts(&line(written, &key)).judge("pve1", &key), Verdict::Unknown, "{written}");
        }
        let text = line("[pve1]:2222", &key);
        assert_eq!(hosts(&text).judge(&name_of("PVE1", 2222), &key), Verdict::Known);
        assert_eq!(hosts(&line(&hashed("[pve1]:2222"), &key)).judge("[pve1]:2222", &key), Verdict::Known);
    }

    #[test]
    fn another_key_is_a_changed_one_and_tells_where_the_known_one_is() {
        let (old, new) = (key(), key());
        let text = format!("{}{}", line("other", &new), line("pve1", &old));
        let Verdict::Changed(entries) = hosts(&text).judge("pve1", &new) else { panic!("not changed") };
        let entry = Entry {
            file: "known_hosts".into(),
            line: 2,
            kind: "ssh-ed25519".into(),
            fingerprint: old.fingerprint(),
        };
        assert_eq!(entries, [entry]);
        let both = format!("{}{}", line("pve1", &old), line("pve1", &new));
        assert_eq!(hosts(&both).judge("pve1", &new), Verdict::Known, "a host may have several");
    }

    #[test]
    fn revoked_keys_stay_revoked_and_authorities_do_not_vouch() {
        let (shown, other) = (key(), key());
        let revoked = format!("{}@revoked {}", line("pve1", &shown), line("*", &shown));
        assert!(matches!(hosts(&revoked).judge("pve1", &shown), Verdict::Revoked(entry) if entry.line == 2));
        let elsewhere = format!("@revoked {}", line("*", &other));
        assert_eq!(hosts(&elsewhere).judge("pve1", &shown), Verdict::Unknown);
        let authority = format!("@cert-authority {}", line("*", &shown));
        assert!(matches!(hosts(&authority).judge("pve1", &shown), Verdict::OnlyAuthority(_)));
        let unknown_mark = format!("@odd {}", line("pve1", &shown));
        assert_eq!(hosts(&unknown_mark).judge("pve1", &shown), Verdict::Unknown);
    }

    #[test]
    fn broken_lines_are_passed_over() {
        let key = key();
        let text =
            format!("pve1\npve1 ssh-ed25519\npve1 ssh-ed25519 AAAA\n@revoked\n\u{0}\n{}", line("pve1", &key));
        assert_eq!(hosts(&text).judge("pve1", &key), Verdict::Known);
        assert_eq!(hosts(&text).kinds("pve1"), [Algorithm::Ed25519]);
    }
}
