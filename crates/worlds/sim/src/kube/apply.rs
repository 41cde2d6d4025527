//! Who owns which field, and server-side apply.

use serde_json::{Map, Value, json};

use super::{
    fields::{FieldSet, Path, erase, lookup, overlay, show},
    shape::Place,
    status::Failure,
    value::{list, set, text},
};
use crate::clock::Time;

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The manager's name.
    pub manager: &'a str,
    /// `apps/v1`.
    pub api_version: &'a str,
    /// `status` or `scale`; empty for the object itself.
    pub subresource: &'a str,
    /// Now.
    pub now: Time,
}

/// A manager and what it owns.
#[derive(Debug, Clone, PartialEq)]
struct Owner {
    entry: Value,
    set: FieldSet,
}

impl Owner {
    fn is(&self, writer: Writer<'_>, operation: &str) -> bool {
        text(&self.entry, "/manager") == writer.manager
            && text(&self.entry, "/operation") == operation
            && text(&self.entry, "/subresource") == writer.subresource
    }

    fn shown(&self) -> String {
        let mut out = format!("\"{}\"", text(&self.entry, "/manager"));
        let subresource = text(&self.entry, "/subresource");
        if !subresource.is_empty() {
            out.push_str(&format!(" with subresource \"{subresource}\""));
        }
        if text(&self.entry, "/operation") == "Update" {
            out.push_str(&format!(" using {}", text(&self.entry, "/apiVersion")));
        }
        out
    }
}

fn owners(object: &Value) -> Vec<Owner> {
    let entries = list(object, "/metadata/managedFields").iter();
    entries
        .map(|entry| Owner {
            entry: entry.clone(),
            set: FieldSet::from_json(entry.get("fieldsV1").unwrap_or(&Value::Null)),
        })
        .collect()
}

fn write_owners(object: &mut Value, owners: Vec<Owner>) {
    let mut entries: Vec<Value> = Vec::new();
    for mut owner in owners {
        if owner.set.0.is_empty() {
            continue;
        }
        owner.entry["fieldsType"] = "FieldsV1".into();
        owner.entry["fieldsV1"] = owner.set.to_json();
        entries.push(owner.entry);
    }
    // As the API server orders them: who applies first, then by time and name.
    entries.sort_by_key(|entry| {
        let updates = text(entry, "/operation") == "Update";
        (updates, text(entry, "/time").to_owned(), text(entry, "/manager").to_owned())
    });
    set(object, &["metadata", "managedFields"], Value::Array(entries));
}

fn entry(writer: Writer<'_>, operation: &str) -> Value {
    let mut entry = json!({
        "manager": writer.manager,
        "operation": operation,
        "apiVersion": writer.api_version,
        "time": super::value::timestamp(writer.now),
    });
    if !writer.subresource.is_empty() {
        entry["subresource"] = writer.subresource.into();
    }
    entry
}

/// Nobody owns what names the object or what the server itself writes.
fn is_owned(path: &Path, subresource: &str, has_status: bool) -> bool {
    let first = path.first().map_or("", String::as_str);
    let second = path.get(1).map_or("", String::as_str);
    let reset = match subresource {
        "status" => first != "f:status" && first != "f:metadata",
        _ => has_status && first == "f:status",
    };
    let fixed = matches!(first, "f:apiVersion" | "f:kind")
        || first == "f:metadata"
            && (path.len() == 1
                || matches!(
                    second,
                    "f:name"
                        | "f:namespace"
                        | "f:uid"
                        | "f:resourceVersion"
                        | "f:generation"
                        | "f:creationTimestamp"
                        | "f:deletionTimestamp"
                        | "f:deletionGracePeriodSeconds"
                        | "f:managedFields"
                        | "f:selfLink"
                        | "f:generateName"
                ));
    !reset && !fixed
}

