//! Signs of life, and what an Image Factory has.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use futures_util::{
    future::join_all,
    stream::{self, StreamExt},
};
use ichor_model::TalosVersion;
use ichor_net::{Dial, HttpClient, Trust};
use ichor_plan::support;
use tokio::time::timeout;

/// How long the Image Factory may take to tell its releases: they are a convenience here.
const FACTORY_WITHIN: Duration = Duration::from_secs(8);
/// An address that nobody answers from in this time counts as free; in a local network answers take a thousandth of it.
const SIGN_OF_LIFE: Duration = Duration::from_millis(700);
/// Ports at which machines often answer, be it with a refusal.
const PORTS: [u16; 5] = [22, 80, 443, 6443, 50_000];
/// Addresses that are asked at once.
const AT_ONCE: usize = 64;

/// Returns the newest release that a factory has and the support table knows.
pub async fn newest_talos(factory: &str, dialer: &Arc<dyn Dial>) -> Option<TalosVersion> {
    let client = HttpClient::new(factory.parse().ok()?, Trust::System, None, Arc::clone(dialer)).ok()?;
    let client = ichor_factory::Client::new(client);
    let versions = timeout(FACTORY_WITHIN, client.versions()).await.ok()?.ok()?;
    versions.into_iter().filter(|version| !version.is_prerelease() && support::of(version).is_some()).max()
}

/// Returns the first of these addresses that nobody answers from.
pub async fn quiet(dialer: &Arc<dyn Dial>, candidates: &[Ipv4Addr], wanted: usize) -> Vec<Ipv4Addr> {
    let asked = stream::iter(candidates.iter().copied())
        .map(|address| async move { (address, lives(dialer, address).await) });
    asked
        .buffered(AT_ONCE)
        .filter_map(|(address, lives)| async move { (!lives).then_some(address) })
        .take(wanted)
        .collect()
        .await
}

/// Whether somebody answers from an address; a refusal is an answer.
async fn lives(dialer: &Arc<dyn Dial>, address: Ipv4Addr) -> bool {
    let asked = PORTS.map(|port| async move {
        let host = address.to_string();
        match timeout(SIGN_OF_LIFE, dialer.dial(&host, port)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
            Err(_) => false,
        }
    });
    join_all(asked).await.contains(&true)
}
