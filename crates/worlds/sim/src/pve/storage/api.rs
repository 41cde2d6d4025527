//! The endpoints of storages and their contents.

// Handlers share one signature, whether they can fail or not.
#![allow(clippy::unnecessary_wraps)]

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use super::{
    Storages,
    definition::Definition,
    shelves::{NewVolume, listed_format},
    volume::{ContentType, VolumeId},
};
use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Lock, Mode, Next, Params, Reply, Worker,
        qemu::{
            disks::storage_lock,
            rights,
            work::{LOCK_WAIT, Waiter, patience},
        },
        storage, tasks,
    },
};

const SEE: [&str; 2] = ["Datastore.Audit", "Datastore.AllocateSpace"];

impl Storages {
    /// Returns the digest of `storage.cfg`.
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(&self.definitions).unwrap_or_default();
        Sha1::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Shows a definition.
fn shown(storages: &Storages, name: &str, definition: &Definition) -> Value {
    let mut row = Map::new();
    for (key, value) in &definition.options {
        let number = [
            "disable",
            "shared",
            "port",
            "krbd",
            "sparse",
            "mkdir",
            "saferemove",
            "create-base-path",
            "create-subdirs",
        ]
        .contains(&key.as_str())
        .then(|| value.parse::<u64>().ok())
        .flatten();
        row.insert(key.clone(), number.map_or_else(|| value.clone().into(), Value::from));
    }
    row.insert("storage".into(), name.into());
    row.insert("type".into(), definition.kind.clone().into());
    row.insert("content".into(), joined(definition.content.iter()).into());
    if !definition.nodes.is_empty() {
        row.insert("nodes".into(), joined(definition.nodes.iter()).into());
    }
    if definition.is_shared() {
        row.insert("shared".into(), 1.into());
    }
    row.insert("digest".into(), storages.digest().into());
    row.into()
}

fn joined<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(",")
}

/// Answers `GET /storage`.
pub fn definitions(dc: &mut Datacentre, _ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let kind = params.text("type");
    let rows = dc
        .storage
        .definitions
        .iter()
        .filter(|(name, _)| dc.may_any(&call.caller, &format!("/storage/{name}"), &SEE))
        .filter(|(_, definition)| kind.as_ref().is_none_or(|kind| *kind == definition.kind))
        .map(|(name, definition)| shown(&dc.storage, name, definition));
    Ok(Value::Array(rows.collect()).into())
}

/// Answers `GET /storage/{storage}`.
pub fn definition(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("storage");
    let definition = dc.storage.definition(&name).map_err(ApiError::server)?;
    Ok(shown(&dc.storage, &name, definition).into())
}

fn options(params: &Params) -> BTreeMap<String, String> {
    params
        .iter()
        .filter(|(name, _)| !["storage", "type", "digest", "delete"].contains(&name.as_str()))
        .map(|(name, value)| {
            let text =
                if value.is_array() { params.list(name).join(",") } else { params.text_or_empty(name) };
            (name.clone(), text)
        })
        .filter(|(name, value)| name != "nodes" || !value.is_empty())
        .collect()
}

fn locked(dc: &Datacentre, ground: &Ground, call: &mut Call, what: &str) -> Result<(), crate::pve::Refusal> {
    call.lock(dc, ground, &Lock::file("storage.cfg")).map_err(|refusal| match refusal {
        crate::pve::Refusal::Error(error) => ApiError::server(format!("{what}: {}", error.message)).into(),
        wait @ crate::pve::Refusal::Wait(_) => wait,
    })
}

/// Answers `POST /storage`.
pub fn add(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (name, kind) = (params.text_or_empty("storage"), params.text_or_empty("type"));
    let definition = Definition::new(&kind, &options(params)).map_err(ApiError::server)?;
    locked(dc, ground, call, "create storage failed")?;
    if dc.storage.definitions.contains_key(&name) {
        let text = format!("create storage failed: storage ID '{name}' already defined");
        return Err(ApiError::server(text).into());
    }
    dc.storage.definitions.insert(name.clone(), definition);
    Ok(json!({ "storage": name, "type": kind }).into())
}

