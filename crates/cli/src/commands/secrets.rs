//! `ichor secrets`: makes, imports, exports and shows the secrets of a cluster.

use ichor_machineconfig::pki::{PkiError, RsaKey};
use ichor_model::{Finding, Severity};
use ichor_ops::{
    access::{self, Target},
    bundle::Input,
    secrets, shared,
};

use super::session::{Gate, Session, one_reader_of_stdin};
use crate::{
    args::{Export, Global, Import, SecretsVerb},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    render::{given::Given, secrets as render},
    terminal::Terminal,
};

/// Does what was asked for.
pub fn run(verb: &SecretsVerb, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    match verb {
        SecretsVerb::New => new(global, terminal),
        SecretsVerb::Import(args) => import(args, global, terminal),
        SecretsVerb::Export(args) => export(args, global, terminal),
        SecretsVerb::Show => show(global, terminal),
    }
}

fn new(global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    // The key takes seconds, and nothing in the inventory changes it: it is begun before anything is read.
    let thread = std::thread::spawn(RsaKey::generate);
    let rsa = || thread.join().unwrap_or(Err(PkiError::Signing));
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let made = session.with_one(|site, _| {
        let mut made = secrets::new(&OperatingSystem, site, rsa)?;
        let findings = std::mem::take(&mut made.findings);
        Ok((made, findings))
    })?;
    match made {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(made) => {
            session.show(|| render::new_text(&made), || vec![render::new_value(session.name(), &made)])
        }
    }
}

fn import(args: &Import, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    one_reader_of_stdin(global, Some(&args.input))?;
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let input = Input::of(&args.input);
    let imported = session.with_one(|site, sources| {
        let mut imported = secrets::import(&OperatingSystem, site, &input, sources)?;
        let findings = std::mem::take(&mut imported.found.findings);
        Ok((imported, findings))
    })?;
    match imported {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(imported) => session.show(
            || render::imported_text(&imported, terminal.width()),
            || vec![render::imported_value(session.name(), &imported)],
        ),
    }
}

fn export(args: &Export, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let made = session.with_one(|site, sources| {
        let (made, findings) = secrets::export(&OperatingSystem, site, sources)?;
        if let Some(path) = &args.out {
            let target = Target { path, overwrite: args.overwrite, given: None };
            access::write(&OperatingSystem, site, &made, target)?;
        }
        Ok((made, findings))
    })?;
    match made {
        Gate::Open(made) => session.give(&Given { made, path: args.out.clone(), merged: None }),
        Gate::Closed(exit) => Ok(exit),
    }
}

fn show(global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let kept = session.with_all(|site, sources| {
        let mut kept = secrets::show(&OperatingSystem, site, sources)?;
        let findings = std::mem::take(&mut kept.findings);
        Ok(((site.name().to_owned(), kept), findings))
    })?;
    match kept {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(kept) => {
            let prints: Vec<_> = kept.iter().map(|(name, kept)| (name.as_str(), &kept.fingerprint)).collect();
            // Looking is not refused: it is how the mistake is found.
            let shared = shared::by_content(&prints);
            session
                .add(shared.iter().map(|it| Finding { severity: Severity::Warning, ..it.clone() }).collect());
            session.show(
                || render::kept_text(&kept, terminal.width()),
                || kept.iter().map(render::kept_value).collect(),
            )
        }
    }
}
