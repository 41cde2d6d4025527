//! The line to a bucket: it leads to one server, and brings no more than is asked for.
//!
//! By itself the library follows a server wherever that leads, with what was to be kept in the bucket, reads its errors
//! and lists whatever their size, and repeats what a server says of the request, who asked included.

use std::{pin::Pin, time::Duration};

use http_body_util::{BodyExt, Limited};
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
        HttpService,
    },
};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::MAX_BYTES;

/// How long a connection, and a whole request, may take.
const CONNECTING: Duration = Duration::from_secs(5);
const ASKING: Duration = Duration::from_secs(10);
/// Most bytes of an answer: an object, and as much again as a piece of one that is too large.
const MAX_ANSWER: usize = MAX_BYTES + 1024 * 1024;
/// Most bytes of a refusal. Those of real servers have some hundreds.
const MAX_REFUSAL: usize = 256 * 1024;

/// Headers that prove who asks.
const PROOFS: [&str; 2] = ["authorization", "x-amz-security-token"];
/// What stands in the place of a proof that comes back.
const MASK: &str = "******";

/// Makes clients that go nowhere else.
#[derive(Debug)]
pub struct Line;

impl HttpConnector for Line {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|it| it == "true");
        let client = reqwest::Client::builder()
            .user_agent(concat!("ichor/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECTING)
            .timeout(ASKING)
            .https_only(!plain)
            .build()
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) })?;
        Ok(HttpClient::new(Bounded(HttpClient::new(client))))
    }
}

/// A client that reads no answer without end.
#[derive(Debug)]
struct Bounded(HttpClient);

/// More comes than anybody asked for.
#[derive(Debug, Error)]
#[error("the answer has no end")]
struct Endless;

impl HttpService for Bounded {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let proofs = proofs(&request);
            let (head, body) = self.0.execute(request).await?.into_parts();
            let body = if head.status.is_success() {
                HttpResponseBody::new(Limited::new(body, MAX_ANSWER).map_err(too_long))
            } else {
                let said = Limited::new(body, MAX_REFUSAL).collect().await.map_err(too_long)?.to_bytes();
                let said = String::from_utf8_lossy(&said).into_owned();
                proofs.iter().fold(said, |said, proof| said.replace(proof.as_str(), MASK)).into()
            };
            Ok(HttpResponse::from_parts(head, body))
        })
    }
}

fn too_long(error: Box<dyn std::error::Error + Send + Sync>) -> HttpError {
    match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(_) => HttpError::new(HttpErrorKind::Decode, Endless),
    }
}

fn proofs(request: &HttpRequest) -> Vec<Zeroizing<String>> {
    let values = PROOFS.iter().filter_map(|name| request.headers().get(*name)?.to_str().ok());
    values.filter(|value| !value.is_empty()).map(|value| Zeroizing::new(value.to_owned())).collect()
}
