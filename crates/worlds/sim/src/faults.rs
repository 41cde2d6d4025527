//! A plan of what goes wrong: which call, which occurrence of it, and how.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{hostility::Hostility, incident::Incident};

/// The statuses that an HTTP answer can have.
const ANSWERS: RangeInclusive<u16> = 200..=599;
/// The last of gRPC's statuses, for a caller whom nobody knows.
const LAST_OF_GRPC: u16 = 16;

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
    /// The task that the call starts fails with this text before it has done anything. At a server without tasks
    /// the call itself fails with it.
    TaskFails(String),
    /// Somebody else holds the locks that the call wants, and those that its task wants. A server without such locks
    /// answers late.
    LockHeld {
        /// For how long.
        millis: u64,
    },
    /// The caller has lost every right.
    PermissionLost,
    /// The call takes effect, and the answer is one that is meant to harm the client.
    Hostile(Hostility),
    /// Something befalls the datacentre with the call; the call itself goes on, and may meet another fault.
    Befall {
        /// What.
        event: Incident,
        /// Before or after the call's effect.
        when: When,
    },
}

/// What a call meets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met {
    /// What happens to it.
    pub kind: Option<Kind>,
    /// What befalls the datacentre before it has its effect.
    pub before: Vec<Incident>,
    /// What befalls the datacentre when it is answered.
    pub after: Vec<Incident>,
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
    /// Counts a call, and returns what happens to it: the first fault that fits, and everything that befalls the
    /// datacentre.
    pub fn meet(&mut self, server: Server, method: &str, path: &str) -> Met {
        let mut met = Met::default();
        for fault in &mut self.0 {
            if !fault.on.matches(server, method, path) {
                continue;
            }
            fault.seen = fault.seen.saturating_add(1);
            if fault.occurrence != 0 && fault.occurrence != fault.seen {
                continue;
            }
            match &fault.fault {
                Kind::Befall { event, when: When::Before } => met.before.push(event.clone()),
                Kind::Befall { event, when: When::After } => met.after.push(event.clone()),
                kind if met.kind.is_none() => met.kind = Some(kind.clone().at(server)),
                _ => {}
            }
        }
        met
    }

    /// Says what is wrong with a plan: what can never be answered, and calls that never come.
    pub fn mistakes(&self) -> Vec<String> {
        let of = |(number, fault): (usize, &Fault)| {
            let place = format!("fault {}", number + 1);
            fault.mistakes().into_iter().map(move |what| format!("{place}: {what}"))
        };
        self.0.iter().enumerate().flat_map(of).collect()
    }

    /// Returns what befalls the datacentre, with the number of the fault.
    pub fn incidents(&self) -> impl Iterator<Item = (usize, &Incident)> {
        self.0.iter().enumerate().filter_map(|(number, fault)| match &fault.fault {
            Kind::Befall { event, .. } => Some((number + 1, event)),
            _ => None,
        })
    }
}

impl Fault {
    fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        if !self.on.path.starts_with(['/', '*']) {
            found.push(format!("no call has the path `{}`: paths begin with `/`, or with `*`", self.on.path));
        }
        if self.on.server == Server::Talos && self.on.method.is_some() {
            found.push("calls to Talos have no `method`".to_owned());
        }
        match (&self.fault, self.on.server) {
            (Kind::Status { code, .. }, Server::Talos) if *code > LAST_OF_GRPC => {
                found.push(format!("{code} is no status of gRPC: these are 0 to {LAST_OF_GRPC}"));
            }
            (Kind::Status { code, .. }, Server::Pve | Server::Factory | Server::Kube)
                if !ANSWERS.contains(code) =>
            {
                // Below 200 a server says only that the answer is still to come.
                found.push(format!(
                    "{code} is no status of an HTTP answer: these are {} to {}",
                    ANSWERS.start(),
                    ANSWERS.end()
                ));
            }
            _ => {}
        }
        found
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
    /// Returns what a fault means at a server.
    fn at(self, server: Server) -> Self {
        /// gRPC's numbers for a broken server and for a caller who may not.
        const INTERNAL: u16 = 13;
        const PERMISSION_DENIED: u16 = 7;
        let before = |code, reason: &str| Self::Status { code, reason: reason.into(), when: When::Before };
        match (self, server) {
            (Self::TaskFails(text), Server::Talos) => before(INTERNAL, &text),
            (Self::TaskFails(text), Server::Factory | Server::Kube) => before(500, &text),
            (Self::LockHeld { millis }, Server::Talos | Server::Factory | Server::Kube) => {
                Self::Slow { millis }
            }
            (Self::PermissionLost, Server::Talos) => before(PERMISSION_DENIED, "not authorized"),
            (Self::PermissionLost, Server::Factory) => before(403, "Forbidden"),
            (kind, _) => kind,
        }
    }

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
        let mut meet = || plan.meet(Server::Pve, "POST", "/nodes/pve1/qemu").kind.is_some();
        assert_eq!([meet(), meet(), meet()], [false, true, false]);
        assert_eq!(plan.meet(Server::Pve, "GET", "/nodes/pve1/qemu"), Met::default());
    }

    #[test]
    fn what_no_server_can_answer_is_a_mistake() {
        let plan = |server: &str, code: u16| -> Vec<String> {
            let text = format!(
                r#"[{{"server": "{server}", "path": "*", "fault": "twice"}},
                    {{"server": "{server}", "path": "*", "fault": {{"status": {{"code": {code}, "when": "after"}}}}}}]"#
            );
            serde_json::from_str::<FaultPlan>(&text).expect("plan").mistakes()
        };
        for (server, good, bad) in [("pve", [200, 599], [199, 600]), ("talos", [0, 16], [17, 500])] {
            assert_eq!(good.map(|code| plan(server, code)), [const { Vec::<String>::new() }; 2], "{server}");
            for code in bad {
                let found = plan(server, code);
                assert_eq!(found.len(), 1, "{server} {code}");
                assert!(found[0].starts_with(&format!("fault 2: {code} is no status of")), "{found:?}");
            }
        }
        let never = r#"[{"server": "talos", "method": "POST", "path": "Bootstrap", "fault": "twice"}]"#;
        assert_eq!(serde_json::from_str::<FaultPlan>(never).expect("plan").mistakes().len(), 2);
    }

    #[test]
    fn incidents_come_with_a_fault_of_the_same_call() {
        let text = r#"[
            {"server": "kube", "path": "*", "fault": {"befall": {"event": {"host_down": {"host": "a"}}, "when": "before"}}},
            {"server": "kube", "path": "*", "fault": "twice"},
            {"server": "kube", "path": "*", "fault": {"hostile": "endless"}},
            {"server": "kube", "path": "*", "fault": {"befall": {"event": "certificate_swapped", "when": "after"}}}]"#;
        let mut plan: FaultPlan = serde_json::from_str(text).expect("plan");
        let met = plan.meet(Server::Kube, "GET", "/api");
        assert_eq!(met.before, [Incident::HostDown { host: "a".into() }]);
        assert_eq!((met.kind, met.after), (Some(Kind::Twice), vec![Incident::CertificateSwapped]));
    }
}
