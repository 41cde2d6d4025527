//! Calls that look, and those that give access.

mod access;
mod numbers;

use ichor_talos_proto::{
    Message, Timestamp, cluster as health, code,
    common::Data,
    inspect,
    machine::{
        DmesgRequest, Event, EventsRequest, FeaturesInfo, FileInfo, Hostname, HostnameResponse, ListRequest,
        LogsContainer, LogsContainersResponse, LogsRequest, PlatformInfo, ReadRequest, ServiceEvent,
        ServiceEvents, ServiceHealth, ServiceInfo, ServiceList, ServiceListResponse, Version, VersionInfo,
        VersionResponse,
    },
    storage, time as clock,
};

use super::{Call, Outcome, Reply, one, refuse, request};
use crate::{
    clock::Time,
    ground::{Content, Ground},
    talos::{
        Machines,
        machine::{Machine, Run, Stage},
        streams::Source,
    },
};

/// Writes a moment as protobuf does.
pub(super) fn timestamp(time: Time) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(time.unix_seconds()).unwrap_or(0),
        nanos: i32::try_from(time.millis() % 1000 * 1_000_000).unwrap_or(0),
    }
}

fn data(text: &str) -> Vec<u8> {
    Data { metadata: None, bytes: text.as_bytes().to_vec() }.encode_to_vec()
}

