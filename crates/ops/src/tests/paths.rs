//! Every way to boot: from nothing to Ready and back to nothing, each in the lab that its inventory takes for
//! granted.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use ichor_engine::Outcome;
use ichor_lab::{Inside, proxy::Routes};
use ichor_machineconfig::schematic::Schematic;
use ichor_model::{
    Code, Desired, Findings, World,
    desired::{ConfigDelivery, Machine},
    observed,
};
use ichor_plan::{Extent, files::host_of, privileges::Account};
use ichor_sim::{
    Lab,
    faults::Server,
    ground::{Content, Installed},
    profile::Profile,
    pve::{
        access::{AclEntry, Pool, Subject},
        release::Release,
    },
    rehearsal,
    setup::{TOKEN, USER},
};
use ichor_spec::{Layers, Sources};

use super::{live::Rehearsal, resolve, rsa, site};
use crate::{
    converge::{Ended, Goal, first_look},
    live::proxmox,
    memory::{Memory, NOW},
    secrets,
};

/// A cluster in its lab.
pub struct Trial(pub Rehearsal);

impl Trial {
    pub fn of(desired: Desired, release: Release) -> Self {
        Self::prepared(desired, release, |_| {})
    }

    /// Begins in a lab that was changed before anybody came.
    pub fn prepared(desired: Desired, release: Release, prepare: impl FnOnce(&mut Lab)) -> Self {
        let mut lab = rehearsal::setup(&desired, 1, Profile::Lab, release);
        prepare(&mut lab);
        leave_only(&mut lab, &desired);
        let routes = Routes::of_cluster(&lab, &desired);
        let inside = Arc::new(Inside::over(Arc::new(ichor_lab::Hall::new(lab)), routes));
        let variables =
            ["HEADSCALE_AUTH_KEY", "FLUX_GIT_TOKEN"].map(|name| (name.to_owned(), "s3cret".to_owned()));
        let memory = Memory { variables: variables.into(), ..Memory::default() };
        memory.later.set(ichor_lab::real_time().unix_seconds() - NOW);
        secrets::new(&memory, site(&desired), || Ok(rsa())).expect("secrets");
        Self(Rehearsal { inside, memory, desired })
    }

    pub fn lab<T>(&self, look: impl FnOnce(&Lab) -> T) -> T {
        self.0.inside.hall().look(look)
    }

    /// Returns the calls that changed something: of Proxmox and the machines.
    pub fn changes(&self) -> usize {
        self.lab(|lab| {
            let record = &lab.ground.record;
            record.changing(Server::Pve).count() + record.changing(Server::Talos).count()
        })
    }

    async fn up(&self) -> Ended {
        let ended = self.0.run(Goal::up()).await;
        assert!(ended.done, "{}", failures(&ended));
        let left = ichor_plan::drift(&self.0.desired, &ended.observed);
        assert!(left.is_empty(), "a cluster that was just made differs: {left:#?}");
        self.drives_are_as_they_stay();
        ended
    }

    /// Whatever a machine needed for its first boot alone is out of its drives, and it boots from its disk. What it
    /// would be upgraded with is known to the factory.
    fn drives_are_as_they_stay(&self) {
        self.lab(|lab| {
            for image in &self.0.desired.images {
                let recipe = Schematic::of_image(image).id();
                let known = image.schematic.is_some() || lab.ground.schematics.contains_key(&recipe);
                assert!(known, "the factory has no installer for {}", image.id);
            }
            for machine in &self.0.desired.machines {
                let config = &lab.pve.vms[&machine.vmid].config;
                let order = config.get("boot").unwrap_or_default();
                assert!(order.starts_with(&format!("order={}", machine.system_disk().slot)), "{order}");
                let carries = machine.boot.config == ConfigDelivery::Cidata;
                let drives = ["ide0", "ide2"].map(|slot| config.get(slot).unwrap_or_default());
                assert!(!(drives[0].contains(".iso") || carries && drives[1].contains(".iso")), "{drives:?}");
            }
            let storages = serde_json::to_string(&lab.pve.storage).expect("storages");
            let secret =
                self.0.desired.machines.iter().any(|machine| machine.boot.config == ConfigDelivery::Cidata);
            assert!(!(secret && storages.contains("ichor-cidata")), "secrets are left on a storage");
        });
    }

