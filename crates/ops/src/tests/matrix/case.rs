//! What goes wrong in a case, and what a case is called.

use std::fmt;

use ichor_sim::{
    faults::{Calls, Fault, Kind, Server, When},
    hostility::Hostility,
    record::Call,
};

/// A run that is disturbed once, and what is done afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub ground: Ground,
    pub verb: Verb,
    pub blow: Blow,
}

/// What VMs are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    Images,
    Templates,
}

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// `up`, and again.
    Up,
    /// `up` of a cluster that has lost a control plane, and again.
    Replace,
    /// `destroy`, and again.
    Destroy,
    /// `up`, and then `destroy`.
    Abandon,
    /// `up`, again, `destroy`, and `up` with the same journal.
    Reborn,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Blow {
    /// The run dies at a record of the journal, counted from 1.
    Record { number: usize, moment: Moment },
    /// The run dies at a call that changes something.
    Call { call: Pattern, number: u32, moment: Moment },
    /// A call meets a fault of the lab.
    Fault { call: Pattern, number: u32, name: &'static str, kind: Kind },
}

/// When a run dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Before,
    /// Half of a record is on disk.
    Torn,
    After,
}

/// Calls of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern {
    pub server: Server,
    pub method: String,
    pub path: String,
}

impl Pattern {
    /// Returns the kind of a call: names, numbers and ids in its path are left out.
    pub fn of(call: &Call) -> Self {
        let mut after_nodes = false;
        let segments = call.path.split('/').map(|segment| {
            let is_name = std::mem::replace(&mut after_nodes, segment == "nodes");
            let is_id = segment.contains([':', '%'])
                || segment.len() > 30
                || (!segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()));
            if is_name || is_id { "*" } else { segment }
        });
        let path = segments.collect::<Vec<_>>().join("/");
        Self { server: call.server, method: call.method.clone(), path }
    }

    /// Whether calls of this kind change something.
    pub fn changes(&self) -> bool {
        const CHANGING: [&str; 3] = ["/ApplyConfiguration", "/Bootstrap", "/EtcdRemoveMemberByID"];
        match self.server {
            Server::Talos => CHANGING.iter().any(|method| self.path.ends_with(method)),
            _ => !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS"),
        }
    }

    /// Returns the fault that meets an occurrence of such a call.
    pub fn suffers(&self, occurrence: u32, fault: Kind) -> Fault {
        let method = Some(self.method.clone()).filter(|method| !method.is_empty());
        let on = Calls { server: self.server, method, path: self.path.clone() };
        Fault { on, occurrence, fault, seen: 0 }
    }
}

/// Returns everything that the lab can do to a call of a server.
pub fn faults(server: Server) -> Vec<(&'static str, Kind)> {
    use When::{After, Before};
    // Talos' statuses are gRPC's: INTERNAL and UNAVAILABLE.
    let (broken, away) = match server {
        Server::Talos => (13, 14),
        Server::Pve => (500, 596),
        Server::Factory | Server::Kube => (500, 503),
    };
    let status = |code, when| Kind::Status { code, reason: "something broke".into(), when };
    vec![
        ("close-before", Kind::Close(Before)),
        ("close-after", Kind::Close(After)),
        ("hang-before", Kind::Hang(Before)),
        ("hang-after", Kind::Hang(After)),
        ("broken-before", status(broken, Before)),
        ("broken-after", status(broken, After)),
        ("away-before", status(away, Before)),
        ("away-after", status(away, After)),
        ("cut", Kind::Cut { bytes: 5 }),
        ("twice", Kind::Twice),
        ("slow", Kind::Slow { millis: 20_000 }),
        ("payload", Kind::Payload("neither JSON nor protobuf".into())),
        ("task-fails", Kind::TaskFails("command failed: exit code 1".into())),
        ("lock-held", Kind::LockHeld { millis: 15_000 }),
        ("permission-lost", Kind::PermissionLost),
        ("endless", Kind::Hostile(Hostility::Endless)),
        ("headers", Kind::Hostile(Hostility::Headers)),
        ("drip", Kind::Hostile(Hostility::Drip)),
        ("redirect", Kind::Hostile(Hostility::Redirect)),
        ("garbage", Kind::Hostile(Hostility::Garbage)),
        ("nested", Kind::Hostile(Hostility::Nested)),
        ("content-type", Kind::Hostile(Hostility::ContentType)),
        ("escapes", Kind::Hostile(Hostility::Escapes)),
        ("oversized", Kind::Hostile(Hostility::Oversized)),
    ]
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Up => "up",
            Verb::Replace => "replace",
            Verb::Destroy => "destroy",
            Verb::Abandon => "abandon",
            Verb::Reborn => "reborn",
        };
        if self.ground == Ground::Templates {
            f.write_str("clones: ")?;
        }
        match &self.blow {
            Blow::Record { number, moment } => write!(f, "{verb} record {number} {moment}"),
            Blow::Call { call, number, moment } => write!(f, "{verb} dies {call} {number} {moment}"),
            Blow::Fault { call, number, name, .. } => write!(f, "{verb} fault {call} {number} {name}"),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.server, self.method, self.path)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::Torn => "torn",
            Self::After => "after",
        })
    }
}
