//! The doctor in the lab: each privilege by itself, and worlds that are wrong in one way.

use std::collections::BTreeSet;

use ichor_engine::Outcome;
use ichor_model::{Desired, Findings, VmId, observed::Release as Runs};
use ichor_sim::{
    Lab,
    pve::{
        access::{AclEntry, Subject, all_privileges},
        qemu::{Vm, config::Config},
        release::Release,
    },
    setup::{TOKEN, USER},
};

use super::paths::{Trial, VIP, account, inventory};
use crate::{
    System,
    converge::{Goal, first_look},
    doctor::{Check, Examination, State, privileges},
};

/// Needs nearly every privilege that there is a need for.
const DEMANDING: &str = "proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1], pool: lab}\n\
     image: {source: template, templates: {control-plane: 900, worker: 901}}\n\
     boot: {address: cidata}";

async fn examine(trial: &Trial) -> Vec<Check> {
    let desired = &trial.0.desired;
    let now = trial.0.memory.now();
    trial
        .0
        .with(async |live| {
            let survey = first_look(&live.pve, desired).await.expect("a look");
            Box::pin(Examination::new(live, &survey, desired, now)).await.checks(&Findings::new())
        })
        .await
}

/// Looks at what the token may do, and at nothing else.
async fn rights(trial: &Trial) -> privileges::Seen {
    let desired = &trial.0.desired;
    let runs = Some(Runs { major: 9, minor: 2 });
    trial.0.with(async |live| privileges::see(live, desired, runs).await).await
}

fn check<'c>(checks: &'c [Check], id: &str) -> &'c Check {
    checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}"))
}

fn words(check: &Check) -> String {
    let of = |finding: &ichor_model::Finding| {
        format!("{} {:?} {}\n", finding.message, finding.notes, finding.remedy.clone().unwrap_or_default())
    };
    check.findings.iter().map(of).collect()
}

fn trial(more: &str, prepare: impl FnOnce(&mut Lab)) -> Trial {
    let trial = Trial::of(inventory(VIP, more), Release::V9_2);
    trial.0.inside.hall().visit(prepare);
    trial
}

