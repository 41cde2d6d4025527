//! What the token has to be allowed, and how it is allowed that.

mod account;

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Code, Desired, Finding, Observed,
    desired::{ImageSource, Late, Machine, PciAddress, Verify},
    observed::{Release, Rights},
};

pub use self::account::{Account, Privilege};
use crate::files::{has_seed, host_of, storage_of, template_of};

/// The first release with privileges of its own for guest agents; older ones have `VM.Monitor`.
const AGENT_PRIVILEGES: Release = Release { major: 9, minor: 0 };
/// The first release with a privilege of its own for downloads; a role that names it is refused by older ones.
const DOWNLOAD_PRIVILEGE: Release = Release { major: 8, minor: 2 };
/// The first release with privileges on bridges.
const BRIDGE_PRIVILEGES: Release = Release { major: 8, minor: 0 };
/// What Proxmox calls the zone of plain bridges.
const PLAIN_BRIDGES: &str = "/sdn/zones/localnetwork";

/// What ichor asks for, for a role that serves every inventory.
const ALL: [&str; 23] = [
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Mapping.Use",
    "Pool.Allocate",
    "Pool.Audit",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Console",
    "VM.PowerMgmt",
];

/// Returns the commands that allow something, for a host's shell.
///
/// An entry of its own on a deeper path replaces what is inherited there, so the role holds everything that ichor
/// needs and not only what was missing. A token with rights of its own has those that its user has too, and one
/// without has its user's: the commands are for both.
pub fn grant<'a>(
    token: &str,
    paths: impl IntoIterator<Item = &'a str>,
    release: Option<Release>,
    privileges: &[&str],
) -> String {
    let user = token.split('!').next().unwrap_or(token);
    let mut all: BTreeSet<&str> = ALL.into_iter().chain(privileges.iter().copied()).collect();
    all.insert(agent_privilege(release));
    if release.is_some_and(|release| release < DOWNLOAD_PRIVILEGE) {
        all.remove("Sys.AccessNetwork");
    }
    let all: Vec<&str> = all.into_iter().collect();
    let mut commands = format!("    pveum role add Ichor --privs '{}'", all.join(","));
    for path in paths {
        commands +=
            &format!("\n    pveum acl modify {path} --users '{user}' --tokens '{token}' --roles Ichor");
    }
    commands
}

fn agent_privilege(release: Option<Release>) -> &'static str {
    if release.is_some_and(|release| release < AGENT_PRIVILEGES) {
        "VM.Monitor"
    } else {
        "VM.GuestAgent.Audit"
    }
}

