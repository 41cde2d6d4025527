//! What the token may do, against what the cluster's account should have.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Code, Desired, Finding,
    observed::{Release, Rights, Sight},
};
use ichor_plan::privileges::{Account, Privilege};
use ichor_pve::api;

use super::{Check, Group, WITHIN, counted, some};
use crate::live::Live;

/// The release whose account is looked for where none was told.
const NEWEST: Release = Release { major: 9, minor: 2 };
/// Most roles that are named as those that may give too much.
const MAX_ROLES: usize = 4;

/// Most privileges that are named in one line.
const MAX_NAMED: usize = 8;

/// What the token may do.
#[derive(Debug)]
pub struct Seen {
    account: Account,
    rights: Sight<Rights>,
    /// What roles there are, as far as that was told.
    roles: BTreeMap<String, BTreeSet<String>>,
}

/// Asks what the token may do.
pub async fn see(live: &Live<'_>, offline: &Desired, release: Option<Release>) -> Seen {
    let (roles, rights) =
        tokio::join!(async { live.pve.send_within(&api::roles(), WITHIN).await }, live.see_rights());
    let release = release.unwrap_or(NEWEST);
    let roles = roles.unwrap_or_default().into_iter().map(|role| {
        let privileges = role.privileges().map(str::to_owned).collect();
        (role.roleid, privileges)
    });
    // The account was made for the inventory alone; where its hosts are chosen live, they count too.
    let account = Account::of(offline, release).with(Account::of(live.desired, release));
    Seen { account, rights, roles: roles.collect() }
}

impl Seen {
    /// Whether the token is known to lack a privilege on a path.
    pub fn lacks(&self, path: &str, privilege: &str) -> bool {
        let missing = self.rights.seen().map(|rights| self.account.missing(rights)).unwrap_or_default();
        missing.iter().any(|(at, name)| at == path && name == privilege)
    }

    /// What the token lacks.
    pub fn missing(&self) -> Check {
        const ID: &str = "privileges";
        let rights = match &self.rights {
            Sight::Seen(rights) => rights,
            Sight::Unseen(why) => return Check::unknown(ID, Group::Proxmox, why),
        };
        let missing = self.account.missing(rights);
        let says = match missing.len() {
            0 => format!("token `{}` may do all that the inventory needs", rights.who),
            count => format!("token `{}` lacks {}", rights.who, counted(count, "privilege")),
        };
        let findings = by_privileges(&missing).into_iter().map(|(privileges, paths)| {
            let about: Vec<Privilege> = paths
                .iter()
                .flat_map(|path| privileges.iter().map(|name| (path.clone(), name.clone())))
                .collect();
            let message =
                format!("token `{}` lacks {} on {}", rights.who, quoted(&privileges), quoted(&paths));
            let commands = self.account.amends(&rights.who, &about);
            Finding::error(Code::DENIED, None, message)
                .because("Proxmox would refuse what needs it")
                .remedy(format!("on a Proxmox host, run:\n{}", indented(&commands)))
        });
        Check::new(ID, Group::Proxmox, says).with(findings)
    }

    /// What the token may do and nobody needs.
    pub fn excess(&self) -> Check {
        const ID: &str = "excess";
        let Sight::Seen(rights) = &self.rights else {
            return Check::unknown(ID, Group::Proxmox, "what the token may do is not known");
        };
        let excess = topmost(self.account.excess(rights), rights);
        let says = match excess.len() {
            0 => "it may do nothing else".to_owned(),
            count => format!("it may do more than it needs: {}", counted(count, "privilege")),
        };
        let findings = by_privileges(&excess).into_iter().map(|(privileges, paths)| {
            let message = |what: String| format!("token `{}` has {what} on {}", rights.who, quoted(&paths));
            let finding = if privileges.len() > MAX_NAMED {
                let finding =
                    Finding::warning(Code::EXCESS, None, message(counted(privileges.len(), "privilege")));
                finding.because(
                    privileges.iter().map(|name| ichor_port::clean(name)).collect::<Vec<_>>().join(", "),
                )
            } else {
                Finding::warning(Code::EXCESS, None, message(quoted(&privileges)))
            };
            finding
                .because(
                    "nothing that the inventory needs asks for it, and whoever steals the token has it too",
                )
                .remedy(self.take_away(rights, &privileges, &paths))
        });
        Check::new(ID, Group::Proxmox, says).with(findings)
    }

