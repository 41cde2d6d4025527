//! Resources: what a machine shows of itself.
//!
//! Servers write each resource twice, as protobuf and as YAML. ichor reads the YAML: hundreds of specs need no `.proto`
//! then, and keys that are not known yet do not matter.

mod config;
mod kinds;

use std::collections::BTreeMap;

use ichor_port::Secret;
use ichor_talos_proto::cosi::resource as proto;
use serde::de::DeserializeOwned;

pub use config::MachineConfig;
pub use kinds::{
    AddressStatus, Diagnostic, Disk, EtcdMember, ExtensionMetadata, ExtensionStatus, HostnameStatus,
    KubeletSpec, LinkStatus, MachineStatus, MachineType, Member, NodeAddress, NodeStatus, Nodename,
    PlatformMetadata, SecurityState, ServiceStatus, Stage, SystemInformation, TimeStatus, UnmetCondition,
    schematic,
};

use crate::error::clean;

/// What every resource says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The namespace.
    pub namespace: String,
    /// The type.
    pub kind: String,
    /// The id.
    pub id: String,
    /// The version, which grows with each change.
    pub version: String,
    /// Whether it is about to go.
    pub tearing_down: bool,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource<K> {
    /// What every resource says of itself.
    pub meta: Meta,
    /// What it holds.
    pub spec: K,
}

/// A kind of resource.
pub trait Kind: Sized {
    /// The namespace.
    const NAMESPACE: &'static str;
    /// The type.
    const TYPE: &'static str;

    /// Reads what a resource holds.
    fn read(meta: &Meta, yaml: &str) -> Result<Self, String>;
}

/// A kind of which there is one resource.
pub trait Single: Kind {
    /// Its id.
    const ID: &'static str;
}

/// The text of a resource of any kind, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw(pub Secret);

impl Resource<Raw> {
    pub(crate) fn read_raw(resource: proto::Resource) -> Result<Self, String> {
        let (meta, yaml) = split(resource)?;
        Ok(Self { meta, spec: Raw(Secret::new(yaml)) })
    }
}

impl<K: Kind> Resource<K> {
    pub(crate) fn read(resource: proto::Resource) -> Result<Self, String> {
        let (meta, yaml) = split(resource)?;
        let spec = K::read(&meta, &yaml).map_err(|why| format!("{}/{}: {why}", K::TYPE, clean(&meta.id)))?;
        Ok(Self { meta, spec })
    }
}

fn split(resource: proto::Resource) -> Result<(Meta, String), String> {
    let metadata = resource.metadata.ok_or("a resource does not say what it is")?;
    let yaml = resource.spec.ok_or("a resource holds nothing")?.yaml_spec;
    let meta = Meta {
        namespace: metadata.namespace,
        kind: metadata.r#type,
        id: metadata.id,
        version: metadata.version,
        tearing_down: metadata.phase == "tearingDown",
        annotations: metadata.annotations,
    };
    Ok((meta, yaml))
}

/// Most nodes that aliases may stand for. Talos writes none; whoever does may not make a small text large.
const MAX_REPLAYED: usize = 1_000;

/// Reads YAML. What is wrong with it is told without its content, which may be secret.
fn from_yaml<T: DeserializeOwned>(yaml: &str) -> Result<T, String> {
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
    };
    serde_saphyr::from_str_with_options(yaml, options).map_err(|error| match error.location() {
        Some(at) => format!("its YAML cannot be read (line {}, column {})", at.line(), at.column()),
        None => "its YAML cannot be read".to_owned(),
    })
}
