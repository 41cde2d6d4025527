//! Where two machine configs differ. Values are never told: many of them are secret.

use crate::document::{Config, Document, Map, Node, raw::show};

/// Returns the places where two configs differ, such as `machine.kubelet.image`. Lists are compared as a whole, and the
/// order of maps and documents does not count.
pub fn differences(wanted: &Config, is: &Config) -> Vec<String> {
    let mut found = Vec::new();
    for document in wanted.documents() {
        match counterpart(is, document) {
            Some(other) => in_maps(&place(document), document.body(), other.body(), &mut found),
            None => found.push(document.identity().label()),
        }
    }
    let only_there = is.documents().iter().filter(|document| counterpart(wanted, document).is_none());
    found.extend(only_there.map(|document| document.identity().label()));
    found
}

fn counterpart<'c>(config: &'c Config, document: &Document) -> Option<&'c Document> {
    config.documents().iter().find(|other| other.identity() == document.identity())
}

/// Paths of the legacy document need no introduction.
fn place(document: &Document) -> String {
    if document.is_legacy() { String::new() } else { format!("{}: ", document.identity().label()) }
}

fn in_maps(place: &str, wanted: &Map, is: &Map, found: &mut Vec<String>) {
    for (key, value) in wanted.iter() {
        in_values(&format!("{place}{}", show(&key.text)), value, is.get(&key.text), found);
    }
    let only_there = is.iter().filter(|(key, _)| wanted.get(&key.text).is_none());
    found.extend(only_there.map(|(key, _)| format!("{place}{}", show(&key.text))));
}

fn in_values(path: &str, wanted: &Node, is: Option<&Node>, found: &mut Vec<String>) {
    match (wanted.as_map(), is.and_then(Node::as_map)) {
        (Some(wanted), Some(is)) => in_maps(&format!("{path}."), wanted, is, found),
        _ if is == Some(wanted) => {}
        _ => found.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use ichor_model::SourceId;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(SourceId::default(), text.as_bytes()).expect("a config")
    }

    const ONE: &str = "\
version: v1alpha1
machine:
  type: worker
  token: abcdef.0123456789abcdef
  kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.36.3', extraArgs: {v: '2'}}
  certSANs: [10.0.0.1, 10.0.0.2]
---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: worker-1
auto: 'off'
";

    #[test]
    fn the_order_in_which_things_are_written_is_no_difference() {
        let other = "\
apiVersion: v1alpha1
kind: HostnameConfig
auto: off
hostname: worker-1
---
machine:
  certSANs: [10.0.0.1, 10.0.0.2]
  kubelet: {extraArgs: {v: '2'}, image: \"ghcr.io/siderolabs/kubelet:v1.36.3\"}
  token: abcdef.0123456789abcdef
  type: worker
version: v1alpha1
";
        assert_eq!(differences(&config(ONE), &config(other)), Vec::<String>::new());
    }

    #[test]
    fn places_are_told_and_values_are_not() {
        let other = ONE
            .replace("v1.36.3", "v1.36.2")
            .replace("abcdef.0", "fedcba.0")
            .replace("[10.0.0.1, 10.0.0.2]", "[10.0.0.1]")
            .replace("{v: '2'}", "{v: '2', feature-gates: A=true}")
            .replace("hostname: worker-1", "hostname: worker-2");
        let other = format!("{other}---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nenabled: true\n");
        let told = differences(&config(ONE), &config(&other));
        assert_eq!(
            told,
            [
                "machine.token",
                "machine.certSANs",
                "machine.kubelet.image",
                "machine.kubelet.extraArgs.feature-gates",
                "HostnameConfig: hostname",
                "TimeSyncConfig",
            ]
        );
        assert_eq!(differences(&config(&other), &config(ONE)).len(), told.len());
    }
}
