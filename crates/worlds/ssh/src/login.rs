//! One login: the handshake, the host's key, and ours.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use ichor_net::{Dial, Stream};
use russh::{
    MethodKind,
    client::{self, AuthResult, ChannelOpenHandle, Config, Handle, Msg, Session},
    keys::{
        Algorithm, HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate,
        agent::{AgentIdentity, client::AgentClient},
    },
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
    time::timeout,
};

use crate::{
    clean,
    keys::{KeyFile, Keys, State},
    known_hosts::{Entry, HostKey, KnownHosts, Verdict},
};

/// How long a server may take for the handshake, in which it computes a little.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(20);
/// How long logging in may take. An agent may ask its user first.
const LOG_IN_WITHIN: Duration = Duration::from_mins(1);
/// How long an agent may take to list its keys.
const AGENT_WITHIN: Duration = Duration::from_secs(10);
/// After how long without a word the server is asked whether it is there; after three times it is not.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVES: usize = 3;

/// Why there is no connection to a jump host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotConnected {
    /// It is not reached, hung up, or is too slow.
    #[error("{0}")]
    NotReached(String),
    /// What answers there does not speak SSH as we do.
    #[error("{0}")]
    NotUnderstood(String),
    /// Nobody knows its key yet.
    #[error("its key {} ({}) is not known", .0.fingerprint(), .0.kind())]
    UnknownKey(HostKey),
    /// It is known by another key.
    #[error("its key is {} ({}), and not one of those it is known by", .shown.fingerprint(), .shown.kind())]
    ChangedKey {
        /// What it showed.
        shown: HostKey,
        /// By what it is known.
        known: Vec<Entry>,
    },
    /// Its key was revoked.
    #[error("its key {} ({}) was revoked", .shown.fingerprint(), .shown.kind())]
    RevokedKey {
        /// What it showed.
        shown: HostKey,
        /// What says so.
        entry: Entry,
    },
    /// It is known by an authority only.
    #[error("only a certificate authority vouches for it, and ichor does not read certificates of hosts")]
    OnlyAuthority {
        /// What it showed.
        shown: HostKey,
        /// What names the authority.
        entry: Entry,
    },
    /// It does not let us in.
    #[error("it does not let {} in", .0.user)]
    Refused(Box<Refused>),
}

impl NotConnected {
    /// Whether trying again without any change could help.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::NotReached(_))
    }
}

/// How a host refused us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// As whom we came.
    pub user: String,
    /// The keys that it did not want, by name.
    pub offered: Vec<String>,
    /// Keys that were not offered because they need a passphrase.
    pub locked: Vec<PathBuf>,
    /// Keys that cannot be used, each with the reason.
    pub unusable: Vec<String>,
    /// The ways to log in that it names.
    pub methods: Vec<String>,
    /// Whether it hung up before all keys were offered.
    pub hung_up: bool,
    /// Whether it took a key and wants something else besides.
    pub wants_more: bool,
}

/// A connection that was logged in on.
pub(crate) struct Connection {
    pub handle: Handle<Greeter>,
    /// Whoever lets go of it hangs up, in whatever state the connection is.
    _line: oneshot::Sender<()>,
}

/// Everything that a login needs.
pub(crate) struct Login<'a> {
    pub user: &'a str,
    pub host: &'a str,
    pub port: u16,
    pub name: &'a str,
    pub known: KnownHosts,
    pub keys: Keys,
}

impl Login<'_> {
    pub async fn run(self, through: &dyn Dial) -> Result<Connection, NotConnected> {
        let not_reached = |error: &dyn std::fmt::Display| NotConnected::NotReached(clean(&error.to_string()));
        let stream = through.dial(self.host, self.port).await.map_err(|error| not_reached(&error))?;
        let (line, cut) = oneshot::channel();
        let stream = Line { stream, cut };
        let verdict = Arc::new(Mutex::new(None));
        let config = Arc::new(config(&self.known.kinds(self.name)));
        let greeter =
            Greeter { known: self.known, name: self.name.to_owned(), verdict: Arc::clone(&verdict) };
        let shaken = timeout(HANDSHAKE_WITHIN, client::connect_stream(config, stream, greeter)).await;
        let judged = verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shaken = shaken.map_err(|_| {
            NotConnected::NotReached(format!("it took more than {HANDSHAKE_WITHIN:?} for the handshake"))
        })?;
        let mut handle = shaken.map_err(|error| judged.unwrap_or_else(|| told(&error)))?;
        let admitted = timeout(LOG_IN_WITHIN, admit(&mut handle, self.user, &self.keys)).await;
        admitted.map_err(|_| {
            NotConnected::NotReached(format!("it took more than {LOG_IN_WITHIN:?} to log in"))
        })??;
        Ok(Connection { handle, _line: line })
    }
}

