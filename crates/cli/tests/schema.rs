//! What `ichor` accepts, an editor with the published schema accepts too, and the other way round for
//! mistakes that a schema can see.

use std::{fs, path::Path};

use serde_json::Value;

fn errors(text: &str) -> Vec<String> {
    let instance: Value = serde_saphyr::from_str(text).expect("YAML");
    let validator = jsonschema::validator_for(&ichor_spec::json_schema()).expect("the schema is valid");
    validator.iter_errors(&instance).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn every_example_satisfies_the_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for folder in ["examples", "crates/cli/tests/real"] {
        for path in yaml_files(&root.join(folder)) {
            let errors = errors(&fs::read_to_string(&path).expect("a file"));
            assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 14, "only {seen} files were looked at");
}

fn yaml_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    // Whoever has run an example has its state beside it, out of sight.
    let in_sight =
        |path: &std::path::PathBuf| path.file_name().is_none_or(|name| name.as_encoded_bytes()[0] != b'.');
    let (folders, files): (Vec<_>, Vec<_>) = entries.filter(in_sight).partition(|path| path.is_dir());
    let yaml = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    yaml.chain(folders.iter().flat_map(|folder| yaml_files(folder))).collect()
}

#[test]
fn releases_may_look_like_numbers() {
    for text in [
        "cluster: {contract: 1.13}",
        "addons: {cert_manager: 1.18}",
        "addons: {cni: {cilium: {version: 1.16}}}",
        "machines: {cp: {labels: {rack: 12}}}",
    ] {
        assert_eq!(errors(text), [""; 0], "{text}");
    }
}

#[test]
fn entries_may_be_removed_by_nothing() {
    for text in [
        "machines: {cp: {labels: {a: ~}, sysctls: {k: ~}, taints: {t: ~}}, worker: ~}",
        "proxmox: {hosts: {pve1: ~}}",
        "image: {templates: {gpu: ~}}",
    ] {
        assert_eq!(errors(text), [""; 0], "{text}");
    }
}

#[test]
fn mistakes_that_a_schema_can_see_are_seen() {
    for (text, place) in [
        ("clustr: {}", ""),
        ("cluster: {nmae: x}", "/cluster"),
        ("cluster: {ha: yes please}", "/cluster/ha"),
        ("cluster: {talos: '1.13'}", "/cluster/talos"),
        ("machines: {cp: {memory: 8}}", "/machines/cp/memory"),
        ("machines: {cp: {vmid: 99}}", "/machines/cp/vmid"),
        ("machines: {Cp_1: {}}", "/machines"),
        ("network: {vlan: 5000}", "/network/vlan"),
        ("proxmox: {token: abc}", "/proxmox/token"),
        ("image: {source: usb}", "/image/source"),
        ("roles: {master: {}}", "/roles"),
    ] {
        let errors = errors(text);
        assert!(errors.iter().any(|error| error.starts_with(&format!("{place}:"))), "{text}: {errors:?}");
    }
}
