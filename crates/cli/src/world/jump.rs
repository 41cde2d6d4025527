//! The way into a private network: the servers that `proxmox.jump` names, one behind the other.
//!
//! 1. Each is asked to lead on through the one before it; logins with SSH are made at once, so that what is wrong
//!    with them is told before anything else happens;
//! 2. where somebody sits at a terminal, unknown hosts are shown and locked keys asked for;
//! 3. Image Factories are in the Internet and reached directly, and through the jump only where that fails.

mod local;

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::{self, IsTerminal, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use ichor_model::{Code, Desired, Finding, Hop, HopKind};
use ichor_net::{
    Dial, Dialled, Direct, Endpoint, FirstOf,
    proxy::{HttpConnect, Socks5},
};
use ichor_ops::{Halt, halt::only, place::quoted};
use ichor_ssh::{Asked, Entry, HostKey, NoRoute, NotConnected, Refused, Route, Tunnel};
use tokio::runtime::Runtime;

use self::local::ThisComputer;
use crate::{render::progress::Wait, terminal::Terminal};

/// How often somebody may mistype a passphrase, and how many keys of one host are asked for.
const MAX_TRIES: usize = 3;
const MAX_QUESTIONS: usize = 8;

/// Opens the way to a cluster.
pub fn open(desired: &Desired, runtime: &Runtime, terminal: &Terminal) -> Result<Arc<dyn Dial>, Halt> {
    let direct: Arc<dyn Dial> = Arc::new(Direct);
    if desired.proxmox.jump.is_empty() {
        return Ok(direct);
    }
    let mut way = Arc::clone(&direct);
    for (index, hop) in desired.proxmox.jump.iter().enumerate() {
        way = match hop.kind {
            HopKind::Socks5 => Arc::new(Socks5::new(way, &hop.host, hop.port.unwrap_or_default())),
            HopKind::Http => Arc::new(HttpConnect::new(way, &hop.host, hop.port.unwrap_or_default())),
            HopKind::Ssh => {
                let mut way = way;
                for route in routes(hop, index == 0)? {
                    way = Arc::new(Login { route: route.clone(), terminal }.run(way, runtime)?);
                }
                way
            }
        };
    }
    let factories = desired.images.iter().filter_map(|image| image.factory.parse::<Endpoint>().ok());
    let factories = factories.map(|at| (at.host, at.port)).collect();
    Ok(Arc::new(Way { factories, to_factories: FirstOf::new(direct, Arc::clone(&way)), to_others: way }))
}

/// Leads to the machines and to Proxmox through the jump, and to Image Factories directly if that is possible.
struct Way {
    factories: BTreeSet<(String, u16)>,
    to_factories: FirstOf,
    to_others: Arc<dyn Dial>,
}

impl Dial for Way {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        if self.factories.contains(&(host.to_owned(), port)) {
            self.to_factories.dial(host, port)
        } else {
            self.to_others.dial(host, port)
        }
    }
}

/// Finds how to log in at a host. The first is reached as the user's configuration says.
fn routes(hop: &Hop, first: bool) -> Result<Vec<Route>, Halt> {
    let asked = Asked { host: hop.host.clone(), user: hop.user.clone(), port: hop.port };
    let found = if first {
        Route::find(&asked, &ThisComputer)
    } else {
        Route::find_behind(&asked, &ThisComputer).map(|route| vec![route])
    };
    found.map_err(|why| Halt::preflight(only(no_route(hop, &why))))
}

fn no_route(hop: &Hop, why: &NoRoute) -> Finding {
    let finding = Finding::error(Code::JUMP, None, format!("`proxmox.jump` over `{hop}` cannot be taken"))
        .because(why.to_string());
    finding.remedy(match why {
        NoRoute::NoUser(host) => format!("name the user:\n    jump: ssh://USER@{host}"),
        NoRoute::Command { .. } => {
            "write the hosts on the way into the inventory, the nearest first:\n    jump: [ssh://USER@FIRST, ssh://USER@SECOND]"
                .to_owned()
        }
        NoRoute::TooFar(_) | NoRoute::Unreadable { .. } => {
            "correct `~/.ssh/config`, or write all hosts into `proxmox.jump`".to_owned()
        }
        NoRoute::File { file, .. } => format!("make it a file that you can read:\n    ls -l {}", quoted(file)),
    })
}

