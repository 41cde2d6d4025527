//! Access in files that hold access to others.

use std::path::{Path, PathBuf};

use ichor_machineconfig::{secrets::SecretText, talosconfig::Talosconfig};

use super::{
    Memory,
    access::{both, elsewhere},
    codes, lab, messages, site, with_secrets,
};
use crate::{
    Halt, HaltKind,
    access::{self, Kind, Made, Merged, Merging, default_file},
};

const FILE: &str = "kube/config";
const LOCK: &str = "kube/config.lock";

const WORK: &str = "\
# mine
apiVersion: v1
kind: Config
preferences: {}
current-context: work
clusters:
  - name: work
    cluster: {server: 'https://work:6443', insecure-skip-tls-verify: true}
contexts:
  - context: {cluster: work, user: work, namespace: \"0123\"}
    name: work
users:
  - name: work
    user:
      token: 'true'
      exec: {command: aws, args: [eks, \"get-token\"], env: null}
";

fn merge(memory: &Memory, made: &Made, context: Option<&str>, overwrite: bool) -> Result<Merged, Halt> {
    memory.directories.borrow_mut().insert("kube".into());
    let merging = Merging { path: Path::new(FILE), context, overwrite, given: None };
    access::merge(memory, site(lab()), made, merging)
}

fn value(memory: &Memory) -> serde_json::Value {
    serde_saphyr::from_str(&memory.text(FILE).expect("a file")).expect("YAML")
}

fn names(value: &serde_json::Value, list: &str) -> Vec<String> {
    let items = value[list].as_array().expect("a list");
    items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn other_clusters_stay_as_they_were() {
    let memory = with_secrets();
    let [_, made] = both(&memory);
    memory.put(FILE, WORK.as_bytes());
    let before = value(&memory);
    let merged = merge(&memory, &made, None, false).expect("merged");
    assert_eq!(merged, Merged { context: "admin@lab".into(), taken: None });
    let after = value(&memory);
    for list in ["clusters", "contexts", "users"] {
        assert_eq!(after[list][0], before[list][0], "{list}");
        assert_eq!(after[list].as_array().map(Vec::len), Some(2));
    }
    assert_eq!(
        (&after["preferences"], &after["current-context"]),
        (&before["preferences"], &"admin@lab".into())
    );
    assert_eq!(after["contexts"][1]["context"]["cluster"], "lab");
    assert!(!memory.files.borrow().contains_key(Path::new(LOCK)), "the lock is given back");
    // What reads the file must take everything in it for what it was.
    assert!(memory.text(FILE).expect("a file").contains("token: \"true\""));
}

#[test]
fn renewing_keeps_what_the_user_has_set() {
    let memory = with_secrets();
    let [talosconfig, kubeconfig] = both(&memory);
    for (made, there, kept) in [
        (
            &kubeconfig,
            kubeconfig.text.expose().replace("namespace: default", "namespace: shop"),
            "namespace: shop",
        ),
        (
            &kubeconfig,
            kubeconfig.text.expose().replace("    server:", "    proxy-url: socks5://x\n    server:"),
            "proxy-url",
        ),
        (
            &talosconfig,
            talosconfig.text.expose().replace("        ca:", "        nodes: [10.0.0.9]\n        ca:"),
            "10.0.0.9",
        ),
    ] {
        memory.put(FILE, there.as_bytes());
        for _ in 0..2 {
            let merged = merge(&memory, made, None, false).expect("merged");
            assert_eq!(merged.taken, None);
        }
        let text = memory.text(FILE).expect("a file");
        assert!(text.contains(kept), "{text}");
        assert_eq!(text.matches("admin@lab").count(), if made.kind == Kind::Kubeconfig { 4 } else { 0 });
    }
}

#[test]
fn another_cluster_of_the_same_name_keeps_it() {
    let memory = with_secrets();
    let others = both(&elsewhere());
    for ((made, other), [first, second]) in
        both(&memory).iter().zip(&others).zip([["lab", "lab-1"], ["admin@lab", "admin@lab-1"]])
    {
        memory.files.borrow_mut().remove(Path::new(FILE));
        merge(&memory, other, None, false).expect("the other one");
        let before = memory.text(FILE).expect("a file");
        let renamed = Merged { context: second.into(), taken: Some(first.into()) };
        assert_eq!(merge(&memory, made, None, false).expect("merged"), renamed);
        assert_eq!(merge(&memory, made, None, false).expect("again"), renamed, "and no third one");
        let halt = merge(&memory, made, Some(first), false).expect_err("taken");
        assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2109".into()]));
        assert!(messages(&halt.findings).contains("--force"));
        let chosen = merge(&memory, made, Some("mine"), false).expect("chosen");
        assert_eq!(chosen.context, "mine");
        let text = memory.text(FILE).expect("a file");
        assert!(
            before.lines().filter(|line| line.len() > 60).all(|line| text.contains(line)),
            "keys are kept"
        );
        merge(&memory, made, Some(first), true).expect("as asked");
        let text = memory.text(FILE).expect("a file");
        assert!(!before.lines().filter(|line| line.len() > 60).any(|line| text.contains(line)), "replaced");
    }
}

#[test]
fn a_user_of_other_contexts_is_not_taken_over() {
    let memory = with_secrets();
    let [_, made] = both(&memory);
    memory.put(FILE, WORK.replace("work", "admin@lab").as_bytes());
    assert_eq!(merge(&memory, &made, None, false).expect("merged").context, "admin@lab-1");
    memory.put(FILE, b"users: [{name: admin@lab, user: {token: x}}]\n");
    assert_eq!(merge(&memory, &made, None, false).expect("merged").context, "admin@lab-1");
    assert_eq!(names(&value(&memory), "users"), ["admin@lab", "admin@lab-1"]);
}

#[test]
fn what_is_no_access_is_left_alone() {
    let memory = with_secrets();
    let [talosconfig, kubeconfig] = both(&memory);
    for (made, there) in [
        (&kubeconfig, "dear diary\n"),
        (&kubeconfig, "a: [\n"),
        (&kubeconfig, "kind: Pod\n"),
        (&kubeconfig, "clusters: {a: b}\n"),
        (&kubeconfig, "users: [{user: {}}]\n"),
        (&kubeconfig, "users: !secret []\n"),
        (&kubeconfig, "a: 1\n---\nb: 2\n"),
        (&talosconfig, WORK),
        (&talosconfig, "contexts: []\n"),
    ] {
        memory.put(FILE, there.as_bytes());
        for overwrite in [false, true] {
            let halt = merge(&memory, made, None, overwrite).expect_err(there);
            assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2109".into()]), "{there}");
        }
        assert_eq!(memory.text(FILE).as_deref(), Some(there));
        assert!(!memory.files.borrow().contains_key(Path::new(LOCK)));
    }
    for empty in ["", "# nothing\n", "contexts: null\n", "{}"] {
        memory.put(FILE, empty.as_bytes());
        for made in [&talosconfig, &kubeconfig] {
            merge(&memory, made, None, false).unwrap_or_else(|halt| panic!("{empty}: {:?}", halt.findings));
            memory.put(FILE, empty.as_bytes());
        }
    }
}

#[test]
fn whoever_writes_to_the_file_is_waited_for() {
    let memory = with_secrets();
    let [talosconfig, kubeconfig] = both(&memory);
    memory.put(LOCK, b"");
    let halt = merge(&memory, &kubeconfig, None, false).expect_err("locked");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::Busy, vec!["ICH-2124".into()]));
    assert!(memory.text(LOCK).is_some(), "it is not ours to remove");
    merge(&memory, &talosconfig, None, false).expect("talosctl knows no locks");
}

#[test]
fn a_store_is_no_place_to_merge_into() {
    let memory = with_secrets();
    let [made, _] = both(&memory);
    let kept = Path::new("home/.ichor/lab/secrets.yaml");
    let merging = Merging { path: kept, context: None, overwrite: true, given: None };
    let halt = access::merge(&memory, site(lab()), &made, merging).expect_err("kept");
    assert_eq!(codes(&halt), ["ICH-2119"]);
}

#[test]
fn a_context_can_have_any_name() {
    let memory = with_secrets();
    for (made, name) in both(&memory).into_iter().flat_map(|made| {
        ["no", "1.30", "a: b # c", "ü", "\"x\""].map(|name| {
            let text = SecretText::new(made.text.expose().to_owned());
            (Made { text, leads_to: made.leads_to.clone(), ..made }, name)
        })
    }) {
        let kind = made.kind;
        let renamed = access::rename(made, "lab", name).expect(name);
        let value: serde_json::Value = serde_saphyr::from_str(renamed.text.expose()).expect("YAML");
        match kind {
            Kind::Talosconfig => {
                let read = Talosconfig::parse(renamed.text.expose()).expect("a talosconfig");
                assert_eq!(read.context(None).expect("a context").name, name);
            }
            _ => assert_eq!(
                (&value["current-context"], names(&value, "contexts")),
                (&name.into(), vec![name.into()])
            ),
        }
    }
}

#[test]
fn the_file_is_the_one_that_programs_read() {
    let file = |variables: &[(&str, &str)], kind| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let memory = Memory { variables: variables.collect(), ..Memory::default() };
        memory.put("there", b"");
        default_file(&memory, kind)
    };
    let home = ("HOME", "/home/me");
    for (variables, kind, path) in [
        (&[home][..], Kind::Kubeconfig, "/home/me/.kube/config"),
        (&[home], Kind::Talosconfig, "/home/me/.talos/config"),
        (&[home, ("KUBECONFIG", "")], Kind::Kubeconfig, "/home/me/.kube/config"),
        (&[("KUBECONFIG", "one")], Kind::Kubeconfig, "one"),
        (&[("KUBECONFIG", ":one::there:two")], Kind::Kubeconfig, "there"),
        (&[("KUBECONFIG", "one:two")], Kind::Kubeconfig, "two"),
        (&[("TALOSCONFIG", "a:b")], Kind::Talosconfig, "a:b"),
    ] {
        assert_eq!(file(variables, kind).expect("a file"), PathBuf::from(path), "{variables:?}");
    }
    let halt = file(&[], Kind::Kubeconfig).expect_err("nowhere");
    assert!(messages(&halt.findings).contains("$HOME"));
}
