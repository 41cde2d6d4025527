//! What may be told about secrets: never one of them.

use ichor_ops::secrets::{Authority, Imported, Kept, New};
use serde_json::{Value, json};

use super::{envelope, table::Table, text};

/// Says what was made.
pub fn new_text(made: &New) -> String {
    let contract = made.contract;
    let path = text::safe_line(&made.path.display().to_string());
    format!(
        "{} the secrets of the cluster, in {path}\n\
         machine configs keep the shape of contract {contract}, also when Talos is upgraded\n\
         The file is not encrypted, and nothing can bring it back: make a backup, and keep it to yourself.\n",
        text::good("made"),
    )
}

/// Returns what was made, for programs.
pub fn new_value(cluster: &str, made: &New) -> Value {
    json!({
        "cluster": cluster,
        "path": envelope::path(&made.path),
        "cluster_id": made.cluster_id,
        "contract": made.contract,
        "encrypted": false,
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
        "{done}\nread from {source}, {form}\ncluster id {id}, contract {contract}\n\n{}",
        authorities(&imported.authorities, width)
    )
}

/// Returns what was imported, for programs.
pub fn imported_value(cluster: &str, imported: &Imported) -> Value {
    json!({
        "cluster": cluster,
        "path": envelope::path(&imported.path),
        "was_there": imported.was_there,
        "read_as": imported.form().words(),
        "cluster_id": imported.found.bundle.cluster_id,
        "contract": imported.contract,
        "authorities": imported.authorities.iter().map(authority_value).collect::<Vec<_>>(),
    })
}

/// Says what is kept of each cluster.
pub fn kept_text(all: &[(String, Kept)], width: Option<u16>) -> String {
    let blocks: Vec<String> = all.iter().map(|(name, kept)| one_text(name, kept, width)).collect();
    blocks.join("\n")
}

fn one_text(name: &str, kept: &Kept, width: Option<u16>) -> String {
    let recorded = if kept.recorded { "recorded" } else { "not recorded: set `cluster.contract`" };
    let lines = [
        ("kept in", text::safe_line(&kept.shown)),
        ("encrypted", "no".to_owned()),
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
        "encrypted": false,
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
