//! Failures as the API server words them: objects of the kind `Status`.

use serde_json::{Value, json};

use crate::wire::Response;

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// One word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// What it is about, and causes.
    pub details: Option<Value>,
}

/// Something wrong with a field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// One word for programs, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong with it.
    pub body: String,
    /// Where.
    pub field: String,
}

impl Flaw {
    /// Says that a field is missing.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let body =
            if detail.is_empty() { "Required value".into() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", body, field: field.into() }
    }

    /// Says that a value is wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            body: format!("Invalid value: {value}: {detail}"),
            field: field.into(),
        }
    }

    /// Says that a value is none of the possible ones.
    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let words: Vec<String> = supported.iter().map(|word| format!("\"{word}\"")).collect();
        Self {
            reason: "FieldValueNotSupported",
            body: format!("Unsupported value: {value}: supported values: {}", words.join(", ")),
            field: field.into(),
        }
    }

    /// Says that a value must not be there, or must not change.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { reason: "FieldValueForbidden", body: format!("Forbidden: {detail}"), field: field.into() }
    }
}

/// A resource as messages name it: `deployments.apps`.
pub fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}") }
}

impl Failure {
    /// Returns a failure without details.
    pub fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    /// There is nothing at this path.
    pub fn no_such_path() -> Self {
        Self::plain(404, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    /// The object does not exist.
    pub fn not_found(plural: &str, group: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(plural, group));
        Self::plain(404, "NotFound", message).about(plural, group, name)
    }

    /// The object exists already.
    pub fn already_exists(plural: &str, group: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(plural, group));
        Self::plain(409, "AlreadyExists", message).about(plural, group, name)
    }

    /// The object has changed, or is in a state that does not allow this.
    pub fn conflict(plural: &str, group: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(plural, group));
        Self::plain(409, "Conflict", message).about(plural, group, name)
    }

    /// The caller may not do this.
    pub fn forbidden(plural: &str, group: &str, name: &str, why: &str) -> Self {
        let resource = qualified(plural, group);
        let message = match name {
            "" => format!("{resource} is forbidden: {why}"),
            name => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Self::plain(403, "Forbidden", message).about(plural, group, name)
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// The resource has no such verb.
    pub fn method_not_allowed() -> Self {
        Self::plain(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with(json!({}))
    }

    /// Nobody knows the caller.
    pub fn unauthorized() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// What the caller has seen is too long ago.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// The object has flaws.
    pub fn invalid(kind: &str, group: &str, name: &str, flaws: &[Flaw]) -> Self {
        let mut texts: Vec<String> =
            flaws.iter().map(|flaw| format!("{}: {}", flaw.field, flaw.body)).collect();
        texts.dedup();
        let joined = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = flaws
            .iter()
            .map(|flaw| json!({"reason": flaw.reason, "message": flaw.body, "field": flaw.field}))
            .collect();
        let message = format!("{} \"{name}\" is invalid: {joined}", qualified(kind, group));
        Self::plain(422, "Invalid", message).about(kind, group, name).with_causes(causes)
    }

    /// Says what the failure is about.
    #[must_use]
    pub fn about(self, kind: &str, group: &str, name: &str) -> Self {
        let mut details = json!({});
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details[key] = value.into();
            }
        }
        self.with(details)
    }

    /// Gives details.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Adds causes to the details.
    #[must_use]
    pub fn with_causes(mut self, causes: Vec<Value>) -> Self {
        self.details.get_or_insert_with(|| json!({}))["causes"] = Value::Array(causes);
        self
    }

    /// Adds when to try again to the details.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_with(|| json!({}))["retryAfterSeconds"] = seconds.into();
        self
    }

    /// Returns the object.
    pub fn object(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status["code"] = self.code.into();
        status
    }

    /// Returns the answer.
    pub fn response(&self) -> Response {
        let mut response = json_response(self.code, &self.object());
        let retry = self.details.as_ref().and_then(|details| details.get("retryAfterSeconds"));
        if let Some(seconds) = retry {
            response.headers.push(("retry-after".into(), seconds.to_string()));
        }
        response
    }
}

/// Returns a success that is not an object.
pub fn success(details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Returns an answer of JSON.
pub fn json_response(status: u16, value: &Value) -> Response {
    let mut body = value.to_string().into_bytes();
    body.push(b'\n');
    Response {
        status,
        headers: vec![
            ("content-type".into(), "application/json".into()),
            ("cache-control".into(), "no-cache, private".into()),
        ],
        body,
        ..Response::default()
    }
}

/// Returns an answer of text.
pub fn text_response(status: u16, text: &str) -> Response {
    Response {
        status,
        headers: vec![
            ("content-type".into(), "text/plain; charset=utf-8".into()),
            ("x-content-type-options".into(), "nosniff".into()),
        ],
        body: text.as_bytes().to_vec(),
        ..Response::default()
    }
}
