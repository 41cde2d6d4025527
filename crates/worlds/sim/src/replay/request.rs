//! Building the request of an exchange.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    Lab,
    pve::{access, world},
    replay::Memory,
    wire::Request,
};

/// Builds the request as it was sent.
pub fn build(lab: &Lab, memory: &mut Memory, exchange: &Value) -> Request {
    let path = filled(exchange["path"].as_str().unwrap_or_default(), memory);
    let whole = exchange["prefix"] == "none";
    let path = if whole { path } else { format!("/api2/json{path}") };
    let (path, inline_query) = path
        .split_once('?')
        .map_or((path.clone(), String::new()), |(path, query)| (path.to_owned(), query.to_owned()));
    let method = exchange["method"].as_str().unwrap_or("GET").to_owned();
    let mut query = vec![inline_query];
    query.push(form(&exchange["query"], memory));
    let mut request = Request { method: method.clone(), path, ..Request::default() };
    if exchange["raw_body"].is_string() || exchange["raw_body_hex"].is_string() {
        raw_body(&mut request, exchange, memory);
    } else if exchange["encoding"] == "multipart" {
        multipart(&mut request, lab, memory, exchange);
    } else if exchange["encoding"] == "json" {
        request.body = substituted(&exchange["params"], memory).to_string().into_bytes();
        request.headers.push(("content-type".into(), "application/json".into()));
    } else if matches!(method.as_str(), "POST" | "PUT") {
        request.body = form(&exchange["params"], memory).into_bytes();
        if !request.body.is_empty() {
            request.headers.push(("content-type".into(), "application/x-www-form-urlencoded".into()));
        }
    } else {
        query.push(form(&exchange["params"], memory));
    }
    query.retain(|part| !part.is_empty());
    request.query = query.join("&");
    credentials(lab, memory, exchange, &mut request);
    for (name, value) in exchange["request_headers"].as_object().into_iter().flatten() {
        let name = name.to_lowercase();
        request.headers.retain(|(known, _)| *known != name || name == "cookie");
        request.headers.push((name, filled(value.as_str().unwrap_or_default(), memory)));
    }
    request
}

/// The secret of the two tokens that are there from the beginning.
const SECRET: &str = "11111111-2222-3333-4444-555555555555";

fn credentials(lab: &Lab, memory: &Memory, exchange: &Value, request: &mut Request) {
    let caller = exchange["as"].as_str().unwrap_or_default();
    let token = match caller {
        "admin" => Some(("ichor@pve!t1", SECRET.to_owned())),
        "limited" => Some(("limited@pve!t1", SECRET.to_owned())),
        "none" | "other" => None,
        _ if caller.starts_with("root@pam") && caller.contains("ticket") => {
            let (ticket, csrf) = access::ticket(&lab.pve, lab.ground.now, "root@pam");
            request.headers.push(("cookie".into(), format!("PVEAuthCookie={}", escaped(&ticket))));
            request.headers.push(("csrfpreventiontoken".into(), csrf));
            None
        }
        id => {
            let secrets = memory.secrets.get(id).map(Vec::as_slice).unwrap_or_default();
            // A secret that was replaced is used on purpose where the recording says so.
            let old = exchange["note"].as_str().is_some_and(|note| note.contains("old secret"));
            let secret = if old { secrets.iter().rev().nth(1) } else { secrets.last() };
            Some((id, secret.cloned().unwrap_or_default()))
        }
    };
    if let Some((id, secret)) = token {
        request.headers.push(("authorization".into(), format!("PVEAPIToken={id}={secret}")));
    }
}

/// Puts values that were bound earlier into a text.
fn filled(text: &str, memory: &Memory) -> String {
    let mut text = text.to_owned();
    for (name, value) in &memory.bound {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    text
}

fn substituted(value: &Value, memory: &Memory) -> Value {
    match value {
        Value::String(text) => filled(text, memory).into(),
        Value::Array(values) => values.iter().map(|value| substituted(value, memory)).collect(),
        Value::Object(object) => object
            .iter()
            .map(|(key, value)| (key.clone(), substituted(value, memory)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn form(params: &Value, memory: &Memory) -> String {
    let mut pairs = Vec::new();
    for (key, value) in params.as_object().into_iter().flatten() {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            pairs.push(format!("{}={}", escaped(key), escaped(&filled(&text, memory))));
        }
    }
    pairs.join("&")
}

/// Percent-encodes everything but unreserved characters.
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn raw_body(request: &mut Request, exchange: &Value, memory: &Memory) {
    request.body = match exchange["raw_body"].as_str() {
        Some(text) => filled(text, memory).into_bytes(),
        None => hex(exchange["raw_body_hex"].as_str().unwrap_or_default()),
    };
    if let Some(kind) = exchange["content_type"].as_str() {
        request.headers.push(("content-type".into(), kind.into()));
    }
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |place: usize| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
    (0..text.len()).step_by(2).filter_map(byte).collect()
}

const BOUNDARY: &str = "recorded-boundary";

/// Builds an upload. Of files only size and checksum are kept, so others take their place, and their checksums
/// that of the recorded ones.
fn multipart(request: &mut Request, lab: &Lab, memory: &mut Memory, exchange: &Value) {
    let parts = exchange["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut files = Vec::new();
    for part in parts.iter().filter(|part| part["value"].is_null()) {
        let sum = part["content_sha256"].as_str().unwrap_or_default();
        let bytes = world::stand_in(lab, part["content_bytes"].as_u64().unwrap_or_default(), sum);
        let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if found != sum && !sum.is_empty() {
            memory.stand_ins.insert(found, sum.to_owned());
        }
        files.push(bytes);
    }
    let mut files = files.into_iter();
    let mut body = Vec::new();
    for part in parts {
        let name = part["name"].as_str().unwrap_or_default();
        let mut head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"");
        if let Some(filename) = part["filename"].as_str() {
            head.push_str(&format!("; filename=\"{filename}\"\r\nContent-Type: application/octet-stream"));
        }
        body.extend(format!("{head}\r\n\r\n").into_bytes());
        match part["value"].as_str() {
            Some(value) => body.extend(stood_in(memory, value).into_bytes()),
            None => body.extend(files.next().unwrap_or_default()),
        }
        body.extend(b"\r\n");
    }
    body.extend(format!("--{BOUNDARY}--\r\n").into_bytes());
    request.body = body;
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    request.headers.push(("content-type".into(), kind));
}

/// Puts the checksum of a file that stands in in the place of the recorded one.
fn stood_in(memory: &Memory, value: &str) -> String {
    let found = memory.stand_ins.iter().find(|(_, recorded)| *recorded == value);
    found.map_or_else(|| value.to_owned(), |(found, _)| found.clone())
}
