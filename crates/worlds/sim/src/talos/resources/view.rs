//! What a machine shows of itself as resources.

use std::net::IpAddr;

use ichor_model::Minor;
use serde_json::json;

use super::{
    Shown,
    definitions::{ALL, DEFINITIONS, NAMESPACE_KIND, NAMESPACES},
    spec::{Spec, Value, quoted},
};
use crate::{
    ground::Ground,
    talos::{
        Machines,
        machine::{Machine, Run, Stage, State},
        release,
        wanted::Wanted,
    },
};

/// Collects resources.
struct View(Vec<Shown>);

impl View {
    fn add(&mut self, kind: &'static str, namespace: &'static str, id: impl Into<String>, spec: &Spec) {
        self.0.push(Shown { kind, namespace, id: id.into(), yaml: spec.to_yaml(), proto: spec.to_proto() });
    }
}

/// Says what a machine shows now.
pub fn view(machines: &Machines, ground: &Ground, machine: &Machine) -> Vec<Shown> {
    let mut view = View(Vec::new());
    let Some(run) = &machine.run else { return view.0 };
    for definition in ALL {
        let (yaml, proto) = definition.describe();
        view.0.push(Shown { kind: DEFINITIONS, namespace: "meta", id: definition.id(), yaml, proto });
    }
    for namespace in NAMESPACES {
        view.add(NAMESPACE_KIND, "meta", namespace, &Spec::default().with("description", 1, ""));
    }
    runtime(&mut view, ground, machine, run);
    hardware(&mut view, machine);
    disks(&mut view, ground, machine, run);
    network(&mut view, machines, machine, run);
    if let Some(wanted) = &run.wanted {
        config(&mut view, ground, machine, run, wanted);
        kubernetes(&mut view, ground, run, wanted);
        members(&mut view, machines, wanted);
    }
    if let Some((_, member)) = machine.etcd_data(&ground.media).filter(|_| run.runs("etcd")) {
        let spec = Spec::default().with("memberID", 1, format!("{member:016x}"));
        view.add("EtcdMembers.etcd.talos.dev", "etcd", "local", &spec);
    }
    view.0
}

fn runtime(view: &mut View, ground: &Ground, machine: &Machine, run: &Run) {
    let unmet = Machines::unmet(ground, machine);
    let conditions: Vec<Spec> = unmet
        .iter()
        .map(|(name, reason)| Spec::default().with("name", 1, name).with("reason", 2, reason))
        .collect();
    let stage = Value::Word(run.stage.word(), u64::try_from(run.stage.number()).unwrap_or(0));
    let status = Spec::default().with("ready", 1, unmet.is_empty()).with("unmetConditions", 2, conditions);
    let spec = Spec::default().with("stage", 1, stage).with("status", 2, status);
    view.add("MachineStatuses.runtime.talos.dev", "runtime", "machine", &spec);
    let time = Spec::default()
        .with("synced", 1, run.time_synced)
        .with("epoch", 2, u64::from(run.time_synced))
        .with("syncDisabled", 3, false);
    view.add("TimeStatuses.v1alpha1.talos.dev", "runtime", "node", &time);
    // A service has a resource only while it runs.
    for (id, service) in run.services.iter().filter(|(_, service)| service.state == State::Running) {
        let spec = Spec::default()
            .with("running", 1, true)
            .with("healthy", 2, service.healthy == Some(true))
            .with("unknown", 3, service.healthy.is_none());
        view.add("Services.v1alpha1.talos.dev", "runtime", id, &spec);
    }
    let mut extensions: Vec<(String, String, String)> = run
        .image
        .extensions
        .iter()
        .map(|name| {
            let short = name.rsplit('/').next().unwrap_or_default().to_owned();
            (short, run.image.talos.clone(), String::new())
        })
        .collect();
    extensions.push(("schematic".into(), run.image.schematic.clone(), "customization: {}\n".into()));
    for (index, (name, version, extra)) in extensions.iter().enumerate() {
        let metadata = Spec::default()
            .with("name", 1, name)
            .with("version", 2, version)
            .with("author", 3, "Image Factory")
            .with("description", 4, "")
            .with(
                "compatibility",
                5,
                Spec::default().with("talos", 1, Spec::default().with("version", 1, "")),
            )
            .maybe("extraInfo", 6, extra);
        let image = format!("{index}.sqsh");
        let spec = Spec::default().with("image", 1, image).with("metadata", 2, metadata);
        view.add("ExtensionStatuses.runtime.talos.dev", "runtime", index.to_string(), &spec);
    }
    let version = Spec::default().with("name", 2, "Talos").with("version", 1, &run.image.talos);
    view.add("Versions.runtime.talos.dev", "runtime", "version", &version);
    let security = Spec::default()
        .with("secureBoot", 1, run.image.secureboot)
        .maybe("selinuxState", 4, Value::Word("enabled, permissive", 1))
        .maybe("bootedWithUKI", 5, machine.hardware.uefi);
    view.add("SecurityStates.talos.dev", "runtime", "securitystate", &security);
    let platform = Spec::default()
        .maybe("platform", 1, &run.image.platform)
        .maybe("hostname", 2, run.platform.hostname.clone().unwrap_or_default())
        .maybe("instanceId", 6, run.platform.instance.clone().unwrap_or_default());
    view.add("PlatformMetadatas.talos.dev", "runtime", "platformmetadata", &platform);
    for (key, value) in machine.meta(&ground.media) {
        let spec = Spec::default().with("value", 1, value);
        view.add("MetaKeys.runtime.talos.dev", "runtime", format!("0x{key:02x}"), &spec);
    }
}

