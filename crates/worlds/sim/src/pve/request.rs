//! Decoding requests, with every quirk of the real HTTP server that clients meet.

mod form;
mod multipart;

use serde_json::Value;

pub use self::{
    form::unescaped,
    multipart::{Spool, Spooled, Upload},
};
use crate::{
    pve::{
        Params, Release,
        answer::{self, Formatter},
    },
    wire::{Request, Response},
};

/// What is known of a request from its first lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The path below the formatter, decoded.
    pub path: String,
    /// The name of the formatter.
    pub formatter: String,
}

/// A request that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The method.
    pub method: String,
    /// The path below the formatter, decoded.
    pub path: String,
    /// How the answer is written.
    pub formatter: Formatter,
    /// Parameters of query and body.
    pub params: Params,
    /// A file.
    pub upload: Option<Upload>,
    /// Whether a token was sent along, be it looked at or not.
    pub offers_token: bool,
}

const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
const MOST_HEADERS: usize = 64;
const LONGEST_HEADERS: usize = 8 * 1024;

/// Looks at method, headers and path. The error is the answer.
pub fn front(request: &Request) -> Result<Front, Response> {
    let length: usize = request.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    if request.headers.len() > MOST_HEADERS || length > LONGEST_HEADERS {
        return Err(answer::cut());
    }
    let method = &request.method;
    if !METHODS.contains(&method.as_str()) {
        return Err(answer::bare(501, &format!("method '{method}' not available")));
    }
    match request.header("transfer-encoding") {
        Some(encoding) if encoding.eq_ignore_ascii_case("chunked") => {
            return Err(answer::plain(501, "chunked transfer encoding not supported"));
        }
        Some(encoding) if !encoding.is_empty() => {
            return Err(answer::plain(501, &format!("Unknown transfer encoding '{encoding}'")));
        }
        _ => {}
    }
    let path = form::unescaped(&request.path);
    let Some(below) = path.strip_prefix("/api2") else {
        return Err(answer::plain(500, &format!("no such file '{path}'\n")));
    };
    let below = below.trim_start_matches('/');
    let (formatter, rest) = below.split_once('/').unwrap_or((below, ""));
    if formatter.is_empty() {
        return Err(answer::plain(501, "no such uri"));
    }
    // The path is told as it was sent, but for repeated slashes at its beginning.
    Ok(Front { path: format!("/{}", rest.trim_start_matches('/')), formatter: formatter.into() })
}

/// Returns what takes in the body of a request, if the server reads it as an upload. There is room for so many bytes.
pub fn spool(request: &Request, room: u64) -> Option<Spool> {
    let front = front(request).ok()?;
    if !is_upload(&request.method, &front.path) {
        return None;
    }
    let algorithm = form::parse(&request.query).into_iter().find(|(name, _)| name == "checksum-algorithm");
    let algorithm = algorithm.and_then(|(_, value)| value.as_str().map(str::to_owned));
    Some(Spool::new(&upload_boundary(request)?, algorithm, room))
}

fn upload_boundary(request: &Request) -> Option<String> {
    let content_type = request.header("content-type")?;
    multipart::boundary(content_type).filter(|_| media_type(content_type) == "multipart/form-data")
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads query and body; there is room for so many bytes of an upload. The error is the answer.
pub fn decode(request: &Request, front: &Front, release: Release, room: u64) -> Result<Decoded, Response> {
    let method = request.method.as_str();
    let mut body = Vec::new();
    let mut upload = None;
    if !request.body.is_empty() || request.upload.is_some() {
        if !matches!(method, "PUT" | "POST") {
            return Err(answer::plain(501, &format!("Unexpected content for method '{method}'")));
        }
        let content_type = request.header("content-type").unwrap_or_default();
        let kind = media_type(content_type);
        if is_upload(method, &front.path) {
            let Some(spool) = spool(request, room) else {
                return Err(answer::plain(
                    501,
                    &format!("upload 'Content-Type '{content_type}' not implemented"),
                ));
            };
            let spooled = request.upload.clone().unwrap_or_else(|| spool.all(&request.body));
            if let Some(refusal) = spooled.refusal() {
                return Err(refusal);
            }
            body = spooled.params.into_iter().map(|(name, value)| (name, value.into())).collect();
            upload = spooled.file;
            if let Some(upload) = &upload {
                body.push(("filename".into(), upload.filename.clone().into()));
            }
        } else if request.body.len() > release.body_limit() {
            return Err(answer::plain(501, "for data too large"));
        } else if kind.is_empty() || kind == "application/x-www-form-urlencoded" {
            body = form::parse(&String::from_utf8_lossy(&request.body));
        } else if kind == "application/json" {
            body = json_body(&request.body)?;
        } else {
            return Err(answer::plain(
                506,
                &format!("upload 'Content-Type '{content_type}' not implemented"),
            ));
        }
    }
    let Some(formatter) = Formatter::named(&front.formatter) else {
        let text = format!("no formatter for uri {}, {}", front.path, front.formatter);
        return Err(answer::plain(501, &text));
    };
    let mut params: Params = body.into_iter().collect();
    for (name, value) in form::parse(&request.query) {
        params.set(&name, value);
    }
    params.remove("_dc");
    let offers_token = request.header("authorization").is_some_and(|text| text.contains("PVEAPIToken"));
    Ok(Decoded { method: method.into(), path: front.path.clone(), formatter, params, upload, offers_token })
}

/// Returns whether a path is one that files are uploaded to.
pub fn is_upload(method: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    method == "POST" && matches!(parts.as_slice(), ["nodes", _, "storage", _, "upload"])
}

/// Reads a JSON body: an object, whose values become parameters as they are.
fn json_body(bytes: &[u8]) -> Result<Vec<(String, Value)>, Response> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object.into_iter().collect()),
        // The words after the dash are of the JSON library of the real server; they are not recorded.
        _ => Err(answer::plain(500, "malformed JSON string\n")),
    }
}
