//! Add-ons and operating-system settings: taken over, and checked against each other.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_model::{
    At, Code, Finding,
    desired::{self as d, Addon, ManifestContent, Setting},
};
use ichor_spec::{
    inventory::{self as spec, Addons, ExtensionService, Manifest, Os, Registry},
    read::Map,
    values::{LooseText, Release, TextOrSecret},
};
use serde_json::{Value, json};

use super::{Context, cluster::values};

/// Programs that a choice may name.
const CHOICES: &[(&str, &[&str])] = &[
    ("cni", &["cilium", "flannel", "none"]),
    ("monitoring", &["kube-prometheus-stack", "victoria-metrics"]),
    ("logs", &["loki"]),
    ("ingress", &["traefik", "ingress-nginx"]),
    ("load_balancer", &["metallb", "cilium"]),
];

/// Returns the add-ons by name. The pod network is always among them.
pub fn addons(cx: &mut Context<'_>, written: Option<&At<Addons>>) -> BTreeMap<String, Addon> {
    let written = written.map(|at| at.value.clone()).unwrap_or_default();
    let mut addons = BTreeMap::new();
    switches(&written, &mut addons);
    choices(cx, &written, &mut addons);
    if let Some(settings) = written.csi.as_ref().and_then(|csi| csi.settings()) {
        addons.insert("csi".into(), csi(cx, &settings));
    }
    if let Some(gitops) = &written.gitops {
        addons.extend(self::gitops(cx, gitops).map(|addon| ("gitops".into(), addon)));
    }
    for chart in written.charts.iter().flat_map(|charts| &charts.value) {
        if let Some(addon) = self::chart(cx, chart) {
            add_named(cx, &mut addons, chart.name.as_ref(), addon);
        }
    }
    for item in written.manifests.iter().flat_map(|manifests| &manifests.value) {
        if let Some(manifest) = manifest(cx, item) {
            let settings = BTreeMap::from([("manifest".to_owned(), to_value(&manifest))]);
            let addon = Addon { settings, ..Addon::default() };
            add_named(cx, &mut addons, item.name.as_ref(), (format!("manifest/{}", manifest.name), addon));
        }
    }
    check_together(cx, &written, &addons);
    addons
}

/// Our own types always serialise.
fn to_value<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn text(at: Option<&At<Release>>) -> Option<String> {
    at.map(|at| at.value.0.clone())
}

fn switches(written: &Addons, addons: &mut BTreeMap<String, Addon>) {
    let switches = [
        ("ccm", &written.ccm),
        ("gateway_api", &written.gateway_api),
        ("kubelet_cert_approver", &written.kubelet_cert_approver),
        ("metrics_server", &written.metrics_server),
        ("prometheus_crds", &written.prometheus_crds),
        ("cert_manager", &written.cert_manager),
        ("longhorn", &written.longhorn),
    ];
    for (name, switch) in switches {
        if let Some(settings) = switch.as_ref().and_then(|switch| switch.settings()) {
            let addon = Addon {
                version: text(settings.version.as_ref()),
                values_file: settings.values_file.as_ref().map(|file| file.value.0.clone()),
                values: settings.values.as_ref().map(|values| values.value.0.clone()),
                ..Addon::default()
            };
            addons.insert(name.into(), addon);
        }
    }
}

fn choices(cx: &mut Context<'_>, written: &Addons, addons: &mut BTreeMap<String, Addon>) {
    let choices = [
        ("cni", &written.cni),
        ("monitoring", &written.monitoring),
        ("logs", &written.logs),
        ("ingress", &written.ingress),
    ];
    for (key, choice) in choices {
        let Some(choice) = choice else { continue };
        check_choice(cx, key, &choice.name);
        let addon = Addon {
            choice: Some(choice.name.value.clone()),
            version: text(choice.settings.version.as_ref()),
            values_file: choice.settings.values_file.as_ref().map(|file| file.value.0.clone()),
            values: choice.settings.values.as_ref().map(|values| values.value.0.clone()),
            settings: BTreeMap::new(),
        };
        addons.insert(key.into(), addon);
    }
    addons
        .entry("cni".into())
        .or_insert_with(|| Addon { choice: Some("flannel".into()), ..Addon::default() });
    if let Some(balancer) = &written.load_balancer {
        let settings = balancer.settings(balancer.span);
        let Some(kind) = settings.kind else {
            if !settings.unread.has("kind") {
                let remedy = "add `kind: metallb` or `kind: cilium`";
                cx.missing(Some(balancer.span), "addons.load_balancer.kind", remedy);
            }
            return;
        };
        check_choice(cx, "load_balancer", &kind);
        check_pools(cx, settings.pools.as_ref());
        let pools = BTreeMap::from([("pools".to_owned(), json!(values(settings.pools.as_ref())))]);
        let addon = Addon {
            choice: Some(kind.value),
            version: text(settings.version.as_ref()),
            values: settings.values.map(|values| values.value.0),
            settings: pools,
            values_file: None,
        };
        addons.insert("load_balancer".into(), addon);
    }
}

