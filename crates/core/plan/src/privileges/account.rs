//! The account that a cluster is run with: roles by what they are for, and where each is given. It may do what
//! ichor asks for in the cluster's name, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Desired, Observed,
    desired::{Late, Machine},
    observed::{Release, Rights, Sight},
};
use serde::Serialize;

use super::{AGENT_PRIVILEGES, Way, has, needs, node_path, upwards};
use crate::files::{host_of, storage_of, template_of};

/// What the cloud controller manager reads: where VMs are, and on which hosts.
const CCM: [&str; 2] = ["Sys.Audit", "VM.Audit"];
/// What the CSI plugin needs to make disks, and to give them to machines.
const CSI: [&str; 5] =
    ["Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.Audit", "VM.Audit", "VM.Config.Disk"];

/// Roles, and the paths that they are given on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// The privileges of each role.
    pub roles: BTreeMap<String, BTreeSet<&'static str>>,
    /// The roles on each path.
    pub grants: BTreeMap<String, BTreeSet<String>>,
    /// The pool that must be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What the names of roles begin with: clusters need different things, and each has roles of its own.
    #[serde(skip)]
    prefix: String,
}

/// A privilege on a path.
pub type Privilege = (String, String);

impl Account {
    /// Returns the account of a cluster on a release of Proxmox.
    pub fn of(desired: &Desired, release: Release) -> Self {
        // Whoever makes the account makes the pool.
        let observed =
            Observed { release: Sight::Seen(release), pool: Sight::Seen(true), ..Observed::default() };
        let mut account = Self { pool: desired.proxmox.pool.clone(), ..Self::named(desired) };
        for machine in desired.machines.iter().flat_map(|machine| wherever(desired, machine)) {
            for ways in needs(desired, &observed, &machine) {
                for (path, privilege) in narrowest(ways) {
                    account.allow(desired, &path, privilege);
                }
            }
            account.allow_looking(desired, &machine);
        }
        account
    }

    /// Returns the account of the cluster's cloud controller manager.
    pub fn of_ccm(desired: &Desired, release: Release) -> Self {
        let mut account = Self::named(desired);
        // What older releases have in its place lets its owner into QEMU's monitor, and addresses come from kubelets.
        let agent = (release >= AGENT_PRIVILEGES).then_some("VM.GuestAgent.Audit");
        for privilege in CCM.into_iter().chain(agent) {
            account.give("ccm", "/", privilege);
        }
        account
    }

    /// Returns the account of the cluster's CSI plugin.
    pub fn of_csi(desired: &Desired) -> Self {
        let mut account = Self::named(desired);
        for privilege in CSI {
            account.give("csi", "/", privilege);
        }
        account
    }

    fn named(desired: &Desired) -> Self {
        Self { prefix: format!("ichor-{}", desired.cluster.name), ..Self::default() }
    }