fn hardware(view: &mut View, machine: &Machine) {
    let hardware = &machine.hardware;
    let system = Spec::default()
        .maybe("manufacturer", 1, "QEMU")
        .maybe("productName", 2, "Standard PC (i440FX + PIIX, 1996)")
        .maybe("version", 3, "pc-i440fx-10.0")
        .maybe("serialnumber", 4, &hardware.serial)
        .maybe("uuid", 5, &hardware.uuid)
        .maybe("wakeUpType", 6, "Power Switch");
    view.add("SystemInformations.hardware.talos.dev", "hardware", "systeminformation", &system);
    let cpus = u64::from(hardware.cpus);
    let processor = Spec::default()
        .maybe("socket", 1, "CPU 0")
        .maybe("manufacturer", 2, "QEMU")
        .maybe("productName", 3, &hardware.cpu_type)
        .maybe("maxSpeedMhz", 4, 2000_u64)
        .maybe("bootSpeedMhz", 5, 2000_u64)
        .maybe("status", 6, 65_u64)
        .maybe("coreCount", 10, cpus)
        .maybe("coreEnabled", 11, cpus)
        .maybe("threadCount", 12, cpus);
    view.add("Processors.hardware.talos.dev", "hardware", "CPU-0", &processor);
    let memory = Spec::default()
        .maybe("sizeMiB", 1, hardware.memory_mib)
        .maybe("deviceLocator", 2, "DIMM 0")
        .maybe("manufacturer", 5, "QEMU");
    view.add("MemoryModules.hardware.talos.dev", "hardware", "DIMM-0", &memory);
}

/// Writes a size as Talos shows it.
fn pretty(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut tenths = bytes.saturating_mul(10);
    let mut unit = "B";
    for next in UNITS {
        if tenths < 10_000 {
            break;
        }
        tenths /= 1000;
        unit = next;
    }
    if tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", tenths / 10)
    }
}