fn check_choice(cx: &mut Context<'_>, key: &str, name: &At<String>) {
    if !is_choice(key, &name.value) {
        cx.findings.push(
            Finding::error(
                Code::BAD_CHOICE,
                name.span,
                format!("`{}` is not a choice for `{key}`", ichor_spec::yaml::show(name)),
            )
            .remedy(format!("write one of {}", super::words(choices_of(key)))),
        );
    }
}

/// Address pools go into custom resources that are refused long after the cluster runs.
fn check_pools(cx: &mut Context<'_>, pools: Option<&At<Vec<At<String>>>>) {
    for pool in pools.into_iter().flat_map(|pools| &pools.value).filter(|pool| !is_pool(pool)) {
        cx.findings.push(
            Finding::error(
                Code::BAD_ADDRESS,
                pool.span,
                format!("`{}` is not a pool of addresses", ichor_spec::yaml::show(pool)),
            )
            .remedy("write a network such as `10.0.0.192/27`, or a range such as `10.0.0.200-10.0.0.220`"),
        );
    }
}

/// Whether a text is a network, or a range that ends where it begins or later.
fn is_pool(text: &str) -> bool {
    let Some((first, last)) = text.split_once('-') else {
        return text.parse::<ipnet::IpNet>().is_ok_and(|net| net == net.trunc());
    };
    let ends = (first.trim().parse::<IpAddr>(), last.trim().parse::<IpAddr>());
    matches!(ends, (Ok(first), Ok(last)) if first.is_ipv4() == last.is_ipv4() && first <= last)
}

fn choices_of(key: &str) -> &'static [&'static str] {
    CHOICES.iter().find(|(choice, _)| *choice == key).map_or(&[], |(_, names)| names)
}

fn is_choice(key: &str, name: &str) -> bool {
    choices_of(key).contains(&name)
}

fn csi(cx: &mut Context<'_>, settings: &spec::CsiSettings) -> Addon {
    let mut classes = Vec::new();
    for class in settings.storage_classes.iter().flat_map(|classes| &classes.value) {
        let (Some(name), Some(storage)) = (&class.name, &class.storage) else {
            let key = if class.name.is_none() { "name" } else { "storage" };
            if !class.unread.has(key) {
                cx.missing(Some(class.span), key, "write both: `{name: proxmox, storage: local-lvm}`");
            }
            continue;
        };
        classes.push(json!({
            "name": name.value,
            "storage": storage.value,
            "filesystem": class.filesystem.map_or("ext4", |filesystem| filesystem.word()),
            "default": class.default.is_some_and(|at| at.value),
            "retain": class.retain.is_some_and(|at| at.value),
        }));
    }
    let own = (!classes.is_empty()).then(|| ("storage_classes".to_owned(), Value::Array(classes)));
    Addon {
        choice: None,
        version: text(settings.version.as_ref()),
        values_file: settings.values_file.as_ref().map(|file| file.value.0.clone()),
        values: settings.values.as_ref().map(|values| values.value.0.clone()),
        settings: own.into_iter().collect(),
    }
}

