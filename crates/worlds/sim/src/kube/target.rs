//! What a request is about.

use super::{
    kinds::{self, Resource},
    status::Failure,
    store::Store,
};
use crate::wire::Request;

/// The parameters of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key, true), decode(value, true))
                })
                .collect(),
        )
    }

    /// Returns a parameter; empty if it is not there.
    pub fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1" | "t" | "True" | "TRUE")
    }
}

/// Undoes percent-encoding; what is not valid stays as it is.
pub fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) if plus_is_space => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The kind.
    pub resource: Resource,
    /// The namespace; empty for all, or for those without.
    pub namespace: String,
    /// The object; empty for all.
    pub name: String,
    /// What of the object, such as `status`.
    pub subresource: String,
    /// The verb for authorization.
    pub verb: &'static str,
    /// The parameters.
    pub query: Query,
}

impl Target {
    /// Reads the path and method of a request.
    pub fn parse(store: &Store, request: &Request) -> Result<Self, Failure> {
        let parts: Vec<String> =
            request.path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Failure::no_such_path()),
        };
        let (watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = match rest {
            // A namespace's own subresources, and everything else in it.
            ["namespaces", name, rest @ ..]
                if !rest.is_empty() && !matches!(rest[0], "status" | "finalize") =>
            {
                (*name, rest)
            }
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, sub, ..] => (*plural, *name, *sub),
            [] => return Err(Failure::no_such_path()),
        };
        let resource = kinds::find(store, group, version, plural).ok_or_else(Failure::no_such_path)?;
        let query = Query::parse(&request.query);
        if !resource.namespaced && !namespace.is_empty() {
            return Err(Failure::no_such_path());
        }
        let verb = verb(&request.method, name, watch || query.is_on("watch"))?;
        Ok(Self {
            resource,
            namespace: namespace.into(),
            name: name.into(),
            subresource: subresource.into(),
            verb,
            query,
        })
    }

    /// Returns the resource with its subresource, as rules name it.
    pub fn rule_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.plural.to_string(),
            sub => format!("{}/{sub}", self.resource.plural),
        }
    }

    /// Says that the object does not exist.
    pub fn not_found(&self) -> Failure {
        Failure::not_found(&self.resource.plural, &self.resource.group, &self.name)
    }

    /// Says that the object is not as the caller thinks.
    pub fn conflict(&self, why: &str) -> Failure {
        Failure::conflict(&self.resource.plural, &self.resource.group, &self.name, why)
    }
}

fn verb(method: &str, name: &str, watch: bool) -> Result<&'static str, Failure> {
    Ok(match (method, name.is_empty()) {
        ("GET" | "HEAD", _) if watch => "watch",
        ("GET" | "HEAD", true) => "list",
        ("GET" | "HEAD", false) => "get",
        ("POST", _) => "create",
        ("PUT", false) => "update",
        ("PATCH", false) => "patch",
        ("DELETE", false) => "delete",
        ("DELETE", true) => "deletecollection",
        _ => return Err(Failure::method_not_allowed()),
    })
}
