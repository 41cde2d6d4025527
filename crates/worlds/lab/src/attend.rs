//! Leading a connection to the server that it wants.

use std::{net::IpAddr, pin::pin, sync::Arc};

use ichor_sim::{Door, tls::Persona};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    Hall, grpc, http,
    tls::{self, fingerprint},
};

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The Proxmox API.
    Pve,
    /// The Image Factory, in the clear.
    Factory,
    /// The Image Factory behind TLS.
    FactoryTls,
    /// The Talos API of whatever machine has an address.
    Talos(IpAddr),
    /// The Kubernetes API on whatever machine has an address.
    Kube(IpAddr),
}

/// Serves a connection until it ends, or until the server behind it is another one: a machine that leaves
/// maintenance mode says goodbye on its connections, and one that reboots takes the API server with it.
pub async fn attend<S>(hall: Arc<Hall>, stream: S, target: Target)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (Some(mark), Some(server)) = (mark(&hall, &target), server(&hall, &target)) else { return };
    let gone = pin!(changed(&hall, &target, &mark));
    serve(Arc::clone(&hall), stream, server, gone).await;
}

/// A server as it is at a moment.
struct Server {
    persona: Option<Persona>,
    service: Service,
}

#[derive(PartialEq, Eq)]
enum Service {
    Http(Door),
    Talos(IpAddr),
}

fn server(hall: &Hall, target: &Target) -> Option<Server> {
    hall.look(|lab| {
        let own = || lab.own_persona().cloned();
        Some(match target {
            Target::Pve => Server { persona: Some(own()?), service: Service::Http(Door::Pve) },
            Target::Factory => Server { persona: None, service: Service::Http(Door::Factory) },
            Target::FactoryTls => Server { persona: Some(own()?), service: Service::Http(Door::Factory) },
            Target::Talos(address) => {
                Server { persona: Some(lab.talos_persona(*address)?), service: Service::Talos(*address) }
            }
            Target::Kube(address) => {
                let (cluster, persona) = lab.kube_persona(*address)?;
                Server { persona: Some(persona), service: Service::Http(Door::Kube(cluster)) }
            }
        })
    })
}

/// Returns what tells a server from the one that was there before; nothing while there is none.
fn mark(hall: &Hall, target: &Target) -> Option<String> {
    hall.look(|lab| match target {
        Target::Pve if !lab.front_is_up() => None,
        Target::Factory => Some(String::new()),
        // Who shows another certificate is another server.
        Target::Pve | Target::FactoryTls => Some(fingerprint(lab.own_persona()?.certificates.first()?)),
        Target::Talos(address) => lab.machines.mark(*address),
        Target::Kube(address) => lab.machines.kube_mark(*address),
    })
}

/// Returns when the server behind a target is not the one with this mark any more.
async fn changed(hall: &Hall, target: &Target, was: &str) {
    let mut visits = hall.visits();
    while mark(hall, target).as_deref() == Some(was) {
        if visits.changed().await.is_err() {
            return;
        }
    }
}

async fn serve<S>(hall: Arc<Hall>, stream: S, server: Server, mut gone: impl Future<Output = ()> + Unpin)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(persona) = server.persona else {
        if let Service::Http(door) = server.service {
            or_gone(http::serve(hall, stream, door, None), &mut gone).await;
        }
        return;
    };
    let http2 = server.service != Service::Http(Door::Pve);
    // Whoever cannot agree on TLS is gone; there is nobody to tell.
    let accepted = or_gone(tls::accept(stream, &persona, http2, hall.now()), &mut gone).await;
    let Some(Ok((stream, certificate))) = accepted else { return };
    match server.service {
        Service::Http(door) => {
            or_gone(http::serve(hall, stream, door, certificate), &mut gone).await;
        }
        Service::Talos(address) => grpc::serve(hall, stream, address, certificate, gone).await,
    }
}

/// Does something, unless the server goes first.
async fn or_gone<T>(
    act: impl Future<Output = T>,
    gone: &mut (impl Future<Output = ()> + Unpin),
) -> Option<T> {
    tokio::select! {
        biased;
        done = act => Some(done),
        () = gone => None,
    }
}
