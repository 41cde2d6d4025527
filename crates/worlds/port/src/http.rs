//! HTTP without a socket.

use std::{fmt, future::Future, time::Duration};

use thiserror::Error;

use crate::Secret;

/// A method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Reads headers.
    Head,
    /// Creates, or starts something.
    Post,
    /// Changes.
    Put,
    /// Changes in part.
    Patch,
    /// Deletes.
    Delete,
}

impl Method {
    /// Returns the word on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether sending it twice is as good as once, whatever became of the first.
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path and the query, percent-encoded.
    pub target: String,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// What proves who asks; a header of its own, because it must not be printed.
    pub authorization: Option<Secret>,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The words after the status. Proxmox says there what went wrong, and older releases only there.
    pub reason: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, not longer than the transport's limit.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransportError {
    /// The server was not reached: the request has had no effect.
    #[error("{0}")]
    NotReached(String),
    /// The server is not the one that it should be: the request was not sent.
    #[error("{0}")]
    NotTrusted(String),
    /// The connection broke or was silent for too long: whether the request had an effect is not known.
    #[error("{0}")]
    Lost(String),
    /// The answer is too long, or no HTTP: the request had its effect, if any.
    #[error("{0}")]
    Unreadable(String),
}

/// Carries requests to one server.
pub trait Http: Send + Sync {
    /// Sends a request and returns the answer, within a time.
    fn send(
        &self,
        request: Request,
        within: Duration,
    ) -> impl Future<Output = Result<Response, TransportError>> + Send;
}

/// Carries requests whose answers come piece by piece: those that do not end, and those that are not wanted whole.
pub trait HttpStream: Http {
    /// What brings the pieces.
    type Pieces: Pieces;

    /// Sends a request and returns the head of the answer, whose body is empty, within a time.
    fn open(
        &self,
        request: Request,
        within: Duration,
    ) -> impl Future<Output = Result<(Response, Self::Pieces), TransportError>> + Send;
}

/// The body of an answer, as it comes in. Whoever drops it hangs up.
pub trait Pieces: Send {
    /// Returns the next piece, within a time; nothing when the body has ended. A wait that is given up loses
    /// nothing: the piece is there at the next call.
    fn next(
        &mut self,
        within: Duration,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, TransportError>> + Send;
}
