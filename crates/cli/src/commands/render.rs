//! `ichor render`: a cluster as a directory of files.
//!
//! 1. every cluster is drawn up and compared with what is there; any error ends here;
//! 2. every cluster is written;
//! 3. what became of each file is shown.

use std::path::PathBuf;

use ichor_model::{Code, Finding, Findings};
use ichor_ops::{
    render::{self, Drawn, Request},
    shared,
};

use super::session::{Gate, Session, exit_of, one_reader_of_stdin};
use crate::{
    args::{Global, Render},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    render::rendered::{self, Rendered},
    terminal::Terminal,
};

/// Renders the clusters.
pub fn run(args: &Render, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    one_reader_of_stdin(global, args.secrets.as_deref())?;
    let mut session = match Session::open_for(args.secrets.as_deref(), global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    // Choosing one of several clusters does not change where its files are.
    let several = session.has_several();
    if session.count() > 1 && args.secrets.is_some() {
        return session.close(Findings::from_iter([one_bundle_for_several()]), Exit::InvalidInput);
    }
    let drawn = session.with_all(|site, sources| {
        let directory = if several { args.directory.join(site.name()) } else { args.directory.clone() };
        let request =
            Request { directory: &directory, secrets: args.secrets.as_deref(), overwrite: args.overwrite };
        let mut drawn = render::draw(&OperatingSystem, site, request, sources)?;
        let findings = std::mem::take(&mut drawn.findings);
        Ok(((site.name().to_owned(), directory, drawn), findings))
    })?;
    let drawn = match drawn {
        Gate::Open(drawn) => drawn,
        Gate::Closed(exit) => return Ok(exit),
    };
    let prints: Vec<_> = drawn.iter().map(|(name, _, drawn)| (name.as_str(), &drawn.fingerprint)).collect();
    let shared = shared::by_content(&prints);
    if shared.has_errors() {
        return session.close(shared, Exit::InvalidInput);
    }
    write(&mut session, &drawn, terminal)
}

fn one_bundle_for_several() -> Finding {
    Finding::error(Code::SHARED_SECRETS, None, "several clusters would share the secrets of `--secrets`")
        .remedy("choose one with `--cluster NAME`")
}

fn write(
    session: &mut Session<'_>,
    drawn: &[(String, PathBuf, Drawn)],
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let mut all = Vec::new();
    for (cluster, directory, drawn) in drawn {
        match render::write(&OperatingSystem, drawn) {
            Ok(files) => {
                all.push(Rendered { cluster: cluster.clone(), directory: directory.clone(), files });
            }
            Err(halt) => {
                let exit = if all.is_empty() { exit_of(halt.kind) } else { Exit::PartWay };
                let findings = halt.findings.iter().map(|it| all.iter().fold(it.clone(), after)).collect();
                return session.close(findings, exit);
            }
        }
    }
    session.show(|| rendered::text(&all, terminal.width()), || all.iter().map(rendered::value).collect())
}

/// Says which cluster was written before the one that failed.
fn after(finding: Finding, before: &Rendered) -> Finding {
    finding.because(format!("cluster `{}` was written, in `{}`", before.cluster, before.directory.display()))
}
