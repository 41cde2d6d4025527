//! Configs that give people access: kubeconfig and talosconfig.

use std::{io::Write, net::IpAddr, time::Duration};

use flate2::{Compression, GzBuilder};
use ichor_machineconfig::{
    kubeconfig,
    pki::{TalosRole, Term, kubernetes_admin, talos_client},
    talosconfig,
};
use ichor_talos_proto::{
    Message, code,
    common::Data,
    machine::{
        GenerateClientConfiguration, GenerateClientConfigurationRequest, GenerateClientConfigurationResponse,
    },
};

use super::super::{Call, Outcome, Reply, one, refuse, request};
use crate::{
    ground::Ground,
    talos::{
        machine::{Machine, Run},
        persona::{Drawn, authority, timestamp},
    },
};

/// A year, as Talos gives unless the config says otherwise.
const ADMIN_LIFETIME: Duration = Duration::from_hours(365 * 24);

/// Sends a kubeconfig as an archive with one file. It needs only the config, not a running cluster.
pub fn kubeconfig(ground: &Ground, machine: &Machine, run: &Run) -> Outcome {
    let failed = |text: &str| refuse(code::UNKNOWN, text);
    let Some(wanted) = run.wanted.as_ref().filter(|wanted| wanted.is_control_plane()) else {
        return refuse(code::UNIMPLEMENTED, "kubeconfig is only available on control plane nodes");
    };
    let Some(authority) = authority(&wanted.kubernetes) else {
        return failed("failed to read the CA of Kubernetes");
    };
    let Ok(cluster) = wanted.cluster.parse() else { return failed("the cluster has no usable name") };
    let term = Term { now: timestamp(ground.now), lifetime: ADMIN_LIFETIME };
    let mut drawn = Drawn::new(machine.seed, "kubeconfig", ground.now.millis());
    let Ok(client) = kubernetes_admin(&authority, term, &mut drawn) else { return failed("failed to sign") };
    let access = kubeconfig::Access {
        cluster: &cluster,
        server: &wanted.endpoint,
        authority: authority.certificate(),
        client: &client,
    };
    let Ok(text) = kubeconfig::render(&access) else { return failed("the endpoint is not a URL") };
    let Some(bytes) = archive("kubeconfig", text.expose().as_bytes()) else {
        return failed("failed to pack");
    };
    Ok(Reply::Messages(vec![Data { metadata: None, bytes }.encode_to_vec()], None))
}

/// Packs a file into a compressed tar archive.
fn archive(name: &str, content: &[u8]) -> Option<Vec<u8>> {
    const BLOCK: usize = 512;
    let mut header = [0_u8; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0");
    // The checksum counts its own field as blanks.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = header.to_vec();
    tar.extend_from_slice(content);
    tar.resize(tar.len().div_ceil(BLOCK) * BLOCK + 2 * BLOCK, 0);
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::default());
    gzip.write_all(&tar).ok()?;
    gzip.finish().ok()
}

/// Makes another client of the Talos API.
pub fn client_configuration(ground: &Ground, machine: &Machine, run: &Run, call: &Call<'_>) -> Outcome {
    let asked: GenerateClientConfigurationRequest = request(call.rpc)?;
    let failed = |text: &str| refuse(code::UNKNOWN, text);
    let Some(wanted) = run.wanted.as_ref().filter(|wanted| wanted.is_control_plane()) else {
        return refuse(
            code::FAILED_PRECONDITION,
            "client configuration (talosconfig) can be generated only on the control plane nodes",
        );
    };
    let lifetime = asked.crt_ttl.as_ref().map_or(0, |ttl| u64::try_from(ttl.seconds).unwrap_or(0));
    if lifetime == 0 {
        return refuse(code::INVALID_ARGUMENT, "crt_ttl should be positive");
    }
    let roles: Vec<TalosRole> = asked.roles.iter().filter_map(|role| role.parse().ok()).collect();
    if roles.len() != asked.roles.len() || roles.is_empty() {
        return refuse(code::INVALID_ARGUMENT, "unknown roles");
    }
    let Some(authority) = authority(&wanted.os) else { return failed("failed to read the CA of Talos") };
    let term = Term { now: timestamp(ground.now), lifetime: Duration::from_secs(lifetime) };
    let mut drawn = Drawn::new(machine.seed, "talosconfig", ground.now.millis());
    let Ok(client) = talos_client(&authority, &roles, term, &mut drawn) else {
        return failed("failed to sign");
    };
    let Ok(cluster) = wanted.cluster.parse() else { return failed("the cluster has no usable name") };
    let endpoints: Vec<IpAddr> = run.network.first().into_iter().collect();
    let access = talosconfig::Access {
        cluster: &cluster,
        endpoints: &endpoints,
        nodes: &[],
        vips: &[],
        authority: authority.certificate(),
        client: &client,
    };
    let Ok(text) = talosconfig::render(&access) else { return failed("failed to write") };
    let answer = GenerateClientConfiguration {
        metadata: None,
        ca: authority.certificate().pem().as_bytes().to_vec(),
        crt: client.certificate.pem().as_bytes().to_vec(),
        key: client.key.pem().expose().as_bytes().to_vec(),
        // Talos names the context after role and cluster.
        talosconfig: text
            .expose()
            .replace(&wanted.cluster, &format!("admin@{}", wanted.cluster))
            .into_bytes(),
    };
    one(&GenerateClientConfigurationResponse { messages: vec![answer] })
}
