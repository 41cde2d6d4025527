//! Websockets without a socket.

use std::{future::Future, time::Duration};

use thiserror::Error;

use crate::{Request, Response, TransportError};

/// Opens websockets to one server.
pub trait WebSockets: Send + Sync {
    /// What is opened.
    type Socket: WebSocket;

    /// Asks the server to speak websocket, in a subprotocol. The time is for everything: the socket is of no use
    /// after it.
    fn open(
        &self,
        request: Request,
        protocol: &'static str,
        within: Duration,
    ) -> impl Future<Output = Result<Self::Socket, NotOpened>> + Send;
}

/// Carries messages both ways.
pub trait WebSocket: Send {
    /// Sends a message.
    fn send(&mut self, message: Vec<u8>) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Waits for a message, for no longer than a while.
    fn receive(&mut self, a_while: Duration)
    -> impl Future<Output = Result<Received, TransportError>> + Send;
}

/// What came of waiting for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message, not longer than the transport's limit.
    Message(Vec<u8>),
    /// Nothing for a while.
    Quiet,
    /// Nothing, and the time of the socket is over.
    Late,
    /// The server has closed the line.
    Closed,
}

/// Why a websocket was not opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotOpened {
    /// There was no answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server answered in HTTP.
    #[error("the server answered {} instead of switching to websocket", .0.status)]
    Answered(Response),
}
