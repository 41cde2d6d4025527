//! Starting worlds.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    Lab,
    ground::Content,
    pve::{
        Datacentre, Release,
        access::{AclEntry, Subject, Token, User},
        cluster, ha,
        hosts::{Daemon, Host, Interface},
        qemu::agent::StandIn,
        storage::{
            definition::Definition,
            shelves::{FileFacts, Volume},
            web::{File, Page},
        },
    },
};

/// A host to start with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHost {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Threads of its processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
}

const GIB: u64 = 1 << 30;

/// Adds a host with a VLAN-aware bridge `vmbr0` on its card.
pub fn add_host(dc: &mut Datacentre, new: &NewHost) {
    let id = u32::try_from(dc.hosts.len() + 1).unwrap_or(u32::MAX);
    if dc.front.is_empty() {
        dc.front.clone_from(&new.name);
    }
    let host = Host {
        address: new.address.clone(),
        id,
        online: true,
        reachable: true,
        cpus: new.cpus,
        memory: new.memory,
        root_size: 252 * GIB,
        booted: crate::clock::Time::START,
        ran_before: Duration::from_mins(100),
        daemon: Daemon::Runs,
        interfaces: usual_interfaces(&new.address),
        qemu: "10.0.2".into(),
        dns: BTreeMap::new(),
    };
    dc.hosts.insert(new.name.clone(), host);
}

fn usual_interfaces(address: &str) -> Vec<Interface> {
    let card = Interface {
        name: "eno1".into(),
        kind: "eth".into(),
        facts: facts(
            &json!({ "active": 1, "exists": 1, "method": "manual", "method6": "manual", "families": ["inet"] }),
        ),
    };
    let bridge = Interface {
        name: "vmbr0".into(),
        kind: "bridge".into(),
        facts: facts(&json!({
            "active": 1,
            "autostart": 1,
            "method": "static",
            "method6": "manual",
            "families": ["inet"],
            "address": address,
            "netmask": "24",
            "cidr": format!("{address}/24"),
            "gateway": gateway(address),
            "bridge_ports": "eno1",
            "bridge_stp": "off",
            "bridge_fd": "0",
            "bridge_vlan_aware": 1,
            "bridge_vids": "2-4094",
        })),
    };
    vec![card, bridge]
}

/// A VLAN-aware bridge without an address of its own; the same on other hosts is the same network.
pub fn bridge(name: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        kind: "bridge".into(),
        facts: facts(&json!({
            "active": 1,
            "autostart": 1,
            "method": "manual",
            "method6": "manual",
            "families": ["inet"],
            "bridge_ports": "eno2",
            "bridge_stp": "off",
            "bridge_fd": "0",
            "bridge_vlan_aware": 1,
            "bridge_vids": "2-4094",
        })),
    }
}

fn gateway(address: &str) -> String {
    address.rsplit_once('.').map_or_else(String::new, |(network, _)| format!("{network}.1"))
}

fn facts(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Adds a user of the realm `pve` with a token that has all its rights, and a role on everything.
pub fn add_user(dc: &mut Datacentre, id: &str, token: &str, secret: &str, role: &str) {
    let token_entry = Token { separated: false, secret: secret.into(), ..Token::default() };
    let user =
        User { enabled: true, tokens: BTreeMap::from([(token.to_owned(), token_entry)]), ..User::default() };
    dc.access.users.insert(id.into(), user);
    dc.access.acl.push(AclEntry {
        path: "/".into(),
        subject: Subject::User,
        name: id.into(),
        role: role.into(),
        propagate: true,
    });
}

/// A datacentre to start with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDatacentre {
    /// What all hosts run.
    pub release: Release,
    /// The cluster's name; absent for a single host.
    pub cluster: Option<String>,
    /// Its hosts; clients talk to the first.
    pub hosts: Vec<NewHost>,
    /// How much each storage of a host holds, in bytes.
    pub capacity: u64,
    /// Whether the hosts share a storage besides.
    pub shared_storage: bool,
    /// The token of an administrator: user, name and secret.
    pub token: (String, String, String),
}

