//! What stands in the way of a cluster, before anything is touched. Everything is said at once.

use std::collections::BTreeMap;

use ichor_model::{
    Code, Desired, Finding, Findings, HostName, Observed, Severity, VmId,
    desired::{CloneKind, ImageSource, Machine, Role, Verify},
    observed::{MachineSeen, Owner, Release, Sight, StorageSeen, VmSeen},
    step::Verdict,
};

use crate::{
    action::{Action, ClusterPlan},
    drift::{left_over, listed},
    files::{has_seed, host_of, storage_of, template_host, template_of},
    privileges::lacking,
    quorum::quorum_without,
    up::has_network,
    voters::{remaining, stale_member},
    whereabouts::{moved, wanted},
};

/// The first release that imports disk images by its API.
const IMPORTS_IMAGES: Release = Release { major: 8, minor: 4 };
/// The first release that shows consoles to API tokens.
const SHOWS_CONSOLES: Release = Release { major: 9, minor: 2 };
const GIB: u64 = 1 << 30;

/// Finds everything that would stop the machines which are still to be made.
pub fn preflight(desired: &Desired, observed: &Observed) -> Findings {
    let to_make: Vec<&Machine> =
        desired.machines.iter().filter(|machine| !is_there(observed, machine.vmid)).collect();
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(desired.machines.iter().filter_map(|machine| other_vm(observed, machine)));
    findings.extend(unread(desired, observed, &to_make));
    findings.extend(desired.machines.iter().filter_map(|machine| locked(observed, machine)));
    for machine in &desired.machines {
        let (sure, guessed) = match moved(observed, machine) {
            Some(finding) if finding.severity == Severity::Error => (Some(finding), None),
            guessed => (None, guessed),
        };
        let taken = || taken_address(desired, observed, machine);
        findings.extend(sure.or_else(taken).or(guessed));
    }
    findings.extend(vip(observed));
    findings.extend(lost_control_planes(desired, observed));
    findings.extend(stale_members(desired, observed));
    let off = |machine: &&Machine| vm(observed, machine.vmid).is_none_or(|vm| !vm.running);
    let to_do: Vec<&Machine> = desired.machines.iter().filter(off).collect();
    findings.extend(lacking(desired, observed, &to_do));
    findings.extend(release(desired, observed, &to_make));
    findings.extend(consoles(desired, observed));
    findings.extend(trusted_network(desired, observed));
    findings.extend(no_network_yet(desired, observed));
    findings.extend(hosts(observed, &to_make));
    findings.extend(contents(desired, observed, &to_make));
    findings.extend(room(observed, &to_make));
    findings.extend(to_make.iter().filter_map(|machine| template(desired, observed, machine)));
    findings.into_iter().collect()
}

/// Names VMs that are to go and that somebody has protected in Proxmox: the inventory does not ask for it.
pub fn protected_by_others(desired: &Desired, observed: &Observed, plan: &ClusterPlan) -> Option<Finding> {
    let asked =
        |vmid: VmId| desired.machines.iter().any(|machine| machine.vmid == vmid && machine.vm.protection);
    let deleted = plan.steps().iter().filter_map(|step| match step.action {
        Action::DeleteVm { vmid, .. } => Some(vmid),
        _ => None,
    });
    let seen = deleted.filter_map(|vmid| Some((vmid, vm(observed, vmid)?)));
    let vms: Vec<(VmId, &VmSeen)> = seen.filter(|(vmid, vm)| vm.protected && !asked(*vmid)).collect();
    let (vmid, _) = vms.first()?;
    let named: Vec<String> =
        vms.iter().map(|(vmid, vm)| format!("VM {vmid} (`{}`) on host {}", vm.name, vm.host)).collect();
    let message = "Proxmox protects VMs that are to go, and the inventory does not ask for that";
    Some(
        Finding::error(Code::PROTECTED, None, message)
            .because(named.join(", "))
            .because("somebody may have protected them because they are needed")
            .remedy(format!(
                "find out who; then lift it for each of them, on its host:\n    qm set {vmid} --protection 0"
            )),
    )
}

