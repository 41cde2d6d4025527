//! The talosconfig: how clients reach the Talos API, and what they show there.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_model::{ClusterName, Problem};
use zeroize::Zeroizing;

pub use crate::pki::TalosRole as Role;
use crate::{
    kubeconfig::check_proxy,
    pki::{Certificate, Client, PrivateKey},
    scalar::{Dialect, scalar},
    secrets::{Flaw, Flaws, SecretText},
    tree::{self, Kind, Node},
};

/// Largest file that is read; a context has about 3 KiB.
const MAX_BYTES: usize = 1024 * 1024;

/// What goes into a talosconfig.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    /// The cluster, whose name is the context's.
    pub cluster: &'a ClusterName,
    /// The control planes' own addresses.
    pub endpoints: &'a [IpAddr],
    /// The machines that commands are for when they name none.
    pub nodes: &'a [IpAddr],
    /// Addresses that move between control planes; none of them may be an endpoint or a node.
    pub vips: &'a [IpAddr],
    /// The certificate of the Talos API's authority.
    pub authority: &'a Certificate,
    /// What the client shows.
    pub client: &'a Client,
}

/// A VIP stands where a machine's own address belongs.
///
/// Talos moves the VIP by an election in etcd: it is not there before the cluster is bootstrapped, nor
/// when it is most needed, and behind it is now one machine, now another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is a VIP, and the Talos API needs the machines' own addresses")]
pub struct VipAsEndpoint {
    /// The VIP.
    pub address: IpAddr,
}

/// Writes a talosconfig with one context, laid out as talosctl does.
pub fn render(access: &Access<'_>) -> Result<SecretText, VipAsEndpoint> {
    let is_vip =
        |address: &&IpAddr| access.vips.iter().any(|vip| vip.to_canonical() == address.to_canonical());
    if let Some(address) = access.endpoints.iter().chain(access.nodes).find(is_vip) {
        return Err(VipAsEndpoint { address: *address });
    }
    let name = scalar(access.cluster.as_str(), 4, Dialect::Talos);
    let key = Zeroizing::new(STANDARD.encode(access.client.key.pem().expose()));
    let mut out = Zeroizing::new(String::with_capacity(8 * 1024));
    out.push_str(&format!("context: {name}\ncontexts:\n    {name}:\n"));
    match access.endpoints {
        [] => out.push_str("        endpoints: []\n"),
        endpoints => push_list(&mut out, "endpoints", endpoints),
    }
    if !access.nodes.is_empty() {
        push_list(&mut out, "nodes", access.nodes);
    }
    out.push_str(&format!("        ca: {}\n", STANDARD.encode(access.authority.pem())));
    out.push_str(&format!("        crt: {}\n", STANDARD.encode(access.client.certificate.pem())));
    out.push_str("        key: ");
    out.push_str(&key);
    out.push('\n');
    Ok(out.into())
}

/// Lets a talosconfig that was written here lead through a proxy. talosctl knows that from 1.14 on.
pub fn through(text: &SecretText, proxy: &str) -> Result<SecretText, Problem> {
    check_proxy(proxy)?;
    let line = format!("        proxy-url: {}\n", scalar(proxy, 16, Dialect::Talos));
    Ok(Zeroizing::new([text.expose(), &line].concat()).into())
}

fn push_list(out: &mut String, key: &str, addresses: &[IpAddr]) {
    out.push_str(&format!("        {key}:\n"));
    for address in addresses {
        out.push_str(&format!("            - {}\n", scalar(&address.to_string(), 16, Dialect::Talos)));
    }
}

/// A talosconfig that was read. What only other tools use is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Talosconfig {
    /// The context that is used when nobody names one.
    pub current: Option<String>,
    /// The contexts, in the order of the file.
    pub contexts: Vec<Context>,
}

/// A context of a talosconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Its name.
    pub name: String,
    /// Where the Talos API is: addresses, names, or URLs.
    pub endpoints: Vec<String>,
    /// The machines that commands are for when they name none.
    pub nodes: Vec<String>,
    /// What is shown there; contexts of hosted services may have none.
    pub credentials: Option<Credentials>,
}