/// Builds a datacentre: on each host `local` for files, `local-lvm` for disks, `shared` if it is wanted, and the
/// bridge `vmbr0`; the status daemons and the HA manager run.
pub fn build(lab: &mut Lab, new: &NewDatacentre) {
    lab.pve.release = new.release;
    lab.pve.cluster.clone_from(&new.cluster);
    for host in &new.hosts {
        add_host(&mut lab.pve, host);
    }
    let (user, token, secret) = &new.token;
    add_user(&mut lab.pve, user, token, secret, "Administrator");
    let files = if new.release.at_least(8, 3) {
        "iso,vztmpl,backup,snippets,import"
    } else {
        "iso,vztmpl,backup,snippets"
    };
    let mut storages = vec![
        ("local", json!({ "type": "dir", "path": "/var/lib/vz", "content": files })),
        (
            "local-lvm",
            json!({ "type": "lvmthin", "vgname": "pve", "thinpool": "data", "content": "images,rootdir" }),
        ),
    ];
    if new.shared_storage {
        let shared =
            json!({ "type": "dir", "path": "/mnt/pve/shared", "content": "images,iso,import", "shared": 1 });
        storages.push(("shared", shared));
    }
    for (name, definition) in storages {
        set_storage(lab, name, &definition);
        for host in &new.hosts {
            if let Some(shelf) = lab.pve.storage.shelf_mut(name, &host.name) {
                shelf.capacity = new.capacity;
            }
        }
    }
    cluster::start_rounds(&mut lab.pve, &mut lab.ground);
    ha::start_manager(&mut lab.pve, &mut lab.ground);
}

/// Builds the world that recordings start from.
pub fn recorded(lab: &mut Lab) {
    let dc = &mut lab.pve;
    dc.cluster = Some("lab".into());
    dc.assumes_quorum = true;
    add_host(
        dc,
        &NewHost { name: "pve1".into(), address: "192.0.2.11".into(), cpus: 2, memory: 25_276_518_400 },
    );
    if let Some(host) = dc.hosts.get_mut("pve1") {
        host.interfaces.push(Interface {
            name: "vmbr1".into(),
            kind: "bridge".into(),
            facts: facts(&json!({
                "active": 1,
                "autostart": 1,
                "method": "manual",
                "method6": "manual",
                "families": ["inet"],
                "bridge_ports": "",
                "bridge_stp": "off",
                "bridge_fd": "0",
            })),
        });
    }
    dc.resolver.insert("pve2".into());
    let roles = ["Sys.Audit", "VM.Audit"].map(str::to_owned);
    dc.access.roles.insert("CCM".into(), roles.into());
    let secret = "11111111-2222-3333-4444-555555555555";
    add_user(dc, "ichor@pve", "t1", secret, "Administrator");
    add_user(dc, "limited@pve", "t1", secret, "CCM");
    let storages = [
        (
            "local",
            json!({ "type": "dir", "path": "/var/lib/vz", "content": "iso,vztmpl,backup,import,snippets" }),
        ),
        ("data", json!({ "type": "dir", "path": "/mnt/pve/data", "content": "images,rootdir" })),
        ("shared1", json!({ "type": "dir", "path": "/mnt/pve/shared1", "content": "images", "shared": 1 })),
    ];
    for (name, definition) in storages {
        set_storage(lab, name, &definition);
    }
    add_file(lab, "local:iso/talos.iso", File::of_bytes(&dense("iso", 100_352)));
    add_file(lab, "local:import/talos.qcow2", File::of_bytes(&empty_image(196_616, None)));
    add_file(lab, "local:import/small.raw", File::of_bytes(&vec![0; 1 << 20]));
    // Its bytes do not matter, only that none of its blocks is empty.
    let full = FileFacts { data: 16 << 20, ..FileFacts::default() };
    let full = File { size: 16 << 20, facts: full, ..File::of_bytes(&[]) };
    add_file(lab, "local:import/full16.raw", full);
    add_file(lab, "local:snippets/user.yaml", File::of_bytes(b"#cloud-config\nhostname: test\n"));
    serve_files(lab);
}

