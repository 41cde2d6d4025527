//! What this computer knows about a host: OpenSSH's configuration, keys and known hosts.

use std::path::{Path, PathBuf};

use thiserror::Error;
use zeroize::Zeroizing;

use crate::{
    clean,
    config::{Settings, Source, glob, settings},
    keys::{KeyFile, Keys},
    known_hosts::{KnownHosts, name_of},
};

/// The usual port.
const PORT: u16 = 22;
/// Most hosts on the way to one.
const MAX_HOPS: usize = 8;
/// Most files that one `Include` reads.
const MAX_INCLUDED: usize = 64;
/// Most keys that are looked at. Servers hang up after six by default.
const MAX_KEYS: usize = 16;
/// Keys that OpenSSH looks for, in its order.
const USUAL_KEYS: [&str; 3] = ["~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"];

/// A file that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents {
    /// Its text.
    pub text: Zeroizing<String>,
    /// Whether others than its owner may read it.
    pub open_to_others: bool,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Contents({} bytes)", self.text.len())
    }
}

/// What is asked of this computer.
pub trait Local {
    /// Returns the user's home.
    fn home(&self) -> Option<PathBuf>;

    /// Returns the user's name.
    fn user(&self) -> Option<String>;

    /// Returns an environment variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// Reads a file; nothing where there is none, or why it cannot be read.
    fn read(&self, path: &Path) -> Result<Option<Contents>, String>;

    /// Returns the names in a directory, sorted; none where there is no such directory.
    fn names(&self, directory: &Path) -> Vec<String>;
}

/// Why nothing can be said about a host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoRoute {
    /// Nobody says as whom to log in.
    #[error("nobody says as whom to log in at `{0}`")]
    NoUser(String),
    /// The configuration names a program that makes connections, which ichor does not run.
    #[error("`ProxyCommand` of `{host}` in the SSH configuration is not run")]
    Command {
        /// The host.
        host: String,
    },
    /// The hosts on the way lead in a circle, or on and on.
    #[error("`ProxyJump` of `{0}` in the SSH configuration leads over too many hosts")]
    TooFar(String),
    /// `ProxyJump` is not written as it should be.
    #[error("`ProxyJump` of `{host}` in the SSH configuration cannot be read: `{text}`")]
    Unreadable {
        /// The host.
        host: String,
        /// What is written.
        text: String,
    },
    /// A file cannot be read.
    #[error("`{file}` cannot be read: {why}")]
    File {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
}

/// How to log in at one host.
#[derive(Debug, Clone)]
pub struct Route {
    /// As whom.
    pub user: String,
    /// The host's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The name under which its key is known.
    pub name: String,
    /// The file that a new key is added to.
    pub known_hosts_file: Option<PathBuf>,
    pub(crate) known: KnownHosts,
    pub(crate) keys: Keys,
}

impl Route {
    /// Finds how to log in at a host, and at all hosts on the way to it that the user's configuration names; the
    /// nearest comes first. What was asked for in words counts before the configuration.
    pub fn find(asked: &Asked, local: &dyn Local) -> Result<Vec<Self>, NoRoute> {
        let mut routes = Vec::new();
        let computer = Computer { local, home: local.home() };
        computer.follow(asked, Detour::Follow, 0, &mut routes)?;
        Ok(routes)
    }

    /// Finds how to log in at a host that is reached over others already.
    pub fn find_behind(asked: &Asked, local: &dyn Local) -> Result<Self, NoRoute> {
        let computer = Computer { local, home: local.home() };
        let settings = computer.settings(asked)?;
        computer.route(asked, &settings)
    }
}

/// A host as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its name, its address, or an alias of the configuration.
    pub host: String,
    /// As whom to log in.
    pub user: Option<String>,
    /// Its port.
    pub port: Option<u16>,
}

/// Whether the configuration's own way to a host is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detour {
    Follow,
    Ignore,
}

struct Computer<'a> {
    local: &'a dyn Local,
    home: Option<PathBuf>,
}

