//! What the configs of a cluster hold and the inventory only names.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Code, Desired, Finding, Findings, SecretRef, SourceId, Span,
    desired::{ManifestContent, PatchContent, RegistryTls, Setting},
};

use super::missing;
use crate::secrets::SecretText;

/// The files and secrets that the machine configs of a cluster need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files, by their path relative to the inventory.
    pub files: BTreeSet<String>,
    /// Secrets.
    pub secrets: BTreeSet<SecretRef>,
}

/// Returns everything that the configs of a cluster name and do not hold. What only add-ons and Proxmox
/// need is not among it.
pub fn needs(desired: &Desired) -> Needs {
    let mut needs = Needs::default();
    for patch in desired.machines.iter().flat_map(|machine| &machine.patches) {
        if let PatchContent::File(path) = &patch.content
            && !needs.files.contains(path)
        {
            needs.files.insert(path.clone());
        }
    }
    needs.files.extend(desired.os.trusted_roots.iter().cloned());
    needs.files.extend(desired.os.registry_tls.values().filter_map(|tls| match tls {
        RegistryTls::Ca(path) => Some(path.clone()),
        RegistryTls::Insecure => None,
    }));
    needs.files.extend(desired.cluster.manifests.iter().filter_map(|manifest| match &manifest.content {
        ManifestContent::File(path) => Some(path.clone()),
        ManifestContent::Url(_) | ManifestContent::Inline(_) => None,
    }));
    needs.secrets.extend(desired.os.registry_auth.values().map(|auth| auth.password.clone()));
    let services = desired.os.extension_services.values();
    let settings = services.flat_map(|service| service.environment.values().chain(service.files.values()));
    needs.secrets.extend(settings.filter_map(|setting| match setting {
        Setting::Secret(secret) => Some(secret.clone()),
        Setting::Text(_) => None,
    }));
    needs
}

/// The content of the files and the values of the secrets.
#[derive(Debug, Clone, Default)]
pub struct Materials {
    /// Files, by their path relative to the inventory.
    pub files: BTreeMap<String, Material>,
    /// Secrets.
    pub secrets: BTreeMap<SecretRef, SecretText>,
}

/// The content of a file.
#[derive(Clone)]
pub struct Material {
    /// What findings about it point into.
    pub source: SourceId,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Files may hold anything, keys included.
impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Material {
    /// Returns the place of its beginning.
    fn start(&self) -> Span {
        Span { source: self.source, ..Span::default() }
    }
}

impl Materials {
    /// Returns a file, or reports that it is missing.
    pub(super) fn file(&self, path: &str, findings: &mut Findings) -> Option<&Material> {
        let file = self.files.get(path);
        if file.is_none() {
            let remedy = "check the path: it is relative to the inventory";
            findings.push(missing(&format!("the file `{path}`"), remedy));
        }
        file
    }

    /// Returns the text of a file, or reports what is wrong with it.
    pub(super) fn text(&self, path: &str, findings: &mut Findings) -> Option<String> {
        let file = self.file(path, findings)?;
        let text = std::str::from_utf8(&file.bytes).ok().filter(|text| !text.trim().is_empty());
        if text.is_none() {
            let message = format!("`{path}` is empty or not UTF-8 text");
            findings
                .push(Finding::error(Code::CONFIG_MATERIAL, file.start(), message).remedy("mend the file"));
        }
        text.map(str::to_owned)
    }

    /// Returns the certificates in a file, or reports what is wrong with it.
    pub(super) fn certificates(&self, path: &str, findings: &mut Findings) -> Option<String> {
        let text = self.text(path, findings)?;
        if text.contains("-----BEGIN CERTIFICATE-----") {
            return Some(text);
        }
        let at = self.files.get(path).map(Material::start);
        let message = format!("`{path}` holds no certificate");
        let finding = Finding::error(Code::CONFIG_MATERIAL, at, message);
        findings.push(finding.remedy("give the certificates as PEM, `-----BEGIN CERTIFICATE-----` and on"));
        None
    }

    /// Returns the value of a secret, or reports that it is missing.
    pub(super) fn secret(&self, secret: &SecretRef, findings: &mut Findings) -> Option<SecretText> {
        let value = self.secrets.get(secret).cloned();
        if value.is_none() {
            findings.push(missing(&format!("the secret in {}", place(secret)), "put the secret there"));
        }
        value
    }
}

/// Says where a secret should be, in words.
fn place(secret: &SecretRef) -> String {
    match secret {
        SecretRef::Env(name) => format!("the environment variable `{name}`"),
        SecretRef::File(path) => format!("the file `{path}`"),
        SecretRef::Sops(path) => format!("the SOPS file `{path}`"),
        SecretRef::Vault(path) => format!("Vault at `{path}`"),
        SecretRef::Command(words) => {
            format!("the output of `{}`", words.first().map_or("a command", String::as_str))
        }
    }
}
