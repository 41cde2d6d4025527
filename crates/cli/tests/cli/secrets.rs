//! `ichor secrets`, and the access that is made from them.

use std::fs;

use serde_json::Value;

use super::{Lab, Outcome, SHARED, bundle, lab_with_secrets, own, whole};

#[test]
fn new_secrets_are_kept_once_and_to_their_owner() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    let made = lab.run(&["secrets", "new"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let home = lab.home().display().to_string();
    let own = lab.run(&["secrets", "identity"]).stdout;
    insta::assert_snapshot!(made.stdout.replace(&home, "~").replace(own.trim(), "[RECIPIENT]"), @r"
    made the secrets of the cluster, in .ichor/a/secrets.sops.yaml
    encrypted to [RECIPIENT]
    made an age identity for you, in ~/.config/sops/age/keys.txt
    Without it nobody can open what is encrypted to you: make a backup of it too, and keep it to yourself.
    machine configs keep the shape of contract 1.13, also when Talos is upgraded
    Whoever loses .ichor/a/secrets.sops.yaml and the store beside it loses the cluster: make a backup.
    ");
    #[cfg(unix)]
    for (path, wanted) in [(".ichor", 0o700), (".ichor/a", 0o700), (".ichor/a/secrets.sops.yaml", 0o600)] {
        use std::os::unix::fs::PermissionsExt;
        let permissions = fs::metadata(lab.path(path)).expect(path).permissions();
        assert_eq!(permissions.mode() & 0o777, wanted, "{path}");
    }
    assert_eq!(fs::read_to_string(lab.path(".ichor/.gitignore")).expect("ignore"), "*\n");
    let before = fs::read(lab.path(".ichor/a/secrets.sops.yaml")).expect("secrets");
    let again = lab.run(&["secrets", "new"]);
    assert_eq!((again.code, again.stdout.as_str()), (7, ""));
    insta::assert_snapshot!(again.stderr, @r"
    error[ICH-2102]: the cluster already has secrets: `.ichor/a/secrets.sops.yaml`
     = note: machines that run with them accept nothing that is made from others
     = help: go on with them, as in `ichor render`; for a new cluster of that name move the old secrets away first:
                 mv .ichor/a .ichor/a.old

    1 error; nothing was changed
    hint: to learn more, run
        ichor explain ICH-2102
    ");
    assert_eq!(fs::read(lab.path(".ichor/a/secrets.sops.yaml")).expect("secrets"), before);
}

#[test]
fn what_is_imported_is_exported_byte_for_byte() {
    let lab = lab_with_secrets(&whole("a"));
    assert_eq!(lab.run(&["secrets", "export"]).stdout, bundle());
    assert_eq!(lab.run(&["secrets", "export", "--out", "out.yaml"]).code, 0);
    assert_eq!(fs::read_to_string(lab.path("out.yaml")).expect("out"), bundle());
    let refused = lab.run(&["secrets", "export", "--out", "ichor.yaml"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (7, ""));
    assert_eq!(lab.run(&["secrets", "import", "given/secrets.yaml"]).code, 0, "the same again is no change");
}

#[test]
fn a_control_planes_machine_config_and_standard_input_can_be_imported() {
    let lab = lab_with_secrets(&whole("a"));
    assert_eq!(lab.run(&["render"]).code, 0);
    let config = fs::read(lab.path("rendered/machines/cp-1.yaml")).expect("a config");
    let other = Lab::new(&[("ichor.yaml", &whole("a"))]);
    let outcome = Outcome::of(other.command(&["secrets", "import", "-", "-o", "json"]).write_stdin(config));
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let value: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(value["read_as"], "a control plane's machine config");
    assert_eq!(other.run(&["secrets", "export"]).stdout, bundle());
}

#[test]
fn what_is_shown_is_no_secret() {
    let lab = lab_with_secrets(&whole("a"));
    let shown: Value =
        serde_json::from_str(&lab.run(&["secrets", "show", "-o", "json"]).stdout).expect("JSON");
    assert_eq!((&shown["contract"], &shown["contract_recorded"]), (&"1.13".into(), &true.into()));
    assert_eq!(shown["authorities"].as_array().map(Vec::len), Some(4));
    let settings = {
        let mut settings = insta::Settings::clone_current();
        settings.add_filter("[0-9A-F]{2}(:[0-9A-F]{2}){31}", "[FINGERPRINT]");
        settings.add_filter("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", "[TIME]");
        settings.add_filter("cluster id        .*", "cluster id        [ID]");
        settings.add_filter("age1[a-z0-9]{58}", "[RECIPIENT]");
        settings
    };
    settings.bind(|| {
        insta::assert_snapshot!(lab.run(&["secrets", "show"]).stdout, @r"
        a
          kept in           .ichor/a/secrets.sops.yaml
          encrypted         to [RECIPIENT]
          cluster id        [ID]
          contract          1.13 (recorded)
          service accounts  RSA 4096
          etcd encryption   secretbox

        AUTHORITY          KEY          ENDS                  SHA-256
        Talos API          Ed25519      [TIME]  [FINGERPRINT]
        Kubernetes         ECDSA P-256  [TIME]  [FINGERPRINT]
        aggregation layer  ECDSA P-256  [TIME]  [FINGERPRINT]
        etcd               ECDSA P-256  [TIME]  [FINGERPRINT]
        ");
    });
}

#[test]
fn a_cluster_keeps_the_contract_it_was_made_with() {
    let lab = lab_with_secrets(&whole("a").replace("v1.13.9", "v1.12.3").replace("v1.36.3", "v1.35.2"));
    lab.write("ichor.yaml", whole("a"));
    let plan: Value =
        serde_json::from_str(&lab.run(&["plan", "--offline", "-o", "json"]).stdout).expect("JSON");
    assert_eq!(plan["cluster"]["contract"], "1.12");
    lab.write("ichor.yaml", whole("a").replace("name: a,", "name: a, contract: '1.13',"));
    assert_eq!(super::errors(&lab.check(&[])), ["ICH-1207"]);
    lab.write(".ichor/a/cluster.json", "{");
    assert_eq!(super::errors(&lab.check(&[])), ["ICH-2114"]);
}

#[test]
fn one_cluster_is_chosen_and_no_secrets_are_shared() {
    let lab = Lab::new(&[("defaults.yaml", SHARED), ("a.yaml", &own("a", 0)), ("b.yaml", &own("b", 1))]);
    for arguments in [&["secrets", "new"][..], &["talosconfig"], &["kubeconfig", "--offline"]] {
        let all: Vec<&str> = ["-f", "."].iter().chain(arguments).copied().collect();
        let outcome = lab.run(&all);
        assert_eq!(outcome.code, 3);
        assert!(outcome.stderr.contains("ICH-1210"), "{arguments:?}: {}", outcome.stderr);
    }
    lab.write("defaults.yaml", format!("{SHARED}secrets: {{file: secrets.yaml}}\n"));
    assert_eq!(super::errors(&lab.check(&["-f", "."])), ["ICH-2118"]);
}

#[test]
fn access_is_made_offline() {
    let lab = lab_with_secrets(&whole("a"));
    let talosconfig = lab.run(&["talosconfig"]);
    assert_eq!(talosconfig.code, 0, "{}", talosconfig.stderr);
    assert!(
        talosconfig
            .stdout
            .starts_with("context: a\ncontexts:\n    a:\n        endpoints:\n            - 10.0.0.10\n")
    );
    assert!(!talosconfig.stdout.contains("10.0.0.200"), "the VIP is no endpoint");
    let kubeconfig = lab.run(&["kubeconfig", "--offline", "--server", "cp-2"]);
    assert!(kubeconfig.stdout.contains("server: https://10.0.0.11:6443\n"), "{}", kubeconfig.stderr);
    for arguments in [
        &["talosconfig", "--role", "root"][..],
        &["talosconfig", "--lifetime", "0h"],
        &["kubeconfig", "--offline", "--server", "nobody"],
        &["kubeconfig", "--offline", "--secrets", "none.yaml"],
    ] {
        assert_eq!(lab.run(arguments).code, 3, "{arguments:?}");
    }
    assert_eq!(lab.run(&["kubeconfig"]).code, 0, "an address that is known is asked of nobody");
    assert_eq!(lab.run(&["talosconfig", "--out", "t"]).code, 0);
    assert_eq!(
        lab.run(&["talosconfig", "--role", "reader", "--out", "t"]).code,
        0,
        "a talosconfig is replaced"
    );
    assert_eq!(lab.run(&["kubeconfig", "--offline", "--out", "t"]).code, 7, "but not by a kubeconfig");
}

#[test]
fn images_are_named_offline() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    let named: Value = serde_json::from_str(&lab.run(&["image", "id", "-o", "json"]).stdout).expect("JSON");
    let image = &named["images"][0];
    let id = image["id"].as_str().expect("an id");
    assert_eq!(
        lab.run(&["image", "id"]).stdout,
        format!("{id}  {}\n", image["image"].as_str().expect("a name"))
    );
    assert_eq!(image["url"], format!("https://factory.talos.dev/image/{id}/v1.13.9/nocloud-amd64.qcow2"));
    assert_eq!(image["installer"], format!("factory.talos.dev/nocloud-installer/{id}:v1.13.9"));
    assert!(image["schematic"].as_str().expect("YAML").contains("siderolabs/qemu-guest-agent"));
}
