//! Selectors of labels and fields.

use serde_json::Value;

use super::{
    kinds::Resource,
    status::Failure,
    value::{label, list, text},
};

/// A requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Requirement {
    /// The label is there with one of these values.
    In(String, Vec<String>),
    /// The label is not there, or with none of these values.
    NotIn(String, Vec<String>),
    /// The label is there.
    Exists(String),
    /// The label is not there.
    Absent(String),
    /// The label is a number above this one.
    Above(String, i64),
    /// The label is a number below this one.
    Below(String, i64),
}

impl Requirement {
    fn holds(&self, of: impl Fn(&str) -> Option<String>) -> bool {
        match self {
            Self::In(key, values) => of(key).is_some_and(|value| values.contains(&value)),
            Self::NotIn(key, values) => of(key).is_none_or(|value| !values.contains(&value)),
            Self::Exists(key) => of(key).is_some(),
            Self::Absent(key) => of(key).is_none(),
            Self::Above(key, limit) => {
                of(key).and_then(|value| value.parse().ok()).is_some_and(|n: i64| n > *limit)
            }
            Self::Below(key, limit) => {
                of(key).and_then(|value| value.parse().ok()).is_some_and(|n: i64| n < *limit)
            }
        }
    }
}

/// A selector of labels: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Labels(pub Vec<Requirement>);

impl Labels {
    /// Reads a selector as queries have it: `a=b,c in (d,e),!f`.
    pub fn parse(query: &str) -> Result<Self, Failure> {
        let wrong =
            || Failure::bad_request(format!("unable to parse requirement: invalid label selector {query:?}"));
        let mut requirements = Vec::new();
        for part in split_outside_brackets(query) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            requirements.push(parse_requirement(part).ok_or_else(wrong)?);
        }
        Ok(Self(requirements))
    }

    /// Reads a selector as objects have it: `matchLabels` and `matchExpressions`.
    pub fn of(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                requirements
                    .push(Requirement::In(key.clone(), vec![value.as_str().unwrap_or_default().into()]));
            }
        }
        requirements.extend(expressions(list(selector, "/matchExpressions")));
        Self(requirements)
    }

    /// Reads a map of labels, as services and node selectors have it.
    pub fn of_map(map: Option<&Value>) -> Self {
        let map = map.and_then(Value::as_object);
        let pairs = map.into_iter().flatten();
        Self(
            pairs
                .map(|(key, value)| {
                    Requirement::In(key.clone(), vec![value.as_str().unwrap_or_default().into()])
                })
                .collect(),
        )
    }

    /// Whether an object fits.
    pub fn fit(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| requirement.holds(|key| label(object, key).map(Into::into)))
    }
}

/// Reads expressions with `key`, `operator` and `values`.
pub fn expressions(expressions: &[Value]) -> Vec<Requirement> {
    let read = |expression: &Value| {
        let key = text(expression, "/key").to_owned();
        let values: Vec<String> =
            list(expression, "/values").iter().filter_map(Value::as_str).map(Into::into).collect();
        let first = values.first().and_then(|value| value.parse().ok()).unwrap_or(0);
        match text(expression, "/operator") {
            "In" => Requirement::In(key, values),
            "NotIn" => Requirement::NotIn(key, values),
            "DoesNotExist" => Requirement::Absent(key),
            "Gt" => Requirement::Above(key, first),
            "Lt" => Requirement::Below(key, first),
            _ => Requirement::Exists(key),
        }
    };
    expressions.iter().map(read).collect()
}