/// A login with SSH, and whoever may be asked about it.
struct Login<'a> {
    route: Route,
    terminal: &'a Terminal,
}

impl Login<'_> {
    fn run(&self, through: Arc<dyn Dial>, runtime: &Runtime) -> Result<Tunnel, Halt> {
        let tunnel = Tunnel::new(self.route.clone(), through);
        for _ in 0..MAX_QUESTIONS {
            match Wait::on(self.terminal, runtime.handle(), "logging in at the jump host", tunnel.connect()) {
                Ok(()) => return Ok(tunnel),
                Err(why) if self.changed(&tunnel, &why) => {}
                Err(why) => return Err(Halt::preflight(only(self.barred(&why)))),
            }
        }
        Err(Halt::preflight(only(self.barred(&NotConnected::NotReached("it asked too often".into())))))
    }

    /// Asks whoever sits at the terminal; returns whether trying again makes sense.
    fn changed(&self, tunnel: &Tunnel, why: &NotConnected) -> bool {
        if !io::stdin().is_terminal() {
            return false;
        }
        match why {
            NotConnected::UnknownKey(key) => self.is_trusted(tunnel, key),
            NotConnected::Refused(refused) if !refused.hung_up => {
                refused.locked.first().is_some_and(|path| self.is_unlocked(tunnel, path))
            }
            _ => false,
        }
    }

    fn is_trusted(&self, tunnel: &Tunnel, key: &HostKey) -> bool {
        let file = self.route.known_hosts_file.as_deref();
        let remember =
            file.map_or_else(|| "for this run".into(), |file| format!("and add it to {}", file.display()));
        self.terminal.tell(&format!(
            "Nobody here knows the jump host {tunnel} yet. Its key is\n  {} {}\nOn the host itself this shows the right one:\n    \
             {}\nIs it the same? Type `yes` to trust it {remember}:",
            key.kind(),
            key.fingerprint(),
            show_key(&key.kind()),
        ));
        let mut answer = String::new();
        let _ = io::stdin().read_line(&mut answer);
        if answer.trim() != "yes" {
            return false;
        }
        tunnel.trust(key);
        if let Some(file) = file
            && let Err(error) = append(file, &key.line(&self.route.name))
        {
            self.terminal.tell(&format!(
                "the key is trusted for this run only: {} cannot be written: {error}",
                file.display()
            ));
        }
        true
    }

    fn is_unlocked(&self, tunnel: &Tunnel, path: &Path) -> bool {
        for _ in 0..MAX_TRIES {
            let question = format!("Passphrase of {}: ", path.display());
            // Whoever gives up is not asked again.
            let Some(passphrase) = self.terminal.ask_secretly(&question) else { return false };
            match tunnel.unlock(path, &passphrase) {
                Ok(()) => return true,
                Err(why) => self.terminal.tell(&why.to_string()),
            }
        }
        false
    }

    fn barred(&self, why: &NotConnected) -> Finding {
        let Route { user, host, port, name, .. } = &self.route;
        let at = format!("{user}@{host}:{port}");
        let untrusted = |shown: &HostKey| {
            Finding::error(Code::JUMP_KEY, None, format!("the jump host {at} is not trusted"))
                .because(why.to_string())
                .because(format!("on the host itself this shows the right one: {}", show_key(&shown.kind())))
        };
        let file = self.route.known_hosts_file.clone().unwrap_or_else(|| PathBuf::from("~/.ssh/known_hosts"));
        let add =
            |shown: &HostKey| format!("echo {} >> {}", quoted(Path::new(&shown.line(name))), quoted(&file));
        match why {
            NotConnected::UnknownKey(shown) => {
                untrusted(shown).remedy(format!("if it is the right one, make it known:\n    {}", add(shown)))
            }
            NotConnected::ChangedKey { shown, known } => {
                let known: Vec<String> = known.iter().take(MAX_SHOWN).map(entry).collect();
                let finding = untrusted(shown).because(format!("it is known by {}", known.join(", ")));
                finding.remedy(format!(
                    "somebody may stand between you and the host. Only if you know why its key changed, forget the old one and add the new one:\n    \
                     ssh-keygen -R {} -f {}\n    {}",
                    quoted(Path::new(name)),
                    quoted(&file),
                    add(shown)
                ))
            }
            NotConnected::RevokedKey { shown, entry: at } => untrusted(shown)
                .because(format!("it is revoked in {}", entry(at)))
                .remedy("give the host a new key; a revoked one is in the wrong hands"),
            NotConnected::OnlyAuthority { shown, entry: at } => untrusted(shown)
                .because(format!("the authority is in {}", entry(at)))
                .remedy(format!("make the host's own key known:\n    {}", add(shown))),
            NotConnected::Refused(refused) => refusal(&at, refused),
            NotConnected::NotReached(text) | NotConnected::NotUnderstood(text) => {
                let finding = Finding::error(Code::JUMP, None, format!("the jump host {at} is not reached"));
                finding
                    .because(text.as_str())
                    .remedy(format!("try it by hand:\n    ssh -p {port} {user}@{host} true"))
            }
        }
    }
}