/// One of several ways to be allowed something: all privileges of it, each on its path.
type Way = Vec<(String, &'static str)>;

/// Finds privileges that the token lacks for what is still to be made or started. What cannot be seen is left to
/// Proxmox to say.
pub fn lacking(desired: &Desired, observed: &Observed, to_do: &[&Machine]) -> Option<Finding> {
    let rights = observed.rights.seen()?;
    let mut lacks: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for ways in to_do.iter().flat_map(|machine| needs(desired, observed, machine)) {
        let holds = |way: &Way| way.iter().all(|(path, privilege)| has(rights, path, privilege));
        if !ways.iter().any(holds)
            && let Some((path, privilege)) =
                ways.into_iter().next().and_then(|way| way.into_iter().find(|(p, q)| !has(rights, p, q)))
        {
            lacks.entry(privilege).or_default().insert(path);
        }
    }
    let release = observed.release.seen().copied();
    (!lacks.is_empty()).then(|| finding(rights, release, &lacks))
}

/// All that is missing is one finding, with one remedy.
fn finding(rights: &Rights, release: Option<Release>, lacks: &BTreeMap<&str, BTreeSet<String>>) -> Finding {
    let mut together: BTreeMap<&BTreeSet<String>, Vec<&str>> = BTreeMap::new();
    for (privilege, paths) in lacks {
        together.entry(paths).or_default().push(privilege);
    }
    let lines: Vec<String> = together
        .into_iter()
        .map(|(paths, privileges)| {
            format!(
                "{} on {}",
                quoted(&privileges),
                quoted(&paths.iter().map(String::as_str).collect::<Vec<_>>())
            )
        })
        .collect();
    let places: BTreeSet<String> = lacks.values().flatten().map(|path| source(rights, path)).collect();
    let missing: Vec<&str> = lacks.keys().copied().collect();
    let commands = grant(&rights.who, places.iter().map(String::as_str), release, &missing);
    let finding = match &lines[..] {
        [one] => Finding::error(Code::DENIED, None, format!("token `{}` lacks {one}", rights.who)),
        several => {
            let count = missing.len();
            let message = format!("token `{}` lacks {count} privileges", rights.who);
            several.iter().fold(Finding::error(Code::DENIED, None, message), Finding::because)
        }
    };
    finding
        .because("Proxmox would refuse what is to be done")
        .remedy(format!("on a Proxmox host, run:\n{commands}"))
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// What a machine that is still to be made needs: for each thing, the ways to be allowed it.
fn needs(desired: &Desired, observed: &Observed, machine: &Machine) -> Vec<Vec<Way>> {
    let release = observed.release.seen().copied();
    let mut needs = vm_needs(desired, release, machine);
    // Where the host is still to be chosen, any may be.
    let host = host_of(machine);
    let one = |path: String, privilege: &'static str| vec![vec![(path, privilege)]];
    let built = template_of(desired, machine).filter(|template| !template.existing);
    let storages = machine.disks.iter().map(|disk| &disk.storage);
    let storages = storages.chain(built.map(|template| &template.storage));
    let extra = [&machine.vm.efi_storage, &machine.vm.cloudinit_storage];
    for storage in storages.chain(extra.into_iter().flatten()) {
        needs.push(one(format!("/storage/{storage}"), "Datastore.AllocateSpace"));
    }
    let downloads = template_of(desired, machine).is_none_or(|template| !template.existing);
    let image = desired.images.iter().find(|image| image.id == machine.image);
    let downloads = downloads && image.is_some_and(|image| image.file.is_none());
    let own = host.map_or(&desired.proxmox.storage, |host| storage_of(desired, host));
    let images = format!("/storage/{}", own.images);
    if downloads || has_seed(machine) {
        needs.push(one(images.clone(), "Datastore.AllocateTemplate"));
        needs
            .push(vec![vec![(images.clone(), "Datastore.Audit")], vec![(images, "Datastore.AllocateSpace")]]);
    }
    if downloads {
        let root = "/".to_owned();
        let own = vec![(node_path(machine), "Sys.AccessNetwork")];
        let older = vec![(root.clone(), "Sys.Audit"), (root, "Sys.Modify")];
        let is_old = release.is_some_and(|release| release < DOWNLOAD_PRIVILEGE);
        needs.push(if is_old { vec![older] } else { vec![own, older] });
    }
    // A network of SDN lies in a zone whose name the inventory does not know.
    let plain = machine.nics.iter().filter(|nic| nic.bridge.starts_with("vmbr"));
    if release.is_none_or(|release| release >= BRIDGE_PRIVILEGES) {
        needs.extend(plain.map(|nic| {
            let tag = nic.vlan.map_or_else(String::new, |vlan| format!("/{vlan}"));
            one(format!("{PLAIN_BRIDGES}/{}{tag}", nic.bridge), "SDN.Use")
        }));
    }
    if let Some(pool) = &desired.proxmox.pool {
        needs.push(one(format!("/pool/{pool}"), "Pool.Audit"));
        // One that cannot be seen may be missing too.
        if observed.pool.seen() == Some(&false) {
            needs.push(one(format!("/pool/{pool}"), "Pool.Allocate"));
        }
    }
    needs
}

/// Returns the path of the host that a machine is on, or of all where it is still to be chosen.
fn node_path(machine: &Machine) -> String {
    host_of(machine).map_or_else(|| "/nodes".to_owned(), |host| format!("/nodes/{host}"))
}

fn vm_needs(desired: &Desired, release: Option<Release>, machine: &Machine) -> Vec<Vec<Way>> {
    let path = format!("/vms/{}", machine.vmid);
    let mut privileges = vec![
        "VM.Allocate",
        "VM.Audit",
        "VM.Config.CPU",
        "VM.Config.Disk",
        "VM.Config.HWType",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.PowerMgmt",
    ];
    if machine.vm.cloudinit_storage.is_some() {
        privileges.push("VM.Config.Cloudinit");
    }
    let mut images = desired.images.iter();
    let installs = images.any(|image| image.id == machine.image && image.source == ImageSource::Iso);
    if machine.vm.cloudinit_storage.is_some() || has_seed(machine) || installs {
        privileges.push("VM.Config.CDROM");
    }
    if machine.boot.verify == Verify::Console {
        privileges.push("VM.Console");
    }
    if machine.primary_nic().addresses.iter().any(|address| matches!(address, Late::From(_))) {
        privileges.push(agent_privilege(release));
    }
    // What somebody may do in a pool, they may do with its members.
    let pool = desired.proxmox.pool.as_ref().map(|pool| format!("/pool/{pool}"));
    let ways = |privilege: &'static str| {
        let paths = std::iter::once(path.clone()).chain(pool.clone());
        paths.map(|path| vec![(path, privilege)]).collect()
    };
    let mut needs: Vec<Vec<Way>> = privileges.into_iter().map(ways).collect();
    if let Some(template) = template_of(desired, machine) {
        let path = format!("/vms/{}", template.vmid);
        let pool = pool.filter(|_| !template.existing);
        needs.push(std::iter::once(path).chain(pool).map(|path| vec![(path, "VM.Clone")]).collect());
    }
    let mapped = machine.vm.pci.iter().filter_map(|device| match &device.device {
        PciAddress::Mapping(name) => Some(name),
        PciAddress::Address(_) => None,
    });
    if machine.vm.startup.is_some() {
        needs.push(vec![vec![("/".to_owned(), "Sys.Modify")]]);
    }
    needs.extend(mapped.map(|name| vec![vec![(format!("/mapping/pci/{name}"), "Mapping.Use")]]));
    needs
}

/// Whether somebody has a privilege on a path. Proxmox tells the paths that have entries of their own; the others
/// inherit from the nearest above.
fn has(rights: &Rights, path: &str, privilege: &str) -> bool {
    for above in upwards(path) {
        if let Some(privileges) = rights.paths.get(above) {
            return privileges.get(privilege).is_some_and(|inherited| above == path || *inherited);
        }
    }
    false
}

/// Returns where the rights on a path come from: an entry beside the others there adds to them.
fn source(rights: &Rights, path: &str) -> String {
    let told: Vec<&str> = upwards(path).filter(|above| rights.paths.contains_key(*above)).collect();
    let differs = |pair: &&[&str]| rights.paths.get(pair[0]) != rights.paths.get(pair[1]);
    match told.windows(2).find(differs) {
        Some(pair) => pair[0].to_owned(),
        None => told.last().map_or("/", |last| *last).to_owned(),
    }
}

/// Returns a path and those above it, nearest first.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/') {
        _ if *path == "/" => None,
        Some(0) => Some("/"),
        Some(at) => Some(&path[..at]),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(paths: &[(&str, &[(&str, bool)])]) -> Rights {
        let of = |privileges: &[(&str, bool)]| {
            privileges.iter().map(|(name, inherited)| ((*name).to_owned(), *inherited)).collect()
        };
        let paths = paths.iter().map(|(path, privileges)| ((*path).to_owned(), of(privileges)));
        Rights { who: "ichor@pve!lab".into(), paths: paths.collect() }
    }

    #[test]
    fn what_is_nearer_replaces_what_is_inherited() {
        let rights = rights(&[
            ("/", &[("VM.Audit", true), ("Sys.Audit", false)]),
            ("/vms", &[("VM.PowerMgmt", true)]),
        ]);
        for (path, privilege, expected) in [
            ("/", "Sys.Audit", true),
            ("/nodes/pve1", "Sys.Audit", false),
            ("/nodes/pve1", "VM.Audit", true),
            ("/vms/100", "VM.Audit", false),
            ("/vms/100", "VM.PowerMgmt", true),
        ] {
            assert_eq!(has(&rights, path, privilege), expected, "{path} {privilege}");
        }
    }

    #[test]
    fn rights_are_given_where_the_others_come_from() {
        let rights = rights(&[
            ("/", &[("VM.Audit", true)]),
            ("/nodes", &[("VM.Audit", true)]),
            ("/vms", &[("VM.PowerMgmt", true)]),
        ]);
        assert_eq!(source(&rights, "/nodes/pve1"), "/");
        assert_eq!(source(&rights, "/vms/100"), "/vms");
        assert_eq!(source(&Rights::default(), "/vms/100"), "/");
    }
}
