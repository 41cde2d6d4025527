//! Reading `secrets.yaml`.

use ichor_model::Problem;

use super::{
    Bundle, Flaw, Flaws,
    draft::{Draft, Form, Pair, Slot},
};
use crate::{
    pki::Timestamp,
    tree::{self, Kind, Node},
};

/// Largest file that is read; a bundle has about 12 KiB.
const MAX_BYTES: usize = 1024 * 1024;

const SECTIONS: [(&str, &[&str]); 4] = [
    ("cluster", &["id", "secret"]),
    ("secrets", &["bootstraptoken", "secretboxencryptionsecret", "aescbcencryptionsecret"]),
    ("trustdinfo", &["token"]),
    ("certs", &["etcd", "k8s", "k8saggregator", "k8sserviceaccount", "os"]),
];

/// Reads a bundle, or says everything that is wrong with it.
pub fn read(text: &str, now: Option<Timestamp>) -> Result<Bundle, Flaws> {
    let documents = tree::parse(text, MAX_BYTES)?;
    let root = match &documents[..] {
        [] => return Err(Flaws::one("", None, "is empty", "give the `secrets.yaml` of a cluster")),
        [root] => root,
        [_, second, ..] => {
            let line = Some(second.line);
            return Err(Flaws::one(
                "",
                line,
                "has several documents",
                "give the `secrets.yaml` of one cluster",
            ));
        }
    };
    let mut flaws = Vec::new();
    check_keys(root, &mut flaws);
    if !matches!(root.kind, Kind::Map(_)) {
        return Err(Flaws::one("", None, "is not a map", "give the `secrets.yaml` of a cluster"));
    }
    draft(root).finish(now, flaws)
}

fn draft(root: &Node) -> Draft<'_> {
    let slot = |path: [&str; 2]| Slot { path: path.join("."), value: root.at(&path), form: Form::Base64 };
    let cert = |name: &str, half: &str| Slot {
        path: format!("certs.{name}.{half}"),
        value: root.at(&["certs", name, half]),
        form: Form::Base64,
    };
    let pair = |name| Pair { certificate: cert(name, "crt"), key: cert(name, "key") };
    Draft {
        cluster_id: slot(["cluster", "id"]),
        cluster_secret: slot(["cluster", "secret"]),
        bootstrap_token: slot(["secrets", "bootstraptoken"]),
        secretbox: slot(["secrets", "secretboxencryptionsecret"]),
        aescbc: slot(["secrets", "aescbcencryptionsecret"]),
        trustd_token: slot(["trustdinfo", "token"]),
        etcd: pair("etcd"),
        kubernetes: pair("k8s"),
        aggregator: pair("k8saggregator"),
        service_account: cert("k8sserviceaccount", "key"),
        os: pair("os"),
    }
}

/// Reports keys that a bundle does not have, and sections that are no maps.
fn check_keys(root: &Node, flaws: &mut Vec<Flaw>) {
    let names: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
    check_map(root, "", &names, flaws);
    for (name, keys) in SECTIONS {
        let Some(section) = root.get(name) else { continue };
        check_map(section, name, keys, flaws);
    }
    for entry in root.get("certs").map(Node::entries).unwrap_or_default() {
        let halves: &[&str] = if entry.key == "k8sserviceaccount" { &["key"] } else { &["crt", "key"] };
        if SECTIONS[3].1.contains(&entry.key.as_str()) {
            check_map(&entry.value, &format!("certs.{}", entry.key), halves, flaws);
        }
    }
}

fn check_map(node: &Node, path: &str, known: &[&str], flaws: &mut Vec<Flaw>) {
    if !matches!(node.kind, Kind::Map(_) | Kind::Null) && !path.is_empty() {
        let problem = Problem::new(
            format!("is {}, not a map", node.kind_word()),
            format!("write a map with {}", list(known)),
        );
        flaws.push(Flaw::new(path, Some(node.line), problem));
    }
    for entry in node.entries().iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        let key = tree::shown(&entry.key);
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        let problem = Problem::new(
            "is not a key of a secrets bundle",
            format!("remove it, or correct its name: the keys here are {}", list(known)),
        );
        flaws.push(Flaw::new(path, Some(entry.line), problem));
    }
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
