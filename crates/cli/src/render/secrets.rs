//! What may be told about secrets: never one of them.

use std::path::PathBuf;

use ichor_ops::{
    keyring::NewIdentity,
    past::{Past, Written},
    recipients::Chosen,
    secrets::{Authority, Change, Changed, Imported, Kept, New, Own, Restored},
};
use serde_json::{Value, json};

use super::{envelope, table::Table, text};

/// Says what was made.
pub fn new_text(made: &New) -> String {
    let contract = made.contract;
    let path = text::safe_line(&made.path.display().to_string());
    format!(
        "{} the secrets of the cluster, in {path}\n{}\
         machine configs keep the shape of contract {contract}, also when Talos is upgraded\n\
         Whoever loses {path} and the store beside it loses the cluster: make a backup.\n",
        text::good("made"),
        chosen_text(made.chosen.as_ref()),
    )
}

/// Says to whom something was encrypted, and which key was made for that.
fn chosen_text(chosen: Option<&Chosen>) -> String {
    let Some(chosen) = chosen else { return String::new() };
    let all: Vec<&str> = chosen.policy.recipients.iter().map(ichor_sops::Recipient::text).collect();
    let made = chosen.made.as_ref().map(made_identity).unwrap_or_default();
    format!("encrypted to {}\n{made}", text::safe_line(&all.join(", ")))
}

/// Says that a key was made.
pub fn made_identity(made: &NewIdentity) -> String {
    let path = text::safe_line(&made.path.display().to_string());
    format!(
        "{} an age identity for you, in {path}\n\
         Without it nobody can open what is encrypted to you: make a backup of it too, and keep it to yourself.\n",
        text::good("made"),
    )
}

/// Returns who somebody is, for programs.
pub fn own_value(own: &Own) -> Value {
    json!({ "recipient": own.recipient, "made": own.made.as_ref().map(|made| envelope::path(&made.path)) })
}

/// Says what became of an encrypted file.
pub fn changed_text(changed: &Changed) -> String {
    let path = text::safe_line(&changed.path.display().to_string());
    let done = match changed.change {
        Change::Nothing => format!("{} {path} is as it was", text::good("nothing to do:")),
        Change::Encrypted => format!("{} {path}", text::good("encrypted")),
        Change::Rotated => format!("{} {path} with a new key", text::good("encrypted")),
        Change::Added => format!("{} to {path}", text::good("added")),
        Change::Removed => format!(
            "{} {path} with a new key\nWhoever was removed knows what was in it: make new secrets where that matters.",
            text::good("encrypted")
        ),
        Change::Edited => format!("{} {path}", text::good("changed")),
    };
    let made = changed.made.as_ref().map(made_identity).unwrap_or_default();
    let list: String = changed.recipients.iter().map(|it| format!("  {}\n", text::safe_line(it))).collect();
    format!("{done}\n{made}it can be opened by\n{list}")
}

/// Returns what became of an encrypted file, for programs.
pub fn changed_value(cluster: &str, changed: &Changed) -> Value {
    json!({
        "cluster": cluster,
        "path": envelope::path(&changed.path),
        "changed": changed.change != Change::Nothing,
        "recipients": changed.recipients,
        "identity_made": changed.made.as_ref().map(|made| envelope::path(&made.path)),
    })
}

fn recipients_value(chosen: Option<&Chosen>) -> Value {
    let all =
        chosen.map(|it| it.policy.recipients.iter().map(ichor_sops::Recipient::text).collect::<Vec<_>>());
    json!(all)
}

fn identity_value(chosen: Option<&Chosen>) -> Value {
    json!(chosen.and_then(|it| it.made.as_ref()).map(|made| envelope::path(&made.path)))
}

/// Returns what was made, for programs.
pub fn new_value(cluster: &str, made: &New) -> Value {
    json!({
        "cluster": cluster,
        "path": envelope::path(&made.path),
        "cluster_id": made.cluster_id,
        "contract": made.contract,
        "encrypted": made.chosen.is_some(),
        "recipients": recipients_value(made.chosen.as_ref()),
        "identity_made": identity_value(made.chosen.as_ref()),
    })
}

/// Says what was imported.
pub fn imported_text(imported: &Imported, width: Option<u16>) -> String {
    let path = text::safe_line(&imported.path.display().to_string());
    let done = if imported.was_there {
        format!("{} {path} holds these secrets already", text::good("nothing to do:"))
    } else {
        format!("{} the secrets of the cluster, in {path}", text::good("imported"))
    };
    let form = imported.form().words();
    let source = text::safe_line(&imported.found.shown);
    let id = text::safe_line(&imported.found.bundle.cluster_id);
    let contract = imported.contract;
    format!(
        "{done}\n{}{}read from {source}, {form}\ncluster id {id}, contract {contract}\n\n{}",
        aside_text(&imported.aside),
        chosen_text(imported.chosen.as_ref()),
        authorities(&imported.authorities, width)
    )
}

/// Returns what was imported, for programs.
pub fn imported_value(cluster: &str, imported: &Imported) -> Value {
    json!({
        "cluster": cluster,
        "path": envelope::path(&imported.path),
        "was_there": imported.was_there,
        "put_aside": paths(&imported.aside),
        "read_as": imported.form().words(),
        "recipients": recipients_value(imported.chosen.as_ref()),
        "identity_made": identity_value(imported.chosen.as_ref()),
        "cluster_id": imported.found.bundle.cluster_id,
        "contract": imported.contract,
        "authorities": imported.authorities.iter().map(authority_value).collect::<Vec<_>>(),
    })
}

