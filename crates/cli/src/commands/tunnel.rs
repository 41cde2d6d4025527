//! `ichor tunnel`: the way into a private network, for other programs.
//!
//! 1. The way is opened as for every verb ([`World::way`]);
//! 2. a proxy listens on loopback ([`serve`]);
//! 3. whoever comes is led to servers of the cluster ([`Destinations`]), and nowhere else.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ichor_model::{Code, Desired, Finding, Findings, desired::Late};
use ichor_net::{
    Dial, Endpoint, Stream,
    proxy::{self, Refusal},
};
use ichor_ops::{Halt, halt::only};
use ipnet::IpNet;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::session::{Gate, Session};
use crate::{
    args::{Global, Output, Place, Tunnel},
    exit::Exit,
    failure::Failure,
    render::document,
    terminal::Terminal,
    world::World,
};

/// How long a client may take to say where it wants to go.
const ASK_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may leave unread what came for it. All streams share one connection, and would wait with it.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Most clients at once.
const MAX_CLIENTS: usize = 256;
/// Bytes that are carried at once.
const PIECE: usize = 32 * 1024;

/// Holds a tunnel open until somebody stops it.
pub fn run(args: &Tunnel, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Failed, "the tunnel cannot start").because(error.to_string()))?;
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let place = global.world.place();
    let held = session.with_one(|site, _| {
        if place == Place::Real && site.desired.proxmox.jump.is_empty() {
            return Err(Halt::invalid(only(no_jump())));
        }
        let (dialer, lab) = World::way(place, site, &runtime, terminal)?;
        let destinations = Destinations::of(site.desired);
        let held = runtime.block_on(hold(args, global.output, terminal, dialer, destinations));
        lab.map_or(Ok(()), crate::world::LabRun::close)?;
        Ok((held, Findings::new()))
    })?;
    match held {
        Gate::Open(held) => held,
        Gate::Closed(exit) => Ok(exit),
    }
}

fn no_jump() -> Finding {
    Finding::error(Code::JUMP, None, "there is no way to hold open")
        .because("the inventory has no `proxmox.jump`, so everything is reached directly")
        .remedy("use kubectl and talosctl without a tunnel, or write the way:\n    proxmox: {jump: ssh://root@pve1.example}")
}

async fn hold(
    args: &Tunnel,
    output: Output,
    terminal: &Terminal,
    dialer: Arc<dyn Dial>,
    destinations: Destinations,
) -> Result<Exit, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener.map_err(|error| {
        Failure::new(Exit::Failed, format!("port {} cannot be listened on", args.port))
            .because(error.to_string())
            .hint("choose another one, or `--port 0` for any that is free")
    })?;
    let address = listener.local_addr()?;
    let access = access(address);
    match output {
        Output::Table => terminal.data(shell(address))?,
        Output::Json => terminal.data(document::json(&access))?,
        Output::Yaml => terminal.data(document::yaml(&access))?,
    }
    terminal.tell("the tunnel is open; close it with Ctrl-C");
    tokio::select! {
        () = serve(listener, dialer, Arc::new(destinations)) => {}
        () = super::lab::interrupted() => {}
    }
    Ok(Exit::Done)
}

fn access(address: SocketAddr) -> Value {
    json!({ "proxy": { "http": format!("http://{address}"), "socks5": format!("socks5://{address}") } })
}

/// Variables that kubectl and talosctl read.
fn shell(address: SocketAddr) -> String {
    format!(
        "export HTTPS_PROXY='http://{address}'\nexport NO_PROXY=''\n\
         # or for kubectl alone: ichor kubeconfig --offline --proxy-url socks5://{address}\n"
    )
}

/// Leads clients to where they want to go, as long as this is awaited.
async fn serve(listener: TcpListener, dialer: Arc<dyn Dial>, destinations: Arc<Destinations>) {
    let room = Arc::new(Semaphore::new(MAX_CLIENTS));
    let mut clients = tokio::task::JoinSet::new();
    loop {
        // It is never closed.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (dialer, destinations) = (Arc::clone(&dialer), Arc::clone(&destinations));
                clients.spawn(async move {
                    // A client that breaks the protocol or hangs up is gone; there is nobody to tell.
                    let _ = lead(stream, &*dialer, &destinations).await;
                    drop(permit);
                });
            }
            // Too many open files, perhaps; those who are here leave again.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        while clients.try_join_next().is_some() {}
    }
}

async fn lead(stream: TcpStream, dialer: &dyn Dial, destinations: &Destinations) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut client = BufStream::new(stream);
    let wanted =
        timeout(ASK_WITHIN, proxy::listen(&mut client)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    if !destinations.allow(&wanted.host) {
        return wanted.refuse(&mut client, Refusal::Forbidden).await;
    }
    match dialer.dial(&wanted.host, wanted.port).await {
        Ok(server) => {
            wanted.grant(&mut client).await?;
            carry(client, server).await
        }
        Err(_) => wanted.refuse(&mut client, Refusal::Unreachable).await,
    }
}

