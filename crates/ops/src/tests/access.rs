//! Talosconfigs and kubeconfigs.

use std::{path::Path, time::Duration};

use ichor_machineconfig::{
    pki::TalosRole,
    secrets::{Bundle, SecretText},
    talosconfig::Talosconfig,
};
use ichor_spec::Sources;

use super::{INVENTORY, Memory, codes, lab, resolve, site, with_secrets};
use crate::{
    HaltKind,
    access::{self, KUBECONFIG_LIFETIME, Kind, Server, TalosAccess},
    bundle,
};

fn admin() -> TalosAccess {
    TalosAccess { roles: vec![TalosRole::Admin], lifetime: Duration::from_hours(1) }
}

fn bundle(memory: &Memory) -> Bundle {
    bundle::of_cluster(memory, site(lab()), None, &mut Sources::default()).expect("secrets").bundle
}

#[test]
fn endpoints_are_the_control_planes_and_never_the_vip() {
    let memory = with_secrets();
    let (text, findings) = access::talosconfig(&memory, lab(), &bundle(&memory), &admin()).expect("made");
    let config = Talosconfig::parse(text.expose()).expect("a talosconfig");
    let context = config.context(None).expect("a context");
    assert_eq!((context.name.as_str(), &context.endpoints[..]), ("lab", &["10.0.0.11".to_owned()][..]));
    assert!(findings.is_empty() && context.nodes.is_empty());
}

#[test]
fn servers_are_the_endpoint_the_vip_or_a_control_plane() {
    let memory = with_secrets();
    let make = |word: &str| {
        access::kubeconfig(&memory, lab(), &bundle(&memory), &Server::of(word), KUBECONFIG_LIFETIME)
    };
    for (word, server) in [
        ("endpoint", "https://10.0.0.5:6443"),
        ("vip", "https://10.0.0.5:6443"),
        ("cp-1", "https://10.0.0.11:6443"),
    ] {
        let text = make(word).expect(word);
        assert!(text.expose().contains(&format!("server: {server}\n")), "{word}");
    }
    for word in ["worker-1", "nonsense"] {
        assert_eq!(codes(&make(word).expect_err(word)), ["ICH-2116"]);
    }
}

#[test]
fn leased_addresses_are_a_finding() {
    let desired = resolve(
        &INVENTORY
            .replace("endpoint: {vip: 10.0.0.5}", "endpoint: {host: api.lab.example}")
            .replace("network: {", "network: {addressing: dhcp, ")
            .replace(", address: 10.0.0.11", "")
            .replace(", address: 10.0.0.21", ""),
    );
    let memory = with_secrets();
    let bundle = bundle(&memory);
    let halt = access::talosconfig(&memory, &desired, &bundle, &admin()).expect_err("leased");
    assert_eq!(codes(&halt), ["ICH-2108"]);
    let to = |server| access::kubeconfig(&memory, &desired, &bundle, &server, KUBECONFIG_LIFETIME);
    assert_eq!(codes(&to(Server::Machine("cp-1".into())).expect_err("leased")), ["ICH-2108"]);
    assert_eq!(codes(&to(Server::Vip).expect_err("none")), ["ICH-2116"]);
    assert!(to(Server::Endpoint).is_ok());
}

#[test]
fn only_files_of_the_same_kind_are_written_over() {
    let memory = with_secrets();
    let (text, _) = access::talosconfig(&memory, lab(), &bundle(&memory), &admin()).expect("made");
    memory.put("diary", b"dear diary\n");
    memory.put("config", text.expose().as_bytes());
    memory.directories.borrow_mut().insert("directory".into());
    let write = |path: &str, kind, overwrite| {
        access::write(&memory, Path::new(path), &SecretText::new("new"), kind, overwrite)
    };
    for (path, kind) in [
        ("diary", Kind::Talosconfig),
        ("config", Kind::Kubeconfig),
        ("config", Kind::Bundle),
        ("directory", Kind::Talosconfig),
    ] {
        assert_eq!(write(path, kind, false).expect_err(path).kind, HaltKind::Refused, "{path}");
    }
    assert_eq!(memory.text("diary").as_deref(), Some("dear diary\n"));
    write("new", Kind::Bundle, false).expect("a new file");
    write("config", Kind::Talosconfig, false).expect("a talosconfig");
    write("diary", Kind::Talosconfig, true).expect("as asked");
    assert_eq!(memory.text("diary").as_deref(), Some("new"));
}