/// What a context shows to the Talos API, and by what it knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate of the API's authority.
    pub authority: Certificate,
    /// The client's own certificate and key.
    pub client: Client,
}

impl Talosconfig {
    /// Reads a talosconfig, or says everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Flaws> {
        let documents = tree::parse(text, MAX_BYTES)?;
        let [root] = &documents[..] else {
            return Err(Flaws::one("", None, "is not one YAML document", "give a talosconfig"));
        };
        if root.get("contexts").is_none_or(|contexts| !matches!(contexts.kind, Kind::Map(_))) {
            return Err(Flaws::one("contexts", None, "is missing, or is not a map", "give a talosconfig"));
        }
        let mut flaws = Vec::new();
        let entries = root.get("contexts").map(Node::entries).unwrap_or_default();
        let contexts =
            entries.iter().map(|entry| read_context(&entry.key, &entry.value, &mut flaws)).collect();
        let current = root.get("context").and_then(Node::text).filter(|name| !name.is_empty());
        Flaws::or(flaws, Some(Self { current: current.map(Into::into), contexts }))
    }

    /// Returns the context of a name, or the one in use.
    pub fn context(&self, name: Option<&str>) -> Option<&Context> {
        let wanted = name.or(self.current.as_deref())?;
        self.contexts.iter().find(|context| context.name == wanted)
    }
}

fn read_context(name: &str, node: &Node, flaws: &mut Vec<Flaw>) -> Context {
    let path = format!("contexts.{}", tree::shown(name));
    Context {
        name: name.into(),
        endpoints: read_list(node, "endpoints", &path, flaws),
        nodes: read_list(node, "nodes", &path, flaws),
        credentials: read_credentials(node, &path, flaws),
    }
}

fn read_list(node: &Node, key: &str, path: &str, flaws: &mut Vec<Flaw>) -> Vec<String> {
    let Some(list) = node.get(key) else { return Vec::new() };
    let texts: Option<Vec<String>> = list.items().iter().map(|item| item.text().map(Into::into)).collect();
    match texts {
        Some(texts) if matches!(list.kind, Kind::List(_)) => texts,
        _ => {
            let problem =
                Problem::new("is not a list of addresses", "write one address on each line, after `- `");
            flaws.push(Flaw::new(format!("{path}.{key}"), Some(list.line), problem));
            Vec::new()
        }
    }
}

/// Reads `ca`, `crt` and `key`; none of them means that the context proves itself in another way.
fn read_credentials(node: &Node, path: &str, flaws: &mut Vec<Flaw>) -> Option<Credentials> {
    if ["ca", "crt", "key"].iter().all(|key| node.get(key).is_none()) {
        return None;
    }
    let mut read = |key: &str| -> Option<Zeroizing<String>> {
        let value = node.get(key);
        let decoded = value.and_then(Node::text).and_then(decode);
        if decoded.is_none() {
            let problem = Problem::new("is missing, or is not base64 of PEM text", "get a new talosconfig");
            flaws.push(Flaw::new(format!("{path}.{key}"), value.map(|node| node.line), problem));
        }
        decoded
    };
    let (ca, crt, key) = (read("ca"), read("crt"), read("key"));
    let mut keep = |key: &str, problem| {
        let line = node.get(key).map(|node| node.line);
        flaws.push(Flaw::new(format!("{path}.{key}"), line, problem));
    };
    let authority =
        ca.and_then(|pem| Certificate::from_pem(&pem).map_err(|problem| keep("ca", problem)).ok());
    let certificate =
        crt.and_then(|pem| Certificate::from_pem(&pem).map_err(|problem| keep("crt", problem)).ok());
    let key = key.and_then(|pem| PrivateKey::from_pem(&pem).map_err(|problem| keep("key", problem)).ok());
    let (certificate, key) = (certificate?, key?);
    if let Err(problem) = certificate.check_key(&key) {
        keep("key", problem);
    }
    Some(Credentials { authority: authority?, client: Client { certificate, key } })
}

/// Reads base64 of PEM text.
pub(crate) fn decode(text: &str) -> Option<Zeroizing<String>> {
    let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
    std::str::from_utf8(&bytes).ok().map(|text| Zeroizing::new(text.to_owned()))
}
