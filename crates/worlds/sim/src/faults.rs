//! A plan of what goes wrong: which call, which occurrence of it, and how.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What will go wrong, in the order in which it is looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FaultPlan(pub Vec<Fault>);

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Fault {
    /// Which calls.
    #[serde(flatten)]
    pub on: Calls,
    /// Which of these calls: 1 is the first, 0 is every one.
    #[serde(default = "first")]
    pub occurrence: u32,
    /// What happens to it.
    pub fault: Kind,
    /// How many of these calls there were so far.
    #[serde(default)]
    pub seen: u32,
}

const fn first() -> u32 {
    1
}

/// A description of calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Calls {
    /// At which server.
    pub server: Server,
    /// The HTTP method; absent: any. Talos' calls have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path, where `*` stands for any text, such as `/nodes/*/qemu`.
    pub path: String,
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// The Proxmox API; paths below `/api2/json`.
    Pve,
    /// The Image Factory.
    Factory,
    /// The Talos API; paths are methods such as `/machine.MachineService/Bootstrap`.
    Talos,
    /// The Kubernetes API.
    Kube,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The connection is closed without an answer.
    Close(When),
    /// No answer ever comes.
    Hang(When),
    /// Another status than the real one: HTTP's, or gRPC's for Talos.
    Status {
        /// Its number.
        code: u16,
        /// Its words.
        #[serde(default)]
        reason: String,
        /// Before or after the effect.
        when: When,
    },
    /// The body breaks off.
    Cut {
        /// After how many bytes.
        bytes: usize,
    },
    /// The call takes effect twice, as if a proxy had sent it again.
    Twice,
    /// The answer comes late.
    Slow {
        /// By how much.
        millis: u64,
    },
    /// The body is another one.
    Payload(String),
    /// The task that the call starts fails with this text.
    TaskFails(String),
    /// Somebody else holds the locks that the call wants.
    LockHeld {
        /// For how long.
        millis: u64,
    },
    /// The caller has lost every right.
    PermissionLost,
}

/// Whether a call has its effect before it goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Nothing happened.
    Before,
    /// It happened, and the caller does not know.
    After,
}

impl FaultPlan {
    /// Counts a call, and returns what happens to it.
    pub fn meet(&mut self, server: Server, method: &str, path: &str) -> Option<Kind> {
        let mut met = None;
        for fault in &mut self.0 {
            if !fault.on.matches(server, method, path) {
                continue;
            }
            fault.seen = fault.seen.saturating_add(1);
            if met.is_none() && (fault.occurrence == 0 || fault.occurrence == fault.seen) {
                met = Some(fault.fault.clone());
            }
        }
        met
    }
}

impl Calls {
    fn matches(&self, server: Server, method: &str, path: &str) -> bool {
        self.server == server
            && self.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && matches(&self.path, path)
    }
}

impl Kind {
    /// Returns by how much an answer is late.
    pub const fn delay(&self) -> Duration {
        match self {
            Self::Slow { millis } => Duration::from_millis(*millis),
            _ => Duration::ZERO,
        }
    }
}

/// Whether a text matches a pattern with stars: its parts must follow each other, the first at the beginning
/// and the last at the end.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("/nodes/*/qemu", "/nodes/pve1/qemu", true),
            ("/nodes/*/qemu", "/nodes/pve1/qemu/100", false),
            ("/nodes/*/qemu/*/status/start", "/nodes/a/qemu/7/status/start", true),
            ("*", "", true),
            ("/version", "/version", true),
            ("/version", "/versions", false),
            ("*/config", "/nodes/a/qemu/7/config", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_fault_meets_its_occurrence_only() {
        let text = r#"[{"server": "pve", "method": "POST", "path": "/nodes/*/qemu", "occurrence": 2,
            "fault": {"status": {"code": 596, "when": "after"}}}]"#;
        let mut plan: FaultPlan = serde_json::from_str(text).expect("plan");
        let mut meet = || plan.meet(Server::Pve, "POST", "/nodes/pve1/qemu").is_some();
        assert_eq!([meet(), meet(), meet()], [false, true, false]);
        assert_eq!(plan.meet(Server::Pve, "GET", "/nodes/pve1/qemu"), None);
    }
}
