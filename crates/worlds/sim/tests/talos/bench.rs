//! A bench of machines without Proxmox: hardware by hand, signals by hand, calls as a client makes them.

use std::{collections::BTreeMap, net::IpAddr, sync::Mutex, time::Duration};

use ichor_machineconfig::{
    Config, emit,
    generate::{Blueprint, Install, documents},
    pki::{Entropy, RsaKey, TalosRole, Term, Timestamp, talos_client},
    secrets::Bundle,
};
use ichor_model::{KubernetesVersion, Minor, VmId, desired::Role};
use ichor_sim::{
    Lab, Progress,
    clock::Time,
    ground::{Content, DiscKind, HardDisk, Hardware, NetworkCard, OpticalDisc, TalosImage},
    profile::Profile,
    signal::Signal,
    talos::lan::DhcpServer,
    wire::{Polled, Rpc, RpcReply, StreamId},
};
use ichor_talos_proto::{Message, cosi::resource as cosi, machine as api};
use sha2::{Digest, Sha256};

pub const EMPTY_SCHEMATIC: &str = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";

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

/// Makes the secrets of a seed, once: ECDSA signatures differ from one time to the next.
pub fn bundle(seed: u64) -> Bundle {
    static MADE: Mutex<BTreeMap<u64, Bundle>> = Mutex::new(BTreeMap::new());
    MADE.lock()
        .expect("no test panics while it makes secrets")
        .entry(seed)
        .or_insert_with(|| make(seed))
        .clone()
}

fn make(seed: u64) -> Bundle {
    let file = include_str!("../../../../core/machineconfig/tests/golden/service-account.pem");
    let (_, pem) = file.split_once(".\n").expect("a warning, then the key");
    let rsa = RsaKey::from_pem(pem).expect("the test key");
    Bundle::generate(&mut Seeded(seed, 0), start(), rsa).expect("a bundle")
}

fn start() -> Timestamp {
    Timestamp::from_unix_seconds(Time::START.unix_seconds())
}

pub fn vmid(number: u32) -> VmId {
    VmId::new(number).expect("a VMID")
}

pub fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

pub fn mac(last: u8) -> String {
    format!("bc:24:11:00:00:{last:02x}")
}

pub fn image(talos: &str, platform: &str, iso: bool) -> TalosImage {
    TalosImage {
        talos: talos.into(),
        schematic: EMPTY_SCHEMATIC.into(),
        platform: platform.into(),
        arch: "amd64".into(),
        secureboot: false,
        iso,
        extensions: vec!["siderolabs/qemu-guest-agent".into()],
        plain_names: false,
        meta: BTreeMap::new(),
        virtual_size: 10 << 30,
    }
}

/// A lab with a cluster's secrets.
pub struct Bench {
    pub lab: Lab,
    pub bundle: Bundle,
    pub talos: &'static str,
    admin: Vec<u8>,
}

impl Bench {
    pub fn new(talos: &'static str) -> Self {
        Self::seeded(talos, 7, Profile::Lab)
    }

    pub fn seeded(talos: &'static str, seed: u64, profile: Profile) -> Self {
        let mut lab = Lab::new(seed, profile);
        let [first, last] = [[10, 0, 0, 100].into(), [10, 0, 0, 199].into()];
        lab.machines.lan.servers.insert("vmbr0".into(), DhcpServer::new(first, last, 24));
        let bundle = bundle(1);
        let admin = certificate(&bundle, &[TalosRole::Admin]);
        Self { lab, bundle, talos, admin }
    }

    pub fn minor(&self) -> Minor {
        let mut parts =
            self.talos.trim_start_matches('v').split('.').map(|part| part.parse().expect("a number"));
        Minor::new(parts.next().expect("major"), parts.next().expect("minor"))
    }

