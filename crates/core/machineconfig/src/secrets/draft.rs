//! A bundle whose parts have been found, but not yet judged.

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_model::Problem;
use zeroize::Zeroizing;

use super::{Bundle, Encryption, Flaw, Flaws, SecretText, token};
use crate::{
    pki::{Algorithm, Authority, Certificate, PrivateKey, Timestamp},
    tree::{Kind, Node},
};

/// What Talos writes in place of a secret when it shows a config to somebody who may not see it.
const REDACTED: &str = "******";

/// Where a part was found, or where it should have been.
pub struct Slot<'t> {
    /// The keys that lead there.
    pub path: String,
    /// The value, if there is one.
    pub value: Option<&'t Node>,
    /// How keys and certificates are written there.
    pub form: Form,
}

/// How keys and certificates are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As base64 of PEM text.
    Base64,
    /// As PEM text.
    Plain,
}

/// An authority's certificate and key.
pub struct Pair<'t> {
    /// The certificate.
    pub certificate: Slot<'t>,
    /// The key.
    pub key: Slot<'t>,
}

/// All parts of a bundle.
pub struct Draft<'t> {
    /// The cluster's public name for discovery.
    pub cluster_id: Slot<'t>,
    /// The key that discovery data are encrypted with.
    pub cluster_secret: Slot<'t>,
    /// What kubelets join with.
    pub bootstrap_token: Slot<'t>,
    /// The key of etcd's data, new style.
    pub secretbox: Slot<'t>,
    /// The key of etcd's data, old style.
    pub aescbc: Slot<'t>,
    /// What machines get their certificates with.
    pub trustd_token: Slot<'t>,
    /// Signs etcd's certificates.
    pub etcd: Pair<'t>,
    /// Signs Kubernetes' certificates.
    pub kubernetes: Pair<'t>,
    /// Signs the aggregation layer's certificates.
    pub aggregator: Pair<'t>,
    /// Signs service-account tokens.
    pub service_account: Slot<'t>,
    /// Signs the Talos API's certificates.
    pub os: Pair<'t>,
}

impl Draft<'_> {
    /// Judges every part, and returns the bundle or everything that is wrong.
    pub fn finish(self, now: Option<Timestamp>, flaws: Vec<Flaw>) -> Result<Bundle, Flaws> {
        let mut judge = Judge { now, flaws };
        let cluster_id = judge.identifier(&self.cluster_id);
        let cluster_secret = judge.secret_key(&self.cluster_secret, &[32]);
        let bootstrap_token = judge.bootstrap_token(&self.bootstrap_token);
        let encryption = judge.encryption(&self.secretbox, &self.aescbc);
        let trustd_token = judge.word(&self.trustd_token);
        let etcd = judge.authority(&self.etcd);
        let kubernetes = judge.authority(&self.kubernetes);
        let aggregator = judge.authority(&self.aggregator);
        let service_account = judge.service_account(&self.service_account);
        let os = judge.authority(&self.os);
        let bundle = (|| {
            Some(Bundle {
                cluster_id: cluster_id?,
                cluster_secret: cluster_secret?,
                bootstrap_token: bootstrap_token?,
                encryption: encryption?,
                trustd_token: trustd_token?,
                etcd: etcd?,
                kubernetes: kubernetes?,
                aggregator: aggregator?,
                service_account: service_account?,
                os: os?,
            })
        })();
        Flaws::or(judge.flaws, bundle)
    }
}

/// Collects what is wrong while parts are read.
struct Judge {
    now: Option<Timestamp>,
    flaws: Vec<Flaw>,
}

impl Judge {
    fn flaw(&mut self, slot: &Slot<'_>, problem: Problem) {
        self.flaws.push(Flaw::new(&slot.path, slot.value.map(|node| node.line), problem));
    }

    /// Keeps a value, or the problem with it.
    fn keep<T>(&mut self, slot: &Slot<'_>, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.flaw(slot, problem)).ok()
    }