    /// Runs until something is so in the lab, and breaks off.
    async fn up_until(&self, so: impl Fn(&Lab) -> bool) {
        let so = async {
            while !self.lab(&so) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            ended = self.0.run(Goal::up()) => panic!("it ended: {}", failures(&ended)),
            () = so => {}
        }
    }

    fn calls(&self, ending: &str) -> usize {
        self.lab(|lab| {
            let calls = lab.ground.record.changing(Server::Pve);
            calls.filter(|call| call.path.ends_with(ending)).count()
        })
    }

    /// The same place with another inventory.
    pub fn then(self, desired: Desired) -> Self {
        let Rehearsal { inside, memory, .. } = self.0;
        inside.hall().visit(|lab| leave_only(lab, &desired));
        Self(Rehearsal { inside, memory, desired })
    }

    /// Returns what the next command sees before it resolves the inventory.
    async fn world(&self) -> World {
        let desired = &self.0.desired;
        let pve = proxmox(&desired.proxmox.endpoint, &self.0.reach()).expect("a client");
        first_look(&pve, desired).await.expect("a look").world(desired)
    }

    /// Returns what stands in the way of a run.
    async fn halted(&self) -> Findings {
        let changes = self.changes();
        let halt = Box::pin(self.0.try_run(Goal::up())).await.expect_err("something stands in the way");
        assert_eq!(self.changes(), changes, "nothing was touched");
        halt.findings
    }

    /// A second run has nothing to do, and does nothing.
    async fn idle(&self) {
        let changes = self.changes();
        let again = self.up().await;
        assert!(again.report.is_none(), "{:?}", again.report);
        assert_eq!(self.changes(), changes, "the second run changes nothing");
    }

    /// Everything of ours goes, and nothing else.
    async fn gone(&self) {
        let gone = self.0.run(Goal::Gone(Extent::Everything)).await;
        assert!(gone.done, "{}", failures(&gone));
        self.lab(|lab| {
            let left: Vec<_> = lab.pve.vms.iter().filter(|(_, vm)| !vm.config.is_template()).collect();
            assert!(left.is_empty(), "{left:?}");
            let storages = serde_json::to_string(&lab.pve.storage).expect("storages");
            let left = storages.find("ichor-").map(|at| &storages[at..storages.len().min(at + 80)]);
            assert_eq!(left, None, "files of ours are left");
        });
    }

    async fn there_and_back(&self) {
        self.up().await;
        self.idle().await;
        self.gone().await;
    }
}

/// Leaves the token what a cluster needs and nothing else, so that every way is gone with the least account.
pub fn leave_only(lab: &mut Lab, desired: &Desired) {
    let account = account(lab, desired);
    let access = &mut lab.pve.access;
    for (role, privileges) in &account.roles {
        access.roles.insert(role.clone(), privileges.iter().map(ToString::to_string).collect());
    }
    access.acl.retain(|entry| !entry.name.starts_with(USER));
    for (path, roles) in &account.grants {
        for (role, (subject, name)) in roles.iter().flat_map(|role| {
            [(role, (Subject::User, USER.to_owned())), (role, (Subject::Token, format!("{USER}!{TOKEN}")))]
        }) {
            access.acl.push(AclEntry {
                path: path.clone(),
                subject,
                name,
                role: role.clone(),
                propagate: true,
            });
        }
    }
    access.pools.extend(account.pool.map(|pool| (pool, Pool::default())));
}

pub fn account(lab: &Lab, desired: &Desired) -> Account {
    let release = lab.pve.release.to_string();
    let (major, minor) = release.split_once('.').expect("a release");
    let number = |text: &str| text.parse().expect("a number");
    Account::of(desired, observed::Release { major: number(major), minor: number(minor) })
}

/// Says which steps failed, and which were never done although none failed.
pub fn failures(ended: &Ended) -> String {
    let Some(report) = &ended.report else { return "nothing was done".into() };
    let outcomes = report.outcomes.iter();
    let failed = outcomes.filter(|(_, outcome)| matches!(outcome, Outcome::Failed { .. }));
    failed.map(|(step, outcome)| format!("{step}: {outcome:?}\n")).collect()
}

