//! Bundles, files and secrets that cannot be used.

use ichor_spec::Sources;

use super::{INVENTORY, Memory, codes, lab, messages, resolve, site, with_secrets};
use crate::{
    Halt, HaltKind, Origin, Site,
    bundle::{self, Form, Found, Input, Signer},
    contract, secrets, shared,
    shared::Fingerprint,
    system::{Entry, Openness},
};

fn exported() -> String {
    let (made, _) = secrets::export(&with_secrets(), site(lab()), &mut Sources::default()).expect("secrets");
    made.text.expose().to_owned()
}

fn read(memory: &Memory, path: &str, sources: &mut Sources) -> Result<Found, Halt> {
    bundle::read(memory, &Input::File(path.into()), Signer::Nobody, sources)
}

#[test]
fn what_is_exported_can_be_imported_elsewhere() {
    let text = exported();
    let memory = Memory { stdin: text.clone().into_bytes(), ..Memory::default() };
    let run = || secrets::import(&memory, site(lab()), &Input::Stdin, &mut Sources::default());
    let imported = run().expect("imported");
    assert_eq!((imported.form(), imported.was_there), (Form::SecretsYaml, false));
    assert_eq!(memory.text("home/.ichor/lab/secrets.yaml"), Some(text));
    assert!(run().expect("imported again").was_there);
}

#[test]
fn importing_never_replaces_other_secrets() {
    let memory = with_secrets();
    let before = memory.text("home/.ichor/lab/secrets.yaml");
    let elsewhere = Memory::default();
    elsewhere.drawn.set(7);
    secrets::new(&elsewhere, site(lab()), || Ok(super::rsa())).expect("other secrets");
    let other = elsewhere.text("home/.ichor/lab/secrets.yaml").expect("other secrets");
    memory.put("other.yaml", other.as_bytes());
    let refused =
        secrets::import(&memory, site(lab()), &Input::File("other.yaml".into()), &mut Sources::default());
    let halt = refused.expect_err("refused");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2102".to_owned()]));
    assert_eq!(memory.text("home/.ichor/lab/secrets.yaml"), before);
}

#[test]
fn a_record_that_is_missing_is_completed_by_importing_what_is_kept() {
    let memory = with_secrets();
    let record = std::path::PathBuf::from("home/.ichor/lab/cluster.json");
    memory.files.borrow_mut().remove(&record);
    assert!(!secrets::show(&memory, site(lab()), &mut Sources::default()).expect("shown").recorded);
    let kept = Input::File("home/.ichor/lab/secrets.yaml".into());
    secrets::import(&memory, site(lab()), &kept, &mut Sources::default()).expect("imported");
    assert!(secrets::show(&memory, site(lab()), &mut Sources::default()).expect("shown").recorded);
}

#[test]
fn bad_bundles_are_refused_with_a_reason_and_no_secret() {
    let good = exported();
    let token = good.lines().find(|line| line.contains("bootstraptoken")).expect("a token");
    let secret = token.split(": ").nth(1).expect("a value");
    let kubernetes_key =
        good.split("k8s:").nth(1).and_then(|rest| rest.split("key: ").nth(1)).expect("a key");
    let kubernetes_key = kubernetes_key.lines().next().expect("a line");
    let etcd_key = good.split("key: ").nth(1).and_then(|rest| rest.lines().next()).expect("a key");
    let too_large = "x: y\n".repeat(1_000_000);
    for (name, text, code) in [
        ("empty", String::new(), "ICH-2103"),
        ("not a map", "- 1\n".to_owned(), "ICH-2103"),
        ("not YAML", format!("{good}\n  : [\n"), "ICH-2103"),
        ("redacted", good.replace(secret, "'******'"), "ICH-2103"),
        ("mismatched", good.replace(kubernetes_key, etcd_key), "ICH-2103"),
        ("sops", format!("{good}sops:\n    version: 3.9.0\n"), "ICH-2130"),
        ("age", "age-encryption.org/v1\n-> X25519 x\n".to_owned(), "ICH-2104"),
        ("a worker", "version: v1alpha1\nmachine: {type: worker}\n".to_owned(), "ICH-2103"),
        ("5 MB", too_large, "ICH-1015"),
    ] {
        let memory = Memory::with(&[("bad.yaml", &text)]);
        let mut sources = Sources::default();
        let halt = read(&memory, "bad.yaml", &mut sources).expect_err(name);
        assert_eq!((halt.kind, codes(&halt)[0].as_str()), (HaltKind::Invalid, code), "{name}");
        let said = messages(&halt.findings) + &format!("{sources:?}");
        assert!(!said.contains(secret) && !said.contains("LS0t"), "{name}: {said}");
        assert_eq!(said.contains("at most 4 MiB are read"), name == "5 MB", "{name}: {said}");
    }
    let memory = Memory::with(&[]);
    memory.put("latin1", b"cluster: \xff\n");
    let halt = read(&memory, "latin1", &mut Sources::default()).expect_err("bytes");
    assert_eq!(codes(&halt), ["ICH-2103"]);
    let halt = read(&memory, "none", &mut Sources::default()).expect_err("none");
    assert_eq!(codes(&halt), ["ICH-1015"]);
}