/// Every privilege of the account, as role and name.
fn each(desired: &Desired, lab: &Lab) -> Vec<(String, &'static str)> {
    let roles = account(lab, desired).roles;
    roles
        .into_iter()
        .flat_map(|(role, names)| names.into_iter().map(move |name| (role.clone(), name)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_least_account_lacks_nothing_and_has_nothing_more() {
    for more in ["", DEMANDING, "image: {source: iso}\nboot: {address: cidata, config: cidata}"] {
        let trial = trial(more, |_| {});
        let before = trial.changes();
        let checks = examine(&trial).await;
        for check in &checks {
            assert!(check.state() <= State::Unknown, "{}: {}", check.id, words(check));
        }
        let unknown: Vec<&str> =
            checks.iter().filter(|check| check.state() == State::Unknown).map(|check| check.id).collect();
        assert_eq!(unknown, ["gateway"], "nobody answers as the gateway in a lab");
        assert_eq!(trial.changes(), before, "a doctor changes nothing");
    }
}

/// What a run that makes a cluster can do without: looking, and taking things away again.
const NOT_FOR_MAKING: [&str; 2] = ["Datastore.Allocate", "Datastore.Audit"];

#[tokio::test(start_paused = true)]
async fn each_privilege_that_is_missing_is_named_with_its_command() {
    let all = {
        let trial = trial(DEMANDING, |_| {});
        trial.lab(|lab| each(&trial.0.desired, lab))
    };
    assert!(all.len() > 15, "{all:?}");
    for (role, name) in all {
        let trial = trial(DEMANDING, |lab| {
            assert!(lab.pve.access.roles.get_mut(&role).expect("a role").remove(name), "{role} {name}");
        });
        let check = rights(&trial).await.missing();
        assert_eq!(check.state(), State::Error, "{role} {name}");
        let told = words(&check);
        assert!(told.contains(&format!("lacks `{name}` on `/")), "{role} {name}: {told}");
        assert!(told.contains(&format!("pveum role modify {role} --privs ")), "{role} {name}: {told}");
        assert!(told.contains(&format!("--tokens '{USER}!{TOKEN}' --roles ")), "{role} {name}: {told}");
        fails_cleanly(&trial, &role, name).await;
    }
}

/// Without a privilege a run says which one it is, and leaves nothing that a run with it would not finish.
async fn fails_cleanly(trial: &Trial, role: &str, name: &str) {
    let before = trial.changes();
    let said = match Box::pin(trial.0.try_run(Goal::up())).await {
        Err(halt) => {
            assert_eq!(trial.changes(), before, "{role} {name}: something was touched");
            super::messages(&halt.findings)
        }
        Ok(ended) if ended.done => {
            assert!(NOT_FOR_MAKING.contains(&name), "{role}: a cluster comes up without {name}");
            return;
        }
        Ok(ended) => {
            let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed { .. });
            let report = ended.report.expect("a report");
            assert!(report.outcomes.values().any(failed), "{role} {name}");
            format!("{report:?} {}", super::messages(&ended.findings))
        }
    };
    assert!(said.contains(name), "{role} {name}: {said}");
}

#[tokio::test(start_paused = true)]
async fn each_privilege_that_is_too_much_is_named() {
    let trial = trial(DEMANDING, |_| {});
    let account = trial.lab(|lab| account(lab, &trial.0.desired));
    let all = all_privileges(Release::V9_2);
    for (role, has) in &account.roles {
        // Roles on one path are one: what another of them has is nothing new.
        let paths: Vec<&String> =
            account.grants.iter().filter(|(_, roles)| roles.contains(role)).map(|(path, _)| path).collect();
        let beside: BTreeSet<&str> = paths
            .iter()
            .flat_map(|path| &account.grants[*path])
            .flat_map(|role| account.roles[role].iter().copied())
            .collect();
        for name in all.iter().filter(|name| !has.contains(name.as_str()) && !beside.contains(name.as_str()))
        {
            let set = |on: bool| {
                trial.0.inside.hall().visit(|lab| {
                    let role = lab.pve.access.roles.get_mut(role).expect("a role");
                    if on { role.insert(name.clone()) } else { role.remove(name) }
                });
            };
            set(true);
            let check = rights(&trial).await.excess();
            assert_eq!(check.state(), State::Warning, "{role} {name}");
            let told = words(&check);
            assert!(told.contains(&format!("has `{name}` on `/")), "{role} {name}: {told}");
            assert!(told.contains(&format!("pveum role modify {role} --privs ")), "{role} {name}: {told}");
            set(false);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_of_somebody_else_is_told_with_where_it_was_given() {
    let trial = trial(DEMANDING, |lab| {
        for (subject, name) in [(Subject::User, USER.to_owned()), (Subject::Token, format!("{USER}!{TOKEN}"))]
        {
            let role = "PVEUserAdmin".to_owned();
            lab.pve.access.acl.push(AclEntry {
                path: "/access".into(),
                subject,
                name,
                role,
                propagate: true,
            });
        }
    });
    let told = words(&rights(&trial).await.excess());
    assert!(
        told.contains("has `Group.Allocate`, `Realm.AllocateUser`, `User.Modify` on `/access`"),
        "{told}"
    );
    assert!(told.contains("such as `Administrator`, `PVEAdmin`, `PVEUserAdmin`"), "{told}");
    assert!(
        told.contains("pveum acl delete /access --users ichor@pve --tokens 'ichor@pve!lab' --roles ROLE"),
        "{told}"
    );
}

/// Puts a VM of somebody else on the first host.
fn add_vm(lab: &mut Lab, vmid: VmId, options: &[(&str, &str)]) {
    let mut config = Config::default();
    for (key, value) in options {
        config.current.insert((*key).to_owned(), (*value).to_owned());
    }
    lab.pve.vms.insert(vmid, Vm { host: "pve1".into(), config, run: None });
}

#[tokio::test(start_paused = true)]
async fn a_mac_address_that_another_vm_has_is_named() {
    let told = noticed("", "macs", |lab, desired| {
        let card = format!("virtio={},bridge=vmbr0", desired.machines[0].primary_nic().mac);
        add_vm(lab, "777".parse().expect("a number"), &[("name", "copy"), ("net0", &card)]);
    })
    .await;
    assert!(told.starts_with("VM 777 has the MAC address "), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_vm_has_is_named() {
    let told = noticed("", "names", |lab, desired| {
        add_vm(lab, "777".parse().expect("a number"), &[("name", desired.machines[0].name.as_str())]);
    })
    .await;
    assert!(told.starts_with("VM 777 on host `pve1` is called `"), "{told}");
}

/// Examines a world that is wrong in one way, and returns what the one check says that noticed.
async fn noticed(more: &str, id: &str, prepare: impl FnOnce(&mut Lab, &Desired)) -> String {
    let desired = inventory(VIP, more);
    let trial = trial(more, |lab| prepare(lab, &desired));
    let before = trial.changes();
    // The list of all VMs tells names at the next broadcast; the clock of this test costs nothing.
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let checks = examine(&trial).await;
    assert_eq!(trial.changes(), before, "a doctor changes nothing");
    let ill: Vec<&str> =
        checks.iter().filter(|check| check.state() > State::Unknown).map(|check| check.id).collect();
    assert_eq!(ill, [id], "{}", checks.iter().map(words).collect::<String>());
    words(check(&checks, id))
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_is_missing_is_named() {
    let told = noticed("", "bridges", |lab, _| {
        let host = lab.pve.hosts.get_mut("pve1").expect("a host");
        host.interfaces.iter_mut().filter(|it| it.name == "vmbr0").for_each(|it| it.name = "vmbr1".into());
    })
    .await;
    assert!(told.contains("host `pve1` has no bridge `vmbr0`"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_vlan_on_a_bridge_that_knows_none_is_remarked() {
    let tagged = "network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1, vlan: 5}";
    let plain = |lab: &mut Lab, _: &Desired| {
        let interfaces = lab.pve.hosts.values_mut().flat_map(|host| &mut host.interfaces);
        interfaces.filter(|it| it.name == "vmbr0").for_each(|it| drop(it.facts.remove("bridge_vlan_aware")));
    };
    let told = noticed(tagged, "bridges", plain).await;
    assert!(told.contains("bridge `vmbr0` on `pve1` is not VLAN-aware"), "{told}");
    // Nobody minds where no machine has a VLAN, or where the bridge knows them.
    for (more, prepare) in [("", true), (tagged, false)] {
        let desired = inventory(VIP, more);
        let trial = trial(more, |lab| {
            if prepare {
                plain(lab, &desired);
            }
        });
        let checks = examine(&trial).await;
        assert_eq!(check(&checks, "bridges").state(), State::Ok, "{more}");
    }
}

#[tokio::test(start_paused = true)]
async fn processors_that_cannot_be_what_is_promised_are_named() {
    let told = noticed("defaults: {cpu_type: x86-64-v4}", "cpu", |_, _| {}).await;
    assert!(told.contains("the processors of host `pve1` cannot be a `x86-64-v4`"), "{told}");
    assert!(told.contains("avx512f"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_full_at_the_moment_is_named() {
    let told = noticed("", "capacity", |lab, _| {
        lab.pve.hosts.get_mut("pve1").expect("a host").memory = 2 << 30;
    })
    .await;
    assert!(told.contains("host `pve1` has too little free memory at the moment"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_may_not_be_audited_is_of_unknown_size() {
    for (may, known) in [(true, true), (false, false)] {
        let trial = trial("", |lab| {
            let roles = lab.pve.access.roles.values_mut().filter(|_| !may);
            for role in roles {
                role.remove("Sys.Audit");
            }
        });
        let desired = &trial.0.desired;
        let seen = trial
            .0
            .with(async |live| first_look(&live.pve, desired).await.expect("a look").world(desired))
            .await;
        assert!(!seen.hosts.is_empty());
        for host in &seen.hosts {
            assert_eq!((host.cpu.is_some(), host.memory.is_some(), host.online), (known, known, true));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_that_only_others_see_are_not_free() {
    let told = noticed(
        "proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1], pool: lab}",
        "vmids",
        |lab, desired| {
            add_vm(lab, desired.machines[0].vmid, &[("name", "theirs")]);
        },
    )
    .await;
    assert!(told.contains("a VM or container that this token may not see"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_are_named() {
    let trial = trial("", |_| {});
    let later = trial.0.memory.now().plus(std::time::Duration::from_mins(10));
    let desired = &trial.0.desired;
    let checks = trial
        .0
        .with(async |live| {
            let survey = first_look(&live.pve, desired).await.expect("a look");
            Box::pin(Examination::new(live, &survey, desired, later)).await.checks(&Findings::new())
        })
        .await;
    let clock = check(&checks, "clock");
    assert_eq!(clock.state(), State::Error);
    assert!(words(clock).contains("s behind this computer's"), "{}", words(clock));
}

#[tokio::test(start_paused = true)]
async fn somebody_at_an_address_is_noticed_before_the_machine_is_made() {
    let first = trial("", |_| {});
    let ended = first.0.run(Goal::up()).await;
    assert!(ended.done);
    let mut other = first.0.desired.clone();
    other.cluster.id = "another".into();
    for (vmid, machine) in (700..).zip(&mut other.machines) {
        machine.vmid = vmid.to_string().parse().expect("a number");
    }
    let checks = examine(&first.then(other.clone())).await;
    let taken = check(&checks, "addresses");
    assert_eq!(taken.state(), State::Error);
    assert_eq!(taken.findings.len(), other.machines.len(), "each is told once: {}", words(taken));
}
