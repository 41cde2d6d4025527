//! Secrets of a Vault server. Its answers are written as the server's HTTP API documents them.

use ichor_model::SecretRef;

use super::{lab, site};
use crate::{materials, memory::Memory};

const MOUNTS: &str = "GET /v1/sys/internal/ui/mounts";
const VERSIONED: &str = r#"{"data": {"path": "secret/", "type": "kv", "options": {"version": "2"}}}"#;
const KEPT: &str = r#"{"data": {"data": {"token": "root@pam!x=42", "port": 8006, "none": ""},
    "metadata": {"version": 3, "destroyed": false, "deletion_time": ""}}}"#;

/// A machine whose user is logged in, beside a server that gives these answers.
fn beside(answers: &[(&str, u16, &str)]) -> Memory {
    let mut memory = Memory::default();
    memory.variables.insert("VAULT_ADDR".into(), "https://vault.example:8200/".into());
    memory.variables.insert("VAULT_TOKEN".into(), "hvs.canary".into());
    memory.web = answers
        .iter()
        .map(|(call, status, body)| ((*call).to_owned(), (*status, (*body).to_owned())))
        .collect();
    memory
}

fn usual() -> Memory {
    beside(&[
        (&format!("{MOUNTS}/secret/lab/pve"), 200, VERSIONED),
        ("GET /v1/secret/data/lab/pve", 200, KEPT),
    ])
}

fn read(memory: &Memory, place: &str) -> Result<String, String> {
    let found = materials::resolve(memory, site(lab()), &SecretRef::Vault(place.to_owned()));
    found.map(|secret| secret.expose().to_owned()).map_err(|finding| {
        let said = format!("{finding:?}");
        assert!(!said.contains("canary") && !said.contains("=42"), "{said}");
        said
    })
}

#[test]
fn a_field_is_read_with_the_token_that_is_there() {
    let mut memory = usual();
    memory.variables.insert("VAULT_NAMESPACE".into(), "team".into());
    assert_eq!(read(&memory, "secret/lab/pve#token").as_deref(), Ok("root@pam!x=42"));
    for request in memory.asked.borrow().iter() {
        let authorization = request.authorization.as_ref().map(ichor_port::Secret::expose);
        assert_eq!(authorization, Some("Bearer hvs.canary"));
        assert!(request.headers.contains(&("x-vault-namespace", "team".to_owned())));
        assert!(!format!("{request:?}").contains("canary"));
    }
}

