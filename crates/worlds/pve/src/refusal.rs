//! What a refusal of Proxmox means.

use std::{collections::BTreeMap, fmt};

use ichor_port::Response;
pub use ichor_port::clean;
use serde_json::Value;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// What Proxmox says, cleaned of control characters.
    pub text: String,
    /// What it says about single parameters.
    pub parameters: BTreeMap<String, String>,
    /// What it means.
    pub kind: Kind,
}

/// What a refusal means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was asked for is not there.
    Missing,
    /// Something is there already.
    Exists,
    /// Somebody else is at it: the same call may succeed later.
    Busy,
    /// The caller is not known, or not any more.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// A parameter is wrong.
    Invalid,
    /// The front server could not complete the call: whether it had an effect is not known.
    Broken,
    /// Something else.
    Other,
}

impl Refusal {
    /// Reads an answer that is no success. Older releases say what is wrong in the reason phrase alone.
    pub fn read(response: &Response) -> Self {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let message = body["message"].as_str().map(str::trim).filter(|message| !message.is_empty());
        let text = clean(message.unwrap_or(&response.reason));
        let parameters: BTreeMap<String, String> = body["errors"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (clean(key), clean(value.as_str().unwrap_or_default())))
            .collect();
        let kind = kind(response.status, &text, &parameters);
        Self { status: response.status, text, parameters, kind }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxmox answered {}: {}", self.status, self.text)?;
        for (parameter, text) in &self.parameters {
            write!(f, "; `{parameter}`: {text}")?;
        }
        Ok(())
    }
}

/// Says what a text means with which a task failed: it has no status.
pub fn kind_of(text: &str) -> Kind {
    kind(500, text, &BTreeMap::new())
}

fn kind(status: u16, text: &str, parameters: &BTreeMap<String, String>) -> Kind {
    match status {
        401 => return Kind::Unauthenticated,
        403 => return Kind::Forbidden,
        595..=599 => return Kind::Broken,
        _ => {}
    }
    let whole =
        parameters.values().fold(text.to_lowercase(), |whole, text| whole + "\n" + &text.to_lowercase());
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| whole.contains(phrase));
    if says(&BUSY) {
        Kind::Busy
    } else if says(&EXISTS) {
        Kind::Exists
    } else if says(&MISSING) {
        Kind::Missing
    } else if status == 400 {
        Kind::Invalid
    } else {
        Kind::Other
    }
}

const BUSY: [&str; 7] = [
    "got timeout",
    "got lock request timeout",
    "is locked (",
    "no quorum!",
    "cluster not ready - no quorum?",
    "start worker failed",
    "starting worker failed",
];
const EXISTS: [&str; 6] = [
    "already exists",
    "already defined",
    "already used",
    "already running",
    "already a pool member",
    "belongs already to pool",
];
const MISSING: [&str; 4] =
    ["does not exist", "no such ", "unable to find configuration file for vm", "not found"];

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, reason: &str, body: &str) -> Refusal {
        let (reason, body) = (reason.to_owned(), body.as_bytes().to_vec());
        Refusal::read(&Response { status, reason, body, ..Response::default() })
    }

    #[test]
    fn texts_tell_what_a_refusal_means() {
        for (status, text, expected) in [
            (500, "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist", Kind::Missing),
            (500, "unable to create VM 401 - VM 401 already exists on node 'pve1'", Kind::Exists),
            (500, "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout", Kind::Busy),
            (500, "VM is locked (clone)", Kind::Busy),
            (596, "Connection timed out", Kind::Broken),
            (401, "Authentication failed!", Kind::Unauthenticated),
            (403, "Permission check failed (/vms/401, VM.PowerMgmt)", Kind::Forbidden),
            (500, "shrinking disks is not supported", Kind::Other),
        ] {
            assert_eq!(refusal(status, text, "").kind, expected, "{text}");
        }
    }

    #[test]
    fn the_text_is_in_the_body_or_in_the_reason() {
        let new = refusal(
            500,
            "storage 'x' does not exist",
            r#"{"data":null,"message":"storage 'x' does not exist\n"}"#,
        );
        let old = refusal(500, "storage 'x' does not exist", r#"{"data":null}"#);
        assert_eq!(new, old);
    }

    #[test]
    fn parameters_are_named() {
        let body = r#"{"data":null,"message":"Parameter verification failed.\n","errors":{"vmid":"VM 401 already exists"}}"#;
        let refusal = refusal(400, "Parameter verification failed.", body);
        assert_eq!(refusal.kind, Kind::Exists);
        assert_eq!(
            refusal.to_string(),
            "Proxmox answered 400: Parameter verification failed.; `vmid`: VM 401 already exists"
        );
    }

    #[test]
    fn remote_text_cannot_play_tricks() {
        let tricks = "a\u{1b}[31m b\r\nc\u{202e}d";
        let body = serde_json::json!({"message": tricks, "errors": {tricks: tricks}}).to_string();
        let refusal = refusal(400, "", &body);
        assert_eq!(refusal.to_string(), "Proxmox answered 400: a [31m b c d; `a [31m b c d`: a [31m b c d");
    }
}