/// Returns what is on the system disk of a machine.
fn installed<'l>(lab: &'l Lab, machine: &Machine) -> &'l Installed {
    let vm = &lab.pve.vms[&machine.vmid];
    let drive = vm.config.get(&machine.system_disk().slot).expect("a disk");
    let volume = drive.split(',').next().unwrap_or_default();
    let volume = lab.pve.storage.get(&vm.host, volume).expect("a volume");
    match lab.ground.media.get(volume.content) {
        Content::Installed(installed) => installed,
        other => panic!("{other:?}"),
    }
}

fn example(name: &str, world: &World) -> Desired {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut sources = Sources::default();
    let mut add = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("an example");
        sources.add(path.display().to_string(), text)
    };
    let home = root.join(name);
    let defaults = home.parent().map(|parent| parent.join("defaults.yaml")).filter(|path| path.exists());
    let defaults = defaults.iter().map(|path| add(path)).collect();
    // Whoever has run an example has its state beside it.
    let entries = std::fs::read_dir(&home).expect("an example").map(|entry| entry.expect("a file").path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let files = files.iter().map(|path| add(path)).collect();
    let layers = Layers { defaults, files };
    let mut findings = Findings::new();
    let loaded = ichor_spec::load(&sources, &layers, &mut findings).expect("an inventory");
    let resolution = ichor_plan::resolve(&loaded, world);
    resolution.desired.unwrap_or_else(|| panic!("{:?}", resolution.findings))
}

/// A control plane and a worker; `more` are lines of the inventory, those of `proxmox`, `network` and `machines` in
/// place of the usual ones.
pub fn inventory(endpoint: &str, more: &str) -> Desired {
    let usual = [
        ("proxmox:", "{endpoint: 'https://pve1:8006', hosts: [pve1, pve2]}"),
        ("network:", "{cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}"),
        ("machines:", "{cp: {role: control-plane}, worker: {role: worker}}"),
    ];
    let mut text = format!(
        "cluster: {{name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {endpoint}}}\n{more}\n"
    );
    for (key, value) in usual {
        if !more.lines().any(|line| line.starts_with(key)) {
            text.push_str(&format!("{key} {value}\n"));
        }
    }
    resolve(&text)
}

pub const VIP: &str = "{vip: 10.0.0.5}";
const LEASED: &str = "network: {addressing: dhcp, cidr: 10.0.0.0/24}";

async fn works(release: Release, endpoint: &str, more: &str) {
    println!("{release} {endpoint}: {more}");
    Box::pin(Trial::of(inventory(endpoint, more), release).there_and_back()).await;
}

async fn rehearse(name: &str) {
    let trial = Trial::of(example(name, &World::default()), Release::V9_2);
    trial.up().await;
    trial.idle().await;
    // The next command resolves the inventory among what this one has made.
    same_seats(&example(name, &trial.world().await), &trial.0.desired);
    trial.gone().await;
}

fn same_seats(again: &Desired, desired: &Desired) {
    let seats = |desired: &Desired| -> Vec<_> {
        let seat = |machine: &Machine| (machine.name.clone(), machine.vmid, host_of(machine).cloned());
        desired.machines.iter().map(seat).collect()
    };
    assert_eq!((seats(again), &again.templates), (seats(desired), &desired.templates));
}

#[tokio::test(start_paused = true)]
async fn vms_that_a_killed_run_began_keep_their_numbers() {
    for (name, lock) in [("minimal", "create"), ("templates", "create"), ("templates", "clone")] {
        let trial = Trial::of(example(name, &World::default()), Release::V9_2);
        trial.up_until(|lab| lab.pve.vms.values().any(|vm| vm.config.get("lock") == Some(lock))).await;
        same_seats(&example(name, &trial.world().await), &trial.0.desired);
    }
}

#[tokio::test(start_paused = true)]
async fn minimal() {
    rehearse("minimal").await;
}

#[tokio::test(start_paused = true)]
async fn capacity() {
    rehearse("capacity").await;
}

#[tokio::test(start_paused = true)]
async fn environments() {
    rehearse("environments/dev").await;
    rehearse("environments/prod").await;
}

#[tokio::test(start_paused = true)]
async fn private_network() {
    rehearse("private-network").await;
}

#[tokio::test(start_paused = true)]
async fn tailscale() {
    rehearse("tailscale").await;
}

#[tokio::test(start_paused = true)]
async fn templates() {
    rehearse("templates").await;
}

