//! Rules of all other documents.

use ichor_model::Code;

use super::{
    block::at_least_10s,
    judge::Judge,
    kube,
    text::{endpoint_problem, is_label_key, is_pem},
};
use crate::document::{Node, raw::show, url::Url};

/// Checks a document of this family; others are left alone.
pub fn check(kind: &str, judge: &mut Judge<'_>) {
    match kind {
        "RegistryMirrorConfig" => mirror(judge),
        "RegistryAuthConfig" => registry_auth(judge),
        "RegistryTLSConfig" => registry_tls(judge),
        "ExtensionServiceConfig" => extension(judge),
        "KmsgLogConfig" => kmsg_log(judge),
        "EventSinkConfig" => event_sink(judge),
        "WatchdogTimerConfig" => {
            judge.required("device", "watchdog device: empty value");
            at_least_10s(judge, "timeout", "watchdog timeout: minimum value is 10s");
        }
        "TrustedRootsConfig" => trusted_roots(judge),
        "EnvironmentConfig" => environment(judge),
        "OOMConfig" => judge.not_negative("sampleInterval", "OOM sample interval must be longer than 0"),
        "SysctlConfig" | "SysfsConfig" => parameters(judge),
        "UnattendedInstallConfig" => install(judge),
        "DiscoveryIdentityConfig" => identity(judge),
        "DiscoveryServiceConfig" => discovery(judge),
        "SideroLinkConfig" => sidero_link(judge),
        "CRICustomizationConfig" if !is_label_key(judge.text("name")) => {
            judge.fail(
                Code::CONFIG_REFUSED,
                "name",
                "invalid name",
                "write at most 63 letters, digits, `-`, `_` and `.`",
            );
        }
        "EtcFileConfig" => etc_file(judge),
        "ImageVerificationConfig" => verification(judge),
        _ => {}
    }
}

fn mirror(judge: &mut Judge<'_>) {
    for (i, endpoint) in judge.items("endpoints").iter().enumerate() {
        let url = endpoint.get("url").and_then(Node::as_text).unwrap_or_default();
        let scheme = Url::parse(url).unwrap_or_default().scheme().to_owned();
        if !matches!(scheme.as_str(), "http" | "https") {
            let words = format!("endpoints[{i}].url has unsupported scheme: \"{}\"", show(&scheme));
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(endpoint),
                &words,
                "write a URL with `http://` or `https://`",
            );
        }
    }
}

fn registry_auth(judge: &mut Judge<'_>) {
    let has = |path: &str| !judge.text(path).is_empty();
    let ways = [has("username"), has("identityToken"), has("auth")].into_iter().filter(|has| *has).count();
    if ways > 1 {
        judge.conflict(
            "auth",
            "only one of auth, username/password or identityToken authentication can be specified",
            "keep one of them",
        );
    }
}

fn registry_tls(judge: &mut Judge<'_>) {
    kube::pem(judge, judge.get("ca"), true, "ca must be a valid PEM-encoded certificate");
    if judge.get("clientIdentity").is_some() {
        for (path, certificate) in [("clientIdentity.cert", true), ("clientIdentity.key", false)] {
            judge.required(path, "client identity: certificate and key are required");
            kube::pem(judge, judge.get(path), certificate, "client identity");
        }
    }
}

fn extension(judge: &mut Judge<'_>) {
    let name = judge.text("name");
    if judge.items("configFiles").is_empty() && judge.items("environment").is_empty() {
        let words = format!("no config files found for extension \"{}\"", show(name));
        judge.fail(Code::CONFIG_REFUSED, "name", &words, "set `configFiles` or `environment`");
    }
    for file in judge.items("configFiles") {
        for key in ["content", "mountPath"] {
            if file.get(key).is_none() {
                let words = format!("extension {key} is required for extension \"{}\"", show(name));
                judge.wrong(Code::CONFIG_REFUSED, Some(file), &words, &format!("set `{key}`"));
            }
        }
    }
}

fn kmsg_log(judge: &mut Judge<'_>) {
    let url = Url::parse(judge.text("url")).unwrap_or_default();
    let words = match () {
        () if judge.text("url").is_empty() => "url is required",
        () if !matches!(url.scheme(), "tcp" | "udp") => "url scheme must be tcp:// or udp://",
        () if !matches!(url.path(), "" | "/") => "url path must be empty",
        () if url.port().is_empty() => "url port is required",
        () => return,
    };
    judge.fail(Code::CONFIG_REFUSED, "url", words, "write it as in `tcp://10.0.0.5:514`");
}

fn event_sink(judge: &mut Judge<'_>) {
    let endpoint = judge.text("endpoint");
    let port = endpoint.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    if !port {
        judge.fail(
            Code::CONFIG_REFUSED,
            "endpoint",
            "event sink endpoint: missing port in address",
            "write `10.0.0.5:8080`",
        );
    }
}

fn trusted_roots(judge: &mut Judge<'_>) {
    if !is_pem(judge.text("certificates"), true) {
        judge.warn(
            Code::CONFIG_REFUSED,
            "certificates",
            "no PEM blocks found: nothing would be trusted",
            "write the certificates as PEM text, over several lines",
        );
    }
}