fn vm(observed: &Observed, vmid: VmId) -> Option<&VmSeen> {
    observed.vms.get(&vmid).and_then(Sight::seen).and_then(Option::as_ref)
}

fn is_there(observed: &Observed, vmid: VmId) -> bool {
    vm(observed, vmid).is_some_and(|vm| vm.owner == Owner::Ours)
}

/// Says whose a VM is that should be ours.
fn somebody_else(owner: &Owner) -> Option<String> {
    match owner {
        Owner::Ours => None,
        Owner::OtherMachine(whose) => Some(format!("it is {whose} of this cluster")),
        Owner::OtherCluster(cluster) => Some(format!("it belongs to the cluster `{cluster}`")),
        Owner::Namesake => Some(Owner::NAMESAKE.to_owned()),
        Owner::Foreign(why) => Some(why.clone()),
    }
}

const FOREIGN_REMEDY: &str = "choose another `vmid` for the machine; the VM is left as it is";
const NAMESAKE_REMEDY: &str = "if it is to be this one's, run this where the secrets are that it was made with; otherwise give this cluster a `cluster.name` and VMIDs of its own. The VM is left as it is";

fn other_vm(observed: &Observed, machine: &Machine) -> Option<Finding> {
    let vmid = machine.vmid;
    let vm = vm(observed, vmid)?;
    let why = somebody_else(&vm.owner)?;
    if vm.lock.as_deref().is_some_and(|lock| ["create", "clone"].contains(&lock)) {
        let message =
            format!("VM {vmid}, meant for `{}`, is only begun, and nobody can tell by whom", machine.name);
        let remedy = format!(
            "if no task makes it any more, remove what is left of it on host `{}`:\n    qm unlock {vmid} && qm destroy {vmid}",
            vm.host
        );
        return Some(Finding::error(Code::VM_NOT_OURS, None, message).because(why).remedy(remedy));
    }
    let message = format!("VM {vmid}, meant for `{}`, is somebody else's", machine.name);
    Some(
        Finding::error(Code::VM_NOT_OURS, None, message)
            .because(why)
            .remedy(if vm.owner == Owner::Namesake { NAMESAKE_REMEDY } else { FOREIGN_REMEDY }),
    )
}

/// Says which VMs could not be asked whose they are. Any of them may be a machine that would be made a second time.
fn unread(desired: &Desired, observed: &Observed, to_make: &[&Machine]) -> Option<Finding> {
    let template = |vmid: VmId| desired.templates.iter().any(|template| template.vmid == vmid);
    let vms = observed.vms.iter().filter(|(vmid, _)| !template(**vmid));
    let mut unread = vms.filter_map(|(vmid, sight)| match sight {
        Sight::Unseen(why) => Some((vmid, why)),
        Sight::Seen(_) => None,
    });
    let (vmid, why) = unread.next()?;
    let machine = to_make.iter().find(|machine| machine.vmid == *vmid).or(to_make.first())?;
    let others = match unread.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let message = format!("VM {vmid}{others} could not be asked whose it is: it may be `{}`", machine.name);
    let finding = Finding::error(Code::VM_UNSEEN, None, message).because(why);
    Some(remaining(desired, observed).into_iter().fold(finding, Finding::because).remedy(
        "go on when its host answers:\n    ichor up\na host that is lost for good is first taken out of the Proxmox cluster:\n    pvecm delnode HOST",
    ))
}

fn locked(observed: &Observed, machine: &Machine) -> Option<Finding> {
    let vm = vm(observed, machine.vmid).filter(|vm| vm.owner == Owner::Ours)?;
    let lock = vm.lock.as_ref().filter(|_| !vm.running)?;
    let message = format!("VM {} of `{}` is locked ({lock})", machine.vmid, machine.name);
    Some(
        Finding::warning(Code::VM_LOCKED, None, message)
            .because("Proxmox works on it, or was interrupted")
            .remedy(format!(
                "if no task runs for it, unlock it on host `{}`:\n    qm unlock {}",
                vm.host, machine.vmid
            )),
    )
}

