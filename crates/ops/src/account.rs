//! `ichor pve setup`: makes the account that a cluster is run with, over the API and as an administrator.
//!
//! 1. [`log_in`]: once, with a password; the ticket is never kept;
//! 2. [`Found`]: what is there of the account;
//! 3. [`Wanted::changes`]: what is to be done about it. Pure; nothing: the account is as it should be;
//! 4. [`Change::make`]: one change. A token comes before its rights, and its secret is kept before anything else
//!    happens: a token whose secret was lost on the way may do nothing;
//! 5. [`tokens`]: the secret, encrypted, where the inventory finds it.
//!
//! Stopped anywhere, the next run finds what is there and goes on.

pub mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use ichor_model::{Code, Finding};
use ichor_plan::privileges::Account;
use ichor_port::Secret;
use ichor_pve::{
    Error, Kind, Ticket,
    api::{self, AclRow, Challenge, Grantee, NewToken},
};

use self::tokens::Place;
use crate::{Halt, halt::only, live::Pve};

/// What is written beside users, tokens and pools that are made.
const COMMENT: &str = "made by ichor";

/// An account as it should be.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its roles, and where they are given.
    pub account: Account,
    /// The user, with its realm.
    pub user: String,
    /// The name of the token.
    pub token: String,
}

/// What is there of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    roles: BTreeMap<String, BTreeSet<String>>,
    has_user: bool,
    /// Whether the token is there, and has rights of its own.
    token: Option<bool>,
    acl: BTreeSet<AclRow>,
    pools: BTreeSet<String>,
}

/// Something that is to be done about an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Makes a role.
    AddRole {
        /// Its name.
        role: String,
        /// Its privileges, joined by commas.
        privileges: String,
    },
    /// Gives a role other privileges.
    SetRole {
        /// Its name.
        role: String,
        /// Its privileges, joined by commas.
        privileges: String,
        /// What it has now and will not have any more.
        loses: Vec<String>,
        /// What it will have besides.
        gains: Vec<String>,
    },
    /// Makes the pool.
    AddPool(String),
    /// Makes the user.
    AddUser(String),
    /// Makes the token.
    AddToken,
    /// Deletes the token, whose secret nobody here knows, and makes it anew.
    ReplaceToken,
    /// Gives the token rights of its own, in place of its user's.
    SeparateToken,
    /// Gives somebody roles on a path.
    Grant {
        /// The path.
        path: String,
        /// Who.
        who: Who,
        /// The roles, joined by commas.
        roles: String,
    },
    /// Takes a role on a path away from somebody.
    Revoke {
        /// The path.
        path: String,
        /// Who.
        who: Who,
        /// The role.
        role: String,
    },
}

/// Somebody who has rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The user of the account.
    User(String),
    /// Its token, by its whole name.
    Token(String),
}

impl Who {
    fn grantee(&self) -> Grantee<'_> {
        match self {
            Self::User(name) => Grantee::User(name),
            Self::Token(name) => Grantee::Token(name),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Token(_) => "token",
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::Token(name) => name,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind(), self.name())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddRole { role, privileges } => write!(f, "make role `{role}` with {privileges}"),
            Self::SetRole { role, loses, gains, .. } => {
                let part = |word: &str, list: &[String]| match list {
                    [] => String::new(),
                    list => format!(" {word} {}", list.join(",")),
                };
                write!(f, "change role `{role}`:{}{}", part("give", gains), part("take away", loses))
            }
            Self::AddPool(pool) => write!(f, "make pool `{pool}`"),
            Self::AddUser(user) => write!(f, "make user `{user}`, without a password"),
            Self::AddToken => f.write_str("make the token, with rights of its own"),
            Self::ReplaceToken => f.write_str(
                "delete the token, whose secret is not known here, and make it anew: whoever uses it is locked out",
            ),
            Self::SeparateToken => f.write_str("give the token rights of its own, in place of its user's"),
            Self::Grant { path, who, roles } => write!(f, "give {who} {roles} on {path}"),
            Self::Revoke { path, who, role } => write!(f, "take {role} on {path} away from {who}"),
        }
    }
}

impl Wanted {
    /// Returns the whole name of the token.
    pub fn id(&self) -> String {
        format!("{}!{}", self.user, self.token)
    }

