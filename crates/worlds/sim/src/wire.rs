//! Calls and answers as they go over the wire, after TLS and HTTP framing.

use serde::{Deserialize, Serialize};

use crate::{clock::Time, pve::request::Spooled};

/// An HTTP request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When it reached the server. A call that is kept waiting is asked again with the same moment, so that
    /// the server knows how long it has waited.
    pub began: Time,
    /// The method, in capitals.
    pub method: String,
    /// The path as it was sent, percent-encoding included, without the query.
    pub path: String,
    /// The query as it was sent, without the question mark; empty when there is none.
    pub query: String,
    /// Headers in the order of their sending, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// An upload to Proxmox, in place of a body that was taken in piece by piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Spooled>,
    /// Who calls, as far as TLS tells: the client's certificate as DER.
    pub client_certificate: Option<Vec<u8>>,
}

impl Request {
    /// Returns the first header of a name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// An HTTP answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The status; 0 stands for a connection that was closed without an answer.
    pub status: u16,
    /// The words after the status, where clients read them. Proxmox says there what went wrong.
    pub reason: Option<String>,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, or its beginning when a stream follows.
    pub body: Vec<u8>,
    /// More of the body that comes later: a watch.
    pub stream: Option<StreamId>,
    /// Whether the server closes the connection afterwards.
    pub close: bool,
    /// After how many bytes of the body the connection breaks, if it does.
    pub cut: Option<usize>,
}

/// An answer that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub u64);

/// What a stream has to say at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Polled {
    /// The next pieces.
    Pieces(Vec<Vec<u8>>),
    /// Nothing yet; absent: nobody knows when.
    Wait(Option<Time>),
    /// It has ended.
    End,
}

/// A gRPC call to a Talos machine: the messages are protobuf without gRPC's framing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rpc {
    /// When it reached the machine; the same when it is asked again.
    pub began: Time,
    /// The method, such as `/machine.MachineService/Version`.
    pub method: String,
    /// Metadata, keys in lower case.
    pub metadata: Vec<(String, String)>,
    /// The client's messages: one, but for client streams.
    pub messages: Vec<Vec<u8>>,
    /// Who calls: the client's certificate as DER.
    pub client_certificate: Option<Vec<u8>>,
}

/// The answer to a gRPC call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpcReply {
    /// Messages; after them the call has ended well, unless a stream follows.
    Messages {
        /// The messages so far.
        messages: Vec<Vec<u8>>,
        /// More messages that come later.
        stream: Option<StreamId>,
    },
    /// The call failed with a gRPC status.
    Status {
        /// The number of the status.
        code: i32,
        /// Its message.
        message: String,
    },
}

impl RpcReply {
    /// Returns the gRPC status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Messages { .. } => 0,
            Self::Status { code, .. } => u16::try_from(*code).unwrap_or(u16::MAX),
        }
    }
}

impl Default for RpcReply {
    fn default() -> Self {
        Self::Messages { messages: Vec::new(), stream: None }
    }
}
