//! Keys to log in with: those in files, and those of an agent.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use russh::keys::{Certificate, PrivateKey, PublicKey, decode_secret_key};
use thiserror::Error;
use zeroize::Zeroizing;

/// What opens a key.
pub type Passphrase = Zeroizing<String>;

/// Keys in files, and the agent, in the order in which they are offered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    /// The socket of an agent.
    pub agent: Option<PathBuf>,
    /// Whether an agent offers only keys that are also named.
    pub only_named: bool,
    pub files: Vec<KeyFile>,
}

/// A key in a file.
#[derive(Clone)]
pub(crate) struct KeyFile {
    pub path: PathBuf,
    pub state: State,
    /// Its public half, if that can be had without the key itself.
    pub public: Option<PublicKey>,
    pub certificate: Option<Certificate>,
}

#[derive(Clone)]
pub(crate) enum State {
    /// It can be used.
    Open(Arc<PrivateKey>),
    /// It needs a passphrase.
    Locked(Zeroizing<String>),
    /// It cannot be used, and why.
    Unusable(String),
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Open(_) => "open",
            State::Locked(_) => "locked",
            State::Unusable(why) => why,
        };
        write!(f, "KeyFile({}, {state})", self.path.display())
    }
}

/// Why a key was not opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotUnlocked {
    /// The passphrase is another.
    #[error("the passphrase is not that of `{0}`")]
    WrongPassphrase(PathBuf),
    /// There is no such key that waits for a passphrase.
    #[error("`{0}` waits for no passphrase")]
    NotLocked(PathBuf),
}

impl KeyFile {
    /// Reads a key. `public` and `certificate` are the files beside it.
    pub fn new(
        path: PathBuf,
        text: Zeroizing<String>,
        public: Option<&str>,
        certificate: Option<&str>,
    ) -> Self {
        let certificate = certificate.and_then(|text| Certificate::from_openssh(text.trim()).ok());
        let beside = public.and_then(|text| PublicKey::from_openssh(text.trim()).ok());
        // A key in OpenSSH's own form carries its public half in the open, also when it is locked.
        let inside = || PrivateKey::from_openssh(text.as_bytes()).ok().map(|key| key.public_key().clone());
        let mut public = beside.or_else(inside);
        let state = match decode_secret_key(&text, None) {
            Ok(key) => {
                public = Some(key.public_key().clone());
                usable(key)
            }
            Err(russh::keys::Error::KeyIsEncrypted) => State::Locked(text),
            Err(_) if is_locked(&text) => State::Locked(text),
            Err(error) => State::Unusable(format!("it is no private key that ichor reads: {error}")),
        };
        Self { path, state, public, certificate }
    }

    /// A key that only an agent can use.
    pub fn public_only(path: PathBuf, public: &str) -> Self {
        let public = PublicKey::from_openssh(public.trim()).ok();
        let state = State::Unusable("only its public half is there, for an agent".into());
        Self { path, state, public, certificate: None }
    }

    /// A key that is not used, and why.
    pub fn unusable(path: PathBuf, why: impl Into<String>) -> Self {
        Self { path, state: State::Unusable(why.into()), public: None, certificate: None }
    }
}

fn usable(key: PrivateKey) -> State {
    let kind = key.algorithm();
    match kind.as_str() {
        // Their other half is in a device, which only an agent can ask.
        kind if kind.starts_with("sk-") => State::Unusable("its device can be asked by an agent only".into()),
        "ssh-dss" => State::Unusable("DSA keys are too weak".into()),
        _ => State::Open(Arc::new(key)),
    }
}

/// Whether a key in one of the older forms needs a passphrase.
fn is_locked(text: &str) -> bool {
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

impl Keys {
    /// Opens a key.
    pub fn unlock(&mut self, path: &Path, passphrase: &Passphrase) -> Result<(), NotUnlocked> {
        let file = self.files.iter_mut().find(|file| file.path == path);
        let file = file.ok_or_else(|| NotUnlocked::NotLocked(path.to_owned()))?;
        let State::Locked(text) = &file.state else { return Err(NotUnlocked::NotLocked(path.to_owned())) };
        let key = decode_secret_key(text, Some(passphrase));
        let key = key.map_err(|_| NotUnlocked::WrongPassphrase(path.to_owned()))?;
        file.public = Some(key.public_key().clone());
        file.state = usable(key);
        Ok(())
    }
}
