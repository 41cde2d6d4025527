//! Writing `secrets.yaml`, byte for byte as talosctl does.

use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use super::{Bundle, Encryption, SecretText};
use crate::{
    pki::{Authority, PrivateKey},
    scalar::{Dialect, scalar},
};

/// A bundle has about 12 KiB; room for twice that leaves no half-written copies in freed memory.
const CAPACITY: usize = 24 * 1024;

/// Writes a bundle.
pub fn write(bundle: &Bundle) -> SecretText {
    let mut out = Zeroizing::new(String::with_capacity(CAPACITY));
    out.push_str("cluster:\n");
    value(&mut out, 4, "id", &bundle.cluster_id);
    value(&mut out, 4, "secret", bundle.cluster_secret.expose());
    out.push_str("secrets:\n");
    value(&mut out, 4, "bootstraptoken", bundle.bootstrap_token.expose());
    match &bundle.encryption {
        Encryption::Secretbox(secret) => value(&mut out, 4, "secretboxencryptionsecret", secret.expose()),
        Encryption::AesCbc(secret) => value(&mut out, 4, "aescbcencryptionsecret", secret.expose()),
    }
    out.push_str("trustdinfo:\n");
    value(&mut out, 4, "token", bundle.trustd_token.expose());
    out.push_str("certs:\n");
    authority(&mut out, "etcd", &bundle.etcd);
    authority(&mut out, "k8s", &bundle.kubernetes);
    authority(&mut out, "k8saggregator", &bundle.aggregator);
    out.push_str("    k8sserviceaccount:\n");
    key(&mut out, &bundle.service_account);
    authority(&mut out, "os", &bundle.os);
    out.into()
}

fn authority(out: &mut String, name: &str, authority: &Authority) {
    out.push_str(&format!("    {name}:\n"));
    value(out, 8, "crt", &STANDARD.encode(authority.certificate().pem()));
    key(out, authority.key());
}

fn key(out: &mut String, key: &PrivateKey) {
    value(out, 8, "key", &Zeroizing::new(STANDARD.encode(key.pem().expose())));
}

fn value(out: &mut String, column: usize, key: &str, text: &str) {
    let text = Zeroizing::new(scalar(text, column + 4, Dialect::Talos));
    out.push_str(&" ".repeat(column));
    out.push_str(key);
    out.push_str(": ");
    out.push_str(&text);
    out.push('\n');
}