#[tokio::test(start_paused = true)]
async fn disk_images() {
    works(Release::V9_2, VIP, "boot: {address: cloudinit}").await;
    works(Release::V9_2, VIP, "boot: {address: cidata}").await;
    works(Release::V9_2, VIP, "boot: {address: cidata, config: cidata}").await;
    works(Release::V9_2, VIP, "boot: {address: meta}").await;
    works(Release::V9_2, VIP, "boot: {address: dhcp}").await;
    works(Release::V9_2, VIP, LEASED).await;
    works(Release::V9_2, VIP, &format!("{LEASED}\nboot: {{config: cidata}}")).await;
}

#[tokio::test(start_paused = true)]
async fn installation_media() {
    let iso = |more: &str| format!("image: {{source: iso}}\n{more}");
    works(Release::V9_2, VIP, &iso("boot: {address: cloudinit}")).await;
    works(Release::V9_2, VIP, &iso("boot: {address: cidata}")).await;
    works(Release::V9_2, VIP, &iso("boot: {address: cidata, config: cidata}")).await;
    works(Release::V9_2, VIP, &iso("boot: {address: meta}")).await;
    works(Release::V9_2, VIP, &iso("boot: {address: dhcp}")).await;
    works(Release::V9_2, VIP, &iso(LEASED)).await;
    works(Release::V9_2, VIP, &iso(&format!("{LEASED}\nboot: {{config: cidata}}"))).await;
}

const ONE_HOST: &str = "proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1]}";
const CEPH: &str = "proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2], storage: {disks: ceph, templates: ceph, images: local}}";

