//! Asking Proxmox what there is.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt};
use ichor_model::{HostName, Size};
use ichor_pve::api::{self, Interface, Resource, StorageSeen};

use super::{Bridge, Host, Storage, Surroundings, network};
use crate::{Halt, converge::unseen, live::Pve};

/// Most hosts that are asked for their bridges at once.
const AT_ONCE: usize = 6;

/// Looks around. What a host does not tell is left out: it may be down, or the account may not see it.
pub async fn look(pve: &Pve) -> Result<Surroundings, Halt> {
    let (version, resources) = (api::version(), api::resources());
    let (version, resources) = tokio::join!(pve.send(&version), pve.send(&resources));
    let version = version.map_err(|error| unseen(&error, pve))?;
    let resources = resources.map_err(|error| unseen(&error, pve))?;
    let (mut hosts, mut storages, mut guests) = (Vec::new(), BTreeMap::new(), 0);
    for resource in resources {
        match resource {
            Resource::Host(host) if host.status == "online" => {
                let memory = host.maxmem.map(|bytes| Size::from_mib(bytes >> 20));
                hosts.push(Host { name: host.node, cpu: host.maxcpu, memory });
            }
            Resource::Storage(storage) => add(&mut storages, storage),
            Resource::Guest(_) => guests += 1,
            _ => {}
        }
    }
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    let bridges = bridges(pve, &hosts).await;
    Ok(Surroundings {
        release: version.release,
        hosts,
        storages: storages.into_values().collect(),
        bridges,
        guests,
    })
}

fn add(storages: &mut BTreeMap<String, Storage>, seen: StorageSeen) {
    if seen.status != "available" || !is_name(&seen.storage) {
        return;
    }
    let free = seen.maxdisk.saturating_sub(seen.disk);
    let content: BTreeSet<String> = seen.content.split(',').map(|word| word.trim().to_owned()).collect();
    let storage = storages.entry(seen.storage.clone()).or_insert_with(|| Storage {
        name: seen.storage,
        hosts: BTreeSet::new(),
        content,
        free,
    });
    storage.hosts.insert(seen.node);
    storage.free = storage.free.min(free);
}

async fn bridges(pve: &Pve, hosts: &[Host]) -> Vec<Bridge> {
    let told: Vec<(HostName, Vec<Interface>)> = stream::iter(hosts)
        .map(|host| async move {
            let told = pve.send(&api::bridges(&host.name)).await;
            (host.name.clone(), told.unwrap_or_default())
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut bridges = BTreeMap::new();
    for (host, interfaces) in told {
        for interface in interfaces.into_iter().filter(|interface| is_name(&interface.iface)) {
            let bridge = bridges.entry(interface.iface.clone()).or_insert_with(|| Bridge {
                name: interface.iface.clone(),
                hosts: BTreeSet::new(),
                network: None,
                gateway: None,
                addresses: BTreeSet::new(),
            });
            bridge.hosts.insert(host.clone());
            if let Some((net, address)) = interface.cidr.as_deref().and_then(network) {
                bridge.network = bridge.network.or(Some(net));
                bridge.addresses.insert(address);
            }
            bridge.gateway = bridge.gateway.or(interface.gateway.and_then(|gateway| gateway.parse().ok()));
        }
    }
    bridges.into_values().collect()
}

/// Whether a text can be the name of a storage or a bridge: others are not shown to anybody.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
