//! `ichor secrets`: makes, imports, restores, encrypts, edits, exports and shows the secrets of a cluster.

use std::path::Path;

use ichor_machineconfig::pki::{PkiError, RsaKey};
use ichor_model::{Finding, Findings, Severity};
use ichor_ops::{
    Halt, Site,
    access::{self, Target},
    bundle::Input,
    keyring::variable,
    secrets::{self, Changed, Subject, Wanted},
    shared,
};
use ichor_spec::Sources;

use super::session::{Gate, Session, exit_of, one_reader_of_stdin};
use crate::{
    args::{Export, Global, Import, Output, Restore, SecretsVerb},
    exit::Exit,
    failure::Failure,
    keeping::{self, Ask},
    operating_system::OperatingSystem,
    programs,
    render::{
        document,
        findings::{self, Changes},
        given::Given,
        secrets as render,
    },
    terminal::Terminal,
    world::with_site_in,
};

/// The editor of those who have named none.
const EDITOR: &str = "vi";

/// Does what was asked for.
pub fn run(verb: &SecretsVerb, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    match verb {
        SecretsVerb::New => new(global, terminal),
        SecretsVerb::Import(args) => import(args, global, terminal),
        SecretsVerb::Restore(args) if args.list => list(global, terminal),
        SecretsVerb::Restore(args) => restore(args, global, terminal),
        SecretsVerb::Export(args) => export(args, global, terminal),
        SecretsVerb::Show => show(global, terminal),
        SecretsVerb::Identity => identity(global, terminal),
        SecretsVerb::Encrypt(args) => {
            let changing = Changing { verb: "secrets encrypt", file: args.sealed.as_deref() };
            change(changing, global, terminal, |site, subject, _| {
                secrets::encrypt(&OperatingSystem, site, subject)
            })
        }
        SecretsVerb::RotateKey(args) => {
            let changing = Changing { verb: "secrets rotate-key", file: args.sealed.as_deref() };
            change(changing, global, terminal, |site, subject, _| {
                secrets::rotate_key(&OperatingSystem, site, subject)
            })
        }
        SecretsVerb::AddRecipient(args) => {
            let changing = Changing { verb: "secrets add-recipient", file: args.of.as_deref() };
            change(changing, global, terminal, |site, subject, _| {
                secrets::add_recipients(&OperatingSystem, site, subject, &args.recipients)
            })
        }
        SecretsVerb::RemoveRecipient(args) => {
            let changing = Changing { verb: "secrets remove-recipient", file: args.of.as_deref() };
            change(changing, global, terminal, |site, subject, _| {
                secrets::remove_recipients(&OperatingSystem, site, subject, &args.recipients)
            })
        }
        SecretsVerb::Edit(args) => {
            let changing = Changing { verb: "secrets edit", file: args.sealed.as_deref() };
            change(changing, global, terminal, |site, subject, sources| {
                let editor =
                    ["SOPS_EDITOR", "EDITOR"].iter().find_map(|name| variable(&OperatingSystem, name));
                let editor = editor.as_ref().map_or(EDITOR, |text| text.as_str());
                secrets::edit(&OperatingSystem, site, subject, sources, &mut |path| {
                    programs::edit(editor, path)
                })
            })
        }
    }
}

/// What is changed, and by which verb.
#[derive(Clone, Copy)]
struct Changing<'a> {
    verb: &'static str,
    /// A file; absent: the cluster's own secrets.
    file: Option<&'a Path>,
}