fn gitops(cx: &mut Context<'_>, gitops: &At<spec::Gitops>) -> Option<Addon> {
    let (choice, git) = match (&gitops.flux, &gitops.argocd) {
        (Some(_), Some(argocd)) => {
            cx.findings.push(
                Finding::error(
                    Code::ADDON_CONFLICT,
                    argocd.span,
                    "Flux and Argo CD would both own the cluster",
                )
                .remedy("keep one of them"),
            );
            return None;
        }
        (Some(flux), None) => ("flux", flux),
        (None, Some(argocd)) => ("argocd", argocd),
        (None, None) => {
            if !gitops.unread.has("flux") && !gitops.unread.has("argocd") {
                cx.missing(Some(gitops.span), "flux` or `argocd", "write `gitops: {flux: {url: ...}}`");
            }
            return None;
        }
    };
    let secret = |at: &Option<At<ichor_spec::values::Secret>>| at.as_ref().map(|at| to_value(&at.value.0));
    let settings = [
        ("url", git.url.as_ref().map(|url| json!(url.text))),
        ("branch", git.branch.as_ref().map(|at| json!(at.value))),
        ("path", git.path.as_ref().map(|at| json!(at.value))),
        ("username", git.username.as_ref().map(|at| json!(at.value))),
        ("password", secret(&git.password)),
        ("ssh_key", secret(&git.ssh_key)),
        ("sops_key", secret(&git.sops_key)),
    ];
    Some(Addon {
        choice: Some(choice.into()),
        version: text(git.version.as_ref()),
        values_file: None,
        values: git.values.as_ref().map(|values| values.value.0.clone()),
        settings: settings.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect(),
    })
}

fn chart(cx: &mut Context<'_>, chart: &At<spec::Chart>) -> Option<(String, Addon)> {
    let (Some(name), Some(source)) = (&chart.name, &chart.chart) else {
        let key = if chart.name.is_none() { "name" } else { "chart" };
        if !chart.unread.has(key) {
            let remedy = "write both: `{name: demo, chart: oci://registry.example/demo}`";
            cx.missing(Some(chart.span), key, remedy);
        }
        return None;
    };
    let settings = [
        ("chart", Some(json!(source.value))),
        ("repository", chart.repository.as_ref().map(|url| json!(url.text))),
        ("namespace", chart.namespace.as_ref().map(|at| json!(at.value))),
    ];
    let addon = Addon {
        choice: None,
        version: text(chart.version.as_ref()),
        values_file: chart.values_file.as_ref().map(|file| file.value.0.clone()),
        values: chart.values.as_ref().map(|values| values.value.0.clone()),
        settings: settings.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect(),
    };
    Some((format!("chart/{}", name.value), addon))
}

/// Returns a manifest with exactly one source.
pub fn manifest(cx: &mut Context<'_>, item: &At<Manifest>) -> Option<d::Manifest> {
    let sources = [
        item.file.as_ref().map(|file| ManifestContent::File(file.value.0.clone())),
        item.url.as_ref().map(|url| ManifestContent::Url(url.value.text.clone())),
        item.inline.as_ref().map(|inline| ManifestContent::Inline(inline.value.0.clone())),
    ];
    let mut given = sources.into_iter().flatten();
    if item.name.is_none() && !item.unread.has("name") {
        cx.missing(Some(item.span), "name", "name the manifest: `{name: demo, file: demo.yaml}`");
    }
    match (given.next(), given.next()) {
        (Some(content), None) => Some(d::Manifest { name: item.name.as_ref()?.value.clone(), content }),
        (None, _) => {
            if !["file", "url", "inline"].iter().any(|key| item.unread.has(key)) {
                cx.missing(
                    Some(item.span),
                    "file`, `url` or `inline",
                    "say where the manifest is, or write it",
                );
            }
            None
        }
        (Some(_), Some(_)) => {
            cx.findings.push(
                Finding::error(Code::CONFLICTING_KEYS, item.span, "a manifest has one source")
                    .remedy("keep one of `file`, `url` and `inline`"),
            );
            None
        }
    }
}

/// Adds what is installed under a name of its own, or reports that the name is taken.
fn add_named(
    cx: &mut Context<'_>,
    addons: &mut BTreeMap<String, Addon>,
    name: Option<&At<String>>,
    (key, addon): (String, Addon),
) {
    if let Some(name) = name.filter(|_| addons.contains_key(&key)) {
        cx.findings.push(
            Finding::error(
                Code::ADDON_CONFLICT,
                name.span,
                format!("`{}` is the name of two charts or manifests", ichor_spec::yaml::show(name)),
            )
            .remedy("give each a name of its own"),
        );
    }
    addons.insert(key, addon);
}