impl Machines {
    pub(super) fn call_monitor(&mut self, ground: &mut Ground, call: &Call<'_>, name: &str) -> Outcome {
        let Some(machine) = self.by_id.get(&call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        let Some(run) = &machine.run else { return refuse(code::UNAVAILABLE, "connection closed") };
        match name {
            "Version" => one(&version(run)),
            "Hostname" => {
                let answer = Hostname { metadata: None, hostname: run.network.hostname.clone() };
                one(&HostnameResponse { messages: vec![answer] })
            }
            "ServiceList" => one(&services(run)),
            "Events" => self.events(ground, call),
            "Logs" => self.logs(call),
            "LogsContainers" => {
                let ids = run.services.keys().cloned().collect();
                one(&LogsContainersResponse { messages: vec![LogsContainer { metadata: None, ids }] })
            }
            "Dmesg" => self.dmesg(call),
            "Read" => read(ground, machine, run, &request::<ReadRequest>(call.rpc)?.path),
            "List" => list(machine, ground, &request::<ListRequest>(call.rpc)?),
            "Disks" => one(&storage::DisksResponse { messages: vec![disks(ground, machine)] }),
            "BlockDeviceWipe" => self.wipe_devices(ground, call),
            "Time" | "TimeCheck" => {
                let asked: clock::TimeRequest = request(call.rpc)?;
                let server =
                    if asked.server.is_empty() { "time.cloudflare.com".to_owned() } else { asked.server };
                let now = Some(timestamp(ground.now));
                let answer = clock::Time { metadata: None, server, localtime: now, remotetime: now };
                one(&clock::TimeResponse { messages: vec![answer] })
            }
            "HealthCheck" => self.health_check(ground, call),
            "ControllerRuntimeDependencies" => one(&inspect::ControllerRuntimeDependenciesResponse {
                messages: vec![inspect::ControllerRuntimeDependency::default()],
            }),
            "Kubeconfig" => access::kubeconfig(ground, machine, run),
            "GenerateClientConfiguration" => access::client_configuration(ground, machine, run, call),
            _ => numbers::answer(ground, machine, run, name),
        }
    }

    fn events(&mut self, ground: &Ground, call: &Call<'_>) -> Outcome {
        let asked: EventsRequest = request(call.rpc)?;
        let Some(run) = self.run(call.vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        let journal = &run.journal;
        let end = journal.event_end();
        let start = if !asked.tail_id.is_empty() {
            journal.event_number(&asked.tail_id).map_or(0, |number| number + 1)
        } else if asked.tail_seconds > 0 {
            let seconds = u64::try_from(asked.tail_seconds).unwrap_or(0);
            let recent =
                |at: Time| at.since(Time::from_millis(0)).as_secs() + seconds >= ground.now.unix_seconds();
            end - journal.events_since(0).filter(|(at, _)| recent(*at)).count() as u64
        } else if asked.tail_events < 0 {
            0
        } else {
            end.saturating_sub(u64::try_from(asked.tail_events).unwrap_or(0))
        };
        let events = journal.events_since(start).map(|(_, event)| event);
        let wanted =
            events.filter(|event| asked.with_actor_id.is_empty() || event.actor_id == asked.with_actor_id);
        // The first event is empty: it says that the stream has begun.
        let messages =
            std::iter::once(Event::default()).chain(wanted).map(|event| event.encode_to_vec()).collect();
        let stream = self.open(call.vmid, Source::Events(end, asked.with_actor_id));
        Ok(Reply::Messages(messages, Some(stream)))
    }

    fn logs(&mut self, call: &Call<'_>) -> Outcome {
        let asked: LogsRequest = request(call.rpc)?;
        let Some(run) = self.run(call.vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        let Some(lines) = run.journal.of(&asked.id) else {
            return refuse(code::UNKNOWN, format!("log {:?} was not registered", asked.id));
        };
        let end = lines.end();
        let tail = if asked.tail_lines < 0 {
            0
        } else {
            end.saturating_sub(u64::try_from(asked.tail_lines).unwrap_or(0))
        };
        let messages = lines.since(tail).map(|line| data(&format!("{line}\n"))).collect();
        let stream = asked.follow.then(|| self.open(call.vmid, Source::Log(asked.id, end)));
        Ok(Reply::Messages(messages, stream))
    }

    fn dmesg(&mut self, call: &Call<'_>) -> Outcome {
        let asked: DmesgRequest = request(call.rpc)?;
        let Some(run) = self.run(call.vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        let lines = run.journal.kernel();
        let end = lines.end();
        let start = if asked.tail { end } else { 0 };
        let messages = lines.since(start).map(|line| data(&format!("{line}\n"))).collect();
        let stream = asked.follow.then(|| self.open(call.vmid, Source::Kernel(end)));
        Ok(Reply::Messages(messages, stream))
    }

    fn wipe_devices(&self, ground: &mut Ground, call: &Call<'_>) -> Outcome {
        let asked: storage::BlockDeviceWipeRequest = request(call.rpc)?;
        let Some(machine) = self.by_id.get(&call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        let system = machine.system_disk(&ground.media);
        let mut wiped = Vec::new();
        for device in &asked.devices {
            let Some((_, index)) = machine.disks().into_iter().find(|(name, _)| *name == device.device)
            else {
                return refuse(code::NOT_FOUND, format!("blockdevice {:?} not found", device.device));
            };
            if system == Some(index) && !device.skip_volume_check {
                let text = format!("blockdevice {:?} is in use by volume \"EPHEMERAL\"", device.device);
                return refuse(code::FAILED_PRECONDITION, text);
            }
            wiped.push(machine.hardware.disks[index].content);
        }
        for content in wiped {
            ground.media.set(content, Content::Blank);
        }
        one(&storage::BlockDeviceWipeResponse { messages: vec![storage::BlockDeviceWipe::default()] })
    }

    /// The health check that a control plane runs: the lab names the conditions, and the first that fails.
    fn health_check(&self, ground: &Ground, call: &Call<'_>) -> Outcome {
        let asked: health::HealthCheckRequest = request(call.rpc)?;
        let info = asked.cluster_info.unwrap_or_default();
        let at = |address: &String| self.owner(address.parse().ok()?)?.run.as_ref();
        let all: Vec<Option<&Run>> =
            info.control_plane_nodes.iter().chain(&info.worker_nodes).map(at).collect();
        let planes: Vec<Option<&Run>> = info.control_plane_nodes.iter().map(at).collect();
        let every =
            |runs: &[Option<&Run>], is: &dyn Fn(&Run) -> bool| runs.iter().all(|run| run.is_some_and(is));
        let ready = |run: &Run| {
            run.node.as_ref().is_some_and(|(cluster, node)| {
                ground
                    .kubernetes
                    .get(cluster)
                    .and_then(|kube| kube.nodes.get(node))
                    .map_or(run.pod_network, |node| node.ready)
            })
        };
        let conditions: [(&str, bool); 6] = [
            ("etcd to be healthy", every(&planes, &|run| run.is_healthy("etcd"))),
            ("apid to be ready", every(&all, &|run| run.is_healthy("apid"))),
            ("kubelet to be healthy", every(&planes, &|run| run.is_healthy("kubelet"))),
            ("all nodes to finish boot sequence", every(&all, &|run| run.stage == Stage::Running)),
            ("all k8s nodes to report", every(&all, &|run| run.node.is_some())),
            ("all k8s nodes to report ready", every(&all, &ready)),
        ];
        let mut messages = Vec::new();
        let mut say = |message: String| {
            messages.push(health::HealthCheckProgress { metadata: None, message }.encode_to_vec());
        };
        for (name, holds) in conditions {
            say(format!("waiting for {name}: ..."));
            if !holds {
                let limit =
                    asked.wait_timeout.as_ref().map_or(0, |limit| u64::try_from(limit.seconds).unwrap_or(0));
                let until = call.rpc.began + std::time::Duration::from_secs(limit);
                if ground.now < until {
                    let pause = ground.now + std::time::Duration::from_secs(5);
                    return Ok(Reply::Wait(pause.min(until)));
                }
                return refuse(code::UNKNOWN, "healthcheck error: context deadline exceeded");
            }
            say(format!("waiting for {name}: OK"));
        }
        Ok(Reply::Messages(messages, None))
    }
}

fn version(run: &Run) -> VersionResponse {
    let info = VersionInfo {
        tag: run.image.talos.clone(),
        sha: "00000000".into(),
        built: String::new(),
        go_version: "go1.26".into(),
        os: "linux".into(),
        arch: run.image.arch.clone(),
    };
    let mode = if run.image.platform == "metal" { "metal" } else { "cloud" };
    let platform = PlatformInfo { name: run.image.platform.clone(), mode: mode.into() };
    let answer = Version {
        metadata: None,
        version: Some(info),
        platform: Some(platform),
        features: Some(FeaturesInfo { rbac: true }),
    };
    VersionResponse { messages: vec![answer] }
}

fn services(run: &Run) -> ServiceListResponse {
    let services = run.services.iter().map(|(id, service)| ServiceInfo {
        id: id.clone(),
        state: service.state.word(),
        events: Some(ServiceEvents {
            events: service
                .events
                .iter()
                .map(|(message, state, at)| ServiceEvent {
                    msg: message.clone(),
                    state: state.word(),
                    ts: Some(timestamp(*at)),
                })
                .collect(),
        }),
        health: Some(ServiceHealth {
            unknown: service.healthy.is_none(),
            healthy: service.healthy.unwrap_or(false),
            last_message: String::new(),
            last_change: Some(timestamp(service.changed)),
        }),
    });
    ServiceListResponse { messages: vec![ServiceList { metadata: None, services: services.collect() }] }
}

/// Returns the content of a file; the lab's machines have few.
fn file(ground: &Ground, machine: &Machine, run: &Run, path: &str) -> Option<String> {
    let hardware = &machine.hardware;
    Some(match path {
        "/proc/sys/kernel/random/boot_id" => format!("{}\n", run.boot_id),
        "/proc/sys/kernel/hostname" | "/etc/hostname" => format!("{}\n", run.network.hostname),
        "/proc/cmdline" => format!("talos.platform={} console=ttyS0\n", run.image.platform),
        "/proc/uptime" => {
            let up = ground.now.since(run.began);
            format!("{}.{:02} 0.00\n", up.as_secs(), up.subsec_millis() / 10)
        }
        "/proc/meminfo" => format!("MemTotal:       {:>8} kB\n", hardware.memory_mib * 1024),
        "/sys/class/dmi/id/product_uuid" => format!("{}\n", hardware.uuid),
        "/etc/os-release" => {
            let version = &run.image.talos;
            format!("NAME=\"Talos\"\nID=talos\nVERSION_ID={version}\nPRETTY_NAME=\"Talos ({version})\"\n")
        }
        "/etc/resolv.conf" => "nameserver 127.0.0.53\n".into(),
        "/system/state/config.yaml" => {
            let config = machine.installed(&ground.media)?.config.clone()?;
            String::from_utf8(config).ok()?
        }
        _ => return None,
    })
}

fn read(ground: &Ground, machine: &Machine, run: &Run, path: &str) -> Outcome {
    match file(ground, machine, run, path) {
        Some(text) => Ok(Reply::Messages(vec![data(&text)], None)),
        None => refuse(code::UNKNOWN, format!("stat {path}: no such file or directory")),
    }
}

/// Lists the folders that everybody looks for.
fn list(machine: &Machine, ground: &Ground, asked: &ListRequest) -> Outcome {
    let root = if asked.root.is_empty() { "/" } else { asked.root.as_str() };
    let etcd = machine.etcd_data(&ground.media).is_some();
    let children: &[&str] = match root.trim_end_matches('/') {
        "" => &["etc", "proc", "sys", "system", "var"],
        "/var" => &["lib", "log", "mnt", "run"],
        "/var/lib" => &["containerd", "etcd", "kubelet"],
        "/var/lib/etcd" if etcd => &["member"],
        "/var/lib/etcd" => &[],
        "/system/state" => &["config.yaml"],
        _ => return refuse(code::UNKNOWN, format!("lstat {root}: no such file or directory")),
    };
    let entry = |name: String, relative: &str| {
        let is_dir = !relative.contains('.') || relative == ".";
        let mode = if is_dir { 0o040_755 } else { 0o100_600 };
        FileInfo { name, mode, is_dir, relative_name: relative.to_owned(), ..FileInfo::default() }
            .encode_to_vec()
    };
    let base = root.trim_end_matches('/');
    let below = children.iter().map(|child| entry(format!("{base}/{child}"), child));
    Ok(Reply::Messages(std::iter::once(entry(root.to_owned(), ".")).chain(below).collect(), None))
}

fn disks(ground: &Ground, machine: &Machine) -> storage::Disks {
    let system = machine.system_disk(&ground.media);
    let disks = machine.disks().into_iter().map(|(name, index)| {
        let disk = &machine.hardware.disks[index];
        storage::Disk {
            size: disk.size,
            model: if name.starts_with('v') { String::new() } else { "QEMU HARDDISK".into() },
            device_name: format!("/dev/{name}"),
            serial: disk.serial.clone().unwrap_or_default(),
            r#type: storage::disk::DiskType::Hdd as i32,
            bus_path: "/pci0000:00".into(),
            system_disk: system == Some(index),
            subsystem: "/sys/class/block".into(),
            ..storage::Disk::default()
        }
    });
    storage::Disks { metadata: None, disks: disks.collect() }
}
