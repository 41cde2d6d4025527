//! HTTP/1.1 to one server.

use std::{
    fmt, io,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    ext::ReasonPhrase,
    header::{AUTHORIZATION, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use ichor_port::{Http, HttpStream, Pieces, Request, Response, Secret, TransportError};
use thiserror::Error;
use tokio::time::{Instant, timeout};

use crate::{
    dial::{Dial, Stream},
    tls::{Identity, NotTrusted, Protocol, Secure, Trust},
};

/// Most bytes of an answer. The largest that ichor asks for, a cluster's list of VMs, has a tenth of it.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// How long an idle connection is used again. Proxmox closes after 5 s; a race with that costs a lost answer.
const IDLE: Duration = Duration::from_secs(3);
/// Most idle connections that are kept.
const MAX_IDLE: usize = 8;

/// What stands in the place of a secret that comes back.
const MASK: &str = "******";
/// What is shorter than this is no secret by itself.
const SHORTEST: usize = 8;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// A text that is no URL of a server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no `https://host:port`")]
pub struct NotAnEndpoint(String);

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let wrong = || NotAnEndpoint(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(if tls { 443 } else { 80 }), str::parse).map_err(|_| wrong())?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        f.pad(&format!("{host}:{}", self.port))
    }
}

/// A client of one server.
pub struct HttpClient {
    pub(crate) endpoint: Endpoint,
    secure: Option<Secure>,
    dialer: Arc<dyn Dial>,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    sender: Sender,
    since: Instant,
}

pub(crate) type Sender = SendRequest<Full<Bytes>>;

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Http for HttpClient {
    async fn send(&self, request: Request, within: Duration) -> Result<Response, TransportError> {
        timeout(within, self.exchange(request)).await.unwrap_or_else(|_| Err(self.silent(within)))
    }
}

impl HttpStream for HttpClient {
    type Pieces = IncomingPieces;

    async fn open(
        &self,
        request: Request,
        within: Duration,
    ) -> Result<(Response, IncomingPieces), TransportError> {
        let opened = timeout(within, self.ask(request)).await;
        let (sender, response) = opened.unwrap_or_else(|_| Err(self.silent(within)))?;
        let (head, body) = head(response);
        Ok((head, IncomingPieces { endpoint: self.endpoint.clone(), body, _sender: sender }))
    }
}

/// An answer's body as it comes in, over a connection that is used for nothing else.
pub struct IncomingPieces {
    endpoint: Endpoint,
    body: Incoming,
    /// Whoever lets go of it hangs up.
    _sender: Sender,
}

impl fmt::Debug for IncomingPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingPieces").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Pieces for IncomingPieces {
    async fn next(&mut self, within: Duration) -> Result<Option<Vec<u8>>, TransportError> {
        loop {
            let Ok(frame) = timeout(within, self.body.frame()).await else {
                return Err(silent(&self.endpoint, within));
            };
            match frame.transpose().map_err(|error| broke_off(&self.endpoint, &error))? {
                None => return Ok(None),
                // Anything but data is a trailer, which nobody asked for.
                Some(frame) => match frame.into_data() {
                    Ok(piece) if piece.is_empty() => {}
                    Ok(piece) => return Ok(Some(piece.to_vec())),
                    Err(_) => {}
                },
            }
        }
    }
}

impl HttpClient {
    /// Makes a client. Whom to trust, and as whom to present ourselves, matters where the server speaks TLS.
    pub fn new(
        endpoint: Endpoint,
        trust: Trust,
        identity: Option<&Identity>,
        dialer: Arc<dyn Dial>,
    ) -> Result<Self, NotTrusted> {
        let secure = endpoint.tls.then(|| Secure::new(trust, identity, Protocol::Http1)).transpose()?;
        Ok(Self { endpoint, secure, dialer, idle: Mutex::new(Vec::new()) })
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let proof = request.authorization.clone();
        let (sender, response) = self.ask(request).await?;
        let response = self.read(response).await?;
        self.keep(sender);
        Ok(mask(response, proof.as_ref()))
    }

    async fn ask(&self, request: Request) -> Result<(Sender, hyper::Response<Incoming>), TransportError> {
        let mut sender = match self.reuse() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let request = self.build(request)?;
        let lost = |error: hyper::Error| self.lost(&error);
        let response = sender.send_request(request).await.map_err(lost)?;
        Ok((sender, response))
    }

