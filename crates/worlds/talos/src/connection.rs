//! One connection to a machine: made when it is needed, used by all calls, made again when it has gone.
//!
//! A request is sent only after the machine has spoken first, as servers of HTTP/2 do. By then it has accepted our
//! certificate, so that whatever is wrong with certificates is known before anything is sent.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use h2::{
    Ping, PingPong, Reason, SendStream,
    client::{Builder, Connection, ResponseFuture, SendRequest},
};
use http::{Method, Request, Version, header};
use ichor_net::{
    Dial, Fingerprint, Stream,
    tls::{NotTrusted, Secure},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    Address, Admission, Error,
    call::Head,
    error::clean,
    grpc,
    peek::{FIRST_WORD, certificate_alert, is_distrust, peek},
};

/// How long a machine may take to answer a handshake.
const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// After so much silence a machine is asked whether it is still there, if a call waits for it; a connection that
/// nobody uses is closed. Machines hang up on those who ask more than twice within five minutes, unless they had
/// something to say meanwhile.
const SILENCE: [Duration; 3] = [Duration::from_secs(20), Duration::from_secs(40), Duration::from_secs(310)];
/// How long it may take to say that it is.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// What a machine may send of one answer before it is read, and of all.
const WINDOW: u32 = 1 << 20;
const WHOLE_WINDOW: u32 = 8 << 20;
/// Most bytes of headers.
const MAX_HEADERS: u32 = 64 * 1024;

/// The way to a machine.
pub(crate) struct Channel {
    pub(crate) at: Address,
    secure: Secure,
    dialer: Arc<dyn Dial>,
    /// Our CAs, to tell who is there when it is not the one that it should be.
    authorities: Vec<Vec<u8>>,
    shows_certificate: bool,
    line: tokio::sync::Mutex<Option<Line>>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("at", &self.at).field("secure", &self.secure).finish_non_exhaustive()
    }
}

/// A connection.
struct Line {
    sender: SendRequest<Bytes>,
    traffic: Arc<Traffic>,
}

/// A request whose headers are on their way.
pub(crate) struct Begun {
    pub(crate) response: ResponseFuture,
    pub(crate) body: SendStream<Bytes>,
    pub(crate) open: Open,
    traffic: Arc<Traffic>,
}

/// An answer that has begun.
pub(crate) struct Answered {
    pub(crate) response: http::Response<h2::RecvStream>,
    /// Dropping it would cancel the call.
    pub(crate) body: SendStream<Bytes>,
    pub(crate) open: Open,
}

impl Channel {
    pub(crate) fn new(
        at: Address,
        secure: Secure,
        authorities: Vec<Vec<u8>>,
        shows_certificate: bool,
        dialer: Arc<dyn Dial>,
    ) -> Self {
        let line = tokio::sync::Mutex::new(None);
        Self { at, secure, dialer, authorities, shows_certificate, line }
    }

    /// Sends a request with one message, and waits for the answer to begin. A machine that says that it has not
    /// looked at the request is asked again, once: it was about to close the connection.
    pub(crate) async fn ask(&self, head: &Head, deadline: Instant) -> Result<Answered, Error> {
        let mut again = true;
        loop {
            let mut begun = self.begin(head, deadline).await?;
            // If this fails, so does the answer, which knows better why.
            let _ = begun.body.send_data(grpc::frame(&head.request), true);
            match timeout_at(deadline, begun.response).await {
                Ok(Ok(response)) => {
                    return Ok(Answered { response, body: begun.body, open: begun.open });
                }
                Ok(Err(error)) => {
                    begun.traffic.close();
                    if !was_not_processed(&error) {
                        return Err(self.lost(head, &error.to_string()));
                    }
                    if !again {
                        return Err(self.not_reached(format!("it turns calls away: {error}")));
                    }
                }
                Err(_) => {
                    begun.traffic.close();
                    return Err(self.lost(head, &format!("there was none within {:?}", head.within)));
                }
            }
            again = false;
        }
    }