/// Sets whether a host is there, adding it if it is new.
pub fn set_host(lab: &mut Lab, name: &str, online: bool, reachable: bool) {
    if !lab.pve.hosts.contains_key(name) {
        let address = format!("192.0.2.{}", 11 + lab.pve.hosts.len());
        add_host(&mut lab.pve, &NewHost { name: name.into(), address, cpus: 2, memory: 24 * GIB });
    }
    let front = lab.pve.front == name;
    if let Some(host) = lab.pve.hosts.get_mut(name) {
        host.online = online;
        host.reachable = reachable || front;
    }
}

/// Defines a storage. `state` may say why it cannot be activated.
pub fn set_storage(lab: &mut Lab, name: &str, definition: &Value) {
    let mut options: BTreeMap<String, String> = BTreeMap::new();
    let mut kind = String::new();
    for (key, value) in definition.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            other => other.to_string(),
        };
        match key.as_str() {
            "type" => kind = text,
            "state" if text.contains("volume group does not exist") => {
                let group = definition["vgname"].as_str().unwrap_or_default();
                lab.pve
                    .storage
                    .broken
                    .insert(name.into(), format!("no such logical volume {group}/{}", pool(definition)));
            }
            "state" => {}
            _ => {
                options.insert(key.clone(), text);
            }
        }
    }
    if let Ok(definition) = Definition::new(&kind, &options) {
        lab.pve.storage.definitions.insert(name.into(), definition);
    }
}

fn pool(definition: &Value) -> &str {
    definition["thinpool"].as_str().unwrap_or_default()
}

/// Puts a file onto a storage of the host that clients talk to.
fn add_file(lab: &mut Lab, volume: &str, file: File) {
    let front = lab.pve.front.clone();
    add_file_on(lab, &front, volume, file);
}

/// Puts a file onto a storage of a host.
pub fn add_file_on(lab: &mut Lab, host: &str, volume: &str, file: File) {
    let content = lab.ground.media.add(file.content.clone());
    let format = volume.rsplit('.').next().unwrap_or("raw");
    let made = lab.ground.now.unix_seconds();
    // The room that these files take is counted with what else fills the disk.
    let mut what = Volume::fresh(format, file.size, 0, made, content);
    what.file = Some(file.facts);
    let _ = lab.pve.storage.put(host, volume, what);
}

/// Lets somebody on the host hold a volume open, or not any more.
pub fn hold_open(lab: &mut Lab, volume: &str, open: bool) {
    let front = lab.pve.front.clone();
    if let Some(volume) = lab.pve.storage.get_mut(&front, volume) {
        volume.busy = open;
    }
}

/// Lets the agent of a guest without a machine answer, or not any more.
pub fn agent_comes_up(lab: &mut Lab, vmid: VmId, reads_only: bool, up: bool) {
    // The guest of the recordings was called so, whatever its VM.
    let agent = StandIn { reads_only, ..StandIn::reader("cp-1") };
    if let Some(run) = lab.pve.vms.get_mut(&vmid).and_then(|vm| vm.run.as_mut()) {
        run.agent = up.then_some(agent);
    }
}

/// SHA-256 digests of `<word>0`, `<word>1` and so on, one after the other, cut to a size: bytes that no program
/// can make smaller.
fn dense(word: &str, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut number = 0;
    while bytes.len() < size {
        bytes.extend(Sha256::digest(format!("{word}{number}")));
        number += 1;
    }
    bytes.truncate(size);
    bytes
}

/// An empty qcow2 image of 64 MiB, as far as its first bytes tell.
fn empty_image(size: usize, backing: Option<&str>) -> Vec<u8> {
    let mut bytes = vec![0; size.max(512)];
    bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    bytes[20..24].copy_from_slice(&16u32.to_be_bytes());
    bytes[24..32].copy_from_slice(&(64u64 << 20).to_be_bytes());
    if let Some(name) = backing {
        bytes[8..16].copy_from_slice(&256u64.to_be_bytes());
        bytes[16..20].copy_from_slice(&u32::try_from(name.len()).unwrap_or_default().to_be_bytes());
        bytes[256..256 + name.len()].copy_from_slice(name.as_bytes());
    }
    bytes
}

