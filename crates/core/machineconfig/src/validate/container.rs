//! Rules of containers that Talos runs itself, since 1.14.

use ichor_model::Code;

use super::judge::Judge;
use crate::document::{Node, raw::show};

/// Checks a `ContainerConfig`; others are left alone.
pub fn check(kind: &str, judge: &mut Judge<'_>) {
    if kind != "ContainerConfig" {
        return;
    }
    let name = judge.text("name");
    if name.len() > 63 || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        let words = format!(
            "name \"{}\": name can only contain lowercase ASCII letters, digits and hyphens",
            show(name)
        );
        judge.fail(Code::CONFIG_REFUSED, "name", &words, "write at most 63 of these characters");
    }
    judge.required("image", "image is required");
    for (node, variable) in judge.texts("environment") {
        if !variable.contains('=') {
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(node),
                "environment: must be in KEY=value form",
                "write `KEY=value`",
            );
        }
    }
    mounts(judge);
    dependencies(judge);
    for (path, words) in
        [("runAs.uid", "runAs.uid must be non-negative"), ("runAs.gid", "runAs.gid must be non-negative")]
    {
        judge.not_negative(path, words);
    }
    choice(judge, "security.profile", &["restricted", "privileged"]);
    choice(judge, "network.mode", &["none", "host"]);
}

fn choice(judge: &mut Judge<'_>, path: &str, words: &[&str]) {
    let word = judge.text(path);
    if !word.is_empty() && !words.contains(&word) {
        let message = format!("unsupported {path} \"{}\"", show(word));
        judge.fail(Code::CONFIG_REFUSED, path, &message, &format!("write `{}`", words.join("` or `")));
    }
}

fn mounts(judge: &mut Judge<'_>) {
    for (i, mount) in judge.items("mounts").iter().enumerate() {
        let kinds: Vec<&Node> =
            ["userVolume", "tmpfs", "hostPath"].iter().filter_map(|key| mount.get(key)).collect();
        let [kind] = kinds.as_slice() else {
            let words = format!("mounts[{i}]: exactly one of userVolume, tmpfs or hostPath must be set");
            judge.wrong(Code::CONFIG_REFUSED, Some(mount), &words, "keep one of them");
            continue;
        };
        let absolute =
            |key: &str| kind.get(key).and_then(Node::as_text).is_some_and(|path| path.starts_with('/'));
        if !absolute("destination") || mount.get("hostPath").is_some() && !absolute("source") {
            let words = format!("mounts[{i}]: paths must be absolute");
            judge.wrong(Code::CONFIG_REFUSED, Some(mount), &words, "write paths that begin with `/`");
        }
    }
}

fn dependencies(judge: &mut Judge<'_>) {
    let own = judge.text("name");
    for (node, name) in judge.texts("dependsOn.containers") {
        if name == own {
            let words = format!("container \"{}\" cannot depend on itself", show(own));
            judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "remove it");
        } else if !judge.config.of_kind("ContainerConfig").any(|other| other.identity().name == name) {
            let words = format!(
                "container \"{}\" depends on container \"{}\", which is not configured",
                show(own),
                show(name)
            );
            judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "add the other ContainerConfig");
        }
    }
}
