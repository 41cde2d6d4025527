//! `/nodes/{host}/tasks`.

use ichor_model::{HostName, VmId};
use ichor_port::Method;
use serde::Deserialize;

pub use crate::task::TaskStatus;
use crate::{Call, Upid};

/// Asks how a task stands, on the host that it names.
pub fn task_status(upid: &Upid) -> Call<TaskStatus> {
    Call::new(Method::Get, &["nodes", upid.host(), "tasks", upid.as_str(), "status"])
}

/// A line of a task's log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LogLine {
    /// Its number.
    pub n: u64,
    /// Its text.
    #[serde(default)]
    pub t: String,
}

/// Reads a piece of a task's log. Without a limit Proxmox gives 50 lines, and the error is on the last.
pub fn task_log(upid: &Upid, start: u64, limit: u64) -> Call<Vec<LogLine>> {
    Call::new(Method::Get, &["nodes", upid.host(), "tasks", upid.as_str(), "log"])
        .with("start", start)
        .with("limit", limit)
}

/// Breaks a task off.
pub fn stop_task(upid: &Upid) -> Call<()> {
    Call::new(Method::Delete, &["nodes", upid.host(), "tasks", upid.as_str()])
}

/// A task in a host's list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskRow {
    /// Its name.
    pub upid: Upid,
    /// What it does.
    #[serde(rename = "type")]
    pub kind: String,
    /// How it ended; absent or `RUNNING` while it runs.
    #[serde(default)]
    pub status: Option<String>,
}

impl TaskRow {
    /// Whether it still runs. The list may say so for a few seconds too long; [`task_status`] does not.
    pub fn is_running(&self) -> bool {
        self.status.as_deref().is_none_or(|status| status == "RUNNING")
    }
}

/// Lists the tasks about a VM, running and ended, newest first.
pub fn tasks_of(host: &HostName, vmid: VmId) -> Call<Vec<TaskRow>> {
    Call::new(Method::Get, &["nodes", host.as_str(), "tasks"]).with("vmid", vmid).with("source", "all")
}

/// Lists the tasks that run on a host. One that another task started may be listed for seconds after its end.
pub fn running_tasks(host: &HostName) -> Call<Vec<TaskRow>> {
    Call::new(Method::Get, &["nodes", host.as_str(), "tasks"]).with("source", "active").with("limit", 500)
}

/// A task in the list of all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListedTask {
    /// Its name.
    pub upid: String,
    /// How it ended; absent while it runs.
    #[serde(default)]
    pub status: Option<String>,
}

/// Lists the tasks of all hosts: of each all that run, and some that ended. Who has no `Sys.Audit` on `/` sees none of
/// a token's.
pub fn all_tasks() -> Call<Vec<ListedTask>> {
    Call::new(Method::Get, &["cluster", "tasks"])
}
