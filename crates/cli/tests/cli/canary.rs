//! No secret reaches a terminal: every verb runs with secrets that can be recognised, in good and in broken
//! surroundings, and everything it says is searched.

use std::{collections::BTreeSet, fs};

use super::{Lab, Outcome, bundle, whole};

const TOKEN: &str = "canary.canarycanary0001";
const TRUSTD: &str = "canary-of-trustd";
/// Base64 of `canary-of-the-cluster-secret-01!`, 32 bytes.
const CLUSTER: &str = "Y2FuYXJ5LW9mLXRoZS1jbHVzdGVyLXNlY3JldC0wMSE=";
const SERVICE: &str = "canary-of-extension-service";
const REGISTRY: &str = "canary-of-registry-password";
const RECORD: &str = ".ichor/a/cluster.json";
const PATCH: &str = "canary-in-patch";

/// Verbs that read neither an inventory nor secrets, or only those of a rehearsal; once is enough for them.
const OTHERS: [&str; 10] =
    ["schema", "explain", "completions", "man", "up", "status", "health", "doctor", "destroy", "pve setup"];
/// Verbs whose purpose is to give secrets, to standard output alone.
const GIVERS: [&str; 3] = ["secrets export", "talosconfig", "kubeconfig"];

/// Verbs about encrypted files.
const SEALERS: [&str; 6] = [
    "secrets identity",
    "secrets encrypt",
    "secrets edit",
    "secrets add-recipient",
    "secrets remove-recipient",
    "secrets rotate-key",
];
const FORMS: [&str; 3] = ["table", "json", "yaml"];

const SERVICES: &str = "\
os:
  extension_services: {vpn: {environment: {KEY: {env: CANARY_SERVICE}}}}
  registries: {registry.lab.example: {username: me, password: {file: password}}}
patches: [patch.yaml]
";

const REGISTRY_ALONE: &str = "\
os:
  registries: {registry.lab.example: {username: me, password: {file: password}}}
patches: [patch.yaml]
";

const ALL_WELL: &str = "all is well";
const SOMEBODY: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

