//! The kubeconfig of an administrator, made here and not by a machine.

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_model::{ClusterName, Problem};
use zeroize::Zeroizing;

use crate::{
    pki::{Certificate, Client, PrivateKey},
    scalar::{Dialect, scalar},
    secrets::SecretText,
    talosconfig::decode,
    tree::{self, Node},
};

/// Largest file that is read.
const MAX_BYTES: usize = 1024 * 1024;

/// What goes into a kubeconfig.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    /// The cluster, whose name the entries carry.
    pub cluster: &'a ClusterName,
    /// The API server's URL: the endpoint, or one control plane while the endpoint is not up.
    pub server: &'a str,
    /// The certificate of Kubernetes' authority.
    pub authority: &'a Certificate,
    /// What the client shows.
    pub client: &'a Client,
}

/// Writes a kubeconfig with one context, `admin@<cluster>`, in kubectl's own layout.
pub fn render(access: &Access<'_>) -> Result<SecretText, Problem> {
    check_server(access.server)?;
    let cluster = scalar(access.cluster.as_str(), 4, Dialect::Talos);
    let server = scalar(access.server, 6, Dialect::Talos);
    let name = format!("admin@{}", access.cluster);
    let ca = STANDARD.encode(access.authority.pem());
    let certificate = STANDARD.encode(access.client.certificate.pem());
    let key = Zeroizing::new(STANDARD.encode(access.client.key.pem().expose()));
    let mut out = Zeroizing::new(String::with_capacity(8 * 1024));
    out.push_str(&format!(
        "apiVersion: v1\n\
         clusters:\n\
         - cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n  name: {cluster}\n\
         contexts:\n\
         - context:\n    cluster: {cluster}\n    namespace: default\n    user: {name}\n  name: {name}\n\
         current-context: {name}\n\
         kind: Config\n\
         users:\n\
         - name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: "
    ));
    out.push_str(&key);
    out.push('\n');
    Ok(out.into())
}

/// Where a kubeconfig leads when nobody names a context, and what is shown there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// The API server's URL.
    pub server: String,
    /// The certificate of the authority that is trusted.
    pub authority: Certificate,
    /// The client's own certificate and key.
    pub client: Client,
}

impl InUse {
    /// Reads a kubeconfig; nothing, if it is none, or leads elsewhere than by certificates that stand in it.
    pub fn read(text: &str) -> Option<Self> {
        let documents = tree::parse(text, MAX_BYTES).ok()?;
        let [root] = &documents[..] else { return None };
        let named = |list: &str, name: &str| {
            root.get(list)?.items().iter().find(|item| item.get("name").and_then(Node::text) == Some(name))
        };
        let context = named("contexts", root.get("current-context")?.text()?)?.get("context")?;
        let cluster = named("clusters", context.get("cluster")?.text()?)?.get("cluster")?;
        let user = named("users", context.get("user")?.text()?)?.get("user")?;
        let pem = |node: &Node, key: &str| decode(node.get(key)?.text()?);
        let certificate = Certificate::from_pem(&pem(user, "client-certificate-data")?).ok()?;
        let key = PrivateKey::from_pem(&pem(user, "client-key-data")?).ok()?;
        certificate.check_key(&key).ok()?;
        Some(Self {
            server: cluster.get("server")?.text()?.to_owned(),
            authority: Certificate::from_pem(&pem(cluster, "certificate-authority-data")?).ok()?,
            client: Client { certificate, key },
        })
    }
}

/// Lets a kubeconfig that was written here lead through a proxy.
pub fn through(text: &SecretText, proxy: &str) -> Result<SecretText, Problem> {
    check_proxy(proxy)?;
    let line = format!("    proxy-url: {}\n", scalar(proxy, 6, Dialect::Talos));
    let Some((before, behind)) = text.expose().split_once("    server: ") else {
        return Err(Problem::new(
            "leads through nothing: the kubeconfig names no server",
            "write the file anew",
        ));
    };
    Ok(Zeroizing::new([before, &line, "    server: ", behind].concat()).into())
}

/// Checks the URL of a proxy. One with a login in it would put a secret where nobody expects one.
pub(crate) fn check_proxy(proxy: &str) -> Result<(), Problem> {
    let wrong = |message: &str| Err(Problem::new(message, "write it as in `socks5://127.0.0.1:1080`"));
    let schemes = ["http://", "https://", "socks5://"];
    let Some(place) = schemes.iter().find_map(|scheme| proxy.strip_prefix(scheme)) else {
        return wrong("is not the URL of a proxy");
    };
    if place.contains('@') {
        return wrong("has a login in it");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if place.is_empty() || place.starts_with(':') || !place.chars().all(plain) {
        return wrong("is not the URL of a proxy");
    }
    Ok(())
}

fn check_server(server: &str) -> Result<(), Problem> {
    let host = server.strip_prefix("https://").unwrap_or_default();
    let plain = server.bytes().all(|b| b.is_ascii_graphic());
    if plain && !host.is_empty() && !host.starts_with(['/', ':', '@']) {
        return Ok(());
    }
    Err(Problem::new("is not the URL of an API server", "write it as in `https://10.0.0.20:6443`"))
}
