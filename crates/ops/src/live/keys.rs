//! What the machines and Kubernetes know us by, and we them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ichor_machineconfig::{
    pki::{Client, PkiError, TalosRole, Term, kubernetes_admin, talos_client},
    secrets::Bundle,
};
use ichor_model::{Code, Finding};
use ichor_net::{Dial, Endpoint, HttpClient, Identity, Trust};
use ichor_talos::{Address, PORT, Talos};

use crate::{Halt, System, entropy::Draws, halt::only};

/// How long the certificates of a run are good. No run takes longer.
const LIFETIME: Duration = Duration::from_hours(24);
/// Where Kubernetes' API servers listen.
const API_PORT: u16 = 6443;

/// A client of a Kubernetes API server.
pub type Kube = ichor_kube::Client<HttpClient>;

/// Certificates of a run: short-lived, made from the cluster's own authorities, and never written anywhere.
#[derive(Debug, Clone)]
pub struct Keys {
    talos: (Vec<u8>, Identity),
    kubernetes: (Vec<u8>, Identity),
}

impl Keys {
    /// Makes the certificates of a run.
    pub fn new(system: &dyn System, bundle: &Bundle) -> Result<Self, Halt> {
        let term = Term { now: system.now(), lifetime: LIFETIME };
        let mut draws = Draws::new(system);
        let talos = talos_client(&bundle.os, &[TalosRole::Admin], term, &mut draws);
        let talos =
            draws.vouch(talos).and_then(|client| identity(&client)).map_err(|error| failed(&error))?;
        let mut draws = Draws::new(system);
        let admin = kubernetes_admin(&bundle.kubernetes, term, &mut draws);
        let admin =
            draws.vouch(admin).and_then(|client| identity(&client)).map_err(|error| failed(&error))?;
        let der = |authority: &ichor_machineconfig::pki::Authority| authority.certificate().der().to_vec();
        Ok(Self { talos: (der(&bundle.os), talos), kubernetes: (der(&bundle.kubernetes), admin) })
    }

    /// Returns the authority of the cluster's machines (DER).
    pub fn talos_authority(&self) -> &[u8] {
        &self.talos.0
    }

    /// Makes a client of a configured machine.
    pub fn talos(&self, address: IpAddr, dialer: Arc<dyn Dial>) -> Result<Talos, String> {
        Talos::secure(at(address), vec![self.talos.0.clone()], &self.talos.1, dialer)
            .map_err(|error| error.to_string())
    }

    /// Makes a client of the API server at an address.
    pub fn kube(&self, address: IpAddr, dialer: Arc<dyn Dial>) -> Result<Kube, String> {
        let endpoint = Endpoint { host: address.to_string(), port: API_PORT, tls: true };
        let trust = Trust::Authorities(vec![self.kubernetes.0.clone()]);
        HttpClient::new(endpoint, trust, Some(&self.kubernetes.1), dialer)
            .map(ichor_kube::Client::new)
            .map_err(|error| error.to_string())
    }
}

/// Returns where the Talos API of an address is.
pub fn at(address: IpAddr) -> Address {
    Address { host: address.to_string(), port: PORT }
}

fn identity(client: &Client) -> Result<Identity, PkiError> {
    Ok(Identity { certificates: vec![client.certificate.der().to_vec()], key: client.key.to_pkcs8_der()? })
}

fn failed(error: &PkiError) -> Halt {
    let finding = Finding::error(Code::CERTIFICATE, None, "no certificate could be made for this run");
    Halt::failed(only(finding.because(error.to_string())))
}
