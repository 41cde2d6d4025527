//! Users, groups, roles, tokens, ACLs and pools, and what they let whom do.
//!
//! A role on a deeper path replaces what was inherited; a user's own entry beats that of its groups; `NoAccess`
//! wins; the roles that somebody has on a pool are merged into the pool's members; a separated token has what
//! both it and its owner have.

mod acl;
mod check;
mod domains;
mod login;
mod permissions;
mod roles;
mod tokens;
mod users;

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

pub use self::{
    check::{Check, Rule},
    login::{Login, authenticate, ticket},
    roles::{all_privileges, built_in},
    users::lock_config,
};
use crate::{
    clock::Time,
    pve::{ApiError, Datacentre, Release, Route},
};

/// The endpoints below `/access`.
pub fn routes() -> Vec<Route> {
    let mut routes = users::routes();
    routes.extend(tokens::routes());
    routes.extend(roles::routes());
    routes.extend(acl::routes());
    routes.extend(domains::routes());
    routes.extend(permissions::routes());
    routes.extend(login::routes());
    routes
}

/// Who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The acting identity: `user@realm` or `user@realm!token`; empty when nobody logged in.
    pub id: String,
    /// Whether a token calls.
    pub token: bool,
}

impl Caller {
    /// Returns whether `root@pam` itself calls with a ticket: no token is root.
    pub fn is_root(&self) -> bool {
        self.id == ROOT
    }

    /// Returns the user, without the token.
    pub fn user(&self) -> &str {
        user_of(&self.id)
    }
}

/// The user who may do everything.
pub const ROOT: &str = "root@pam";

/// Returns the user of a user or token id.
pub fn user_of(id: &str) -> &str {
    id.split('!').next().unwrap_or_default()
}

/// What stands in `user.cfg`, with passwords and keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Users by id.
    pub users: BTreeMap<String, User>,
    /// Groups by name.
    pub groups: BTreeMap<String, Group>,
    /// Roles that are not built in, by name.
    pub roles: BTreeMap<String, BTreeSet<String>>,
    /// ACL entries: path, kind of subject, subject, role, whether it propagates.
    pub acl: Vec<AclEntry>,
    /// Pools by name.
    pub pools: BTreeMap<String, Pool>,
    /// Realms by name.
    pub realms: BTreeMap<String, Realm>,
    /// What signs tickets: not a secret, as the lab has none.
    pub signature: u64,
    /// Who has lost every right for the call at hand.
    #[serde(skip)]
    pub stripped: Option<String>,
}

/// A user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// Whether it may log in.
    pub enabled: bool,
    /// When it expires, in Unix seconds; 0 is never.
    pub expire: u64,
    /// Other settings as they were given: `comment`, `email`, `firstname`, `lastname`, `keys`.
    pub facts: BTreeMap<String, String>,
    /// Its password, in the realm `pve`.
    pub password: Option<String>,
    /// The code that it needs besides, if it has TOTP. The real one changes every 30 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totp: Option<String>,
    /// Its tokens by name.
    pub tokens: BTreeMap<String, Token>,
}

/// A token of a user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// Whether it has rights of its own only.
    pub separated: bool,
    /// When it expires, in Unix seconds; 0 is never.
    pub expire: u64,
    /// A comment.
    pub comment: Option<String>,
    /// Its secret.
    pub secret: String,
}

/// A group of users.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// A comment.
    pub comment: Option<String>,
    /// Its members.
    pub users: BTreeSet<String>,
}

/// An entry of the ACL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AclEntry {
    /// On what.
    pub path: String,
    /// Who: what kind of name it is.
    pub subject: Subject,
    /// Who.
    pub name: String,
    /// What they may do.
    pub role: String,
    /// Whether it holds below the path too.
    pub propagate: bool,
}

/// A kind of name in the ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A user.
    User,
    /// A group.
    Group,
    /// A token.
    Token,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// A comment.
    pub comment: Option<String>,
    /// Member VMs; nobody checks that they exist.
    pub vms: BTreeSet<VmId>,
    /// Member storages; nobody checks that they exist.
    pub storages: BTreeSet<String>,
}

/// A realm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Realm {
    /// Its kind, such as `pam`.
    pub kind: String,
    /// Its other settings.
    pub facts: BTreeMap<String, String>,
}

