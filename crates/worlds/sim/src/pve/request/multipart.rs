//! Uploads: `multipart/form-data`.

use serde_json::Value;

/// A file that was uploaded. The real server writes it to a spool file on the host that was called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upload {
    /// The name that the client gave it.
    pub filename: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Finds the boundary in a content type.
pub fn boundary(content_type: &str) -> Option<String> {
    let part = content_type.split(';').map(str::trim).find_map(|part| part.strip_prefix("boundary="))?;
    Some(part.trim_matches('"').to_owned())
}

/// Reads the parts up to the file: what comes after it is not looked at, which is why its place matters.
pub fn parse(body: &[u8], boundary: &str) -> (Vec<(String, Value)>, Option<Upload>) {
    let mut params = Vec::new();
    let mark = format!("--{boundary}").into_bytes();
    let mut rest = body;
    while let Some(start) = find(rest, &mark) {
        let after = &rest[start + mark.len()..];
        if after.starts_with(b"--") {
            break;
        }
        let Some(head_end) = find(after, b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(&after[..head_end]).into_owned();
        let content = &after[head_end + 4..];
        let end_mark = [b"\r\n", mark.as_slice()].concat();
        let end = find(content, &end_mark).unwrap_or(content.len());
        let bytes = &content[..end];
        let name = attribute(&head, "name").unwrap_or_default();
        if let Some(filename) = attribute(&head, "filename").filter(|_| name == "filename") {
            return (params, Some(Upload { filename, bytes: bytes.to_vec() }));
        }
        params.push((name, Value::String(String::from_utf8_lossy(bytes).into_owned())));
        rest = &content[end..];
    }
    (params, None)
}

/// Finds an attribute of the header `Content-Disposition`.
fn attribute(head: &str, name: &str) -> Option<String> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
    let mark = format!("{name}=");
    let part = line.split(';').map(str::trim).find_map(|part| part.strip_prefix(&mark))?;
    Some(part.trim_matches('"').to_owned())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
