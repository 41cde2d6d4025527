//! Rules of `cluster`.

use std::collections::BTreeSet;

use ichor_model::Code;

use super::super::{
    judge::Judge,
    kube,
    text::{endpoint_problem, is_domain},
};
use crate::document::{Node, raw::show, url::Url};

/// Checks the section.
pub fn check(judge: &mut Judge<'_>, control_plane: bool) {
    if judge.get("cluster").is_none() {
        return;
    }
    endpoint(judge);
    let domain = judge.text("cluster.network.dnsDomain");
    if !domain.is_empty() && !is_domain(domain) {
        let words = format!("\"{}\" is not a valid DNS name", show(domain));
        judge.fail(
            Code::CONFIG_REFUSED,
            "cluster.network.dnsDomain",
            &words,
            "write it as in `cluster.local`",
        );
    }
    if control_plane {
        etcd(judge);
        network_plugin(judge);
        for component in ["apiServer", "controllerManager", "scheduler"] {
            kube::image(judge, &format!("cluster.{component}.image"), component, false);
        }
    } else {
        worker(judge);
    }
    cloud_provider(judge);
    manifests(judge);
    discovery(judge);
    for component in ["apiServer", "controllerManager", "scheduler"] {
        kube::resources(judge, &format!("cluster.{component}.resources"));
    }
    authorization(judge);
}

fn endpoint(judge: &mut Judge<'_>) {
    let path = "cluster.controlPlane.endpoint";
    let wanted = judge.release < 14 || judge.get("cluster.controlPlane").is_some();
    let endpoint = judge.text(path);
    if judge.get(path).is_none() {
        if wanted {
            judge
                .required(path, "cluster controlplane endpoint is required (.cluster.controlPlane.endpoint)");
        } else if judge.get("cluster.serviceAccount").is_some() {
            judge.conflict(
                "cluster.serviceAccount",
                ".cluster.serviceAccount requires the cluster endpoint to be set in the same document",
                "move it to a KubeServiceAccountConfig document",
            );
        }
    } else if let Some(problem) = endpoint_problem(endpoint) {
        let words = format!("invalid controlplane endpoint: {problem}");
        judge.fail(Code::CONFIG_REFUSED, path, &words, "write it as in `https://10.0.0.10:6443`");
    }
}

fn worker(judge: &mut Judge<'_>) {
    if judge.get("cluster.etcd").is_some() {
        judge.conflict(
            "cluster.etcd",
            "etcd config is only allowed on control plane machines",
            "make the patch one for control planes",
        );
    }
    if !judge.text("cluster.ca.key").is_empty() {
        judge.conflict(
            "cluster.ca.key",
            "cluster CA key is not allowed on non-controlplane nodes (.cluster.ca)",
            "remove the key: workers hold only the certificate",
        );
    }
}

fn etcd(judge: &mut Judge<'_>) {
    if judge.get("cluster.etcd").is_none() {
        return;
    }
    judge.required("cluster.etcd.ca", "etcd: key/cert combination should not be empty");
    if judge.get("cluster.etcd.subnet").is_some() && !judge.items("cluster.etcd.advertisedSubnets").is_empty()
    {
        judge.conflict(
            "cluster.etcd.subnet",
            "etcd subnet can't be set when advertised subnets are set",
            "remove `subnet`",
        );
    }
    judge.subnets("cluster.etcd.advertisedSubnets", "etcd advertised subnet");
    judge.subnets("cluster.etcd.listenSubnets", "etcd listen subnet");
}