    /// Says what is to be done. `has_secret`: whether the token's secret is known here.
    pub fn changes(&self, found: &Found, has_secret: bool) -> Vec<Change> {
        let mut changes: Vec<Change> = self.role_changes(found).collect();
        let pool = self.account.pool.iter().filter(|pool| !found.pools.contains(*pool));
        changes.extend(pool.cloned().map(Change::AddPool));
        if !found.has_user {
            changes.push(Change::AddUser(self.user.clone()));
        }
        let replaced = match found.token {
            None => {
                changes.push(Change::AddToken);
                true
            }
            Some(_) if !has_secret => {
                changes.push(Change::ReplaceToken);
                true
            }
            Some(false) => {
                changes.push(Change::SeparateToken);
                false
            }
            Some(true) => false,
        };
        changes.extend(self.acl_changes(found, &Who::User(self.user.clone())));
        // With a token goes what the list says about it.
        let without = Found { acl: BTreeSet::new(), ..found.clone() };
        let of_token = if replaced { &without } else { found };
        changes.extend(self.acl_changes(of_token, &Who::Token(self.id())));
        changes
    }

    /// Says what the user would lose: an entry on a path replaces what is inherited there from above, and other tokens
    /// of the user may live on that.
    pub fn narrowed(&self, found: &Found) -> Option<Finding> {
        let foreign = |row: &&AclRow| {
            let of_user = row.kind == "user" && row.ugid == self.user && row.propagate == 1;
            of_user && !row.roleid.starts_with("ichor-")
        };
        let below = |row: &&AclRow| {
            self.account.grants.keys().any(|path| {
                row.path != *path
                    && (row.path == "/"
                        || path.strip_prefix(&row.path).is_some_and(|rest| rest.starts_with('/')))
            })
        };
        let row = found.acl.iter().filter(foreign).find(below)?;
        let (role, path) = (ichor_port::clean(&row.roleid), ichor_port::clean(&row.path));
        let message =
            format!("user `{}` has other rights, which those of the account would replace", self.user);
        Some(
            Finding::error(Code::ACCOUNT, None, message)
                .because(format!("it has role `{role}` on `{path}`, and the account's roles belong below that"))
                .because("on a deeper path Proxmox counts nothing but what is given there; other tokens of the user may need it")
                .remedy(format!("give the account a user of its own:\n    ichor pve setup --user ichor-{}@pve", self.token)),
        )
    }

    fn role_changes<'a>(&'a self, found: &'a Found) -> impl Iterator<Item = Change> + 'a {
        self.account.roles.iter().filter_map(|(role, should)| {
            let privileges = should.iter().copied().collect::<Vec<_>>().join(",");
            let Some(is) = found.roles.get(role) else {
                return Some(Change::AddRole { role: role.clone(), privileges });
            };
            let loses: Vec<String> =
                is.iter().filter(|name| !should.contains(name.as_str())).cloned().collect();
            let gains: Vec<String> =
                should.iter().filter(|name| !is.contains(**name)).map(ToString::to_string).collect();
            let same = loses.is_empty() && gains.is_empty();
            (!same).then(|| Change::SetRole { role: role.clone(), privileges, loses, gains })
        })
    }

    /// What somebody has beside the account goes: all of a token, which is the account's alone, and of a user, which
    /// may have other clusters' roles too, only what roles of this cluster give it.
    fn acl_changes(&self, found: &Found, who: &Who) -> Vec<Change> {
        let is_about = |row: &&AclRow| row.kind == who.kind() && row.ugid == who.name();
        let mut changes = Vec::new();
        for (path, roles) in &self.account.grants {
            let has = |role: &&String| {
                let mut rows = found.acl.iter().filter(is_about);
                rows.any(|row| row.path == *path && row.roleid == **role && row.propagate == 1)
            };
            let missing: Vec<&str> = roles.iter().filter(|role| !has(role)).map(String::as_str).collect();
            if !missing.is_empty() {
                changes.push(Change::Grant {
                    path: path.clone(),
                    who: who.clone(),
                    roles: missing.join(","),
                });
            }
        }
        for row in found.acl.iter().filter(is_about) {
            let wanted = self.account.grants.get(&row.path).is_some_and(|roles| roles.contains(&row.roleid));
            let ours = matches!(who, Who::Token(_)) || self.account.is_own(&row.roleid);
            if !wanted && ours {
                let (path, role) = (row.path.clone(), row.roleid.clone());
                changes.push(Change::Revoke { path, who: who.clone(), role });
            }
        }
        changes
    }
}