/// Does something to the cluster's own secrets, while nobody else does.
fn alone<T>(
    verb: &'static str,
    site: Site<'_>,
    global: &Global,
    terminal: &Terminal,
    act: impl FnOnce(Site<'_>) -> Result<T, Halt>,
) -> Result<T, Halt> {
    with_site_in(global.world.place(), site, |site| {
        let ask = Ask { verb, wait: global.lock_wait() };
        keeping::changing(site, ask, terminal, || act(site))
    })
}

/// Changes an encrypted file, and tells what became of it.
fn change(
    changing: Changing<'_>,
    global: &Global,
    terminal: &Terminal,
    act: impl FnOnce(Site<'_>, Subject<'_>, &mut Sources) -> Result<Changed, Halt>,
) -> Result<Exit, Failure> {
    let mut session = match Session::open_kept(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let place = global.world.place();
    let changed = session.with_one(|site, sources| {
        let mut changed = match changing.file {
            Some(file) => with_site_in(place, site, |site| act(site, Subject::File(file), sources))?,
            None => alone(changing.verb, site, global, terminal, |site| act(site, Subject::Bundle, sources))?,
        };
        let findings = std::mem::take(&mut changed.findings);
        Ok((changed, findings))
    })?;
    match changed {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(changed) => session.show(
            || render::changed_text(&changed),
            || vec![render::changed_value(session.name(), &changed)],
        ),
    }
}

fn identity(global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let own = match secrets::identity(&OperatingSystem) {
        Ok(own) => own,
        Err(halt) => {
            findings::tell(&Sources::default(), &halt.findings, Changes::None, terminal);
            return Ok(exit_of(halt.kind));
        }
    };
    findings::tell(&Sources::default(), &own.findings, Changes::None, terminal);
    if let Some(made) = &own.made {
        terminal.tell(render::made_identity(made).trim_end());
    }
    match global.output {
        Output::Table => terminal.data(format!("{}\n", own.recipient))?,
        Output::Json => terminal.data(document::json(&render::own_value(&own)))?,
        Output::Yaml => terminal.data(document::yaml(&render::own_value(&own)))?,
    }
    Ok(Exit::Done)
}

fn new(global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    // The key takes seconds, and nothing in the inventory changes it: it is begun before anything is read.
    let thread = std::thread::spawn(RsaKey::generate);
    let rsa = || thread.join().unwrap_or(Err(PkiError::Signing));
    let mut session = match Session::open_kept(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let made = session.with_one(|site, _| {
        let mut made =
            alone("secrets new", site, global, terminal, |site| secrets::new(&OperatingSystem, site, rsa))?;
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
    let mut session = match Session::open_kept(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let input = Input::of(&args.input);
    let imported = session.with_one(|site, sources| {
        let mut imported = alone("secrets import", site, global, terminal, |site| {
            secrets::import(&OperatingSystem, site, &input, sources)
        })?;
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

fn restore(args: &Restore, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open_kept(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let wanted = Wanted { generation: args.generation, replace: args.replace };
    let told = session.with_one(|site, _| {
        let name = site.name();
        let told = alone("secrets restore", site, global, terminal, |site| {
            let past = keeping::past(site, terminal)?;
            let restored = secrets::restore(&OperatingSystem, site, &past, wanted)?;
            Ok((render::restored_text(&restored), render::restored_value(name, &restored)))
        })?;
        Ok((told, Findings::new()))
    })?;
    match told {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((text, value)) => session.show(|| text, || vec![value]),
    }
}

/// Shows which generations there are. Nobody has to be kept out for that.
fn list(global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let place = global.world.place();
    let past = session.with_one(|site, _| {
        let past = with_site_in(place, site, |site| keeping::past(site, terminal))?;
        Ok((past, Findings::new()))
    })?;
    match past {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(past) => session.show(
            || render::past_text(&past, terminal.width()),
            || vec![render::past_value(session.name(), &past)],
        ),
    }
}

fn export(args: &Export, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open_kept(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let place = global.world.place();
    let made = session.with_one(|site, sources| {
        let (made, findings) =
            with_site_in(place, site, |site| secrets::export(&OperatingSystem, site, sources))?;
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
    let mut session = match Session::open_kept(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let place = global.world.place();
    let kept = session.with_all(|site, sources| {
        let mut kept = with_site_in(place, site, |site| secrets::show(&OperatingSystem, site, sources))?;
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