fn check_together(cx: &mut Context<'_>, written: &Addons, addons: &BTreeMap<String, Addon>) {
    let choice = |key: &str| addons.get(key).and_then(|addon| addon.choice.as_deref());
    if let Some(ingress) = written.ingress.as_ref().filter(|ingress| ingress.name.value == "ingress-nginx") {
        cx.findings.push(
            Finding::warning(
                Code::ADDON_RETIRED,
                ingress.name.span,
                "ingress-nginx has had no fixes since March 2026",
            )
            .remedy("use `traefik`, or Cilium's own gateway"),
        );
    }
    let cni_known = !written.unread.has("cni") && choice("cni").is_some_and(|name| is_choice("cni", name));
    if choice("load_balancer") == Some("cilium") && choice("cni") != Some("cilium") && cni_known {
        let balancer = written.load_balancer.as_ref();
        let at = balancer.map(|at| at.settings(at.span).kind.map_or(at.span, |kind| kind.span));
        cx.findings.push(
            Finding::error(
                Code::ADDON_CONFLICT,
                at,
                "Cilium's load balancer needs Cilium as the pod network",
            )
            .remedy("set `cni: cilium`, or use `metallb`"),
        );
    }
    if addons.contains_key("csi") && !addons.contains_key("ccm") && !written.unread.has("ccm") {
        let at = written.csi.as_ref().map(|at| at.span);
        cx.findings.push(
            Finding::warning(
                Code::ADDON_CONFLICT,
                at,
                "the CSI plugin needs topology labels, which the CCM sets",
            )
            .remedy("add `ccm: true`, or set the labels yourself"),
        );
    }
}

/// Returns the operating-system settings.
pub fn os(cx: &mut Context<'_>, written: Option<&At<Os>>) -> d::Os {
    let written = written.map(|at| at.value.clone()).unwrap_or_default();
    let registries = written.registries.map(|map| map.value.0).unwrap_or_default();
    d::Os {
        time_servers: values(written.time_servers.as_ref()).into_iter().map(|server| server.0).collect(),
        sysctls: texts(written.sysctls.as_ref()),
        kernel_modules: kernel_modules(cx, written.kernel_modules.as_ref()),
        mirrors: registries
            .iter()
            .filter_map(|(host, registry)| Some((host.value.clone(), mirror(registry)?)))
            .collect(),
        registry_auth: registries
            .iter()
            .filter_map(|(host, registry)| Some((host.value.clone(), registry_auth(cx, registry)?)))
            .collect(),
        registry_tls: registries
            .iter()
            .filter_map(|(host, registry)| Some((host.value.clone(), registry_tls(cx, registry)?)))
            .collect(),
        trusted_roots: values(written.trusted_roots.as_ref()).into_iter().map(|file| file.0).collect(),
        extension_services: written
            .extension_services
            .map(|map| {
                map.value
                    .0
                    .into_iter()
                    .map(|(name, service)| (name.value, service_settings(cx, &service)))
                    .collect()
            })
            .unwrap_or_default(),
    }
}

/// Returns the texts of a map by their keys.
pub fn texts(map: Option<&At<Map<String, LooseText>>>) -> BTreeMap<String, String> {
    let entries = map.into_iter().flat_map(|map| &map.0);
    entries.map(|(key, value)| (key.value.clone(), value.value.0.clone())).collect()
}

/// Returns the modules of a list, and reports those without a name.
pub fn kernel_modules(
    cx: &mut Context<'_>,
    written: Option<&At<spec::List<spec::Module>>>,
) -> Vec<d::KernelModule> {
    let modules = written.into_iter().flat_map(|modules| &modules.value);
    modules.filter_map(|module| kernel_module(cx, &At::new(module.full(module.span), module.span))).collect()
}

fn kernel_module(cx: &mut Context<'_>, module: &At<spec::KernelModule>) -> Option<d::KernelModule> {
    let Some(name) = &module.name else {
        if !module.unread.has("name") {
            cx.missing(Some(module.span), "name", "name the kernel module: `{name: nvme_tcp}`");
        }
        return None;
    };
    Some(d::KernelModule { name: name.value.clone(), parameters: values(module.parameters.as_ref()) })
}

