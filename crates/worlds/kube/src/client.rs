//! Sending calls.

use std::time::Duration;

use ichor_port::{Http, HttpStream, Pieces, Request, Response, TransportError, clean};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use thiserror::Error;

use crate::{
    api,
    call::Call,
    object::List,
    refusal::{Kind, Refusal},
    resource::Resource,
    watch::{Watch, WatchFrom},
};

/// How long an API server may take for an answer.
const WITHIN: Duration = Duration::from_secs(30);
/// How many objects are on a page.
const PAGE: u32 = 500;
/// Most objects of a list. Clusters of ichor have a few thousand pods at most.
const MOST_OBJECTS: usize = 100_000;
/// How often a list is begun again because its next page was too old.
const MOST_LISTS: usize = 3;
/// Most bytes of a refusal at the beginning of a watch.
const MAX_REFUSAL: usize = 64 * 1024;

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// There was no answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The API server refused.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// A name in the call is empty, so that it would be about something else. It was not sent.
    #[error("{0} names no object, and was not sent")]
    Nameless(String),
    /// The answer is not what this call gives.
    #[error("the answer of Kubernetes to {call} makes no sense: {why}")]
    Nonsense {
        /// The call.
        call: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// Returns what a refusal means; nothing for other errors.
    pub fn refusal(&self) -> Option<Kind> {
        match self {
            Self::Refused(refusal) => Some(refusal.kind),
            _ => None,
        }
    }

    /// Whether a call that was to change something may have done so.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Transport(error) => {
                matches!(error, TransportError::Lost(_) | TransportError::Unreadable(_))
            }
            Self::Refused(refusal) => refusal.kind == Kind::Broken,
            Self::Nameless(_) => false,
            Self::Nonsense { .. } => true,
        }
    }

    pub(crate) fn refused(response: &Response) -> Self {
        Self::Refused(Box::new(Refusal::read(response)))
    }
}

/// What became of an object that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, or goes as soon as its finalizers are done.
    Going,
    /// It was not there, or is another one by now.
    Missing,
}

/// What became of a pod that was to be evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evicted {
    /// It goes.
    Going,
    /// It was not there, or is another one by now.
    Missing,
    /// A disruption budget does not allow it now.
    Blocked {
        /// Which, in the server's words.
        why: String,
        /// After which time the server wants to be asked again.
        retry_after: Option<Duration>,
    },
}

/// How an API server finds itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Whether it is well.
    pub well: bool,
    /// Checks that fail, such as `etcd`.
    pub failing: Vec<String>,
}

/// A client of one API server.
#[derive(Debug, Clone)]
pub struct Client<T> {
    transport: T,
    within: Duration,
}

impl<T: Http> Client<T> {
    /// Makes a client. Who asks is told by the transport's certificate.
    pub const fn new(transport: T) -> Self {
        Self { transport, within: WITHIN }
    }

    /// Gives the server another time for its answers.
    #[must_use]
    pub const fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Sends a call.
    pub async fn send<D: DeserializeOwned>(&self, call: &Call<D>) -> Result<D, Error> {
        let response = self.transport.send(request(call)?, self.within).await?;
        if !matches!(response.status, 200..=202) {
            return Err(Error::refused(&response));
        }
        serde_json::from_slice(&response.body)
            .map_err(|error| Error::Nonsense { call: call.name(), why: clean(&error.to_string()) })
    }

