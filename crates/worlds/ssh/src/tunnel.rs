//! Streams through a jump host.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use ichor_net::{Dial, Dialled, Stream};
use russh::{ChannelOpenFailure, ChannelStream, client::Msg};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    keys::{Keys, NotUnlocked, Passphrase},
    known_hosts::{HostKey, KnownHosts},
    login::{Connection, Login, NotConnected},
    route::Route,
};

/// How long the far side may take to connect to a server.
const OPEN_WITHIN: Duration = Duration::from_secs(15);
/// Most streams that wait for the far side at once. A server that does not answer keeps its stream waiting for
/// minutes on the jump host, whose SSH server has by default 1,024 files to open.
const MAX_OPENING: usize = 512;
/// Most streams that wait for one server at once.
const MAX_OPENING_FOR_ONE: usize = 4;
/// How long to wait before a jump host that has no room for another stream is asked again.
const ROOM_AFTER: Duration = Duration::from_millis(250);
/// How long a jump host is left alone after a failed attempt: the first, and at most.
const PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Makes streams through a jump host, over one connection.
///
/// A connection that drops takes its streams with it. The next stream makes a new one, once for all who want it. A
/// host that refuses us is not asked again: many of them lock out whoever knocks too often.
pub struct Tunnel {
    inner: Arc<Inner>,
}

struct Inner {
    user: String,
    host: String,
    port: u16,
    name: String,
    through: Arc<dyn Dial>,
    known: Mutex<KnownHosts>,
    keys: Mutex<Keys>,
    state: tokio::sync::Mutex<State>,
    opening: Arc<Semaphore>,
    opening_for: Mutex<BTreeMap<(String, u16), Arc<Semaphore>>>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failed: Option<Failed>,
}

struct Failed {
    why: NotConnected,
    times: u32,
    at: Instant,
}