/// Most entries and keys that a message lists.
const MAX_SHOWN: usize = 6;

fn entry(entry: &Entry) -> String {
    format!("{} ({}) in line {} of {}", entry.fingerprint, entry.kind, entry.line, entry.file.display())
}

/// The command that shows the fingerprint of a host's key, on the host.
fn show_key(kind: &str) -> String {
    let kind = match kind {
        "ssh-ed25519" => "ed25519",
        kind if kind.starts_with("ecdsa") => "ecdsa",
        _ => "rsa",
    };
    format!("ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub")
}

fn refusal(at: &str, refused: &Refused) -> Finding {
    let mut finding = Finding::error(Code::JUMP, None, format!("the jump host {at} does not let ichor in"));
    let some = |list: &[String]| list.iter().take(MAX_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if refused.offered.is_empty() {
        finding = finding.because("there was no key to offer");
    } else {
        finding = finding.because(format!("it did not take {}", some(&refused.offered)));
    }
    if refused.wants_more {
        finding =
            finding.because("it takes a key, but wants something else besides, which ichor cannot give");
    }
    if refused.hung_up && !refused.offered.is_empty() {
        finding = finding.because("it hung up before all keys were offered");
    }
    if !refused.methods.is_empty() {
        finding = finding.because(format!("it lets in by: {}", some(&refused.methods)));
    }
    if !refused.unusable.is_empty() {
        finding = finding.because(format!("not used: {}", some(&refused.unusable)));
    }
    if let Some(path) = refused.locked.first() {
        let add = format!("add it to an agent:\n    ssh-add {}", quoted(path));
        return finding
            .because(format!("`{}` needs a passphrase, which nobody gave", path.display()))
            .remedy(add);
    }
    if refused.hung_up && refused.offered.len() > 1 {
        return finding.remedy("name the right key for this host in `~/.ssh/config`, with `IdentityFile` and `IdentitiesOnly yes`");
    }
    finding.remedy(format!("put a key of yours on it:\n    ssh-copy-id {}", copy_id(at)))
}

/// `user@host:port` as `ssh-copy-id` takes it.
fn copy_id(at: &str) -> String {
    match at.rsplit_once(':') {
        Some((at, "22")) => at.to_owned(),
        Some((at, port)) => format!("-p {port} {at}"),
        None => at.to_owned(),
    }
}

/// Adds a line to a file of known hosts, which need not exist.
fn append(file: &Path, line: &str) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        ichor_ops::System::make_directory(&crate::operating_system::OperatingSystem, directory)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(file)?;
    // A last line without an end would swallow the new one.
    let mut last = [b'\n'];
    if file.seek(io::SeekFrom::End(0))? > 0 {
        file.seek(io::SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let gap = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{gap}{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_host_gets_a_line_of_its_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(".ssh/known_hosts");
        append(&file, "one key").expect("written");
        append(&file, "two key").expect("written");
        std::fs::write(&file, "three key").expect("written");
        append(&file, "four key").expect("written");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "three key\nfour key\n");
    }

    #[test]
    fn commands_fit_the_host() {
        assert_eq!(copy_id("root@pve1:22"), "root@pve1");
        assert_eq!(copy_id("root@pve1:2222"), "-p 2222 root@pve1");
        assert_eq!(show_key("ecdsa-sha2-nistp256"), "ssh-keygen -lf /etc/ssh/ssh_host_ecdsa_key.pub");
    }
}
