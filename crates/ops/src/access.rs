//! `ichor talosconfig` and `ichor kubeconfig`: access for people, made from the bundle alone.
//!
//! 1. [`endpoints`] or `server`: where the cluster is reached, as far as that is known; [`is_late`] and
//!    [`known_endpoints`] tell whether somebody has to be asked first;
//! 2. a client certificate, signed by the bundle's authority;
//! 3. the file that holds both;
//! 4. [`write()`]: to a file, if one is named, but never over something else; or [`merge()`]: into a file that holds
//!    access to other clusters too.

mod block;
mod current;
mod holders;
mod merge;

use std::{net::IpAddr, path::Path, time::Duration};

use ichor_machineconfig::{
    kubeconfig,
    pki::{Client, PkiError, TalosRole, Term, Timestamp, kubernetes_admin, talos_client},
    secrets::{Bundle, SecretText},
    talosconfig,
};
use ichor_model::{
    Code, Desired, Finding, Findings, Span,
    desired::{EndpointKind, Late, Machine, Role},
};
use ipnet::IpNet;

pub use self::current::keep_current;
use self::holders::would_lose;
pub use self::merge::{Merged, Merging, default_file, merge, rename};
use crate::{
    Halt, Site, System,
    entropy::Draws,
    halt::only,
    place::Guard,
    system::{Links, NotAFile, Unreadable},
    whole,
};

/// How long a kubeconfig is valid unless somebody asks otherwise: a working day.
pub const KUBECONFIG_LIFETIME: Duration = Duration::from_hours(12);
/// Largest file that is looked at before it is written over.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Most names that a message lists.
const MOST_NAMES: usize = 9;
/// The port of the API server on the machines themselves.
const API_SERVER_PORT: u16 = 6443;

/// What a client of the Talos API gets.
#[derive(Debug, Clone)]
pub struct TalosAccess {
    /// What it may do.
    pub roles: Vec<TalosRole>,
    /// For how long.
    pub lifetime: Duration,
}

/// Which server a kubeconfig names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// The cluster's endpoint.
    Endpoint,
    /// The address that moves between control planes.
    Vip,
    /// A control plane by name.
    Machine(String),
}

impl Server {
    /// Reads `endpoint`, `vip`, or the name of a machine.
    pub fn of(word: &str) -> Self {
        match word {
            "endpoint" => Self::Endpoint,
            "vip" => Self::Vip,
            name => Self::Machine(name.to_owned()),
        }
    }
}

/// Access that was made: a file, and what may be told about it.
#[derive(Debug)]
pub struct Made {
    /// The file.
    pub text: SecretText,
    /// What it is.
    pub kind: Kind,
    /// When it ends; absent for a bundle, whose parts end each at its own time.
    pub ends: Option<Timestamp>,
    /// Where it leads: the endpoints of a talosconfig, or the server of a kubeconfig.
    pub leads_to: Vec<String>,
}

/// Where a file goes.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Whether something of others is written over.
    pub overwrite: bool,
    /// The bundle that was given, which must be kept.
    pub given: Option<&'a Path>,
}

/// Makes a talosconfig. Control planes whose address nobody knows yet are left out with a warning.
pub fn talosconfig(
    system: &dyn System,
    desired: &Desired,
    bundle: &Bundle,
    access: &TalosAccess,
) -> Result<(Made, Findings), Halt> {
    let (endpoints, findings) = endpoints(desired)?;
    let client = talos_client_of(system, bundle, access)?;
    let text = write_talosconfig(desired, bundle, &endpoints, &client)?;
    let made = Made {
        text,
        kind: Kind::Talosconfig,
        ends: Some(client.certificate.not_after()),
        leads_to: endpoints.iter().map(ToString::to_string).collect(),
    };
    Ok((made, findings))
}

/// Makes the certificate of a client of the Talos API.
pub fn talos_client_of(system: &dyn System, bundle: &Bundle, access: &TalosAccess) -> Result<Client, Halt> {
    let term = Term { now: system.now(), lifetime: access.lifetime };
    let mut draws = Draws::new(system);
    let made = talos_client(&bundle.os, &access.roles, term, &mut draws);
    draws.vouch(made).map_err(|error| Halt::invalid(only(no_certificate(&error))))
}

/// Writes a talosconfig for a client that exists.
pub fn write_talosconfig(
    desired: &Desired,
    bundle: &Bundle,
    endpoints: &[IpAddr],
    client: &Client,
) -> Result<SecretText, Halt> {
    talosconfig::render(&talosconfig::Access {
        cluster: &desired.cluster.name,
        endpoints,
        // Commands such as `talosctl reset` act on the nodes of the context when they name none.
        nodes: &[],
        vips: &vips(desired),
        authority: bundle.os.certificate(),
        client,
    })
    .map_err(|error| {
        let finding = Finding::error(Code::VIP, None, error.to_string())
            .remedy("give the control plane another address than the VIP");
        Halt::invalid(only(finding))
    })
}

