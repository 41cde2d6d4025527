//! A SOCKS5 and HTTP CONNECT proxy into the lab, for machines whose addresses are not loopback addresses.
//! It leads nowhere else: what is not in the lab is refused.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use ichor_model::{
    Desired,
    desired::{EndpointKind, Late, Machine, Role},
};
use ichor_sim::{Lab, rehearsal};

use crate::{Hall, Target, attend::attend, listen::TALOS_PORT};

/// Most bytes of the head of a CONNECT request.
const MAX_HEAD: usize = 8 * 1024;
const SOCKS5: u8 = 5;

/// The port of the Proxmox API.
const PVE_PORT: u16 = 8006;
/// The port of the Kubernetes API on a control plane.
const KUBE_PORT: u16 = 6443;
const FACTORY: &str = "factory.talos.dev";

/// Names and ports that lead to servers, besides the addresses of machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    servers: BTreeMap<(String, u16), Target>,
    names: BTreeMap<String, Vec<IpAddr>>,
    balancers: BTreeMap<(String, u16), Vec<SocketAddr>>,
}

impl Routes {
    /// The names that a real datacentre would have: its hosts', and the Image Factory's.
    pub fn of(lab: &Lab) -> Self {
        let hosts = lab.pve.hosts.iter().flat_map(|(name, host)| [name.clone(), host.address.clone()]);
        hosts
            .fold(Self::default(), |routes, host| routes.with(&host, PVE_PORT, Target::Pve))
            .with(FACTORY, 443, Target::FactoryTls)
            .with(FACTORY, 80, Target::Factory)
    }

    /// The names that the inventory of a cluster uses: of its Proxmox, of its Image Factories, and of the load
    /// balancer of its Kubernetes API, if it has one.
    pub fn of_cluster(lab: &Lab, desired: &Desired) -> Self {
        let mut routes = Self::of(lab);
        if let Some((host, port)) = rehearsal::proxmox(desired) {
            routes = routes.with(&host, port, Target::Pve);
        }
        for (host, port, tls) in rehearsal::factories(desired) {
            routes = routes.with(&host, port, if tls { Target::FactoryTls } else { Target::Factory });
        }
        let endpoint = &desired.cluster.endpoint;
        let external = matches!(endpoint.kind, EndpointKind::Name | EndpointKind::Address);
        if let Some(host) = endpoint.host.known().filter(|_| external) {
            let nics = desired.of_role(Role::ControlPlane).map(Machine::primary_nic);
            let addresses = nics.filter_map(|nic| nic.addresses.iter().find_map(Late::known));
            let backends = addresses.map(|address| SocketAddr::new(address.addr(), KUBE_PORT));
            let backends = backends.chain(endpoint.vip.map(|vip| SocketAddr::new(vip, KUBE_PORT)));
            routes = routes.with_balancer(host, endpoint.port, backends.collect());
        }
        routes
    }

    /// Adds a server under a name or address.
    #[must_use]
    pub fn with(mut self, host: &str, port: u16, target: Target) -> Self {
        self.servers.insert((host.to_ascii_lowercase(), port), target);
        self
    }

    /// Adds a name that stands for addresses, as in DNS. The first of them that listens is taken.
    #[must_use]
    pub fn with_name(mut self, host: &str, addresses: Vec<IpAddr>) -> Self {
        self.names.insert(host.to_ascii_lowercase(), addresses);
        self
    }

    /// Adds a load balancer: whoever connects to it comes to the first backend that listens.
    #[must_use]
    pub fn with_balancer(mut self, host: &str, port: u16, backends: Vec<SocketAddr>) -> Self {
        self.balancers.insert((host.to_ascii_lowercase(), port), backends);
        self
    }

    /// Finds the server of a host and port: a named one, one behind a load balancer, or a machine's by its
    /// address.
    pub(crate) fn find(&self, lab: &Lab, host: &str, port: u16) -> Found {
        let host = host.to_ascii_lowercase();
        let key = (host, port);
        if let Some(target) = self.servers.get(&key) {
            return Found::Server(target.clone());
        }
        let backends = self.balancers.get(&key);
        if let Some(target) = backends.and_then(|backends| backends.iter().find_map(|at| listening(lab, *at)))
        {
            return Found::Server(target);
        }
        let (host, _) = key;
        let addresses = match (host.parse(), self.names.get(&host)) {
            (Ok(address), _) => vec![address],
            (Err(_), Some(addresses)) => addresses.clone(),
            (Err(_), None) => Vec::new(),
        };
        let target = addresses.iter().find_map(|address| listening(lab, SocketAddr::new(*address, port)));
        if let Some(target) = target {
            return Found::Server(target);
        }
        let named = |(name, _): &(String, u16)| *name == host;
        let up = addresses.iter().any(|address| lab.machines.owner(*address).is_some());
        if up || self.servers.keys().any(named) || self.balancers.keys().any(named) {
            Found::Closed
        } else if addresses.is_empty() {
            Found::Unknown
        } else {
            Found::Nobody
        }
    }
}