/// Notes who changed what, after an update or a patch.
pub fn track_update(
    old: Option<&Value>,
    new: &mut Value,
    place: Place<'_>,
    writer: Writer<'_>,
    has_status: bool,
) {
    let empty = Value::Object(Map::new());
    let before = FieldSet::of(old.unwrap_or(&empty), place);
    let after = FieldSet::of(new, place);
    let changed: Vec<Path> = after
        .0
        .iter()
        .filter(|path| is_owned(path, writer.subresource, has_status))
        .filter(|path| {
            let was = old.and_then(|old| lookup(old, place, path));
            // The place of an item was there if the item was; its fields are looked at one by one.
            let item = path.last().is_some_and(|step| step.starts_with("k:"));
            was.is_none() || (!item && was != lookup(new, place, path))
        })
        .cloned()
        .collect();
    let mut owners = owners(old.unwrap_or(&empty));
    let gone: Vec<&Path> = before.0.difference(&after.0).collect();
    let nothing = changed.is_empty() && gone.is_empty();
    if !nothing {
        for owner in &mut owners {
            let own = owner.is(writer, "Update");
            owner.set.keep(|path| !gone.contains(&path) && (own || !changed.contains(path)));
        }
        if !changed.is_empty() {
            match owners.iter_mut().find(|owner| owner.is(writer, "Update")) {
                Some(owner) => {
                    owner.set.0.extend(changed);
                    owner.entry = entry(writer, "Update");
                }
                None => owners
                    .push(Owner { entry: entry(writer, "Update"), set: FieldSet(with_parents(changed)) }),
            }
        }
    }
    write_owners(new, owners);
}

/// Adds the maps of labels and annotations themselves, as an update that makes them owns them.
fn with_parents(changed: Vec<Path>) -> std::collections::BTreeSet<Path> {
    let parents: Vec<Path> = changed
        .iter()
        .filter(|path| {
            let parent = path.len().checked_sub(2).and_then(|at| path.get(at)).map_or("", String::as_str);
            matches!(parent, "f:labels" | "f:annotations" | "f:data")
        })
        .map(|path| path[..path.len() - 1].to_vec())
        .collect();
    changed.into_iter().chain(parents).collect()
}

/// Applies a configuration to an object, or makes one of it.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    place: Place<'_>,
    writer: Writer<'_>,
    (force, has_status): (bool, bool),
) -> Result<Value, Failure> {
    let mut config = config.clone();
    // What the server decides cannot be applied, and neither can what another endpoint writes.
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.shift_remove(key);
        }
    }
    if let Some(map) = config.as_object_mut() {
        match writer.subresource {
            "status" => {
                map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
            }
            _ if has_status => drop(map.shift_remove("status")),
            _ => {}
        }
    }
    let mut wanted = FieldSet::of(&config, place);
    wanted.keep(|path| is_owned(path, writer.subresource, has_status));
    let empty = Value::Object(Map::new());
    let mut owners = owners(live.unwrap_or(&empty));
    if let Some(live) = live {
        settle_conflicts(live, &config, place, writer, &wanted, &mut owners, force)?;
    }
    let mut object = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    overlay(&mut object, &config, place);
    let mine = owners.iter().position(|owner| owner.is(writer, "Apply"));
    if let Some(mine) = mine {
        let dropped: Vec<Path> = owners[mine].set.0.difference(&wanted.0).cloned().collect();
        let others: Vec<&Owner> =
            owners.iter().enumerate().filter(|(at, _)| *at != mine).map(|(_, owner)| owner).collect();
        // An item goes before its fields: without the fields that tell it apart it would not be found.
        for path in &dropped {
            let shared = others.iter().any(|owner| owner.set.0.iter().any(|other| other.starts_with(path)));
            if !shared {
                erase(&mut object, place, path);
            }
        }
    }
    match mine {
        Some(mine) if owners[mine].set == wanted => {}
        Some(mine) => owners[mine] = Owner { entry: entry(writer, "Apply"), set: wanted },
        None => owners.push(Owner { entry: entry(writer, "Apply"), set: wanted }),
    }
    write_owners(&mut object, owners);
    Ok(object)
}

fn settle_conflicts(
    live: &Value,
    config: &Value,
    place: Place<'_>,
    writer: Writer<'_>,
    wanted: &FieldSet,
    owners: &mut [Owner],
    force: bool,
) -> Result<(), Failure> {
    let differs = |path: &Path| {
        let item = path.last().is_some_and(|step| step.starts_with("k:"));
        !item && lookup(live, place, path) != lookup(config, place, path)
    };
    let mut conflicts: Vec<(String, Path)> = Vec::new();
    for owner in owners.iter_mut().filter(|owner| !owner.is(writer, "Apply")) {
        let contested: Vec<Path> =
            owner.set.0.iter().filter(|path| wanted.0.contains(*path) && differs(path)).cloned().collect();
        if force {
            owner.set.keep(|path| !contested.contains(path));
        }
        conflicts.extend(contested.into_iter().map(|path| (owner.shown(), path)));
    }
    if conflicts.is_empty() || force { Ok(()) } else { Err(conflict(&conflicts)) }
}

