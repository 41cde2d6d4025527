//! A call before it is sent.

use std::{fmt, marker::PhantomData};

use ichor_port::{Method, percent};
use serde_json::Value;

use crate::resource::Resource;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// An object.
    Json,
    /// A patch that is laid over an object; lists are replaced.
    MergePatch,
    /// An object as the caller wants it, as far as the caller cares.
    Apply,
}

impl Content {
    /// Returns the media type. What is applied is sent as JSON, which is YAML too.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MergePatch => "application/merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// A call to the API, and by its type what it gives back.
pub struct Call<T> {
    /// The method.
    pub method: Method,
    /// The path, each segment percent-encoded.
    pub path: String,
    /// The parameters of the query.
    pub query: Vec<(&'static str, String)>,
    /// The body.
    pub body: Option<(Content, Value)>,
    /// Whether a segment of the path is empty: the path would mean something else, such as all objects.
    nameless: bool,
    gives: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Call<T> {
    /// Leaves out the body, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = self.body.as_ref().map(|(content, _)| content);
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("target", &self.target())
            .field("content", &content)
            .finish_non_exhaustive()
    }
}

impl<T> Clone for Call<T> {
    fn clone(&self) -> Self {
        Self {
            method: self.method,
            path: self.path.clone(),
            query: self.query.clone(),
            body: self.body.clone(),
            nameless: self.nameless,
            gives: PhantomData,
        }
    }
}

impl<T> Call<T> {
    /// Begins a call. Segments are encoded one by one, so that no name can lead elsewhere.
    pub fn new(method: Method, segments: &[&str]) -> Self {
        Self {
            method,
            path: segments.iter().map(|segment| format!("/{}", percent(segment))).collect(),
            query: Vec::new(),
            body: None,
            nameless: segments.iter().any(|segment| segment.is_empty()),
            gives: PhantomData,
        }
    }

    /// Begins a call about all objects of a kind, in one namespace or in all.
    pub fn about_all(method: Method, resource: &Resource, namespace: Option<&str>) -> Self {
        Self::new(method, &resource.segments(namespace))
    }

    /// Begins a call about one object, or about a part of it.
    pub fn about(
        method: Method,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        part: Option<&str>,
    ) -> Self {
        let mut segments = resource.segments(namespace);
        segments.push(name);
        segments.extend(part);
        Self::new(method, &segments)
    }

    /// Adds a parameter to the query.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.query.push((key, value.to_string()));
        self
    }

    /// Gives it a body.
    #[must_use]
    pub fn carrying(mut self, content: Content, body: Value) -> Self {
        self.body = Some((content, body));
        self
    }

    /// Whether a name is empty, so that the call must not be sent.
    pub const fn is_nameless(&self) -> bool {
        self.nameless
    }

    /// Returns path and query as they go over the wire.
    pub fn target(&self) -> String {
        let pairs: Vec<String> =
            self.query.iter().map(|(key, value)| format!("{key}={}", percent(value))).collect();
        if pairs.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, pairs.join("&")) }
    }

    /// Returns the call as messages name it.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{NODES, PODS};

    #[test]
    fn names_stay_in_their_segment() {
        let call: Call<()> = Call::about(Method::Delete, &PODS, Some("a/b"), "../x", None);
        assert_eq!(call.target(), "/api/v1/namespaces/a%2Fb/pods/..%2Fx");
        let call = call.with("fieldSelector", "spec.nodeName=a&b");
        assert!(call.target().ends_with("?fieldSelector=spec.nodeName%3Da%26b"), "{}", call.target());
    }

    #[test]
    fn a_body_is_not_shown() {
        let call: Call<()> = Call::about_all(Method::Post, &PODS, Some("a"));
        let call = call.carrying(Content::Json, "canary".into());
        let shown = format!("{call:?}");
        assert!(shown.contains("/api/v1/namespaces/a/pods") && !shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_call_about_nobody_is_not_about_everybody() {
        assert!(Call::<()>::about(Method::Delete, &NODES, None, "", None).is_nameless());
        assert!(Call::<()>::about(Method::Delete, &PODS, Some(""), "x", None).is_nameless());
        assert!(!Call::<()>::about_all(Method::Get, &NODES, None).is_nameless());
    }
}
