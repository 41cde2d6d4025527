//! `ichor pve`: the account that a cluster is run with.

use ichor_model::{Findings, observed::Release};
use ichor_plan::privileges::Account;
use serde_json::{Value, json};

use super::session::{Gate, Session};
use crate::{
    args::{Global, Major, PveVerb, Role, token_of},
    exit::Exit,
    failure::Failure,
    terminal::Terminal,
};

/// Tells what ichor needs of Proxmox, or sees to it.
pub fn run(verb: &PveVerb, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    match verb {
        PveVerb::Role(args) => role(args, global, terminal),
        PveVerb::Setup(args) => super::setup::run(args, global, terminal),
    }
}

fn role(args: &Role, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let accounts = session.with_all(|site, _| {
        let account = Account::of(site.desired, release(args));
        Ok((Named { cluster: site.name().to_owned(), account }, Findings::new()))
    })?;
    let accounts = match accounts {
        Gate::Open(accounts) => accounts,
        Gate::Closed(exit) => return Ok(exit),
    };
    session.show(|| script(&accounts, args), || accounts.iter().map(|named| named.value(args)).collect())
}

const fn release(args: &Role) -> Release {
    match args.release {
        Major::Eight => Release { major: 8, minor: 4 },
        Major::Nine => Release { major: 9, minor: 2 },
    }
}

struct Named {
    cluster: String,
    account: Account,
}

impl Named {
    fn commands(&self, args: &Role) -> Vec<String> {
        let token = args.token.clone().unwrap_or_else(|| token_of(&self.cluster));
        self.account.commands(&args.user, &token)
    }

    fn value(&self, args: &Role) -> Value {
        let Account { roles, grants, pool, .. } = &self.account;
        let commands = self.commands(args);
        json!({ "cluster": self.cluster, "roles": roles, "grants": grants, "pool": pool, "commands": commands })
    }
}

fn script(accounts: &[Named], args: &Role) -> String {
    let of = |named: &Named| format!("# {}\n{}\n", named.cluster, named.commands(args).join("\n"));
    accounts.iter().map(of).collect()
}
