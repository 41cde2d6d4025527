//! `ichor pve setup`: makes the account that a cluster is run with.
//!
//! 1. Whoever administers Proxmox logs in; the password is asked for, and forgotten;
//! 2. what is there of the account is compared with what should be;
//! 3. that is shown, and asked about;
//! 4. it is done; the secret of a new token is kept before anything else happens;
//! 5. Proxmox is looked at again: nothing left to do means done.

use std::{
    future::Future,
    io::{self, IsTerminal},
    path::Path,
};

use ichor_model::{Code, Finding, Findings, observed::Release};
use ichor_ops::{
    Halt, Keeping, Site, System,
    account::{self, Change, Entry, Found, Wanted, tokens},
    halt::only,
    live::{self, Pve},
};
use ichor_plan::privileges::Account;
use ichor_port::Secret;
use ichor_pve::{Error, Kind, Token, api};
use serde_json::{Value, json};
use tokio::runtime::{Handle, Runtime};

use super::{
    run::{Asked, not_confirmed},
    session::{Gate, Session},
};
use crate::{
    args::{Global, Purpose, Setup as Args, token_of},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    render::{progress::Wait, text},
    terminal::Terminal,
    world::{Door, LabRun, World, with_site_in},
};

/// Longest password that is read from a file.
const MAX_PASSWORD: usize = 4096;
/// What is waited for when Proxmox takes its time over a login.
const LOGGING_IN: &str = "logging in at Proxmox";

/// Makes an account.
pub fn run(args: &Args, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let asked = Asked { verb: "pve setup", yes: args.yes, dry_run: args.dry_run, json: false };
    asked.check()?;
    let password = password(args, global, terminal)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Failed, "the run cannot start").because(error.to_string()))?;
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let place = global.world.place();
    let made = session.with_one(|site, _| {
        let Door { dialer, trust, lab, findings } = World::door(place, site, &runtime, terminal)?;
        let done = with_site_in(place, site, |site| {
            let endpoint = &site.desired.proxmox.endpoint;
            let lobby = live::lobby(endpoint, trust.clone(), &dialer)?;
            let pve = enter(lobby, &password, args, runtime.handle(), terminal)?;
            let lobby = live::lobby(endpoint, trust, &dialer)?;
            let (pve, runtime, asked) = (&pve, &runtime, &asked);
            let setup = Setup { args, site, pve, runtime, asked, terminal };
            setup.run(lobby, findings)
        });
        lab.map_or(Ok(()), LabRun::close).and(done)
    })?;
    match made {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(ended) => session.end(ended.exit, || ended.text(), || vec![ended.document()]),
    }
}

/// Logs in, with a code besides where Proxmox wants one.
fn enter(
    lobby: Pve,
    password: &Secret,
    args: &Args,
    runtime: &Handle,
    terminal: &Terminal,
) -> Result<Pve, Halt> {
    let user = &args.admin;
    let (pve, challenge) =
        match Wait::on(terminal, runtime, LOGGING_IN, account::log_in(lobby, user, password))? {
            Entry::Open(pve) => return Ok(*pve),
            Entry::Half(pve, challenge) => (*pve, challenge),
        };
    let code = match &args.totp_file {
        Some(path) => given(path).map_err(|why| {
            let finding = account::no_code(user);
            Halt::invalid(only(Finding { notes: vec![why], ..finding }))
        })?,
        None => {
            let typed = terminal.ask_secretly(&format!("Code of {user} (TOTP): "));
            let typed = typed.filter(|typed| !typed.trim().is_empty());
            let typed = typed.ok_or_else(|| Halt::preflight(only(account::no_code(user))))?;
            Secret::new(typed.trim())
        }
    };
    Wait::on(terminal, runtime, LOGGING_IN, account::go_on(pve, user, &challenge, &code))
}

/// Reads the password from a file or standard input, or asks for it.
fn password(args: &Args, global: &Global, terminal: &Terminal) -> Result<Secret, Failure> {
    let wrong = |why: &str| {
        Failure::new(Exit::InvalidInput, format!("there is no password for `{}`", args.admin))
            .because(why)
            .hint("write it to a file that only you can read, and name that:\n    ichor pve setup --password-file FILE")
    };
    if args.totp_file.is_some() && args.totp_file == args.password_file {
        return Err(Failure::new(
            Exit::InvalidInput,
            "both the password and the code are to come from one place",
        )
        .hint("name another file for one of them"));
    }
    super::session::one_reader_of_stdin(global, args.totp_file.as_deref())?;
    let Some(path) = &args.password_file else {
        let question = format!("Password of {} on Proxmox: ", args.admin);
        let typed = terminal.ask_secretly(&question).filter(|typed| !typed.is_empty());
        return typed.map(|typed| Secret::new(typed.as_str())).ok_or_else(|| {
            wrong(if io::stdin().is_terminal() { "none was typed" } else { "there is no terminal to ask at" })
        });
    };
    super::session::one_reader_of_stdin(global, Some(path))?;
    given(path).map_err(|why| wrong(&why))
}