/// Makes the certificate of an administrator of Kubernetes.
pub fn kubernetes_client_of(
    system: &dyn System,
    bundle: &Bundle,
    lifetime: Duration,
) -> Result<Client, Halt> {
    let term = Term { now: system.now(), lifetime };
    let mut draws = Draws::new(system);
    let made = kubernetes_admin(&bundle.kubernetes, term, &mut draws);
    draws.vouch(made).map_err(|error| Halt::invalid(only(no_certificate(&error))))
}

/// Makes a kubeconfig of an administrator.
pub fn kubeconfig(
    system: &dyn System,
    desired: &Desired,
    bundle: &Bundle,
    to: &Server,
    lifetime: Duration,
) -> Result<Made, Halt> {
    let server = server(desired, to).map_err(|finding| Halt::invalid(only(*finding)))?;
    let client = kubernetes_client_of(system, bundle, lifetime)?;
    let text = kubeconfig::render(&kubeconfig::Access {
        cluster: &desired.cluster.name,
        server: &server,
        authority: bundle.kubernetes.certificate(),
        client: &client,
    })
    .map_err(|problem| {
        let message = format!("`{server}` {}", problem.message);
        Halt::invalid(only(Finding::error(Code::BAD_URL, None, message).remedy(problem.remedy)))
    })?;
    let ends = Some(client.certificate.not_after());
    Ok(Made { text, kind: Kind::Kubeconfig, ends, leads_to: vec![server] })
}

/// Lets a talosconfig or kubeconfig lead through a proxy, if one is named.
pub fn through(made: Made, proxy: Option<&str>) -> Result<Made, Halt> {
    let Some(proxy) = proxy else { return Ok(made) };
    let text = match made.kind {
        Kind::Kubeconfig => kubeconfig::through(&made.text, proxy),
        Kind::Talosconfig => talosconfig::through(&made.text, proxy),
        Kind::Bundle => return Ok(made),
    };
    let text = text.map_err(|problem| {
        // A login may stand in it.
        let shown =
            if proxy.contains('@') { "this URL" } else { &format!("`{}`", ichor_spec::yaml::show(proxy)) };
        let finding = Finding::error(Code::BAD_URL, None, format!("{shown} {}", problem.message));
        Halt::invalid(only(finding.remedy(problem.remedy)))
    })?;
    Ok(Made { text, ..made })
}

/// Returns the control planes' own addresses, with a warning for each that nobody knows yet. None at all
/// is an error.
pub fn endpoints(desired: &Desired) -> Result<(Vec<IpAddr>, Findings), Halt> {
    let (known, unknown) = known_endpoints(desired);
    if known.is_empty() {
        let all = unknown.iter().map(|machine| late_endpoint_of(machine, Finding::error)).collect();
        return Err(Halt::invalid(all));
    }
    let warnings = unknown.iter().map(|machine| late_endpoint_of(machine, Finding::warning)).collect();
    Ok((known, warnings))
}

/// Starts a finding of one severity.
type Start = fn(Code, Option<Span>, String) -> Finding;

/// Says that a control plane cannot be an endpoint yet.
pub fn late_endpoint_of(machine: &Machine, start: Start) -> Finding {
    let message = format!("the address of control plane `{}` is not known yet", machine.name);
    start(Code::LATE_ADDRESS, None, message)
        .because("it takes whatever address a DHCP lease gives it")
        .remedy("give it a fixed address, or reserve one for its MAC")
}

/// Returns the control planes' own addresses, and the control planes without a known one.
pub fn known_endpoints(desired: &Desired) -> (Vec<IpAddr>, Vec<&Machine>) {
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for machine in desired.of_role(Role::ControlPlane) {
        match own_address(machine) {
            Some(address) => known.push(address),
            None => unknown.push(machine),
        }
    }
    (known, unknown)
}

/// Returns the first known address of the card that carries the node address.
pub fn own_address(machine: &Machine) -> Option<IpAddr> {
    machine.primary_nic().addresses.iter().find_map(Late::known).map(IpNet::addr)
}

fn vips(desired: &Desired) -> Vec<IpAddr> {
    let endpoint = &desired.cluster.endpoint;
    endpoint.vip.into_iter().chain(endpoint.kube_vip.as_ref().map(|kube_vip| kube_vip.address)).collect()
}

/// Whether a server is one whose address only its machine knows.
pub fn is_late(desired: &Desired, to: &Server) -> bool {
    server(desired, to).is_err_and(|finding| finding.code == Code::LATE_ADDRESS)
}