impl Default for Access {
    fn default() -> Self {
        let realm = |kind: &str, comment: &str| Realm {
            kind: kind.into(),
            facts: BTreeMap::from([("comment".into(), comment.into())]),
        };
        Self {
            users: BTreeMap::from([(ROOT.into(), User { enabled: true, ..User::default() })]),
            groups: BTreeMap::new(),
            roles: BTreeMap::new(),
            acl: Vec::new(),
            pools: BTreeMap::new(),
            realms: BTreeMap::from([
                ("pam".into(), realm("pam", "Linux PAM standard authentication")),
                ("pve".into(), realm("pve", "Proxmox VE authentication server")),
            ]),
            signature: 0,
            stripped: None,
        }
    }
}

/// Privileges or roles with whether they propagate.
pub type Propagated = BTreeMap<String, bool>;

impl Access {
    /// Returns a token by its full id.
    pub fn token(&self, id: &str) -> Option<&Token> {
        let (user, name) = id.split_once('!')?;
        self.users.get(user)?.tokens.get(name)
    }

    /// Returns whether a user may log in now.
    pub fn is_enabled(&self, user: &str, now: Time) -> bool {
        self.users
            .get(user)
            .is_some_and(|user| user.enabled && (user.expire == 0 || user.expire > now.unix_seconds()))
    }

    /// Returns the privileges of a role, built in or not.
    pub fn role(&self, name: &str, release: Release) -> Option<BTreeSet<String>> {
        built_in(name, release).or_else(|| self.roles.get(name).cloned())
    }

    /// Returns the roles that a user or token has on a path, pools not counted.
    fn roles_on(&self, id: &str, path: &str) -> Propagated {
        if id == ROOT {
            return Propagated::from([("Administrator".into(), true)]);
        }
        if let Some(token) = self.token(id).filter(|token| !token.separated) {
            debug_assert!(!token.separated);
            return self.roles_on(user_of(id), path);
        }
        let mut paths: Vec<&str> = self.acl.iter().map(|entry| entry.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut roles = Propagated::new();
        for here in paths {
            let last = here == path;
            let above = here == "/" || path.strip_prefix(here).is_some_and(|rest| rest.starts_with('/'));
            if !last && !above {
                continue;
            }
            if let Some(new) = self.roles_at(id, here, last) {
                roles = new;
            }
        }
        if let Some(propagate) = roles.get("NoAccess") {
            return Propagated::from([("NoAccess".into(), *propagate)]);
        }
        roles
    }

    /// Returns what the entries of one path say about somebody: the token's or user's own first, then groups.
    fn roles_at(&self, id: &str, path: &str, last: bool) -> Option<Propagated> {
        let chosen = |wanted: &dyn Fn(&AclEntry) -> bool| {
            let roles: Propagated = self
                .acl
                .iter()
                .filter(|entry| entry.path == path && (last || entry.propagate) && wanted(entry))
                .map(|entry| (entry.role.clone(), entry.propagate))
                .collect();
            (!roles.is_empty()).then_some(roles)
        };
        chosen(&|entry| entry.subject == Subject::Token && entry.name == id)
            .or_else(|| chosen(&|entry| entry.subject == Subject::User && entry.name == id))
            .or_else(|| {
                chosen(&|entry| {
                    entry.subject == Subject::Group
                        && self.groups.get(&entry.name).is_some_and(|group| group.users.contains(id))
                })
            })
    }

    /// Returns the roles that pools lend to somebody on a path.
    fn pool_roles(&self, id: &str, path: &str) -> BTreeSet<String> {
        let is_member = |pool: &Pool| {
            if let Some(vmid) = path.strip_prefix("/vms/") {
                vmid.parse().is_ok_and(|vmid: VmId| pool.vms.contains(&vmid))
            } else {
                path.strip_prefix("/storage/").is_some_and(|storage| pool.storages.contains(storage))
            }
        };
        self.pools
            .iter()
            .filter(|(_, pool)| is_member(pool))
            .flat_map(|(name, _)| self.roles_on(id, &format!("/pool/{name}")).into_keys())
            .collect()
    }

    /// Returns what somebody may do on a path, and what of it propagates.
    pub fn privileges(&self, id: &str, path: &str, release: Release) -> Propagated {
        if self.stripped.as_deref() == Some(id) {
            return Propagated::new();
        }
        if id == ROOT {
            return all_privileges(release).into_iter().map(|name| (name, true)).collect();
        }
        if id.contains('!') {
            let Some(token) = self.token(id) else { return Propagated::new() };
            let owner = self.privileges(user_of(id), path, release);
            if !token.separated {
                return owner;
            }
            let own = self.own_privileges(id, path, release);
            return own
                .into_iter()
                .filter_map(|(name, propagate)| owner.get(&name).map(|owners| (name, propagate && *owners)))
                .collect();
        }
        if !self.users.contains_key(id) {
            return Propagated::new();
        }
        self.own_privileges(id, path, release)
    }

    fn own_privileges(&self, id: &str, path: &str, release: Release) -> Propagated {
        let mut roles = self.roles_on(id, path);
        let lent = self.pool_roles(id, path);
        if !roles.contains_key("NoAccess") {
            if lent.contains("NoAccess") {
                roles = Propagated::from([("NoAccess".into(), false)]);
            } else {
                for role in lent {
                    roles.entry(role).or_insert(false);
                }
            }
        }
        let mut privileges = Propagated::new();
        for (role, propagate) in roles {
            for privilege in self.role(&role, release).unwrap_or_default() {
                *privileges.entry(privilege).or_insert(false) |= propagate;
            }
        }
        privileges
    }

    /// Removes what ACLs say about a user, its tokens, a group, a token or a role.
    pub fn drop_acl(&mut self, gone: impl Fn(&AclEntry) -> bool) {
        self.acl.retain(|entry| !gone(entry));
    }
}

impl Datacentre {
    /// Returns whether a caller has all these privileges on a path.
    pub fn may(&self, caller: &Caller, path: &str, privileges: &[&str]) -> bool {
        self.missing(caller, path, privileges).is_none()
    }