    /// Returns the account with what another one of the same cluster has besides.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        for (role, privileges) in other.roles {
            self.roles.entry(role).or_default().extend(privileges);
        }
        for (path, roles) in other.grants {
            self.grants.entry(path).or_default().extend(roles);
        }
        self.pool = self.pool.or(other.pool);
        self
    }

    fn allow_looking(&mut self, desired: &Desired, machine: &Machine) {
        let host = host_of(machine);
        self.give("hosts", &node_path(machine), "Sys.Audit");
        let storage = host.map_or(&desired.proxmox.storage, |host| storage_of(desired, host));
        for privilege in ["Datastore.Audit", "Datastore.AllocateTemplate", "Datastore.Allocate"] {
            self.give("images", &format!("/storage/{}", storage.images), privilege);
        }
        if let Some(template) = template_of(desired, machine).filter(|template| template.existing) {
            self.give("templates", &format!("/vms/{}", template.vmid), "VM.Audit");
        }
    }

    fn allow(&mut self, desired: &Desired, path: &str, privilege: &'static str) {
        let existing = |path: &str| {
            let mut templates = desired.templates.iter().filter(|template| template.existing);
            templates.any(|template| path == format!("/vms/{}", template.vmid))
        };
        match privilege.split('.').next() {
            Some("VM") if existing(path) => self.give("templates", path, privilege),
            // What is allowed on the number of a VM is forgotten with the VM.
            Some("VM") if path.starts_with("/vms/") => self.give("machines", "/vms", privilege),
            Some("VM") => self.give("machines", path, privilege),
            Some("Datastore") if privilege == "Datastore.AllocateSpace" => {
                self.give("disks", path, privilege);
                self.give("disks", path, "Datastore.Audit");
            }
            Some("Datastore") => self.give("images", path, privilege),
            Some("SDN") => self.give("networks", path, privilege),
            Some("Mapping") => self.give("devices", path, privilege),
            Some("Pool") => self.give("pool", path, privilege),
            _ => self.give("hosts", path, privilege),
        }
    }

    /// `purpose` is the end of a role's name.
    fn give(&mut self, purpose: &str, path: &str, privilege: &'static str) {
        let role = format!("{}-{purpose}", self.prefix);
        self.roles.entry(role.clone()).or_default().insert(privilege);
        self.grants.entry(path.to_owned()).or_default().insert(role);
    }

    /// Whether a role is one that this account had or has. Purposes are single words, so that cluster `a` has none of
    /// cluster `a-b`; and those of add-ons are accounts of their own.
    pub fn is_own(&self, role: &str) -> bool {
        let purpose = role.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('-'));
        let of_addon = |purpose: &str| ["ccm", "csi"].contains(&purpose);
        match purpose {
            Some(purpose) if of_addon(purpose) => self.roles.contains_key(role),
            Some(purpose) if !purpose.is_empty() && !purpose.contains('-') => {
                self.roles.keys().all(|own| !own.rsplit('-').next().is_some_and(of_addon))
            }
            _ => false,
        }
    }

    /// Returns the privileges on a path.
    fn on(&self, path: &str) -> impl Iterator<Item = &'static str> {
        let roles = self.grants.get(path).into_iter().flatten();
        roles.filter_map(|role| self.roles.get(role)).flatten().copied()
    }

    /// Returns what somebody lacks of the account.
    pub fn missing(&self, rights: &Rights) -> Vec<Privilege> {
        let all = self.grants.keys().flat_map(|path| self.on(path).map(move |privilege| (path, privilege)));
        let missing = all.filter(|(path, privilege)| !has(rights, path, privilege));
        missing.map(|(path, privilege)| (path.clone(), privilege.to_owned())).collect()
    }

    /// Returns what somebody may do beyond the account.
    pub fn excess(&self, rights: &Rights) -> Vec<Privilege> {
        let of_path = |path: &String, privileges: &BTreeMap<String, bool>| -> Vec<Privilege> {
            let allowed = self.allowed(path);
            let more = privileges.keys().filter(|privilege| !allowed.contains(privilege.as_str()));
            more.map(|privilege| (path.clone(), privilege.clone())).collect()
        };
        rights.paths.iter().flat_map(|(path, privileges)| of_path(path, privileges)).collect()
    }

    /// What the account may do on a path: what is said there, or above it, or for the pool that it may be in.
    fn allowed(&self, path: &str) -> BTreeSet<&'static str> {
        let nearest = upwards(path).find(|above| self.grants.contains_key(*above));
        let pool = self.pool.as_ref().map(|pool| format!("/pool/{pool}"));
        let pooled = pool.filter(|_| path.starts_with("/vms/"));
        nearest.into_iter().chain(pooled.as_deref()).flat_map(|path| self.on(path)).collect()
    }

    /// Returns the commands that make the account, for the shell of a host.
    pub fn commands(&self, user: &str, token: &str) -> Vec<String> {
        let mut commands: Vec<String> = self.roles.keys().map(|role| self.role_command(role)).collect();
        commands.extend(self.pool.iter().map(|pool| format!("pveum pool add {pool}")));
        commands.push(format!("pveum user add {user}"));
        commands.push(format!("pveum user token add {user} {token} --privsep 1"));
        commands.extend(self.grants.keys().map(|path| self.grant_command(path, &format!("{user}!{token}"))));
        commands
    }

    /// Returns the commands that give a token what it lacks: the roles that should have it, and where they are given.
    ///
    /// An entry on a path replaces what is inherited there, so all roles of the path are given anew.
    pub fn amends(&self, token: &str, missing: &[Privilege]) -> Vec<String> {
        let paths: BTreeSet<&str> = missing.iter().map(|(path, _)| path.as_str()).collect();
        let lacking = |role: &&String| {
            let privileges = self.roles.get(*role);
            missing.iter().any(|(_, name)| privileges.is_some_and(|has| has.contains(name.as_str())))
        };
        let on_paths = paths.iter().filter_map(|path| self.grants.get(*path)).flatten();
        let roles: BTreeSet<&String> = on_paths.filter(lacking).collect();
        let roles = roles.into_iter().map(|role| self.role_command(role));
        roles.chain(paths.iter().map(|path| self.grant_command(path, token))).collect()
    }

    /// Returns the command that gives a role exactly what it should have.
    pub fn role_command(&self, role: &str) -> String {
        let privileges = self.roles.get(role).into_iter().flatten().copied().collect::<Vec<_>>().join(",");
        // One that is there already may be of an earlier inventory.
        format!("pveum role add {role} --privs {privileges} || pveum role modify {role} --privs {privileges}")
    }

    /// A token may do what both it and its user may.
    fn grant_command(&self, path: &str, token: &str) -> String {
        let user = token.split('!').next().unwrap_or(token);
        let roles = self.grants.get(path).into_iter().flatten().map(String::as_str).collect::<Vec<_>>();
        format!("pveum acl modify {path} --users {user} --tokens '{token}' --roles {}", roles.join(","))
    }
}