/// Answers `PUT /storage/{storage}`.
pub fn change(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("storage");
    locked(dc, ground, call, "update storage failed")?;
    let failed = |text: String| ApiError::server(format!("update storage failed: {text}"));
    let digest = params.text("digest").filter(|digest| !digest.is_empty());
    if digest.is_some_and(|digest| digest != dc.storage.digest()) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(failed(text.into()).into());
    }
    dc.storage.definition(&name).map_err(failed)?;
    let mut kind = String::new();
    if let Some(definition) = dc.storage.definitions.get_mut(&name) {
        definition.change(&options(params), &params.list("delete")).map_err(failed)?;
        kind.clone_from(&definition.kind);
    }
    Ok(json!({ "storage": name, "type": kind }).into())
}

/// Answers `DELETE /storage/{storage}`.
pub fn remove(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("storage");
    locked(dc, ground, call, "delete storage failed")?;
    if dc.storage.definitions.remove(&name).is_none() {
        let text = format!("delete storage failed: storage '{name}' does not exist");
        return Err(ApiError::server(text).into());
    }
    dc.storage.broken.remove(&name);
    let path = format!("/storage/{name}");
    dc.access.drop_acl(|entry| entry.path == path);
    Ok(Answer::null())
}

/// Returns how a storage stands on a host.
fn status_of(dc: &Datacentre, host: &str, name: &str, definition: &Definition) -> Map<String, Value> {
    let enabled = dc.storage.enabled(name, host).is_ok();
    let active = enabled && dc.storage.activate(name, host).is_ok();
    let (total, used) = if active {
        dc.storage.shelf(name, host).map_or_else(usual_room, |shelf| (shelf.capacity, shelf.used()))
    } else {
        (0, 0)
    };
    let mut row = Map::new();
    row.insert("type".into(), definition.kind.clone().into());
    row.insert("content".into(), joined(definition.content.iter()).into());
    row.insert("enabled".into(), u8::from(enabled).into());
    row.insert("active".into(), u8::from(active).into());
    row.insert("shared".into(), u8::from(definition.is_shared()).into());
    row.insert("total".into(), total.into());
    row.insert("used".into(), used.into());
    row.insert("avail".into(), (total - used).into());
    row
}

fn usual_room() -> (u64, u64) {
    let shelf = super::shelves::Shelf::default();
    (shelf.capacity, shelf.used())
}

fn is_wanted(dc: &Datacentre, host: &str, name: &str, definition: &Definition, wanted: &[String]) -> bool {
    wanted.is_empty()
        || definition.content.iter().any(|kind| wanted.contains(kind))
            && dc.storage.enabled(name, host).is_ok()
}

/// Answers `GET /nodes/{node}/storage`.
pub fn list(dc: &mut Datacentre, _ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let host = params.host();
    let wanted = params.list("content");
    let only = params.text("storage");
    let known = |name: &String| {
        dc.storage
            .definitions
            .get(name)
            .is_some_and(|definition| is_wanted(dc, &host, name, definition, &wanted))
    };
    if only.as_ref().is_some_and(|name| !known(name)) {
        return Err(ApiError::param("storage", "No such storage.").into());
    }
    let target = params.text("target").filter(|target| *target != host && target != "localhost");
    let mut rows = Vec::new();
    for (name, definition) in &dc.storage.definitions {
        let seen = dc.may_any(&call.caller, &format!("/storage/{name}"), &SEE);
        let hidden = params.flag("enabled") && definition.is_disabled();
        let elsewhere = target.as_ref().is_some_and(|target| {
            !definition.is_shared() || !definition.is_on(&host) || !definition.is_on(target)
        });
        if !known(name) || !seen || hidden || elsewhere || only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let mut row = status_of(dc, &host, name, definition);
        row.insert("storage".into(), name.clone().into());
        let number = |key: &str| row.get(key).and_then(Value::as_u64).unwrap_or(0);
        let (total, used) = (number("total"), number("used"));
        if total > 0 {
            #[allow(clippy::cast_precision_loss)]
            row.insert("used_fraction".into(), (used as f64 / total as f64).into());
        }
        if params.flag("format") {
            row.insert(
                "formats".into(),
                json!({ "supported": definition.formats(), "default": definition.default_format() }),
            );
            let valid: Map<String, Value> =
                definition.formats().iter().map(|format| ((*format).to_owned(), 1.into())).collect();
            row.insert("format".into(), json!([valid, definition.default_format()]));
        }
        rows.push(Value::Object(row));
    }
    Ok(Value::Array(rows).into())
}