fn taken_address(desired: &Desired, observed: &Observed, machine: &Machine) -> Option<Finding> {
    let free = matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(None)));
    let why = match observed.machines.get(&machine.name)?.seen()? {
        MachineSeen::Stranger(why) => why.as_str(),
        // Before there is a VM, whoever waits for a config there is not ours.
        MachineSeen::Maintenance if free => "another Talos machine waits for its machine config there",
        _ => return None,
    };
    // That cluster's machine, which is told of already.
    if vm(observed, machine.vmid).is_some_and(|vm| vm.owner == Owner::Namesake) {
        return None;
    }
    let (name, address) = (&machine.name, address(machine));
    let runs = vm(observed, machine.vmid).is_some_and(|vm| vm.owner == Owner::Ours && vm.running);
    if runs {
        let message =
            format!("`{name}` runs, and whoever answers at its address{address} does not know our secrets");
        let remedy = "if the machine was made with other secrets, bring them back:\n    ichor secrets import FILE\notherwise somebody else has taken its address: find out who";
        return Some(Finding::error(Code::ADDRESS_TAKEN, None, message).because(why).remedy(remedy));
    }
    let ours = left_over(desired, observed).filter(|(_, vm)| vm.running && !vm.template);
    let ours: Vec<String> = ours.map(|(vmid, vm)| format!("`{}` (VM {vmid})", vm.name)).collect();
    if !ours.is_empty() {
        return Some(renamed(machine, why, &ours));
    }
    let message = format!("somebody else answers at the address{address} of `{name}`");
    Some(
        Finding::error(Code::ADDRESS_TAKEN, None, message)
            .because(why)
            .remedy("give the machine another `address`, or find out who has it"),
    )
}

/// Returns the address of a machine as a word that follows `address`, if it is known.
fn address(machine: &Machine) -> String {
    wanted(machine).first().map(|address| format!(" {}", address.addr())).unwrap_or_default()
}

/// Workers that know the cluster's secrets have met its control planes. If none of those is left, etcd is gone too,
/// and a new one would begin empty.
fn lost_control_planes(desired: &Desired, observed: &Observed) -> Option<Finding> {
    let is_gone = |machine: &Machine| matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(None)));
    let mut workers = desired.of_role(Role::Worker);
    let worker = workers.find(|machine| is_configured(observed, machine))?;
    if !desired.of_role(Role::ControlPlane).all(is_gone) {
        return None;
    }
    let message = format!("the control planes of the cluster are gone, and `{}` still runs", worker.name);
    Some(
        Finding::error(Code::CONTROL_PLANES_LOST, None, message)
            .because("etcd was on them: new ones would begin with an empty cluster")
            .remedy("bring their VMs back from a backup under their old numbers; for an empty cluster, remove what is left first:\n    ichor destroy"),
    )
}

/// A vote that nobody will cast any more is taken out of etcd before a machine takes its place; where etcd would not
/// go on after that, nothing is begun.
fn stale_members(desired: &Desired, observed: &Observed) -> Vec<Finding> {
    let on: Vec<_> = desired.of_role(Role::ControlPlane).map(|machine| machine.name.clone()).collect();
    let stale = desired.machines.iter().filter(|machine| stale_member(observed, machine).is_some());
    let told = stale.filter_map(|machine| match quorum_without(observed, &machine.name, &on) {
        Verdict::Fails(why) => Some((machine, why)),
        Verdict::Holds | Verdict::Unknown(_) => None,
    });
    let finding = |(machine, why): (&Machine, String)| {
        let message = format!(
            "etcd still counts `{}`, whose machine is gone, and is too weak to lose a vote now",
            machine.name
        );
        Finding::error(Code::STALE_MEMBER, None, message)
            .because(why)
            .remedy("bring the other control planes back first, into the inventory too; see when they vote, and run this again:\n    ichor status")
    };
    told.map(finding).collect()
}

