//! Encrypted files, as their owner and everybody else sees them.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::{Lab, Outcome, bundle, lab_with_secrets, whole};

const SOMEBODY: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
const KEPT: &str = ".ichor/a/secrets.sops.yaml";

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
        & 0o777
}

#[cfg(unix)]
#[test]
fn files_are_for_their_owner_alone_whatever_the_umask() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a")), ("s", bundle())]);
    let program = env!("CARGO_BIN_EXE_ichor");
    let run = |arguments: &str| {
        let script = format!("umask 000; exec '{program}' {arguments}");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(lab.path("")).env("HOME", lab.home());
        command
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_RUNTIME_DIR")
            .env("SOPS_EDITOR", lab.path("editor"));
        let output = command.output().expect("bash");
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    lab.write(
        "editor",
        "#!/bin/bash\nstat -c '%a %n' \"$1\" \"$(dirname \"$1\")\" > seen\necho \"more$RANDOM: 1\" >> \"$1\"\n",
    );
    fs::set_permissions(lab.path("editor"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("mode");
    run("secrets import s");
    run("secrets rotate-key");
    run(&format!("secrets add-recipient {SOMEBODY}"));
    run("secrets edit values.sops.yaml");
    run("secrets edit values.sops.yaml");
    let keys = lab.home().join(".config/sops/age/keys.txt");
    for path in [&keys, &lab.path(KEPT), &lab.path("values.sops.yaml")] {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    for path in [keys.parent().expect("a directory"), &lab.path(".ichor"), &lab.path(".ichor/a")] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
    let seen = fs::read_to_string(lab.path("seen")).expect("what the editor saw");
    let modes: Vec<&str> = seen.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(modes, ["600", "700"], "{seen}");
    for line in seen.lines() {
        assert!(!Path::new(line.split_once(' ').expect("a path").1).exists(), "{line} is still there");
    }
}

#[test]
fn recipients_come_and_go() {
    let lab = lab_with_secrets(&whole("a"));
    let own = lab.run(&["secrets", "identity"]).stdout.trim().to_owned();
    let json = |arguments: &[&str]| -> Value {
        let outcome = lab.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    };
    let added = json(&["secrets", "add-recipient", SOMEBODY]);
    assert_eq!(
        (&added["changed"], &added["recipients"]),
        (&true.into(), &serde_json::json!([own, SOMEBODY]))
    );
    assert_eq!(json(&["secrets", "show"])["recipients"], added["recipients"]);
    assert_eq!(json(&["secrets", "add-recipient", SOMEBODY])["changed"], false);
    assert_eq!(json(&["secrets", "remove-recipient", SOMEBODY])["recipients"], serde_json::json!([own]));
    let alone = lab.run(&["secrets", "remove-recipient", &own]);
    assert_eq!(alone.code, 7, "{}", alone.stderr);
    assert_eq!(lab.run(&["secrets", "add-recipient", "nonsense"]).code, 3);
    let before = fs::read_to_string(lab.path(KEPT)).expect("kept");
    assert_eq!(json(&["secrets", "rotate-key"])["changed"], true);
    assert_ne!(fs::read_to_string(lab.path(KEPT)).expect("kept"), before);
    assert_eq!(lab.run(&["secrets", "export"]).stdout, bundle());
}

#[test]
fn somebody_without_the_key_is_told_where_it_was_looked_for() {
    let lab = lab_with_secrets(&whole("a"));
    let outcome = Outcome::of(lab.command(&["secrets", "show"]).env("HOME", lab.path("stranger")));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, ""));
    let own = lab.run(&["secrets", "identity"]).stdout;
    let stranger = lab.path("stranger").display().to_string();
    insta::assert_snapshot!(outcome.stderr.replace(own.trim(), "[RECIPIENT]").replace(&stranger, "~"), @r"
    error[ICH-2130]: `.ichor/a/secrets.sops.yaml` is encrypted to others: [RECIPIENT]
     = note: no key of yours was found in SOPS_AGE_KEY, SOPS_AGE_KEY_FILE, ~/.config/sops/age/keys.txt, SOPS_AGE_SSH_PRIVATE_KEY_FILE, ~/.ssh/id_ed25519
     = help: use one of their identities, or ask one of them to add you as a recipient

    1 error; nothing was changed
    hint: to learn more, run
        ichor explain ICH-2130
    ");
}

#[test]
fn secrets_that_an_older_ichor_kept_in_plain_are_encrypted_when_asked() {
    let lab = Lab::new(&[
        ("ichor.yaml", &whole("a")),
        (".ichor/a/secrets.yaml", bundle()),
        (".ichor/a/cluster.json", "{\"schema\": 1, \"contract\": \"1.13\"}"),
    ]);
    let shown = lab.run(&["secrets", "show"]);
    assert!(shown.code == 0 && shown.stderr.contains("warning[ICH-2132]"), "{}", shown.stderr);
    assert_eq!(lab.run(&["secrets", "rotate-key"]).code, 3);
    assert_eq!(lab.run(&["secrets", "encrypt"]).code, 0);
    assert!(!lab.path(".ichor/a/secrets.yaml").exists());
    assert_eq!(lab.run(&["secrets", "export"]).stdout, bundle());
    assert_eq!(lab.run(&["secrets", "show"]).stderr, "");
    let again = lab.run(&["secrets", "encrypt"]);
    assert!(again.code == 0 && again.stdout.starts_with("nothing to do"), "{}", again.stdout);
}

#[cfg(unix)]
#[test]
fn an_editor_that_is_killed_leaves_nothing_behind() {
    let lab = lab_with_secrets(&whole("a"));
    let before = fs::read(lab.path(KEPT)).expect("kept");
    lab.write("killer", "#!/bin/bash\nkill -TERM $PPID\nexec sleep 600\n");
    fs::set_permissions(lab.path("killer"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("mode");
    let killer = lab.path("killer").display().to_string();
    for editor in ["false", "no-such-editor", "rm -f", &killer] {
        let outcome = Outcome::of(lab.command(&["secrets", "edit"]).env("EDITOR", editor));
        assert_eq!(outcome.code, 1, "{editor}: {}", outcome.stderr);
        assert_eq!(fs::read(lab.path(KEPT)).expect("kept"), before);
    }
    let mut left: Vec<_> =
        fs::read_dir(lab.path(".ichor/a")).expect("names").flatten().map(|it| it.file_name()).collect();
    left.sort();
    assert_eq!(left, [".guard", "audit", "cluster.json", "generations", "lock.json", "secrets.sops.yaml"]);
}

#[test]
fn references_into_encrypted_files_and_commands_are_read() {
    let services = "os:\n  extension_services: {vpn: {environment: {KEY: {sops: values.sops.yaml#vpn.key}, OTHER: {command: [echo, from-a-command]}}}}\n";
    let lab = lab_with_secrets(&format!("{}{services}", whole("a")));
    lab.write("values.sops.yaml", "vpn: {key: from-a-file}\n");
    let plain = lab.run(&["render"]);
    assert!(
        plain.code == 3 && plain.stderr.contains("ICH-2130"),
        "a plain file is no encrypted one: {}",
        plain.stderr
    );
    assert_eq!(lab.run(&["secrets", "encrypt", "values.sops.yaml"]).code, 0);
    let rendered = lab.run(&["render"]);
    assert_eq!(rendered.code, 0, "{}", rendered.stderr);
    let config = fs::read_to_string(lab.path("rendered/machines/cp-1.yaml")).expect("a config");
    assert!(config.contains("KEY=from-a-file") && config.contains("OTHER=from-a-command"), "{config}");
}