/// Answers `GET /nodes/{node}/storage/{storage}`.
pub fn index(_dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, _params: &Params) -> Reply {
    let names = [
        "content",
        "download-url",
        "file-restore",
        "import-metadata",
        "identity",
        "oci-registry-pull",
        "prunebackups",
        "rrd",
        "rrddata",
        "status",
        "upload",
    ];
    Ok(Value::Array(names.iter().map(|name| json!({ "subdir": name })).collect()).into())
}

/// Answers `GET /nodes/{node}/storage/{storage}/status`.
pub fn status(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("storage");
    match dc.storage.definitions.get(&name) {
        Some(definition) => Ok(Value::Object(status_of(dc, &params.host(), &name, definition)).into()),
        None => Err(ApiError::param("storage", "No such storage.").into()),
    }
}

/// Answers `GET /nodes/{node}/storage/{storage}/prunebackups`.
pub fn prune_preview(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("storage");
    let definition = dc.storage.definition(&name).map_err(ApiError::server)?;
    if params.text("prune-backups").is_none() && !definition.options.contains_key("prune-backups") {
        let text = format!("no prune-backups options configured for storage '{name}'");
        return Err(ApiError::server(text).into());
    }
    let rows = dc.storage.list(&params.host(), &name, &[ContentType::Backup]).into_iter().map(|(id, name, volume)| {
        json!({ "volid": id, "ctime": volume.made, "mark": "keep", "type": "qemu", "vmid": name.owner })
    });
    Ok(Value::Array(rows.collect()).into())
}

/// Answers `GET .../content`.
pub fn content(dc: &mut Datacentre, _ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (host, storage) = (params.host(), params.text_or_empty("storage"));
    let definition = dc.storage.definition(&storage).map_err(ApiError::server)?;
    dc.storage.activate(&storage, &host).map_err(ApiError::server)?;
    let wanted = params.text("content");
    let kinds: Vec<ContentType> = ContentType::ALL
        .into_iter()
        .filter(|kind| definition.holds(*kind) && wanted.as_ref().is_none_or(|name| name == kind.name()))
        .collect();
    let owner = params.integer("vmid");
    let mut rows = Vec::new();
    for (id, name, volume) in dc.storage.list(&host, &storage, &kinds) {
        if rights::check_volume(dc, &call.caller, None, &id, None).is_err() {
            continue;
        }
        let is_image = name.kind == ContentType::Images;
        let has_owner = [ContentType::Images, ContentType::Backup].contains(&name.kind);
        let of_vm = owner.is_none_or(|owner| name.owner.map(i64::from) == Some(owner));
        let listed_without_owner = [ContentType::Snippets, ContentType::Import].contains(&name.kind);
        if owner.is_some() && !listed_without_owner && !(has_owner && of_vm) {
            continue;
        }
        let mut row = Map::new();
        row.insert("volid".into(), id.into());
        row.insert("content".into(), name.kind.name().into());
        row.insert("format".into(), listed_format(&name).into());
        row.insert("size".into(), volume.size.into());
        row.insert("ctime".into(), volume.made.into());
        if let Some(owner) = name.owner {
            row.insert("vmid".into(), owner.into());
        }
        if is_image {
            row.insert("used".into(), volume.used.into());
            let parent = volume
                .base
                .as_ref()
                .map(|base| if definition.naming().is_files() { format!("../{base}") } else { base.clone() });
            row.insert("parent".into(), parent.map_or(Value::Null, Value::from));
        }
        if name.kind == ContentType::Backup {
            row.insert("subtype".into(), "qemu".into());
        }
        if let Some(notes) = &volume.notes {
            row.insert("notes".into(), notes.lines().next().unwrap_or_default().into());
        }
        if volume.protected {
            row.insert("protected".into(), 1.into());
        }
        rows.push(Value::Object(row));
    }
    Ok(Value::Array(rows).into())
}