/// Who is at a host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A server.
    Server(Target),
    /// Somebody, but nothing listens on that port.
    Closed,
    /// Nobody has the address.
    Nobody,
    /// Nobody knows the name.
    Unknown,
}

/// Returns the server that a machine has at an address and port.
fn listening(lab: &Lab, at: SocketAddr) -> Option<Target> {
    let address = at.ip();
    if at.port() == TALOS_PORT && lab.talos_addresses().contains(&address) {
        return Some(Target::Talos(address));
    }
    lab.kube_addresses().contains(&(address, at.port())).then_some(Target::Kube(address))
}

/// Serves a client of the proxy.
pub async fn lead(hall: Arc<Hall>, stream: TcpStream, routes: Routes) {
    // A client that breaks the protocol is gone; there is nobody to tell.
    let _ = try_lead(hall, BufReader::new(stream), &routes).await;
}

async fn try_lead(hall: Arc<Hall>, mut stream: BufReader<TcpStream>, routes: &Routes) -> io::Result<()> {
    let socks = stream.fill_buf().await?.first() == Some(&SOCKS5);
    let wanted = if socks { socks_request(&mut stream).await? } else { connect_request(&mut stream).await? };
    let target = wanted.and_then(|(host, port)| {
        hall.look(|lab| match routes.find(lab, &host, port) {
            Found::Server(target) => Some(target),
            Found::Closed | Found::Nobody | Found::Unknown => None,
        })
    });
    let reply: &[u8] = match (socks, &target) {
        (true, Some(_)) => &[SOCKS5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        // 4: host unreachable.
        (true, None) => &[SOCKS5, 4, 0, 1, 0, 0, 0, 0, 0, 0],
        (false, Some(_)) => b"HTTP/1.1 200 Connection established\r\n\r\n",
        (false, None) => b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    };
    stream.write_all(reply).await?;
    stream.flush().await?;
    if let Some(target) = target {
        attend(hall, stream, target).await;
    }
    Ok(())
}

/// Reads a SOCKS5 greeting and request; no authentication is asked for.
async fn socks_request(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<Option<(String, u16)>> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut methods = vec![0; usize::from(head[1])];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&0) {
        stream.write_all(&[SOCKS5, 0xff]).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.write_all(&[SOCKS5, 0]).await?;
    stream.flush().await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let host = match request[3] {
        1 => Ipv4Addr::from(stream.read_u32().await?).to_string(),
        4 => Ipv6Addr::from(stream.read_u128().await?).to_string(),
        3 => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let port = stream.read_u16().await?;
    let connect = request[1] == 1;
    Ok(connect.then_some((host, port)))
}

/// Reads the head of a CONNECT request.
async fn connect_request(stream: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<(String, u16)>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut line = Vec::new();
        let left = (MAX_HEAD - head.len()) as u64;
        if stream.take(left).read_until(b'\n', &mut line).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend(line);
    }
    Ok(parse_connect(&String::from_utf8_lossy(&head)))
}

fn parse_connect(head: &str) -> Option<(String, u16)> {
    let mut words = head.lines().next()?.split(' ');
    let authority = words.next().filter(|method| *method == "CONNECT").and(words.next())?;
    let (host, port) = authority.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_request_names_host_and_port() {
        let host = |head: &str| parse_connect(head);
        assert_eq!(host("CONNECT 10.0.0.1:50000 HTTP/1.1\r\n\r\n"), Some(("10.0.0.1".into(), 50000)));
        assert_eq!(host("CONNECT [fd00::1]:6443 HTTP/1.1\r\n\r\n"), Some(("fd00::1".into(), 6443)));
        assert_eq!(host("GET / HTTP/1.1\r\n\r\n"), None);
        assert_eq!(host("CONNECT nowhere HTTP/1.1\r\n\r\n"), None);
    }
}