fn config(kinds: &[Algorithm]) -> Config {
    let usual = russh::Preferred::DEFAULT;
    // A known RSA key is asked for by the names of its signatures.
    let is_known =
        |kind: &Algorithm| kinds.iter().any(|known| known == kind || (is_rsa(known) && is_rsa(kind)));
    let strong =
        usual.key.iter().filter(|kind| !matches!(kind, Algorithm::Rsa { hash: None } | Algorithm::Dsa));
    let (known, others): (Vec<Algorithm>, Vec<Algorithm>) = strong.cloned().partition(is_known);
    let preferred = russh::Preferred { key: known.into_iter().chain(others).collect(), ..usual };
    Config {
        preferred,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES,
        nodelay: true,
        ..Config::default()
    }
}

const fn is_rsa(kind: &Algorithm) -> bool {
    matches!(kind, Algorithm::Rsa { .. })
}

/// Says what a failed handshake means.
fn told(error: &russh::Error) -> NotConnected {
    let text = clean(&error.to_string());
    match error {
        russh::Error::IO(_) | russh::Error::Disconnect | russh::Error::HUP => {
            NotConnected::NotReached(format!("it hung up in the handshake ({text})"))
        }
        russh::Error::Version => NotConnected::NotUnderstood("what answers there is no SSH server".into()),
        _ => NotConnected::NotUnderstood(format!("the handshake failed: {text}")),
    }
}

/// Looks at the key that a host shows, and opens no channel for it.
pub(crate) struct Greeter {
    known: KnownHosts,
    name: String,
    verdict: Arc<Mutex<Option<NotConnected>>>,
}

impl client::Handler for Greeter {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        // Certificates are not asked for.
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        let shown = HostKey::new(key);
        let wrong = match self.known.judge(&self.name, &shown) {
            Verdict::Known => return Ok(true),
            Verdict::Unknown => NotConnected::UnknownKey(shown),
            Verdict::Changed(known) => NotConnected::ChangedKey { shown, known },
            Verdict::Revoked(entry) => NotConnected::RevokedKey { shown, entry },
            Verdict::OnlyAuthority(entry) => NotConnected::OnlyAuthority { shown, entry },
        };
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(wrong);
        Ok(false)
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: russh::Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _refused_when_dropped: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: russh::Channel<Msg>,
        _: &str,
        _refused_when_dropped: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: russh::Channel<Msg>,
        _refused_when_dropped: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }
}

/// Offers keys until the host takes one: those of the agent that are named, its others, and those in files.
async fn admit(handle: &mut Handle<Greeter>, user: &str, keys: &Keys) -> Result<(), NotConnected> {
    let mut offers = Offers { handle, refused: Refused { user: user.to_owned(), ..Refused::default() } };
    let mut agent = match &keys.agent {
        Some(path) => offers.meet_agent(path).await,
        None => None,
    };
    if let Some((agent, identities)) = &mut agent {
        let named =
            |identity: &AgentIdentity| keys.files.iter().any(|file| has(file, &identity.public_key()));
        let (first, others): (Vec<_>, Vec<_>) = identities.iter().partition(|identity| named(identity));
        let others = others.into_iter().filter(|_| !keys.only_named);
        for identity in first.into_iter().chain(others) {
            if offers.offer_agents(agent, identity).await? {
                return Ok(());
            }
        }
    }
    let agents = agent.map(|(_, identities)| identities).unwrap_or_default();
    let fresh = |file: &&KeyFile| !agents.iter().any(|identity| has(file, &identity.public_key()));
    for file in keys.files.iter().filter(fresh) {
        match &file.state {
            State::Open(_) => {
                if offers.offer_file(file).await? {
                    return Ok(());
                }
            }
            State::Locked(_) => offers.refused.locked.push(file.path.clone()),
            State::Unusable(why) => offers.refused.unusable.push(format!("{}: {why}", file.path.display())),
        }
    }
    if offers.refused.offered.is_empty() && offers.come_without().await? {
        return Ok(());
    }
    Err(NotConnected::Refused(Box::new(offers.refused)))
}

fn has(file: &KeyFile, key: &PublicKey) -> bool {
    file.public.as_ref().is_some_and(|public| public.key_data() == key.key_data())
}

type Agent = AgentClient<tokio::net::UnixStream>;

