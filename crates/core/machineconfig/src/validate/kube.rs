//! Rules of the Kubernetes documents, and of Kubernetes images wherever they stand.

use ichor_model::{Code, KubernetesVersion, Minor};

use super::{
    judge::Judge,
    text::{
        endpoint_problem, has_host_bits, is_dns_subdomain, is_label_key, is_label_value, is_pem, is_taint,
        parse_network,
    },
};
use crate::document::{Node, raw::show, url::Url};

/// Checks a document of this family; others are left alone.
pub fn check(kind: &str, judge: &mut Judge<'_>) {
    match kind {
        "KubeletConfig" => {
            image(judge, "image", "kubelet", true);
            protected(judge, "config");
        }
        "KubeAPIServerConfig" => {
            image(judge, "image", "kube-apiserver", true);
            arguments(judge);
            resources(judge, "resources");
        }
        "KubeControllerManagerConfig" => pod(judge, "kube-controller-manager"),
        "KubeSchedulerConfig" => pod(judge, "scheduler"),
        "KubeProxyConfig" => proxy(judge),
        "KubeNodeConfig" => node(judge),
        "KubeClusterConfig" => cluster(judge),
        "KubeNetworkConfig" => network(judge),
        "KubePrismConfig" if !(1..=65535).contains(&judge.int("port")) => {
            judge.fail(
                Code::CONFIG_REFUSED,
                "port",
                "invalid port: must be in range 1-65535",
                "write `port: 7445`",
            );
        }
        "KubeFlannelCNIConfig" => {
            judge.required("backendType", "flannel backend type must be specified");
            resources(judge, "resources");
        }
        "KubeAPIServerCAConfig" | "KubeAggregatorCAConfig" => authority(kind, judge),
        "KubeServiceAccountConfig" => service_account(judge),
        "KubeEtcdEncryptionConfig" => judge.required("config", "etcd encryption config is required"),
        "KubeAuthorizerConfig" => authorizer(judge),
        "KubeInlineManifestConfig" => subdomain(judge, "manifest name"),
        "KubeStaticPodConfig" => {
            subdomain(judge, "static pod name");
            judge.required("pod", "static pod spec is required");
        }
        "KubeExternalManifestConfig" => {
            subdomain(judge, "manifest name");
            web(judge, "url");
        }
        "KubeTalosAPIAccessConfig" => roles(judge, "allowedRoles"),
        _ => {}
    }
}

/// First and last Kubernetes minor that a Talos 1.x accepts.
const fn kubernetes(release: u8) -> (u64, u64) {
    match release {
        ..=8 => (26, 31),
        9 => (27, 32),
        10 => (28, 33),
        11 => (29, 34),
        12 => (30, 35),
        13 => (31, 36),
        _ => (32, 37),
    }
}

/// Checks that an image's tag is a Kubernetes that this Talos accepts.
pub fn image(judge: &mut Judge<'_>, path: &str, what: &str, required: bool) {
    let image = judge.text(path);
    if image.is_empty() {
        if required {
            judge.required(path, &format!("{what} image cannot be empty"));
        }
        return;
    }
    let tag = image.rsplit_once(":v").map_or("", |(_, tag)| tag.split('@').next().unwrap_or(tag));
    let Ok(version) = tag.parse::<KubernetesVersion>() else {
        let words = format!("{what} image is not valid: invalid image reference: \"{}\"", show(image));
        judge.fail(Code::CONFIG_REFUSED, path, &words, "write the image with its tag, as in `...:v1.36.3`");
        return;
    };
    let (first, last) = kubernetes(judge.release);
    let (talos, minor) = (judge.talos(), version.minor());
    let range = format!("choose a Kubernetes from 1.{first} to 1.{last}, or another Talos");
    if minor < Minor::new(1, first) || minor > Minor::new(1, last) {
        let age = if minor < Minor::new(1, first) { "old" } else { "new" };
        let words = format!(
            "{what} image is not valid: version of Kubernetes {version} is too {age} to be used with Talos {talos}"
        );
        judge.fail(Code::VERSION_PAIR, path, &words, &range);
    }
}

/// Checks that free-form kubelet settings leave alone what Talos manages.
pub fn protected(judge: &mut Judge<'_>, path: &str) {
    const PROTECTED: [&str; 13] = [
        "apiVersion",
        "authentication",
        "authorization",
        "cgroupRoot",
        "kind",
        "kubeletCgroups",
        "port",
        "protectKernelDefaults",
        "resolvConf",
        "rotateCertificates",
        "systemCgroups",
        "staticPodPath",
        "seccompDefault",
    ];
    for (key, node) in judge.entries(path) {
        if PROTECTED.contains(&key) {
            let words = format!("kubelet configuration field \"{key}\" can't be overridden");
            judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "remove it: Talos sets it itself");
        }
    }
}

/// Checks that only processors and memory are asked for.
pub fn resources(judge: &mut Judge<'_>, path: &str) {
    for part in ["requests", "limits"] {
        for (key, node) in judge.entries(&format!("{path}.{part}")) {
            if !matches!(key, "cpu" | "memory") {
                let words = format!("unsupported pod resource \"{}\"", show(key));
                judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "write `cpu` or `memory`");
            }
        }
    }
}

