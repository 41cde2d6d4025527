//! The account of a cluster, made in the lab by its administrator.

use std::{collections::BTreeSet, sync::Arc};

use ichor_model::observed::{Release as Runs, Rights};
use ichor_net::Dial;
use ichor_plan::privileges::Account;
use ichor_port::Secret;
use ichor_pve::{Token, api};
use ichor_sim::{pve::release::Release, setup::ROOT_PASSWORD};

use super::{
    codes,
    paths::{Trial, VIP, inventory},
};
use crate::{
    Halt,
    account::{Change, Entry, Found, Wanted, go_on, log_in},
    live::{Pve, lobby},
};

const POOLED: &str = "proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2], pool: lab}";

struct Office {
    trial: Trial,
    wanted: Wanted,
    /// The token, once its secret is kept.
    kept: Option<Secret>,
}

impl Office {
    fn new(release: Release, runs: Runs) -> Self {
        let trial = Trial::of(inventory(VIP, POOLED), release);
        // Whoever is to be set up has nothing yet.
        trial.0.inside.hall().visit(|lab| {
            lab.pve.access.pools.clear();
            lab.pve.access.roles.clear();
            lab.pve.access.acl.clear();
        });
        let account = Account::of(&trial.0.desired, runs);
        Self { trial, wanted: Wanted { account, user: "new@pve".into(), token: "lab".into() }, kept: None }
    }

    fn lobby(&self) -> Pve {
        let reach = self.trial.0.reach();
        let dialer: Arc<dyn Dial> = reach.dialer;
        lobby(&self.trial.0.desired.proxmox.endpoint, reach.proxmox, &dialer).expect("a client")
    }

    async fn enter(&self, user: &str, password: &str) -> Result<Pve, Halt> {
        match log_in(self.lobby(), user, &Secret::new(password)).await? {
            Entry::Open(pve) => Ok(*pve),
            Entry::Half(..) => panic!("nobody has a second factor here"),
        }
    }

    async fn todo(&self, pve: &Pve) -> Vec<Change> {
        let has_secret = match &self.kept {
            Some(kept) => {
                let token = Token::parse(kept).expect("a token");
                self.lobby().with_token(token).send(&api::version()).await.is_ok()
            }
            None => false,
        };
        self.wanted.changes(&Found::look(pve, &self.wanted).await.expect("a look"), has_secret)
    }

    /// Makes so many changes, and keeps the secret of a token unless the run is killed just before that.
    async fn work(&mut self, most: usize, forgets: bool) -> usize {
        let pve = self.enter("root@pam", ROOT_PASSWORD).await.expect("a login");
        let changes = self.todo(&pve).await;
        for change in changes.iter().take(most) {
            if let Some(new) = change.make(&pve, &self.wanted).await.expect("it is made")
                && !forgets
            {
                self.kept = Some(new.secret());
            }
        }
        changes.len()
    }