    /// Sends a call about something that may not be there.
    pub async fn find<D: DeserializeOwned>(&self, call: &Call<D>) -> Result<Option<D>, Error> {
        match self.send(call).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.refusal() == Some(Kind::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists all objects, page by page. A list that takes so long that its pages are forgotten begins again.
    pub async fn list<D: DeserializeOwned>(&self, call: &Call<List<D>>) -> Result<List<D>, Error> {
        let mut lists = 1;
        loop {
            match self.list_once(call).await {
                Err(error) if error.refusal() == Some(Kind::Expired) && lists < MOST_LISTS => lists += 1,
                listed => return listed,
            }
        }
    }

    async fn list_once<D: DeserializeOwned>(&self, call: &Call<List<D>>) -> Result<List<D>, Error> {
        let first = call.clone().with("limit", PAGE);
        let mut list = self.send(&first).await?;
        while let Some(next) = list.next() {
            let page = self.send(&first.clone().with("continue", next)).await?;
            let why = match page.items.len() {
                0 => "a page is empty, but not the last",
                more if list.items.len() + more > MOST_OBJECTS => "the list has no end",
                _ => {
                    list.join(page);
                    continue;
                }
            };
            return Err(Error::Nonsense { call: call.name(), why: why.into() });
        }
        Ok(list)
    }

    /// Asks an API server how it finds itself: [`api::READY`] or [`api::ALIVE`].
    pub async fn probe(&self, what: &str) -> Result<Probe, Error> {
        let call = Call::<Value>::new(ichor_port::Method::Get, &[what]).with("verbose", "true");
        let response = self.transport.send(request(&call)?, self.within).await?;
        match response.status {
            200 => Ok(Probe { well: true, failing: Vec::new() }),
            // A refusal by something else than a check has no check in it.
            500 | 503 => match api::failing_checks(&String::from_utf8_lossy(&response.body)) {
                failing if failing.is_empty() => Err(Error::refused(&response)),
                failing => Ok(Probe { well: false, failing }),
            },
            _ => Err(Error::refused(&response)),
        }
    }

    /// Finds out how a kind is served; nothing if it is not. Definitions take a moment until their kinds are.
    pub async fn discover(&self, api_version: &str, kind: &str) -> Result<Option<Resource>, Error> {
        Ok(self.find(&api::served(api_version)).await?.and_then(|served| served.find(kind)))
    }

    /// Lists what is served, as `v1` and `apps/v1`.
    pub async fn api_versions(&self) -> Result<Vec<String>, Error> {
        let core = self.send(&api::core_versions()).await?;
        let groups = self.send(&api::groups()).await?;
        Ok(core.names().chain(groups.names()).collect())
    }

    /// Deletes an object.
    pub async fn delete(&self, call: &Call<Deleted>) -> Result<Deleted, Error> {
        match self.send(call).await {
            Err(Error::Refused(refusal)) if is_gone(&refusal) => Ok(Deleted::Missing),
            deleted => deleted,
        }
    }

    /// Asks for a pod's eviction.
    pub async fn evict(&self, pod: &api::Pod) -> Result<Evicted, Error> {
        match self.send(&api::evict(pod)).await {
            Ok(_) => Ok(Evicted::Going),
            Err(Error::Refused(refusal)) if is_gone(&refusal) => Ok(Evicted::Missing),
            Err(Error::Refused(refusal)) if refusal.kind == Kind::BudgetSpent => {
                Ok(Evicted::Blocked { why: why(&refusal), retry_after: refusal.retry_after })
            }
            Err(error) => Err(error),
        }
    }
}

impl<T: HttpStream> Client<T> {
    /// Watches objects of a kind, in one namespace or in all.
    pub async fn watch(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        from: &WatchFrom<'_>,
    ) -> Result<Watch<T::Pieces>, Error> {
        let call = from.call(resource, namespace);
        let (mut head, mut pieces) = self.transport.open(request(&call)?, self.within).await?;
        if head.status == 200 {
            return Ok(Watch::new(call.name(), pieces));
        }
        while let Ok(Some(piece)) = pieces.next(self.within).await {
            head.body.extend(piece);
            if head.body.len() > MAX_REFUSAL {
                break;
            }
        }
        Err(Error::refused(&head))
    }
}

/// Success says nothing more than that.
impl<'de> Deserialize<'de> for Deleted {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::Map::deserialize(deserializer).map(|_: serde_json::Map<String, Value>| Self::Going)
    }
}

/// Whether an object is gone. Where a uid was to be compared, another object of the same name is a conflict; there
/// are conflicts of other kinds, such as a namespace that is not empty yet.
fn is_gone(refusal: &Refusal) -> bool {
    match refusal.kind {
        Kind::Missing => true,
        Kind::Conflict => refusal.message.contains("UID in"),
        _ => false,
    }
}

/// The cause names the budget; the message does not.
fn why(refusal: &Refusal) -> String {
    let causes: Vec<&str> = refusal.causes.iter().map(|cause| cause.message.as_str()).collect();
    let causes: Vec<&str> = causes.into_iter().filter(|cause| !cause.is_empty()).collect();
    if causes.is_empty() { refusal.message.clone() } else { causes.join("; ") }
}

fn request<D>(call: &Call<D>) -> Result<Request, Error> {
    if call.is_nameless() {
        return Err(Error::Nameless(call.name()));
    }
    let mut headers = vec![("accept", "application/json".to_owned())];
    let mut body = Vec::new();
    if let Some((content, value)) = &call.body {
        headers.push(("content-type", content.media_type().to_owned()));
        body = value.to_string().into_bytes();
    }
    Ok(Request { method: call.method, target: call.target(), headers, authorization: None, body })
}