impl Found {
    /// Looks at what is there of an account.
    pub async fn look(pve: &Pve, wanted: &Wanted) -> Result<Self, Error> {
        let (roles, users, acl, pools) = (api::roles(), api::users(), api::acl(), api::pools());
        let (roles, users, acl, pools) = Box::pin(async {
            tokio::join!(pve.send(&roles), pve.send(&users), pve.send(&acl), pve.send(&pools))
        })
        .await;
        let roles = roles?.into_iter().map(|role| {
            let privileges = role.privileges().map(str::to_owned).collect();
            (role.roleid, privileges)
        });
        let user = users?.into_iter().find(|user| user.userid == wanted.user);
        let mut tokens = user.iter().flat_map(|user| user.tokens.iter().flatten());
        let token = tokens.find(|token| token.tokenid == wanted.token).map(|token| token.privsep == 1);
        Ok(Self {
            roles: roles.collect(),
            has_user: user.is_some(),
            token,
            acl: acl?.into_iter().collect(),
            pools: pools?.into_iter().map(|pool| pool.poolid).collect(),
        })
    }
}

impl Change {
    /// Makes the change; a new token is returned.
    pub async fn make(&self, pve: &Pve, wanted: &Wanted) -> Result<Option<NewToken>, Error> {
        let (user, token) = (&wanted.user, &wanted.token);
        match self {
            Self::AddRole { role, privileges } => pve.send(&api::create_role(role, privileges)).await?,
            Self::SetRole { role, privileges, .. } => pve.send(&api::set_role(role, privileges)).await?,
            Self::AddPool(pool) => pve.send(&api::create_pool(pool, COMMENT)).await?,
            Self::AddUser(user) => pve.send(&api::create_user(user, COMMENT)).await?,
            Self::AddToken => return pve.send(&api::create_token(user, token, COMMENT)).await.map(Some),
            Self::ReplaceToken => {
                match pve.send(&api::delete_token(user, token)).await {
                    // An earlier run came as far as this.
                    Err(error) if error.refusal() == Some(Kind::Missing) => {}
                    deleted => deleted?,
                }
                return pve.send(&api::create_token(user, token, COMMENT)).await.map(Some);
            }
            Self::SeparateToken => drop(pve.send(&api::separate_token(user, token)).await?),
            Self::Grant { path, who, roles } => pve.send(&api::grant(path, who.grantee(), roles)).await?,
            Self::Revoke { path, who, role } => pve.send(&api::revoke(path, who.grantee(), role)).await?,
        }
        Ok(None)
    }
}

/// How far a login has come.
#[derive(Debug)]
pub enum Entry {
    /// All the way.
    Open(Box<Pve>),
    /// A code is missing.
    Half(Box<Pve>, Challenge),
}

/// Logs in with a password.
pub async fn log_in(pve: Pve, user: &str, password: &Secret) -> Result<Entry, Halt> {
    let row = match pve.send(&api::log_in(user, password)).await {
        Ok(row) => row,
        Err(error) => return Err(Halt::preflight(only(not_let_in(user, &error)))),
    };
    if let Some(ticket) = Ticket::of(user, &row) {
        return Ok(Entry::Open(Box::new(pve.logged_in(ticket))));
    }
    match Challenge::of(&row) {
        Some(challenge) if challenge.takes_codes => Ok(Entry::Half(Box::new(pve), challenge)),
        _ => Err(Halt::preflight(only(second_factor(user)))),
    }
}

/// Goes on with a code.
pub async fn go_on(pve: Pve, user: &str, challenge: &Challenge, code: &Secret) -> Result<Pve, Halt> {
    let row = match pve.send(&api::second_factor(user, challenge, code)).await {
        Ok(row) => row,
        Err(Error::Refused(_)) => return Err(Halt::preflight(only(wrong_code(user)))),
        Err(error) => return Err(Halt::preflight(only(not_let_in(user, &error)))),
    };
    match Ticket::of(user, &row) {
        Some(ticket) => Ok(pve.logged_in(ticket)),
        None => Err(Halt::preflight(only(wrong_code(user)))),
    }
}

const BY_HAND: &str = "    ichor pve role";

