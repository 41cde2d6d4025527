//! What `ssh_config` says about a host, as far as ichor goes by it.
//!
//! `Host` blocks, and `Match` blocks by `all`, `host`, `originalhost` and `user`, are read; a block with any other
//! criterion is passed over. The first value of a keyword counts, except that identity files add up.

/// How deep files may include one another.
const MAX_DEPTH: usize = 8;
/// Most lines of all files together.
const MAX_LINES: usize = 20_000;

/// What is configured for one host. Texts are as they are written: `~` and tokens are not expanded yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The real name or address.
    pub host_name: Option<String>,
    /// As whom to log in.
    pub user: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// Private keys.
    pub identity_files: Vec<String>,
    /// Whether only those keys are offered, and not all that an agent has.
    pub identities_only: bool,
    /// The agent's socket; `none` for no agent.
    pub identity_agent: Option<String>,
    /// The name under which the host's key is known.
    pub host_key_alias: Option<String>,
    /// Files with keys of hosts.
    pub known_hosts: Option<Vec<String>>,
    /// Files with keys of hosts, of this computer.
    pub global_known_hosts: Option<Vec<String>>,
    /// Hosts on the way; `none` for none.
    pub proxy_jump: Option<String>,
    /// A program that makes the connection.
    pub proxy_command: Option<String>,
}

/// Reads the files that an `Include` names.
pub type Include<'a> = dyn Fn(&str) -> Vec<String> + 'a;

/// A file of the configuration, with what reads the files that it includes.
pub type Source<'a> = (String, Box<Include<'a>>);

/// Reads what is configured for a host, in the files in their order.
pub fn settings(files: &[Source<'_>], host: &str, user: Option<&str>) -> Settings {
    let settings = Settings { user: user.map(str::to_owned), ..Settings::default() };
    let mut reader = Reader { host, settings, only: None, lines: 0 };
    for (text, include) in files {
        reader.read(text, include, 0);
    }
    reader.settings.identities_only = reader.only.unwrap_or_default();
    reader.settings
}

struct Reader<'a> {
    host: &'a str,
    settings: Settings,
    only: Option<bool>,
    lines: usize,
}

impl Reader<'_> {
    /// Reads a file that applies as a whole, until its first block.
    fn read(&mut self, text: &str, include: &Include<'_>, depth: usize) {
        let mut applies = true;
        for line in text.lines() {
            self.lines += 1;
            if self.lines > MAX_LINES {
                return;
            }
            let Some((keyword, values)) = words(line) else { continue };
            match keyword.as_str() {
                "host" => applies = matches(&values, self.host),
                "match" => applies = self.is_match(&values),
                "include" if applies && depth < MAX_DEPTH => {
                    for pattern in &values {
                        for text in include(pattern) {
                            self.read(&text, include, depth + 1);
                        }
                    }
                }
                keyword if applies => self.set(keyword, &values),
                _ => {}
            }
        }
    }

    fn is_match(&self, criteria: &[String]) -> bool {
        if let [all] = criteria
            && all.eq_ignore_ascii_case("all")
        {
            return true;
        }
        let real = self.settings.host_name.as_deref().unwrap_or(self.host);
        !criteria.is_empty()
            && criteria.chunks(2).all(|pair| {
                let [criterion, patterns] = pair else { return false };
                let patterns: Vec<String> = patterns.split(',').map(str::to_owned).collect();
                match criterion.to_ascii_lowercase().as_str() {
                    "host" => matches(&patterns, real),
                    "originalhost" => matches(&patterns, self.host),
                    "user" => self.settings.user.as_ref().is_some_and(|user| matches(&patterns, user)),
                    _ => false,
                }
            })
    }

    fn set(&mut self, keyword: &str, values: &[String]) {
        let Some(first) = values.first() else { return };
        let settings = &mut self.settings;
        match keyword {
            "hostname" => once(&mut settings.host_name, first),
            "user" => once(&mut settings.user, first),
            "port" => {
                let port = first.parse().ok().filter(|port| *port != 0);
                settings.port = settings.port.or(port);
            }
            "identityfile" => settings.identity_files.push(first.clone()),
            "identitiesonly" => {
                self.only.get_or_insert(first.eq_ignore_ascii_case("yes"));
            }
            "identityagent" => once(&mut settings.identity_agent, first),
            "hostkeyalias" => once(&mut settings.host_key_alias, first),
            "userknownhostsfile" => {
                settings.known_hosts.get_or_insert_with(|| values.to_vec());
            }
            "globalknownhostsfile" => {
                settings.global_known_hosts.get_or_insert_with(|| values.to_vec());
            }
            // Whichever of the two stands first counts.
            "proxyjump" if settings.proxy_command.is_none() => once(&mut settings.proxy_jump, first),
            "proxycommand" if settings.proxy_jump.is_none() => {
                once(&mut settings.proxy_command, &values.join(" "));
            }
            _ => {}
        }
    }
}