impl Computer<'_> {
    fn follow(
        &self,
        asked: &Asked,
        detour: Detour,
        depth: usize,
        routes: &mut Vec<Route>,
    ) -> Result<(), NoRoute> {
        let settings = self.settings(asked)?;
        if detour == Detour::Follow {
            for (index, hop) in hops(&settings, asked)?.iter().enumerate() {
                // The nearest is reached as its own configuration says, the others over it.
                let detour = if index == 0 { Detour::Follow } else { Detour::Ignore };
                if depth >= MAX_HOPS {
                    return Err(NoRoute::TooFar(asked.host.clone()));
                }
                self.follow(hop, detour, depth + 1, routes)?;
            }
        }
        if routes.len() >= MAX_HOPS {
            return Err(NoRoute::TooFar(asked.host.clone()));
        }
        routes.push(self.route(asked, &settings)?);
        Ok(())
    }

    /// Reads the user's configuration, and then that of this computer.
    fn settings(&self, asked: &Asked) -> Result<Settings, NoRoute> {
        let directory = self.home.as_ref().map(|home| home.join(".ssh"));
        let own = directory.iter().map(|directory| (directory.clone(), directory.join("config")));
        let system = (PathBuf::from("/etc/ssh"), PathBuf::from("/etc/ssh/ssh_config"));
        let mut files: Vec<Source<'_>> = Vec::new();
        for (base, file) in own.chain([system]) {
            if let Some(contents) = self.file(&file)? {
                let include = move |pattern: &str| self.included(&base, pattern);
                files.push((contents.text.to_string(), Box::new(include)));
            }
        }
        Ok(settings(&files, &asked.host, asked.user.as_deref()))
    }

    /// Reads the files of an `Include`. Stars may stand in the last part of the path.
    fn included(&self, base: &Path, pattern: &str) -> Vec<String> {
        let path = self.expand(pattern, &[]);
        let path = if path.is_absolute() { path } else { base.join(path) };
        let (Some(directory), Some(last)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Vec::new();
        };
        let names = if last.contains(['*', '?']) {
            let names = self.local.names(directory).into_iter();
            names.filter(|name| !name.starts_with('.') && glob(last, name)).take(MAX_INCLUDED).collect()
        } else {
            vec![last.to_owned()]
        };
        let read = |name: String| self.local.read(&directory.join(name)).ok().flatten();
        names.into_iter().filter_map(read).map(|contents| contents.text.to_string()).collect()
    }

    fn route(&self, asked: &Asked, settings: &Settings) -> Result<Route, NoRoute> {
        let local_user = self.local.user();
        let user = asked.user.clone().or_else(|| settings.user.clone()).or_else(|| local_user.clone());
        let user = user.ok_or_else(|| NoRoute::NoUser(asked.host.clone()))?;
        let port = asked.port.or(settings.port).unwrap_or(PORT);
        let host = match &settings.host_name {
            Some(written) => written.replace("%h", &asked.host).replace("%%", "%"),
            None => asked.host.clone(),
        };
        let port_text = port.to_string();
        let tokens = [
            ("%h", host.as_str()),
            ("%n", asked.host.as_str()),
            ("%p", port_text.as_str()),
            ("%r", user.as_str()),
            ("%u", local_user.as_deref().unwrap_or_default()),
        ];
        let usual = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let own = settings.known_hosts.clone();
        let own = own.unwrap_or_else(|| usual(&["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]));
        let global = settings.global_known_hosts.clone();
        let global =
            global.unwrap_or_else(|| usual(&["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]));
        let known_hosts_file =
            own.first().filter(|name| is_file(name)).map(|name| self.expand(name, &tokens));
        let mut known = Vec::new();
        for name in own.iter().chain(&global).filter(|name| is_file(name)) {
            let path = self.expand(name, &tokens);
            if let Some(contents) = self.file(&path)? {
                known.push((path, contents.text.to_string()));
            }
        }
        let name = match &settings.host_key_alias {
            Some(alias) => alias.to_ascii_lowercase(),
            None => name_of(&host, port),
        };
        let keys = self.keys(settings, &tokens);
        Ok(Route { user, host, port, name, known_hosts_file, known: KnownHosts::new(known), keys })
    }

    fn keys(&self, settings: &Settings, tokens: &[(&str, &str)]) -> Keys {
        let socket = match settings.identity_agent.as_deref() {
            Some("none") => None,
            None | Some("SSH_AUTH_SOCK") => self.local.variable("SSH_AUTH_SOCK").map(PathBuf::from),
            Some(written) => match written.strip_prefix('$') {
                Some(name) if !name.starts_with('{') => self.local.variable(name).map(PathBuf::from),
                _ => Some(self.expand(written, tokens)),
            },
        };
        let agent = socket.filter(|path| !path.as_os_str().is_empty());
        let named = !settings.identity_files.is_empty();
        let written: Vec<String> = if named {
            settings.identity_files.iter().filter(|name| is_file(name)).cloned().collect()
        } else {
            USUAL_KEYS.iter().map(|name| (*name).to_owned()).collect()
        };
        let mut files: Vec<KeyFile> = Vec::new();
        for name in written.into_iter().take(MAX_KEYS) {
            let path = self.expand(&name, tokens);
            if files.iter().any(|file| file.path == path) {
                continue;
            }
            match self.key(&path) {
                Some(file) => files.push(file),
                // The usual keys may be missing; one that was named is missed.
                None if named => files.push(KeyFile::unusable(path, "there is no such file")),
                None => {}
            }
        }
        Keys { agent, only_named: settings.identities_only, files }
    }

    fn key(&self, path: &Path) -> Option<KeyFile> {
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            self.local.read(Path::new(&name)).ok().flatten().map(|contents| contents.text)
        };
        let public = beside(".pub");
        match self.local.read(path) {
            Ok(Some(contents)) if contents.open_to_others => {
                Some(KeyFile::unusable(path.to_owned(), "others may read it; close it with `chmod 600`"))
            }
            Ok(Some(contents)) => {
                let certificate = beside("-cert.pub");
                let text = |text: &Zeroizing<String>| text.to_string();
                Some(KeyFile::new(
                    path.to_owned(),
                    contents.text,
                    public.as_ref().map(text).as_deref(),
                    certificate.as_ref().map(text).as_deref(),
                ))
            }
            Err(why) => Some(KeyFile::unusable(path.to_owned(), why)),
            // Of a key that only an agent has, the public half may lie where it is named.
            Ok(None) => public.map(|text| KeyFile::public_only(path.to_owned(), &text)),
        }
    }

    fn file(&self, path: &Path) -> Result<Option<Contents>, NoRoute> {
        self.local.read(path).map_err(|why| NoRoute::File { file: path.to_owned(), why })
    }

    /// Puts in what `~`, `%d`, `${NAME}` and the other tokens stand for.
    fn expand(&self, text: &str, tokens: &[(&str, &str)]) -> PathBuf {
        let home = self.home.as_ref().map(|home| home.display().to_string()).unwrap_or_default();
        let text = match text.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => text.to_owned(),
        };
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(['%', '$']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let token = tokens.iter().find(|(token, _)| rest.starts_with(token));
            if let Some((token, value)) = token {
                out.push_str(value);
                rest = &rest[token.len()..];
            } else if let Some(behind) = rest.strip_prefix("%d") {
                out.push_str(&home);
                rest = behind;
            } else if let Some(behind) = rest.strip_prefix("%%") {
                out.push('%');
                rest = behind;
            } else if let Some((name, behind)) = rest.strip_prefix("${").and_then(|rest| rest.split_once('}'))
            {
                out.push_str(&self.local.variable(name).unwrap_or_default());
                rest = behind;
            } else {
                out.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
        out.push_str(rest);
        PathBuf::from(out)
    }
}

fn is_file(name: &str) -> bool {
    !name.eq_ignore_ascii_case("none") && name != "/dev/null"
}

/// Reads the hosts on the way that the configuration names.
fn hops(settings: &Settings, asked: &Asked) -> Result<Vec<Asked>, NoRoute> {
    if settings.proxy_command.as_ref().is_some_and(|command| !command.eq_ignore_ascii_case("none")) {
        return Err(NoRoute::Command { host: asked.host.clone() });
    }
    let Some(written) = settings.proxy_jump.as_ref().filter(|text| is_file(text)) else {
        return Ok(Vec::new());
    };
    let unreadable = || NoRoute::Unreadable { host: asked.host.clone(), text: clean(written) };
    written.split(',').map(|hop| parse_hop(hop.trim()).ok_or_else(unreadable)).collect()
}

/// Reads `[user@]host[:port]`, also as a URL.
fn parse_hop(text: &str) -> Option<Asked> {
    let text = text.strip_prefix("ssh://").unwrap_or(text);
    let (user, place) = text.rsplit_once('@').map_or((None, text), |(user, place)| (Some(user), place));
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            (host, behind.strip_prefix(':'))
        }
        None => match place.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (place, None),
        },
    };
    let port = port.map(str::parse).transpose().ok()?;
    (!host.is_empty()).then(|| Asked { host: host.to_owned(), user: user.map(str::to_owned), port })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::LazyLock};

    use super::*;
    use crate::keys::State;

    /// A computer in memory, whose user `ann` lives in `/home/ann`.
    #[derive(Default)]
    struct Memory {
        files: BTreeMap<PathBuf, (String, bool)>,
        variables: BTreeMap<String, String>,
    }

    impl Local for Memory {
        fn home(&self) -> Option<PathBuf> {
            Some("/home/ann".into())
        }

        fn user(&self) -> Option<String> {
            Some("ann".into())
        }

        fn variable(&self, name: &str) -> Option<String> {
            self.variables.get(name).cloned()
        }

        fn read(&self, path: &Path) -> Result<Option<Contents>, String> {
            let contents = |(text, open): &(String, bool)| Contents {
                text: Zeroizing::new(text.clone()),
                open_to_others: *open,
            };
            Ok(self.files.get(path).map(contents))
        }

        fn names(&self, directory: &Path) -> Vec<String> {
            let inside = self.files.keys().filter(|path| path.parent() == Some(directory));
            inside.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect()
        }
    }

    impl Memory {
        fn with(mut self, path: &str, text: &str) -> Self {
            self.files.insert(path.into(), (text.to_owned(), false));
            self
        }
    }

    fn asked(host: &str) -> Asked {
        Asked { host: host.to_owned(), user: None, port: None }
    }

    fn way(memory: &Memory, host: &str) -> Result<Vec<String>, NoRoute> {
        let shown = |route: &Route| format!("{}@{}:{}", route.user, route.host, route.port);
        Route::find(&asked(host), memory).map(|routes| routes.iter().map(shown).collect())
    }

    static KEY: LazyLock<String> = LazyLock::new(|| {
        let key = russh::keys::PrivateKey::random(
            &mut russh::keys::key::safe_rng(),
            russh::keys::Algorithm::Ed25519,
        );
        key.expect("a key").to_openssh(russh::keys::ssh_key::LineEnding::LF).expect("a text").to_string()
    });

    #[test]
    fn without_a_configuration_the_host_is_taken_at_its_word() {
        assert_eq!(way(&Memory::default(), "pve1"), Ok(vec!["ann@pve1:22".to_owned()]));
        let named = Asked { host: "pve1".into(), user: Some("root".into()), port: Some(2222) };
        let route = Route::find(&named, &Memory::default()).expect("a route").remove(0);
        assert_eq!((route.user.as_str(), route.port, route.name.as_str()), ("root", 2222, "[pve1]:2222"));
        assert_eq!(route.known_hosts_file, Some("/home/ann/.ssh/known_hosts".into()));
    }

    #[test]
    fn the_configuration_leads_over_other_hosts() {
        let memory = Memory::default().with(
            "/home/ann/.ssh/config",
            "Host inner\n HostName 10.0.0.%h\n ProxyJump edge,ops@middle:7\nHost edge\n Port 2222\n ProxyJump door\n",
        );
        assert_eq!(
            way(&memory, "inner").expect("a way"),
            ["ann@door:22", "ann@edge:2222", "ops@middle:7", "ann@10.0.0.inner:22"]
        );
        let behind = Route::find_behind(&asked("inner"), &memory).expect("a route");
        assert_eq!(behind.host, "10.0.0.inner", "who is reached already needs no detour");
    }

    #[test]
    fn circles_and_programs_are_refused() {
        let circle = Memory::default().with("/home/ann/.ssh/config", "Host *\n ProxyJump a,b\n");
        assert!(matches!(way(&circle, "a"), Err(NoRoute::TooFar(_))));
        let program = Memory::default().with("/home/ann/.ssh/config", "Host *\n ProxyCommand nc %h %p\n");
        assert_eq!(way(&program, "a"), Err(NoRoute::Command { host: "a".into() }));
        let broken = Memory::default().with("/home/ann/.ssh/config", "Host *\n ProxyJump a:b:c,[\n");
        assert!(matches!(way(&broken, "x"), Err(NoRoute::Unreadable { .. })));
    }

    #[test]
    fn included_files_count_where_they_are_included() {
        let memory = Memory::default()
            .with("/home/ann/.ssh/config", "Include conf.d/*.conf\nInclude ~/other\nHost *\n User last\n")
            .with("/home/ann/.ssh/conf.d/1.conf", "Host pve1\n User first\n")
            .with("/home/ann/.ssh/conf.d/1.conf.off", "Host pve1\n Port 1\n")
            .with("/home/ann/other", "Host pve1\n Port 7\n");
        assert_eq!(way(&memory, "pve1").expect("a way"), ["first@pve1:7"]);
        assert_eq!(way(&memory, "pve2").expect("a way"), ["last@pve2:22"]);
    }

    #[test]
    fn keys_are_the_usual_ones_or_those_that_are_named() {
        let mut memory =
            Memory::default().with("/home/ann/.ssh/id_ed25519", &KEY).with("/home/ann/k-pve1", &KEY);
        memory.variables.insert("SSH_AUTH_SOCK".into(), "/run/agent".into());
        let route = Route::find_behind(&asked("pve1"), &memory).expect("a route");
        assert_eq!(route.keys.agent, Some("/run/agent".into()));
        assert_eq!(route.keys.files.len(), 1);
        assert!(matches!(route.keys.files[0].state, State::Open(_)));

        let memory = memory.with(
            "/home/ann/.ssh/config",
            "IdentityFile %d/k-%n\nIdentityFile ~/missing\nIdentityAgent none\nIdentitiesOnly yes\n",
        );
        let route = Route::find_behind(&asked("pve1"), &memory).expect("a route");
        let paths: Vec<String> =
            route.keys.files.iter().map(|file| file.path.display().to_string()).collect();
        assert_eq!(paths, ["/home/ann/k-pve1", "/home/ann/missing"]);
        assert!(matches!(&route.keys.files[1].state, State::Unusable(why) if why.contains("no such")));
        assert!(route.keys.agent.is_none() && route.keys.only_named);
    }

    #[test]
    fn a_key_that_others_may_read_is_not_used() {
        let mut memory = Memory::default();
        memory.files.insert("/home/ann/.ssh/id_rsa".into(), (KEY.clone(), true));
        let route = Route::find_behind(&asked("pve1"), &memory).expect("a route");
        assert!(matches!(&route.keys.files[0].state, State::Unusable(why) if why.contains("chmod 600")));
    }

    #[test]
    fn keys_of_hosts_are_looked_up_in_the_named_files_under_the_named_alias() {
        let memory = Memory::default()
            .with("/home/ann/.ssh/config", "HostKeyAlias Lab\nUserKnownHostsFile ~/kh-%r\n")
            .with("/home/ann/kh-ann", "lab ssh-ed25519 AAAA\n");
        let route = Route::find_behind(&asked("pve1"), &memory).expect("a route");
        assert_eq!(route.name, "lab");
        assert_eq!(route.known_hosts_file, Some("/home/ann/kh-ann".into()));
    }
}
