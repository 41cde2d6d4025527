//! Requests for certificates.

use ichor_port::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    call::{Call, Content},
    object::{Condition, List, Metadata},
    read::{cleaned, or_default},
    resource::SIGNING_REQUESTS,
};

/// A request for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct SigningRequest {
    /// Its name.
    pub name: String,
    /// The version of the object: an approval is of what was seen.
    pub version: String,
    /// Who asks, such as `system:node:cp-1`.
    pub user: String,
    /// The groups of who asks.
    pub groups: Vec<String>,
    /// Who is to sign, such as `kubernetes.io/kubelet-serving`.
    pub signer: String,
    /// The request: PEM, in base64.
    pub request: String,
    /// Whether somebody has approved it.
    pub approved: bool,
    /// Whether somebody has denied it, or it has failed.
    pub denied: bool,
    /// Whether there is a certificate.
    pub issued: bool,
    /// What an approval must keep.
    conditions: Vec<Value>,
}

impl SigningRequest {
    /// Whether it waits for somebody to decide.
    pub const fn is_pending(&self) -> bool {
        !self.approved && !self.denied
    }
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default, deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "cleaned")]
    username: String,
    #[serde(deserialize_with = "or_default")]
    groups: Vec<String>,
    #[serde(deserialize_with = "cleaned")]
    signer_name: String,
    #[serde(deserialize_with = "or_default")]
    request: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Value>,
    #[serde(deserialize_with = "or_default")]
    certificate: String,
}

impl From<Raw> for SigningRequest {
    fn from(Raw { metadata, spec, status }: Raw) -> Self {
        let holds = |kind: &str| {
            let conditions = status.conditions.iter().filter_map(|it| Condition::deserialize(it).ok());
            conditions.into_iter().any(|condition| condition.kind == kind && condition.holds())
        };
        Self {
            approved: holds("Approved"),
            denied: holds("Denied") || holds("Failed"),
            issued: !status.certificate.is_empty(),
            name: metadata.name,
            version: metadata.resource_version,
            user: spec.username,
            groups: spec.groups,
            signer: spec.signer_name,
            request: spec.request,
            conditions: status.conditions,
        }
    }
}

/// Lists the requests.
pub fn signing_requests() -> Call<List<SigningRequest>> {
    Call::about_all(Method::Get, &SIGNING_REQUESTS, None)
}

/// Approves a request as it was seen: if it has changed since, the server refuses with a conflict. Whoever calls
/// this has made sure that the request is what it says it is.
pub fn approve(request: &SigningRequest, why: &str) -> Call<SigningRequest> {
    let mut conditions = request.conditions.clone();
    conditions.push(json!({"type": "Approved", "status": "True", "reason": "IchorApproved", "message": why}));
    let patch = json!({
        "metadata": {"resourceVersion": request.version},
        "status": {"conditions": conditions},
    });
    Call::about(Method::Patch, &SIGNING_REQUESTS, None, &request.name, Some("approval"))
        .carrying(Content::MergePatch, patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_approved_as_it_was_seen() {
        let mut object = json!({
            "metadata": {"name": "csr-1", "resourceVersion": "9"},
            "spec": {"username": "system:node:w1", "groups": ["system:nodes"], "request": "LS0t",
                "signerName": "kubernetes.io/kubelet-serving", "usages": ["server auth"]},
            "status": {}});
        let request: SigningRequest = serde_json::from_value(object.clone()).expect("a request");
        assert!(request.is_pending() && !request.issued);
        let call = approve(&request, "the machine is ours");
        assert_eq!(call.path, "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1/approval");
        let body = call.body.expect("a body").1;
        assert_eq!(
            (&body["metadata"]["resourceVersion"], &body["status"]["conditions"][0]["type"]),
            (&json!("9"), &json!("Approved"))
        );

        object["status"] = json!({"conditions": [{"type": "Denied", "status": "True"}], "certificate": ""});
        let denied: SigningRequest = serde_json::from_value(object).expect("a request");
        assert!(!denied.is_pending());
    }
}
