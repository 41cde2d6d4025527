//! Sending calls.

use std::{fmt, time::Duration};

use ichor_port::{Http, Request, Response, Secret, TransportError};
use serde::{Deserialize, de::DeserializeOwned};
use thiserror::Error;

use crate::{
    api::TicketRow,
    call::Call,
    encode::percent,
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

/// What a login with a password has given: good for two hours, and never kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    user: String,
    cookie: Secret,
    csrf: Secret,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.user)
    }
}

impl Ticket {
    /// Takes what a login gave; nothing where a password was not enough.
    pub fn of(user: &str, row: &TicketRow) -> Option<Self> {
        let whole = row.needs_more.unwrap_or_default() == 0;
        let ticket = row.ticket.as_deref().filter(|ticket| whole && !ticket.starts_with("PVE:!tfa!"))?;
        let csrf = row.csrf.as_deref().filter(|csrf| csrf.bytes().all(|byte| byte.is_ascii_graphic()))?;
        let cookie = Secret::new(format!("PVEAuthCookie={}", percent(ticket)));
        Some(Self { user: user.to_owned(), cookie, csrf: Secret::new(csrf) })
    }
}

/// In whose name calls are sent.
#[derive(Debug, Clone)]
enum Caller {
    Nobody,
    Token(Token),
    Ticket(Ticket),
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
    caller: Caller,
}

impl<T> Client<T> {
    pub(crate) fn request<D>(&self, call: &Call<D>) -> Request {
        let body = call.body();
        let mut headers = vec![("accept", "application/json".to_owned())];
        if !body.is_empty() {
            headers.push(("content-type", call.content_type()));
        }
        // A ticket that is no cookie is looked for in the same header as a token, where it is not printed.
        let authorization = match &self.caller {
            Caller::Nobody => None,
            Caller::Token(token) => Some(Secret::new(format!("PVEAPIToken={}", token.0.expose()))),
            Caller::Ticket(ticket) => Some(ticket.cookie.clone()),
        };
        if let Caller::Ticket(ticket) = &self.caller
            && !call.method.only_reads()
        {
            // It is worth nothing without the ticket.
            headers.push(("csrfpreventiontoken", ticket.csrf.expose().to_owned()));
        }
        Request { method: call.method, target: call.target(), headers, authorization, body }
    }
}

impl<T: Http> Client<T> {
    /// Makes a client that asks in the name of a token.
    pub const fn new(transport: T, token: Token) -> Self {
        Self { transport, caller: Caller::Token(token) }
    }

    /// Makes a client that asks in nobody's name, to log in.
    pub const fn nobody(transport: T) -> Self {
        Self { transport, caller: Caller::Nobody }
    }

    /// Asks in the name of a token from now on, over the same transport.
    #[must_use]
    pub fn with_token(self, token: Token) -> Self {
        Self { caller: Caller::Token(token), ..self }
    }

    /// Asks in the name of whoever logged in from now on.
    #[must_use]
    pub fn logged_in(self, ticket: Ticket) -> Self {
        Self { caller: Caller::Ticket(ticket), ..self }
    }

    /// Returns in whose name it asks, which is no secret; nothing when in nobody's.
    pub fn token(&self) -> &str {
        match &self.caller {
            Caller::Nobody => "",
            Caller::Token(token) => token.id(),
            Caller::Ticket(ticket) => &ticket.user,
        }
    }

    /// Sends a call.
    pub async fn send<D: DeserializeOwned>(&self, call: &Call<D>) -> Result<D, Error> {
        self.send_within(call, WITHIN).await
    }

    /// Sends a call for whose answer nobody waits longer than a time.
    pub async fn send_within<D: DeserializeOwned>(
        &self,
        call: &Call<D>,
        within: Duration,
    ) -> Result<D, Error> {
        let response = self.transport.send(self.request(call), within).await?;
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
