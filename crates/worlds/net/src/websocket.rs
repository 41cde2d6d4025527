//! Websockets (RFC 6455) to a server.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::{
    StatusCode,
    header::{
        CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use ichor_port::{NotOpened, Received, Request, TransportError, WebSocket, WebSockets};
use rustls::crypto::aws_lc_rs;
use sha1::{Digest, Sha1};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{HttpClient, http::mask};

/// Most bytes of a message. Proxmox sends at most 128 KiB at once.
const MAX_MESSAGE: usize = 256 * 1024;
/// What the key of a handshake is joined with (RFC 6455).
const ACCEPT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A websocket.
pub struct Socket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    server: String,
    until: Instant,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("server", &self.server).finish_non_exhaustive()
    }
}

impl WebSockets for HttpClient {
    type Socket = Socket;

    async fn open(
        &self,
        request: Request,
        protocol: &'static str,
        within: Duration,
    ) -> Result<Socket, NotOpened> {
        let until = Instant::now() + within;
        match timeout_at(until, self.switch(request, protocol, until)).await {
            Ok(opened) => opened,
            Err(_) => {
                let text = format!("{} opened no websocket within {within:?}", self.endpoint);
                Err(TransportError::Lost(text).into())
            }
        }
    }
}

impl HttpClient {
    async fn switch(
        &self,
        request: Request,
        protocol: &'static str,
        until: Instant,
    ) -> Result<Socket, NotOpened> {
        let proof = request.authorization.clone();
        let mut request = self.build(request)?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let key = key().ok_or_else(|| TransportError::NotReached("there are no random numbers".into()))?;
        let value = HeaderValue::from_str(&key).map_err(|_| TransportError::NotReached("no key".into()))?;
        headers.insert(SEC_WEBSOCKET_KEY, value);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        let mut sender = self.connect().await?;
        let mut response = sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(NotOpened::Answered(mask(self.read(response).await?, proof.as_ref())));
        }
        let accept = STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT}")));
        if response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes) != Some(accept.as_bytes())
        {
            let text = format!("{} agreed to something that is no websocket", self.endpoint);
            return Err(TransportError::Unreadable(text).into());
        }
        let stream = hyper::upgrade::on(&mut response).await.map_err(|error| self.lost(&error))?;
        let mut config = WebSocketConfig::default();
        config.max_frame_size = Some(MAX_MESSAGE);
        config.max_message_size = Some(MAX_MESSAGE);
        // A server that asks for signs of life and reads none of them would have all of them kept.
        config.max_write_buffer_size = MAX_MESSAGE;
        let stream = WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Client, Some(config)).await;
        Ok(Socket { stream, server: self.endpoint.to_string(), until })
    }
}

/// Makes the key of a handshake, with which the server proves that it speaks websocket.
fn key() -> Option<String> {
    let mut bytes = [0; 16];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(STANDARD.encode(bytes))
}

impl WebSocket for Socket {
    async fn send(&mut self, message: Vec<u8>) -> Result<(), TransportError> {
        let sent = timeout_at(self.until, self.stream.send(Message::Binary(Bytes::from(message)))).await;
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(_) => Err(TransportError::Lost(format!("{} takes nothing more", self.server))),
        }
    }

    async fn receive(&mut self, a_while: Duration) -> Result<Received, TransportError> {
        let patience = Instant::now() + a_while;
        loop {
            match timeout_at(patience.min(self.until), self.stream.next()).await {
                Ok(Some(Ok(Message::Binary(bytes)))) => return Ok(Received::Message(bytes.to_vec())),
                Ok(Some(Ok(Message::Text(text)))) => return Ok(Received::Message(text.as_bytes().to_vec())),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
                Ok(Some(Ok(Message::Close(_))) | None) => return Ok(Received::Closed),
                Ok(Some(Err(error))) if has_gone(&error) => return Ok(Received::Closed),
                Ok(Some(Err(error))) => return Err(self.broken(&error)),
                Err(_) if Instant::now() >= self.until => return Ok(Received::Late),
                Err(_) => return Ok(Received::Quiet),
            }
        }
    }
}

impl Socket {
    fn broken(&self, error: &Error) -> TransportError {
        match error {
            Error::Capacity(_) | Error::Protocol(_) | Error::Utf8(_) => {
                TransportError::Unreadable(format!("what {} sends is no websocket: {error}", self.server))
            }
            _ => TransportError::Lost(format!("the websocket to {} broke: {error}", self.server)),
        }
    }
}

/// Whether the server closed the line. Proxmox does so without the goodbye of websockets.
fn has_gone(error: &Error) -> bool {
    use tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
    matches!(
        error,
        Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(ResetWithoutClosingHandshake)
    ) || matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
}
