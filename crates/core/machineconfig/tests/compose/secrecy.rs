//! Nothing that is said about a config repeats a secret or a value of a patch, wherever it stands.

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{
    compose::{Composer, Material, Materials},
    schema::{self, Kind, Struct, Type},
    secrets::{Bundle, Encryption},
};
use ichor_model::{
    Desired, Finding, Findings, Severity, SourceId,
    desired::{PatchContent, Role},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::{RELEASES, bundle, resolve};

const OLD: (&str, &str) = RELEASES[3];
const NEW: (&str, &str) = RELEASES[5];
const FILE: &str = "patches/all.yaml";

/// A cluster whose configs have one document in contracts that know no others, so that operations apply.
fn plain(release: (&str, &str), patches: &str) -> Desired {
    resolve(&format!(
        "
cluster: {{name: homelab, talos: {}, kubernetes: {}, endpoint: {{vip: 10.0.0.20}}}}
proxmox: {{endpoint: 'https://pve:8006', hosts: {{pve1: {{}}}}}}
network: {{cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: [10.0.0.1]}}
machines: {{cp: {{role: control-plane, address: +10}}, worker: {{role: worker, address: +30}}}}
patches: [{patches}]
",
        release.0, release.1
    ))
}

/// Everything that is said about the configs of a cluster.
fn told(desired: &Desired, bundle: &Bundle, patch: &str) -> Vec<Finding> {
    let mut materials = Materials::default();
    let material = Material { source: SourceId(7), bytes: patch.as_bytes().to_vec() };
    materials.files.insert(FILE.to_owned(), material);
    let all = |findings: &Findings| findings.iter().cloned().collect::<Vec<_>>();
    let composer = match Composer::new(desired, bundle, &materials) {
        Ok(composer) => composer,
        Err(findings) => return all(&findings),
    };
    let mut told = all(composer.notes());
    let machines = desired.machines.iter().map(|machine| composer.machine(machine));
    for made in machines.chain([composer.role(Role::ControlPlane)]) {
        match made {
            Ok(config) => told.extend(all(&config.notes)),
            Err(findings) => told.extend(all(&findings)),
        }
    }
    told
}

/// All texts of a finding.
fn texts(finding: &Finding) -> String {
    let Finding { message, notes, related, remedy, .. } = finding;
    let related = related.iter().map(|(_, what)| what.clone());
    let texts = notes.iter().cloned().chain(related).chain(remedy.clone());
    [message.clone()].into_iter().chain(texts).collect::<Vec<_>>().join("\n")
}

/// Checks that something wrong was said, and nothing of what is hidden.
fn search(told: &[Finding], hidden: &[&str], about: &str) -> usize {
    for finding in told {
        let text = texts(finding);
        for secret in hidden {
            assert!(!text.to_lowercase().contains(&secret.to_lowercase()), "{about}: {secret} in\n{text}");
        }
        assert!(finding.private || finding.at.is_none(), "{about}: the line is shown\n{text}");
    }
    told.iter().map(texts).filter(|text| text.contains('…')).count()
}

#[test]
fn secrets_that_are_copied_into_other_fields_are_not_told() {
    let desired = plain(OLD, &format!("{{file: {FILE}}}"));
    let bundle = bundle();
    let Encryption::Secretbox(encryption) = &bundle.encryption else { panic!("secretbox") };
    let key = STANDARD.encode(bundle.os.key().pem().expose());
    let secrets = [
        ("/machine/token", bundle.trustd_token.expose()),
        ("/cluster/secret", bundle.cluster_secret.expose()),
        ("/cluster/token", bundle.bootstrap_token.expose()),
        ("/cluster/secretboxEncryptionSecret", encryption.expose()),
        ("/machine/ca/key", &key[..40]),
    ];
    let targets = [
        "/machine/install/wipe",
        "/machine/kubelet/image",
        "/machine/type",
        "/cluster/controlPlane/endpoint",
    ];
    let mut hidden = 0;
    for (from, secret) in secrets {
        for path in targets {
            let patch = json!([{"op": "copy", "from": from, "path": path}]).to_string();
            let told = told(&desired, &bundle, &patch);
            hidden += search(&told, &[secret], &patch);
            assert!(!told.is_empty(), "{patch}");
            let mut errors = told.iter().filter(|finding| finding.severity == Severity::Error);
            assert!(errors.all(|error| error.at.is_some_and(|at| at.source == SourceId(7))), "{told:#?}");
        }
    }
    // Some messages repeat nothing anyway.
    assert!(hidden >= 30, "{hidden}");
}

#[test]
fn values_are_hidden_and_keys_are_not() {
    let bundle = bundle();
    for (release, patch, words) in [
        (
            OLD,
            r#"[{"op":"add","path":"/machine/registries","value":{"config":{"ghcr.io":{"auth":"SEKRIT"}}}}]"#,
            "`machine.registries.config.ghcr.io.auth`",
        ),
        (
            NEW,
            r#"[{"op":"add","path":"/machine/sysctls","value":{"kernel.label":"SEKRIT-x"}}]"#,
            "kernel.label: …",
        ),
        (NEW, "machine: {nodeLabels: {foo: \"SEKRIT with space\"}}", "\"foo: …\" is invalid"),
        (NEW, "machine: {kubelet: {image: \"SEKRIT:SEKRIT:SEKRIT\"}}", "invalid image reference: \"…\""),
        (
            NEW,
            "machine: {logging: {destinations: [{endpoint: 'tcp://10.0.0.1:1', format: SEKRIT}]}}",
            "logging format \"…\"",
        ),
        (NEW, "machine: {type: SEKRIT}", "machine type \"…\""),
        (
            NEW,
            "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: SEKRIT-hostname\n",
            "write `auto: off` beside `hostname`",
        ),
        (
            NEW,
            "apiVersion: v1alpha1\nkind: LinkConfig\nname: foolink\naddresses: [{address: SEKRIT}]",
            "LinkConfig `foolink`",
        ),
        (NEW, "machine: {tokn: SEKRIT, env: {SOME_KEY: [SEKRIT]}}", "`machine.tokn`"),
        (NEW, "machine: {env: {SOME_KEY: [SEKRIT]}}", "`machine.env.SOME_KEY`"),
    ] {
        for place in [format!("{{file: {FILE}}}"), format!("{{inline: {}}}", Value::from(patch))] {
            let told = told(&plain(release, &place), &bundle, patch);
            search(&told, &["SEKRIT"], patch);
            assert!(told.iter().any(|finding| texts(finding).contains(words)), "{patch}: {told:#?}");
            assert!(told.iter().all(|finding| finding.at.is_some()), "{place}: {told:#?}");
        }
    }
}

#[test]
fn an_inline_patch_has_the_place_where_it_is_written() {
    let bundle = bundle();
    for inline in [
        "{machine: {kubelt: SEKRIT}}",
        "'machine: {kubelt: SEKRIT}'",
        "'[SEKRIT'",
        "[{op: add, path: nowhere, value: SEKRIT}]",
    ] {
        let desired = plain(NEW, &format!("{{inline: {inline}}}"));
        let patch = &desired.machines[0].patches[0];
        assert!(matches!(patch.content, PatchContent::Inline(_)) && patch.at.is_some());
        let told = told(&desired, &bundle, "");
        search(&told, &["SEKRIT"], inline);
        assert!(
            !told.is_empty() && told.iter().all(|finding| finding.at == patch.at && finding.private),
            "{told:#?}"
        );
    }
}

/// A map with a text in every field: in those that take any text, or in all.
fn filled(body: &Struct, text: &str, all: bool, release: u8) -> Value {
    let known = body.fields.iter().filter(|field| field.since <= release && field.name != "name");
    let fields =
        known.filter_map(|field| Some((field.name.to_owned(), value(field.kind, text, all, release)?)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn value(kind: Type, text: &str, all: bool, release: u8) -> Option<Value> {
    match kind {
        Type::Struct(body) | Type::Pem(body) => Some(filled(body, text, all, release)),
        Type::List(item) => Some(json!([value(*item, text, all, release)?])),
        Type::Map(item) => Some(json!({ "some-key": value(*item, text, all, release)? })),
        Type::Text | Type::Manifest | Type::Expression | Type::Argument => Some(text.into()),
        _ => all.then(|| text.into()),
    }
}

/// A patch for one kind of document.
fn patch_of(kind: &Kind, text: &str, all: bool, release: u8) -> Value {
    let mut patch = filled(&kind.body, text, all, release);
    if !kind.is_legacy() {
        patch["apiVersion"] = "v1alpha1".into();
        patch["kind"] = kind.name.into();
        if kind.named {
            patch["name"] = "some-name".into();
        }
    }
    patch
}

/// Texts that rules take apart in different ways, and one that is cut in messages.
const TEXTS: [&str; 3] = [
    "SEKRIT with space",
    "sekrit://SEKRIT:SEKRIT@SEKRIT/SEKRIT",
    "SEKRIT SEKRIT SEKRIT SEKRIT SEKRIT SEKRIT SEKRIT SEKRIT SEKRIT SEKRIT SEKRIT",
];

#[test]
fn no_field_of_any_document_is_told() {
    let bundle = bundle();
    let mut hidden = 0;
    for (release, minor) in [(OLD, 11), (RELEASES[6], 14)] {
        let mut desired = plain(release, &format!("{{file: {FILE}}}"));
        // Control planes may have every document.
        desired.machines.truncate(1);
        for kind in schema::kinds().filter(|kind| kind.since <= minor) {
            for text in TEXTS {
                for all in [true, false] {
                    let patch = patch_of(kind, text, all, minor);
                    hidden += search(&told(&desired, &bundle, &patch.to_string()), &["SEKRIT"], kind.name);
                    // One field after the other, as the first mistake may hide the next.
                    for (key, value) in patch
                        .as_object()
                        .into_iter()
                        .flatten()
                        .filter(|_| !all && text == "SEKRIT with space")
                    {
                        let mut alone = json!({ key: value });
                        for name in ["apiVersion", "kind", "name"] {
                            if let Some(value) = patch.get(name) {
                                alone[name] = value.clone();
                            }
                        }
                        hidden +=
                            search(&told(&desired, &bundle, &alone.to_string()), &["SEKRIT"], kind.name);
                    }
                }
            }
        }
    }
    assert!(hidden > 500, "{hidden}");
}

/// Paths of the legacy document that take text, and some that take none.
const PLACES: [&str; 16] = [
    "/machine/type",
    "/machine/token",
    "/machine/install/disk",
    "/machine/install/wipe",
    "/machine/kubelet/image",
    "/machine/kubelet/extraArgs/v",
    "/machine/nodeLabels/a",
    "/machine/nodeTaints/a",
    "/machine/env/a",
    "/machine/sysctls/a",
    "/machine/registries/config/x/auth",
    "/cluster/controlPlane/endpoint",
    "/cluster/network/dnsDomain",
    "/cluster/proxy/mode",
    "/cluster/secret",
    "/cluster/apiServer/resources/limits/cpu",
];

/// Puts a value at a path.
fn at(path: &str, value: Value) -> Value {
    path.rsplit('/').filter(|part| !part.is_empty()).fold(value, |value, part| json!({ part: value }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_secrets_are_not_told(
        secret in "[A-Za-z0-9][A-Za-z0-9 :/@.,=\"'`\\\\é-]{6,80}[A-Za-z0-9]",
        place in prop::sample::select(&PLACES[..]),
        list in any::<bool>(),
        form in 0..4,
        old in any::<bool>(),
    ) {
        let value = if list { json!([secret]) } else { json!(secret) };
        let strategic = at(place, value.clone());
        let parent = place.rsplit_once('/').map_or("", |(parent, _)| parent);
        let holder = at(place, json!(null)).pointer(parent).cloned().unwrap_or_default();
        let operations = json!([
            {"op": "add", "path": parent, "value": holder},
            {"op": "add", "path": place, "value": value},
        ]);
        let patch = if form % 2 == 0 { strategic } else { operations };
        let written = if form < 2 { format!("{{file: {FILE}}}") } else { format!("{{inline: {patch}}}") };
        let desired = plain(if old { OLD } else { NEW }, &written);
        for finding in told(&desired, &bundle(), &patch.to_string()) {
            let text = texts(&finding);
            prop_assert!(!text.contains(&secret), "{patch}\n{text}");
            // Half of it is as bad as all of it.
            let half: String = secret.chars().take(secret.chars().count().min(60) / 2 + 3).collect();
            prop_assert!(half.len() < 10 || !text.contains(&half), "{patch}\n{text}");
        }
    }
}