fn once(setting: &mut Option<String>, value: &str) {
    setting.get_or_insert_with(|| value.to_owned());
}

/// Splits a line into its keyword, in small letters, and its values.
fn words(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| c.is_whitespace() || c == '=')?;
    let (keyword, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    let mut values = Vec::new();
    let mut rest = rest.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (value, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        values.push(value.to_owned());
        rest = behind.trim_start();
    }
    Some((keyword.to_ascii_lowercase(), values))
}

/// Whether a list of patterns fits a name: one of them does, and none that is negated.
pub(crate) fn matches(patterns: &[String], name: &str) -> bool {
    let fits = |pattern: &str| glob(pattern, name);
    let negated = patterns.iter().filter_map(|pattern| pattern.strip_prefix('!'));
    let mut plain = patterns.iter().filter(|pattern| !pattern.starts_with('!'));
    !negated.into_iter().any(fits) && plain.any(|pattern| fits(pattern))
}

/// Whether a pattern with `*` and `?` fits a name, whatever the case of its letters.
pub fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Where the last `*` stood, and how much of the name it has taken: only the last one is ever tried again,
    // so a hostile pattern costs no more than the product of both lengths.
    let (mut at, mut taken, mut star) = (0, 0, None);
    while taken < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, taken));
                at += 1;
            }
            Some(&letter) if letter == b'?' || letter == name[taken] => {
                at += 1;
                taken += 1;
            }
            _ => match star {
                Some((back, from)) => {
                    star = Some((back, from + 1));
                    (at, taken) = (back + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
# Comments and blank lines
Host edge
    HostName = edge.example
    User ops
    Port 2222
    IdentityFile ~/.ssh/edge   # with a comment
    IdentityFile "~/.ssh/with space"
    IdentitiesOnly yes

Host pve* !pve9
    User root
    ProxyJump edge,inner
    UserKnownHostsFile ~/.ssh/a ~/.ssh/b
Match originalhost pve1 user root
    HostKeyAlias one
Match exec "true"
    Port 1
Match host 10.0.0.*
    Port 7
Host *
    User nobody
    IdentityFile ~/.ssh/all
    Include more
"#;

    fn of(host: &str) -> Settings {
        let include =
            |name: &str| vec![format!("Port 9\nHost edge\nHostKeyAlias {name}\n"), "Include more".into()];
        settings(&[(CONFIG.to_owned(), Box::new(include))], host, None)
    }

    #[test]
    fn the_first_value_counts_and_identities_add_up() {
        let edge = of("edge");
        assert_eq!(edge.host_name.as_deref(), Some("edge.example"));
        assert_eq!((edge.user.as_deref(), edge.port), (Some("ops"), Some(2222)));
        assert_eq!(edge.identity_files, ["~/.ssh/edge", "~/.ssh/with space", "~/.ssh/all"]);
        assert!(edge.identities_only);
        assert_eq!(edge.host_key_alias.as_deref(), Some("more"));
    }

    #[test]
    fn blocks_apply_to_their_hosts_alone() {
        let pve = of("pve1");
        assert_eq!(pve.user.as_deref(), Some("root"));
        assert_eq!(pve.proxy_jump.as_deref(), Some("edge,inner"));
        assert_eq!(pve.known_hosts, Some(vec!["~/.ssh/a".to_owned(), "~/.ssh/b".to_owned()]));
        assert_eq!(pve.host_key_alias.as_deref(), Some("one"));
        assert_eq!(pve.port, Some(9), "neither the block by a command nor that of another host");
        let other = of("pve9");
        assert_eq!((other.user.as_deref(), other.proxy_jump), (Some("nobody"), None));
        assert_eq!(of("10.0.0.7").port, Some(7));
    }

    #[test]
    fn a_user_that_was_named_counts_before_the_file() {
        let files: [Source<'_>; 1] = [(CONFIG.to_owned(), Box::new(|_: &str| Vec::new()))];
        assert_eq!(settings(&files, "edge", Some("ann")).user.as_deref(), Some("ann"));
    }

    #[test]
    fn files_that_include_themselves_come_to_an_end() {
        let text = "Include me me me";
        let read = std::cell::Cell::new(0_usize);
        let include = |_: &str| {
            read.set(read.get() + 1);
            vec![text.to_owned()]
        };
        settings(&[(text.to_owned(), Box::new(include))], "host", None);
        assert!(read.get() < 10_000, "{}", read.get());
    }

    #[test]
    fn patterns_have_stars_and_question_marks() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("*.example", "pve1.EXAMPLE", true),
            ("pve?", "pve1", true),
            ("pve?", "pve", false),
            ("p*e*1", "prefix-e-11", true),
            ("p*e*1", "prefix-e-12", false),
            ("10.0.0.*", "10.0.0.1", true),
            ("", "a", false),
        ] {
            assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
        }
        let many = "*a".repeat(2_000);
        assert!(!glob(&many, &"b".repeat(20_000)));
    }
}
