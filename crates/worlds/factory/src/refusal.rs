//! What a refusal of the factory means.

use std::{fmt, time::Duration};

use ichor_port::{Response, clean};

/// Most bytes of a text that are looked at.
const MAX_BYTES: usize = 16 * 1024;
/// Longest wait that a server can ask for.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// What the factory says, cleaned of control characters; empty after a HEAD.
    pub text: String,
    /// Where it points instead.
    pub location: Option<String>,
    /// After which time it wants to be asked again.
    pub retry_after: Option<Duration>,
    /// What it means.
    pub kind: Kind,
}

/// What a refusal means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The schematic or the release is not known.
    Missing,
    /// The schematic, the file name, or an extension is wrong.
    Invalid,
    /// It is for paying customers.
    Unpaid,
    /// The factory wants to know who asks.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// Too much is asked of it: the same call may succeed later.
    Busy,
    /// Another server has it.
    Elsewhere,
    /// The factory, or something before it, could not complete the call.
    Broken,
    /// Something else.
    Other,
}

impl Refusal {
    /// Reads an answer that is no success. The factory writes plain text; what stands before it may write pages.
    pub fn read(response: &Response) -> Self {
        let body = &response.body[..response.body.len().min(MAX_BYTES)];
        let is_page = header(response, "content-type").is_some_and(|kind| kind.starts_with("text/html"));
        let text = if is_page || body.is_empty() {
            clean(&response.reason)
        } else {
            clean(&String::from_utf8_lossy(body))
        };
        Self {
            status: response.status,
            text,
            location: header(response, "location").map(clean),
            retry_after: retry_after(response),
            kind: kind(response.status),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the image factory answered {}: {}", self.status, self.text)?;
        match &self.location {
            Some(location) => write!(f, " (it points to {location})"),
            None => Ok(()),
        }
    }
}

const fn kind(status: u16) -> Kind {
    match status {
        300..=399 => Kind::Elsewhere,
        400 | 405 | 413 | 414 | 415 | 422 => Kind::Invalid,
        401 => Kind::Unauthenticated,
        402 => Kind::Unpaid,
        403 => Kind::Forbidden,
        404 | 410 => Kind::Missing,
        429 | 503 => Kind::Busy,
        500..=599 => Kind::Broken,
        _ => Kind::Other,
    }
}

/// Reads `Retry-After` in seconds. A date is passed over: whose clock it is by, is not known.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds: u64 = header(response, "retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// Returns a header of an answer.
pub fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, headers: &[(&str, &str)], body: &str) -> Refusal {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Refusal::read(&Response { status, reason: "Reason".into(), headers, body: body.into() })
    }

    #[test]
    fn the_status_tells_what_it_means() {
        for (status, expected) in [
            (400, Kind::Invalid),
            (402, Kind::Unpaid),
            (404, Kind::Missing),
            (429, Kind::Busy),
            (503, Kind::Busy),
            (500, Kind::Broken),
            (302, Kind::Elsewhere),
            (418, Kind::Other),
        ] {
            assert_eq!(refusal(status, &[], "").kind, expected, "{status}");
        }
    }

    #[test]
    fn a_wait_is_bounded() {
        let wait = |text: &str| refusal(429, &[("retry-after", text)], "").retry_after;
        assert_eq!(wait("30"), Some(Duration::from_secs(30)));
        assert_eq!(wait("99999999999"), Some(LONGEST_WAIT));
        assert_eq!(wait("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(wait("-1"), None);
    }

    #[test]
    fn what_it_says_is_shown_in_one_line() {
        let said = refusal(404, &[], "schematic ID \"x\" not found\n");
        assert_eq!(said.to_string(), "the image factory answered 404: schematic ID \"x\" not found");
        let page = refusal(502, &[("content-type", "text/html; charset=utf-8")], "<html>...");
        assert_eq!(page.text, "Reason");
        let elsewhere = refusal(302, &[("location", "https://cdn.example/x\u{1b}")], "");
        assert!(elsewhere.to_string().ends_with("(it points to https://cdn.example/x)"), "{elsewhere}");
        assert!(refusal(500, &[], &"x".repeat(1 << 20)).text.len() <= 2_000);
    }
}
