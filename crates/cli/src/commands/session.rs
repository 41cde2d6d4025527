//! What verbs over whole clusters share: loading them, and telling what stood in the way.

use ichor_model::{Code, Desired, Finding, Findings, World};
use ichor_ops::{Halt, HaltKind, Site};
use ichor_spec::Sources;
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::{Global, Output},
    clusters::{self, Clusters},
    exit::Exit,
    failure::Failure,
    render::{document, findings, findings_json, text},
    terminal::Terminal,
};

/// Most cluster names that a message lists.
const MAX_NAMES: usize = 12;

/// Clusters without errors, and where output goes.
pub struct Session<'a> {
    clusters: Clusters,
    output: Output,
    terminal: &'a Terminal,
}

/// How a verb goes on: with a value, or not at all.
pub enum Gate<T> {
    /// With this.
    Open(T),
    /// Everything has been said, and the run ends like this.
    Closed(Exit),
}

impl<'a> Session<'a> {
    /// Loads the clusters; errors in an inventory end the run.
    pub fn open(global: &Global, terminal: &'a Terminal) -> Result<Gate<Self>, Failure> {
        let clusters = clusters::load(global.file.as_deref(), global.cluster.as_deref(), &World::default());
        let failed = clusters.findings.has_errors();
        let mut session = Self { clusters, output: global.output, terminal };
        if failed {
            return session.close(Findings::new(), Exit::InvalidInput).map(Gate::Closed);
        }
        Ok(Gate::Open(session))
    }

    /// Does something for the one cluster there must be.
    pub fn with_one<T>(
        &mut self,
        act: impl FnOnce(Site<'_>, &mut Sources) -> Result<(T, Findings), Halt>,
    ) -> Result<Gate<T>, Failure> {
        if self.clusters.list.len() > 1 {
            let finding = choose_one(&self.clusters.resolved().collect::<Vec<_>>());
            return self.close(Findings::from_iter([finding]), Exit::InvalidInput).map(Gate::Closed);
        }
        let mut act = Some(act);
        let done = self.with_all(|site, sources| {
            act.take().map(|act| act(site, sources)).transpose().map(|done| match done {
                Some((value, findings)) => (Some(value), findings),
                None => (None, Findings::new()),
            })
        })?;
        Ok(match done {
            Gate::Closed(exit) => Gate::Closed(exit),
            Gate::Open(done) => match done.into_iter().flatten().next() {
                Some(value) => Gate::Open(value),
                None => Gate::Closed(Exit::InvalidInput),
            },
        })
    }

    /// Does something for every cluster, and gathers what it has to say. If any of them is stopped, all that
    /// stands in the way is told, and the run ends.
    pub fn with_all<T>(
        &mut self,
        mut act: impl FnMut(Site<'_>, &mut Sources) -> Result<(T, Findings), Halt>,
    ) -> Result<Gate<Vec<T>>, Failure> {
        let mut done = Vec::new();
        let mut all = Findings::new();
        let mut stopped: Option<HaltKind> = None;
        for cluster in &self.clusters.list {
            let Some(site) = cluster.site() else { continue };
            match act(site, &mut self.clusters.sources) {
                Ok((value, findings)) => {
                    done.push(value);
                    all.extend(findings);
                }
                Err(Halt { kind, findings }) => {
                    stopped = stopped.or(Some(kind));
                    all.extend(findings);
                }
            }
        }
        match stopped {
            Some(kind) => self.close(all, exit_of(kind)).map(Gate::Closed),
            None => {
                self.clusters.findings.extend(all);
                Ok(Gate::Open(done))
            }
        }
    }

    /// Returns how many clusters there are.
    pub fn count(&self) -> usize {
        self.clusters.list.len()
    }

    /// Tells all findings so far to people.
    pub fn tell(&self) {
        findings::tell(&self.clusters.sources, &self.clusters.findings, self.terminal);
    }

    /// Returns all findings so far for programs.
    pub fn findings(&self) -> Vec<Value> {
        findings_json::all(&self.clusters)
    }

    /// Ends the run with what stood in its way: for people, and for programs as `check` reports it.
    pub fn close(&mut self, findings: Findings, exit: Exit) -> Result<Exit, Failure> {
        self.clusters.findings.extend(findings);
        let whole = std::mem::take(&mut self.clusters.findings);
        self.clusters.findings = whole.sorted();
        self.tell();
        match self.output {
            Output::Table => {}
            Output::Json => self.terminal.data(document::json(&findings_json::report(&self.clusters)))?,
            Output::Yaml => self.terminal.data(document::yaml(&findings_json::report(&self.clusters)))?,
        }
        Ok(exit)
    }

    /// Shows a result: as text, or as a document.
    pub fn show(&self, text: impl FnOnce() -> String, value: &impl Serialize) -> Result<(), Failure> {
        match self.output {
            Output::Table => self.terminal.show(&text())?,
            Output::Json => self.terminal.data(document::json(value))?,
            Output::Yaml => self.terminal.data(document::yaml(value))?,
        }
        Ok(())
    }
}

/// Returns how a run ends that was stopped.
pub const fn exit_of(kind: HaltKind) -> Exit {
    match kind {
        HaltKind::Invalid => Exit::InvalidInput,
        HaltKind::Refused => Exit::Refused,
        HaltKind::Failed => Exit::Failed,
    }
}

fn choose_one(clusters: &[&Desired]) -> Finding {
    let names: Vec<String> = clusters.iter().map(|desired| format!("`{}`", desired.cluster.name)).collect();
    Finding::error(Code::SEVERAL_CLUSTERS, None, "one cluster has to be chosen")
        .because(format!("there are {}", text::list_some(&names, MAX_NAMES)))
        .remedy("choose one with `--cluster NAME`")
}