fn mirror(registry: &Registry) -> Option<d::Mirror> {
    let endpoints = registry.mirrors.as_ref()?;
    Some(d::Mirror {
        endpoints: endpoints.0.iter().map(|url| url.value.text.clone()).collect(),
        skip_fallback: registry.skip_fallback.is_some_and(|at| at.value),
        override_path: registry.override_path.is_some_and(|at| at.value),
    })
}

fn registry_auth(cx: &mut Context<'_>, registry: &At<Registry>) -> Option<d::RegistryAuth> {
    match (&registry.username, &registry.password) {
        (Some(username), Some(password)) => {
            Some(d::RegistryAuth { username: username.value.clone(), password: password.value.0.clone() })
        }
        (None, None) => None,
        (username, _) => {
            let key = if username.is_none() { "username" } else { "password" };
            if !registry.unread.has(key) {
                cx.missing(Some(registry.span), key, "give `username` and `password`, or neither");
            }
            None
        }
    }
}

fn registry_tls(cx: &mut Context<'_>, registry: &Registry) -> Option<d::RegistryTls> {
    let insecure = registry.insecure.filter(|insecure| insecure.value);
    if let (Some(ca), Some(insecure)) = (&registry.ca, insecure) {
        cx.findings.push(
            Finding::error(
                Code::CONFLICTING_KEYS,
                insecure.span,
                "a certificate is checked by a CA or not at all",
            )
            .see(ca.span, "the CA")
            .remedy("remove `insecure`"),
        );
    }
    let by_ca = registry.ca.as_ref().map(|ca| d::RegistryTls::Ca(ca.value.0.clone()));
    by_ca.or(insecure.map(|_| d::RegistryTls::Insecure))
}

fn service_settings(cx: &mut Context<'_>, service: &ExtensionService) -> d::ExtensionService {
    for (key, value) in service.environment.iter().flat_map(|map| &map.0) {
        if !is_variable(key) {
            let message = format!("`{}` cannot name an environment variable", ichor_spec::yaml::show(key));
            cx.findings.push(
                Finding::error(Code::BAD_NAME, key.span, message)
                    .remedy("use letters, digits and `_`, not beginning with a digit"),
            );
        }
        check_plain(cx, key, value);
    }
    for (key, value) in service.files.iter().flat_map(|map| &map.0) {
        if !key.starts_with('/') || key.ends_with('/') || key.split('/').any(|part| part == "..") {
            let message = format!("`{}` is not where a file can be mounted", ichor_spec::yaml::show(key));
            cx.findings.push(
                Finding::error(Code::BAD_PATH, key.span, message)
                    .remedy("write its whole path inside the service, as in `/etc/demo/demo.conf`"),
            );
        }
        check_plain(cx, key, value);
    }
    let settings = |map: &Option<At<Map<String, TextOrSecret>>>| {
        let entries = map.iter().flat_map(|map| &map.0);
        entries.map(|(key, value)| (key.value.clone(), setting(&value.value))).collect()
    };
    d::ExtensionService { environment: settings(&service.environment), files: settings(&service.files) }
}

fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Inventories live in git: what is secret by its name or by its look must not stand in one.
fn check_plain(cx: &mut Context<'_>, key: &At<String>, value: &At<TextOrSecret>) {
    let TextOrSecret::Text(text) = &value.value else { return };
    if text.0.is_empty() || !(sounds_secret(key) || text.0.contains("PRIVATE KEY")) {
        return;
    }
    cx.findings.push(
        Finding::error(Code::BAD_SECRET, value.span, "a secret must not stand in an inventory")
            .because("by its name this setting is a secret")
            .remedy("write where it is: `{env: NAME}`, or another reference")
            .private(),
    );
}

/// Whether a setting is secret by its name. One that names a file is not, nor is `TS_AUTH_ONCE`.
fn sounds_secret(key: &str) -> bool {
    const WORDS: [&str; 8] =
        ["authkey", "auth_key", "token", "passw", "secret", "private_key", "privatekey", "api_key"];
    let key = key.to_ascii_lowercase();
    let names_a_place = ["_file", "_path", "_dir", "_url"].iter().any(|ending| key.ends_with(ending));
    !names_a_place && WORDS.iter().any(|word| key.contains(word))
}

fn setting(value: &TextOrSecret) -> Setting {
    match value {
        TextOrSecret::Text(text) => Setting::Text(text.0.clone()),
        TextOrSecret::Secret(secret) => Setting::Secret(secret.0.clone()),
    }
}
