//! `/nodes/{host}/storage`.

use ichor_model::HostName;
use ichor_port::Method;
use serde::Deserialize;

use crate::{Call, Upid};

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
}

/// Lists the volumes of one kind.
pub fn volumes(host: &HostName, storage: &str, kind: &str) -> Call<Vec<VolumeRow>> {
    Call::new(Method::Get, &["nodes", host.as_str(), "storage", storage, "content"]).with("content", kind)
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
