//! No secret is ever shown: not by `Debug`, not by an error, whatever is wrong with the input.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{
    cidata,
    pki::{
        KUBERNETES_ADMIN_LIFETIME, PrivateKey, TALOS_CLIENT_LIFETIME, Term, kubernetes_admin, talos_client,
    },
    secrets::{Bundle, Encryption, SecretText},
    talosconfig::{self, Role, Talosconfig},
};
use ichor_model::desired::Hostnames;

use crate::{
    machine::machine,
    support::{GOLDEN, Seeded, bundle, now, rsa},
};

/// Pieces of every secret of a bundle, in every form that could be shown.
fn canaries(bundle: &Bundle) -> Vec<String> {
    let Encryption::Secretbox(encryption) = &bundle.encryption else { panic!("secretbox") };
    let keys = [
        bundle.etcd.key(),
        bundle.kubernetes.key(),
        bundle.aggregator.key(),
        &bundle.service_account,
        bundle.os.key(),
    ];
    let mut texts: Vec<String> =
        [&bundle.cluster_secret, &bundle.bootstrap_token, &bundle.trustd_token, encryption]
            .map(|secret| secret.expose().to_owned())
            .into();
    for key in keys {
        texts.push(STANDARD.encode(key.pem().expose()));
        // The label and the algorithm at the front are no secrets.
        let body: String = key.pem().expose().lines().filter(|line| !line.starts_with("-----")).collect();
        texts.push(body[24..].into());
        let der = key.to_pkcs8_der().expect("pkcs8");
        texts.push(format!("{:?}", &der[16..]).trim_matches(['[', ']']).into());
        texts.push(der[16..].iter().map(|byte| format!("{byte:02x}")).collect());
    }
    texts.iter().flat_map(|text| pieces(text)).collect()
}

/// Cuts text into overlapping pieces that are too long to occur by chance.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    // The first half of base64 of a PEM key is its label, which may be shown.
    let skip = if text.starts_with("LS0t") { 60 } else { 0 };
    chars[skip..].windows(12).step_by(6).map(|piece| piece.iter().collect()).collect()
}

fn assert_silent(canaries: &[String], shown: &str, what: &str) {
    if let Some(canary) = canaries.iter().find(|canary| shown.contains(canary.as_str())) {
        panic!("{what} shows {} characters of a secret", canary.len());
    }
}

#[test]
fn the_canaries_sing_when_a_secret_is_shown() {
    let bundle = bundle(1);
    let canaries = canaries(&bundle);
    for shown in
        [bundle.to_secrets_yaml().expose(), bundle.os.key().pem().expose(), bundle.trustd_token.expose()]
    {
        assert!(canaries.iter().any(|canary| shown.contains(canary.as_str())));
    }
}

#[test]
fn no_type_shows_a_secret() {
    let bundle = bundle(1);
    let term = |lifetime| Term { now: now(), lifetime };
    let mut entropy = Seeded::new(9);
    let talos =
        talos_client(&bundle.os, &[Role::Admin], term(TALOS_CLIENT_LIFETIME), &mut entropy).expect("client");
    let kubernetes =
        kubernetes_admin(&bundle.kubernetes, term(KUBERNETES_ADMIN_LIFETIME), &mut entropy).expect("client");
    let config = talosconfig::render(&talosconfig::Access {
        cluster: &"a".parse().expect("name"),
        endpoints: &[],
        nodes: &[],
        vips: &[],
        authority: bundle.os.certificate(),
        client: &talos,
    })
    .expect("rendered");
    let files =
        cidata::render(&machine("cp-1", Vec::new()), Hostnames::Inventory, Some(bundle.to_secrets_yaml()));
    let mut canaries = canaries(&bundle);
    for key in [&talos.key, &kubernetes.key] {
        canaries.extend(pieces(&STANDARD.encode(key.pem().expose())));
    }
    let read = Talosconfig::parse(config.expose()).expect("read");
    let mut shown = String::new();
    write!(
        shown,
        "{bundle:#?} {bundle:?} {talos:?} {kubernetes:?} {config:?} {files:?} {read:?} {:?}",
        rsa()
    )
    .expect("shown");
    assert_silent(&canaries, &shown, "`Debug`");
    assert!(shown.contains("[secret]") && shown.contains("PrivateKey(Ed25519)"));
    assert_eq!(format!("{:?}", SecretText::new("canary")), "[secret]");
}

/// Ways to damage one line of a file.
fn damages(line: &str, next: &str) -> Vec<String> {
    let (key, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.trim();
    let indent = &key[..key.len() - key.trim_start().len()];
    let middle = value.len() / 2;
    vec![
        String::new(),
        format!("{line}\n{line}"),
        line.trim_start().into(),
        format!("{key} {value}"),
        format!("{indent}{value}: {}", key.trim()),
        format!("{key}: {}", &value[..middle]),
        format!("{key}: {value}!"),
        format!("{key}: [{value}]"),
        format!("{key}: {{{value}: x}}"),
        format!("{key}: *{value}"),
        format!("{key}: !{value} x"),
        format!("{key}: \"{value}"),
        format!("{key}: {value}: {value}"),
        format!("{key}: '******'"),
        format!("{key}: {}", value.to_lowercase()),
        format!("{key}: {}", value.replacen('A', "B", 1)),
        format!("{key}:{}", next.split_once(':').map_or("", |(_, value)| value)),
        format!("{key}: |\n{value}"),
        format!("\t{line}"),
    ]
}

#[test]
fn no_error_shows_a_secret() {
    let canaries = canaries(&bundle(1));
    let lines: Vec<&str> = GOLDEN.lines().collect();
    let mut refused = 0;
    for (i, line) in lines.iter().enumerate() {
        for damage in damages(line, lines[(i + 1) % lines.len()]) {
            let mut damaged: Vec<&str> = lines.clone();
            damaged[i] = &damage;
            let text = damaged.join("\n");
            let Err(flaws) = Bundle::from_secrets_yaml(&text, now()) else { continue };
            refused += 1;
            assert_silent(&canaries, &format!("{flaws} {flaws:?}"), &format!("line {}", i + 1));
            assert!(flaws.iter().all(|flaw| !flaw.problem.remedy.is_empty()), "{flaws}");
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn no_error_about_pem_shows_a_secret() {
    let bundle = bundle(1);
    let canaries = canaries(&bundle);
    for key in [bundle.os.key(), bundle.etcd.key(), &bundle.service_account] {
        let pem = key.pem().expose();
        let body = pem.lines().nth(1).expect("a body");
        for damaged in [
            pem.replace("-----BEGIN ", &format!("-----BEGIN {body}")),
            pem.replace(body, &format!("{body}:")),
            pem.replace(body, &body[2..]),
            pem.replace("-----END", "-----"),
            body.to_owned(),
        ] {
            let problem = PrivateKey::from_pem(&damaged).expect_err("damaged");
            assert_silent(&canaries, &format!("{problem:?}"), "a problem");
        }
    }
}
