//! Rules of the legacy document: `machine` and `cluster`.

mod cluster;
mod network;

use std::collections::BTreeSet;

use ichor_model::{Code, Severity};

use super::{Mode, block, is_control_plane, judge::Judge, kube};
use crate::document::{Map, Node, raw::show, url::Url};

/// Checks the document.
pub fn check(judge: &mut Judge<'_>) {
    if judge.is_off("persist") {
        judge.fail(
            Code::CONFIG_REFUSED,
            "persist",
            ".persist should be enabled",
            "write `persist: true`, or remove it",
        );
    }
    if judge.get("machine").is_none() {
        judge.fail(Code::CONFIG_REFUSED, "machine", "machine instructions are required", "write `machine`");
        return;
    }
    if judge.get("cluster").is_none() {
        judge.fail(Code::CONFIG_REFUSED, "cluster", "cluster instructions are required", "write `cluster`");
    }
    let control_plane = is_control_plane(Some(judge.document));
    machine_type(judge);
    authority(judge, control_plane);
    install(judge);
    features(judge, control_plane);
    disks(judge);
    logging(judge);
    kubelet(judge);
    kube::labels(judge, "machine.nodeLabels", "machine.nodeAnnotations", "machine.nodeTaints");
    network::check(judge, control_plane);
    cluster::check(judge, control_plane);
}

fn machine_type(judge: &mut Judge<'_>) {
    match judge.text("machine.type") {
        "controlplane" | "worker" => {}
        kind @ ("" | "join") => {
            let words = format!("use \"worker\" instead of \"{kind}\" for machine type");
            judge.warn(Code::CONFIG_REFUSED, "machine.type", &words, "write `type: worker`");
        }
        "init" => judge.warn(
            Code::CONFIG_REFUSED,
            "machine.type",
            "machine type \"init\" is deprecated: it bootstraps etcd by itself",
            "write `type: controlplane` and bootstrap one machine",
        ),
        kind => {
            let words = format!("unknown machine type \"{}\"", show(kind));
            judge.fail(Code::CONFIG_REFUSED, "machine.type", &words, "write `controlplane` or `worker`");
        }
    }
}

fn authority(judge: &mut Judge<'_>, control_plane: bool) {
    let accepted = !judge.items("machine.acceptedCAs").is_empty();
    if judge.get("machine.ca").is_none() && !accepted {
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.ca",
            "issuing CA or some accepted CAs are required (.machine.ca, machine.acceptedCAs)",
            "generate the config from the cluster's secrets",
        );
    }
    let key = !judge.text("machine.ca.key").is_empty();
    if control_plane && !key {
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.ca.key",
            "issuing CA key is required for controlplane nodes (.machine.ca.key)",
            "generate the config from the cluster's secrets",
        );
    }
    if !control_plane && key {
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.ca.key",
            "issuing Talos API CA key is not allowed on non-controlplane nodes (.machine.ca)",
            "remove the key: workers hold only the certificate",
        );
    }
    if !control_plane
        && judge.get("machine.ca").is_some()
        && judge.text("machine.ca.crt").is_empty()
        && !accepted
    {
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.ca.crt",
            "trusted CA certificates are required on non-controlplane nodes (.machine.ca.crt, .machine.acceptedCAs)",
            "generate the config from the cluster's secrets",
        );
    }
}

fn install(judge: &mut Judge<'_>) {
    for extension in judge.items("machine.install.extensions") {
        let words = ".machine.install.extensions is deprecated";
        let remedy = "put the extensions into the image's schematic";
        judge.report(Severity::Warning, Code::CONFIG_REFUSED, Some(extension), words, remedy);
    }
    if judge.mode != Mode::Metal {
        return;
    }
    if judge.get("machine.install").is_none() {
        no_install(judge);
        return;
    }
    let selector = judge.get("machine.install.diskSelector").and_then(Node::as_map);
    if judge.text("machine.install.disk").is_empty() && selector.is_none_or(Map::is_empty) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.install",
            "either install disk or diskSelector should be defined",
            "set `machine.install.disk`, as in `/dev/sda`",
        );
    }
    let kind = judge.text("machine.install.diskSelector.type");
    if !matches!(kind, "" | "ssd" | "hdd" | "nvme" | "sd") {
        let words = format!("install disk selector is invalid: unsupported disk type \"{}\"", show(kind));
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.install.diskSelector.type",
            &words,
            "write `ssd`, `hdd`, `nvme` or `sd`",
        );
    }
    if judge.is_on("machine.install.grubUseUKICmdline")
        && !judge.items("machine.install.extraKernelArgs").is_empty()
    {
        judge.conflict(
            "machine.install.extraKernelArgs",
            "install.extraKernelArgs and install.grubUseUKICmdline can't be used together",
            "put the kernel arguments into the image's schematic",
        );
    }
}