fn disks(view: &mut View, ground: &Ground, machine: &Machine, run: &Run) {
    let system = machine.system_disk(&ground.media);
    for (name, index) in machine.disks() {
        let disk = &machine.hardware.disks[index];
        let virtio = name.starts_with('v');
        let spec = Spec::default()
            .with("dev_path", 14, format!("/dev/{name}"))
            .with("size", 1, disk.size)
            .with("pretty_size", 15, pretty(disk.size))
            .with("io_size", 2, 512_u64)
            .with("sector_size", 3, 512_u64)
            .with("readonly", 4, false)
            .with("cdrom", 13, false)
            .maybe("model", 5, if virtio { "" } else { "QEMU HARDDISK" })
            .maybe("serial", 6, disk.serial.clone().unwrap_or_default())
            .maybe("bus_path", 9, "/pci0000:00")
            .maybe("sub_system", 10, "/sys/class/block")
            .maybe("transport", 11, "virtio")
            .maybe("rotational", 12, true);
        view.add("Disks.block.talos.dev", "runtime", &name, &spec);
        if system == Some(index) {
            let spec = Spec::default().with("diskID", 1, &name).with("devPath", 2, format!("/dev/{name}"));
            view.add("SystemDisks.block.talos.dev", "runtime", "system-disk", &spec);
            volumes(view, run, &name, disk.size);
        }
    }
}

/// The partitions of a system disk: META, STATE and EPHEMERAL are what clients ask for.
fn volumes(view: &mut View, run: &Run, disk: &str, size: u64) {
    const MIB: u64 = 1 << 20;
    let ready = run.wanted.is_some();
    let parts = [
        ("META", 4_u64, MIB, false),
        ("STATE", 5, 100 * MIB, true),
        ("EPHEMERAL", 6, size.saturating_sub(2200 * MIB), true),
    ];
    for (label, number, size, xfs) in parts {
        let phase = if ready || !xfs { Value::Word("ready", 6) } else { Value::Word("waiting", 0) };
        let located = |text: String| if ready || !xfs { text } else { String::new() };
        let size = if ready || !xfs { size } else { 0 };
        let spec = Spec::default()
            .with("phase", 1, phase)
            .with("type", 16, Value::Word("partition", 0))
            .maybe("location", 2, located(format!("/dev/{disk}{number}")))
            .maybe("partitionIndex", 8, number)
            .maybe("parentLocation", 7, located(format!("/dev/{disk}")))
            .maybe("size", 9, size)
            .maybe("prettySize", 13, if size == 0 { String::new() } else { pretty(size) })
            .maybe("filesystem", 10, if xfs { Value::Word("xfs", 1) } else { Value::Word("none", 0) });
        view.add("VolumeStatuses.block.talos.dev", "runtime", label, &spec);
        if ready && xfs {
            let target = if label == "STATE" { "/system/state" } else { "/var" };
            let spec = Spec::default()
                .with("source", 1, format!("/dev/{disk}{number}"))
                .with("target", 2, target)
                .with("filesystemType", 3, "xfs")
                .with("options", 4, Vec::<String>::new())
                .with("encrypted", 5, false);
            view.add("MountStatuses.runtime.talos.dev", "runtime", label, &spec);
        }
    }
}

fn family(address: IpAddr) -> Value {
    if address.is_ipv4() { Value::Word("inet4", 2) } else { Value::Word("inet6", 10) }
}