struct Offers<'a> {
    handle: &'a mut Handle<Greeter>,
    refused: Refused,
}

impl Offers<'_> {
    /// Asks an agent for its keys. One that does not answer is told of, and done without.
    async fn meet_agent(&mut self, path: &std::path::Path) -> Option<(Agent, Vec<AgentIdentity>)> {
        let met = timeout(AGENT_WITHIN, async {
            let mut agent = AgentClient::connect_uds(path).await?;
            let identities = agent.request_identities().await?;
            Ok::<_, russh::keys::Error>((agent, identities))
        });
        let why = match met.await {
            Ok(Ok(met)) => return Some(met),
            Ok(Err(error)) => clean(&error.to_string()),
            Err(_) => "it does not answer".into(),
        };
        self.refused.unusable.push(format!("the agent at {}: {why}", path.display()));
        None
    }

    async fn offer_agents(
        &mut self,
        agent: &mut Agent,
        identity: &AgentIdentity,
    ) -> Result<bool, NotConnected> {
        let key = identity.public_key().into_owned();
        let hash = self.hash_for(&key.algorithm()).await;
        let user = self.refused.user.clone();
        let name = format!("{} of the agent", key.fingerprint(HashAlg::Sha256));
        let result = match identity {
            AgentIdentity::PublicKey { .. } => {
                self.handle.authenticate_publickey_with(user, key, hash, agent).await
            }
            AgentIdentity::Certificate { certificate, .. } => {
                self.handle.authenticate_certificate_with(user, certificate.clone(), hash, agent).await
            }
        };
        match result {
            Ok(result) => self.note(name, &result),
            // The agent did not sign, for example because its user said no; another key may still do.
            Err(error) => {
                self.refused.unusable.push(format!("{name}: {}", clean(&error.to_string())));
                Ok(false)
            }
        }
    }

    async fn offer_file(&mut self, file: &KeyFile) -> Result<bool, NotConnected> {
        let State::Open(key) = &file.state else { return Ok(false) };
        let name = file.path.display().to_string();
        if let Some(certificate) = &file.certificate {
            let user = self.refused.user.clone();
            let offered =
                self.handle.authenticate_openssh_cert(user, Arc::clone(key), certificate.clone()).await;
            let result = offered.map_err(|error| told(&error))?;
            if self.note(format!("{name}-cert.pub"), &result)? {
                return Ok(true);
            }
        }
        let hash = self.hash_for(&key.algorithm()).await;
        let user = self.refused.user.clone();
        let key = PrivateKeyWithHashAlg::new(Arc::clone(key), hash);
        let result = self.handle.authenticate_publickey(user, key).await.map_err(|error| told(&error))?;
        self.note(name, &result)
    }

    /// RSA keys sign with the best hash that the server knows, and never with SHA-1.
    async fn hash_for(&self, kind: &Algorithm) -> Option<HashAlg> {
        if !is_rsa(kind) {
            return None;
        }
        let best = self.handle.best_supported_rsa_hash().await.ok().flatten().flatten();
        Some(best.unwrap_or(HashAlg::Sha512))
    }

    /// Without any key to offer, the server still says what it wants, or lets in whoever comes.
    async fn come_without(&mut self) -> Result<bool, NotConnected> {
        let user = self.refused.user.clone();
        let result = self.handle.authenticate_none(user).await.map_err(|error| told(&error))?;
        self.note(String::new(), &result)
    }

    /// Returns whether we are in. A server that hung up is offered nothing more.
    fn note(&mut self, name: String, result: &AuthResult) -> Result<bool, NotConnected> {
        let AuthResult::Failure { remaining_methods, partial_success } = result else { return Ok(true) };
        if !name.is_empty() {
            self.refused.offered.push(name);
        }
        self.refused.wants_more |= partial_success;
        if !remaining_methods.is_empty() {
            let names = remaining_methods.iter().map(|method: &MethodKind| String::from(method));
            self.refused.methods = names.collect();
        }
        if self.handle.is_closed() || remaining_methods.is_empty() {
            self.refused.hung_up = true;
            return Err(NotConnected::Refused(Box::new(std::mem::take(&mut self.refused))));
        }
        Ok(false)
    }
}

/// A stream that ends when its other half is dropped: a handshake that was given up would go on without anybody.
struct Line {
    stream: Box<dyn Stream>,
    cut: oneshot::Receiver<()>,
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.cut.is_terminated() && Pin::new(&mut self.cut).poll(context).is_ready()
            || self.cut.is_terminated()
        {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