    /// Returns whether a caller has one of these privileges on a path.
    pub fn may_any(&self, caller: &Caller, path: &str, privileges: &[&str]) -> bool {
        let has = self.access.privileges(&caller.id, path, self.release);
        privileges.iter().any(|name| has.contains_key(self.release.privilege(name)))
    }

    /// Checks that a caller has all these privileges on a path; the error names the first that is missing.
    pub fn check(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        match self.missing(caller, path, privileges) {
            None => Ok(()),
            Some(name) => Err(ApiError::forbidden(&format!("{path}, {name}"))),
        }
    }

    /// Checks that a caller has one of these privileges on a path.
    pub fn check_any(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        if self.may_any(caller, path, privileges) {
            return Ok(());
        }
        let names: Vec<&str> = privileges.iter().map(|name| self.release.privilege(name)).collect();
        Err(ApiError::forbidden(&format!("{path}, {}", names.join("|"))))
    }

    /// Checks a right on a VM that a pool may give as well.
    pub fn check_vm(
        &self,
        caller: &Caller,
        vmid: VmId,
        pool: Option<&str>,
        privileges: &[&str],
    ) -> Result<(), ApiError> {
        if pool.is_some_and(|pool| self.may(caller, &format!("/pool/{pool}"), privileges)) {
            return Ok(());
        }
        self.check(caller, &format!("/vms/{vmid}"), privileges)
    }

    fn missing<'a>(&self, caller: &Caller, path: &str, privileges: &[&'a str]) -> Option<&'a str> {
        let has = self.access.privileges(&caller.id, path, self.release);
        privileges.iter().map(|name| self.release.privilege(name)).find(|name| !has.contains_key(*name))
    }
}

impl Release {
    /// Returns what a privilege of 9.x is called in this release.
    fn privilege(self, name: &str) -> &str {
        if !self.at_least(9, 0) && name.starts_with("VM.GuestAgent.") { "VM.Monitor" } else { name }
    }
}

/// Writes an ACL path in its one form: no trailing or repeated slashes; absent when it is none.
pub fn normal_path(path: &str) -> Option<String> {
    let mut normal: String = path.to_owned();
    while normal.contains("//") {
        normal = normal.replace("//", "/");
    }
    if normal.len() > 1 {
        normal.truncate(normal.trim_end_matches('/').len());
    }
    if normal.is_empty() {
        normal = "/".into();
    }
    if !normal.starts_with('/') {
        normal.insert(0, '/');
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/.-_:".contains(c);
    normal.chars().all(allowed).then_some(normal)
}
