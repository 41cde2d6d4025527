//! What is never shown, because it is or may be a secret: whole lines of files, and parts of messages.

use std::{borrow::Cow, ops::Range};

use ichor_model::Span;

/// Parts of keys that hold secrets, in lower case.
const SECRET_KEYS: [&str; 8] =
    ["token", "passw", "secret", "private_key", "credential", "authkey", "auth_key", "api_key"];
/// Text that only ever begins a secret, in lower case.
const SECRET_MARKS: [&str; 2] = ["-----begin", "age-secret-key-"];

/// Whether the line where a span begins seems to hold a secret, whether or not a finding says so.
pub fn seems_private(bytes: &[u8], span: Span) -> bool {
    looks_secret(line_at(bytes, span))
}

/// Returns the line where a span begins, as far as an excerpt of it and its keys can reach.
fn line_at(bytes: &[u8], span: Span) -> &[u8] {
    const REACH: usize = 8 * 1024;
    let at = (span.start as usize).min(bytes.len());
    let (before, after) = (&bytes[at.saturating_sub(REACH)..at], &bytes[at..bytes.len().min(at + REACH)]);
    let back = before.iter().rev().position(|b| *b == b'\n').unwrap_or(before.len());
    let ahead = after.iter().position(|b| *b == b'\n').unwrap_or(after.len());
    &bytes[at - back..at + ahead]
}

/// Whether a line seems to hold a secret itself: in a key that is mistyped, or in a file that is
/// not valid YAML, nothing else tells.
fn looks_secret(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line).to_lowercase();
    SECRET_MARKS.iter().any(|mark| line.contains(mark))
        || SECRET_KEYS.iter().any(|key| line.match_indices(key).any(|(at, _)| is_given_a_value(&line[at..])))
        || find_secret(&line).is_some()
}

/// Replaces what has the shape of a secret in a message. Messages are made not to repeat secrets;
/// this is for the value that stands where nobody expects one.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    while let Some(secret) = find_secret(&shown) {
        shown.to_mut().replace_range(secret, "…");
    }
    shown
}

/// Finds the secret of an API token or the password in a URL.
fn find_secret(text: &str) -> Option<Range<usize>> {
    find_token_secret(text).or_else(|| find_url_password(text))
}

/// The secret of a Proxmox API token is a uuid after `=`.
fn find_token_secret(text: &str) -> Option<Range<usize>> {
    text.match_indices('=').find_map(|(at, _)| {
        let is_part = |b: &u8| b.is_ascii_hexdigit() || *b == b'-';
        let length = text.bytes().skip(at + 1).take_while(is_part).count();
        (length >= 32).then_some(at + 1..at + 1 + length)
    })
}

/// Passwords of URLs stand between the user and `@`: `https://user:password@host`.
fn find_url_password(text: &str) -> Option<Range<usize>> {
    text.match_indices("://").find_map(|(at, scheme_end)| {
        let start = at + scheme_end.len();
        let rest = &text[start..];
        let authority = &rest[..rest.find(['/', ' ', '`', '\'', '"']).unwrap_or(rest.len())];
        let password = authority.find(':')? + 1..authority.rfind('@')?;
        let hidden = authority.get(password.clone()).is_some_and(|password| !["", "…"].contains(&password));
        hidden.then_some(start + password.start..start + password.end)
    })
}

/// Whether text that begins in the middle of a key goes on with a plain value. A reference is a map
/// (`token: {env: NAME}`), and names no secret.
fn is_given_a_value(text: &str) -> bool {
    let key_end =
        text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(text.len());
    let rest = text[key_end..].trim_start_matches(['"', '\'', ' ']);
    rest.strip_prefix(':')
        .map(str::trim_start)
        .is_some_and(|value| !value.is_empty() && !value.starts_with(['{', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_secrets_are_recognised() {
        for line in [
            "  token: root@pam!x=abc",
            "  tokens: abc",
            "  api_token_v2: abc",
            "  \"Password\" : hunter2",
            "  pasword: x, password: y",
            "{proxmox: {token: abc}, x: 1}",
            "  tokn: root@pam!x=01234567-89ab-cdef-0123-456789abcdef",
            "-----BEGIN RSA PRIVATE KEY-----",
            "  key: AGE-SECRET-KEY-1XYZ",
            "  TS_AUTHKEY: tskey-auth-1",
            "  jump: ssh://root:hunter2@pve1",
        ] {
            assert!(looks_secret(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "  token: {env: ICHOR_PVE_TOKEN}",
            "  token:",
            "  token: # below",
            "secrets: {age: [age1xyz]}",
            "  file: secrets.sops.yaml",
            "  memory: 8GiB",
            "  endpoint: https://pve1.lab.example:8006/x@y",
            "  jump: ssh://root@pve1.lab.example:22",
            "  kernel_args: [console=ttyS0, net.ifnames=0]",
        ] {
            assert!(!looks_secret(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn secrets_are_taken_out_of_messages() {
        for (message, shown) in [
            (
                "`root@pam!x=01234567-89ab-cdef-0123-456789abcdef` has no scheme",
                "`root@pam!x=…` has no scheme",
            ),
            ("`https://root:p@ss@pve1:8006` and ssh://a:b@c", "`https://root:…@pve1:8006` and ssh://a:…@c"),
            (
                "`https://pve1:8006` is not `https://[fd00::1]:8006`",
                "`https://pve1:8006` is not `https://[fd00::1]:8006`",
            ),
            ("console=ttyS0 is fine, and so is a=b", "console=ttyS0 is fine, and so is a=b"),
        ] {
            assert_eq!(redact(message), shown);
        }
    }
}