fn conflict(conflicts: &[(String, Path)]) -> Failure {
    let causes = conflicts.iter().map(|(manager, path)| {
        json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": show(path)})
    });
    let message = match conflicts {
        [(manager, path)] => format!("Apply failed with 1 conflict: conflict with {manager}: {}", show(path)),
        many => {
            let mut managers: Vec<&String> = many.iter().map(|(manager, _)| manager).collect();
            managers.sort();
            managers.dedup();
            let mut lines = Vec::new();
            for manager in managers {
                lines.push(format!("conflicts with {manager}:"));
                lines.extend(
                    many.iter()
                        .filter(|(other, _)| other == manager)
                        .map(|(_, path)| format!("- {}", show(path))),
                );
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    Failure::plain(409, "Conflict", message).with_causes(causes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(manager: &str) -> Writer<'_> {
        Writer { manager, api_version: "apps/v1", subresource: "", now: Time::START }
    }

    fn config(replicas: i64, image: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": replicas, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}}})
    }

    #[test]
    fn a_field_of_another_manager_is_a_conflict_until_forced() {
        let first = apply(None, &config(1, "a"), Place::ROOT, writer("one"), (false, true)).unwrap();
        let same = apply(Some(&first), &config(1, "a"), Place::ROOT, writer("two"), (false, true)).unwrap();
        assert_eq!(list(&same, "/metadata/managedFields").len(), 2, "the same values are owned by both");
        let failure =
            apply(Some(&first), &config(2, "a"), Place::ROOT, writer("two"), (false, true)).unwrap_err();
        assert_eq!(failure.message, "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas");
        let many =
            apply(Some(&first), &config(2, "b"), Place::ROOT, writer("two"), (false, true)).unwrap_err();
        assert_eq!(
            many.message,
            "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.replicas\n- \
             .spec.template.spec.containers[name=\"web\"].image"
        );
        let forced = apply(Some(&first), &config(2, "b"), Place::ROOT, writer("two"), (true, true)).unwrap();
        assert_eq!(forced["spec"]["replicas"], 2);
        let again = apply(Some(&forced), &config(3, "b"), Place::ROOT, writer("two"), (false, true)).unwrap();
        assert_eq!(again["spec"]["replicas"], 3, "what was taken over is owned");
    }

    #[test]
    fn what_is_no_longer_applied_goes_unless_others_own_it() {
        let mut second = config(1, "a");
        second["spec"]["template"]["spec"]["containers"] = json!([{"name": "other", "image": "c"}]);
        let first = apply(None, &config(1, "a"), Place::ROOT, writer("one"), (false, true)).unwrap();
        let both = apply(Some(&first), &second, Place::ROOT, writer("two"), (false, true)).unwrap();
        assert_eq!(list(&both, "/spec/template/spec/containers").len(), 2);
        let mut less = config(1, "a");
        less["spec"].as_object_mut().unwrap().shift_remove("template");
        less["spec"].as_object_mut().unwrap().shift_remove("replicas");
        let left = apply(Some(&both), &less, Place::ROOT, writer("one"), (false, true)).unwrap();
        assert_eq!(left["spec"]["replicas"], 1, "the other manager still wants it");
        let names: Vec<&str> =
            list(&left, "/spec/template/spec/containers").iter().map(|item| text(item, "/name")).collect();
        assert_eq!(names, ["other"]);
    }

    #[test]
    fn an_update_takes_fields_over() {
        let first = apply(None, &config(1, "a"), Place::ROOT, writer("one"), (false, true)).unwrap();
        let mut changed = first.clone();
        changed["spec"]["replicas"] = json!(5);
        track_update(Some(&first), &mut changed, Place::ROOT, writer("kubectl"), true);
        let failure =
            apply(Some(&changed), &config(1, "a"), Place::ROOT, writer("one"), (false, true)).unwrap_err();
        assert_eq!(
            failure.message,
            "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas"
        );
    }
}