/// Reads a secret from a file or standard input, without the end of its line.
fn given(path: &Path) -> Result<Secret, String> {
    let read = if path.as_os_str() == "-" {
        OperatingSystem.read_stdin(MAX_PASSWORD).map_err(|why| why.to_string())?
    } else {
        OperatingSystem.read_given(path, MAX_PASSWORD).map_err(|why| why.to_string())?.bytes
    };
    let text = std::str::from_utf8(&read).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(Secret::new(text)) }
}

struct Setup<'a> {
    args: &'a Args,
    site: Site<'a>,
    pve: &'a Pve,
    runtime: &'a Runtime,
    asked: &'a Asked,
    terminal: &'a Terminal,
}

/// How it ended.
struct Ended {
    cluster: String,
    token: String,
    place: tokens::Place,
    is_own: bool,
    changes: Vec<Change>,
    secret: Option<Secret>,
    dry_run: bool,
    exit: Exit,
}

impl Setup<'_> {
    /// `lobby` asks in nobody's name.
    fn run(&self, lobby: Pve, mut findings: Findings) -> Result<(Ended, Findings), Halt> {
        let wanted = self.wanted()?;
        let place = tokens::Place::of(self.site, self.word(), self.args.into.as_deref())?;
        let known = self.known(&wanted, &place)?;
        let has_secret = known.map_or(Ok(false), |token| self.works(&lobby.with_token(token)))?;
        let found = self.look(&wanted)?;
        if let Some(finding) = wanted.narrowed(&found) {
            return Err(Halt::refused(only(finding)));
        }
        let changes = wanted.changes(&found, has_secret);
        let mut ended = Ended {
            cluster: self.site.name().to_owned(),
            token: wanted.id(),
            place,
            is_own: self.args.purpose == Purpose::Ichor && self.site.keeping == Keeping::Encrypted,
            changes,
            secret: None,
            dry_run: self.args.dry_run,
            exit: Exit::Done,
        };
        if ended.changes.is_empty() {
            return Ok((ended, findings));
        }
        self.terminal.tell(&ended.plan());
        if self.args.dry_run {
            ended.exit = Exit::ChangesPending;
            return Ok((ended, findings));
        }
        let replaces = ended.changes.contains(&Change::ReplaceToken);
        if replaces && self.args.yes && !self.args.new_token {
            return Err(Halt::refused(only(account::secret_lost(&wanted, &ended.place.reference()))));
        }
        if !self.asked.confirmed("Make it so?", "yes") {
            return Err(Halt::refused(only(not_confirmed("nothing was changed"))));
        }
        // A token that nobody could keep is not made in the first place.
        findings.extend(ended.place.prepare(&OperatingSystem, self.site)?);
        let secret = self.make(&wanted, &ended)?;
        let left = wanted.changes(&self.look(&wanted)?, true);
        if let Some(change) = left.first() {
            let finding = Finding::error(Code::ACCOUNT, None, "the account is not as it should be");
            return Err(Halt::failed(only(
                finding.because(format!("still to do: {change}")).remedy("run the same command again"),
            )));
        }
        ended.secret = secret.filter(|_| self.args.show_token);
        Ok((ended, findings))
    }

    /// Waits for what Proxmox is asked.
    fn ask<F: Future>(&self, asked: F) -> F::Output {
        Wait::on(self.terminal, self.runtime.handle(), "waiting for Proxmox", asked)
    }

    /// Returns the token if its secret is kept. That of another one is not written over without a word.
    fn known(&self, wanted: &Wanted, place: &tokens::Place) -> Result<Option<Token>, Halt> {
        let Some(kept) = place.read(&OperatingSystem, self.site)? else { return Ok(None) };
        let token = Token::parse(&Secret::new(kept.expose())).ok();
        let id = token.as_ref().map(Token::id);
        if id == Some(&wanted.id()) {
            return Ok(token);
        }
        if self.args.replace_token {
            return Ok(None);
        }
        Err(Halt::refused(only(account::another_kept(wanted, id, place))))
    }

    fn wanted(&self) -> Result<Wanted, Halt> {
        let desired = self.site.desired;
        let release = self.ask(self.pve.send(&api::version()));
        let release = release.map_err(|error| failed("say which release it is", &error))?;
        let release = self::release(&release.release);
        let account = match self.args.purpose {
            Purpose::Ichor => Account::of(desired, release),
            Purpose::Ccm => Account::of_ccm(desired, release),
            Purpose::Csi => Account::of_csi(desired),
        };
        let user = match self.args.purpose {
            // A lab has a user of that name already, who may do everything.
            Purpose::Ichor if self.site.keeping == Keeping::Plain => {
                format!("ichor-{}@pve", self.site.name())
            }
            Purpose::Ichor => "ichor@pve".into(),
            Purpose::Ccm => "ichor-ccm@pve".into(),
            Purpose::Csi => "ichor-csi@pve".into(),
        };
        let user = self.args.user.clone().unwrap_or(user);
        let token = self.args.token.clone().unwrap_or_else(|| token_of(self.site.name()));
        Ok(Wanted { account, user, token })
    }

    const fn word(&self) -> &'static str {
        match self.args.purpose {
            Purpose::Ichor => tokens::OWN,
            Purpose::Ccm => "ccm",
            Purpose::Csi => "csi",
        }
    }

    /// Tries a token.
    fn works(&self, pve: &Pve) -> Result<bool, Halt> {
        match self.ask(pve.send(&api::version())) {
            Ok(_) => Ok(true),
            Err(error) if error.refusal() == Some(Kind::Unauthenticated) => Ok(false),
            Err(error) => Err(failed("try the token", &error)),
        }
    }

    fn look(&self, wanted: &Wanted) -> Result<Found, Halt> {
        let found = self.ask(Found::look(self.pve, wanted));
        found.map_err(|error| failed("show users, roles and rights", &error))
    }

    /// Does what is to be done, and returns a token that was made.
    fn make(&self, wanted: &Wanted, ended: &Ended) -> Result<Option<Secret>, Halt> {
        let mut made = None;
        for change in &ended.changes {
            let new = self.ask(change.make(self.pve, wanted));
            let new = new.map_err(|error| failed(&change.to_string(), &error))?;
            let Some(new) = new else { continue };
            let secret = new.secret();
            if let Err(halt) = ended.place.write(&OperatingSystem, self.site, secret.expose()) {
                // Nobody will ever know its secret; what may do nothing may as well go.
                let gone = api::delete_token(&wanted.user, &wanted.token);
                let _ = self.ask(self.pve.send(&gone));
                return Err(halt);
            }
            made = Some(secret);
        }
        Ok(made)
    }
}