    /// Returns the text of a part that must be there.
    fn text<'t>(&mut self, slot: &Slot<'t>) -> Option<&'t str> {
        self.keep(slot, text(slot))
    }

    /// The id is never decoded by anybody: older releases of Talos write URL-safe base64, newer ones
    /// standard base64, and people whatever they like.
    fn identifier(&mut self, slot: &Slot<'_>) -> Option<String> {
        let text = self.text(slot)?;
        self.keep(slot, one_word(text)).map(|()| text.to_owned())
    }

    fn word(&mut self, slot: &Slot<'_>) -> Option<SecretText> {
        let text = self.text(slot)?;
        self.keep(slot, one_word(text)).map(|()| SecretText::new(text))
    }

    fn bootstrap_token(&mut self, slot: &Slot<'_>) -> Option<SecretText> {
        let text = self.text(slot)?;
        self.keep(slot, token::check(text)).map(|()| SecretText::new(text))
    }

    /// Reads base64 of a key that has one of a few sizes.
    fn secret_key(&mut self, slot: &Slot<'_>, sizes: &[usize]) -> Option<SecretText> {
        let text = self.text(slot)?;
        let decoded = STANDARD.decode(text).map(Zeroizing::new);
        let fits = decoded.is_ok_and(|key| sizes.contains(&key.len()));
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let checked = fits.then_some(()).ok_or_else(|| {
            Problem::new(
                format!("is not standard base64 of {} bytes, on one line", sizes.join(" or ")),
                "take the value from the cluster's backup",
            )
        });
        self.keep(slot, checked).map(|()| SecretText::new(text))
    }

    fn encryption(&mut self, secretbox: &Slot<'_>, aescbc: &Slot<'_>) -> Option<Encryption> {
        match (secretbox.value, aescbc.value) {
            (Some(_), None) => self.secret_key(secretbox, &[32]).map(Encryption::Secretbox),
            (None, Some(_)) => self.secret_key(aescbc, &[16, 24, 32]).map(Encryption::AesCbc),
            (Some(_), Some(_)) => {
                let problem = Problem::new(
                    format!("and `{}` are both set, and only one may be", aescbc.path),
                    "keep the one that etcd's data are encrypted with",
                );
                self.flaw(secretbox, problem);
                None
            }
            (None, None) => {
                let problem = Problem::new(
                    format!("and `{}` are both missing, and one is needed", aescbc.path),
                    "take the value from the cluster's backup",
                );
                self.flaw(secretbox, problem);
                None
            }
        }
    }

    /// Returns PEM text, decoded if it is written as base64.
    fn pem(&mut self, slot: &Slot<'_>) -> Option<Zeroizing<String>> {
        let text = self.text(slot)?;
        match slot.form {
            Form::Plain => Some(Zeroizing::new(text.into())),
            Form::Base64 => self.keep(slot, decode_pem(text)),
        }
    }

    fn key(&mut self, slot: &Slot<'_>) -> Option<PrivateKey> {
        let pem = self.pem(slot)?;
        self.keep(slot, PrivateKey::from_pem(&pem))
    }

    fn certificate(&mut self, slot: &Slot<'_>) -> Option<Certificate> {
        let pem = self.pem(slot)?;
        self.keep(slot, Certificate::from_pem(&pem))
    }

    fn authority(&mut self, pair: &Pair<'_>) -> Option<Authority> {
        let certificate = self.certificate(&pair.certificate);
        let key = self.key(&pair.key);
        if let Some(certificate) = &certificate {
            self.keep(&pair.certificate, certificate.check_authority());
            if let Some(now) = self.now {
                self.keep(&pair.certificate, certificate.check_validity(now));
            }
        }
        let (certificate, key) = (certificate?, key?);
        self.keep(&pair.key, certificate.check_key(&key))?;
        Authority::new(certificate, key).ok()
    }

    /// Kubernetes signs tokens with RSA or ECDSA only.
    fn service_account(&mut self, slot: &Slot<'_>) -> Option<PrivateKey> {
        let key = self.key(slot)?;
        let checked = match key.algorithm() {
            Algorithm::Rsa(_) | Algorithm::Ecdsa(_) => Ok(()),
            Algorithm::Ed25519 => Err(Problem::new(
                "is an Ed25519 key, with which Kubernetes cannot sign service-account tokens",
                "give the RSA or ECDSA key of the API server's `service-account-signing-key-file`",
            )),
        };
        self.keep(slot, checked).map(|()| key)
    }
}

fn text<'t>(slot: &Slot<'t>) -> Result<&'t str, Problem> {
    let remedy =
        "take the value from the cluster's backup, or import it from a control plane's machine config";
    let Some(node) = slot.value else { return Err(Problem::new("is missing", remedy)) };
    match &node.kind {
        Kind::Text(text) if text.as_str() == REDACTED => Err(Problem::new(
            "is redacted: the secret was left out when the file was written",
            "use the original file, or one read with the right to see secrets",
        )),
        Kind::Text(text) if text.is_empty() => Err(Problem::new("is empty", remedy)),
        Kind::Text(text) => Ok(text),
        _ => Err(Problem::new(format!("is {}, not text", node.kind_word()), remedy)),
    }
}

fn one_word(text: &str) -> Result<(), Problem> {
    let plain = text.len() <= 1024 && text.bytes().all(|b| b.is_ascii_graphic());
    plain.then_some(()).ok_or_else(|| {
        Problem::new(
            "has spaces or characters beyond ASCII, or is too long",
            "take the value from the cluster's backup",
        )
    })
}

/// Decodes base64 as Go does, which passes over line ends.
fn decode_pem(text: &str) -> Result<Zeroizing<String>, Problem> {
    let joined = Zeroizing::new(text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect::<String>());
    let bytes = STANDARD.decode(joined.as_bytes()).map(Zeroizing::new).map_err(|_| {
        let remedy = if text.starts_with("-----BEGIN ") {
            "encode the PEM text: `base64 -w0 FILE`"
        } else {
            "copy the value again, whole and on one line"
        };
        Problem::new("is not standard base64", remedy)
    })?;
    std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.to_owned())).map_err(|_| {
        Problem::new("is base64, but not of PEM text", "encode the PEM text, not DER: `base64 -w0 FILE`")
    })
}