fn network(view: &mut View, machines: &Machines, machine: &Machine, run: &Run) {
    let up = run.network.up;
    let has_address = run.network.first().is_some();
    let status = Spec::default()
        .with("addressReady", 1, up && has_address)
        .with("connectivityReady", 2, up && has_address)
        .with("hostnameReady", 3, up)
        .with("etcFilesReady", 4, up);
    view.add("NetworkStatuses.net.talos.dev", "network", "status", &status);
    if !up {
        return;
    }
    let (hostname, domain) = run.network.hostname.split_once('.').unwrap_or((&run.network.hostname, ""));
    let name = Spec::default().with("hostname", 1, hostname).with("domainname", 2, domain);
    view.add("HostnameStatuses.net.talos.dev", "network", "hostname", &name);
    let resolvers: Vec<Value> =
        run.network.resolvers.iter().map(|address| Value::Address(*address)).collect();
    let spec =
        Spec::default().with("dnsServers", 1, resolvers).with("searchDomains", 2, Vec::<String>::new());
    view.add("ResolverStatuses.net.talos.dev", "network", "resolvers", &spec);
    let servers =
        run.wanted.as_ref().map(|wanted| wanted.time_servers.clone()).filter(|servers| !servers.is_empty());
    let servers = servers.unwrap_or_else(|| vec!["time.cloudflare.com".to_owned()]);
    view.add(
        "TimeServerStatuses.net.talos.dev",
        "network",
        "timeservers",
        &Spec::default().with("timeServers", 1, servers),
    );
    links(view, run);
    let held: Vec<(IpAddr, u8)> = machines.held(machine).into_iter().map(|address| (address, 32)).collect();
    let prefixes = |addresses: &[(IpAddr, u8)]| -> Vec<Value> {
        addresses.iter().map(|(address, length)| Value::Prefix(*address, *length)).collect()
    };
    let own: Vec<(IpAddr, u8)> = run.network.addresses().collect();
    let current: Vec<(IpAddr, u8)> = own.iter().chain(&held).copied().collect();
    for (id, addresses) in [
        ("default", &own[..own.len().min(1)]),
        ("current", &current),
        ("accumulative", &current),
        ("routed", &current),
    ] {
        let spec = Spec::default().with("addresses", 1, prefixes(addresses)).with(
            "sortAlgorithm",
            2,
            Value::Word("v1", 0),
        );
        view.add("NodeAddresses.net.talos.dev", "network", id, &spec);
    }
}

fn links(view: &mut View, run: &Run) {
    for (index, link) in run.network.links.iter().enumerate() {
        let number = index as u64 + 8;
        let spec = Spec::default()
            .maybe("alias", 31, link.alias.clone().unwrap_or_default())
            .with("index", 1, number)
            .with("type", 2, Value::Word("ether", 1))
            .with("linkIndex", 3, 0_u64)
            .with("flags", 4, Value::Word("UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP", 69699))
            .with("hardwareAddr", 5, Value::Mac(link.mac.clone()))
            .with("permanentAddr", 30, Value::Mac(link.mac.clone()))
            .with("broadcastAddr", 6, Value::Mac("ff:ff:ff:ff:ff:ff".into()))
            .with("mtu", 7, 1500_u64)
            .with("queueDisc", 8, "pfifo_fast")
            .with("operationalState", 10, if link.up { Value::Word("up", 6) } else { Value::Word("down", 2) })
            .with("kind", 11, "")
            .with("slaveKind", 12, "")
            .maybe("busPath", 13, format!("0000:06:{:02x}.0", 18 + index))
            .maybe("driver", 15, "virtio_net")
            .with("linkState", 22, link.up)
            .with("port", 24, Value::Word("Other", 255))
            .with("duplex", 25, Value::Word("Unknown", 255));
        view.add("LinkStatuses.net.talos.dev", "network", &link.name, &spec);
        for (address, length) in &link.addresses {
            let spec = Spec::default()
                .with("address", 1, Value::Prefix(*address, *length))
                .maybe("local", 2, Value::Address(*address))
                .with("linkIndex", 6, number)
                .with("linkName", 7, &link.name)
                .with("family", 8, family(*address))
                .with("scope", 9, Value::Word("global", 0))
                .with("flags", 10, Value::Word("permanent", 128))
                .with("priority", 11, 0_u64);
            view.add(
                "AddressStatuses.net.talos.dev",
                "network",
                format!("{}/{address}/{length}", link.name),
                &spec,
            );
        }
        for gateway in &link.gateways {
            let spec = Spec::default()
                .with("family", 1, family(*gateway))
                .with("dst", 2, "")
                .with("src", 3, "")
                .with("gateway", 4, Value::Address(*gateway))
                .maybe("outLinkIndex", 5, number)
                .maybe("outLinkName", 6, &link.name)
                .with("table", 7, Value::Word("main", 254))
                .with("priority", 8, 1024_u64)
                .with("scope", 9, Value::Word("global", 0))
                .with("type", 10, Value::Word("unicast", 1))
                .with("flags", 11, "")
                .with("protocol", 12, Value::Word("static", 4));
            let id = format!("{}/{gateway}//1024", if gateway.is_ipv4() { "inet4" } else { "inet6" });
            view.add("RouteStatuses.net.talos.dev", "network", id, &spec);
        }
    }
}

