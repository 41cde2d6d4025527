//! Who calls, and what they may do.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;
use x509_parser::prelude::{FromDer, Pem, X509Certificate};

use super::{
    Cluster,
    status::Failure,
    store::Store,
    value::{list, text},
};
use crate::{clock::Time, wire::Request};

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl User {
    fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }
    }

    /// Whether nobody knows who it is.
    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|other| other == group)
    }
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub enum Wish<'a> {
    /// Something with objects.
    Resource {
        /// The verb, such as `get`.
        verb: &'a str,
        /// The group.
        group: &'a str,
        /// The resource, with its subresource after a slash.
        resource: &'a str,
        /// The namespace.
        namespace: &'a str,
        /// The object.
        name: &'a str,
    },
    /// Something else, by path.
    Path(&'a str, &'a str),
}

/// Says who calls. A certificate that nobody here signed is refused, as is a wrong token.
pub fn authenticate(cluster: &Cluster, now: Time, request: &Request) -> Result<User, Failure> {
    if let Some(der) = &request.client_certificate {
        return certificate_user(&cluster.ca_pem, der, now).ok_or_else(Failure::unauthorized);
    }
    let Some(header) = request.header("authorization") else { return Ok(User::anonymous()) };
    let token = header.strip_prefix("Bearer ").ok_or_else(Failure::unauthorized)?;
    let account = cluster.tokens.get(token.trim()).ok_or_else(Failure::unauthorized)?;
    let (namespace, name) = account.split_once('/').ok_or_else(Failure::unauthorized)?;
    if cluster.store.get("serviceaccounts", namespace, name).is_none() {
        return Err(Failure::unauthorized());
    }
    Ok(User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ],
    })
}

fn certificate_user(ca_pem: &str, der: &[u8], now: Time) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let now = i64::try_from(now.unix_seconds()).ok()?;
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() || now > validity.not_after.timestamp() {
        return None;
    }
    let usage = certificate.extended_key_usage().ok().flatten();
    if usage.is_some_and(|usage| !usage.value.client_auth && !usage.value.any) {
        return None;
    }
    let authorities: Vec<Pem> = Pem::iter_from_buffer(ca_pem.as_bytes()).filter_map(Result::ok).collect();
    let signed = authorities
        .iter()
        .filter_map(|pem| X509Certificate::from_der(&pem.contents).ok())
        .any(|(_, authority)| is_signed_by(&certificate, &authority));
    if !signed {
        return None;
    }
    let subject = certificate.subject();
    let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok())?.to_owned();
    let organizations = subject.iter_organization().filter_map(|name| name.as_str().ok().map(Into::into));
    Some(User { name, groups: organizations.chain(["system:authenticated".to_owned()]).collect() })
}

fn is_signed_by(certificate: &X509Certificate<'_>, authority: &X509Certificate<'_>) -> bool {
    if certificate.issuer().as_raw() != authority.subject().as_raw() {
        return false;
    }
    let key = authority.public_key().subject_public_key.data.as_ref();
    let algorithm: &dyn VerificationAlgorithm =
        match certificate.signature_algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.10045.4.3.2" => &ECDSA_P256_SHA256_ASN1,
            // 97 bytes is an uncompressed point of P-384.
            "1.2.840.10045.4.3.3" if key.len() == 97 => &ECDSA_P384_SHA384_ASN1,
            "1.2.840.10045.4.3.3" => &ECDSA_P256_SHA384_ASN1,
            "1.3.101.112" => &ED25519,
            "1.2.840.113549.1.1.11" => &RSA_PKCS1_2048_8192_SHA256,
            "1.2.840.113549.1.1.13" => &RSA_PKCS1_2048_8192_SHA512,
            _ => return false,
        };
    let signed = certificate.tbs_certificate.as_ref();
    UnparsedPublicKey::new(algorithm, key).verify(signed, &certificate.signature_value.data).is_ok()
}

/// Whether somebody may do something: RBAC, and `system:masters` everything.
pub fn allows(store: &Store, user: &User, wish: Wish<'_>) -> bool {
    if user.is_in("system:masters") {
        return true;
    }
    if let Wish::Path(_, path) = wish
        && is_public(path)
    {
        return true;
    }
    let global = store.list("clusterrolebindings.rbac.authorization.k8s.io", "");
    if global.filter(|binding| binds(binding, user)).any(|binding| role_allows(store, binding, "", wish)) {
        return true;
    }
    let Wish::Resource { namespace, .. } = wish else { return false };
    if namespace.is_empty() {
        return false;
    }
    let local = store.list("rolebindings.rbac.authorization.k8s.io", namespace);
    local.filter(|binding| binds(binding, user)).any(|binding| role_allows(store, binding, namespace, wish))
}

/// Paths that everybody may read (`system:public-info-viewer`).
fn is_public(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    matches!(first, "healthz" | "livez" | "readyz") || matches!(path, "/version" | "/version/")
}

fn binds(binding: &Value, user: &User) -> bool {
    list(binding, "/subjects").iter().any(|subject| {
        let name = text(subject, "/name");
        match text(subject, "/kind") {
            "User" => name == user.name,
            "Group" => user.is_in(name),
            "ServiceAccount" => {
                user.name == format!("system:serviceaccount:{}:{name}", text(subject, "/namespace"))
            }
            _ => false,
        }
    })
}

fn role_allows(store: &Store, binding: &Value, namespace: &str, wish: Wish<'_>) -> bool {
    let name = text(binding, "/roleRef/name");
    let role = match text(binding, "/roleRef/kind") {
        "ClusterRole" => store.get("clusterroles.rbac.authorization.k8s.io", "", name),
        _ => store.get("roles.rbac.authorization.k8s.io", namespace, name),
    };
    role.is_some_and(|role| list(role, "/rules").iter().any(|rule| rule_allows(rule, wish)))
}

fn rule_allows(rule: &Value, wish: Wish<'_>) -> bool {
    let has =
        |pointer: &str, word: &str| list(rule, pointer).iter().any(|known| known == "*" || known == word);
    match wish {
        Wish::Path(verb, path) => {
            has("/verbs", verb)
                && list(rule, "/nonResourceURLs").iter().filter_map(Value::as_str).any(|known| {
                    known.strip_suffix('*').map_or(known == path, |prefix| path.starts_with(prefix))
                })
        }
        Wish::Resource { verb, group, resource, name, .. } => {
            let all_of = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
            let names = list(rule, "/resourceNames");
            has("/verbs", verb)
                && has("/apiGroups", group)
                && (has("/resources", resource) || all_of.is_some_and(|any| has("/resources", &any)))
                && (names.is_empty() || names.iter().any(|known| known == name))
        }
    }
}

/// Refuses what somebody may not do, in the API server's words.
pub fn authorize(store: &Store, user: &User, wish: Wish<'_>) -> Result<(), Failure> {
    if allows(store, user, wish) {
        return Ok(());
    }
    Err(match wish {
        Wish::Path(verb, path) => Failure::plain(
            403,
            "Forbidden",
            format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", user.name),
        )
        .with(serde_json::json!({})),
        Wish::Resource { verb, group, resource, namespace, name } => {
            let place = match namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace \"{namespace}\""),
            };
            let why = format!(
                "User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}",
                user.name
            );
            Failure::forbidden(resource.split('/').next().unwrap_or(resource), group, name, &why)
        }
    })
}
