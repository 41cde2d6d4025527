//! What a refusal of the API server means.

use std::{fmt, time::Duration};

use ichor_port::{Response, clean};
use serde::Deserialize;
use serde_json::Value;

use crate::read::{cleaned, cleaned_some, or_default};

/// Most causes that are read.
const MOST_CAUSES: usize = 100;
/// Longest wait that a server can ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Most bytes of a text that are looked at.
const MAX_BYTES: usize = 16 * 1024;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// One word for programs, such as `NotFound`; empty if there is none.
    pub reason: String,
    /// What the server says, cleaned of control characters.
    pub message: String,
    /// What it is about, such as `nodes "cp-1"`.
    pub about: Option<String>,
    /// What is wrong in detail.
    pub causes: Vec<Cause>,
    /// After which time it wants to be asked again.
    pub retry_after: Option<Duration>,
    /// What it means.
    pub kind: Kind,
}

/// A cause of a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// One word for programs, such as `FieldValueInvalid`.
    #[serde(deserialize_with = "cleaned")]
    pub reason: String,
    /// What is wrong.
    #[serde(deserialize_with = "cleaned")]
    pub message: String,
    /// Where.
    #[serde(deserialize_with = "cleaned")]
    pub field: String,
}

/// A field that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// Who.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
}

impl fmt::Display for FieldConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` belongs to `{}`", self.field, self.manager)
    }
}

/// What a refusal means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was asked for is not there.
    Missing,
    /// Something is there already.
    Exists,
    /// Somebody has changed the object in between, or it is another one by now.
    Conflict,
    /// Somebody else owns fields that were to be applied.
    FieldsOwned,
    /// A disruption budget does not allow an eviction now.
    BudgetSpent,
    /// The server has too much to do: the same call may succeed later.
    Busy,
    /// What the caller has seen is too long ago: it must list again.
    Expired,
    /// The caller is not known.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// The object is wrong, or the request.
    Invalid,
    /// The server could not complete the call: whether it had an effect is not known.
    Broken,
    /// Something else.
    Other,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "cleaned")]
    message: String,
    #[serde(deserialize_with = "cleaned")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    details: Details,
    #[serde(deserialize_with = "or_default")]
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    #[serde(deserialize_with = "cleaned_some")]
    name: Option<String>,
    #[serde(deserialize_with = "cleaned_some")]
    kind: Option<String>,
    #[serde(deserialize_with = "or_default")]
    causes: Vec<Cause>,
    retry_after_seconds: Option<u64>,
}

impl Refusal {
    /// Reads an answer that is no success. What stands before an API server may write anything.
    pub fn read(response: &Response) -> Self {
        let header = response.headers.iter().find(|(name, _)| name == "retry-after");
        let wait = header.and_then(|(_, seconds)| seconds.trim().parse().ok());
        match serde_json::from_slice::<Status>(&response.body) {
            Ok(status) if !status.message.is_empty() || !status.reason.is_empty() => {
                Self::of(response.status, status, wait)
            }
            _ => {
                let body = &response.body[..response.body.len().min(MAX_BYTES)];
                let text =
                    String::from_utf8_lossy(if body.is_empty() { response.reason.as_bytes() } else { body });
                let status = Status { message: clean(&text), ..Status::default() };
                Self::of(response.status, status, wait)
            }
        }
    }

    /// Reads a refusal in the middle of a watch; nothing if the object is none.
    pub(crate) fn in_watch(object: &Value) -> Option<Self> {
        let status = Status::deserialize(object).ok()?;
        Some(Self::of(status.code, status, None))
    }

    fn of(code: u16, status: Status, wait: Option<u64>) -> Self {
        let Status { message, reason, details, .. } = status;
        let mut causes = details.causes;
        causes.truncate(MOST_CAUSES);
        let about = details.kind.zip(details.name).map(|(kind, name)| format!("{kind} \"{name}\""));
        let retry_after = details.retry_after_seconds.or(wait).map(Duration::from_secs);
        let kind = kind(code, &reason, &causes);
        let retry_after = retry_after.map(|wait| wait.min(LONGEST_WAIT));
        Self { status: code, reason, message, about, causes, retry_after, kind }
    }

    /// Returns who owns which of the fields that were to be applied.
    pub fn conflicts(&self) -> Vec<FieldConflict> {
        let owned = self.causes.iter().filter(|cause| cause.reason == OWNED);
        owned
            .map(|cause| FieldConflict {
                manager: quoted(&cause.message).unwrap_or(&cause.message).to_owned(),
                field: cause.field.clone(),
            })
            .collect()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubernetes answered {}: {}", self.status, self.message)?;
        for cause in self.causes.iter().filter(|cause| !self.message.contains(&cause.message)) {
            write!(f, "; {}", cause.message)?;
        }
        Ok(())
    }
}

/// Other owners are named as in `conflict with "kubectl" using v1`.
const OWNED: &str = "FieldManagerConflict";

fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1).filter(|name| !name.is_empty())
}

fn kind(code: u16, reason: &str, causes: &[Cause]) -> Kind {
    let caused_by = |word: &str| causes.iter().any(|cause| cause.reason == word);
    match (code, reason) {
        (_, "AlreadyExists") => Kind::Exists,
        (409, _) if caused_by(OWNED) => Kind::FieldsOwned,
        (409, _) => Kind::Conflict,
        (429, _) if caused_by("DisruptionBudget") => Kind::BudgetSpent,
        (429, _) => Kind::Busy,
        (404, _) => Kind::Missing,
        (410, _) => Kind::Expired,
        (401, _) => Kind::Unauthenticated,
        (403, _) => Kind::Forbidden,
        (400 | 405 | 406 | 413 | 415 | 422, _) => Kind::Invalid,
        // A server that shuts down or has lost its etcd may have begun.
        (500..=599, _) => Kind::Broken,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(status: u16, body: &str) -> Refusal {
        let reason = "Reason".into();
        let headers = vec![("retry-after".into(), "7".into())];
        Refusal::read(&Response { status, reason, headers, body: body.into() })
    }

    fn of(code: u16, reason: &str, causes: &Value) -> Refusal {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m",
            "reason": reason, "details": {"name": "web", "kind": "pods", "causes": causes}, "code": code});
        refusal(code, &body.to_string())
    }

    #[test]
    fn two_refusals_with_one_status_are_told_apart() {
        assert_eq!(of(409, "AlreadyExists", &json!([])).kind, Kind::Exists);
        assert_eq!(of(409, "Conflict", &json!([])).kind, Kind::Conflict);
        assert_eq!(of(409, "Conflict", &json!([{"reason": "FieldManagerConflict"}])).kind, Kind::FieldsOwned);
        assert_eq!(
            of(429, "TooManyRequests", &json!([{"reason": "DisruptionBudget"}])).kind,
            Kind::BudgetSpent
        );
        assert_eq!(of(429, "TooManyRequests", &Value::Null).kind, Kind::Busy);
        assert_eq!(of(410, "Expired", &json!([])).kind, Kind::Expired);
        assert_eq!(of(500, "InternalError", &json!([])).kind, Kind::Broken);
    }

    #[test]
    fn owners_of_fields_are_named() {
        let causes = json!([
            {"reason": "FieldManagerConflict", "message": "conflict with \"helm\" using apps/v1", "field": ".spec.replicas"},
            {"reason": "FieldManagerConflict", "message": "conflict with unknown", "field": ".spec.paused"},
            {"reason": "Other", "message": "x", "field": ".y"}]);
        let conflicts: Vec<String> =
            of(409, "Conflict", &causes).conflicts().iter().map(ToString::to_string).collect();
        assert_eq!(
            conflicts,
            ["`.spec.replicas` belongs to `helm`", "`.spec.paused` belongs to `conflict with unknown`"]
        );
    }

    #[test]
    fn what_it_says_is_shown_with_its_causes() {
        let causes = json!([{"reason": "DisruptionBudget", "message": "The budget needs\n2 pods"}]);
        let refusal = of(429, "TooManyRequests", &causes);
        assert_eq!(refusal.to_string(), "Kubernetes answered 429: m; The budget needs 2 pods");
        assert_eq!(refusal.about.as_deref(), Some("pods \"web\""));
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn strange_bodies_are_text_within_bounds() {
        assert_eq!(refusal(503, "").message, "Reason");
        assert_eq!(refusal(502, "<html>\u{1b}[2J bad gateway").message, "<html> [2J bad gateway");
        assert_eq!(refusal(500, r#"{"message": 7}"#).message, r#"{"message": 7}"#);
        assert_eq!(refusal(500, r#""text""#).kind, Kind::Broken);
        assert!(refusal(500, &"x".repeat(1 << 20)).message.len() <= 2_000);
        let many = json!(vec![json!({"reason": "a", "message": "b"}); 5_000]);
        assert_eq!(of(422, "Invalid", &many).causes.len(), MOST_CAUSES);
        let nested = "[".repeat(100_000);
        assert_eq!(refusal(400, &nested).kind, Kind::Invalid);
    }
}
