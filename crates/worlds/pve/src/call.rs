//! A call before it is sent.

use std::{fmt, marker::PhantomData};

use ichor_port::{Method, Secret};

use crate::{
    encode::{form, percent},
    upload::Upload,
};

/// Parameters, in the order in which they are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Adds a parameter.
    pub fn set(&mut self, key: impl Into<String>, value: impl fmt::Display) {
        self.0.push((key.into(), value.to_string()));
    }

    /// Adds a parameter that may be absent.
    pub fn set_some(&mut self, key: impl Into<String>, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Adds a switch. Forms want `1` and `0`; `true` is refused.
    pub fn switch(&mut self, key: impl Into<String>, on: bool) {
        self.set(key, u8::from(on));
    }

    /// Returns the parameters.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

/// A call to the API, and by its type what it gives back.
#[derive(Debug)]
pub struct Call<T> {
    /// The method.
    pub method: Method,
    /// The path below `/api2/json`, each segment percent-encoded.
    pub path: String,
    /// The parameters.
    pub params: Params,
    upload: Option<Upload>,
    /// A parameter that must not be printed; it comes last.
    secrets: Vec<(&'static str, Secret)>,
    gives: PhantomData<fn() -> T>,
}

impl<T> Clone for Call<T> {
    fn clone(&self) -> Self {
        Self {
            method: self.method,
            path: self.path.clone(),
            params: self.params.clone(),
            upload: self.upload.clone(),
            secrets: self.secrets.clone(),
            gives: PhantomData,
        }
    }
}

impl<T> Call<T> {
    /// Begins a call. Segments are encoded one by one, so that no name can lead elsewhere.
    pub fn new(method: Method, segments: &[&str]) -> Self {
        let path = segments.iter().map(|segment| format!("/{}", percent(segment))).collect();
        Self {
            method,
            path,
            params: Params::default(),
            upload: None,
            secrets: Vec::new(),
            gives: PhantomData,
        }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl fmt::Display) -> Self {
        self.params.set(key, value);
        self
    }

    /// Adds a parameter that must not be printed, to a call that has a body.
    #[must_use]
    pub(crate) fn with_secret(mut self, key: &'static str, secret: &Secret) -> Self {
        self.secrets.push((key, secret.clone()));
        self
    }

    /// Adds parameters.
    #[must_use]
    pub fn with_all(mut self, params: Params) -> Self {
        self.params.0.extend(params.0);
        self
    }

    /// Adds a file. Parameters and file then go together as `multipart/form-data`.
    #[must_use]
    pub(crate) fn with_upload(mut self, upload: Upload) -> Self {
        self.upload = Some(upload);
        self
    }

    /// Returns path and query as they go over the wire. GET and DELETE carry no body.
    pub fn target(&self) -> String {
        let query = form(&self.params.0);
        match self.method {
            Method::Post | Method::Put | Method::Patch => format!("/api2/json{}", self.path),
            _ if query.is_empty() => format!("/api2/json{}", self.path),
            _ => format!("/api2/json{}?{query}", self.path),
        }
    }

    /// Returns what kind of body it has.
    pub fn content_type(&self) -> String {
        match &self.upload {
            Some(upload) => upload.content_type(&self.params.0),
            None => "application/x-www-form-urlencoded".into(),
        }
    }

    /// Returns the body as it goes over the wire.
    pub fn body(&self) -> Vec<u8> {
        if let Some(upload) = &self.upload {
            return upload.body(&self.params.0);
        }
        match self.method {
            Method::Post | Method::Put | Method::Patch => self.form(),
            _ => Vec::new(),
        }
    }

    fn form(&self) -> Vec<u8> {
        let mut text = form(&self.params.0);
        for (key, secret) in &self.secrets {
            let joint = if text.is_empty() { "" } else { "&" };
            text.push_str(&format!("{joint}{}={}", percent(key), percent(secret.expose())));
        }
        text.into_bytes()
    }
}
