//! The verbs: get, list, create, update, patch, delete.

mod change;
mod create;
mod delete;
mod read;

use serde_json::Value;

use super::{
    shape::Place,
    status::{Failure, Flaw},
    target::Target,
};
use crate::{ground::Ground, wire::Request};

/// The largest body that is read, as in the API server.
const LARGEST_BODY: usize = 3 << 20;

/// How many objects a cluster may have; a client that creates without end must not fill the lab's memory.
const MOST_OBJECTS: usize = 100_000;

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Reads the body of a request as a value: JSON, or YAML where it is said to be that.
pub fn body(request: &Request) -> Result<Value, Failure> {
    if request.body.len() > LARGEST_BODY {
        let why = format!("Request entity too large: limit is {LARGEST_BODY}");
        return Err(Failure::plain(413, "RequestEntityTooLarge", why));
    }
    let media = request
        .header("content-type")
        .unwrap_or("application/json")
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if media.ends_with("yaml") {
        let text = std::str::from_utf8(&request.body).unwrap_or_default();
        return serde_saphyr::from_str(text)
            .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")));
    }
    if media == "application/vnd.kubernetes.protobuf" {
        let why = "the object provided is unrecognized (no kind with this encoding is registered here)";
        return super::protobuf::decode(&request.body).ok_or_else(|| Failure::bad_request(why));
    }
    if !media.ends_with("json") && media != "*/*" {
        let why = "the body of the request was in an unknown format - accepted media types include: application/json, \
            application/yaml";
        return Err(Failure::plain(415, "UnsupportedMediaType", why));
    }
    serde_json::from_slice(&request.body)
        .map_err(|error| Failure::bad_request(format!("the object provided is unrecognized: {error}")))
}

/// Returns the manager that a request names, or else its user agent's first word.
fn manager(target: &Target, request: &Request) -> String {
    let named = target.query.get("fieldManager");
    if !named.is_empty() {
        return named.chars().take(128).collect();
    }
    let agent = request.header("user-agent").unwrap_or("unknown");
    agent.split('/').next().unwrap_or("unknown").chars().take(128).collect()
}

/// Returns where merging begins in objects of a kind.
fn root<'s>(schema: Option<&'s Value>, target: &Target) -> Place<'s> {
    if target.resource.custom { Place::CustomRoot(schema) } else { Place::ROOT }
}

fn is_dry(target: &Target) -> Result<bool, Failure> {
    match target.query.get("dryRun") {
        "" => Ok(false),
        "All" => Ok(true),
        other => {
            let flaw = Flaw::unsupported("dryRun", &other.into(), &["All"]);
            Err(Failure::invalid("CreateOptions", "meta.k8s.io", "", &[flaw]))
        }
    }
}

/// Returns five characters as generated names end.
pub fn suffix(ground: &mut Ground) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[usize::try_from(ground.random.below(27)).unwrap_or(0)])).collect()
}
