//! The Talos API as gRPC: frames of protobuf messages over HTTP/2, whatever the method.

use std::{net::IpAddr, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream;
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::{
    HeaderMap,
    body::{Frame, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ichor_sim::wire::{Rpc, RpcReply, StreamId};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    Hall,
    http::{Body, Broken},
};

/// Most bytes of all messages of a call: a machine takes 32 MiB in one, and etcd snapshots of the lab are small.
const MAX_BODY: usize = 64 * 1024 * 1024;
const OK: i32 = 0;
const INTERNAL: i32 = 13;

/// Serves the Talos API on a connection.
pub async fn serve<S>(hall: Arc<Hall>, stream: S, address: IpAddr, certificate: Option<Vec<u8>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let (hall, certificate) = (Arc::clone(&hall), certificate.clone());
        async move { answer(&hall, address, certificate, request).await }
    });
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    hall: &Arc<Hall>,
    address: IpAddr,
    certificate: Option<Vec<u8>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Body>, Broken> {
    let method = request.uri().path().to_owned();
    let metadata = request
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
    let metadata = metadata.collect();
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await.map_err(|_| Broken)?.to_bytes();
    let Some(messages) = unframe(body) else {
        return Ok(respond(hall, address, Vec::new(), None, INTERNAL, "a frame of the call is broken"));
    };
    let rpc = Rpc { began: hall.now(), method, metadata, messages, client_certificate: certificate };
    Ok(match hall.ask(|lab| lab.rpc(address, &rpc)).await {
        RpcReply::Messages { messages, stream } => respond(hall, address, messages, stream, OK, ""),
        RpcReply::Status { code, message } => respond(hall, address, Vec::new(), None, code, &message),
    })
}

/// Splits a body into messages: a byte that tells whether they are compressed, and their length.
fn unframe(mut body: Bytes) -> Option<Vec<Vec<u8>>> {
    let mut messages = Vec::new();
    while body.has_remaining() {
        if body.remaining() < 5 || body.get_u8() != 0 {
            return None;
        }
        let length = usize::try_from(body.get_u32()).ok()?;
        if body.remaining() < length {
            return None;
        }
        messages.push(body.split_to(length).to_vec());
    }
    Some(messages)
}

fn frame(messages: &[Vec<u8>]) -> Bytes {
    let mut framed = BytesMut::new();
    for message in messages {
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        framed.put_slice(message);
    }
    framed.freeze()
}

/// What is left to say of an answer.
enum Rest {
    Pieces(Vec<Vec<u8>>, Option<StreamId>),
    Stream(StreamId),
    Status,
    Nothing,
}

fn respond(
    hall: &Arc<Hall>,
    address: IpAddr,
    messages: Vec<Vec<u8>>,
    more: Option<StreamId>,
    code: i32,
    message: &str,
) -> hyper::Response<Body> {
    let (hall, trailers) = (Arc::clone(hall), trailers(code, message));
    let frames = stream::unfold(Rest::Pieces(messages, more), move |rest| {
        let (hall, trailers) = (Arc::clone(&hall), trailers.clone());
        async move {
            let (pieces, rest) = match rest {
                Rest::Pieces(messages, None) => (messages, Rest::Status),
                Rest::Pieces(messages, Some(id)) => (messages, Rest::Stream(id)),
                Rest::Stream(id) => match hall.next_pieces(id, |lab, id| lab.poll_rpc(address, id)).await {
                    Some(pieces) => (pieces, Rest::Stream(id)),
                    None => return Some((Ok(Frame::trailers(trailers)), Rest::Nothing)),
                },
                Rest::Status => return Some((Ok(Frame::trailers(trailers)), Rest::Nothing)),
                Rest::Nothing => return None,
            };
            Some((Ok::<_, Broken>(Frame::data(frame(&pieces))), rest))
        }
    });
    let mut response = hyper::Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn trailers(code: i32, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    if let Ok(message) = HeaderValue::from_str(&percent_encode(message)) {
        trailers.insert("grpc-message", message);
    }
    trailers
}

/// gRPC writes messages with everything percent-encoded but printable ASCII.
fn percent_encode(message: &str) -> String {
    let encode = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    message.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed_and_unframed() {
        let messages = vec![b"one".to_vec(), Vec::new(), b"three".to_vec()];
        assert_eq!(unframe(frame(&messages)), Some(messages));
        assert_eq!(unframe(Bytes::from_static(&[0, 0, 0, 0, 9, 1])), None);
        assert_eq!(unframe(Bytes::from_static(&[1, 0, 0, 0, 0])), None);
    }

    #[test]
    fn messages_of_a_status_are_percent_encoded() {
        assert_eq!(percent_encode("50 % of \"é\"\n"), "50 %25 of \"%C3%A9\"%0A");
    }
}
