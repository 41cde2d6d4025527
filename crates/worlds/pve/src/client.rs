//! Sending calls.

use std::{fmt, time::Duration};

use ichor_port::{Http, Request, Response, Secret, TransportError};
use serde::{Deserialize, de::DeserializeOwned};
use thiserror::Error;

use crate::{
    call::Call,
    refusal::{Kind, Refusal},
};

/// How long Proxmox may take for an answer. Its own front server gives up after 30 s of silence.
const WITHIN: Duration = Duration::from_secs(35);

/// An API token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Secret);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id())
    }
}

/// A text that is no API token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an API token is written `user@realm!name=secret`")]
pub struct NotAToken;

impl Token {
    /// Reads a token, `user@realm!name=secret`.
    pub fn parse(text: &Secret) -> Result<Self, NotAToken> {
        let token = text.expose().trim();
        let (id, secret) = token.split_once('=').ok_or(NotAToken)?;
        let (user, name) = id.split_once('!').ok_or(NotAToken)?;
        let well = user.contains('@') && !name.is_empty() && !secret.is_empty();
        let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
        if well && visible { Ok(Self(Secret::new(token))) } else { Err(NotAToken) }
    }

    /// Returns whose token it is, which is no secret.
    pub fn id(&self) -> &str {
        self.0.expose().split('=').next().unwrap_or_default()
    }
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// There was no answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Proxmox refused.
    #[error("{0}")]
    Refused(Refusal),
    /// The answer is not what this call gives.
    #[error("the answer of Proxmox to {call} makes no sense: {why}")]
    Nonsense {
        /// The call.
        call: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// Returns what a refusal means; nothing for other errors.
    pub const fn refusal(&self) -> Option<Kind> {
        match self {
            Self::Refused(refusal) => Some(refusal.kind),
            _ => None,
        }
    }

    /// Whether a call that was to change something may have done so.
    pub const fn may_have_happened(&self) -> bool {
        match self {
            Self::Transport(error) => {
                matches!(error, TransportError::Lost(_) | TransportError::Unreadable(_))
            }
            Self::Refused(refusal) => matches!(refusal.kind, Kind::Broken),
            Self::Nonsense { .. } => true,
        }
    }
}

/// A client of one Proxmox cluster.
#[derive(Debug, Clone)]
pub struct Client<T> {
    pub(crate) transport: T,
    token: Option<Token>,
}

impl<T> Client<T> {
    pub(crate) fn request<D>(&self, call: &Call<D>) -> Request {
        let body = call.body();
        let mut headers = vec![("accept", "application/json".to_owned())];
        if !body.is_empty() {
            headers.push(("content-type", call.content_type()));
        }
        let authorization =
            self.token.as_ref().map(|token| Secret::new(format!("PVEAPIToken={}", token.0.expose())));
        Request { method: call.method, target: call.target(), headers, authorization, body }
    }
}

impl<T: Http> Client<T> {
    /// Makes a client that asks in the name of a token.
    pub const fn new(transport: T, token: Token) -> Self {
        Self { transport, token: Some(token) }
    }

    /// Returns in whose name it asks, which is no secret; nothing when in nobody's.
    pub fn token(&self) -> &str {
        self.token.as_ref().map_or("", Token::id)
    }

    /// Sends a call.
    pub async fn send<D: DeserializeOwned>(&self, call: &Call<D>) -> Result<D, Error> {
        let response = self.transport.send(self.request(call), WITHIN).await?;
        read(call, &response)
    }
}

#[derive(Deserialize)]
struct Envelope<D> {
    data: D,
}

fn read<D: DeserializeOwned>(call: &Call<D>, response: &Response) -> Result<D, Error> {
    if response.status != 200 {
        return Err(Error::Refused(Refusal::read(response)));
    }
    let envelope: Result<Envelope<D>, _> = serde_json::from_slice(&response.body);
    envelope.map(|envelope| envelope.data).map_err(|error| Error::Nonsense {
        call: format!("{} {}", call.method, call.path),
        why: ichor_port::clean(&error.to_string()),
    })
}