/// A file of which size and checksum are known but not the bytes.
fn known_as(bytes: &[u8], size: u64, sha256: &str) -> File {
    let mut file = File::of_bytes(bytes);
    file.size = size;
    file.facts.sha256 = Some(sha256.into());
    file
}

/// Fills the small web server that recordings download from.
fn serve_files(lab: &mut Lab) {
    let server = "http://127.0.0.1:8000/";
    let mut page = |name: &str, page: Page| {
        lab.ground.web.pages.insert(format!("{server}{name}"), page);
    };
    let octets = "application/octet-stream";
    let iso = "application/x-iso9660-image";
    let a_iso = File::of_bytes(&dense("a", 100_000));
    let a_raw = File::of_bytes(&dense("raw", 65_536));
    let packed = |how: &str, size: u64, sum: &str, inner: &File| {
        let mut file = known_as(&[0], size, sum);
        file.packed = Some((how.into(), Box::new(inner.clone())));
        file
    };
    page("a.iso", Page::of(a_iso.clone(), iso));
    page("a.ova", Page::of(File::of_bytes(&dense("ova", 20_000)), octets));
    page("a.raw", Page::of(a_raw.clone(), octets));
    page("nine.qcow2", Page::of(File::of_bytes(b"Not Found"), octets));
    let sum = "de6a0fdc3d4ba85ba41412efd58e7713772015b3fb8762242cd835e4361c72df";
    page("a.iso.gz", Page::of(packed("gz", 100_053, sum, &a_iso), "application/gzip"));
    let sum = "c8dba5a36a963bdfa855595f5b5a9c42370d7a681b3018b8c78d80443587dd62";
    page("a.iso.zst", Page::of(packed("zst", 100_016, sum, &a_iso), octets));
    let sum = "50ce14aa375eca312c6a991cf49d4eebdc5a94890a9c5de73db29361fbd7c79e";
    page("a.raw.xz", Page::of(packed("xz", 65_600, sum, &a_raw), "application/x-xz"));
    let sum = "120ac7ee0ff4e7a3a0d1ecf599f561f57ef2f153a79d8ef06b2f9d064e8f732b";
    page(
        "backed.qcow2",
        Page::of(known_as(&empty_image(196_616, Some("/etc/passwd")), 196_616, sum), octets),
    );
    let sum = "1b7af784841125887e688254229e282829e17245d0e47fe7280da9b68a30d9e1";
    page("talos.qcow2", Page::of(known_as(&empty_image(196_616, None), 196_616, sum), octets));
    let redirect = Page { redirect: Some("/a.iso".into()), ..Page::error(302, "Found") };
    page("redirect/a.iso", redirect);
    page("err.iso", Page::error(500, "Internal Server Error"));
    page("missing.iso", Page::error(404, "File not found"));
    let slow =
        Page { bytes_per_second: Some(3300), ..Page::of(File::of_bytes(&dense("slow", 100_000)), iso) };
    page("slow.iso", slow);
    let named = Page { name: Some("metal-amd64.iso".into()), ..Page::of(File::of_bytes(b"content"), octets) };
    page("disp", named);
}

/// Returns bytes that stand in for a file of which only name, size and checksum are known: those of a file of
/// the web if it is one, else dense ones.
pub fn stand_in(lab: &Lab, size: u64, sha256: &str) -> Vec<u8> {
    let known = lab.ground.web.pages.values().find(|page| page.file.facts.sha256.as_deref() == Some(sha256));
    if let Some(Content::Bytes(bytes)) = known.map(|page| &page.file.content)
        && bytes.len() as u64 == size
    {
        return bytes.clone();
    }
    dense("stand-in", usize::try_from(size.min(1 << 24)).unwrap_or_default())
}