#[test]
fn flaws_point_at_their_lines() {
    let text = exported().replace("bootstraptoken: ", "bootstraptoken: x");
    let line = text.lines().position(|line| line.contains("bootstraptoken")).expect("a line") + 1;
    let memory = Memory::with(&[("s.yaml", &text)]);
    let mut sources = Sources::default();
    let halt = read(&memory, "s.yaml", &mut sources).expect_err("bad token");
    let finding = halt.findings.iter().next().expect("a finding");
    assert!(finding.private);
    assert_eq!(sources.place(finding.at.expect("a place")).map(|place| place.line), Some(line));
}

#[test]
fn secrets_that_others_can_read_are_warned_about() {
    let memory = with_secrets();
    memory.open.borrow_mut().insert("home/.ichor/lab/secrets.yaml".into(), Openness::Readable);
    let kept = secrets::show(&memory, site(lab()), &mut Sources::default()).expect("shown");
    assert!(messages(&kept.findings).contains("chmod 600 home/.ichor/lab/secrets.yaml"));
}

#[test]
fn buckets_and_broken_records_are_findings() {
    let desired = resolve(&format!("{INVENTORY}store: s3://bucket/prefix?secret=word\n"));
    let halt =
        secrets::show(&Memory::default(), site(&desired), &mut Sources::default()).expect_err("bucket");
    assert_eq!(codes(&halt), ["ICH-2113"]);
    for record in [
        "",
        "{}",
        "{\"schema\": 1, \"contract\": \"1.2\"}",
        "{\"schema\": 2, \"contract\": \"1.13\"}",
        "{\"schema\": 1, \"contract\": \"x\"}",
    ] {
        let memory = with_secrets();
        memory.put("home/.ichor/lab/cluster.json", record.as_bytes());
        let halt = secrets::show(&memory, site(lab()), &mut Sources::default()).expect_err("broken");
        assert_eq!(codes(&halt), ["ICH-2114"], "{record}");
    }
}

#[test]
fn a_record_without_its_secrets_does_not_count() {
    let memory = with_secrets();
    memory.put("home/.ichor/lab/cluster.json", b"{\"schema\": 1, \"contract\": \"1.10\"}");
    let store = crate::store::Store::of(site(lab())).expect("a store");
    assert_eq!(store.contract(&memory).expect("read"), Some(ichor_model::Minor::new(1, 10)));
    let halt = secrets::new(&memory, site(lab()), || Ok(super::rsa())).expect_err("there are secrets");
    assert!(messages(&halt.findings).contains("mv home/.ichor/lab home/.ichor/lab.old"));
    memory.files.borrow_mut().remove(std::path::Path::new("home/.ichor/lab/secrets.yaml"));
    assert_eq!(store.contract(&memory).expect("read"), None);
    secrets::new(&memory, site(lab()), || Ok(super::rsa())).expect("new ones");
    assert_eq!(store.contract(&memory).expect("read"), Some(ichor_model::Minor::new(1, 13)));
}

fn resolved(memory: &Memory, inventory: &str) -> contract::AsMade {
    let mut sources = Sources::default();
    let source = sources.add("ichor.yaml", inventory);
    let layers = ichor_spec::Layers { defaults: Vec::new(), files: vec![source] };
    let loaded =
        ichor_spec::load(&sources, &layers, &mut ichor_model::Findings::new()).expect("an inventory");
    contract::resolve(memory, &loaded, (std::path::Path::new("home"), &[]), &ichor_model::World::default())
}

#[test]
fn secrets_without_a_record_are_warned_about() {
    let memory = with_secrets();
    let made = resolved(&memory, INVENTORY);
    assert_eq!((made.contract, made.findings.is_empty()), (Origin::Recorded, true));
    memory.files.borrow_mut().remove(std::path::Path::new("home/.ichor/lab/cluster.json"));
    let made = resolved(&memory, INVENTORY);
    assert_eq!(made.contract, Origin::Assumed);
    assert!(messages(&made.findings).contains("contract: \\\"1.13\\\""), "{:?}", made.findings);
    let made = resolved(&memory, &INVENTORY.replace("name: lab,", "name: lab, contract: '1.12',"));
    assert_eq!((made.contract, made.findings.is_empty()), (Origin::Written, true));
    assert!(resolved(&Memory::default(), INVENTORY).findings.is_empty(), "a new cluster");
}