fn no_install(judge: &mut Judge<'_>) {
    if judge.release < 14 {
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.install",
            "install instructions are required in \"metal\" mode",
            "set `machine.install.disk`",
        );
    } else if judge.config.of_kind("UnattendedInstallConfig").next().is_none() {
        judge.warn(
            Code::CONFIG_REFUSED,
            "machine",
            "nothing says where to install: the machine stays in memory",
            "add an UnattendedInstallConfig document",
        );
    }
}

fn features(judge: &mut Judge<'_>, control_plane: bool) {
    let dns = "machine.features.hostDNS";
    if judge.release >= 13
        && judge.is_on(&format!("{dns}.forwardKubeDNSToHost"))
        && !judge.is_on(&format!("{dns}.enabled"))
    {
        judge.conflict(
            dns,
            "feature hostDNS.forwardKubeDNSToHost requires hostDNS.enabled to be true (.machine.features.hostDNS)",
            "set `hostDNS.enabled: true`",
        );
    }
    let access = "machine.features.kubernetesTalosAPIAccess";
    if judge.is_on(&format!("{access}.enabled")) {
        if !control_plane {
            judge.conflict(
                access,
                "feature Kubernetes Talos API Access can only be enabled on control plane machines",
                "make the patch one for control planes",
            );
        }
        if judge.release < 12 && !judge.is_on("machine.features.rbac") {
            judge.conflict(
                access,
                "feature API RBAC should be enabled when Kubernetes Talos API Access feature is enabled",
                "set `machine.features.rbac: true`",
            );
        }
        kube::roles(judge, &format!("{access}.allowedRoles"));
    }
    let algorithm = judge.text("machine.features.nodeAddressSortAlgorithm").to_lowercase();
    if !matches!(algorithm.as_str(), "" | "v1" | "v2") {
        judge.fail(
            Code::CONFIG_REFUSED,
            "machine.features.nodeAddressSortAlgorithm",
            "invalid node address sort algorithm",
            "write `v1` or `v2`",
        );
    }
}

fn disks(judge: &mut Judge<'_>) {
    for disk in judge.items("machine.disks") {
        let partitions = disk.get("partitions").and_then(Node::as_list).unwrap_or_default();
        let full = partitions.iter().rev().skip(1).find(|partition| partition.get("size").is_none());
        if full.is_some() {
            let device = disk.get("device").and_then(Node::as_text).unwrap_or_default();
            let words = format!(
                "partition for disk \"{}\" is set to occupy full disk, but it's not the last partition in the list",
                show(device)
            );
            judge.wrong(Code::CONFIG_REFUSED, full, &words, "give it a `size`, or make it the last one");
        }
    }
    for volume in ["state", "ephemeral"] {
        let path = format!("machine.systemDiskEncryption.{volume}");
        if judge.get(&path).is_some() {
            let keys = format!("{path}.keys");
            judge.required(
                &keys,
                &format!("partition \"{}\": no encryption keys provided", volume.to_uppercase()),
            );
            block::keys(judge, &keys);
        }
    }
}

fn logging(judge: &mut Judge<'_>) {
    for destination in judge.items("machine.logging.destinations") {
        let text = |key: &str| destination.get(key).and_then(Node::as_text).unwrap_or_default();
        let url = Url::parse(text("endpoint")).unwrap_or_default();
        if url.host().is_empty() || !matches!(url.scheme(), "tcp" | "udp") {
            let words = "logging endpoint needs a host and the scheme tcp or udp";
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(destination),
                words,
                "write it as in `tcp://10.0.0.5:514`",
            );
        }
        if text("format") != "json_lines" {
            let words = format!("unknown logging format \"{}\"", show(text("format")));
            judge.wrong(Code::CONFIG_REFUSED, Some(destination), &words, "write `format: json_lines`");
        }
    }
}

fn kubelet(judge: &mut Judge<'_>) {
    judge.subnets("machine.kubelet.nodeIP.validSubnets", "kubelet nodeIP subnet");
    kube::protected(judge, "machine.kubelet.extraConfig");
    kube::image(judge, "machine.kubelet.image", "kubelet", false);
    let mut names = BTreeSet::new();
    for module in judge.items("machine.kernel.modules") {
        let name = module.get("name").and_then(Node::as_text).unwrap_or_default();
        if !names.insert(name) {
            let words = format!("kernel module \"{}\" is listed twice", show(name));
            let remedy = "keep one: lists are appended, so patching a patched config doubles them";
            judge.report(Severity::Warning, Code::CONFIG_REFUSED, Some(module), &words, remedy);
        }
    }
}
