//! What handlers answer and refuse, and how it goes over the wire.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{clock::Time, pve::Release, wire::Response};

/// What a handler answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The value of `data`.
    pub data: Value,
    /// The value of `total`, where a list is told in pages.
    pub total: Option<u64>,
    /// Other values besides `data`, such as `changes`.
    pub more: BTreeMap<String, Value>,
}

impl Answer {
    /// Answers nothing.
    pub fn null() -> Self {
        Self::default()
    }

    /// Answers one page of a list.
    pub fn page(rows: Vec<Value>, total: usize) -> Self {
        Self { data: Value::Array(rows), total: Some(total as u64), more: BTreeMap::new() }
    }
}

impl<T: Into<Value>> From<T> for Answer {
    fn from(data: T) -> Self {
        Self { data: data.into(), ..Self::default() }
    }
}

/// What comes of a call.
pub type Reply = Result<Answer, Refusal>;

/// What a handler can say instead of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// An error.
    Error(ApiError),
    /// The handler blocks: ask it again at this moment. It has changed nothing so far.
    Wait(Time),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

/// An error of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The status.
    pub status: u16,
    /// The message as it stands in the body, with its line break where the real one has it.
    pub message: String,
    /// What is wrong with which parameter.
    pub errors: BTreeMap<String, String>,
}

impl ApiError {
    /// Something went wrong (500): Proxmox's answer to almost everything.
    pub fn server(message: impl Into<String>) -> Self {
        let mut message = message.into();
        if !message.ends_with('\n') {
            message.push('\n');
        }
        Self { status: 500, message, errors: BTreeMap::new() }
    }

    /// A right is missing (403), named in parentheses.
    pub fn forbidden(what: &str) -> Self {
        let what = if what.is_empty() { String::new() } else { format!(" ({what})") };
        Self::status(403, format!("Permission check failed{what}\n"))
    }

    /// A parameter is wrong (400).
    pub fn param(name: &str, text: impl Into<String>) -> Self {
        Self::params(BTreeMap::from([(name.to_owned(), text.into())]))
    }

    /// Parameters are wrong (400).
    pub fn params(errors: BTreeMap<String, String>) -> Self {
        Self { status: 400, message: "Parameter verification failed.\n".into(), errors }
    }

    /// An error with a status and a message as it is.
    pub fn status(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errors: BTreeMap::new() }
    }

    /// Returns the first line of the message: what stands in the status line.
    pub fn reason(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    /// Returns the error as Perl prints it when a command wraps it in a text of its own.
    pub fn as_text(&self) -> String {
        let mut text = match self.status {
            500 => self.message.clone(),
            status => format!("{status} {}", self.message),
        };
        for (name, error) in &self.errors {
            text.push_str(&format!("{name}: {error}\n"));
        }
        text
    }
}

/// How an answer is written: the first part of the path below `/api2/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formatter {
    /// `json`.
    Json,
    /// `extjs`: the status is always 200.
    ExtJs,
    /// `html`: a page with the value.
    Html,
}

impl Formatter {
    /// Finds a formatter by its name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "extjs" => Some(Self::ExtJs),
            "html" => Some(Self::Html),
            _ => None,
        }
    }
}

/// Whether an answer was given by the daemon behind the front proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the front proxy itself.
    Front,
    /// By the daemon, or by the proxy of another host.
    Forwarded,
    /// By the front proxy after it had taken in a file.
    Upload,
}

/// Writes an answer.
pub fn success(answer: &Answer, formatter: Formatter, way: Way) -> Response {
    let mut body = Map::new();
    body.insert("data".into(), answer.data.clone());
    if let Some(total) = answer.total {
        body.insert("total".into(), total.into());
    }
    for (key, value) in &answer.more {
        body.insert(key.clone(), value.clone());
    }
    if formatter == Formatter::ExtJs {
        body.insert("success".into(), 1.into());
    }
    written(200, "OK", &Value::Object(body), formatter, way)
}

/// Writes an error.
pub fn failure(error: &ApiError, release: Release, formatter: Formatter, way: Way) -> Response {
    let mut body = Map::new();
    body.insert("data".into(), Value::Null);
    let extjs = formatter == Formatter::ExtJs;
    if extjs || release.tells_errors_in_body() {
        body.insert("message".into(), error.message.clone().into());
    }
    if !error.errors.is_empty() {
        body.insert("errors".into(), json!(error.errors));
    }
    if !extjs {
        return written(error.status, error.reason(), &Value::Object(body), formatter, way);
    }
    body.insert("success".into(), 0.into());
    // What the daemon behind the proxy answered is told as text (seen), what the proxy says itself as a number.
    let status =
        if way == Way::Forwarded { error.status.to_string().into() } else { Value::from(error.status) };
    body.insert("status".into(), status);
    written(200, "OK", &Value::Object(body), formatter, way)
}

fn written(status: u16, reason: &str, body: &Value, formatter: Formatter, way: Way) -> Response {
    let (content_type, bytes) = match formatter {
        Formatter::Json | Formatter::ExtJs => {
            ("application/json;charset=UTF-8", body.to_string().into_bytes())
        }
        Formatter::Html => ("text/html;charset=UTF-8", html(body).into_bytes()),
    };
    let mut response = Response {
        status,
        reason: Some(reason.to_owned()),
        headers: vec![("content-type".into(), content_type.into())],
        body: bytes,
        stream: None,
        cut: None,
        close: status >= 400,
    };
    if status >= 400 {
        response.headers.push(("connection".into(), "close".into()));
    } else {
        if way != Way::Front {
            response.headers.push(("connection".into(), "close".into()));
        }
        if way != Way::Upload {
            response.headers.push(("connection".into(), "Keep-Alive".into()));
        }
    }
    usual_headers(response)
}

/// Writes a refusal of the HTTP server itself: the text stands in the status line, and as it is in the body.
pub fn plain(status: u16, text: &str) -> Response {
    let reason = text.lines().next().unwrap_or_default();
    Response { body: text.as_bytes().to_vec(), ..bare(status, reason) }
}

/// Writes an answer with a reason and no body.
pub fn bare(status: u16, reason: &str) -> Response {
    usual_headers(Response {
        status,
        reason: Some(reason.to_owned()),
        headers: vec![("connection".into(), "close".into())],
        close: true,
        ..Response::default()
    })
}

/// A connection that is closed without an answer.
pub fn cut() -> Response {
    Response { close: true, ..Response::default() }
}

fn usual_headers(mut response: Response) -> Response {
    for (name, value) in
        [("server", "pve-api-daemon/3.0"), ("cache-control", "max-age=0"), ("pragma", "no-cache")]
    {
        response.headers.push((name.into(), value.into()));
    }
    response
}

fn html(body: &Value) -> String {
    let text = serde_json::to_string_pretty(body).unwrap_or_default();
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<!DOCTYPE html>\n<html><body><pre>{text}</pre></body></html>\n")
}