/// The bundle with secrets that can be recognised.
fn canaries() -> String {
    let lines = bundle().lines().map(|line| {
        let (key, _) = line.split_once(": ").unwrap_or((line, ""));
        match key.trim() {
            "bootstraptoken" => format!("{key}: {TOKEN}"),
            "token" => format!("{key}: {TRUSTD}"),
            "secret" | "secretboxencryptionsecret" => format!("{key}: {CLUSTER}"),
            _ => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Everything that must not be seen: the canaries, and the keys of the bundle as they are written.
fn forbidden() -> Vec<String> {
    let words = [TOKEN, TRUSTD, CLUSTER, SERVICE, REGISTRY, PATCH, "PRIVATE KEY", "AGE-SECRET-KEY", "canary"];
    let keys = bundle().lines().filter_map(|line| line.trim().strip_prefix("key: "));
    // The first characters of each are the same for all keys of a kind.
    let keys = keys.map(|key| key[60..100.min(key.len())].to_owned());
    words.into_iter().map(str::to_owned).chain(keys).collect()
}

/// Every verb with arguments that make it do its work.
fn runs() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        // A port that nobody listens at.
        ("init", vec!["-f", "new.yaml", "--endpoint", "127.0.0.1:1", "--yes"]),
        ("check", vec![]),
        ("plan", vec!["--offline", "--explain"]),
        ("up", vec!["--lab", "--dry-run"]),
        ("status", vec!["--lab"]),
        ("health", vec!["--lab"]),
        ("doctor", vec!["--lab"]),
        ("destroy", vec!["--lab", "--dry-run"]),
        ("secrets new", vec![]),
        ("secrets import", vec!["canary.yaml"]),
        ("secrets import", vec!["patch.yaml"]),
        ("secrets import", vec!["password"]),
        ("secrets export", vec![]),
        ("secrets export", vec!["--out", "exported.yaml"]),
        ("secrets show", vec![]),
        ("secrets restore", vec![]),
        ("secrets restore", vec!["--list"]),
        ("lock show", vec![]),
        ("log show", vec![]),
        ("log verify", vec![]),
        ("log accept", vec!["--yes"]),
        ("lock break", vec!["--yes"]),
        ("render", vec![]),
        ("secrets identity", vec![]),
        ("secrets encrypt", vec![]),
        ("secrets encrypt", vec!["values.yaml"]),
        ("secrets edit", vec![]),
        ("secrets edit", vec!["values.yaml"]),
        ("secrets add-recipient", vec![SOMEBODY]),
        ("secrets add-recipient", vec![SOMEBODY, "--of", "values.yaml"]),
        ("secrets add-recipient", vec![TRUSTD]),
        ("secrets remove-recipient", vec![SOMEBODY]),
        ("secrets rotate-key", vec![]),
        ("secrets rotate-key", vec!["password"]),
        ("render", vec!["--overwrite"]),
        ("render", vec!["other", "--secrets", "canary.yaml"]),
        ("talosconfig", vec![]),
        ("talosconfig", vec!["--out", "t", "--secrets", "canary.yaml"]),
        ("kubeconfig", vec!["--offline"]),
        ("kubeconfig", vec!["--offline", "--out", "k"]),
        ("kubeconfig", vec!["--merge", "--out", "k", "--context", "mine"]),
        ("kubeconfig", vec!["--merge", "--out", "canary.yaml"]),
        ("talosconfig", vec!["--merge", "--out", "t"]),
        ("kubeconfig", vec!["--offline", "--server", "nobody"]),
        ("image id", vec![]),
        ("pve role", vec![]),
        // Not the lab's password, and so nobody is let in.
        ("pve setup", vec!["--lab", "--yes", "--password-file", "password"]),
        // The inventory names no way in, and so there is nothing to hold open.
        ("tunnel", vec![]),
        // An address that no computer has: it cannot listen, and ends.
        ("lab serve", vec!["--listen", "192.0.2.1"]),
        ("lab state", vec!["--state", "lab.json"]),
        ("lab faults", vec!["--state", "lab.json"]),
        ("lab event", vec!["--state", "lab.json", "host-down", "pve1"]),
        ("lab reset", vec!["--state", "lab.json"]),
        ("schema", vec![]),
        ("explain", vec![]),
        ("completions", vec!["bash"]),
        ("man", vec![]),
    ]
}

/// Returns the names of all verbs that do something.
fn verbs(command: &clap::Command, above: &str) -> BTreeSet<String> {
    let below: Vec<&clap::Command> =
        command.get_subcommands().filter(|verb| verb.get_name() != "help").collect();
    if below.is_empty() {
        return BTreeSet::from([above.trim().to_owned()]);
    }
    below.iter().flat_map(|verb| verbs(verb, &format!("{above} {}", verb.get_name()))).collect()
}

#[test]
fn every_verb_is_searched() {
    let searched: BTreeSet<String> = runs().into_iter().map(|(verb, _)| verb.to_owned()).collect();
    assert_eq!(searched, verbs(&ichor::command(), ""), "a verb is missing in `runs`");
}

/// A cluster with canaries in all places, and one file in another state.
fn lab(file: &str, content: &[u8]) -> Lab {
    let lab = Lab::new(&[
        ("ichor.yaml", &format!("{}{SERVICES}", whole("a"))),
        ("canary.yaml", &canaries()),
        (".ichor/a/secrets.yaml", &canaries()),
        (RECORD, "{\"schema\": 1, \"contract\": \"1.13\"}"),
        ("password", &format!("{REGISTRY}\n")),
        ("values.yaml", &format!("# {TRUSTD}\nproxmox: {{token: {TOKEN}}}\n")),
        ("patch.yaml", &format!("machine:\n  env:\n    TOKEN: {PATCH}\n")),
    ]);
    if !file.is_empty() {
        lab.write(file, content);
    }
    lab
}

fn search(lab: &Lab, about: &str) -> Vec<i32> {
    let forbidden = forbidden();
    // A record that is broken stops every verb, and rightly so.
    assert!(lab.run(&["check"]).code == 0 || about == RECORD, "{about}: the inventory is not valid");
    let mut codes = Vec::new();
    let is_needed = |verb: &str| about == ALL_WELL || !OTHERS.contains(&verb);
    for (verb, rest) in runs().into_iter().filter(|(verb, _)| is_needed(verb)) {
        // What is said of encrypted files is the same in all surroundings but their own.
        let forms = if about == ALL_WELL || !SEALERS.contains(&verb) { &FORMS[..] } else { &FORMS[..1] };
        for form in forms {
            let mut arguments: Vec<&str> = verb.split(' ').collect();
            arguments.extend(&rest);
            arguments.extend(["-o", form]);
            let mut command = lab.command(&arguments);
            command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full").env("CANARY_SERVICE", SERVICE);
            command.env("EDITOR", "true");
            let Outcome { code, stdout, stderr } = Outcome::of(&mut command);
            let gives = GIVERS.contains(&verb) && !rest.contains(&"--out") && code == 0;
            for secret in &forbidden {
                assert!(!clean(&stderr).contains(secret), "{about}: {arguments:?} tells {secret}:\n{stderr}");
                let shows = clean(&stdout).contains(secret);
                assert!(gives || !shows, "{about}: {arguments:?} shows {secret}:\n{stdout}");
            }
            assert!(!stderr.contains("panicked"), "{about}: {arguments:?}\n{stderr}");
            codes.push(code);
        }
    }
    codes
}

/// The name of a file or variable in the messages is not its content.
fn clean(text: &str) -> String {
    text.replace("canary.yaml", "").replace("CANARY_SERVICE", "")
}

/// Checks that a cluster is refused when it is rendered, and searches what is said. Returns it as text.
fn search_refusal(lab: &Lab, about: &str) -> String {
    let forbidden = forbidden();
    let mut told = String::new();
    for form in ["json", "yaml", "table"] {
        let mut command = lab.command(&["render", "-o", form]);
        command.env("RUST_LOG", "trace").env("CANARY_SERVICE", SERVICE);
        let Outcome { code, stdout, stderr } = Outcome::of(&mut command);
        assert_eq!(code, 3, "{about}: not refused\n{stdout}{stderr}");
        for secret in &forbidden {
            assert!(!clean(&stdout).contains(secret), "{about}: shows {secret}:\n{stdout}");
            assert!(!clean(&stderr).contains(secret), "{about}: tells {secret}:\n{stderr}");
        }
        told = stderr;
    }
    told
}

#[test]
fn nothing_is_told_when_all_is_well() {
    let lab = lab("", b"");
    let codes = search(&lab, ALL_WELL);
    assert!(codes.iter().filter(|code| **code == 0).count() > 40, "{codes:?}");
    // The canaries are where they belong, so the search could have found them.
    let config = fs::read_to_string(lab.path("rendered/machines/cp-1.yaml")).expect("a config");
    for secret in [TOKEN, TRUSTD, SERVICE, REGISTRY, PATCH] {
        assert!(config.contains(secret), "{secret}");
    }
    for file in [".ichor/a/secrets.sops.yaml", "values.yaml"] {
        let sealed = fs::read_to_string(lab.path(file)).expect("an encrypted file");
        assert!(
            sealed.contains("ENC[AES256_GCM,") && !forbidden().iter().any(|it| sealed.contains(it)),
            "{file}"
        );
    }
    assert!(!lab.path(".ichor/a/secrets.yaml").exists());
    let exported = fs::read_to_string(lab.path("exported.yaml")).expect("an export");
    assert!(exported.contains(CLUSTER) && forbidden().iter().any(|secret| exported.contains(secret)));
}

#[test]
fn nothing_is_told_of_broken_bundles() {
    let good = canaries();
    let key = good.lines().find_map(|line| line.trim().strip_prefix("key: ")).expect("a key");
    for (about, content) in [
        ("cut off", good[..good.len() / 2].to_owned()),
        ("not YAML", good.replace("secrets:", "secrets: [")),
        ("a token of another kind", good.replace(TOKEN, "canary canary")),
        ("an unclosed quote", good.replace(TOKEN, "\"canary")),
        ("a key that is none", good.replace(key, &key[..key.len() - 20])),
        ("a key that stands in plain", good.replace(key, "-----BEGIN EC PRIVATE KEY-----")),
        ("a list for a token", good.replace(TRUSTD, &format!("[{TRUSTD}]"))),
        ("a key twice", format!("{good}trustdinfo:\n    token: {TRUSTD}\n")),
        ("an unknown key", format!("{good}more: {TOKEN}\n")),
        ("a tag", good.replace(TOKEN, &format!("!{TOKEN} x"))),
        ("an alias", good.replace(TOKEN, "*canary")),
        ("a secret as a key", format!("{TOKEN}\n")),
    ] {
        let lab = lab("canary.yaml", content.as_bytes());
        lab.write(".ichor/a/secrets.yaml", &content);
        search(&lab, about);
    }
}

#[test]
fn nothing_is_told_of_broken_patches() {
    for content in [
        format!("machine:\n  env:\n    TOKEN: \"{PATCH}\n"),
        format!("machine:\n  env:\n    TOKEN: [{PATCH}]\n"),
        format!("machine: {PATCH}\n"),
        format!("machine:\n  token: [{PATCH}]\n"),
        format!("machine:\n  ca: {{crt: {PATCH}, key: {PATCH}}}\n"),
        format!("cluster:\n  secretboxEncryptionSecret: {{a: {PATCH}}}\n"),
        format!("machine:\n  registries:\n    config:\n      x:\n        auth: {{password: [{PATCH}]}}\n"),
        format!("machine:\n  registries:\n    config:\n      x:\n        auth: {PATCH}\n"),
        format!("apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: vpn\nenvironment: KEY={PATCH}\n"),
        format!(
            "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: vpn\nenvironment: [{{a: {PATCH}}}]\n"
        ),
        format!(
            "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: vpn\nconfigFiles: [{{content: {PATCH}}}]\n"
        ),
        format!("- op: add\n  path: /machine/token\n  value: {PATCH}\n"),
        format!("{PATCH}\n"),
    ] {
        let lab = lab("patch.yaml", content.as_bytes());
        search(&lab, &content);
        search_refusal(&lab, &content);
    }
}

#[test]
fn nothing_is_told_of_a_patch_that_sets_secrets() {
    let content = format!("cluster:\n  secret: {PATCH}\n  token: {PATCH}\n");
    let lab = lab("patch.yaml", content.as_bytes());
    search(&lab, &content);
    let config = fs::read_to_string(lab.path("rendered/machines/cp-1.yaml")).expect("a config");
    assert!(config.contains(&format!("token: {PATCH}")));
}

/// Patches that are well-formed, and whose values Talos refuses in messages of all kinds.
#[test]
fn nothing_is_told_of_refused_values() {
    for content in [
        format!("machine: {{nodeLabels: {{foo: \"{PATCH} with space\"}}}}"),
        format!("machine: {{nodeTaints: {{foo: \"{PATCH}:Never\"}}}}"),
        format!("machine: {{kubelet: {{image: \"{PATCH}:{PATCH}:{PATCH}\"}}}}"),
        format!(
            "machine: {{logging: {{destinations: [{{endpoint: 'tcp://10.0.0.1:1', format: {PATCH}}}]}}}}"
        ),
        format!("machine: {{type: {PATCH}}}"),
        format!("machine: {{install: {{wipe: {PATCH}}}}}"),
        format!("cluster: {{network: {{dnsDomain: '{PATCH} {PATCH}', podSubnets: [{PATCH}]}}}}"),
        format!(
            "cluster: {{inlineManifests: [{{name: {PATCH}, contents: x}}, {{name: {PATCH}, contents: x}}]}}"
        ),
        format!(
            "machine: {{features: {{kubernetesTalosAPIAccess: {{enabled: true, allowedRoles: [{PATCH}]}}}}}}"
        ),
        format!("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses: [{{address: {PATCH}}}]\n"),
        format!("- {{op: add, path: /machine/sysctls, value: {{a: '{PATCH}'}}}}"),
        format!("- {{op: {PATCH}, path: /machine/sysctls}}"),
    ] {
        search_refusal(&lab("patch.yaml", content.as_bytes()), &content);
        let inline = format!("patches: [{{inline: {}}}]", serde_json::Value::from(content.as_str()));
        let inventory = format!("{}{SERVICES}", whole("a")).replace("patches: [patch.yaml]", &inline);
        let stderr = search_refusal(&lab("ichor.yaml", inventory.as_bytes()), &inventory);
        assert!(stderr.contains("ichor.yaml:"), "an inline patch has a place:\n{stderr}");
    }
}

/// Configs of one document, where operations apply.
#[test]
fn nothing_is_told_of_copied_secrets() {
    let inventory = whole("a").replace("v1.13.9", "v1.11.6").replace("v1.36.3", "v1.34.1") + REGISTRY_ALONE;
    let secrets = [
        "/machine/token",
        "/machine/ca/key",
        "/cluster/secret",
        "/cluster/token",
        "/cluster/secretboxEncryptionSecret",
        "/machine/registries/config/registry.lab.example/auth/password",
    ];
    for from in secrets {
        for path in ["/machine/install/wipe", "/machine/kubelet/image", "/machine/type"] {
            let content = format!("- {{op: copy, from: {from}, path: {path}}}\n");
            let lab = lab("patch.yaml", content.as_bytes());
            lab.write("ichor.yaml", &inventory);
            lab.write(RECORD, "{\"schema\": 1, \"contract\": \"1.11\"}");
            let stderr = search_refusal(&lab, &content);
            assert!(stderr.contains('…'), "the secret arrived where it was copied to:\n{stderr}");
        }
    }
    let content = format!(
        r#"[{{"op":"add","path":"/machine/registries","value":{{"config":{{"ghcr.io":{{"auth":"{PATCH}"}}}}}}}}]"#
    );
    let lab = lab("patch.yaml", content.as_bytes());
    lab.write("ichor.yaml", &inventory);
    lab.write(RECORD, "{\"schema\": 1, \"contract\": \"1.11\"}");
    let stderr = search_refusal(&lab, &content);
    assert!(stderr.contains("`machine.registries.config.ghcr.io.auth`"), "keys stay:\n{stderr}");
}

#[test]
fn nothing_is_told_of_other_broken_files() {
    for (file, content) in [
        ("password", &b""[..]),
        ("password", b"\xffcanary-of-registry-password"),
        (RECORD, b"{\"canary-of-trustd\": 1}"),
        ("rendered/secrets.yaml", b"canary-of-trustd"),
    ] {
        search(&lab(file, content), file);
    }
}

/// What verbs do to a rehearsal, besides what they do elsewhere: they write plans, access, a journal and a lab.
const REHEARSED: [(&str, &[&str]); 9] = [
    ("secrets import", &["--lab", "exported.yaml"]),
    ("plan", &["--lab", "--out", "plan.json"]),
    ("up", &["--lab", "plan.json"]),
    ("status", &["--lab"]),
    ("health", &["--lab", "-o", "json", "--wait", "1m"]),
    ("kubeconfig", &["--lab", "--out", "lab-k"]),
    ("talosconfig", &["--lab", "--out", "lab-t"]),
    ("man", &["pages"]),
    ("destroy", &["--lab", "--yes", "--all"]),
];

/// Files that are there before a verb is run, or that somebody asked for who wants to have the secrets.
fn may_hold_secrets(path: &str) -> bool {
    let given = ["work/canary.yaml", "work/password", "work/patch.yaml", "work/ichor.yaml"];
    let asked = ["work/exported.yaml", "work/t", "work/k", "work/lab-k", "work/lab-t"];
    // A lab is a datacentre: its machines know the secrets, and it is nobody's. In its store they are in plain.
    let known = given.contains(&path) || asked.contains(&path) || path.starts_with("work/.ichor/lab/");
    known
        || ["work/rendered/", "work/other/"].iter().any(|directory| path.starts_with(directory))
        || path == "home/.config/sops/age/keys.txt"
}

/// Returns everything below a directory.
#[cfg(unix)]
fn everything(at: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(everything(&path));
        }
        found.push(path);
    }
    found
}