fn network_plugin(judge: &mut Judge<'_>) {
    let cni = "cluster.network.cni";
    let name = judge.text(&format!("{cni}.name"));
    let urls = format!("{cni}.urls");
    match name {
        "flannel" | "none" | "custom" => {}
        // Without a section there is Talos' default; a section without a name is a mistake.
        "" if judge.get(cni).is_none() => return,
        other => {
            let words =
                format!("cni name \"{}\" should be one of [\"flannel\", \"custom\", \"none\"]", show(other));
            judge.fail(Code::CONFIG_REFUSED, cni, &words, "write `flannel`, `custom` or `none`");
            return;
        }
    }
    if name != "custom" && !judge.items(&urls).is_empty() {
        let words = format!("\"urls\" field should be empty for \"{name}\" CNI");
        judge.conflict(&urls, &words, "write `name: custom`, or remove `urls`");
    }
    if name != "flannel" {
        let arguments = !judge.items(&format!("{cni}.flannel.extraArgs")).is_empty();
        if arguments || judge.is_on(&format!("{cni}.flannel.kubeNetworkPoliciesEnabled")) {
            let words = format!("\"flannel\" settings should be empty for \"{name}\" CNI");
            judge.conflict(&format!("{cni}.flannel"), &words, "remove `flannel`");
        }
    }
    if name == "custom" {
        if judge.items(&urls).is_empty() {
            judge.warn(
                Code::CONFIG_REFUSED,
                cni,
                "\"urls\" field should not be empty for \"custom\" CNI",
                "name the manifests",
            );
        }
        urls_of(judge, &urls, "CNI manifest");
    }
}

fn urls_of(judge: &mut Judge<'_>, path: &str, what: &str) {
    for (node, url) in judge.texts(path) {
        if let Some(problem) = endpoint_problem(url) {
            let words = format!("invalid {what} url \"{}\": {problem}", show(url));
            judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "write a URL with its scheme and host");
        }
    }
}

fn cloud_provider(judge: &mut Judge<'_>) {
    let manifests = "cluster.externalCloudProvider.manifests";
    if judge.items(manifests).is_empty() {
        return;
    }
    if judge.is_on("cluster.externalCloudProvider.enabled") {
        urls_of(judge, manifests, "external cloud provider manifest");
    } else {
        judge.conflict(
            manifests,
            "external cloud provider is disabled, but manifests are provided",
            "set `cluster.externalCloudProvider.enabled: true`",
        );
    }
}

fn manifests(judge: &mut Judge<'_>) {
    let mut names = BTreeSet::new();
    for manifest in judge.items("cluster.inlineManifests") {
        let name = manifest.get("name").and_then(Node::as_text).unwrap_or_default();
        if name.trim().is_empty() {
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(manifest),
                "inline manifest name can't be empty",
                "set `name`",
            );
        } else if !names.insert(name) {
            let words = format!("inline manifest name \"{}\" is duplicate", show(name));
            judge.wrong(Code::CONFIG_REFUSED, Some(manifest), &words, "give each manifest a name of its own");
        }
    }
}

fn discovery(judge: &mut Judge<'_>) {
    let service = "cluster.discovery.registries.service";
    if !judge.is_on("cluster.discovery.enabled") || judge.is_on(&format!("{service}.disabled")) {
        return;
    }
    let endpoint = judge.text(&format!("{service}.endpoint"));
    let url = Url::parse(endpoint);
    let good = url.is_ok_and(|url| !url.scheme().is_empty() && matches!(url.path(), "" | "/"));
    if !endpoint.is_empty() && !good {
        judge.fail(
            Code::CONFIG_REFUSED,
            &format!("{service}.endpoint"),
            "cluster discovery service registry endpoint is invalid",
            "write it as in `https://discovery.talos.dev/`, without a path",
        );
    }
    // Since 1.14 the identity may also be a document of its own.
    if judge.config.of_kind("DiscoveryIdentityConfig").next().is_some() {
        return;
    }
    judge.required("cluster.id", "cluster discovery service requires .cluster.id");
    judge.required("cluster.secret", "cluster discovery service requires .cluster.secret");
}

fn authorization(judge: &mut Judge<'_>) {
    let path = "cluster.apiServer.authorizationConfig";
    if judge.get(path).is_none() {
        return;
    }
    for (key, node) in judge.entries("cluster.apiServer.extraArgs") {
        if key == "authorization-mode" || key.starts_with("authorization-webhook-") {
            let words = format!("{key} cannot be used in conjunction with AuthorizationConfig");
            judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "keep one of them");
        }
    }
    for authorizer in judge.items(path) {
        let text = |key: &str| authorizer.get(key).and_then(Node::as_text).unwrap_or_default();
        if !matches!(text("type"), "Node" | "RBAC" | "Webhook") || text("name").is_empty() {
            let words = "apiserver authorization config validation failed: type and name must be set";
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(authorizer),
                words,
                "write a `name` and `Node`, `RBAC` or `Webhook`",
            );
        }
    }
}