/// Whether a node fits a term of a node selector.
pub fn node_fits_term(node: &Value, term: &Value) -> bool {
    let by_label = expressions(list(term, "/matchExpressions"));
    let by_field = expressions(list(term, "/matchFields"));
    by_label.iter().all(|requirement| requirement.holds(|key| label(node, key).map(Into::into)))
        && by_field.iter().all(|requirement| {
            requirement.holds(|key| (key == "metadata.name").then(|| text(node, "/metadata/name").into()))
        })
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    if let Some(key) = part.strip_prefix('!') {
        return is_key(key.trim()).then(|| Requirement::Absent(key.trim().into()));
    }
    if let Some(open) = part.find('(') {
        let values = part[open + 1..].strip_suffix(')')?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = part[..open].split_whitespace();
        let (key, operator) = (words.next()?, words.next()?);
        let key = is_key(key).then(|| key.to_owned())?;
        return match (operator, words.next()) {
            ("in", None) => Some(Requirement::In(key, values)),
            ("notin", None) => Some(Requirement::NotIn(key, values)),
            _ => None,
        };
    }
    for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = part.split_once(sign) {
            let (key, value) = (key.trim(), value.trim().to_owned());
            if !is_key(key) || value.contains(['=', ' ']) {
                return None;
            }
            let (key, values) = (key.to_owned(), vec![value]);
            return Some(if equal { Requirement::In(key, values) } else { Requirement::NotIn(key, values) });
        }
    }
    if let Some((key, limit)) = part.split_once('>') {
        return Some(Requirement::Above(key.trim().into(), limit.trim().parse().ok()?));
    }
    if let Some((key, limit)) = part.split_once('<') {
        return Some(Requirement::Below(key.trim().into(), limit.trim().parse().ok()?));
    }
    is_key(part).then(|| Requirement::Exists(part.into()))
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

/// A selector of fields: pairs of path and value, and whether they are to be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fields(Vec<(String, String, bool)>);

impl Fields {
    /// Reads a selector, and refuses fields that a kind cannot be selected by.
    pub fn parse(query: &str, resource: &Resource) -> Result<Self, Failure> {
        let mut pairs = Vec::new();
        for part in query.split(',').filter(|part| !part.is_empty()) {
            let pair = [("!=", false), ("==", true), ("=", true)]
                .into_iter()
                .find_map(|(sign, equal)| part.split_once(sign).map(|(field, value)| (field, value, equal)));
            let Some((field, value, equal)) = pair else {
                return Err(Failure::bad_request(format!(
                    "invalid selector: '{part}'; can't understand '{part}'"
                )));
            };
            if !selectable(resource, field) {
                return Err(Failure::bad_request(format!("field label not supported: {field}")));
            }
            pairs.push((field.into(), value.replace("\\,", ",").replace("\\=", "="), equal));
        }
        Ok(Self(pairs))
    }

    /// Whether an object fits.
    pub fn fit(&self, object: &Value) -> bool {
        self.0.iter().all(|(field, value, equal)| (field_text(object, field) == *value) == *equal)
    }
}

fn selectable(resource: &Resource, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) {
        return true;
    }
    let extra: &[&str] = match resource.key().as_str() {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "services" => &["spec.clusterIP", "spec.type"],
        "replicasets.apps" | "replicationcontrollers" => &["status.replicas"],
        "jobs.batch" => &["status.successful"],
        "certificatesigningrequests.certificates.k8s.io" => &["spec.signerName"],
        _ => &[],
    };
    extra.contains(&field)
}

fn field_text(object: &Value, field: &str) -> String {
    let pointer = format!("/{}", field.replace('.', "/"));
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if field.ends_with("unschedulable") || field.ends_with("hostNetwork") => {
            "false".into()
        }
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_choose_as_kubernetes_does() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front", "size": "5"}}});
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=back", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("!missing", true),
            ("missing", false),
            ("missing!=x", true),
            ("size>4,size<6", true),
            ("size>5", false),
        ];
        for (query, fits) in cases {
            assert_eq!(Labels::parse(query).unwrap().fit(&object), fits, "{query}");
        }
        for wrong in ["a=b=c", "app in (", "app within (x)", "a b", "=x"] {
            assert!(Labels::parse(wrong).is_err(), "{wrong}");
        }
    }
}
