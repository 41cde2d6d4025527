//! Asking the factory.

use std::time::Duration;

use ichor_model::TalosVersion;
use ichor_port::{Http, HttpStream, Method, Request, Response, TransportError, clean, percent};
use serde::{Deserialize, de::DeserializeOwned};
use thiserror::Error;

use crate::{
    asset::Asset,
    extension::Extension,
    refusal::{Kind, Refusal, header},
};

/// How long the factory may take for an answer.
const WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to build an image that nobody has asked for before.
const BUILD_WITHIN: Duration = Duration::from_mins(10);

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// There was no answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The factory refused.
    #[error("{0}")]
    Refused(Refusal),
    /// The factory gives the schematic another id. One with accounts adds the owner; one of another release may
    /// write the same schematic in another way.
    #[error("the image factory calls the schematic {theirs}, and not {ours}")]
    OtherId {
        /// The id that was computed here.
        ours: String,
        /// The id that it gave.
        theirs: String,
    },
    /// The answer is not what this call gives.
    #[error("the answer of the image factory to {call} makes no sense: {why}")]
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

    /// Whether a schematic may have been registered all the same. It does no harm to do it again.
    pub const fn may_have_happened(&self) -> bool {
        match self {
            Self::Transport(error) => {
                matches!(error, TransportError::Lost(_) | TransportError::Unreadable(_))
            }
            Self::Refused(refusal) => matches!(refusal.kind, Kind::Broken),
            Self::OtherId { .. } | Self::Nonsense { .. } => true,
        }
    }
}

/// What the factory says about an image without sending it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageHead {
    /// How many bytes it has, if the factory says so.
    pub length: Option<u64>,
}

/// Who has an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// The factory itself.
    Here(ImageHead),
    /// Another server, which is not asked: whoever downloads the image must be able to reach it too.
    Elsewhere(String),
}

/// A client of one factory.
#[derive(Debug, Clone)]
pub struct Client<T> {
    transport: T,
}

#[derive(Deserialize)]
struct Registered {
    id: String,
}

impl<T: Http> Client<T> {
    /// Makes a client.
    pub const fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Registers a schematic, given as canonical YAML, and makes sure that its id is the one that was computed.
    pub async fn register(&self, yaml: &str, id: &str) -> Result<(), Error> {
        let request = request(Method::Post, "/schematics".into());
        let request = Request {
            headers: vec![("content-type", "application/yaml".into()), ("accept", "application/json".into())],
            body: yaml.as_bytes().to_vec(),
            ..request
        };
        let registered: Registered = self.read(request).await?;
        if registered.id == id {
            return Ok(());
        }
        Err(Error::OtherId { ours: id.to_owned(), theirs: clean(&registered.id) })
    }

    /// Lists the releases of Talos that there are images of. What is no release is passed over.
    pub async fn versions(&self) -> Result<Vec<TalosVersion>, Error> {
        let versions: Vec<String> = self.read(request(Method::Get, "/versions".into())).await?;
        Ok(versions.iter().filter_map(|version| version.parse().ok()).collect())
    }

    /// Lists the official extensions of a release.
    pub async fn extensions(&self, talos: &TalosVersion) -> Result<Vec<Extension>, Error> {
        let target = format!("/version/{}/extensions/official", percent(&talos.to_string()));
        self.read(request(Method::Get, target)).await
    }

    /// Asks about an image, which makes the factory build it if nobody has asked before.
    pub async fn head(
        &self,
        asset: &Asset,
        schematic: &str,
        talos: &TalosVersion,
    ) -> Result<ImageHead, Error> {
        let request = request(Method::Head, asset.path(schematic, talos));
        image_head(&self.transport.send(request, BUILD_WITHIN).await?)
    }

    async fn read<D: DeserializeOwned>(&self, request: Request) -> Result<D, Error> {
        let call = format!("{} {}", request.method, request.target);
        let response = self.transport.send(request, WITHIN).await?;
        if !matches!(response.status, 200 | 201) {
            return Err(Error::Refused(Refusal::read(&response)));
        }
        serde_json::from_slice(&response.body)
            .map_err(|error| Error::Nonsense { call, why: clean(&error.to_string()) })
    }
}

impl<T: HttpStream> Client<T> {
    /// Asks who sends an image, as a download would, and hangs up before it comes.
    pub async fn whereabouts(
        &self,
        asset: &Asset,
        schematic: &str,
        talos: &TalosVersion,
    ) -> Result<Whereabouts, Error> {
        let request = request(Method::Get, asset.path(schematic, talos));
        let (head, _pieces) = self.transport.open(request, BUILD_WITHIN).await?;
        match image_head(&head) {
            Ok(head) => Ok(Whereabouts::Here(head)),
            Err(Error::Refused(Refusal { kind: Kind::Elsewhere, location: Some(location), .. })) => {
                Ok(Whereabouts::Elsewhere(location))
            }
            Err(error) => Err(error),
        }
    }
}

fn request(method: Method, target: String) -> Request {
    let headers = vec![("accept", "*/*".into())];
    Request { method, target, headers, authorization: None, body: Vec::new() }
}

fn image_head(response: &Response) -> Result<ImageHead, Error> {
    if response.status != 200 {
        return Err(Error::Refused(Refusal::read(response)));
    }
    let length = header(response, "content-length").and_then(|length| length.trim().parse().ok());
    Ok(ImageHead { length })
}