    async fn is_right(&self) {
        let pve = self.enter("root@pam", ROOT_PASSWORD).await.expect("a login");
        assert_eq!(self.todo(&pve).await, []);
        let token = Token::parse(self.kept.as_ref().expect("a secret")).expect("a token");
        let told = self.lobby().with_token(token).send(&api::permissions()).await.expect("rights");
        let paths = told.into_iter().map(|(path, privileges)| {
            (path, privileges.into_iter().map(|(name, inherited)| (name, inherited != 0)).collect())
        });
        let rights = Rights { who: self.wanted.id(), paths: paths.collect() };
        assert_eq!(self.wanted.account.missing(&rights), []);
        assert_eq!(self.wanted.account.excess(&rights), []);
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_that_was_begun_is_finished_wherever_the_run_was_stopped() {
    let runs = Runs { major: 9, minor: 2 };
    let all = Office::new(Release::V9_2, runs).work(0, false).await;
    assert!(all > 15, "{all}");
    for stop in 0..=all {
        let mut office = Office::new(Release::V9_2, runs);
        office.work(stop, false).await;
        office.work(usize::MAX, false).await;
        office.is_right().await;
    }
    // Killed between making the token and keeping its secret.
    let mut office = Office::new(Release::V9_2, runs);
    office.work(usize::MAX, true).await;
    assert!(office.kept.is_none());
    office.work(usize::MAX, false).await;
    office.is_right().await;
}

#[tokio::test(start_paused = true)]
async fn older_releases_know_all_the_privileges() {
    for (release, major, minor) in [(Release::V8_4, 8, 4), (Release::V8_0, 8, 0)] {
        let mut office = Office::new(release, Runs { major, minor });
        office.work(usize::MAX, false).await;
        office.is_right().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_not_let_in_is_told() {
    let office = Office::new(Release::V9_2, Runs { major: 9, minor: 2 });
    for (user, password) in [("root@pam", "wrong"), ("nobody@pve", ROOT_PASSWORD), ("root", ROOT_PASSWORD)] {
        let halt = office.enter(user, password).await.expect_err("nobody");
        assert_eq!(codes(&halt), ["ICH-3148"], "{user}");
        let said = super::messages(&halt.findings);
        assert!(!said.contains(password), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_has_grown_since_is_cut_back() {
    let mut office = Office::new(Release::V9_2, Runs { major: 9, minor: 2 });
    office.work(usize::MAX, false).await;
    office.trial.0.inside.hall().visit(|lab| {
        for privileges in lab.pve.access.roles.values_mut() {
            privileges.insert("Sys.Modify".into());
        }
        let roles: BTreeSet<&String> = lab.pve.access.roles.keys().collect();
        assert!(!roles.is_empty());
    });
    office.work(usize::MAX, false).await;
    office.is_right().await;
}

/// Where there is room, only the living Proxmox tells: a machine may come to be on any of them.
#[test]
fn the_account_may_use_every_host_that_the_inventory_names() {
    let desired =
        super::resolve(&super::INVENTORY.replace("hosts: [pve1]", "hosts: [pve1, pve2, pve3, pve4]"));
    let grants = Account::of(&desired, Runs { major: 9, minor: 2 }).grants;
    for host in ["pve1", "pve2", "pve3", "pve4"] {
        assert!(grants.contains_key(&format!("/nodes/{host}")), "{grants:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_factor_is_asked_for_and_answered_once() {
    let office = Office::new(Release::V9_2, Runs { major: 9, minor: 2 });
    let root = |lab: &mut ichor_sim::Lab, code: Option<&str>| {
        lab.pve.access.users.get_mut("root@pam").expect("root").totp = code.map(str::to_owned);
    };
    office.trial.0.inside.hall().visit(|lab| root(lab, Some("123456")));
    let half = || async {
        match log_in(office.lobby(), "root@pam", &Secret::new(ROOT_PASSWORD)).await.expect("a password") {
            Entry::Half(pve, challenge) => (*pve, challenge),
            Entry::Open(_) => panic!("a password alone was enough"),
        }
    };
    let (pve, challenge) = half().await;
    let refused = go_on(pve, "root@pam", &challenge, &Secret::new("654321")).await.expect_err("a wrong code");
    assert_eq!(codes(&refused), ["ICH-3148"]);
    let (pve, challenge) = half().await;
    let pve = go_on(pve, "root@pam", &challenge, &Secret::new("123456")).await.expect("the right code");
    Found::look(&pve, &office.wanted).await.expect("an administrator");
    // A challenge is that of one user, and opens nothing by itself.
    let (pve, challenge) = half().await;
    assert!(go_on(pve, "ichor@pve", &challenge, &Secret::new("123456")).await.is_err());
    let wrong =
        log_in(office.lobby(), "root@pam", &Secret::new("wrong")).await.expect_err("a wrong password");
    assert_eq!(codes(&wrong), ["ICH-3148"]);
}