/// Says what came back.
pub fn restored_text(restored: &Restored<'_>) -> String {
    let path = text::safe_line(&restored.path.display().to_string());
    let id = text::safe_line(&restored.cluster_id);
    if restored.was_there {
        return format!(
            "{} the secrets in {path} are whole\ncluster id {id}\n",
            text::good("nothing to do:")
        );
    }
    let past = text::safe_line(restored.past.named().trim_end_matches(','));
    format!(
        "{} the secrets of the cluster, in {path}\nfrom {past}\n{}cluster id {id}\n",
        text::good("brought back"),
        aside_text(&restored.aside),
    )
}

/// Says where things are now that were in the way.
fn aside_text(aside: &[PathBuf]) -> String {
    let line = |path: &PathBuf| {
        format!("what was there before is in {}\n", text::safe_line(&path.display().to_string()))
    };
    aside.iter().map(line).collect()
}

fn paths(all: &[PathBuf]) -> Vec<Value> {
    all.iter().map(|path| json!(envelope::path(path))).collect()
}

/// Returns what came back, for programs.
pub fn restored_value(cluster: &str, restored: &Restored<'_>) -> Value {
    json!({
        "cluster": cluster,
        "path": envelope::path(&restored.path),
        "was_there": restored.was_there,
        "generation": one_past(restored.past),
        "cluster_id": restored.cluster_id,
        "put_aside": paths(&restored.aside),
    })
}

/// Shows generations, the newest first.
pub fn past_text(all: &[Past], width: Option<u16>) -> String {
    if all.is_empty() {
        return "the store has no generation yet\n".into();
    }
    let mut table = Table::new(["NO", "AT", "WHO", "SECRETS", "CLUSTER ID"]).numbers([0]);
    for past in all {
        let of = |part: fn(&Written) -> &String| past.written.as_ref().map(part).cloned().unwrap_or_default();
        let id = past.secrets.sound().map(|sound| sound.fingerprint.cluster_id.clone()).unwrap_or_default();
        let words = past.secrets.words().to_owned();
        table.row([past.number.to_string(), of(|it| &it.at), of(|it| &it.by), words, id]);
    }
    table.render(width)
}

/// Returns generations, for programs.
pub fn past_value(cluster: &str, all: &[Past]) -> Value {
    json!({ "cluster": cluster, "generations": all.iter().map(one_past).collect::<Vec<_>>() })
}

fn one_past(past: &Past) -> Value {
    let written = past.written.as_ref();
    json!({
        "number": past.number,
        "at": written.map(|it| &it.at),
        "by": written.map(|it| &it.by),
        "secrets": past.secrets.words(),
        "cluster_id": past.secrets.sound().map(|sound| &sound.fingerprint.cluster_id),
    })
}

/// Says what is kept of each cluster.
pub fn kept_text(all: &[(String, Kept)], width: Option<u16>) -> String {
    let blocks: Vec<String> = all.iter().map(|(name, kept)| one_text(name, kept, width)).collect();
    blocks.join("\n")
}

fn one_text(name: &str, kept: &Kept, width: Option<u16>) -> String {
    let recorded = if kept.recorded { "recorded" } else { "not recorded: set `cluster.contract`" };
    let encrypted = match &kept.recipients {
        Some(recipients) => format!("to {}", text::safe_line(&recipients.join(", "))),
        None => "no".to_owned(),
    };
    let lines = [
        ("kept in", text::safe_line(&kept.shown)),
        ("encrypted", encrypted),
        ("cluster id", text::safe_line(&kept.cluster_id)),
        ("contract", format!("{} ({recorded})", kept.contract)),
        ("service accounts", kept.service_account.clone()),
        ("etcd encryption", kept.encryption.to_owned()),
    ];
    let lines: String = lines.iter().map(|(key, value)| format!("  {key:<17} {value}\n")).collect();
    format!("{}\n{lines}\n{}", text::bold(name), authorities(&kept.authorities, width))
}

/// Returns what is kept of a cluster, for programs.
pub fn kept_value((name, kept): &(String, Kept)) -> Value {
    json!({
        "cluster": name,
        "path": kept.shown,
        "encrypted": kept.recipients.is_some(),
        "recipients": kept.recipients,
        "cluster_id": kept.cluster_id,
        "contract": kept.contract,
        "contract_recorded": kept.recorded,
        "service_account": { "algorithm": kept.service_account },
        "etcd_encryption": kept.encryption,
        "authorities": kept.authorities.iter().map(authority_value).collect::<Vec<_>>(),
    })
}

fn authorities(list: &[Authority], width: Option<u16>) -> String {
    let mut table = Table::new(["AUTHORITY", "KEY", "ENDS", "SHA-256"]);
    for authority in list {
        let Authority { name, algorithm, sha256, ends, .. } = authority;
        table.row([(*name).to_owned(), algorithm.clone(), ends.to_string(), sha256.clone()]);
    }
    table.render(width)
}

fn authority_value(authority: &Authority) -> Value {
    json!({
        "name": authority.name,
        "algorithm": authority.algorithm,
        "sha256": authority.sha256,
        "begins": authority.begins.to_string(),
        "ends": authority.ends.to_string(),
    })
}