/// Who answers may well be a machine of ours that was renamed: its VM has the old name.
fn renamed(machine: &Machine, why: &str, ours: &[String]) -> Finding {
    let name = &machine.name;
    let address = address(machine);
    let message = format!("the address{address} of `{name}` is taken, perhaps by a machine of this cluster");
    Finding::error(Code::ADDRESS_TAKEN, None, message)
        .because(why)
        .because(format!("of this cluster, running, and not in the inventory: {}", listed(ours)))
        .remedy(format!(
            "machines keep their names: if `{name}` is one of them, call it so again; if not, give it another `address`"
        ))
}

fn vip(observed: &Observed) -> Option<Finding> {
    let why = observed.vip.seen()?.as_ref()?;
    Some(
        Finding::error(Code::ADDRESS_TAKEN, None, "somebody else has the VIP of the cluster")
            .because(why)
            .remedy("choose another `cluster.endpoint.vip`, or find out who has it"),
    )
}

fn release(desired: &Desired, observed: &Observed, to_make: &[&Machine]) -> Option<Finding> {
    let release = observed.release.seen().filter(|release| **release < IMPORTS_IMAGES)?;
    let imports = |machine: &&&Machine| match template_of(desired, machine) {
        Some(template) => !template.existing && !is_there(observed, template.vmid),
        None => {
            let image = desired.images.iter().find(|image| image.id == machine.image);
            image.is_some_and(|image| image.source == ImageSource::Disk)
        }
    };
    let machine = to_make.iter().find(imports)?;
    let message = format!(
        "Proxmox {}.{} cannot import the disk image of `{}` by its API",
        release.major, release.minor, machine.name
    );
    Some(
        Finding::error(Code::PVE_RELEASE, None, message)
            .because("that came with Proxmox 8.4")
            .remedy(
                "use another way to boot:\n    image: {source: iso}\nor clone a template that is there already (`existing: true`)",
            ),
    )
}

fn is_configured(observed: &Observed, machine: &Machine) -> bool {
    matches!(observed.machines.get(&machine.name), Some(Sight::Seen(MachineSeen::Ours(_))))
}

/// Before Proxmox 9.2 only people who log in may open a console, and no token.
fn consoles(desired: &Desired, observed: &Observed) -> Option<Finding> {
    let release = observed.release.seen().filter(|release| **release < SHOWS_CONSOLES)?;
    let by_console = |machine: &&Machine| machine.boot.verify == Verify::Console;
    let mut waiting = desired.machines.iter().filter(|machine| !is_configured(observed, machine));
    let machine = waiting.find(by_console)?;
    let message = format!(
        "Proxmox {}.{} shows no console to API tokens, so nobody vouches for the key of `{}`",
        release.major, release.minor, machine.name
    );
    Some(
        Finding::error(Code::PVE_RELEASE, None, message)
            .because("tokens may read consoles since Proxmox 9.2")
            .remedy(
                "let machines take their config from a volume of their own:\n    boot: {address: cidata, config: cidata}\nor trust whoever answers at their addresses:\n    boot: {verify: network}",
            ),
    )
}

fn trusted_network(desired: &Desired, observed: &Observed) -> Option<Finding> {
    let trusted = |machine: &&Machine| machine.boot.verify == Verify::Network;
    let waiting = desired.machines.iter().filter(|machine| !is_configured(observed, machine));
    let names: Vec<&str> = waiting.filter(trusted).map(|machine| machine.name.as_str()).collect();
    let [first, rest @ ..] = names.as_slice() else { return None };
    let others = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let message = format!("`{first}`{others} will get their configs from us whoever they are");
    Some(
        Finding::warning(Code::TRUSTED_NETWORK, None, message)
            .because("`boot.verify: network` trusts whoever answers at the address")
            .remedy("use `verify: console` where Proxmox shows consoles to tokens (9.2 and later)"),
    )
}

