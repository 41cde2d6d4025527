//! The lab's HTTP servers: Proxmox, the Image Factory and Kubernetes.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, StatusCode,
    body::{Frame, Incoming},
    ext::ReasonPhrase,
    header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use ichor_sim::{
    Door,
    pve::request::{Spool, Spooled},
    wire::{Request, Response, StreamId},
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    Hall,
    console::{self, Granted, Wish},
};

/// Most bytes of a request body.
const MAX_BODY: usize = 64 * 1024 * 1024;
/// So much of a body is read that Proxmox can say it is too large: it takes half of this at most, and looks no further.
const ENOUGH_FOR_PROXMOX: usize = 1024 * 1024;
/// A real Proxmox closes idle connections after 5 s; clients must cope, so the lab does it too.
const IDLE: Duration = Duration::from_secs(5);

/// What a body consists of. An error breaks the connection.
pub type Body = UnsyncBoxBody<Bytes, Broken>;

/// A connection that ends on purpose before its answer does.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the lab broke the connection")]
pub struct Broken;

/// Serves HTTP on a connection.
pub async fn serve<S>(hall: Arc<Hall>, stream: S, door: Door, certificate: Option<Vec<u8>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let proxmox = door == Door::Pve;
    let service = service_fn(move |request| {
        let (hall, door, certificate) = (Arc::clone(&hall), door.clone(), certificate.clone());
        async move { answer(&hall, &door, certificate, request).await }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).half_close(true);
    if proxmox {
        builder.http1().header_read_timeout(IDLE).title_case_headers(true);
    }
    // What goes wrong on a connection is the client's to see; the lab goes on.
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

async fn answer(
    hall: &Arc<Hall>,
    door: &Door,
    certificate: Option<Vec<u8>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Body>, Broken> {
    let head = request.method() == hyper::Method::HEAD;
    let mut request = request;
    let wish = if *door == Door::Pve { Wish::read(&mut request) } else { None };
    let request = read(hall, door, certificate, request).await?;
    let response = hall.ask(|lab| lab.call(door, &request)).await;
    let response = match wish {
        None => response,
        Some(wish) => match console::grant(hall, wish, response).await {
            Granted::Switch(message) => return Ok(message),
            Granted::Answer(response) => response,
        },
    };
    write(hall, door, response, head)
}

async fn read(
    hall: &Hall,
    door: &Door,
    certificate: Option<Vec<u8>>,
    request: hyper::Request<Incoming>,
) -> Result<Request, Broken> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let mut request = Request {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        client_certificate: certificate,
        ..Request::default()
    };
    let spool = if *door == Door::Pve { hall.look(|lab| lab.spool(&request)) } else { None };
    match spool {
        Some(spool) => request.upload = Some(take_in(spool, body).await?),
        None if *door == Door::Pve => request.body = beginning(body).await?,
        None => {
            let body = Limited::new(body, MAX_BODY).collect().await.map_err(|_| Broken)?;
            request.body = body.to_bytes().to_vec();
        }
    }
    request.began = hall.now();
    Ok(request)
}

/// Takes an upload in, piece by piece, whatever its size. Nobody waits for the rest of one that is refused.
async fn take_in(mut spool: Spool, mut body: Incoming) -> Result<Spooled, Broken> {
    while let Some(piece) = next(&mut body).await? {
        spool.take(&piece);
        if spool.has_failed() {
            break;
        }
    }
    Ok(spool.finish())
}

/// Reads as much of a body as Proxmox would.
async fn beginning(mut body: Incoming) -> Result<Vec<u8>, Broken> {
    let mut read = Vec::new();
    while read.len() < ENOUGH_FOR_PROXMOX
        && let Some(piece) = next(&mut body).await?
    {
        read.extend_from_slice(&piece);
    }
    Ok(read)
}

/// Returns the next piece of a body; nothing at its end.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Broken> {
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.map_err(|_| Broken)?.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

fn write(
    hall: &Arc<Hall>,
    door: &Door,
    response: Response,
    head: bool,
) -> Result<hyper::Response<Body>, Broken> {
    let status = StatusCode::from_u16(response.status).map_err(|_| Broken)?;
    let mut message = hyper::Response::new(body(hall, door, &response, head));
    *message.status_mut() = status;
    headers(message.headers_mut(), &response);
    if let Some(reason) = response.reason.and_then(|reason| ReasonPhrase::try_from(reason.into_bytes()).ok())
    {
        message.extensions_mut().insert(reason);
    }
    Ok(message)
}

fn headers(headers: &mut HeaderMap, response: &Response) {
    for (name, value) in &response.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
    if response.close && !headers.contains_key(CONNECTION) {
        headers.append(CONNECTION, HeaderValue::from_static("close"));
    }
    if response.stream.is_none() && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, response.body.len().into());
    }
}

/// An answer that goes on. Whoever stops reading closes it.
struct Open {
    hall: Arc<Hall>,
    door: Door,
    id: StreamId,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.hall.visit(|lab| lab.close(&self.door, self.id));
    }
}

fn body(hall: &Arc<Hall>, door: &Door, response: &Response, head: bool) -> Body {
    if head {
        return http_body_util::Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync();
    }
    let start = Bytes::from(response.body.clone());
    match (response.cut, response.stream) {
        (Some(cut), _) => {
            let start = start.slice(..cut.min(start.len()));
            let pieces = [Ok(Frame::data(start)), Err(Broken)];
            StreamBody::new(stream::iter(pieces)).boxed_unsync()
        }
        (None, Some(id)) => {
            let open = Open { hall: Arc::clone(hall), door: door.clone(), id };
            let start = (Some(vec![response.body.clone()]), open);
            let more = stream::unfold(start, move |(pieces, open)| async move {
                let pieces = match pieces {
                    Some(first) => first,
                    None => open.hall.next_pieces(id, |lab, id| lab.poll(&open.door, id)).await?,
                };
                Some((Ok(Frame::data(Bytes::from(pieces.concat()))), (None, open)))
            });
            StreamBody::new(more).boxed_unsync()
        }
        (None, None) => {
            http_body_util::Full::new(start).map_err(|never: Infallible| match never {}).boxed_unsync()
        }
    }
}