#[test]
fn engines_may_be_anywhere_and_of_the_first_kind() {
    let plain = r#"{"data": {"path": "teams/kv/", "options": null}}"#;
    let kept = r#"{"data": {"token": "t"}}"#;
    let memory =
        beside(&[(&format!("{MOUNTS}/teams/kv/a%20b"), 200, plain), ("GET /v1/teams/kv/a%20b", 200, kept)]);
    assert_eq!(read(&memory, "teams/kv/a b#token").as_deref(), Ok("t"));
    // Whoever may not ask where an engine is has it under the first name.
    let memory = beside(&[
        (&format!("{MOUNTS}/secret/lab/pve"), 403, r#"{"errors": ["permission denied"]}"#),
        ("GET /v1/secret/data/lab/pve", 200, KEPT),
    ]);
    assert!(read(&memory, "secret/lab/pve#token").is_ok());
    // A server cannot send us elsewhere.
    let elsewhere = VERSIONED.replace("secret/", "sys/");
    let memory = beside(&[
        (&format!("{MOUNTS}/secret/lab/pve"), 200, &elsewhere),
        ("GET /v1/secret/data/lab/pve", 200, KEPT),
    ]);
    assert!(read(&memory, "secret/lab/pve#token").is_ok());
}

#[test]
fn a_role_logs_in_once_for_all_secrets() {
    let mut memory = beside(&[
        ("POST /v1/auth/approle/login", 200, r#"{"auth": {"client_token": "hvs.role"}}"#),
        (&format!("{MOUNTS}/secret/lab/pve"), 200, VERSIONED),
        ("GET /v1/secret/data/lab/pve", 200, KEPT),
    ]);
    memory.variables.remove("VAULT_TOKEN");
    memory.variables.insert("VAULT_ROLE_ID".into(), "role".into());
    memory.variables.insert("BAO_SECRET_ID".into(), "canary".into());
    let secret = |field: &str| SecretRef::Vault(format!("secret/lab/pve#{field}"));
    let needs = ichor_machineconfig::compose::Needs {
        secrets: [secret("token"), secret("again")].into(),
        ..Default::default()
    };
    let gathered = materials::gather(&memory, site(lab()), &needs, &mut ichor_spec::Sources::default());
    let findings = gathered.expect_err("one field is missing");
    assert_eq!(findings.iter().count(), 1, "{findings:?}");
    let asked = memory.asked.borrow();
    assert_eq!(asked.iter().filter(|request| request.target.ends_with("/login")).count(), 1);
    assert_eq!(asked[0].body, br#"{"role_id":"role","secret_id":"canary"}"#);
    assert_eq!(asked[1].authorization.as_ref().map(ichor_port::Secret::expose), Some("Bearer hvs.role"));
}

#[test]
fn the_token_of_a_login_is_used_if_it_is_kept_well() {
    let mut memory = usual();
    memory.variables.remove("VAULT_TOKEN");
    memory.variables.insert("HOME".into(), "/home/me".into());
    assert!(read(&memory, "secret/lab/pve#token").expect_err("no login").contains("nobody is logged in"));
    memory.put("/home/me/.vault-token", b"hvs.canary\n");
    assert!(read(&memory, "secret/lab/pve#token").is_ok());
    memory.open.borrow_mut().insert("/home/me/.vault-token".into(), crate::system::Openness::Readable);
    assert!(read(&memory, "secret/lab/pve#token").expect_err("open").contains("chmod 600"));
}

#[test]
fn what_cannot_be_had_is_said_with_a_remedy() {
    let mounts = format!("{MOUNTS}/secret/lab/pve");
    let answering =
        |status, body| beside(&[(&mounts, 200, VERSIONED), ("GET /v1/secret/data/lab/pve", status, body)]);
    let denied = r#"{"errors": ["1 error occurred:\n\t* permission denied\u001b[2J\n\n"]}"#;
    for (memory, place, said) in [
        (answering(403, denied), "token", "policy with `read` on `secret/data/lab/pve`"),
        (answering(404, r#"{"errors": []}"#), "token", "no such secret"),
        (answering(503, r#"{"errors": ["Vault is sealed"]}"#), "token", "unseal"),
        (answering(307, ""), "token", "is active"),
        (answering(200, "<html>"), "token", "makes no sense"),
        (usual(), "none", "it is empty"),
        (usual(), "port", "is no text"),
        (usual(), "other", "has no field `other`"),
        (beside(&[]), "token", "VAULT_CACERT"),
    ] {
        let told = read(&memory, &format!("secret/lab/pve#{place}")).expect_err(said);
        assert!(told.contains(said), "{told}");
        assert!(!told.contains('\u{1b}') && !told.contains("\\u{1b}"), "{told}");
    }
}

#[test]
fn secrets_do_not_cross_a_network_in_the_clear() {
    let mut memory = usual();
    let mut at = |address: &str| {
        memory.variables.insert("VAULT_ADDR".into(), address.into());
        read(&memory, "secret/lab/pve#token")
    };
    assert!(at("http://vault.example:8200").expect_err("http").contains("in the clear"));
    assert!(at("vault.example").expect_err("no URL").contains("VAULT_ADDR"));
    assert!(at("http://127.0.0.1:8200").is_ok());
    assert!(at("http://[::1]:8200").is_ok());
    memory.variables.remove("VAULT_ADDR");
    assert!(read(&memory, "secret/lab/pve#token").expect_err("no server").contains("export VAULT_ADDR"));
}