fn config(view: &mut View, ground: &Ground, machine: &Machine, run: &Run, wanted: &Wanted) {
    let stored = machine.installed(&ground.media).and_then(|installed| installed.config.clone());
    let persistent = stored.or_else(|| run.config.clone());
    for (id, bytes) in [("v1alpha1", &run.config), ("persistent", &persistent)] {
        // The second id came with 1.10.
        let known = id == "v1alpha1" || run.minor() >= Minor::new(1, 10);
        if let Some(bytes) = bytes.as_ref().filter(|_| known) {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let yaml = if release::config_is_text(run.minor()) {
                format!("{}\n", serde_json::Value::String(text.clone()))
            } else {
                text.clone()
            };
            let proto = Spec::default().with("yaml_marshalled", 1, text).to_proto();
            view.0.push(Shown {
                kind: "MachineConfigs.config.talos.dev",
                namespace: "config",
                id: id.into(),
                yaml,
                proto,
            });
        }
    }
    let kind = match wanted.kind.as_str() {
        "init" => ("init", 1),
        "controlplane" => ("controlplane", 2),
        _ => ("worker", 3),
    };
    let proto = Spec::default().with("type", 1, Value::Word(kind.0, kind.1)).to_proto();
    let yaml = format!("{}\n", quoted(kind.0));
    view.0.push(Shown {
        kind: "MachineTypes.config.talos.dev",
        namespace: "config",
        id: "machine-type".into(),
        yaml,
        proto,
    });
    let info =
        Spec::default().with("clusterId", 1, &wanted.cluster_id).with("clusterName", 2, &wanted.cluster);
    view.add("Infos.cluster.talos.dev", "cluster", "current", &info);
}

fn kubernetes(view: &mut View, ground: &Ground, run: &Run, wanted: &Wanted) {
    let name = &run.network.hostname;
    let spec = Spec::default().with("nodename", 1, name).with("hostnameVersion", 2, "1").with(
        "skipNodeRegistration",
        3,
        false,
    );
    view.add("Nodenames.kubernetes.talos.dev", "k8s", "nodename", &spec);
    let image = |component: &str| wanted.images.get(component).cloned().unwrap_or_default();
    let kubelet = Spec::default().with("image", 1, image("kubelet")).maybe("expectedNodename", 4, name).with(
        "config",
        5,
        Value::Free(json!({})),
    );
    view.add("KubeletSpecs.kubernetes.talos.dev", "k8s", "kubelet", &kubelet);
    if let Some((cluster, node)) = &run.node {
        let seen = ground.kubernetes.get(cluster).and_then(|kube| kube.nodes.get(node)).copied();
        let seen = seen.unwrap_or(crate::ground::NodeView { ready: run.pod_network, unschedulable: false });
        let spec = Spec::default()
            .with("nodename", 1, node)
            .with("nodeReady", 2, seen.ready)
            .with("unschedulable", 3, seen.unschedulable)
            .with("labels", 4, Value::Dictionary(wanted.labels.clone()))
            .with("annotations", 5, Value::Dictionary(wanted.annotations.clone()));
        view.add("NodeStatuses.kubernetes.talos.dev", "k8s", node, &spec);
    }
    if wanted.is_control_plane() {
        control_plane(view, run, wanted);
    }
}