    /// Sends the headers of a request. Until this is done, nothing has had an effect.
    pub(crate) async fn begin(&self, head: &Head, deadline: Instant) -> Result<Begun, Error> {
        match timeout_at(deadline, self.send_headers(head, deadline)).await {
            Ok(begun) => begun,
            Err(_) => Err(self.not_reached(format!("there was no connection within {:?}", head.within))),
        }
    }

    async fn send_headers(&self, head: &Head, deadline: Instant) -> Result<Begun, Error> {
        let mut again = true;
        loop {
            let (sender, open, traffic) = self.line().await?;
            let request = self.request(head, deadline)?;
            let sent = match sender.ready().await {
                Ok(mut sender) => sender.send_request(request, false),
                Err(error) => Err(error),
            };
            match sent {
                Ok((response, body)) => return Ok(Begun { response, body, open, traffic }),
                // The connection had gone before anything was sent.
                Err(_) if again => traffic.close(),
                Err(error) => return Err(self.not_reached(clean(&error.to_string()))),
            }
            again = false;
        }
    }

    fn request(&self, head: &Head, deadline: Instant) -> Result<Request<()>, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("https://{}{}", self.at, head.method))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, concat!("ichor/", env!("CARGO_PKG_VERSION")))
            .header("grpc-timeout", grpc::timeout(left))
            .header("grpc-accept-encoding", "identity")
            .body(())
            .map_err(|error| self.not_reached(error.to_string()))
    }

    /// Returns the connection, or makes it.
    async fn line(&self) -> Result<(SendRequest<Bytes>, Open, Arc<Traffic>), Error> {
        let mut line = self.line.lock().await;
        if let Some(Line { sender, traffic }) = &*line
            && let Some(open) = Open::new(traffic)
        {
            return Ok((sender.clone(), open, Arc::clone(traffic)));
        }
        let made = match timeout(CONNECT_WITHIN, self.connect()).await {
            Ok(made) => made?,
            Err(_) => {
                return Err(self.not_reached(format!("there was no connection within {CONNECT_WITHIN:?}")));
            }
        };
        let Line { sender, traffic } = line.insert(made);
        let open = Open::new(traffic).ok_or_else(|| self.not_reached("it hung up".into()))?;
        Ok((sender.clone(), open, Arc::clone(traffic)))
    }

    async fn connect(&self) -> Result<Line, Error> {
        let Address { host, port } = &self.at;
        let failed = |error: io::Error| self.not_reached(clean(&error.to_string()));
        let stream = self.dialer.dial(host, *port).await.map_err(failed)?;
        let mut stream = match self.secure.connect(stream, host).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.not_secured(&error).await),
        };
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(self.not_reached("it does not speak HTTP/2, so no Talos API is there".into()));
        }
        let mut first = vec![0; 16 * 1024];
        let length = match timeout(FIRST_WORD, stream.read(&mut first)).await {
            Ok(Ok(0)) => return Err(self.not_reached("it hung up before it said anything".into())),
            Ok(Ok(length)) => length,
            Ok(Err(error)) => return Err(self.not_admitted(&error)),
            Err(_) => 0,
        };
        first.truncate(length);
        let traffic = Arc::new(Traffic::default());
        let heard = Heard { stream, first: first.into(), traffic: Arc::clone(&traffic) };
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WHOLE_WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .handshake(heard)
            .await
            .map_err(|error: h2::Error| self.not_reached(clean(&error.to_string())))?;
        tokio::spawn(drive(connection, Arc::clone(&traffic)));
        Ok(Line { sender, traffic })
    }

    /// Says why a stream could not be secured; if it is because of the certificate, looks who shows it.
    async fn not_secured(&self, error: &NotTrusted) -> Error {
        if !is_distrust(error) {
            return match error {
                NotTrusted::Handshake(error) => self.not_admitted(error),
                error => self.not_reached(clean(&error.to_string())),
            };
        }
        let shown = peek(&self.at, &self.authorities, &*self.dialer, CONNECT_WITHIN / 2).await.ok();
        let mut why = clean(&error.to_string());
        if let Some(shown) = &shown {
            let (face, fingerprint, names) = (shown.face, shown.fingerprint, &shown.names);
            why.push_str(&format!("; it is {face}, with the certificate {fingerprint} for {names}"));
        }
        for authority in &self.authorities {
            why.push_str(&format!("; wanted is one of the CA {}", Fingerprint::of(authority)));
        }
        Error::NotTrusted { at: self.at.clone(), why, shown: shown.map(Box::new) }
    }

    fn not_admitted(&self, error: &io::Error) -> Error {
        match certificate_alert(error) {
            Some(alert) => Error::NotAdmitted {
                at: self.at.clone(),
                why: if self.shows_certificate {
                    Admission::RefusesOurs(alert)
                } else {
                    Admission::WantsCertificate
                },
            },
            None => self.not_reached(clean(&error.to_string())),
        }
    }

    pub(crate) fn not_reached(&self, why: String) -> Error {
        Error::NotReached { at: self.at.clone(), why }
    }

    pub(crate) fn lost(&self, head: &Head, why: &str) -> Error {
        Error::Lost { at: self.at.clone(), call: head.name().to_owned(), why: clean(why) }
    }
}

