//! What verbs over whole clusters share: loading them, and telling what stood in the way.

use std::{io, path::Path};

use ichor_model::{Code, Desired, Finding, Findings, World};
use ichor_ops::{Halt, HaltKind, Site};
use ichor_spec::Sources;
use serde_json::Value;

use crate::{
    args::{Global, Output},
    clusters::{self, Clusters},
    exit::Exit,
    failure::Failure,
    keeping,
    render::{
        document,
        envelope::envelope,
        findings::{self, Changes},
        findings_json,
        given::{self, Given},
        text,
    },
    terminal::Terminal,
    world::with_site_in,
};

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
        Self::open_in(global, terminal, &World::default())
    }

    /// Loads the clusters for a verb that uses what is kept about them: what is in a bucket is fetched first.
    pub fn open_kept(global: &Global, terminal: &'a Terminal) -> Result<Gate<Self>, Failure> {
        let mut session = match Self::open(global, terminal)? {
            Gate::Open(session) => session,
            closed @ Gate::Closed(_) => return Ok(closed),
        };
        if !session.clusters.resolved().any(|desired| desired.store.contains("://")) {
            return Ok(Gate::Open(session));
        }
        let place = global.world.place();
        let fetched = session.with_all(|site, _| {
            with_site_in(place, site, |site| keeping::refresh(site, terminal))?;
            Ok(((), Findings::new()))
        })?;
        match fetched {
            Gate::Closed(exit) => Ok(Gate::Closed(exit)),
            // What was fetched says which contract a cluster was made with.
            Gate::Open(_) => Self::open(global, terminal),
        }
    }

    /// Does the same, unless other secrets are given than those that are kept.
    pub fn open_for(
        given: Option<&Path>,
        global: &Global,
        terminal: &'a Terminal,
    ) -> Result<Gate<Self>, Failure> {
        if given.is_some() { Self::open(global, terminal) } else { Self::open_kept(global, terminal) }
    }

    /// Loads the clusters as they are in a world that was seen.
    pub fn open_in(global: &Global, terminal: &'a Terminal, world: &World) -> Result<Gate<Self>, Failure> {
        let clusters = clusters::load(global.file.as_deref(), global.cluster.as_deref(), world);
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
        let [cluster] = &self.clusters.list[..] else {
            let finding = choose_one(&self.clusters.resolved().collect::<Vec<_>>());
            return self.close(Findings::from_iter([finding]), Exit::InvalidInput).map(Gate::Closed);
        };
        let Some(site) = cluster.site() else { return Ok(Gate::Closed(Exit::InvalidInput)) };
        match act(site, &mut self.clusters.sources) {
            Ok((value, findings)) => {
                self.clusters.findings.extend(findings);
                Ok(Gate::Open(value))
            }
            Err(Halt { kind, findings }) => self.close(findings, exit_of(kind)).map(Gate::Closed),
        }
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

    /// Whether there were several clusters, also when one of them was chosen.
    pub fn has_several(&self) -> bool {
        self.clusters.are_several
    }

    /// Returns the name of the first cluster.
    pub fn name(&self) -> &str {
        self.clusters.resolved().next().map_or("", |desired| desired.cluster.name.as_str())
    }

    /// Adds findings that are told with the others.
    pub fn add(&mut self, findings: Findings) {
        self.clusters.findings.extend(findings);
    }

    /// Tells all findings so far to people.
    pub fn tell(&self) {
        findings::tell(&self.clusters.sources, &self.clusters.findings, Changes::None, self.terminal);
    }

    /// Ends the run with what stood in its way: for people, and for programs as `check` reports it.
    pub fn close(&mut self, findings: Findings, exit: Exit) -> Result<Exit, Failure> {
        self.clusters.findings.extend(findings);
        let whole = std::mem::take(&mut self.clusters.findings);
        self.clusters.findings = whole.sorted();
        // Whoever was stopped by the machine may have written something before.
        let changes = match exit {
            Exit::Failed | Exit::PartWay => Changes::Perhaps,
            _ => Changes::None,
        };
        findings::tell(&self.clusters.sources, &self.clusters.findings, changes, self.terminal);
        self.print(exit, || None, || document::value(&findings_json::report(&self.clusters)))?;
        Ok(exit)
    }

    /// Tells what was found, and shows results: as text, or as a document with one part for each cluster.
    pub fn show(
        &self,
        text: impl FnOnce() -> String,
        clusters: impl FnOnce() -> Vec<Value>,
    ) -> Result<Exit, Failure> {
        self.end(Exit::Done, text, clusters)
    }

    /// Does the same for a run that ended in some way.
    pub fn end(
        &self,
        exit: Exit,
        text: impl FnOnce() -> String,
        clusters: impl FnOnce() -> Vec<Value>,
    ) -> Result<Exit, Failure> {
        self.tell();
        self.print(exit, || Some(text()), || envelope(clusters(), findings_json::all(&self.clusters)))?;
        Ok(exit)
    }

    /// Writes a result in the form that was asked for. In a stream of events it is the last one.
    fn print(
        &self,
        exit: Exit,
        text: impl FnOnce() -> Option<String>,
        value: impl FnOnce() -> Value,
    ) -> io::Result<()> {
        let value = || {
            let mut value = value();
            value["exit_code"] = exit.code().into();
            value["exit"] = exit.meaning().into();
            value
        };
        match self.output {
            _ if self.terminal.is_in_events() => self.terminal.event("result", value()),
            Output::Table => text().map_or(Ok(()), |text| self.terminal.show(&text)),
            Output::Json => self.terminal.json(&value()),
            Output::Yaml => self.terminal.yaml(&value()),
        }
    }

    /// Gives access that was made: on standard output, or by saying which file it was written to.
    pub fn give(&self, given: &Given) -> Result<Exit, Failure> {
        let Given { made, path, .. } = given;
        if let Some(path) = path {
            let line = || {
                self.terminal.tell(&given::text(given, path));
                String::new()
            };
            return self.show(line, || vec![given::value(self.name(), given, path)]);
        }
        self.tell();
        match self.output {
            // It is YAML already.
            Output::Table | Output::Yaml => self.terminal.data(made.text.expose())?,
            Output::Json => self.terminal.data(given::json(made))?,
        }
        Ok(Exit::Done)
    }
}

/// Refuses to read both an inventory and secrets from the one standard input.
pub fn one_reader_of_stdin(global: &Global, secrets: Option<&Path>) -> Result<(), Failure> {
    let stdin = Some(Path::new("-"));
    if global.file.as_deref() != stdin || secrets != stdin {
        return Ok(());
    }
    Err(Failure::new(
        Exit::InvalidInput,
        "both the inventory and the secrets are to come from standard input",
    )
    .hint("name a file for one of them"))
}

/// Returns how a run ends that was stopped.
pub const fn exit_of(kind: HaltKind) -> Exit {
    match kind {
        HaltKind::Invalid => Exit::InvalidInput,
        HaltKind::Refused => Exit::Refused,
        HaltKind::Failed => Exit::Failed,
        HaltKind::PartWay => Exit::PartWay,
        HaltKind::Busy => Exit::LockHeld,
        HaltKind::Preflight => Exit::Preflight,
    }
}

fn choose_one(clusters: &[&Desired]) -> Finding {
    let names: Vec<String> = clusters.iter().map(|desired| format!("`{}`", desired.cluster.name)).collect();
    Finding::error(Code::SEVERAL_CLUSTERS, None, "one cluster has to be chosen")
        .because(format!("there are {}", text::list_some(&names, text::MAX_NAMES)))
        .remedy("choose one with `--cluster NAME`")
}
