//! Tasks of Proxmox.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Upid {
    text: String,
    host: usize,
}

/// A text that is not the name of a task.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not the name of a task")]
pub struct NotAUpid(String);

impl Upid {
    /// Returns the host that the task runs on, and that must be asked about it.
    pub fn host(&self) -> &str {
        &self.text[5..self.host]
    }

    /// Returns what the task does, such as `qmcreate`.
    pub fn kind(&self) -> &str {
        self.part(5)
    }

    /// Returns what the task is about: a VMID, a file name, or nothing. A clone's task is about its source.
    pub fn about(&self) -> &str {
        self.part(6)
    }

    /// Returns who began the task: a user, or a user's token.
    pub fn user(&self) -> &str {
        self.part(7)
    }

    fn part(&self, number: usize) -> &str {
        self.text.split(':').nth(number).unwrap_or_default()
    }

    /// Returns the whole name.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Upid {
    type Err = NotAUpid;

    fn from_str(text: &str) -> Result<Self, NotAUpid> {
        let parts: Vec<&str> = text.split(':').collect();
        let hex = |text: &str, lengths: &[usize]| {
            lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let plain = |text: &str| !text.contains(|c: char| c.is_whitespace() || c == '/' || c.is_control());
        let fits = matches!(parts.as_slice(), ["UPID", host, pid, start, time, kind, id, user, ""]
            if !host.is_empty() && !kind.is_empty() && !user.is_empty()
                && [host, kind, id, user].into_iter().all(|part| plain(part))
                && hex(pid, &[8]) && hex(start, &[8, 9]) && hex(time, &[8]));
        if !fits {
            return Err(NotAUpid(ichor_port::clean(text)));
        }
        Ok(Self { text: text.to_owned(), host: 5 + parts[1].len() })
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl From<Upid> for String {
    fn from(upid: Upid) -> Self {
        upid.text
    }
}

impl<'de> Deserialize<'de> for Upid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskStatus {
    status: String,
    #[serde(default)]
    exitstatus: Option<String>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Well.
    Good,
    /// Well, with this many warnings in its log.
    Warnings(u32),
    /// Badly, in Proxmox's words.
    Bad(String),
    /// Its process vanished: what it did is not known.
    Vanished,
}

impl TaskStatus {
    /// Reads how a task stands from a list, which says how it ended, or nothing while it runs.
    pub fn listed(status: Option<String>) -> Self {
        match status.filter(|status| status != "RUNNING") {
            Some(exit) => Self { status: "stopped".into(), exitstatus: Some(exit) },
            None => Self { status: "running".into(), exitstatus: None },
        }
    }

    /// Returns how the task ended; nothing while it runs.
    pub fn exit(&self) -> Option<Exit> {
        if self.status != "stopped" {
            return None;
        }
        let text = self.exitstatus.as_deref().unwrap_or_default();
        Some(match text {
            "OK" => Exit::Good,
            "" | "unexpected status" => Exit::Vanished,
            _ if text.starts_with("unable to get last line from task log") => Exit::Vanished,
            _ => match text.strip_prefix("WARNINGS: ").and_then(|count| count.parse().ok()) {
                Some(count) => Exit::Warnings(count),
                None => Exit::Bad(ichor_port::clean(text)),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_names_its_host() {
        let upid: Upid =
            "UPID:pve1:0000A1B2:00C3D4E5:6912AB34:qmcreate:401:ichor@pve!t1:".parse().expect("upid");
        assert_eq!(upid.host(), "pve1");
        assert_eq!((upid.kind(), upid.about(), upid.user()), ("qmcreate", "401", "ichor@pve!t1"));
        for broken in ["", "UPID:", "UPID:p:0:0:0:a:b:c:", "UPID:a/b:0000A1B2:00C3D4E5:6912AB34:q:1:u:"] {
            assert!(broken.parse::<Upid>().is_err(), "{broken}");
        }
    }

    #[test]
    fn warnings_are_a_success_and_a_vanished_worker_is_not_a_failure() {
        let exit = |text: &str| {
            TaskStatus { status: "stopped".into(), exitstatus: Some(text.into()) }.exit().expect("ended")
        };
        assert_eq!(exit("OK"), Exit::Good);
        assert_eq!(exit("WARNINGS: 2"), Exit::Warnings(2));
        assert_eq!(exit("unexpected status"), Exit::Vanished);
        assert_eq!(exit("VM is locked (clone)"), Exit::Bad("VM is locked (clone)".into()));
        assert_eq!(TaskStatus { status: "running".into(), exitstatus: None }.exit(), None);
        let listed = |text: Option<&str>| TaskStatus::listed(text.map(str::to_owned)).exit();
        assert_eq!(
            (listed(None), listed(Some("RUNNING")), listed(Some("OK"))),
            (None, None, Some(Exit::Good))
        );
    }
}