#[tokio::test(start_paused = true)]
async fn clones_of_templates() {
    for clone in ["full", "linked"] {
        let image = format!(
            "image: {{source: template, clone: {clone}, templates: {{control-plane: 900, worker: 901}}}}"
        );
        for boot in ["{address: cloudinit}", "{address: cidata}", "{address: cidata, config: cidata}"] {
            works(Release::V9_2, VIP, &format!("{image}\n{ONE_HOST}\nboot: {boot}")).await;
        }
        works(Release::V9_2, VIP, &format!("{image}\n{CEPH}")).await;
        works(Release::V9_2, VIP, &format!("{image}\n{ONE_HOST}\n{LEASED}")).await;
    }
    let each = "image: {source: template, templates: {control-plane: {vmid: 900, host: pve1}, a: {vmid: 901, host: pve1}, b: {vmid: 902, host: pve2}}}\n\
                machines: {cp: {role: control-plane, host: pve1}, a: {role: worker, host: pve1}, b: {role: worker, host: pve2}}";
    works(Release::V9_2, VIP, each).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_of_somebody_else_is_cloned_and_left_alone() {
    let more = format!(
        "image: {{source: template, templates: {{control-plane: {{vmid: 900, existing: true}}, worker: {{vmid: 900, existing: true}}}}}}\n{ONE_HOST}"
    );
    let trial = Trial::of(inventory(VIP, &more), Release::V9_2);
    let vmid = "900".parse().expect("a number");
    let before = trial.lab(|lab| lab.pve.vms[&vmid].clone());
    trial.there_and_back().await;
    trial.lab(|lab| assert_eq!(lab.pve.vms[&vmid], before));
}

#[tokio::test(start_paused = true)]
async fn a_template_is_built_anew_when_it_should_hold_something_else() {
    let image = |more: &str| {
        let image =
            format!("image: {{source: template, templates: {{control-plane: 900, worker: 901}}{more}}}");
        inventory(VIP, &format!("{image}\n{ONE_HOST}"))
    };
    let trial = Trial::of(image(""), Release::V9_2);
    trial.up().await;
    let built = |trial: &Trial| trial.calls("/template");
    assert_eq!(built(&trial), 2);
    let gone = trial.0.run(Goal::Gone(Extent::Machines)).await;
    assert!(gone.done, "{}", failures(&gone));
    trial.up().await;
    assert_eq!(built(&trial), 2, "templates that fit are used again");
    let gone = trial.0.run(Goal::Gone(Extent::Machines)).await;
    assert!(gone.done, "{}", failures(&gone));
    let trial = trial.then(image(", extensions: [siderolabs/qemu-guest-agent, siderolabs/iscsi-tools]"));
    trial.up().await;
    assert_eq!(built(&trial), 4);
    trial.lab(|lab| {
        for machine in &trial.0.desired.machines {
            assert_eq!(installed(lab, machine).image.extensions.len(), 2);
        }
    });
    trial.idle().await;
}

#[tokio::test(start_paused = true)]
async fn endpoints() {
    works(Release::V9_2, "{kube_vip: {address: 10.0.0.5}}", "").await;
    works(Release::V9_2, "{host: k8s.lab.example}", "").await;
    works(Release::V9_2, "{address: 10.9.0.5}", "").await;
    let alone = |more: &str| {
        let text = "cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3}\n\
                    proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1]}\n\
                    machines: {cp: {role: control-plane}, worker: {role: worker}}\n";
        resolve(&format!("{text}{more}\n"))
    };
    for more in
        ["network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}", "network: {addressing: dhcp}"]
    {
        Trial::of(alone(more), Release::V9_2).there_and_back().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_missed_is_read_again() {
    let trial = Trial::of(inventory(VIP, ""), Release::V9_2);
    trial.up_until(|lab| !lab.talos_addresses().is_empty()).await;
    assert_eq!(trial.calls("/status/reset"), 0);
    trial.up().await;
    assert!(trial.calls("/status/reset") > 0, "the VM was reset to see its key");
    trial.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_cidata_volume_is_never_booted() {
    let more = |label: &str| {
        format!(
            "boot: {{address: cidata, config: cidata}}\ndefaults: {{labels: {{color: {label}}}}}\n{ONE_HOST}"
        )
    };
    for image in ["", "image: {source: template, templates: {control-plane: 900, worker: 901}}\n"] {
        let with = |label: &str| inventory(VIP, &format!("{image}{}", more(label)));
        // Broken off when the first volume is there, and when the first VM is.
        let uploaded =
            |lab: &Lab| serde_json::to_string(&lab.pve.storage).expect("storages").contains("ichor-cidata");
        let made = |lab: &Lab| {
            lab.pve.vms.values().any(|vm| vm.config.get("ide2").is_some_and(|drive| drive.contains(".iso")))
        };
        for until in [uploaded as fn(&Lab) -> bool, made] {
            let trial = Trial::of(with("red"), Release::V9_2);
            trial.up_until(until).await;
            let trial = trial.then(with("blue"));
            trial.up().await;
            trial.idle().await;
            trial.lab(|lab| {
                for machine in &trial.0.desired.machines {
                    let config = installed(lab, machine).config.clone().unwrap_or_default();
                    let config = String::from_utf8_lossy(&config);
                    assert!(
                        config.contains("color: blue") && !config.contains("color: red"),
                        "{}",
                        machine.name
                    );
                }
            });
            trial.gone().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn older_releases() {
    let codes = |findings: &Findings| findings.iter().map(|finding| finding.code).collect::<Vec<_>>();
    let iso = "image: {source: iso}\n";
    let existing = format!(
        "image: {{source: template, templates: {{control-plane: {{vmid: 900, existing: true}}, worker: {{vmid: 900, existing: true}}}}}}\n{ONE_HOST}\n"
    );
    let cidata = "boot: {address: cidata, config: cidata}";
    for release in [Release::V8_4, Release::V8_0] {
        let found = Trial::of(inventory(VIP, iso), release).halted().await;
        assert_eq!(codes(&found), [Code::PVE_RELEASE], "no token reads consoles: {found:?}");
        works(release, VIP, &format!("{iso}{cidata}")).await;
        works(release, VIP, &format!("{existing}{cidata}")).await;
        works(release, VIP, &format!("{iso}boot: {{verify: network}}")).await;
    }
    works(Release::V8_4, VIP, cidata).await;
    works(Release::V8_4, VIP, "boot: {verify: network}").await;
    let found = Trial::of(inventory(VIP, cidata), Release::V8_0).halted().await;
    assert_eq!(codes(&found), [Code::PVE_RELEASE], "8.0 imports no images: {found:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_run_should_be_told_is_told() {
    let trial = Trial::of(inventory(VIP, "boot: {verify: network}\naddons: {cni: cilium}"), Release::V9_2);
    let observed = trial.0.run(Goal::up()).await;
    assert!(observed.done, "{}", failures(&observed));
    let codes: BTreeSet<Code> = observed.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, BTreeSet::from([Code::TRUSTED_NETWORK, Code::NO_NETWORK_YET]));
    trial.idle().await;
}