/// Whether a machine says that it has not looked at a request. A farewell reaches only those requests that it names as
/// not processed; others end with the connection.
pub(crate) fn was_not_processed(error: &h2::Error) -> bool {
    error.is_remote()
        && (error.is_go_away() || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM))
}

/// What goes on over a connection.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// How often something was heard.
    heard: AtomicU64,
    calls: Mutex<Calls>,
    /// Tells that the last call has ended.
    unused: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    open: usize,
    /// Whether no call may begin any more.
    closed: bool,
}

impl Traffic {
    fn calls<T>(&self, act: impl FnOnce(&mut Calls) -> T) -> T {
        act(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the next call make a new connection. Calls that go on over this one are not disturbed.
    fn close(&self) {
        self.calls(|calls| calls.closed = true);
    }
}

/// A call that goes on; the connection stays for it.
#[derive(Debug)]
pub(crate) struct Open(Arc<Traffic>);

impl Open {
    /// Opens a call, unless the connection is about to close.
    fn new(traffic: &Arc<Traffic>) -> Option<Self> {
        let opened = traffic.calls(|calls| {
            calls.open += usize::from(!calls.closed);
            !calls.closed
        });
        opened.then(|| Self(Arc::clone(traffic)))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let left = self.0.calls(|calls| {
            calls.open = calls.open.saturating_sub(1);
            calls.open
        });
        if left == 0 {
            self.0.unused.notify_one();
        }
    }
}

/// Drives a connection until it ends, nobody uses it, or nobody is there any more. How it ends is told to those who
/// wait for an answer.
async fn drive<S: Stream>(mut connection: Connection<Heard<S>, Bytes>, traffic: Arc<Traffic>) {
    match connection.ping_pong() {
        Some(ping_pong) => tokio::select! {
            _ = connection => {}
            () = watch(ping_pong, &traffic) => {}
        },
        None => drop(connection.await),
    }
    traffic.close();
}

/// Returns when a connection is not used, or the machine is silent for too long.
async fn watch(mut ping_pong: PingPong, traffic: &Traffic) {
    let mut silent = 0;
    loop {
        let heard = traffic.heard.load(Ordering::Relaxed);
        tokio::select! {
            () = sleep(SILENCE[silent.min(SILENCE.len() - 1)]) => {}
            () = traffic.unused.notified() => {
                silent = 0;
                continue;
            }
        }
        if traffic.heard.load(Ordering::Relaxed) != heard {
            silent = 0;
            continue;
        }
        let unused = traffic.calls(|calls| {
            calls.closed |= calls.open == 0;
            calls.open == 0
        });
        if unused || !matches!(timeout(PONG_WITHIN, ping_pong.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
        silent += 1;
    }
}

/// A stream of which something was heard already, and that counts what is heard.
struct Heard<S> {
    stream: S,
    first: Bytes,
    traffic: Arc<Traffic>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.has_remaining() {
            let length = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first.split_to(length));
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.traffic.heard.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