/// Carries bytes both ways until both sides have ended, or one of them fails.
async fn carry(client: impl Stream, server: Box<dyn Stream>) -> io::Result<()> {
    let (client_reads, client_writes) = tokio::io::split(client);
    let (server_reads, server_writes) = tokio::io::split(server);
    tokio::try_join!(one_way(client_reads, server_writes), one_way(server_reads, client_writes)).map(drop)
}

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        timeout(READ_WITHIN, async {
            to.write_all(&piece[..count]).await?;
            to.flush().await
        })
        .await
        .map_err(|_| io::ErrorKind::TimedOut)??;
    }
}

/// Where a tunnel leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Destinations {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    networks: Vec<IpNet>,
}

impl Destinations {
    /// The servers of a cluster: its machines, the addresses that move between them, its endpoint, and Proxmox. Where
    /// machines take leases, which nobody knows here, the whole of their network is one.
    fn of(desired: &Desired) -> Self {
        let mut destinations = Self::default();
        let nics = || desired.machines.iter().flat_map(|machine| &machine.nics);
        let known = nics().flat_map(|nic| &nic.addresses).filter_map(Late::known).map(IpNet::addr);
        destinations.addresses.extend(known);
        if nics().any(|nic| nic.addresses.iter().any(|address| address.known().is_none())) {
            destinations.networks.clone_from(&desired.network.cidr);
        }
        let endpoint = &desired.cluster.endpoint;
        destinations.addresses.extend(endpoint.vip);
        destinations.addresses.extend(endpoint.kube_vip.as_ref().map(|kube_vip| kube_vip.address));
        let proxmox = desired.proxmox.endpoint.parse::<Endpoint>().ok().map(|endpoint| endpoint.host);
        for host in endpoint.host.known().cloned().into_iter().chain(proxmox) {
            match host.parse() {
                Ok(address) => destinations.addresses.insert(address),
                Err(_) => destinations.names.insert(host.to_ascii_lowercase()),
            };
        }
        destinations
    }

    fn allow(&self, host: &str) -> bool {
        match host.parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                self.addresses.contains(&address) || self.networks.iter().any(|net| net.contains(&address))
            }
            Err(_) => self.names.contains(host.trim_end_matches('.').to_ascii_lowercase().as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ichor_net::{Dialled, proxy::HttpConnect, proxy::Socks5};

    use super::*;

    /// Leads to an echo, wherever it is asked to.
    struct Echo;

    impl Dial for Echo {
        fn dial<'a>(&'a self, host: &'a str, _: u16) -> Dialled<'a> {
            Box::pin(async move {
                if host == "10.0.0.2" {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let (near, far) = tokio::io::duplex(1024);
                tokio::spawn(async move {
                    let (mut reads, mut writes) = tokio::io::split(far);
                    let _ = tokio::io::copy(&mut reads, &mut writes).await;
                });
                Ok(Box::new(near) as Box<dyn Stream>)
            })
        }
    }

    fn destinations() -> Destinations {
        Destinations {
            names: BTreeSet::from(["pve1.example".to_owned()]),
            addresses: ["10.0.0.1", "10.0.0.2", "fd00::1"]
                .map(|text| text.parse().expect("an address"))
                .into(),
            networks: vec!["10.9.0.0/24".parse().expect("a network")],
        }
    }

    #[test]
    fn only_servers_of_the_cluster_are_led_to() {
        let destinations = destinations();
        for host in ["10.0.0.1", "::ffff:10.0.0.1", "fd00::1", "10.9.0.77", "PVE1.example", "pve1.example."] {
            assert!(destinations.allow(host), "{host}");
        }
        for host in
            ["10.0.0.3", "127.0.0.1", "::1", "example", "pve1", "", "10.0.0.1.example", "169.254.169.254"]
        {
            assert!(!destinations.allow(host), "{host}");
        }
    }

    #[tokio::test]
    async fn clients_are_led_in_both_languages() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(serve(listener, Arc::new(Echo), Arc::new(destinations())));
        let direct = || Arc::new(ichor_net::Direct) as Arc<dyn Dial>;
        let clients: [Box<dyn Dial>; 2] = [
            Box::new(Socks5::new(direct(), "127.0.0.1", port)),
            Box::new(HttpConnect::new(direct(), "127.0.0.1", port)),
        ];
        for client in clients {
            let mut stream = client.dial("10.0.0.1", 6443).await.expect("a stream");
            stream.write_all(b"hello").await.expect("written");
            stream.shutdown().await.expect("an end");
            let mut heard = String::new();
            stream.read_to_string(&mut heard).await.expect("an echo, and its end");
            assert_eq!(heard, "hello");
            let forbidden = client.dial("10.0.0.3", 6443).await.err().expect("a refusal");
            assert_eq!(forbidden.kind(), io::ErrorKind::PermissionDenied);
            let unreachable = client.dial("10.0.0.2", 6443).await.err().expect("a refusal");
            assert_eq!(unreachable.kind(), io::ErrorKind::HostUnreachable);
        }
    }
}