fn arguments(judge: &mut Judge<'_>) {
    const DENIED: [(&str, &str); 6] = [
        ("anonymous-auth", "KubeAuthenticationConfig"),
        ("oidc-", "KubeAuthenticationConfig"),
        ("authentication-config", "KubeAuthenticationConfig"),
        ("authorization-config", "KubeAuthorizerConfig"),
        ("authorization-mode", "KubeAuthorizerConfig"),
        ("authorization-webhook-", "KubeAuthorizerConfig"),
    ];
    for (key, value) in judge.entries("extraArgs") {
        if let Some((_, document)) = DENIED.iter().find(|(prefix, _)| key.starts_with(prefix)) {
            let words = format!("kube-apiserver extra argument \"{key}\" is not allowed: use {document}");
            judge.wrong(Code::CONFIG_REFUSED, Some(value), &words, &format!("write a {document} document"));
        }
    }
}

fn pod(judge: &mut Judge<'_>, what: &str) {
    if !judge.is_off("enabled") {
        image(judge, "image", what, true);
        resources(judge, "resources");
    }
}

fn proxy(judge: &mut Judge<'_>) {
    if judge.is_off("enabled") {
        return;
    }
    image(judge, "image", "proxy", true);
    resources(judge, "resources");
    match judge.text("mode") {
        "" | "nftables" => {}
        mode @ ("iptables" | "ipvs") => {
            let words = format!("proxy mode \"{mode}\" is not recommended");
            judge.warn(Code::CONFIG_REFUSED, "mode", &words, "switch to nftables if possible");
        }
        mode => {
            let words = format!("invalid proxy mode \"{}\"", show(mode));
            judge.fail(Code::CONFIG_REFUSED, "mode", &words, "write `nftables`, `iptables` or `ipvs`");
        }
    }
}

fn node(judge: &mut Judge<'_>) {
    judge.subnets("nodeIP.validSubnets", "nodeIP subnet");
    labels(judge, "labels", "annotations", "taints");
}

/// Checks the labels, annotations and taints of a node.
pub fn labels(judge: &mut Judge<'_>, labels: &str, annotations: &str, taints: &str) {
    for (path, what) in [(labels, "labels"), (annotations, "annotations"), (taints, "taints")] {
        for (key, node) in judge.entries(path) {
            if !is_label_key(key) {
                let words = format!("invalid machine node {what}: name \"{}\" is invalid", show(key));
                let remedy =
                    "write an optional DNS prefix, `/`, and at most 63 letters, digits, `-`, `_` and `.`";
                judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, remedy);
            }
            let text = node.as_text().unwrap_or_default();
            let (good, remedy) = match what {
                "labels" => (is_label_value(text), "write at most 63 letters, digits, `-`, `_` and `.`"),
                "taints" => (
                    is_taint(text),
                    "write `NoSchedule`, `PreferNoSchedule` or `NoExecute`, or `value:Effect`",
                ),
                _ => (!key.starts_with("talos.dev/owned-"), "remove it: Talos keeps its own records there"),
            };
            if !good {
                let words =
                    format!("invalid machine node {what}: \"{}: {}\" is invalid", show(key), show(text));
                judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, remedy);
            }
        }
    }
}

fn cluster(judge: &mut Judge<'_>) {
    judge.required("clusterName", "clusterName must be specified");
    judge.required("endpoint", "endpoint must be specified");
    let endpoint = judge.text("endpoint");
    if let Some(problem) = endpoint_problem(endpoint).filter(|_| !endpoint.is_empty()) {
        let words = format!("cluster endpoint is invalid: {problem}");
        judge.fail(Code::CONFIG_REFUSED, "endpoint", &words, "write it as in `https://10.0.0.10:6443`");
    }
}

fn network(judge: &mut Judge<'_>) {
    let mut masks = [24, 64];
    for (i, (path, longest)) in
        [("nodeCIDRMaskSizeIPv4", 32), ("nodeCIDRMaskSizeIPv6", 128)].into_iter().enumerate()
    {
        let mask = judge.int(path);
        if mask != 0 {
            masks[i] = mask;
        }
        if !(0..=longest).contains(&mask) {
            let words = format!("{path} must be between 1 and {longest}");
            judge.fail(Code::CONFIG_REFUSED, path, &words, "write a prefix length");
        }
    }
    let subnets = ["podSubnets", "serviceSubnets"];
    for path in subnets {
        family(judge, path);
        for (node, text) in judge.texts(path) {
            if let Some(problem) = subnet_problem(text, path == "podSubnets", masks) {
                judge.wrong(
                    Code::CONFIG_REFUSED,
                    Some(node),
                    &format!("{path}: {problem}"),
                    "choose another network",
                );
            }
        }
    }
    if judge.items(subnets[0]).len() != judge.items(subnets[1]).len() {
        judge.conflict(
            "serviceSubnets",
            "the number of pod subnets must match the number of service subnets",
            "give one of each family, or one of each",
        );
    }
}