/// Reads a release; one that is no number is as new as any.
fn release(text: &str) -> Release {
    let parts =
        text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let (major, minor) = parts.unwrap_or((9, 2));
    Release { major, minor }
}

fn failed(what: &str, error: &Error) -> Halt {
    Halt::failed(only(account::refused(what, error)))
}

impl Ended {
    fn plan(&self) -> String {
        let lines: String = self
            .changes
            .iter()
            .map(|change| format!("\n  {}", text::safe_line(&change.to_string())))
            .collect();
        format!("The account of cluster `{}`, token `{}`:{lines}", self.cluster, self.token)
    }

    fn text(&self) -> String {
        if self.dry_run && !self.changes.is_empty() {
            return String::new();
        }
        if let Some(secret) = &self.secret {
            return format!("{}\n", secret.expose());
        }
        let done = match self.changes.len() {
            0 => format!("token `{}` is as it should be; nothing to do", self.token),
            count => format!("token `{}` is ready; {}", self.token, text::count(count, "change")),
        };
        let kept = format!("its secret is in `{}`, under `{}`", self.place.name, self.place.key);
        let line = if self.is_own {
            format!(
                "\nthe inventory finds it by\n    proxmox: {{token: {{sops: \"{}\"}}}}",
                self.place.reference()
            )
        } else {
            String::new()
        };
        format!("{}: {done}\n{kept}{line}\n", text::good("ok"))
    }

    fn document(&self) -> Value {
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        let mut document = json!({
            "cluster": self.cluster,
            "token": self.token,
            "file": self.place.name,
            "key": self.place.key,
            "changes": changes,
            "done": self.changes.is_empty() || !self.dry_run,
        });
        if let Some(secret) = &self.secret {
            document["secret"] = secret.expose().into();
        }
        document
    }
}
