//! The JSON Schema of inventories, for editors.

use serde_json::Value;

use crate::inventory::{
    Boot, Cluster, Endpoint, Image, Inventory, Machine, Network, Os, Placement, Proxmox, Storage,
};

/// Returns the JSON Schema of an inventory, made from the types that read it.
pub fn json_schema() -> Value {
    let mut schema = schemars::schema_for!(Inventory).to_value();
    if let Value::Object(object) = &mut schema {
        object.insert("title".into(), "ichor inventory".into());
        let files = "One cluster, or a part of it: in a directory, `cluster.yaml`, `nodes.yaml` and `defaults.yaml` share this schema.";
        object.insert("$comment".into(), files.into());
    }
    point_at_records(&mut schema);
    schema
}

/// Makes `anyOf: [record, null]` the record alone. Editors complete keys through a plain reference and
/// say which key is wrong, where a choice only lets them say that no alternative fits.
fn point_at_records(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let record =
                object.get("anyOf").and_then(Value::as_array).and_then(|choices| match choices.as_slice() {
                    [record, null] if null["type"] == "null" => record.get("$ref").cloned(),
                    _ => None,
                });
            if let Some(record) = record {
                object.shift_remove("anyOf");
                object.insert("$ref".into(), record);
            }
            object.values_mut().for_each(point_at_records);
        }
        Value::Array(list) => list.iter_mut().for_each(point_at_records),
        _ => {}
    }
}

/// Returns the section that a misplaced key belongs to.
pub fn home_of(key: &str) -> Option<&'static str> {
    const HOMES: &[(&str, &[&str])] = &[
        ("cluster", Cluster::KEYS),
        ("cluster.endpoint", Endpoint::KEYS),
        ("proxmox", Proxmox::KEYS),
        ("placement", Placement::KEYS),
        ("network", Network::KEYS),
        ("image", Image::KEYS),
        ("boot", Boot::KEYS),
        ("os", Os::KEYS),
        ("proxmox.storage", Storage::KEYS),
        ("machines.NAME", Machine::KEYS),
    ];
    HOMES.iter().find(|(_, keys)| keys.contains(&key)).map(|(home, _)| *home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_offers_only_keys_that_can_be_written() {
        let text = json_schema().to_string();
        assert!(text.contains("\"schedule_on_control_planes\"") && !text.contains("\"unread\""));
    }
}