/// Answers `POST .../content`: makes a disk.
pub fn allocate(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (host, storage) = (params.host(), params.text_or_empty("storage"));
    let (name, size) = (params.text_or_empty("filename"), params.text_or_empty("size"));
    let kib = match size.chars().last() {
        Some('M') => size[..size.len() - 1].parse::<u64>().ok().and_then(|mib| mib.checked_mul(1 << 10)),
        Some('G') => size[..size.len() - 1].parse::<u64>().ok().and_then(|gib| gib.checked_mul(1 << 20)),
        _ => size.parse().ok(),
    };
    let mut format = params.text("format");
    let extension = ["raw", "qcow2", "vmdk"].into_iter().find(|format| name.ends_with(&format!(".{format}")));
    if let Some(extension) = extension {
        if let Some(format) = format.as_ref().filter(|format| *format != extension) {
            let text = format!("different storage formats ({format} != {extension})");
            return Err(ApiError::param("format", text).into());
        }
        format = Some(extension.to_owned());
    }
    let definition = dc.storage.definition(&storage).map_err(ApiError::server)?;
    let format = format.unwrap_or_else(|| definition.default_format().to_owned());
    dc.storage.activate(&storage, &host).map_err(ApiError::server)?;
    let (lock, _) = storage_lock(dc, &host, &storage);
    call.lock(dc, ground, &lock)?;
    let wish = NewVolume {
        storage: &storage,
        owner: params.path_vmid().number(),
        format: &format,
        name: Some(&name),
        kib: kib.unwrap_or(u64::MAX),
    };
    let now = ground.now.unix_seconds();
    let done = dc.storage.alloc(&host, now, &mut ground.media, &wish).map_err(ApiError::server)?;
    Ok(done.volume.into())
}

/// Returns the id of a volume that may be given without its storage.
fn volume_of(params: &Params) -> Result<VolumeId, ApiError> {
    let (storage, volume) = (params.text_or_empty("storage"), params.text_or_empty("volume"));
    if !volume.contains(':') {
        return Ok(VolumeId { storage, name: volume });
    }
    let wrong = |text: String| ApiError::param("volume", text);
    let id =
        VolumeId::read(&volume).ok_or_else(|| wrong(format!("unable to parse volume ID '{volume}'\n")))?;
    if id.storage == storage {
        return Ok(id);
    }
    Err(wrong(format!("storage ID mismatch ({} != {storage})\n", id.storage)))
}

/// Answers `GET .../content/{volume}`.
pub fn attributes(dc: &mut Datacentre, _ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let volume = volume_of(params)?.to_string();
    rights::check_volume(dc, &call.caller, None, &volume, None)?;
    let path = dc.storage.path(&volume).map_err(ApiError::server)?;
    let there = dc
        .storage
        .get(&params.host(), &volume)
        .ok_or_else(|| ApiError::server(format!("volume_size_info on '{volume}' failed - no format")))?;
    if there.size == 0 {
        return Err(ApiError::server(format!("volume '{volume}' has size zero")).into());
    }
    let mut row = json!({
        "path": path,
        "size": there.disk_size(),
        "used": there.used,
        "format": there.format,
    });
    if let Some(notes) = &there.notes {
        row["notes"] = notes.as_str().into();
    }
    if dc.storage.look_up(&volume).is_ok_and(|found| found.name.kind == ContentType::Backup) {
        row["protected"] = u8::from(there.protected).into();
    }
    Ok(row.into())
}

