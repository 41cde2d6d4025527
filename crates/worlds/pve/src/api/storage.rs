//! `/nodes/{host}/storage`.

use ichor_model::{HostName, VmId};
use ichor_port::Method;
use serde::Deserialize;

use crate::{Call, Upid, upload};

/// A storage as a host sees it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StorageRow {
    /// Its name.
    pub storage: String,
    /// Its kind, such as `dir` or `lvmthin`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it may hold, joined by commas in no order.
    pub content: String,
    /// Whether it works at the moment.
    #[serde(default)]
    pub active: u8,
    /// Whether it is switched on.
    #[serde(default)]
    pub enabled: u8,
    /// Whether all hosts see the same.
    #[serde(default)]
    pub shared: u8,
    /// Free bytes.
    #[serde(default)]
    pub avail: Option<u64>,
    /// All bytes.
    #[serde(default)]
    pub total: Option<u64>,
}

impl StorageRow {
    /// Whether it may hold a kind of content.
    pub fn holds(&self, kind: &str) -> bool {
        self.content.split(',').any(|content| content == kind)
    }
}

/// Lists the storages of a host.
pub fn storages(host: &HostName) -> Call<Vec<StorageRow>> {
    Call::new(Method::Get, &["nodes", host.as_str(), "storage"])
}

/// How a storage is at the moment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StorageStatus {
    /// Its kind, such as `dir` or `lvmthin`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it may hold, joined by commas in no order.
    pub content: String,
    /// Whether it works at the moment.
    #[serde(default)]
    pub active: u8,
    /// Free bytes.
    #[serde(default)]
    pub avail: u64,
}

/// Asks how a storage of a host is.
pub fn storage_status(host: &HostName, storage: &str) -> Call<StorageStatus> {
    Call::new(Method::Get, &["nodes", host.as_str(), "storage", storage, "status"])
}

/// A volume on a storage.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct VolumeRow {
    /// Its name, such as `local:import/talos.qcow2`.
    pub volid: String,
    /// Its size in bytes.
    #[serde(default)]
    pub size: u64,
    /// Its format.
    #[serde(default)]
    pub format: String,
    /// The VM that it belongs to.
    #[serde(default)]
    pub vmid: Option<VmId>,
}

/// Lists the volumes of one kind.
pub fn volumes(host: &HostName, storage: &str, kind: &str) -> Call<Vec<VolumeRow>> {
    Call::new(Method::Get, &["nodes", host.as_str(), "storage", storage, "content"]).with("content", kind)
}

/// Lists the disks of one VM on a storage, also those that its config does not name.
pub fn disks_of(host: &HostName, storage: &str, vmid: VmId) -> Call<Vec<VolumeRow>> {
    volumes(host, storage, "images").with("vmid", vmid)
}

/// Deletes a volume.
pub fn delete_volume(host: &HostName, storage: &str, volume: &str) -> Call<Option<Upid>> {
    Call::new(Method::Delete, &["nodes", host.as_str(), "storage", storage, "content", volume])
}

/// A file that a host is to download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download<'a> {
    /// Its address.
    pub url: &'a str,
    /// What it is: `import` or `iso`.
    pub content: &'a str,
    /// Its name on the storage.
    pub filename: &'a str,
    /// Its SHA-256, if it is known.
    pub sha256: Option<&'a str>,
}

/// Has a host download a file.
pub fn download(host: &HostName, storage: &str, file: &Download<'_>) -> Call<Upid> {
    let mut call = Call::new(Method::Post, &["nodes", host.as_str(), "storage", storage, "download-url"])
        .with("url", file.url)
        .with("content", file.content)
        .with("filename", file.filename);
    if let Some(sha256) = file.sha256 {
        call = call.with("checksum", sha256).with("checksum-algorithm", "sha256");
    }
    call
}

/// A small file that is sent from memory.
#[derive(Clone, PartialEq, Eq)]
pub struct UploadFile<'a> {
    /// What it is: `iso` or `import`.
    pub content: &'a str,
    /// Its name on the storage. Proxmox turns all but letters, digits and `_.-` into `_`; so do we, beforehand.
    pub filename: &'a str,
    /// Its bytes, which may hold secrets.
    pub bytes: &'a [u8],
}

/// Sends a file to a storage, in place of one with the same name. Its checksum is checked at the other end.
pub fn upload(host: &HostName, storage: &str, file: &UploadFile<'_>) -> Call<Upid> {
    let file_part = upload::Upload::new(file.filename, file.bytes);
    // Nothing after the file is read, so the parameters come first.
    Call::new(Method::Post, &["nodes", host.as_str(), "storage", storage, "upload"])
        .with("content", file.content)
        .with("checksum-algorithm", "sha256")
        .with("checksum", file_part.sha256())
        .with_upload(file_part)
}