fn server(desired: &Desired, to: &Server) -> Result<String, Box<Finding>> {
    let endpoint = &desired.cluster.endpoint;
    match to {
        Server::Endpoint => match endpoint.host {
            Late::Known(_) => Ok(endpoint.url()),
            Late::From(_) => Err(Box::new(late_endpoint())),
        },
        Server::Vip => {
            let vip = vips(desired).first().copied().ok_or_else(|| Box::new(no_vip()))?;
            // A VIP that the endpoint stands for has its port; behind any other is the API server itself.
            let is_endpoint = matches!(endpoint.kind, EndpointKind::TalosVip | EndpointKind::KubeVip);
            Ok(url(vip, if is_endpoint { endpoint.port } else { API_SERVER_PORT }))
        }
        Server::Machine(name) => {
            let found = desired.of_role(Role::ControlPlane).find(|machine| machine.name.as_str() == name);
            let machine = found.ok_or_else(|| Box::new(no_such_server(desired, name)))?;
            let address = own_address(machine).ok_or_else(|| Box::new(late_server(machine)))?;
            Ok(url(address, API_SERVER_PORT))
        }
    }
}

fn url(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(address) => format!("https://{address}:{port}"),
        IpAddr::V6(address) => format!("https://[{address}]:{port}"),
    }
}

fn late_endpoint() -> Finding {
    Finding::error(Code::LATE_ADDRESS, None, "the address of the endpoint is not known yet")
        .because("it is that of the first control plane, which takes a DHCP lease")
        .remedy("set `cluster.endpoint`, or give the control plane a fixed address")
}

fn late_server(machine: &Machine) -> Finding {
    Finding::error(Code::LATE_ADDRESS, None, format!("the address of `{}` is not known yet", machine.name))
        .because("it takes whatever address a DHCP lease gives it")
        .remedy("choose another server, or give it a fixed address")
}

fn no_vip() -> Finding {
    Finding::error(Code::NO_SUCH_SERVER, None, "the cluster has no VIP")
        .remedy("choose `--server endpoint`, or the name of a control plane")
}

fn no_such_server(desired: &Desired, name: &str) -> Finding {
    let names: Vec<String> = desired
        .of_role(Role::ControlPlane)
        .take(MOST_NAMES)
        .map(|machine| format!("`{}`", machine.name))
        .collect();
    let name = ichor_spec::yaml::show(name);
    Finding::error(Code::NO_SUCH_SERVER, None, format!("there is no control plane `{name}`"))
        .remedy(format!("choose `endpoint`, `vip`, or one of {}", names.join(", ")))
}

fn no_certificate(error: &PkiError) -> Finding {
    Finding::error(Code::CERTIFICATE, None, "the certificate cannot be made").because(error.to_string())
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A talosconfig.
    Talosconfig,
    /// A kubeconfig.
    Kubeconfig,
    /// A secrets bundle, which is never written over.
    Bundle,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Talosconfig => "talosconfig",
            Self::Kubeconfig => "kubeconfig",
            Self::Bundle => "secrets.yaml",
        }
    }
}

/// Writes a file for its owner alone. What is there is replaced without asking only if it gives access to
/// this cluster and nothing else; `overwrite` replaces anything but what nobody could make again.
pub fn write(system: &dyn System, site: Site<'_>, made: &Made, target: Target<'_>) -> Result<(), Halt> {
    let Target { path, overwrite, given } = target;
    let refuse = |finding: Finding| Err(Halt::refused(only(finding)));
    if let Err(finding) = Guard::new(system, site, given).check_file(system, path) {
        return refuse(*finding);
    }
    match system.read(path, MAX_BYTES, Links::Refuse) {
        Err(why) if why.is_missing() => {}
        Err(Unreadable::NotAFile(NotAFile::Directory)) => return refuse(is_a_directory(path)),
        _ if overwrite => {}
        Ok(contents) => {
            if let Some(why) = would_lose(made, &contents.bytes) {
                return refuse(not_ours(path, &why));
            }
        }
        Err(why) => return refuse(not_ours(path, &why.to_string())),
    }
    whole::replace(system, path, made.text.expose().as_bytes())
        .map_err(|error| Halt::unwritable(path, &error))
}

fn is_a_directory(path: &Path) -> Finding {
    Finding::error(Code::NOT_OURS, None, format!("`{}` is a directory", path.display())).remedy("name a file")
}

fn not_ours(path: &Path, why: &str) -> Finding {
    let message = format!("`{}` is there already, and would be written over", path.display());
    let finding = Finding::error(Code::NOT_OURS, None, message).because(why);
    finding.remedy("name another file, or add `--overwrite`")
}