    /// Devices of a VM with a nocloud disk and Proxmox's cloud-init drive.
    pub fn hardware(&mut self, last: u8) -> Hardware {
        let content = self.lab.ground.media.add(Content::Image(image(self.talos, "nocloud", false)));
        let network = format!(
            "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: '{}'\n      subnets:\n      \
             - type: static\n        address: '10.0.0.{last}'\n        netmask: '255.255.255.0'\n        gateway: '10.0.0.1'\n",
            mac(last)
        );
        let drive = DiscKind::CloudInit {
            user_data: format!("#cloud-config\nhostname: node-{last}\n"),
            meta_data: "instance-id: x\n".into(),
            network_config: network,
        };
        Hardware {
            vmid: vmid(100 + u32::from(last)),
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
                mac: mac(last),
                bridge: "vmbr0".into(),
                vlan: None,
                link_down: false,
            }],
            boot_order: vec!["scsi0".into(), "ide2".into()],
        }
    }

    /// Devices of a VM with an empty disk and installation media.
    pub fn hardware_with_iso(&mut self, last: u8) -> Hardware {
        let mut hardware = self.hardware(last);
        let media = &mut self.lab.ground.media;
        media.set(hardware.disks[0].content, Content::Blank);
        let iso = media.add(Content::Image(image(self.talos, "metal", true)));
        hardware.discs = vec![OpticalDisc { slot: "ide2".into(), kind: DiscKind::File(iso) }];
        hardware
    }

    pub fn switch_on(&mut self, hardware: &Hardware) {
        self.lab.ground.send(Signal::PowerOn(Box::new(hardware.clone())));
        self.pass(Duration::ZERO);
    }

    pub fn send(&mut self, signal: Signal) {
        self.lab.ground.send(signal);
        self.pass(Duration::ZERO);
    }

    /// Lets real time pass.
    pub fn pass(&mut self, real: Duration) {
        let until = self.lab.ground.now + self.lab.ground.profile.takes(real);
        // Signals are delivered by calls and events; an idle call delivers what a test has sent.
        let _ =
            self.lab.rpc(IpAddr::from([0, 0, 0, 0]), &Rpc { began: self.lab.ground.now, ..Rpc::default() });
        self.lab.advance(until);
    }

    pub fn minute(&mut self) {
        self.pass(Duration::from_mins(1));
    }

    /// Calls with a client's certificate, or without one.
    pub fn raw(
        &mut self,
        to: IpAddr,
        method: &str,
        messages: Vec<Vec<u8>>,
        metadata: &[(&str, &str)],
        certificate: Option<Vec<u8>>,
    ) -> RpcReply {
        let rpc = Rpc {
            began: self.lab.ground.now,
            method: method.into(),
            metadata: metadata.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            messages,
            client_certificate: certificate,
        };
        for _ in 0..1000 {
            match self.lab.rpc(to, &rpc) {
                Progress::Done(reply) => return reply,
                Progress::Wait(until) => {
                    self.lab.advance(until);
                }
            }
        }
        panic!("{method} never answers");
    }

    pub fn call<M: Message + Default>(
        &mut self,
        to: IpAddr,
        method: &str,
        request: &impl Message,
    ) -> Result<M, (i32, String)> {
        let admin = Some(self.admin.clone());
        let reply = self.raw(to, method, vec![request.encode_to_vec()], &[], admin);
        first(&reply)
    }

    pub fn insecure<M: Message + Default>(
        &mut self,
        to: IpAddr,
        method: &str,
        request: &impl Message,
    ) -> Result<M, (i32, String)> {
        let reply = self.raw(to, method, vec![request.encode_to_vec()], &[], None);
        first(&reply)
    }

    pub fn machine<M: Message + Default>(
        &mut self,
        to: IpAddr,
        name: &str,
        request: &impl Message,
    ) -> Result<M, (i32, String)> {
        self.call(to, &format!("/machine.MachineService/{name}"), request)
    }

    /// The certificate of an administrator.
    pub fn admin(&self) -> Vec<u8> {
        self.admin.clone()
    }

    /// A machine config with the bench's secrets.
    pub fn config(&self, role: Role, name: &str) -> Vec<u8> {
        self.config_with(role, name, &self.bundle.clone(), |_| ())
    }

    pub fn config_with(
        &self,
        role: Role,
        name: &str,
        bundle: &Bundle,
        change: impl FnOnce(&mut Blueprint),
    ) -> Vec<u8> {
        let minor = self.minor();
        let kubernetes = KubernetesVersion::new(1, minor.minor + 22, 1);
        let mut blueprint = Blueprint::new(role, minor, "dev", "https://10.0.0.11:6443", kubernetes);
        blueprint.install =
            Some(Install { disk: Some("/dev/sda".into()), image: None, kernel_args: Vec::new() });
        change(&mut blueprint);
        let mut documents = documents(&blueprint, bundle);
        if minor >= Minor::new(1, 12) {
            for document in &mut documents {
                if document["kind"] == "HostnameConfig" {
                    document["auto"] = "off".into();
                    document["hostname"] = name.into();
                }
            }
        } else {
            documents[0]["machine"]["network"]["hostname"] = name.into();
            documents[0]["machine"]["features"]["stableHostname"] = false.into();
        }
        emit(&Config::from_json(&documents).expect("a config")).into_bytes()
    }

    pub fn apply(
        &mut self,
        to: IpAddr,
        data: Vec<u8>,
    ) -> Result<api::ApplyConfigurationResponse, (i32, String)> {
        let request = api::ApplyConfigurationRequest { data, mode: 1, ..Default::default() };
        self.insecure(to, "/machine.MachineService/ApplyConfiguration", &request)
    }

    pub fn reapply(
        &mut self,
        to: IpAddr,
        data: Vec<u8>,
        mode: i32,
    ) -> Result<api::ApplyConfiguration, (i32, String)> {
        let request = api::ApplyConfigurationRequest { data, mode, ..Default::default() };
        let answer: api::ApplyConfigurationResponse = self.machine(to, "ApplyConfiguration", &request)?;
        Ok(answer.messages.into_iter().next().expect("one message"))
    }

    /// Switches a machine on and gives it a config.
    pub fn join(&mut self, last: u8, role: Role) {
        let hardware = self.hardware(last);
        self.switch_on(&hardware);
        self.minute();
        let config = self.config(role, &format!("node-{last}"));
        self.apply(address(last), config).expect("a config that is taken");
        self.minute();
    }

    /// Three control planes and two workers, all running.
    pub fn cluster(&mut self) {
        for last in 11..=13 {
            self.join(last, Role::ControlPlane);
        }
        for last in 21..=22 {
            self.join(last, Role::Worker);
        }
        let _: api::BootstrapResponse =
            self.machine(address(11), "Bootstrap", &api::BootstrapRequest::default()).expect("bootstrap");
        for _ in 0..5 {
            self.minute();
        }
    }

    pub fn resource(
        &mut self,
        to: IpAddr,
        namespace: &str,
        kind: &str,
        id: &str,
    ) -> Result<String, (i32, String)> {
        let request = cosi::GetRequest {
            namespace: namespace.into(),
            r#type: kind.into(),
            id: id.into(),
            options: None,
        };
        let answer: cosi::GetResponse = self.call(to, "/cosi.resource.State/Get", &request)?;
        Ok(answer.resource.and_then(|resource| resource.spec).map(|spec| spec.yaml_spec).unwrap_or_default())
    }

    pub fn status(&mut self, to: IpAddr) -> String {
        self.resource(to, "runtime", "MachineStatuses.runtime.talos.dev", "machine")
            .unwrap_or_else(|error| format!("{error:?}"))
    }

    pub fn members(&mut self, to: IpAddr) -> Result<Vec<api::EtcdMember>, (i32, String)> {
        let answer: api::EtcdMemberListResponse =
            self.machine(to, "EtcdMemberList", &api::EtcdMemberListRequest::default())?;
        Ok(answer.messages.into_iter().flat_map(|message| message.members).collect())
    }

    pub fn version(&mut self, to: IpAddr) -> Result<String, (i32, String)> {
        let answer: api::VersionResponse = self.machine(to, "Version", &())?;
        Ok(answer.messages[0].version.clone().unwrap_or_default().tag)
    }

    pub fn boot_id(&mut self, to: IpAddr) -> Vec<u8> {
        let path = "/proc/sys/kernel/random/boot_id".to_owned();
        let answer: ichor_talos_proto::common::Data =
            self.machine(to, "Read", &api::ReadRequest { path }).expect("a boot id");
        answer.bytes
    }

    /// Follows a stream until it has nothing more to say, or has ended.
    pub fn follow(&mut self, stream: StreamId) -> (Vec<Vec<u8>>, bool) {
        let mut pieces = Vec::new();
        loop {
            match self.lab.poll_rpc(address(11), stream) {
                Polled::Pieces(more) => pieces.extend(more),
                Polled::Wait(Some(until)) => {
                    self.lab.advance(until);
                }
                Polled::Wait(None) => return (pieces, false),
                Polled::End => return (pieces, true),
            }
        }
    }
}

pub fn certificate(bundle: &Bundle, roles: &[TalosRole]) -> Vec<u8> {
    let term = Term { now: start(), lifetime: Duration::from_hours(1000) };
    let client = talos_client(&bundle.os, roles, term, &mut Seeded(99, 0)).expect("a client");
    client.certificate.der().to_vec()
}

pub fn first<M: Message + Default>(reply: &RpcReply) -> Result<M, (i32, String)> {
    match reply {
        RpcReply::Messages { messages, .. } => {
            Ok(M::decode(messages.first().map_or(&[][..], Vec::as_slice)).expect("a message"))
        }
        RpcReply::Status { code, message } => Err((*code, message.clone())),
    }
}