fn not_let_in(user: &str, error: &Error) -> Finding {
    use ichor_port::TransportError;
    match error {
        Error::Refused(_) => Finding::error(Code::LOGIN, None, format!("Proxmox does not let `{user}` in"))
            .because(error.to_string())
            .remedy(format!(
                "check the user with its realm (`--admin`) and the password; or make the account in the shell of a host, as these commands say:\n{BY_HAND}"
            )),
        Error::Transport(TransportError::NotTrusted(why)) => {
            Finding::error(Code::UNTRUSTED, None, "Proxmox is not the one that it should be; no password was sent")
                .because(why)
                .remedy("compare the fingerprint with what the host says, and write the right one as `proxmox.tls.sha256`")
        }
        _ => Finding::error(Code::UNREACHABLE, None, "Proxmox gives no answer")
            .because(error.to_string())
            .remedy("check `proxmox.endpoint`, and whether it is reached from here"),
    }
}

fn second_factor(user: &str) -> Finding {
    Finding::error(Code::LOGIN, None, format!("`{user}` needs a second factor to log in"))
        .because("ichor knows passwords and the codes of authenticator apps (TOTP), and this is another one")
        .remedy(format!(
            "log in as an administrator without one (`--admin`), or make the account in the shell of a host, as these commands say:\n{BY_HAND}"
        ))
}

fn wrong_code(user: &str) -> Finding {
    Finding::error(Code::LOGIN, None, format!("Proxmox does not take the code of `{user}`"))
        .because("a code is good for half a minute, and some tries that fail lock the second factor")
        .remedy("run the same command again with the code that the app shows then; see also that its clock is right")
}

/// Says that a code is needed, and nobody is there to ask.
pub fn no_code(user: &str) -> Finding {
    Finding::error(Code::LOGIN, None, format!("`{user}` needs a code besides the password"))
        .because("there is no terminal to ask at, and no code was given")
        .remedy("write the code to a file that only you can read, and name that:\n    ichor pve setup --totp-file FILE")
}

/// Says that Proxmox did not do something.
pub fn refused(what: &str, error: &Error) -> Finding {
    let finding =
        Finding::error(Code::ACCOUNT, None, format!("Proxmox did not {what}")).because(error.to_string());
    match error.refusal() {
        Some(Kind::Forbidden) => finding.remedy("log in as somebody who may change users, roles and rights, such as\n    ichor pve setup --admin root@pam"),
        _ => finding.remedy("what was done so far stays; see to the reason, and run the same command again"),
    }
}

/// Says that a token is there whose secret nobody here knows.
pub fn secret_lost(wanted: &Wanted, place: &str) -> Finding {
    let message = format!("token `{}` is there, and its secret is not known here", wanted.id());
    Finding::error(Code::ACCOUNT, None, message)
        .because(format!("looked for it in `{place}`; Proxmox tells it once, when a token is made"))
        .because("a new one locks out whoever uses the token now")
        .remedy("bring the secret here, or let the token be made anew:\n    ichor pve setup --new-token")
}

