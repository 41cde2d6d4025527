//! The web as hosts see it when they download images.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{checksum::checksum, shelves::FileFacts};
use crate::{factory::image_file, ground::Content, pve::request::Upload, wire::Response};

/// What hosts can download, besides what the lab's Image Factory serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Web {
    /// Pages by address.
    pub pages: BTreeMap<String, Page>,
    /// Servers of the Image Factory, as they stand in addresses.
    pub factories: BTreeSet<String>,
    /// Answers of the Image Factory that nobody has fetched yet, by address.
    pub fetched: BTreeMap<String, Page>,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            pages: BTreeMap::new(),
            factories: BTreeSet::from(["factory.talos.dev".to_owned()]),
            fetched: BTreeMap::new(),
        }
    }
}

/// What a server answers to a `GET`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// The status.
    pub status: u16,
    /// The words after it.
    pub reason: String,
    /// The address to go to instead.
    pub redirect: Option<String>,
    /// The type of the file.
    pub mime: Option<String>,
    /// The name that the server gives the file.
    pub name: Option<String>,
    /// How many bytes come in a second; usual when absent.
    pub bytes_per_second: Option<u64>,
    /// After how many bytes the connection breaks.
    pub breaks_after: Option<u64>,
    /// The file.
    pub file: File,
}

impl Page {
    /// A file.
    pub fn of(file: File, mime: &str) -> Self {
        Self {
            status: 200,
            reason: "OK".into(),
            redirect: None,
            mime: Some(mime.to_owned()),
            name: None,
            bytes_per_second: None,
            breaks_after: None,
            file,
        }
    }

    /// What a server in the lab answered.
    pub fn answered(response: &Response) -> Self {
        let header = |name: &str| {
            response
                .headers
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.clone())
        };
        let name = header("content-disposition").and_then(|value| {
            value.split("filename=").nth(1).map(|name| name.trim_matches(['"', ' ', ';']).to_owned())
        });
        let redirect = header("location").filter(|_| (300..400).contains(&response.status));
        let reason = response.reason.clone().unwrap_or_else(|| usual_reason(response.status).to_owned());
        Self {
            status: response.status,
            reason,
            redirect,
            name,
            mime: header("content-type"),
            ..Self::of(File::of_bytes(&response.body), "")
        }
    }

    /// An error.
    pub fn error(status: u16, reason: &str) -> Self {
        Self { status, reason: reason.to_owned(), ..Self::of(File::of_bytes(&[]), "text/html") }
    }
}

fn usual_reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        402 => "Payment Required",
        404 => "Not Found",
        _ => "Error",
    }
}

/// A file with its content, and what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Its size.
    pub size: u64,
    /// What is in it.
    pub content: Content,
    /// What is known of it.
    pub facts: FileFacts,
    /// How it is packed, and what is inside.
    pub packed: Option<(String, Box<File>)>,
}

impl File {
    /// A file whose bytes are known.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::beginning_with(bytes, bytes.len() as u64, checksum("sha256", bytes))
    }

    /// A file that was uploaded.
    pub fn uploaded(upload: &Upload) -> Self {
        let sha256 = upload.checksums.get("sha256").cloned().unwrap_or_default();
        Self::beginning_with(&upload.beginning, upload.size, sha256)
    }

    /// A file whose first bytes are known.
    fn beginning_with(bytes: &[u8], size: u64, sha256: String) -> Self {
        let facts = FileFacts { sha256: Some(sha256), data: size, ..FileFacts::default() };
        Self { size, facts: sniffed(facts, bytes), content: image_file::recognise(bytes), packed: None }
    }
}

/// Looks at a file's first bytes, as `qemu-img` does.
fn sniffed(mut facts: FileFacts, bytes: &[u8]) -> FileFacts {
    let long =
        |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_be_bytes);
    if bytes.starts_with(b"QFI\xfb") {
        facts.image = Some("qcow2".into());
        facts.virtual_size = long(24);
        facts.data = 0;
        let offset = long(8).and_then(|at| usize::try_from(at).ok()).filter(|at| *at > 0);
        let length = bytes.get(16..20).and_then(|part| part.try_into().ok()).map_or(0, u32::from_be_bytes);
        if let Some(at) = offset {
            let end = at.saturating_add(usize::try_from(length).unwrap_or(0)).min(bytes.len());
            let name = bytes.get(at..end).unwrap_or_default();
            facts.backing = Some(String::from_utf8_lossy(name).into_owned());
        }
    } else if bytes.starts_with(b"KDMV") {
        facts.image = Some("vmdk".into());
    }
    facts
}

/// An address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `http` or `https`.
    pub scheme: String,
    /// The name or address of the server.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query.
    pub path: String,
}

