//! `ichor secrets`: makes, imports, exports and shows the secrets of a cluster.

use ichor_machineconfig::pki::{PkiError, RsaKey};
use ichor_ops::{
    access::{self, Kind},
    bundle::Input,
    secrets,
};

use super::session::{Gate, Session, exit_of};
use crate::{
    args::{Export, Global, Import, SecretsVerb},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    render::secrets as render,
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
        let made = secrets::new(&OperatingSystem, site, rsa)?;
        Ok(((made, site.desired.cluster.contract), ichor_model::Findings::new()))
    })?;
    match made {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((made, contract)) => {
            session.tell();
            session.show(|| render::new_text(&made, contract), &render::new_value(&made, contract))?;
            Ok(Exit::Done)
        }
    }
}

fn import(args: &Import, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
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
        Gate::Open(imported) => {
            session.tell();
            session.show(
                || render::imported_text(&imported, terminal.width()),
                &render::imported_value(&imported),
            )?;
            Ok(Exit::Done)
        }
    }
}

fn export(args: &Export, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let text = match session.with_one(|site, sources| secrets::export(&OperatingSystem, site, sources))? {
        Gate::Open(text) => text,
        Gate::Closed(exit) => return Ok(exit),
    };
    session.tell();
    let Some(path) = &args.out else {
        terminal.data(text.expose())?;
        return Ok(Exit::Done);
    };
    match access::write(&OperatingSystem, path, &text, Kind::Bundle, args.overwrite) {
        Ok(()) => {
            terminal.tell(&format!("wrote {}", path.display()));
            Ok(Exit::Done)
        }
        Err(halt) => session.close(halt.findings, exit_of(halt.kind)),
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
            session.tell();
            session.show(|| render::kept_text(&kept, terminal.width()), &render::kept_value(&kept))?;
            Ok(Exit::Done)
        }
    }
}