/// Answers `PUT .../content/{volume}`.
pub fn set_attributes(dc: &mut Datacentre, _ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let volume = volume_of(params)?.to_string();
    rights::check_volume(dc, &call.caller, None, &volume, None)?;
    let kind = dc.storage.look_up(&volume).map_err(ApiError::server)?.name.kind;
    let (notes, protected) = (params.text("notes"), params.has("protected"));
    if kind != ContentType::Backup && (notes.is_some() || protected) {
        let text = if notes.is_some() {
            "only backups can have notes"
        } else {
            "only backups support attribute 'protected'"
        };
        return Err(ApiError::server(text).into());
    }
    let flag = params.flag("protected");
    let missing = || ApiError::server(format!("volume '{volume}' does not exist"));
    let there = dc.storage.get_mut(&params.host(), &volume).ok_or_else(missing)?;
    if let Some(notes) = notes {
        there.notes = (!notes.is_empty()).then_some(notes);
    }
    if protected {
        there.protected = flag;
    }
    Ok(Answer::null())
}

/// Answers `DELETE .../content/{volume}`.
pub fn delete(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    if let Some(upid) = call.patience.note("task") {
        return finished(dc, ground, call, params, &upid);
    }
    let id = volume_of(params)?;
    let volume = id.to_string();
    let found = dc.storage.look_up(&volume).map_err(ApiError::server)?;
    let owner = found.name.owner.and_then(VmId::new);
    let path = format!("/storage/{}", id.storage);
    match owner.filter(|_| found.name.kind == ContentType::Backup) {
        Some(owner) => {
            dc.check(&call.caller, &path, &["Datastore.AllocateSpace"])?;
            dc.check(&call.caller, &format!("/vms/{owner}"), &["VM.Backup"])?;
        }
        None => dc.check(&call.caller, &path, &["Datastore.Allocate"])?,
    }
    let host = params.host();
    let about = owner.map_or_else(|| id.storage.clone(), |owner| format!("{owner}@{}", id.storage));
    let work = Delete { host: host.clone(), volume, waiter: Waiter::default(), removing: false };
    let work = tasks::Work::Storage(storage::Work::Delete(work));
    let upid = tasks::start(dc, ground, &host, "imgdel", &about, &call.caller.id, work);
    if params.integer("delay").is_none() {
        return Ok(upid.into());
    }
    call.patience.set_note("task", &upid);
    finished(dc, ground, call, params, &upid)
}

fn finished(dc: &Datacentre, ground: &Ground, call: &mut Call, params: &Params, upid: &str) -> Reply {
    let delay = params.integer("delay").and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    match dc.tasks.get(upid).and_then(|task| task.exit.as_ref()) {
        Some(end) if end.status == "OK" || end.status.starts_with("WARNINGS") => Ok(Answer::null()),
        Some(end) => Err(ApiError::server(end.status.clone()).into()),
        None => {
            let limit =
                call.patience.began("delay", ground.now) + patience(ground, Duration::from_secs(delay));
            if ground.now >= limit {
                return Ok(upid.to_owned().into());
            }
            let look =
                ground.now + patience(ground, Duration::from_millis(200)).max(Duration::from_millis(1));
            Err(crate::pve::Refusal::Wait(look.min(limit)))
        }
    }
}

/// The task `imgdel`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delete {
    host: String,
    volume: String,
    waiter: Waiter,
    removing: bool,
}

/// How long it takes to remove a file.
const REMOVING: Duration = Duration::from_millis(300);

impl Delete {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        self.advance(dc, ground, worker).into()
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        let storage = VolumeId::read(&self.volume).map(|id| id.storage).unwrap_or_default();
        if !self.removing {
            dc.storage.activate(&storage, &self.host).map_err(ApiError::server)?;
            let (lock, _) = storage_lock(dc, &self.host, &storage);
            if let Some(next) = self.waiter.take(dc, ground, worker, &lock, Mode::Exclusive, LOCK_WAIT)? {
                return Ok(Some(next));
            }
            self.removing = true;
            return Ok(Some(Next::After(REMOVING)));
        }
        let done = dc.storage.free(&self.host, &self.volume, &mut ground.media).map_err(ApiError::server)?;
        worker.log.extend(done.printed);
        worker.say(format!("Removed volume '{}'", self.volume));
        Ok(None)
    }
}