#[test]
fn a_machine_config_of_another_shape_is_warned_about_and_not_recorded() {
    let kept = with_secrets();
    let old = resolve(&INVENTORY.replace("name: lab,", "name: lab, contract: '1.10',"));
    let request =
        crate::render::Request { directory: std::path::Path::new("out"), secrets: None, overwrite: false };
    let drawn = crate::render::draw(&kept, site(&old), request, &mut Sources::default()).expect("drawn");
    crate::render::write(&kept, &drawn).expect("rendered");
    let config = kept.text("out/machines/cp-1.yaml").expect("a config");
    let import = |desired, contract| {
        let memory = Memory::with(&[("cp.yaml", &config)]);
        let site = Site { contract, ..site(desired) };
        let input = Input::File("cp.yaml".into());
        let imported = secrets::import(&memory, site, &input, &mut Sources::default()).expect("imported");
        let recorded = memory.text("home/.ichor/lab/cluster.json").is_some();
        (messages(&imported.found.findings), recorded)
    };
    let (told, recorded) = import(lab(), Origin::Assumed);
    assert!(told.contains("contracts 1.8 to 1.11") && told.contains("1.11\\\"") && !recorded, "{told}");
    assert_eq!(import(&old, Origin::Written), (String::new(), true));
    let (told, recorded) = import(lab(), Origin::Written);
    assert!(!told.is_empty() && recorded, "what the inventory says counts: {told}");
}

#[test]
fn secrets_are_kept_out_of_git_or_a_line_is_named() {
    let text = exported();
    let import = |inventory: &str, files: &[(&str, &str)]| {
        let memory = Memory::with(&[("s.yaml", text.as_str())]);
        for (path, text) in files {
            memory.put(path, text.as_bytes());
        }
        let desired = resolve(inventory);
        let input = Input::File("s.yaml".into());
        secrets::import(&memory, site(&desired), &input, &mut Sources::default())
            .map(|imported| messages(&imported.found.findings))
    };
    let ignore = "home/.ichor/.gitignore";
    for (content, is_told) in [("*\n", false), ("# mine\n*\n", false), ("*.tmp\n", true), ("*\n!lab\n", true)]
    {
        let told = import(INVENTORY, &[(ignore, content)]).expect("imported");
        assert_eq!(told.contains("last line"), is_told, "{content}: {told}");
    }
    let beside = format!("{INVENTORY}secrets: {{file: bundle.yaml}}\n");
    let told = import(&beside, &[]).expect("imported");
    assert!(told.contains("add the line `/bundle.yaml` to `home/.gitignore`"), "{told}");
    assert_eq!(import(&beside, &[("home/.gitignore", "x\n/bundle.yaml\n")]).expect("imported"), "");
    let around = format!("{INVENTORY}store: {{path: .}}\n");
    let halt = import(&around, &[]).expect_err("around the inventory");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2121".to_owned()]));
}

#[test]
fn open_directories_of_the_store_are_closed() {
    let memory = Memory::default();
    for path in ["home/.ichor", "home/.ichor/lab"] {
        memory.directories.borrow_mut().insert(path.into());
        memory.open.borrow_mut().insert(path.into(), Openness::Writable);
    }
    secrets::new(&memory, site(lab()), || Ok(super::rsa())).expect("secrets");
    for path in ["home/.ichor", "home/.ichor/lab"] {
        let entry = crate::System::entry(&memory, std::path::Path::new(path)).expect("asked");
        assert_eq!(entry, Some(Entry::Directory(Openness::Closed)), "{path}");
    }
}

#[test]
fn the_same_secrets_in_two_files_are_found() {
    let bundle = |memory: &Memory| {
        let found = bundle::of_cluster(memory, site(lab()), None, Signer::Nobody, &mut Sources::default());
        Fingerprint::of(&found.expect("secrets").bundle)
    };
    let elsewhere = Memory::default();
    elsewhere.drawn.set(7);
    secrets::new(&elsewhere, site(lab()), || Ok(super::rsa())).expect("other secrets");
    let (one, other) = (bundle(&with_secrets()), bundle(&elsewhere));
    assert!(shared::by_content(&[("a", &one), ("b", &other)]).is_empty());
    let told = messages(&shared::by_content(&[("a", &one), ("b", &other), ("c", &one)]));
    assert!(told.contains("clusters `a` and `c` share"), "{told}");
}