/// Says that the secret of a new token would go where that of another one is.
pub fn another_kept(wanted: &Wanted, kept: Option<&str>, place: &Place) -> Finding {
    let whose = match kept {
        Some(id) => format!("token `{}` is kept", ichor_port::clean(id)),
        None => "something that is no token is kept".to_owned(),
    };
    let Place { name, key, .. } = place;
    let message = format!("{whose} where `{}` would go: `{key}` of `{name}`", wanted.id());
    let own = kept.and_then(|id| id.split_once('!'));
    let stay = own.map_or_else(String::new, |(user, token)| {
        format!("go on with the one that is there:\n    ichor pve setup --user {user} --token {token}\n")
    });
    Finding::error(Code::ACCOUNT, None, message)
        .because("Proxmox tells the secret of a token once; whoever writes over it has it no more")
        .because("nothing was changed, here or on Proxmox")
        .remedy(format!(
            "{stay}keep the new one in a file of its own:\n    ichor pve setup --into FILE\nor put it in the place of the old one:\n    ichor pve setup --replace-token"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ichor_model::observed::Release;

    fn wanted() -> Wanted {
        let account = Account::of_csi(crate::tests::lab());
        Wanted { account, user: "csi@pve".into(), token: "lab".into() }
    }

    fn done(wanted: &Wanted) -> Found {
        let rows = wanted.account.grants.iter().flat_map(|(path, roles)| {
            roles.iter().flat_map(move |role| {
                [("user", wanted.user.clone()), ("token", wanted.id())].map(|(kind, ugid)| AclRow {
                    path: path.clone(),
                    kind: kind.into(),
                    ugid,
                    roleid: role.clone(),
                    propagate: 1,
                })
            })
        });
        let roles =
            wanted.account.roles.iter().map(|(role, privileges)| {
                (role.clone(), privileges.iter().map(ToString::to_string).collect())
            });
        Found {
            roles: roles.collect(),
            has_user: true,
            token: Some(true),
            acl: rows.collect(),
            pools: BTreeSet::new(),
        }
    }

    fn shown(changes: &[Change]) -> String {
        changes.iter().map(|change| format!("{change}\n")).collect()
    }

    #[test]
    fn from_nothing_everything_is_made_in_an_order_that_works() {
        insta::assert_snapshot!(shown(&wanted().changes(&Found::default(), false)), @"
        make role `ichor-lab-csi` with Datastore.Allocate,Datastore.AllocateSpace,Datastore.Audit,VM.Audit,VM.Config.Disk
        make user `csi@pve`, without a password
        make the token, with rights of its own
        give user `csi@pve` ichor-lab-csi on /
        give token `csi@pve!lab` ichor-lab-csi on /
        ");
    }

    #[test]
    fn an_account_that_is_right_is_left_alone() {
        let wanted = wanted();
        assert_eq!(wanted.changes(&done(&wanted), true), []);
    }

    #[test]
    fn a_lost_secret_costs_the_token_and_its_rights() {
        let wanted = wanted();
        insta::assert_snapshot!(shown(&wanted.changes(&done(&wanted), false)), @"
        delete the token, whose secret is not known here, and make it anew: whoever uses it is locked out
        give token `csi@pve!lab` ichor-lab-csi on /
        ");
    }

    #[test]
    fn what_has_grown_is_cut_back_and_others_keep_theirs() {
        let wanted = wanted();
        let mut found = done(&wanted);
        found.roles.get_mut("ichor-lab-csi").expect("a role").insert("Sys.Modify".into());
        found.roles.get_mut("ichor-lab-csi").expect("a role").remove("VM.Audit");
        found.token = Some(false);
        let row = |kind: &str, ugid: &str, role: &str| AclRow {
            path: "/vms".into(),
            kind: kind.into(),
            ugid: ugid.into(),
            roleid: role.into(),
            propagate: 1,
        };
        found.acl.extend([
            row("token", "csi@pve!lab", "Administrator"),
            row("user", "csi@pve", "ichor-other-csi"),
            row("user", "csi@pve", "ichor-lab-two-csi"),
            row("user", "csi@pve", "ichor-lab-disks"),
            row("user", "csi@pve", "ichor-lab-csi"),
        ]);
        insta::assert_snapshot!(shown(&wanted.changes(&found, true)), @"
        change role `ichor-lab-csi`: give VM.Audit take away Sys.Modify
        give the token rights of its own, in place of its user's
        take ichor-lab-csi on /vms away from user `csi@pve`
        take Administrator on /vms away from token `csi@pve!lab`
        ");
    }

    #[test]
    fn rights_of_others_are_not_narrowed() {
        let mut wanted = wanted();
        wanted.account = Account::of(crate::tests::lab(), Release { major: 9, minor: 2 });
        let row = |ugid: &str, path: &str, role: &str| AclRow {
            path: path.into(),
            kind: "user".into(),
            ugid: ugid.into(),
            roleid: role.into(),
            propagate: 1,
        };
        let narrowed = |row: AclRow| {
            wanted
                .narrowed(&Found { acl: [row].into(), ..Found::default() })
                .map(|finding| finding.notes[0].clone())
        };
        assert_eq!(
            narrowed(row("csi@pve", "/", "Administrator")).as_deref(),
            Some("it has role `Administrator` on `/`, and the account's roles belong below that")
        );
        assert!(narrowed(row("csi@pve", "/storage", "PVEDatastoreUser")).is_some());
        assert_eq!(narrowed(row("csi@pve", "/vms", "PVEVMAdmin")), None, "roles on one path are added up");
        assert_eq!(narrowed(row("csi@pve", "/", "ichor-other-csi")), None);
        assert_eq!(narrowed(row("root@pam", "/", "Administrator")), None);
    }

    #[test]
    fn the_controller_manager_asks_agents_where_there_is_a_privilege_for_it() {
        let privileges = |major, minor| {
            let account = Account::of_ccm(crate::tests::lab(), Release { major, minor });
            account.roles["ichor-lab-ccm"].iter().copied().collect::<Vec<_>>().join(",")
        };
        assert_eq!(privileges(9, 0), "Sys.Audit,VM.Audit,VM.GuestAgent.Audit");
        assert_eq!(privileges(8, 4), "Sys.Audit,VM.Audit");
    }
}
