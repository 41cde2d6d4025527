//! Bundles, files and secrets that cannot be used.

use ichor_spec::Sources;

use super::{INVENTORY, Memory, codes, lab, messages, resolve, site, with_secrets};
use crate::{
    HaltKind,
    bundle::{self, Form, Input},
    secrets,
};

fn exported() -> String {
    let (text, _) = secrets::export(&with_secrets(), site(lab()), &mut Sources::default()).expect("secrets");
    text.expose().to_owned()
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
        ("sops", format!("{good}sops:\n    version: 3.9.0\n"), "ICH-2104"),
        ("age", "age-encryption.org/v1\n-> X25519 x\n".to_owned(), "ICH-2104"),
        ("a worker", "version: v1alpha1\nmachine: {type: worker}\n".to_owned(), "ICH-2103"),
        ("5 MB", too_large, "ICH-1015"),
    ] {
        let memory = Memory::with(&[("bad.yaml", &text)]);
        let mut sources = Sources::default();
        let halt = bundle::read(&memory, &Input::File("bad.yaml".into()), &mut sources).expect_err(name);
        assert_eq!((halt.kind, codes(&halt)[0].as_str()), (HaltKind::Invalid, code), "{name}");
        let said = messages(&halt.findings) + &format!("{sources:?}");
        assert!(!said.contains(secret) && !said.contains("LS0t"), "{name}: {said}");
    }
    let memory = Memory::with(&[]);
    memory.put("latin1", b"cluster: \xff\n");
    let halt =
        bundle::read(&memory, &Input::File("latin1".into()), &mut Sources::default()).expect_err("bytes");
    assert_eq!(codes(&halt), ["ICH-2103"]);
    let halt = bundle::read(&memory, &Input::File("none".into()), &mut Sources::default()).expect_err("none");
    assert_eq!(codes(&halt), ["ICH-1015"]);
}

#[test]
fn authorities_out_of_their_time_are_refused() {
    let text = exported();
    for later in [11 * 365 * 86_400, 0] {
        let memory = Memory::with(&[("s.yaml", &text)]);
        memory.later.set(later);
        let read = bundle::read(&memory, &Input::File("s.yaml".into()), &mut Sources::default());
        assert_eq!(read.is_err(), later > 0);
    }
}

#[test]
fn flaws_point_at_their_lines() {
    let text = exported().replace("bootstraptoken: ", "bootstraptoken: x");
    let line = text.lines().position(|line| line.contains("bootstraptoken")).expect("a line") + 1;
    let memory = Memory::with(&[("s.yaml", &text)]);
    let mut sources = Sources::default();
    let halt = bundle::read(&memory, &Input::File("s.yaml".into()), &mut sources).expect_err("bad token");
    let finding = halt.findings.iter().next().expect("a finding");
    assert!(finding.private);
    assert_eq!(sources.place(finding.at.expect("a place")).map(|place| place.line), Some(line));
}

#[test]
fn secrets_that_others_can_read_are_warned_about() {
    let memory = with_secrets();
    memory.open.borrow_mut().insert("home/.ichor/lab/secrets.yaml".into());
    let kept = secrets::show(&memory, site(lab()), &mut Sources::default()).expect("shown");
    assert!(messages(&kept.findings).contains("chmod 600 home/.ichor/lab/secrets.yaml"));
}

#[test]
fn nothing_is_written_in_plain_where_encryption_is_wanted() {
    for secrets in [
        "secrets: {file: secrets.sops.yaml}",
        "secrets: {age: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]}",
    ] {
        let desired = resolve(&format!("{INVENTORY}{secrets}\n"));
        let memory = Memory::default();
        let halt = secrets::new(&memory, site(&desired), || Ok(super::rsa())).expect_err(secrets);
        assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2104".to_owned()]));
        assert!(memory.names().is_empty());
    }
}

#[test]
fn buckets_and_broken_records_are_findings() {
    let desired = resolve(&format!("{INVENTORY}store: s3://bucket/prefix\n"));
    let halt =
        secrets::show(&Memory::default(), site(&desired), &mut Sources::default()).expect_err("bucket");
    assert_eq!(codes(&halt), ["ICH-2113"]);
    for record in
        ["", "{}", "{\"schema\": 2, \"contract\": \"1.13\"}", "{\"schema\": 1, \"contract\": \"x\"}"]
    {
        let memory = with_secrets();
        memory.put("home/.ichor/lab/cluster.json", record.as_bytes());
        let halt = secrets::show(&memory, site(lab()), &mut Sources::default()).expect_err("broken");
        assert_eq!(codes(&halt), ["ICH-2114"], "{record}");
    }
}
