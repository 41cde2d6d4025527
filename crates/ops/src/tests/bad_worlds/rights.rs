//! Tokens that may not do what is to be done.

use std::collections::BTreeSet;

use ichor_plan::privileges::grant;
use ichor_sim::{
    faults::{Kind, Server},
    profile::Profile,
    pve::{
        access::{AclEntry, Subject, all_privileges},
        release::Release,
    },
    setup::{Setup, USER},
};

use super::{SMALL, findings, same, shows, shows_untouched, told};
use crate::{converge::Goal, tests::live::Rehearsal};

/// A single machine, quickly.
const ONE: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', pool: lab, hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp: {role: control-plane, count: 1, address: 10.0.0.11, host: pve2}
";

impl Rehearsal {
    /// Leaves the token's user a role with these privileges and nothing else.
    fn allow(&self, privileges: BTreeSet<String>) {
        self.change(|lab| {
            lab.pve.access.roles.insert("Rest".into(), privileges);
            for entry in lab.pve.access.acl.iter_mut().filter(|entry| entry.name == USER) {
                entry.role = "Rest".into();
            }
        });
    }

    /// Runs the commands of a remedy, as an administrator would.
    fn obey(&self, remedy: &str) {
        for line in remedy.lines().map(str::trim).filter(|line| line.starts_with("pveum")) {
            let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
            match words.as_slice() {
                ["pveum", "role", "add", role, "--privs", privileges] => {
                    let privileges = privileges.split(',').map(str::to_owned).collect();
                    self.change(|lab| lab.pve.access.roles.insert((*role).to_owned(), privileges));
                }
                ["pveum", "acl", "modify", path, "--users", user, "--tokens", token, "--roles", role] => {
                    for (subject, name) in [(Subject::User, user), (Subject::Token, token)] {
                        let entry = AclEntry {
                            path: (*path).to_owned(),
                            subject,
                            name: (*name).to_owned(),
                            role: (*role).to_owned(),
                            propagate: true,
                        };
                        self.change(|lab| lab.pve.access.acl.push(entry));
                    }
                }
                other => panic!("no such command: {other:?}"),
            }
        }
    }
}

/// Every privilege that is missing is found before anything is touched, and the commands of the remedy are enough.
#[tokio::test(start_paused = true)]
async fn a_missing_privilege_is_named_with_the_command_that_grants_it() {
    let role = grant("", [], None, &[]);
    let all: BTreeSet<String> =
        role.split('\'').nth(1).expect("a list").split(',').map(str::to_owned).collect();
    assert!(all.is_subset(&all_privileges(Release::V9_2)), "Proxmox knows them all");
    let mut needed = Vec::new();
    for privilege in &all {
        let world = Rehearsal::of(ONE, &Setup::new(1, Profile::Lab));
        let rest = all.iter().filter(|name| *name != privilege).cloned().collect();
        world.allow(rest);
        let ended = world.attempt().await;
        let Err(halt) = &ended else {
            assert!(ended.as_ref().is_ok_and(|ended| ended.done), "{privilege}: {}", told(&ended));
            continue;
        };
        needed.push(privilege.as_str());
        assert_eq!(world.changed(), 0, "{privilege}: nothing is changed");
        let said = findings(&halt.findings);
        assert!(
            said.contains(&format!("token `ichor@pve!lab` lacks `{privilege}` on `/")),
            "{privilege}: {said}"
        );
        world.obey(&said);
        let images = Goal::Up { phase: Some(ichor_plan::Phase::Images), only: Vec::new() };
        let again = world.run_to(world.reach(), &world.desired, images).await;
        assert!(again.as_ref().is_ok_and(|ended| ended.done), "{privilege}: {}", told(&again));
    }
    same("needed-privileges", &needed.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_may_little_is_told_everything_at_once() {
    let world = Rehearsal::bad(SMALL);
    world.allow(["Sys.Audit", "VM.Audit", "Datastore.Audit"].map(str::to_owned).into());
    shows_untouched("many-privileges", &world).await;
    let Err(halt) = world.attempt().await else { panic!("it is refused") };
    world.obey(&findings(&halt.findings));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_privilege_that_is_lost_during_the_run_is_named() {
    let world = Rehearsal::bad(SMALL);
    world.fault(Server::Pve, "POST /nodes/*/qemu/*/status/start", 0, Kind::PermissionLost);
    shows("privilege-lost", &world).await;
    world.mend();
    world.recovers().await;
}