fn control_plane(view: &mut View, run: &Run, wanted: &Wanted) {
    let image = |component: &str| wanted.images.get(component).cloned().unwrap_or_default();
    let server = Spec::default()
        .with("image", 1, image("kube-apiserver"))
        .with("cloudProvider", 2, "")
        .with("controlPlaneEndpoint", 3, &wanted.endpoint)
        .with("etcdServers", 4, vec!["https://localhost:2379"])
        .with("localPort", 5, u64::from(wanted.api_port))
        .with("serviceCIDR", 6, wanted.services.clone());
    view.add("APIServerConfigs.kubernetes.talos.dev", "controlplane", "kube-apiserver", &server);
    let manager = Spec::default()
        .with("enabled", 1, true)
        .with("image", 2, image("kube-controller-manager"))
        .with("cloudProvider", 3, "")
        .with("podCIDRs", 4, wanted.pods.clone())
        .with("serviceCIDRs", 5, wanted.services.clone());
    view.add(
        "ControllerManagerConfigs.kubernetes.talos.dev",
        "controlplane",
        "kube-controller-manager",
        &manager,
    );
    let scheduler = Spec::default().with("enabled", 1, true).with("image", 2, image("kube-scheduler"));
    view.add("SchedulerConfigs.kubernetes.talos.dev", "controlplane", "kube-scheduler", &scheduler);
    let manifests = Spec::default()
        .with("string", 1, &wanted.endpoint)
        .with("clusterDomain", 2, &wanted.domain)
        .with("podCIDRs", 3, wanted.pods.clone())
        .with("proxyEnabled", 4, wanted.kube_proxy)
        .with("proxyImage", 5, image("kube-proxy"))
        .with("coreDNSEnabled", 7, true)
        .with("flannelEnabled", 11, wanted.cni_included)
        .with("cniName", 21, if wanted.cni_included { "flannel" } else { "none" });
    view.add("BootstrapManifestsConfigs.kubernetes.talos.dev", "controlplane", "manifests", &manifests);
    if run.static_pods && run.stage != Stage::Rebooting {
        for pod in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"];
            let conditions: Vec<_> =
                conditions.iter().map(|kind| json!({ "type": kind, "status": "True" })).collect();
            let status = json!({ "phase": "Running", "conditions": conditions });
            let proto = Spec::default().with("podStatus", 1, Value::Free(status.clone())).to_proto();
            view.0.push(Shown {
                kind: "StaticPodStatuses.kubernetes.talos.dev",
                namespace: "k8s",
                id: format!("kube-system/{pod}-{}", run.network.hostname),
                yaml: format!("{status}\n"),
                proto,
            });
        }
    }
}

/// The machines of a cluster that found each other through discovery.
fn members(view: &mut View, machines: &Machines, wanted: &Wanted) {
    if !wanted.discovery {
        return;
    }
    for other in machines.by_id.values() {
        let Some(run) = other.run.as_ref().filter(|run| run.network.up) else { continue };
        let Some(facts) = run.wanted.as_ref() else { continue };
        let known = facts.discovery
            && (&facts.cluster_id, &facts.cluster_secret) == (&wanted.cluster_id, &wanted.cluster_secret);
        if !known || run.stage == Stage::Installing {
            continue;
        }
        let addresses: Vec<Value> =
            run.network.addresses().map(|(address, _)| Value::Address(address)).collect();
        let kind =
            if facts.is_control_plane() { Value::Word("controlplane", 2) } else { Value::Word("worker", 3) };
        let mut spec = Spec::default()
            .with("nodeId", 1, &other.hardware.uuid)
            .with("addresses", 2, addresses)
            .with("hostname", 3, &run.network.hostname)
            .with("machineType", 4, kind)
            .with("operatingSystem", 5, format!("Talos ({})", run.image.talos));
        if facts.is_control_plane() {
            spec = spec.maybe("controlPlane", 6, Spec::default().with("port", 1, u64::from(facts.api_port)));
        }
        view.add("Members.cluster.talos.dev", "cluster", &run.network.hostname, &spec);
    }
}