fn no_network_yet(desired: &Desired, observed: &Observed) -> Option<Finding> {
    if has_network(desired) {
        return None;
    }
    let ready = |machine: &Machine| {
        let node = observed.nodes.seen().and_then(|nodes| nodes.get(machine.name.as_str()));
        node.is_some_and(|node| node.ready)
    };
    let choice = desired.addons.get("cni").and_then(|cni| cni.choice.as_deref()).unwrap_or("none");
    let waits = !desired.machines.iter().all(ready);
    waits.then(|| {
        Finding::warning(Code::NO_NETWORK_YET, None, "nodes register, and are not Ready until a CNI runs")
            .because(format!("the inventory chooses `cni: {choice}`, which Talos does not bring itself"))
            .remedy("install it next; until then nothing but pods of the host network runs")
    })
}

fn hosts<'a>(observed: &'a Observed, to_make: &'a [&Machine]) -> impl Iterator<Item = Finding> + 'a {
    to_make.iter().filter_map(|machine| {
        let Some(host) = host_of(machine) else {
            let message = format!("no host could be chosen for `{}`", machine.name);
            return Some(
                Finding::error(Code::NO_HOSTS, None, message)
                    .because("Proxmox shows no host that answers to this token")
                    .remedy(
                        "name the hosts under `proxmox.hosts`, or give the token `Sys.Audit` on `/nodes`",
                    ),
            );
        };
        let why = match observed.hosts.get(host) {
            Some(true) => return None,
            Some(false) => "it does not answer",
            None if observed.hosts.is_empty() => return None,
            None => "Proxmox knows no such host",
        };
        let message = format!("`{}` cannot be made on host `{host}`", machine.name);
        Some(
            Finding::error(Code::HOST_DOWN, None, message)
                .because(why)
                .remedy("bring the host back, or pin the machine to another one; then:\n    ichor up"),
        )
    })
}

/// Says which hosts of the cluster have gone down, with what was on them and what is left without. `where_is` tells
/// where a machine was seen last.
pub fn lost_hosts(
    desired: &Desired,
    observed: &Observed,
    where_is: impl Fn(&Machine) -> Option<HostName>,
) -> Vec<Finding> {
    let down = observed.hosts.iter().filter(|(_, up)| !**up).map(|(host, _)| host);
    let tell = |host: &HostName| {
        let here = desired.machines.iter().filter(|machine| where_is(machine).as_ref() == Some(host));
        let here: Vec<String> =
            here.map(|machine| format!("`{}` (VM {})", machine.name, machine.vmid)).collect();
        if here.is_empty() {
            return None;
        }
        let message = format!("host `{host}` does not answer any more");
        let finding =
            Finding::error(Code::HOST_DOWN, None, message).because(format!("on it: {}", listed(&here)));
        let finding = remaining(desired, observed).into_iter().fold(finding, Finding::because);
        Some(finding.remedy(format!(
            "bring the host back and go on where this run stopped:\n    ichor up\nif it is lost for good, take it out of the Proxmox cluster first:\n    pvecm delnode {host}"
        )))
    };
    down.filter_map(tell).collect()
}

/// What each machine needs of its storages: storage, content type, and what for.
fn wants(desired: &Desired, machine: &Machine) -> Vec<(String, &'static str, &'static str)> {
    let Some(host) = host_of(machine) else { return Vec::new() };
    let storage = storage_of(desired, host);
    let mut wants: Vec<(String, &str, &str)> =
        machine.disks.iter().map(|disk| (disk.storage.clone(), "images", "disks")).collect();
    let extra = [&machine.vm.efi_storage, &machine.vm.cloudinit_storage];
    wants.extend(extra.into_iter().flatten().map(|storage| (storage.clone(), "images", "disks")));
    let image = desired.images.iter().find(|image| image.id == machine.image && image.file.is_none());
    match image.map(|image| image.source) {
        Some(ImageSource::Disk) => wants.push((storage.images.clone(), "import", "disk images")),
        Some(ImageSource::Iso) => wants.push((storage.images.clone(), "iso", "installation media")),
        Some(ImageSource::Template) | None => {}
    }
    if has_seed(machine) {
        wants.push((storage.images.clone(), "iso", "cidata volumes"));
    }
    wants
}

