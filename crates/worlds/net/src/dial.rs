//! Making byte streams.

use std::{fmt, future::Future, io, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

/// How long a server may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A stream, once it is there.
pub type Dialled<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Makes byte streams to servers.
pub trait Dial: Send + Sync {
    /// Connects to a host and port. Names are resolved where the stream comes out.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a>;
}

/// Connects without a detour.
#[derive(Debug, Clone, Copy, Default)]
pub struct Direct;

impl Dial for Direct {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        Box::pin(async move {
            let connected = timeout(CONNECT_WITHIN, TcpStream::connect((host, port))).await;
            let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Connects one way, or, where nobody is reached that way, another.
#[derive(Clone)]
pub struct FirstOf {
    first: Arc<dyn Dial>,
    second: Arc<dyn Dial>,
}

impl FirstOf {
    /// Names both ways.
    pub fn new(first: Arc<dyn Dial>, second: Arc<dyn Dial>) -> Self {
        Self { first, second }
    }
}

impl fmt::Debug for FirstOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstOf")
    }
}

impl Dial for FirstOf {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        Box::pin(async move {
            match self.first.dial(host, port).await {
                Ok(stream) => Ok(stream),
                Err(error) => self.second.dial(host, port).await.map_err(|other| {
                    io::Error::new(error.kind(), format!("{error}; the other way, {other}"))
                }),
            }
        })
    }
}