/// Returns a machine on every host that it may come to be on: where there is room, only the living Proxmox tells, and
/// an account that may not look at a host takes it for one without room.
fn wherever(desired: &Desired, machine: &Machine) -> Vec<Machine> {
    if desired.hosts.is_empty() {
        return vec![machine.clone()];
    }
    let on = |host: &ichor_model::desired::Host| Machine {
        host: Late::Known(host.name.clone()),
        ..machine.clone()
    };
    desired.hosts.iter().map(on).collect()
}

/// Of several ways to be allowed something, the one that allows least: in the pool rather than anywhere.
fn narrowest(ways: Vec<Way>) -> Way {
    let pooled = ways.iter().position(|way| way.iter().all(|(path, _)| path.starts_with("/pool/")));
    ways.into_iter().nth(pooled.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(account: &Account) -> Rights {
        let of = |path: &String| account.on(path).map(|privilege| (privilege.to_owned(), true)).collect();
        let paths = account.grants.keys().map(|path| (path.clone(), of(path)));
        Rights { who: "ichor@pve!lab".into(), paths: paths.collect() }
    }

    fn sample() -> Account {
        let mut account =
            Account { prefix: "ichor-lab".into(), pool: Some("lab".into()), ..Account::default() };
        for (purpose, path, privilege) in [
            ("machines", "/pool/lab", "VM.Allocate"),
            ("pool", "/pool/lab", "Pool.Audit"),
            ("disks", "/storage/local-lvm", "Datastore.AllocateSpace"),
            ("hosts", "/nodes/pve1", "Sys.Audit"),
        ] {
            account.give(purpose, path, privilege);
        }
        account
    }

    #[test]
    fn whoever_has_the_account_lacks_nothing_and_has_nothing_more() {
        let account = sample();
        assert_eq!(account.missing(&rights(&account)), []);
        assert_eq!(account.excess(&rights(&account)), []);
    }

    #[test]
    fn each_privilege_that_is_missing_or_too_much_is_named() {
        let account = sample();
        for path in account.grants.keys() {
            for privilege in account.on(path) {
                let mut rights = rights(&account);
                rights.paths.get_mut(path).expect("a path").remove(privilege);
                assert_eq!(account.missing(&rights), [(path.clone(), privilege.to_owned())]);
            }
            let mut rights = rights(&account);
            rights.paths.get_mut(path).expect("a path").insert("VM.Console".into(), true);
            assert_eq!(account.excess(&rights), [(path.clone(), "VM.Console".to_owned())]);
        }
    }

    #[test]
    fn members_of_the_pool_may_be_touched() {
        let account = sample();
        let mut rights = rights(&account);
        rights.paths.insert("/vms/2000".into(), [("VM.Allocate".to_owned(), true)].into());
        assert_eq!(account.excess(&rights), []);
        rights.paths.insert("/vms/2000".into(), [("VM.Migrate".to_owned(), true)].into());
        assert_eq!(account.excess(&rights), [("/vms/2000".to_owned(), "VM.Migrate".to_owned())]);
    }

    #[test]
    fn the_token_gets_what_its_user_gets() {
        let commands = sample().commands("ichor@pve", "lab");
        let acl = commands.iter().find(|command| command.contains(" /pool/lab ")).expect("a command");
        assert_eq!(
            acl,
            "pveum acl modify /pool/lab --users ichor@pve --tokens 'ichor@pve!lab' --roles ichor-lab-machines,ichor-lab-pool"
        );
    }
}
