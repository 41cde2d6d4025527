//! An SSH server on loopback, and a computer in memory that knows as much about it as a test wants.

use std::{
    collections::BTreeMap,
    net::{Shutdown, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ichor_ssh::{Asked, Contents, Local, Route};
use russh::{
    Channel, ChannelOpenFailure,
    keys::{Algorithm, PrivateKey, PublicKey, key::safe_rng, ssh_key::LineEnding},
    server::{self, Auth, ChannelOpenHandle, Msg, Session},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use zeroize::Zeroizing;

pub fn key() -> PrivateKey {
    PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key")
}

pub fn text_of(key: &PrivateKey) -> String {
    key.to_openssh(LineEnding::LF).expect("a text").to_string()
}

pub fn public(key: &PrivateKey) -> String {
    key.public_key().to_openssh().expect("a text")
}

/// What a server does, changeable while it runs.
pub struct Manners {
    pub host_key: PrivateKey,
    pub admits: Vec<PublicKey>,
    /// How many more streams it has room for.
    pub room: usize,
    /// How many streams it had no room for.
    pub turned_away: usize,
    pub banner: String,
}

pub struct Server {
    pub address: SocketAddr,
    pub manners: Arc<Mutex<Manners>>,
    pub logins: Arc<AtomicUsize>,
    pub lines: Arc<Mutex<Vec<std::net::TcpStream>>>,
}

impl Server {
    pub async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Self {
            address,
            manners: Arc::new(Mutex::new(manners)),
            logins: Arc::default(),
            lines: Arc::default(),
        };
        let (manners, logins, lines) =
            (Arc::clone(&server.manners), Arc::clone(&server.logins), Arc::clone(&server.lines));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = stream.into_std().expect("a socket");
                lines.lock().expect("a lock").push(stream.try_clone().expect("a socket"));
                let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
                let config = server::Config {
                    keys: vec![manners.lock().expect("a lock").host_key.clone()],
                    auth_rejection_time: Duration::ZERO,
                    max_auth_attempts: 4,
                    ..server::Config::default()
                };
                let guest = Guest { manners: Arc::clone(&manners), logins: Arc::clone(&logins) };
                tokio::spawn(async move {
                    if let Ok(session) = server::run_stream(Arc::new(config), stream, guest).await {
                        let _ = session.await;
                    }
                });
            }
        });
        server
    }

    /// A server that knows `client`, on a computer that knows the server.
    pub async fn usual() -> (Self, Computer) {
        let (host, client) = (key(), key());
        let manners = Manners {
            host_key: host.clone(),
            admits: vec![client.public_key().clone()],
            room: usize::MAX,
            turned_away: 0,
            banner: String::new(),
        };
        let server = Self::start(manners).await;
        let computer = Computer::default()
            .with(KNOWN_HOSTS, &format!("{} {}\n", server.name(), public(&host)))
            .with(IDENTITY, &text_of(&client));
        (server, computer)
    }

    pub fn name(&self) -> String {
        format!("[127.0.0.1]:{}", self.address.port())
    }

    pub fn route(&self, computer: &Computer) -> Route {
        let asked =
            Asked { host: "127.0.0.1".into(), user: Some("ann".into()), port: Some(self.address.port()) };
        Route::find(&asked, computer).expect("a route").pop().expect("a host")
    }

    /// Tears every connection.
    pub fn hang_up(&self) {
        for line in self.lines.lock().expect("a lock").drain(..) {
            let _ = line.shutdown(Shutdown::Both);
        }
    }

    pub fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }

    pub fn change(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.manners.lock().expect("a lock"));
    }
}

struct Guest {
    manners: Arc<Mutex<Manners>>,
    logins: Arc<AtomicUsize>,
}

impl server::Handler for Guest {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, russh::Error> {
        let banner = self.manners.lock().expect("a lock").banner.clone();
        Ok((!banner.is_empty()).then_some(banner))
    }

    async fn auth_publickey_offered(
        &mut self,
        _: &str,
        offer: server::PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(self.admit(offer.public_key))
    }

    async fn auth_publickey(
        &mut self,
        _: &str,
        key: server::VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(self.admit(key.public_key))
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        self.logins.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// `echo` repeats what it hears, `silent` never answers, `closed` refuses, and `wall` may not be reached. An
    /// address is connected to.
    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        if !self.has_room() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        match host {
            "echo" => {
                reply.accept().await;
                let manners = Arc::clone(&self.manners);
                tokio::spawn(async move {
                    let (mut read, mut write) = tokio::io::split(channel.into_stream());
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    manners.lock().expect("a lock").room += 1;
                });
            }
            "silent" => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_hours(1)).await;
                    drop(reply);
                });
            }
            "closed" => reply.reject(ChannelOpenFailure::ConnectFailed).await,
            "wall" => reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await,
            host => {
                let port = u16::try_from(port).expect("a port");
                match tokio::net::TcpStream::connect((host, port)).await {
                    Ok(mut far) => {
                        reply.accept().await;
                        tokio::spawn(async move {
                            let mut near = channel.into_stream();
                            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                        });
                    }
                    Err(_) => reply.reject(ChannelOpenFailure::ConnectFailed).await,
                }
            }
        }
        Ok(())
    }
}

impl Guest {
    fn has_room(&self) -> bool {
        let mut manners = self.manners.lock().expect("a lock");
        let room = manners.room > 0;
        manners.turned_away += usize::from(!room);
        manners.room = manners.room.saturating_sub(1);
        room
    }

    fn admit(&self, key: &PublicKey) -> Auth {
        let manners = self.manners.lock().expect("a lock");
        let known = manners.admits.iter().any(|known| known.key_data() == key.key_data());
        if known { Auth::Accept } else { Auth::reject() }
    }
}

pub const KNOWN_HOSTS: &str = "/home/ann/.ssh/known_hosts";
pub const IDENTITY: &str = "/home/ann/.ssh/id_ed25519";

/// A computer in memory.
#[derive(Default, Clone)]
pub struct Computer {
    files: BTreeMap<PathBuf, String>,
    pub agent: Option<PathBuf>,
}

impl Computer {
    pub fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }
}

impl Local for Computer {
    fn home(&self) -> Option<PathBuf> {
        Some("/home/ann".into())
    }

    fn user(&self) -> Option<String> {
        Some("ann".into())
    }

    fn variable(&self, name: &str) -> Option<String> {
        let agent = self.agent.as_ref().filter(|_| name == "SSH_AUTH_SOCK")?;
        Some(agent.display().to_string())
    }

    fn read(&self, path: &Path) -> Result<Option<Contents>, String> {
        let contents = |text: &String| Contents { text: Zeroizing::new(text.clone()), open_to_others: false };
        Ok(self.files.get(path).map(contents))
    }

    fn names(&self, _: &Path) -> Vec<String> {
        Vec::new()
    }
}

/// Says something into a stream, and returns what comes back.
pub async fn echo(stream: &mut (impl ichor_net::Stream + ?Sized), words: &str) -> std::io::Result<String> {
    stream.write_all(words.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