impl Address {
    /// Reads an address.
    pub fn read(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (server, path) =
            rest.split_once('/').map_or((rest, String::from("/")), |(a, b)| (a, format!("/{b}")));
        let server = server.rsplit('@').next().unwrap_or_default();
        let usual = if scheme == "https" { 443 } else { 80 };
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (server, usual),
        };
        Some(Self { scheme: scheme.to_owned(), host: host.to_owned(), port, path })
    }

    /// Returns the server as it stands in addresses.
    fn server(&self) -> String {
        let usual = if self.scheme == "https" { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Returns the last part of the path.
    pub fn file_name(&self) -> &str {
        self.path.split(['?', '#']).next().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
    }
}

/// What comes of an attempt to reach a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Reached {
    /// A page, and its address after redirections.
    Page(Box<Page>, String),
    /// Nobody knows the server's name.
    UnknownName(Address),
    /// Nobody listens.
    Refused(Address),
    /// The Image Factory must be asked, at this address.
    AskFactory(String),
}

/// How many redirections are followed.
const MOST_REDIRECTIONS: usize = 20;

impl Web {
    /// Looks a page up.
    pub fn reach(&self, url: &str) -> Reached {
        let mut url = url.to_owned();
        for _ in 0..MOST_REDIRECTIONS {
            let Some(address) = Address::read(&url) else {
                let nowhere = Address { scheme: "http".into(), host: url, port: 80, path: "/".into() };
                return Reached::UnknownName(nowhere);
            };
            let bare = url.split('#').next().unwrap_or_default();
            if let Some(page) = self.pages.get(bare).or_else(|| self.fetched.get(bare)) {
                match &page.redirect {
                    Some(to) if to.contains("://") => url.clone_from(to),
                    Some(to) => {
                        url = format!(
                            "{}://{}/{}",
                            address.scheme,
                            address.server(),
                            to.trim_start_matches('/')
                        );
                    }
                    None => return Reached::Page(Box::new(page.clone()), url),
                }
                continue;
            }
            if self.factories.contains(&address.server()) {
                return Reached::AskFactory(url);
            }
            let server = format!("{}://{}/", address.scheme, address.server());
            if self.pages.keys().any(|page| page.starts_with(&server)) {
                return Reached::Page(Box::new(Page::error(404, "File not found")), url);
            }
            let known = address.host == "localhost" || address.host.parse::<std::net::IpAddr>().is_ok();
            return if known { Reached::Refused(address) } else { Reached::UnknownName(address) };
        }
        Reached::Page(Box::new(Page::error(302, "Found")), url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address = Address::read("http://127.0.0.1:8000/redirect/a.iso?x=1").expect("an address");
        assert_eq!((address.host.as_str(), address.port, address.file_name()), ("127.0.0.1", 8000, "a.iso"));
        assert_eq!(Address::read("https://factory.talos.dev").expect("an address").port, 443);
    }

    #[test]
    fn redirections_are_followed_and_loops_end() {
        let mut web = Web::default();
        let redirect = |to: &str| Page { redirect: Some(to.into()), ..Page::error(302, "Found") };
        web.pages.insert("http://x:1/a".into(), redirect("/b"));
        web.pages.insert("http://x:1/b".into(), Page::of(File::of_bytes(&[1, 2]), "text/plain"));
        web.pages.insert("http://x:1/loop".into(), redirect("/loop"));
        assert!(
            matches!(web.reach("http://x:1/a"), Reached::Page(page, url) if page.file.size == 2 && url.ends_with("/b"))
        );
        assert!(matches!(web.reach("http://x:1/loop"), Reached::Page(page, _) if page.status == 302));
        assert!(matches!(web.reach("http://x:1/c"), Reached::Page(page, _) if page.status == 404));
        assert!(matches!(web.reach("http://127.0.0.1:9/x"), Reached::Refused(_)));
        assert!(matches!(web.reach("http://nobody.test/x"), Reached::UnknownName(_)));
        assert!(matches!(web.reach("https://factory.talos.dev/image/x"), Reached::AskFactory(_)));
    }

    #[test]
    fn images_are_recognised_by_their_first_bytes() {
        let mut bytes = b"QFI\xfb\0\0\0\x03".to_vec();
        bytes.extend([0; 16]);
        bytes.extend((64u64 << 20).to_be_bytes());
        let facts = File::of_bytes(&bytes).facts;
        assert_eq!(
            (facts.image.as_deref(), facts.virtual_size, facts.backing),
            (Some("qcow2"), Some(64 << 20), None)
        );
        assert_eq!(File::of_bytes(b"Not Found").facts.image, None);
    }
}
