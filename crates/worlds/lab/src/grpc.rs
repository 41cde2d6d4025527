//! The Talos API as gRPC: frames of protobuf messages over HTTP/2, whatever the method.

use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};

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

/// So long a server that is stopped lets calls end that have begun; Talos gives them the same time.
const FAREWELL: Duration = Duration::from_secs(10);

/// Serves the Talos API on a connection until the server is gone. Calls that have begun are answered all the same:
/// whoever sends a machine its config, and with it out of maintenance mode, is told that it was taken.
pub async fn serve<S>(
    hall: Arc<Hall>,
    stream: S,
    address: IpAddr,
    certificate: Option<Vec<u8>>,
    gone: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let (hall, certificate) = (Arc::clone(&hall), certificate.clone());
        async move { answer(&hall, address, certificate, request).await }
    });
    let connection =
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = gone => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(FAREWELL, connection).await;
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
    Pieces(Vec<Vec<u8>>, Option<Open>),
    Stream(Open),
    Status,
    Nothing,
}

/// Messages that go on. Whoever stops reading closes them.
struct Open {
    hall: Arc<Hall>,
    address: IpAddr,
    id: StreamId,
}

impl Open {
    async fn next(&self) -> Option<Vec<Vec<u8>>> {
        self.hall.next_pieces(self.id, |lab, id| lab.poll_rpc(self.address, id)).await
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.hall.visit(|lab| lab.close_rpc(self.id));
    }
}

fn respond(
    hall: &Arc<Hall>,
    address: IpAddr,
    messages: Vec<Vec<u8>>,
    more: Option<StreamId>,
    code: i32,
    message: &str,
) -> hyper::Response<Body> {
    let trailers = trailers(code, message);
    let open = more.map(|id| Open { hall: Arc::clone(hall), address, id });
    // An answer is headers, messages and trailers: without messages there is no frame between the two (gRPC over
    // HTTP/2), and clients hang up on servers that send many empty ones.
    let first = match (messages.is_empty(), open) {
        (true, None) => Rest::Status,
        (true, Some(open)) => Rest::Stream(open),
        (false, open) => Rest::Pieces(messages, open),
    };
    let frames = stream::unfold(first, move |rest| {
        let trailers = trailers.clone();
        async move {
            let (pieces, rest) = match rest {
                Rest::Pieces(messages, None) => (messages, Rest::Status),
                Rest::Pieces(messages, Some(open)) => (messages, Rest::Stream(open)),
                Rest::Stream(open) => match open.next().await {
                    Some(pieces) => (pieces, Rest::Stream(open)),
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

    #[tokio::test]
    async fn a_call_that_has_begun_is_answered_although_the_server_goes() {
        let lab = ichor_sim::setup::Setup::new(1, ichor_sim::profile::Profile::Instant).build();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let address = IpAddr::from([127, 0, 0, 2]);
        let hall = Arc::new(Hall::new(lab));
        tokio::spawn(serve(hall, far, address, None, async move { drop(gone.await) }));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near))
                .await
                .expect("a connection");
        tokio::spawn(connection);
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        let body = StreamBody::new(stream::once(async move {
            let _ = finished.await;
            // A broken frame is answered without a machine.
            Ok::<_, Broken>(Frame::data(Bytes::from_static(&[1, 0, 0, 0, 0])))
        }));
        let uri = "http://lab/machine.MachineService/Version";
        let request = hyper::Request::post(uri).body(body.boxed_unsync()).expect("a request");
        let mut answer = pin!(sender.send_request(request));
        // The headers are on their way after a look at the call, and its body is held back.
        let look = tokio::time::timeout(Duration::from_millis(50), answer.as_mut()).await;
        assert!(look.is_err(), "nothing is answered before the body is there");
        go.send(()).expect("a server");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        finish.send(()).expect("a call");
        let answer = tokio::time::timeout(FAREWELL, answer).await.expect("in time").expect("an answer");
        let trailers = answer.into_body().collect().await.expect("a body").trailers().cloned();
        assert!(trailers.expect("trailers").contains_key("grpc-status"));
    }

    #[test]
    fn messages_of_a_status_are_percent_encoded() {
        assert_eq!(percent_encode("50 % of \"é\"\n"), "50 %25 of \"%C3%A9\"%0A");
    }
}
