//! `ichor kubeconfig` and `ichor talosconfig` beside what others keep in the same files, and of machines that know
//! their addresses alone.

use std::fs;

use serde_json::Value;

use super::{Lab, Outcome, lab_with_secrets, whole};

/// One control plane whose address nobody knows before it runs.
const LEASED: &str = "\
cluster: {name: leased, talos: v1.13.9, kubernetes: v1.36.3}
proxmox: {endpoint: 'https://127.0.0.1:9', token: {env: ICHOR_PVE_TOKEN}, tls: {insecure: true}, hosts: [pve1]}
network: {cidr: 192.168.1.0/24, addressing: dhcp}
machines:
  cp: {role: control-plane, count: 1}
";

const WORK: &str = "apiVersion: v1\nkind: Config\ncurrent-context: work\nclusters: [{name: work, cluster: {server: 'https://w'}}]\n\
                    contexts: [{name: work, context: {cluster: work, user: work}}]\nusers: [{name: work, user: {token: hunter2}}]\n";

fn at_home(lab: &Lab, arguments: &[&str]) -> Outcome {
    let mut command = lab.command(arguments);
    Outcome::of(command.env("HOME", lab.path("home")).env("SOPS_AGE_KEY_FILE", lab.key()))
}

fn yaml(lab: &Lab, path: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(lab.path(path)).expect(path)).expect("YAML")
}

#[cfg(unix)]
fn mode(lab: &Lab, path: &str) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(lab.path(path)).expect(path).permissions().mode() & 0o777
}

#[test]
#[cfg(unix)]
fn merging_makes_what_is_missing_for_the_owner_alone() {
    let lab = lab_with_secrets(&whole("a"));
    let merged = at_home(&lab, &["kubeconfig", "--merge"]);
    assert_eq!((merged.code, merged.stdout.as_str()), (0, ""), "{}", merged.stderr);
    assert!(
        merged.stderr.contains(".kube/config: context `admin@a`, which is the current one now"),
        "{}",
        merged.stderr
    );
    assert_eq!((mode(&lab, "home/.kube"), mode(&lab, "home/.kube/config")), (0o700, 0o600));
    let merged = at_home(&lab, &["talosconfig", "--merge", "--context", "mine", "-o", "json"]);
    let value: Value = serde_json::from_str(&merged.stdout).expect("JSON");
    assert_eq!((merged.code, &value["context"]), (0, &"mine".into()));
    assert_eq!(yaml(&lab, "home/.talos/config")["context"], "mine");
    assert_eq!(mode(&lab, "home/.talos/config"), 0o600);
}

#[test]
#[cfg(unix)]
fn merging_follows_a_link_and_keeps_what_is_there() {
    let lab = lab_with_secrets(&whole("a"));
    lab.write("dotfiles/kube", WORK);
    std::os::unix::fs::symlink(lab.path("dotfiles/kube"), lab.path("config")).expect("a link");
    for _ in 0..2 {
        let merged = Outcome::of(lab.command(&["kubeconfig", "--merge"]).env("KUBECONFIG", "none:config"));
        assert_eq!(merged.code, 0, "{}", merged.stderr);
    }
    assert!(fs::symlink_metadata(lab.path("config")).expect("a link").is_symlink());
    let merged = yaml(&lab, "dotfiles/kube");
    assert_eq!(
        (&merged["users"][0]["user"]["token"], &merged["current-context"]),
        (&"hunter2".into(), &"admin@a".into())
    );
    assert_eq!(merged["contexts"].as_array().map(Vec::len), Some(2));
    let refused = lab.run(&["kubeconfig", "--merge", "--context", "work", "--out", "config"]);
    assert_eq!(refused.code, 7);
    assert!(refused.stderr.contains("--force") && !refused.stderr.contains("hunter2"), "{}", refused.stderr);
    assert_eq!(
        lab.run(&["kubeconfig", "--merge", "--context", "work", "--out", "config", "--force"]).code,
        0
    );
    assert_eq!(yaml(&lab, "dotfiles/kube")["contexts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_dash_is_standard_output() {
    let lab = lab_with_secrets(&whole("a"));
    let printed = lab.run(&["kubeconfig", "--out", "-", "--context", "mine"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert!(printed.stdout.contains("current-context: mine\n"), "{}", printed.stderr);
    assert!(!lab.path("-").exists());
    let refused = lab.run(&["kubeconfig", "--out", "-", "--merge"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (3, ""));
    let mut homeless = lab.command(&["talosconfig", "--merge"]);
    let homeless = Outcome::of(homeless.env("SOPS_AGE_KEY_FILE", lab.key()).env_remove("HOME"));
    assert!(homeless.code == 3 && homeless.stderr.contains("--out FILE"), "{}", homeless.stderr);
}

#[test]
fn an_address_that_was_leased_is_asked_for() {
    let lab = Lab::new(&[("ichor.yaml", LEASED)]);
    let early = lab.run(&["--lab", "kubeconfig"]);
    assert_eq!(early.code, 3);
    assert!(early.stderr.contains("    ichor --lab up\n"), "{}", early.stderr);
    let up = lab.run(&["--lab", "up", "--yes"]);
    assert_eq!(up.code, 0, "{}", up.stderr);
    let offline = lab.run(&["--lab", "kubeconfig", "--offline"]);
    assert!(offline.code == 3 && offline.stderr.contains("ICH-2108"), "{}", offline.stderr);
    let live = lab.run(&["--lab", "kubeconfig"]);
    assert_eq!(live.code, 0, "{}", live.stderr);
    assert!(
        live.stdout.contains("server: https://192.168.1.1"),
        "{}",
        live.stdout.lines().nth(4).unwrap_or_default()
    );
    let talosconfig = lab.run(&["--lab", "talosconfig", "--out", "t", "-o", "json"]);
    let value: Value = serde_json::from_str(&talosconfig.stdout).expect("JSON");
    assert!(
        value["endpoints"][0].as_str().is_some_and(|address| address.starts_with("192.168.1.1")),
        "{value}"
    );
    // What stays is told, and nothing is lost that was asked for in time.
    let shown = lab.run(&["--lab", "destroy", "--dry-run", "-o", "json"]);
    let value: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(
        (shown.code, &value["stays"]["volumes"], &value["empty"]),
        (2, &Value::Array(vec![]), &false.into())
    );
    let gone = lab.run(&["--lab", "destroy", "--yes", "-o", "json"]);
    let value: Value = serde_json::from_str(&gone.stdout).expect("JSON");
    assert_eq!((gone.code, &value["gone"]), (0, &true.into()), "{}", gone.stderr);
    assert_eq!(value["stays"]["images"].as_array().map(Vec::len), Some(1), "{value}");
    assert!(gone.stderr.contains("this stays"), "{}", gone.stderr);
    let late = lab.run(&["--lab", "kubeconfig"]);
    assert_eq!(late.code, 3);
    assert!(late.stderr.contains("it has no VM yet"), "{}", late.stderr);
}

#[test]
fn a_proxmox_that_is_not_there_is_named() {
    let lab = lab_with_secrets(LEASED);
    let token = "ichor@pve!lab=00000000-0000-0000-0000-000000000000";
    let run = |arguments: &[&str]| Outcome::of(lab.command(arguments).env("ICHOR_PVE_TOKEN", token));
    for verb in ["kubeconfig", "talosconfig"] {
        let outcome = run(&[verb]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (3, ""));
        for told in ["ICH-2108", "leased addresses could not be asked for", "127.0.0.1:9"] {
            assert!(outcome.stderr.contains(told), "{verb}: {told}: {}", outcome.stderr);
        }
    }
}
