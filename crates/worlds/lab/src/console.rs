//! The websocket in front of a serial console, as the real front server does it.

use std::{future::pending, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::{
    HeaderMap, StatusCode,
    header::{
        CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use ichor_sim::{
    Lab,
    wire::{Response, StreamId},
};
use serde::Deserialize;
use sha1::{Digest, Sha1};
use tokio::{io::AsyncWriteExt, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::Hall;

/// Most bytes of a client's frame; the real server has the same limit.
const MAX_FRAME: usize = 128 * 1024;
/// How long a client may leave what it is sent in the line.
const SEND_WITHIN: Duration = Duration::from_secs(30);
/// What the key of a handshake is joined with (RFC 6455).
const ACCEPT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A client's wish to speak websocket from now on.
pub struct Wish {
    upgrade: OnUpgrade,
    protocol: Option<HeaderValue>,
    key: Result<String, String>,
}

impl Wish {
    /// Takes a request for a websocket; nothing if it is another request.
    pub fn read<B>(request: &mut hyper::Request<B>) -> Option<Self> {
        let wanted = request.method() == hyper::Method::GET && request.uri().path().ends_with("websocket");
        let to = request.headers().get(UPGRADE).filter(|_| wanted)?;
        let to = String::from_utf8_lossy(to.as_bytes()).to_lowercase();
        let key = key(&to, request.headers());
        let protocol = request.headers().get(SEC_WEBSOCKET_PROTOCOL).cloned();
        Some(Self { upgrade: hyper::upgrade::on(request), protocol, key })
    }
}

/// Returns the key of a handshake, or what the real server dies of.
fn key(to: &str, headers: &HeaderMap) -> Result<String, String> {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    if to != "websocket" {
        return Err(format!("unable to upgrade to protocol '{to}'"));
    }
    match (text(SEC_WEBSOCKET_VERSION), text(SEC_WEBSOCKET_KEY)) {
        ("13", "") => Err("missing websocket-key".into()),
        ("13", key) => Ok(key.to_owned()),
        (version, _) => Err(format!("unsupported websocket-version '{version}'")),
    }
}

/// Says what the front server does with a wish once the API has answered the request.
pub async fn grant<B: Default>(hall: &Arc<Hall>, wish: Wish, response: Response) -> Granted<B> {
    let key = match wish.key {
        Ok(key) => key,
        Err(why) => {
            let headers = vec![("connection".to_owned(), "close".to_owned())];
            let response =
                Response { status: 500, reason: Some(why), headers, close: true, ..Response::default() };
            return Granted::Answer(response);
        }
    };
    if response.status != 200 {
        return Granted::Answer(response);
    }
    let console = port(&response.body).and_then(|port| hall.visit(|lab| lab.open_console(port)));
    let Some(console) = console else {
        // Nobody listens there: the real server never answers.
        return pending().await;
    };
    tokio::spawn(attend(Arc::clone(hall), wish.upgrade, console));
    let mut message = hyper::Response::new(B::default());
    *message.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = message.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    let accept = STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT}")));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = wish.protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Granted::Switch(message)
}

/// What comes of a wish.
pub enum Granted<B> {
    /// The connection becomes a websocket.
    Switch(hyper::Response<B>),
    /// It stays HTTP.
    Answer(Response),
}

/// Returns the port that the API named.
fn port(body: &[u8]) -> Option<u16> {
    #[derive(Deserialize)]
    struct Answer {
        data: Port,
    }
    #[derive(Deserialize)]
    struct Port {
        port: String,
    }
    serde_json::from_slice::<Answer>(body).ok()?.data.port.parse().ok()
}

/// Tells the lab that a client has gone, however that came.
struct Client {
    hall: Arc<Hall>,
    id: StreamId,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.hall.visit(|lab| lab.close_console(self.id));
    }
}

async fn attend(hall: Arc<Hall>, upgrade: OnUpgrade, id: StreamId) {
    let client = Client { hall, id };
    let Ok(stream) = upgrade.await else { return };
    let mut config = WebSocketConfig::default();
    config.max_frame_size = Some(MAX_FRAME);
    config.max_message_size = Some(MAX_FRAME);
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, Some(config)).await;
    let (mut sink, mut source) = socket.split();
    let hall = &client.hall;
    loop {
        tokio::select! {
            pieces = hall.next_pieces(id, Lab::poll_console) => {
                let Some(pieces) = pieces else { break };
                let message = Message::Binary(Bytes::from(pieces.concat()));
                if !matches!(timeout(SEND_WITHIN, sink.send(message)).await, Ok(Ok(()))) {
                    break;
                }
            }
            message = source.next() => match message {
                Some(Ok(Message::Binary(bytes))) => hall.visit(|lab| lab.tell_console(id, &bytes)),
                Some(Ok(Message::Text(text))) => hall.visit(|lab| lab.tell_console(id, text.as_bytes())),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
            }
        }
    }
    // The real server does not say goodbye in the words of websockets: it closes the line.
    if let Ok(socket) = sink.reunite(source) {
        let _ = timeout(SEND_WITHIN, socket.into_inner().shutdown()).await;
    }
}