fn environment(judge: &mut Judge<'_>) {
    for (key, node) in judge.entries("variables") {
        let known = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if key.is_empty() || key.starts_with(|c: char| c.is_ascii_digit()) || !key.chars().all(known) {
            let words = format!("invalid environment variable name: \"{}\"", show(key));
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(node),
                &words,
                "write letters, digits and `_`, no digit first",
            );
        }
    }
}

fn parameters(judge: &mut Judge<'_>) {
    for (key, node) in judge.entries("params") {
        if key.is_empty() {
            judge.wrong(Code::CONFIG_REFUSED, Some(node), "a key cannot be empty", "name the parameter");
        }
    }
}

fn install(judge: &mut Judge<'_>) {
    judge.required("provisioning.diskSelector.match", "provisioning.diskSelector.match is required");
    if judge.text("installer.image").is_empty() {
        judge.warn(
            Code::CONFIG_REFUSED,
            "installer",
            "installer.image is not set: unless Talos was booted from an Image Factory asset, installation will fail",
            "set `installer.image` to the installer of the schematic",
        );
    }
}

fn identity(judge: &mut Judge<'_>) {
    judge.required("clusterID", "clusterID is required");
    if !super::text::is_wireguard_key(judge.text("clusterSecret")) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "clusterSecret",
            "invalid clusterSecret",
            "write 32 bytes in base64",
        );
    }
}

fn discovery(judge: &mut Judge<'_>) {
    let endpoint = judge.text("endpoint");
    let scheme = Url::parse(endpoint).unwrap_or_default().scheme().to_owned();
    let good = matches!(scheme.as_str(), "http" | "https" | "grpc") && endpoint_problem(endpoint).is_none();
    if !good {
        judge.fail(
            Code::CONFIG_REFUSED,
            "endpoint",
            "endpoint scheme must be http://, https:// or grpc://",
            "write it as in `https://discovery.talos.dev/`",
        );
    }
}

fn sidero_link(judge: &mut Judge<'_>) {
    let url = Url::parse(judge.text("apiUrl")).unwrap_or_default();
    if !matches!(url.scheme(), "https" | "grpc") || !matches!(url.path(), "" | "/") {
        let words = "apiUrl scheme must be https:// or grpc://, and its path empty";
        judge.fail(
            Code::CONFIG_REFUSED,
            "apiUrl",
            words,
            "write it as in `https://siderolink.example?jointoken=...`",
        );
    }
}

fn etc_file(judge: &mut Judge<'_>) {
    const FILES: [&str; 7] =
        ["resolv.conf", "hosts", "machine-id", "extensions.yaml", "localtime", "os-release", "xattr.conf"];
    const FOLDERS: [&str; 12] = [
        "apparmor.d",
        "apparmor",
        "ca-certificates",
        "cni",
        "cri",
        "iscsi",
        "kubernetes",
        "lvm",
        "nvme",
        "pki",
        "selinux",
        "ssl",
    ];
    let name = judge.text("name");
    let first = name.split('/').next().unwrap_or(name);
    if name.starts_with(['/', '.']) || name.split('/').any(|part| part == "..") {
        let words = format!("user etc file \"{}\" must be a local path", show(name));
        judge.fail(Code::CONFIG_REFUSED, "name", &words, "write a path below /etc, without a leading slash");
    } else if FILES.contains(&name) || FOLDERS.contains(&first) {
        let words = format!("user etc file \"{}\" is managed by Talos", show(name));
        judge.fail(Code::CONFIG_REFUSED, "name", &words, "use the document or field that Talos has for it");
    }
}

/// Whether a rule's verifier says whom to trust.
fn complete(rule: &Node) -> bool {
    let has = |path: &str| rule.at_path(path).is_some();
    let keyless = has("keyless.issuer") && (has("keyless.subject") || has("keyless.subjectRegex"));
    (rule.get("keyless").is_none() || keyless)
        && (rule.get("publicKey").is_none() || has("publicKey.certificate"))
}

fn verification(judge: &mut Judge<'_>) {
    for (i, rule) in judge.items("rules").iter().enumerate() {
        let on = |key: &str| rule.get(key).and_then(Node::as_bool) == Some(true);
        let (skip, deny) = (on("skip"), on("deny"));
        let verifiers = ["keyless", "publicKey"].iter().filter(|key| rule.get(key).is_some()).count();
        let words = match () {
            () if rule.get("image").is_none() => "imagePattern must be specified",
            () if skip && deny => "skip and deny cannot both be true",
            () if (skip || deny) && verifiers > 0 => "verifiers cannot be configured if skip or deny is true",
            () if !skip && !deny && verifiers == 0 => "at least one verifier must be configured",
            () if verifiers > 1 => "only one of keyless or publicKey verifier can be configured",
            () if !complete(rule) => "the verifier needs an issuer and a subject, or a certificate",
            () => continue,
        };
        let remedy = "give each rule an `image` and one of `skip`, `deny`, `keyless` and `publicKey`";
        judge.wrong(Code::CONFIG_REFUSED, Some(rule), &format!("rule {i}: {words}"), remedy);
    }
}
