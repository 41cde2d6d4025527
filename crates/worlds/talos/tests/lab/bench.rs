//! Machines in a lab behind its proxy on loopback, and a cluster's secrets.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use ichor_lab::{
    Hall,
    proxy::Routes,
    serve::{self, Ports},
};
use ichor_machineconfig::{
    Config, emit,
    generate::{Blueprint, Install, documents},
    pki::{Entropy, RsaKey, TalosRole, Term, Timestamp, talos_client},
    secrets::Bundle,
};
use ichor_model::{KubernetesVersion, Minor, VmId, desired::Role};
use ichor_net::{Dial, Identity, Stream, Trust};
use ichor_sim::{
    ground::{Content, ContentId, DiscKind, HardDisk, Hardware, NetworkCard, OpticalDisc, TalosImage},
    profile::Profile,
    setup::Setup,
    signal::Signal,
    wire::Rpc,
};
use ichor_talos::{Address, Error, Talos, api, resource::MachineStatus};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};

/// Longest that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
const EMPTY_SCHEMATIC: &str = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";

/// Entropy of a seed.
struct Seeded(u64, u64);

impl Entropy for Seeded {
    fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(32) {
            self.1 += 1;
            let digest = Sha256::digest([self.0.to_be_bytes(), self.1.to_be_bytes()].concat());
            chunk.copy_from_slice(&digest[..chunk.len()]);
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_seconds(ichor_lab::real_time().unix_seconds())
}

/// Makes the secrets of a seed, once.
pub fn bundle(seed: u64) -> Bundle {
    static MADE: Mutex<BTreeMap<u64, Bundle>> = Mutex::new(BTreeMap::new());
    let make = || {
        let file = include_str!("../../../../core/machineconfig/tests/golden/service-account.pem");
        let (_, pem) = file.split_once(".\n").expect("a warning, then the key");
        let rsa = RsaKey::from_pem(pem).expect("the test key");
        Bundle::generate(&mut Seeded(seed, 0), now(), rsa).expect("a bundle")
    };
    MADE.lock().expect("no test panics while it makes secrets").entry(seed).or_insert_with(make).clone()
}

/// Our certificate in a cluster.
pub fn identity(bundle: &Bundle, roles: &[TalosRole]) -> Identity {
    let term = Term { now: now(), lifetime: Duration::from_hours(1000) };
    let client = talos_client(&bundle.os, roles, term, &mut Seeded(99, 0)).expect("a client");
    Identity {
        certificates: vec![client.certificate.der().to_vec()],
        key: client.key.to_pkcs8_der().expect("a key"),
    }
}

pub fn authorities(bundle: &Bundle) -> Vec<Vec<u8>> {
    vec![bundle.os.certificate().der().to_vec()]
}

pub fn address(last: u8) -> Address {
    IpAddr::from([10, 0, 0, last]).into()
}

type Dialled<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Dials through the lab's proxy, and counts how often.
#[derive(Debug)]
pub struct Tunnel {
    proxy: SocketAddr,
    pub dialled: Mutex<usize>,
}

impl Dial for Tunnel {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        Box::pin(async move {
            *self.dialled.lock().expect("a count") += 1;
            let mut stream = TcpStream::connect(self.proxy).await?;
            let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            if !head.starts_with(b"HTTP/1.1 200") {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// A lab.
pub struct Bench {
    pub hall: Arc<Hall>,
    pub tunnel: Arc<Tunnel>,
    pub bundle: Bundle,
    talos: &'static str,
}

impl Bench {
    pub async fn new(talos: &'static str) -> Self {
        let mut setup = Setup::new(1, Profile::Instant);
        setup.begins = ichor_lab::real_time();
        let hall = Arc::new(Hall::new(setup.build()));
        let ports = Ports { address: IpAddr::V4(Ipv4Addr::LOCALHOST), pve: 0, factory: 0, proxy: 0 };
        let at = serve::start(&hall, ports, Routes::default()).await.expect("ports");
        let tunnel = Arc::new(Tunnel { proxy: at.proxy, dialled: Mutex::new(0) });
        Self { hall, tunnel, bundle: bundle(1), talos }
    }

    pub fn dialer(&self) -> Arc<dyn Dial> {
        Arc::<Tunnel>::clone(&self.tunnel)
    }

    pub fn maintenance(&self, last: u8, trust: Trust) -> Talos {
        Talos::maintenance(address(last), trust, self.dialer()).expect("a client")
    }

    /// A client that is let in everywhere.
    pub fn admin(&self, last: u8) -> Talos {
        self.client(last, &self.bundle, &identity(&self.bundle, &[TalosRole::Admin]))
    }

    pub fn client(&self, last: u8, bundle: &Bundle, identity: &Identity) -> Talos {
        Talos::secure(address(last), authorities(bundle), identity, self.dialer()).expect("a client")
    }

    /// Switches a machine with a nocloud disk on, and waits until it listens.
    pub async fn switch_on(&self, last: u8) {
        let talos = self.talos;
        self.hall.visit(|lab| {
            let content = lab.ground.media.add(Content::Image(image(talos)));
            let hardware = hardware(last, content);
            lab.ground.send(Signal::PowerOn(Box::new(hardware)));
            // Signals are delivered by calls.
            let idle = Rpc { began: lab.ground.now, ..Rpc::default() };
            let _ = lab.rpc(IpAddr::from([0, 0, 0, 0]), &idle);
        });
        until("a machine listens", async || {
            let listening = self.hall.look(ichor_sim::Lab::talos_addresses);
            listening.contains(&IpAddr::from([10, 0, 0, last])).then_some(())
        })
        .await;
    }

    pub fn config(&self, last: u8, role: Role, bundle: &Bundle) -> Vec<u8> {
        let minor = self.minor();
        let kubernetes = KubernetesVersion::new(1, minor.minor + 22, 1);
        let mut blueprint = Blueprint::new(role, minor, "dev", "https://10.0.0.11:6443", kubernetes);
        blueprint.install =
            Some(Install { disk: Some("/dev/sda".into()), image: None, kernel_args: Vec::new() });
        let mut documents = documents(&blueprint, bundle);
        let name = format!("node-{last}");
        if minor >= Minor::new(1, 12) {
            for document in &mut documents {
                if document["kind"] == "HostnameConfig" {
                    document["auto"] = "off".into();
                    document["hostname"] = name.clone().into();
                }
            }
        } else {
            documents[0]["machine"]["network"]["hostname"] = name.into();
            documents[0]["machine"]["features"]["stableHostname"] = false.into();
        }
        emit(&Config::from_json(&documents).expect("a config")).into_bytes()
    }

    fn minor(&self) -> Minor {
        let mut parts =
            self.talos.trim_start_matches('v').split('.').map(|part| part.parse().expect("a number"));
        Minor::new(parts.next().expect("major"), parts.next().expect("minor"))
    }

    /// Switches a machine on, gives it a config, and waits until it lets us in.
    pub async fn join(&self, last: u8, role: Role) -> Talos {
        self.join_as(last, role, &self.bundle).await
    }

    pub async fn join_as(&self, last: u8, role: Role, bundle: &Bundle) -> Talos {
        self.switch_on(last).await;
        let config = self.config(last, role, bundle);
        let call = api::apply_configuration(&config, api::ApplyMode::Auto, false);
        self.maintenance(last, Trust::Anybody).send(&call).await.expect("a config that is taken");
        let client = self.client(last, bundle, &identity(bundle, &[TalosRole::Admin]));
        until("a configured machine answers", async || client.send(&api::version()).await.ok()).await;
        client
    }

    /// Bootstraps when the machine is ready for it.
    pub async fn bootstrap(&self, client: &Talos) {
        until("a machine bootstraps", async || {
            match client.send(&api::bootstrap(api::Recovery::None)).await {
                Ok(()) => Some(()),
                Err(Error::Refused(refusal)) if refusal.text.contains("yet") => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
    }

    /// Waits for a status.
    pub async fn status(&self, client: &Talos, wanted: impl Fn(&MachineStatus) -> bool) -> MachineStatus {
        until("a machine has a status", async || {
            let found = client.find::<MachineStatus>().await.ok().flatten()?;
            Some(found.spec).filter(|status| wanted(status))
        })
        .await
    }
}

/// Looks until something is so.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn image(talos: &str) -> TalosImage {
    TalosImage {
        talos: talos.into(),
        schematic: EMPTY_SCHEMATIC.into(),
        platform: "nocloud".into(),
        arch: "amd64".into(),
        secureboot: false,
        iso: false,
        extensions: vec!["siderolabs/qemu-guest-agent".into()],
        plain_names: false,
        meta: BTreeMap::new(),
        virtual_size: 10 << 30,
    }
}

fn hardware(last: u8, content: ContentId) -> Hardware {
    let mac = format!("bc:24:11:00:00:{last:02x}");
    let network = format!(
        "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: '{mac}'\n      subnets:\n      \
         - type: static\n        address: '10.0.0.{last}'\n        netmask: '255.255.255.0'\n        gateway: '10.0.0.1'\n"
    );
    let drive = DiscKind::CloudInit {
        user_data: format!("#cloud-config\nhostname: node-{last}\n"),
        meta_data: "instance-id: x\n".into(),
        network_config: network,
    };
    Hardware {
        vmid: VmId::new(100 + u32::from(last)).expect("a VMID"),
        host: "pve1".into(),
        uuid: format!("00000000-0000-4000-8000-0000000000{last:02x}"),
        serial: String::new(),
        cpus: 2,
        cpu_type: "x86-64-v2-AES".into(),
        memory_mib: 4096,
        uefi: true,
        tpm: false,
        agent: true,
        serial_console: true,
        disks: vec![HardDisk { slot: "scsi0".into(), serial: None, size: 20 << 30, content }],
        discs: vec![OpticalDisc { slot: "ide2".into(), kind: drive }],
        cards: vec![NetworkCard {
            slot: "net0".into(),
            mac,
            bridge: "vmbr0".into(),
            vlan: None,
            link_down: false,
        }],
        boot_order: vec!["scsi0".into(), "ide2".into()],
    }
}
