//! Objects in a bucket of S3, Google Cloud Storage or Azure.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt};
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion, memory::InMemory,
    path::Path,
};

use tokio::time::timeout;

use crate::objects::{Answer, Fault, MAX_BYTES, Object, Objects, Put, Version};

/// Most names that are listed.
const MAX_NAMES: usize = 100_000;
/// Longest that an act may take, all its requests together: a server can have one more page again and again. A lease must
/// outlive it.
const WITHIN: Duration = Duration::from_secs(30);
/// Longest text of a server that is repeated.
const MAX_TEXT: usize = 300;

/// Objects below a prefix of a bucket.
#[derive(Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.prefix)
    }
}

impl Bucket {
    /// Keeps objects below a prefix; an empty one is the bucket itself.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: impl Into<String>) -> Self {
        Self { store, prefix: prefix.into() }
    }

    /// Keeps objects in memory, with the conditions of a bucket, for as long as somebody has it.
    pub fn in_memory() -> Self {
        Self::new(Arc::new(InMemory::new()), "memory")
    }

    fn path(&self, key: &str) -> Path {
        Path::from(format!("{}/{key}", self.prefix))
    }

    async fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<Put, Fault> {
        let payload = PutPayload::from(bytes.to_vec());
        match self.store.put_opts(&self.path(key), payload, PutOptions::from(mode)).await {
            Ok(put) => Ok(Put::Done(Version { tag: put.e_tag, number: put.version })),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }) => {
                Ok(Put::Beaten)
            }
            // What is to be replaced and is gone was changed by somebody else.
            Err(Error::NotFound { .. }) if self.exists(key).await == Ok(false) => Ok(Put::Beaten),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Whether an object is there, when its bucket is: one that is missing is answered in the same way.
    async fn exists(&self, key: &str) -> Result<bool, Fault> {
        let prefix = Path::from(self.prefix.as_str());
        if let Some(Err(error)) = self.store.list(Some(&prefix)).next().await {
            return Err(fault(&error));
        }
        self.get(key).await.map(|object| object.is_some())
    }
}

impl Objects for Bucket {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Object>> {
        in_time(async move {
            let found = match self.store.get(&self.path(key)).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(fault(&error)),
            };
            let version = Version { tag: found.meta.e_tag.clone(), number: found.meta.version.clone() };
            let mut bytes = Vec::new();
            let mut pieces = found.into_stream();
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|error| fault(&error))?;
                if bytes.len() + piece.len() > MAX_BYTES {
                    return Err(Fault::TooLarge(key.to_owned()));
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(Some(Object { bytes, version }))
        })
    }

    fn create<'a>(&'a self, key: &'a str, bytes: &'a [u8]) -> Answer<'a, Put> {
        in_time(self.put(key, bytes, PutMode::Create))
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: &'a [u8], unchanged: &'a Version) -> Answer<'a, Put> {
        let version = UpdateVersion { e_tag: unchanged.tag.clone(), version: unchanged.number.clone() };
        in_time(self.put(key, bytes, PutMode::Update(version)))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        in_time(async move {
            let mut names = Vec::new();
            let path = self.path(prefix.trim_end_matches('/'));
            let mut found = self.store.list(Some(&path));
            while let Some(meta) = found.next().await {
                let meta = meta.map_err(|error| fault(&error))?;
                if names.len() == MAX_NAMES {
                    return Err(Fault::Refused(format!(
                        "there are more than {MAX_NAMES} objects in `{prefix}`"
                    )));
                }
                names.extend(meta.location.filename().map(str::to_owned));
            }
            names.sort();
            Ok(names)
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        in_time(async move {
            match self.store.delete(&self.path(key)).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(fault(&error)),
            }
        })
    }
}

/// Ends an act that does not end by itself.
fn in_time<'a, T: 'a>(act: impl Future<Output = Result<T, Fault>> + Send + 'a) -> Answer<'a, T> {
    async move {
        let late = |_| Err(Fault::NotReached(format!("it came to no end within {WITHIN:?}")));
        timeout(WITHIN, act).await.unwrap_or_else(late)
    }
    .boxed()
}

fn fault(error: &Error) -> Fault {
    let said = deepest(error);
    let text = clean(&in_words(&said));
    // The status stands in the text, the library has no other sign of it.
    let status = |number: &str| said.contains(&format!("status code: {number}"));
    let answered = said.contains("status code") || said.contains("error response");
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Fault::Denied(text),
        Error::NotFound { .. } => Fault::Refused(text),
        _ if status("401") || status("403") => Fault::Denied(text),
        Error::Generic { .. } if !answered => Fault::NotReached(text),
        _ => Fault::Refused(text),
    }
}

/// Takes what is for people out of the XML that servers answer with.
fn in_words(said: &str) -> String {
    let part = |tag: &str| {
        let (_, rest) = said.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(text, _)| text)
    };
    match (part("Code"), part("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => said.to_owned(),
    }
}

/// Returns what the innermost error says: those around it only repeat it.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// Makes a server's text fit for a line. The query of an address may be a signature.
fn clean(text: &str) -> String {
    let words: Vec<String> = text
        .split(|c: char| c.is_whitespace() || c.is_control() || is_trick(c))
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_once('?') {
            Some((before, _)) if before.contains("://") => format!("{before}?..."),
            _ => word.to_owned(),
        })
        .collect();
    let text = words.join(" ");
    if text.chars().count() <= MAX_TEXT {
        return text;
    }
    text.chars().take(MAX_TEXT).chain("...".chars()).collect()
}

/// Characters that turn the direction of text around, or that nobody sees.
const fn is_trick(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn the_text_of_a_server_cannot_move_the_cursor_or_show_a_signature() {
        let text =
            "error sending request for url\n(https://a.example/b?sig=SECRET&se=1)\u{1b}[2J\u{202e} gone";
        assert_eq!(clean(text), "error sending request for url (https://a.example/b?... [2J gone");
        assert_eq!(clean(&"x".repeat(1000)).chars().count(), super::MAX_TEXT + 3);
    }
}