fn contents(desired: &Desired, observed: &Observed, to_make: &[&Machine]) -> Vec<Finding> {
    let mut wanted: BTreeMap<(HostName, String, &str), &str> = BTreeMap::new();
    for machine in to_make {
        let Some(host) = host_of(machine) else { continue };
        for (storage, content, purpose) in wants(desired, machine) {
            wanted.insert((host.clone(), storage, content), purpose);
        }
        let own = template_of(desired, machine).filter(|template| !template.existing);
        let to_build = own.filter(|template| !is_there(observed, template.vmid));
        if let Some((template, host)) =
            to_build.and_then(|own| Some((own, template_host(desired, observed, own)?)))
        {
            let images = storage_of(desired, host).images.clone();
            wanted.insert((host.clone(), images, "import"), "disk images");
            wanted.insert((host.clone(), template.storage.clone(), "images"), "templates");
        }
    }
    // What the release cannot do at all is spoken of elsewhere.
    let too_old = observed.release.seen().is_some_and(|release| *release < IMPORTS_IMAGES);
    wanted.retain(|(_, _, content), _| !(too_old && *content == "import"));
    let judge = |((host, storage, content), purpose): ((HostName, String, &str), &str)| {
        // A host of which nothing was seen is spoken of elsewhere.
        let silent = observed.hosts.get(&host) == Some(&false);
        if silent || !observed.storages.keys().any(|(seen, _)| *seen == host) {
            return None;
        }
        let found = observed.storages.get(&(host.clone(), storage.clone()));
        let (message, remedy) = match found {
            None => (
                format!("host `{host}` has no storage `{storage}` for {purpose}"),
                "name another one under `proxmox.storage`, or let the token see it".to_owned(),
            ),
            Some(seen) if !seen.active => (
                format!("storage `{storage}` does not work on host `{host}`"),
                "see to the storage, or name another one under `proxmox.storage`".to_owned(),
            ),
            Some(seen) if !seen.content.iter().any(|has| has == content) => {
                let with = seen.content.iter().map(String::as_str).chain([content]);
                let all: Vec<&str> = with.collect();
                let command = format!("pvesm set {storage} --content {}", all.join(","));
                (
                    format!("storage `{storage}` on host `{host}` may not hold {purpose}"),
                    format!("allow it:\n    {command}"),
                )
            }
            Some(_) => return None,
        };
        let finding = Finding::error(Code::STORAGE_CONTENT, None, message);
        let why = match found {
            Some(seen) if !seen.active => "Proxmox says that it is not active there".to_owned(),
            _ => format!("{purpose} need the content type `{content}`"),
        };
        Some(finding.because(why).remedy(remedy))
    };
    wanted.into_iter().filter_map(judge).collect()
}

fn room(observed: &Observed, to_make: &[&Machine]) -> Vec<Finding> {
    let mut wanted: BTreeMap<(HostName, String), u64> = BTreeMap::new();
    for machine in to_make {
        let Some(host) = host_of(machine) else { continue };
        for disk in &machine.disks {
            let home = home_of(observed, host, &disk.storage);
            *wanted.entry((home.clone(), disk.storage.clone())).or_default() += disk.size.mib() << 20;
        }
    }
    let judge = |((host, storage), bytes): ((HostName, String), u64)| {
        let free = observed.storages.get(&(host.clone(), storage.clone()))?.free?;
        let message = format!("storage `{storage}` on host `{host}` has too little room");
        (bytes > free).then(|| {
            Finding::warning(Code::STORAGE_FULL, None, message)
                .because(format!("new disks have {} GiB, and {} GiB are free", bytes / GIB, free / GIB))
                .remedy("make room, use smaller disks, or spread the machines")
        })
    };
    wanted.into_iter().filter_map(judge).collect()
}