impl Failed {
    fn counts(&self) -> bool {
        !self.why.may_pass()
            || self.at.elapsed() < PAUSE.saturating_mul(1 << self.times.min(5)).min(MAX_PAUSE)
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tunnel({self})")
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{}@{host}:{}", self.user, self.port)
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tunnel {
    /// Gets ready to log in; nothing is connected yet.
    pub fn new(route: Route, through: Arc<dyn Dial>) -> Self {
        let Route { user, host, port, name, known, keys, .. } = route;
        let inner = Inner {
            user,
            host,
            port,
            name,
            through,
            known: Mutex::new(known),
            keys: Mutex::new(keys),
            state: tokio::sync::Mutex::default(),
            opening: Arc::new(Semaphore::new(MAX_OPENING)),
            opening_for: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Logs in, unless that was done. What failed before is forgotten.
    pub async fn connect(&self) -> Result<(), NotConnected> {
        self.inner.state.lock().await.failed = None;
        let inner = Arc::clone(&self.inner);
        let connected = tokio::spawn(async move { inner.connection().await.map(drop) }).await;
        connected.unwrap_or_else(|error| Err(NotConnected::NotReached(error.to_string())))
    }

    /// Makes the host's key known, for as long as this lives.
    pub fn trust(&self, key: &HostKey) {
        hold(&self.inner.known).add("this run".into(), &self.inner.name, key);
    }

    /// Opens a key of ours.
    pub fn unlock(&self, path: &Path, passphrase: &Passphrase) -> Result<(), NotUnlocked> {
        hold(&self.inner.keys).unlock(path, passphrase)
    }
}

impl Dial for Tunnel {
    /// Whoever gives up waiting leaves the work to be done: a login serves others, and a stream that comes too
    /// late has to be closed.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        let inner = Arc::clone(&self.inner);
        let host = host.to_owned();
        Box::pin(async move {
            let opened = tokio::spawn(async move { inner.open(&host, port).await }).await;
            opened.unwrap_or_else(|error| Err(io::Error::other(error.to_string())))
        })
    }
}

/// What came of asking the far side for a stream.
enum Asked {
    Opened(Box<dyn Stream>),
    /// It has no room for another one.
    Full,
    /// The connection is gone.
    Gone,
    Failed(io::Error),
}

impl Inner {
    async fn open(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let until = Instant::now() + OPEN_WITHIN;
        let mut again = true;
        loop {
            let connection = self.connection().await.map_err(|why| self.not_connected(&why))?;
            match self.ask(&connection, host, port, until).await {
                Asked::Opened(stream) => return Ok(stream),
                Asked::Failed(error) => return Err(error),
                Asked::Full if Instant::now() + ROOM_AFTER < until => sleep(ROOM_AFTER).await,
                Asked::Full => {
                    let text = format!("the jump host {self} has no room for another stream");
                    return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
                }
                // The connection broke under our hands; a new one may do.
                Asked::Gone if again => again = false,
                Asked::Gone => {
                    let text = format!("the connection to the jump host {self} broke");
                    return Err(io::Error::new(io::ErrorKind::ConnectionReset, text));
                }
            }
        }
    }

    async fn ask(&self, connection: &Arc<Connection>, host: &str, port: u16, until: Instant) -> Asked {
        let late = || {
            let text = format!("{host}:{port} did not answer the jump host {self} within {OPEN_WITHIN:?}");
            Asked::Failed(io::Error::new(io::ErrorKind::TimedOut, text))
        };
        let Ok(permits) = timeout_at(until, self.permits(host, port)).await else { return late() };
        // The task outlives our patience: a stream that is confirmed too late must be closed by somebody.
        let (asked, to) = (Arc::clone(connection), host.to_owned());
        let asking = tokio::spawn(async move {
            let opened = asked.handle.channel_open_direct_tcpip(to, port.into(), "127.0.0.1", 0).await;
            drop(permits);
            opened.map(|channel| Forwarded { stream: channel.into_stream(), _connection: asked })
        });
        match timeout_at(until, asking).await {
            Ok(Ok(Ok(stream))) => Asked::Opened(Box::new(stream)),
            Ok(Ok(Err(russh::Error::ChannelOpenFailure(why)))) => self.refusal(&why, host, port),
            Ok(_) => Asked::Gone,
            Err(_) => late(),
        }
    }

    fn refusal(&self, why: &ChannelOpenFailure, host: &str, port: u16) -> Asked {
        let failed = |kind, text| Asked::Failed(io::Error::new(kind, text));
        match why {
            ChannelOpenFailure::ResourceShortage => Asked::Full,
            ChannelOpenFailure::ConnectFailed => failed(
                io::ErrorKind::ConnectionRefused,
                format!("the jump host {self} does not reach {host}:{port}"),
            ),
            _ => failed(
                io::ErrorKind::PermissionDenied,
                format!(
                    "the jump host {self} does not forward to {host}:{port}; see `AllowTcpForwarding` and `PermitOpen` there"
                ),
            ),
        }
    }

    /// Waits until another stream may be asked for: not too many for one server, nor for all.
    async fn permits(&self, host: &str, port: u16) -> [Option<OwnedSemaphorePermit>; 2] {
        let one = {
            let mut all = hold(&self.opening_for);
            all.retain(|_, one| one.available_permits() < MAX_OPENING_FOR_ONE || Arc::strong_count(one) > 1);
            let fresh = || Arc::new(Semaphore::new(MAX_OPENING_FOR_ONE));
            Arc::clone(all.entry((host.to_owned(), port)).or_insert_with(fresh))
        };
        // Neither is ever closed.
        let one = one.acquire_owned().await.ok();
        [one, Arc::clone(&self.opening).acquire_owned().await.ok()]
    }

    /// Returns the connection, or makes one. Others who want one meanwhile wait for the same.
    async fn connection(&self) -> Result<Arc<Connection>, NotConnected> {
        let mut state = self.state.lock().await;
        if let Some(connection) = state.connection.take().filter(|connection| !connection.handle.is_closed())
        {
            state.connection = Some(Arc::clone(&connection));
            return Ok(connection);
        }
        if let Some(failed) = state.failed.as_ref().filter(|failed| failed.counts()) {
            return Err(failed.why.clone());
        }
        let login = Login {
            user: &self.user,
            host: &self.host,
            port: self.port,
            name: &self.name,
            known: hold(&self.known).clone(),
            keys: hold(&self.keys).clone(),
        };
        match login.run(&*self.through).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *state = State { connection: Some(Arc::clone(&connection)), failed: None };
                Ok(connection)
            }
            Err(why) => {
                let times = state.failed.as_ref().map_or(0, |failed| failed.times + 1);
                state.failed = Some(Failed { why: why.clone(), times, at: Instant::now() });
                Err(why)
            }
        }
    }

    fn not_connected(&self, why: &NotConnected) -> io::Error {
        let kind = if why.may_pass() { io::ErrorKind::NotConnected } else { io::ErrorKind::PermissionDenied };
        io::Error::new(kind, format!("the jump host {self} is not passed: {why}"))
    }
}

/// A stream through a jump host. It keeps its connection open.
struct Forwarded {
    stream: ChannelStream<Msg>,
    _connection: Arc<Connection>,
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