#[cfg(unix)]
#[test]
fn everything_that_is_written_is_for_its_owner_alone_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let lab = lab("", b"");
    let given = everything(lab.root.path());
    let all = runs().into_iter().chain(REHEARSED.map(|(verb, rest)| (verb, rest.to_vec())));
    for (verb, rest) in all {
        let mut command = assert_cmd::Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ichor")]);
        command.args(verb.split(' ')).args(&rest).current_dir(lab.path("")).timeout(super::DEADLINE);
        command.env("HOME", lab.home()).env("CANARY_SERVICE", SERVICE).env("EDITOR", "true");
        for name in ["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "SOPS_AGE_KEY", "SOPS_AGE_KEY_FILE", "KUBECONFIG"]
        {
            command.env_remove(name);
        }
        let outcome = Outcome::of(&mut command);
        let must_succeed = REHEARSED.iter().any(|(name, words)| (*name, *words) == (verb, rest.as_slice()));
        assert!(!must_succeed || [0, 2].contains(&outcome.code), "{verb} {rest:?}: {}", outcome.stderr);
    }
    let forbidden = forbidden();
    let mut written = 0;
    for path in everything(lab.root.path()).into_iter().filter(|path| !given.contains(path)) {
        let shown = path.strip_prefix(lab.root.path()).expect("below").display().to_string();
        // The manual is for everybody whom the umask lets.
        if shown.starts_with("work/pages") {
            continue;
        }
        let mode = fs::symlink_metadata(&path).expect("something").permissions().mode() & 0o777;
        let open = if is_for_everybody(&shown) { 0o022 } else { 0o077 };
        assert_eq!(mode & open, 0, "{shown}: {mode:o}");
        written += 1;
        if path.is_file() && !may_hold_secrets(&shown) {
            let text = String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned();
            for secret in &forbidden {
                assert!(!clean(&text).contains(secret), "{shown} holds {secret}");
            }
        }
    }
    assert!(written > 40, "{written}");
}

/// What holds nothing that others may not read: still nobody else may change it.
fn is_for_everybody(path: &str) -> bool {
    ["home/.config", "home"].contains(&path)
}