/// Returns the host that stands for a storage: a shared one has the same room on all hosts, and has it once.
fn home_of<'a>(observed: &'a Observed, host: &'a HostName, storage: &str) -> &'a HostName {
    let shared = |(at, seen): (&'a (HostName, String), &StorageSeen)| {
        (at.1 == storage && seen.shared).then_some(&at.0)
    };
    let here = observed.storages.get(&(host.clone(), storage.to_owned()));
    if !here.is_some_and(|seen| seen.shared) {
        return host;
    }
    observed.storages.iter().find_map(shared).unwrap_or(host)
}

fn template(desired: &Desired, observed: &Observed, machine: &Machine) -> Option<Finding> {
    let template = template_of(desired, machine)?;
    let host = host_of(machine)?;
    let vmid = template.vmid;
    let wrong = |why: String, remedy: &str| {
        let message = format!("`{}` cannot be cloned from template {vmid}", machine.name);
        Some(Finding::error(Code::TEMPLATE_MISSING, None, message).because(why).remedy(remedy))
    };
    let seen = vm(observed, vmid);
    if template.existing {
        match observed.vms.get(&vmid).unwrap_or(&Sight::default()) {
            Sight::Unseen(why) => {
                return wrong(
                    format!("VM {vmid} could not be seen: {why}"),
                    "let the token see it: it needs `VM.Audit` and `VM.Clone` on it",
                );
            }
            Sight::Seen(None) => {
                return wrong(format!("there is no VM {vmid}"), "correct its number, or leave it to ichor");
            }
            Sight::Seen(Some(vm)) if !vm.template => {
                return wrong(format!("VM {vmid} is no template"), "correct its number");
            }
            Sight::Seen(Some(_)) => {}
        }
    } else if let Some(why) = seen.and_then(|vm| somebody_else(&vm.owner)) {
        let begun = seen.is_some_and(|vm| vm.lock.as_deref() == Some("create"));
        if let Some(vm) = seen.filter(|_| begun) {
            let remedy = format!(
                "if no task makes it any more, remove what is left of it on host `{}`:\n    qm unlock {vmid} && qm destroy {vmid}",
                vm.host
            );
            return wrong(format!("VM {vmid} is only begun: {why}"), &remedy);
        }
        return wrong(
            format!("VM {vmid} is somebody else's: {why}"),
            "choose another number for the template",
        );
    }
    let home = template_host(desired, observed, template)?;
    let shared = |storage: &str| {
        observed.storages.get(&(host.clone(), storage.to_owned())).is_none_or(|seen| seen.shared)
    };
    if home != host && !shared(&template.storage) {
        return wrong(
            format!(
                "the template is on host `{home}`, the machine is to be on host `{host}`, and storage `{}` is not shared",
                template.storage
            ),
            "keep templates on a shared storage (`proxmox.storage.templates`), or pin the machines to the template's host",
        );
    }
    let disks = &machine.system_disk().storage;
    if home != host && template.clone == CloneKind::Full && !shared(disks) {
        return wrong(
            format!(
                "the template is on host `{home}`, the machine is to be on host `{host}`, and Proxmox clones to another host only onto a shared storage, which `{disks}` is not"
            ),
            "put the disks on a shared storage, have a template on each host (`templates: {GROUP: {vmid: VMID, host: HOST}}`), or use `image: {source: disk}`",
        );
    }
    let linked_elsewhere =
        template.clone == CloneKind::Linked && machine.system_disk().storage != template.storage;
    if linked_elsewhere {
        return wrong(
            format!("a linked clone stays on the template's storage `{}`", template.storage),
            "write `clone: full`, or put the disk on that storage",
        );
    }
    None
}