/// At most one network of each family.
fn family(judge: &mut Judge<'_>, path: &str) {
    let texts: Vec<&str> = judge.texts(path).map(|(_, text)| text).collect();
    let (six, four): (Vec<&str>, Vec<&str>) = texts.iter().partition(|text| text.contains(':'));
    if texts.is_empty() || six.len() > 1 || four.len() > 1 {
        let words = format!("{path}: one subnet, or one of each family, must be specified");
        judge.fail(
            Code::CONFIG_REFUSED,
            path,
            &words,
            "write as in `[10.244.0.0/16]` or `[10.244.0.0/16, fd00::/56]`",
        );
    }
}

fn subnet_problem(text: &str, pods: bool, masks: [i128; 2]) -> Option<String> {
    let (address, bits) = parse_network(text)?;
    let (length, mask) = if address.is_ipv4() { (32, masks[0]) } else { (128, masks[1]) };
    let host_bits = length - u32::from(bits);
    if has_host_bits(address, bits) {
        return Some(format!("invalid subnet: {text} is not a valid CIDR"));
    }
    if host_bits < 4 {
        return Some(format!("invalid subnet: /{bits} is too small"));
    }
    if !pods {
        return (host_bits > 20).then(|| format!("invalid subnet: {text} is too large"));
    }
    let difference = mask - i128::from(bits);
    if difference < 0 {
        return Some(format!(
            "invalid subnet: {text} is smaller than the per-node pod CIDR mask size /{mask}"
        ));
    }
    (difference > 16)
        .then(|| format!("invalid subnet: {text} is too large for the per-node pod CIDR mask size /{mask}"))
}

fn authority(kind: &str, judge: &mut Judge<'_>) {
    if kind == "KubeAggregatorCAConfig" || judge.get("issuingCA").is_some() {
        for (path, certificate) in [("issuingCA.cert", true), ("issuingCA.key", false)] {
            judge.required(path, "issuing CA: certificate and key are required");
            pem(judge, judge.get(path), certificate, "issuing CA");
        }
    }
    for node in judge.items("acceptedCAs") {
        if node.as_text().is_some_and(str::is_empty) {
            let words = "accepted CA: no PEM blocks found";
            judge.wrong(Code::CONFIG_REFUSED, Some(node), words, "remove the item");
        }
        pem(judge, Some(node), true, "accepted CA");
    }
}

/// Reports text that is not in PEM form.
pub fn pem(judge: &mut Judge<'_>, node: Option<&Node>, certificate: bool, what: &str) {
    let text = node.and_then(Node::as_text).unwrap_or_default();
    if !text.is_empty() && !is_pem(text, certificate) {
        let words = format!("{what}: no PEM blocks of the expected type found");
        judge.wrong(
            Code::CONFIG_REFUSED,
            node,
            &words,
            "write it as PEM text, not in base64, over several lines",
        );
    }
}

fn service_account(judge: &mut Judge<'_>) {
    judge.required("issuer.privateKey", "service issuer private key is required");
    pem(judge, judge.get("issuer.privateKey"), false, "service issuer private key");
    judge.required("issuer.issuerURL", "service issuer URL is required");
}

fn authorizer(judge: &mut Judge<'_>) {
    let kind = judge.text("type");
    if !matches!(kind, "Node" | "RBAC" | "Webhook") {
        let words = format!("authorizer type {} is not allowed", show(kind));
        judge.fail(Code::CONFIG_REFUSED, "type", &words, "write `Node`, `RBAC` or `Webhook`");
    }
    if kind == "Webhook" {
        judge.required("webhook", "authorizer webhook configuration is required for Webhook authorizer type");
    }
}

fn subdomain(judge: &mut Judge<'_>, what: &str) {
    let name = judge.text("name");
    if !name.is_empty() && !is_dns_subdomain(name) {
        let words = format!("{what} is invalid: domain doesn't match required format: \"{}\"", show(name));
        judge.fail(Code::CONFIG_REFUSED, "name", &words, "write small letters, digits, `-` and `.`");
    }
}

fn web(judge: &mut Judge<'_>, path: &str) {
    let url = Url::parse(judge.text(path)).unwrap_or_default();
    if !matches!(url.scheme(), "http" | "https") {
        judge.fail(
            Code::CONFIG_REFUSED,
            path,
            "URL scheme must be http or https",
            "write a URL with its scheme",
        );
    }
}

/// Checks roles of the Talos API.
pub fn roles(judge: &mut Judge<'_>, path: &str) {
    for (node, role) in judge.texts(path) {
        let known = ["os:admin", "os:operator", "os:reader", "os:etcd:backup", "os:impersonator"];
        if !known.contains(&role) {
            let words =
                format!("invalid role \"{}\" in allowed roles for Kubernetes Talos API Access", show(role));
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(node),
                &words,
                "write `os:reader`, `os:operator` or `os:admin`",
            );
        }
    }
}