    /// A connection that the server has closed in the meantime is not used: only a race with it loses an answer.
    fn reuse(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|idle| idle.since.elapsed() < IDLE && !idle.sender.is_closed() && idle.sender.is_ready());
        idle.pop().map(|idle| idle.sender)
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(Idle { sender, since: Instant::now() });
        }
    }

    pub(crate) async fn connect(&self) -> Result<Sender, TransportError> {
        let Endpoint { host, port, .. } = &self.endpoint;
        let stream = self.dialer.dial(host, *port).await.map_err(|error| self.not_reached(&error))?;
        if let Some(secure) = &self.secure {
            let stream = secure.connect(stream, host).await.map_err(|error| match error {
                NotTrusted::Handshake(error) if !is_distrust(&error) => self.not_reached(&error),
                error => TransportError::NotTrusted(format!("{}: {error}", self.endpoint)),
            })?;
            self.handshake(stream).await
        } else {
            self.handshake(stream).await
        }
    }

    async fn handshake(&self, stream: impl Stream + 'static) -> Result<Sender, TransportError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.not_reached(&io::Error::other(error)))?;
        // How the connection ends is told to whoever waits for an answer.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    pub(crate) fn build(&self, request: Request) -> Result<hyper::Request<Full<Bytes>>, TransportError> {
        let wrong = |what: &str| TransportError::NotReached(format!("{what} cannot be sent"));
        let mut builder = hyper::Request::builder()
            .method(request.method.word())
            .uri(&request.target)
            .header(HOST, self.endpoint.to_string());
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if let Some(secret) = &request.authorization {
            let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| wrong("the token"))?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        builder.body(Full::new(Bytes::from(request.body))).map_err(|_| wrong("the request"))
    }

    pub(crate) async fn read(&self, response: hyper::Response<Incoming>) -> Result<Response, TransportError> {
        let (head, mut body) = head(response);
        // Bytes, and not the pieces that they come in: a server can make each of them a piece of its own.
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broke_off(&self.endpoint, &error))?;
            let piece = frame.into_data().unwrap_or_default();
            if bytes.len() + piece.len() > MAX_BODY {
                return Err(TransportError::Unreadable(format!(
                    "the answer of {} has no end",
                    self.endpoint
                )));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Response { body: bytes, ..head })
    }

    fn silent(&self, within: Duration) -> TransportError {
        silent(&self.endpoint, within)
    }

    fn not_reached(&self, error: &io::Error) -> TransportError {
        TransportError::NotReached(format!("{} is not reached: {error}", self.endpoint))
    }

    pub(crate) fn lost(&self, error: &hyper::Error) -> TransportError {
        if error.is_parse() {
            TransportError::Unreadable(format!("the answer of {} is no HTTP: {error}", self.endpoint))
        } else {
            TransportError::Lost(format!("the connection to {} broke: {error}", self.endpoint))
        }
    }
}

fn head(response: hyper::Response<Incoming>) -> (Response, Incoming) {
    let (parts, body) = response.into_parts();
    let reason = match parts.extensions.get::<ReasonPhrase>() {
        Some(reason) => String::from_utf8_lossy(reason.as_bytes()).into_owned(),
        None => parts.status.canonical_reason().unwrap_or_default().to_owned(),
    };
    let headers = parts.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let status = parts.status.as_u16();
    (Response { status, reason, headers: headers.collect(), body: Vec::new() }, body)
}

/// Takes what proves who asked out of a refusal, which is shown to people: some servers repeat the request there.
pub(crate) fn mask(response: Response, proof: Option<&Secret>) -> Response {
    let is_success = (200..300).contains(&response.status);
    let Some(proof) = proof.filter(|_| !is_success) else { return response };
    let whole = proof.expose();
    // `Bearer x` and `PVEAPIToken=who=x`: the end alone is as good as the whole.
    let end = whole.rsplit([' ', '=']).next().filter(|end| end.len() >= SHORTEST).unwrap_or(whole);
    let hide = |text: &str| text.replace(whole, MASK).replace(end, MASK);
    let body = String::from_utf8_lossy(&response.body);
    if !body.contains(end) && !response.reason.contains(end) {
        return response;
    }
    Response { reason: hide(&response.reason), body: hide(&body).into_bytes(), ..response }
}

fn silent(endpoint: &Endpoint, within: Duration) -> TransportError {
    TransportError::Lost(format!("{endpoint} did not answer within {within:?}"))
}

fn broke_off(endpoint: &Endpoint, error: &impl fmt::Display) -> TransportError {
    TransportError::Lost(format!("the answer of {endpoint} broke off: {error}"))
}

/// Whether a handshake failed because of the certificate, and not because of the line.
fn is_distrust(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_does_not_say_what_proved_who_asked() {
        let said = |status, text: &str| Response {
            status,
            reason: text.into(),
            body: text.into(),
            ..Response::default()
        };
        for (proof, end) in [
            ("Bearer hvs.canary-canary", "hvs.canary-canary"),
            ("PVEAPIToken=ann@pve!lab=11111111-2222", "11111111-2222"),
            ("PVEAuthCookie=PVE%3Aann%3A4EEC61E2", "PVE%3Aann%3A4EEC61E2"),
            ("short=x", "short=x"),
        ] {
            let proof = Secret::new(proof);
            for text in [proof.expose(), end] {
                let text = format!("you sent {text}, and that is wrong");
                let shown = mask(said(500, &text), Some(&proof));
                let shown = format!("{} {}", shown.reason, String::from_utf8_lossy(&shown.body));
                assert!(!shown.contains(end) && shown.matches("that is wrong").count() == 2, "{shown}");
                assert_eq!(mask(said(200, &text), Some(&proof)), said(200, &text), "an answer is as it is");
                assert_eq!(mask(said(500, &text), None), said(500, &text));
            }
        }
    }

    #[test]
    fn endpoints_are_urls_without_a_path() {
        let endpoint =
            |text: &str| text.parse::<Endpoint>().map(|endpoint| (endpoint.to_string(), endpoint.tls));
        assert_eq!(endpoint("https://pve1.lab:8006"), Ok(("pve1.lab:8006".into(), true)));
        assert_eq!(endpoint("https://[fd00::1]/"), Ok(("[fd00::1]:443".into(), true)));
        assert_eq!(endpoint("http://127.0.0.1:8000"), Ok(("127.0.0.1:8000".into(), false)));
        for broken in ["", "pve1", "ftp://x", "https://", "https://a b", "https://a:99999", "https://a/b"] {
            assert!(endpoint(broken).is_err(), "{broken}");
        }
    }
}