    /// A role of ours that has grown is put right; otherwise somebody gave a role that is not ours.
    fn take_away(&self, rights: &Rights, privileges: &[String], paths: &[String]) -> String {
        let grown: Vec<&String> = self.account.roles.keys().filter(|role| self.has_grown(role)).collect();
        let ours: BTreeSet<&String> =
            paths.iter().filter_map(|path| self.account.grants.get(path)).flatten().collect();
        let to_mend: Vec<String> = grown
            .into_iter()
            .filter(|role| ours.contains(role) && self.holds(role, privileges))
            .map(|role| self.account.role_command(role))
            .collect();
        if !to_mend.is_empty() {
            return format!("on a Proxmox host, give the role what it should have:\n{}", indented(&to_mend));
        }
        if !self.roles.is_empty() && !self.account.roles.keys().any(|role| self.roles.contains_key(role)) {
            return "give the cluster an account of its own, which may do what it needs and nothing else:\n    ichor pve setup".into();
        }
        let user = rights.who.split('!').next().unwrap_or(&rights.who);
        let take = |path: &String| {
            format!("pveum acl delete {path} --users {user} --tokens '{}' --roles ROLE", rights.who)
        };
        // Paths come from a server, and the commands go into a shell.
        let plain = paths.iter().filter(|path| is_path(path));
        let commands: Vec<String> =
            std::iter::once("pveum acl list".to_owned()).chain(plain.map(take)).collect();
        let candidates: Vec<String> = self
            .roles
            .keys()
            .filter(|role| !self.account.roles.contains_key(*role) && self.holds(role, privileges))
            .take(MAX_ROLES)
            .map(|role| format!("`{}`", ichor_port::clean(role)))
            .collect();
        let such =
            if candidates.is_empty() { String::new() } else { format!(", such as {}", some(&candidates)) };
        format!(
            "on a Proxmox host, see which role gives it{such}, and take that away:\n{}",
            indented(&commands)
        )
    }

    fn holds(&self, role: &str, privileges: &[String]) -> bool {
        let has = self.roles.get(role);
        has.is_some_and(|has| privileges.iter().all(|privilege| has.contains(privilege)))
    }

    fn has_grown(&self, role: &str) -> bool {
        let (Some(is), Some(should)) = (self.roles.get(role), self.account.roles.get(role)) else {
            return false;
        };
        is.iter().any(|privilege| !should.contains(privilege.as_str()))
    }
}

/// Leaves out what a path has only because one above it has it.
fn topmost(excess: Vec<Privilege>, rights: &Rights) -> Vec<Privilege> {
    let all: BTreeSet<Privilege> = excess.iter().cloned().collect();
    let inherits = |path: &str, privilege: &str| {
        let passes_on = |above: &String| {
            let below = above == "/" || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
            let has = rights.paths.get(above).and_then(|here| here.get(privilege)) == Some(&true);
            below && above != path && has && all.contains(&(above.clone(), privilege.to_owned()))
        };
        rights.paths.keys().any(passes_on)
    };
    excess.into_iter().filter(|(path, privilege)| !inherits(path, privilege)).collect()
}

/// Puts together what is about the same paths: each with its privileges.
fn by_privileges(list: &[Privilege]) -> Vec<(Vec<String>, Vec<String>)> {
    let mut by_path: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (path, privilege) in list {
        by_path.entry(path).or_default().insert(privilege);
    }
    let mut together: BTreeMap<BTreeSet<&String>, Vec<String>> = BTreeMap::new();
    for (path, privileges) in by_path {
        together.entry(privileges).or_default().push(path.clone());
    }
    together
        .into_iter()
        .map(|(privileges, paths)| (privileges.into_iter().cloned().collect(), paths))
        .collect()
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("`{}`", ichor_port::clean(word))).collect::<Vec<_>>().join(", ")
}

/// Whether a text is the path of an object, and nothing that a shell would read in a way of its own.
fn is_path(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._:-".contains(&byte);
    text.starts_with('/') && text.bytes().all(plain)
}

fn indented(commands: &[String]) -> String {
    commands.iter().map(|command| format!("    {command}")).collect::<Vec<_>>().join("\n")
}
