//! Numbers that dashboards show. They are plausible and do not move by themselves.

use ichor_talos_proto::{
    code,
    machine::{
        Container, ContainerInfo, ContainersResponse, CpUsFreqStats, CpUsInfo, CpuFreqStats,
        CpuFreqStatsResponse, CpuInfo, CpuInfoResponse, CpuStat, DiskStat, DiskStats, DiskStatsResponse,
        LoadAvg, LoadAvgResponse, MemInfo, Memory, MemoryResponse, MountStat, Mounts, MountsResponse, NetDev,
        Netstat, NetstatResponse, NetworkDeviceStats, NetworkDeviceStatsResponse, Process, ProcessInfo,
        ProcessesResponse, Stats, StatsResponse, SystemStat, SystemStatResponse,
    },
};

use super::super::{Outcome, one, refuse};
use crate::{
    ground::Ground,
    talos::machine::{Machine, Run, State},
};

pub fn answer(ground: &Ground, machine: &Machine, run: &Run, name: &str) -> Outcome {
    let hardware = &machine.hardware;
    match name {
        "Memory" => {
            let total = hardware.memory_mib * 1024;
            let meminfo = MemInfo {
                memtotal: total,
                memfree: total / 2,
                memavailable: total / 4 * 3,
                buffers: total / 64,
                cached: total / 4,
            };
            one(&MemoryResponse { messages: vec![Memory { metadata: None, meminfo: Some(meminfo) }] })
        }
        "LoadAvg" => {
            let answer = LoadAvg { metadata: None, load1: 0.25, load5: 0.2, load15: 0.15 };
            one(&LoadAvgResponse { messages: vec![answer] })
        }
        "SystemStat" => one(&SystemStatResponse { messages: vec![system(ground, machine, run)] }),
        "CPUInfo" => {
            let cpu_info = (0..hardware.cpus).map(|processor| CpuInfo {
                processor,
                vendor_id: "GenuineIntel".into(),
                model_name: hardware.cpu_type.clone(),
                cpu_mhz: 2000.0,
                siblings: hardware.cpus,
                cpu_cores: hardware.cpus,
            });
            one(&CpuInfoResponse {
                messages: vec![CpUsInfo { metadata: None, cpu_info: cpu_info.collect() }],
            })
        }
        "CPUFreqStats" => {
            let cpu_freq_stats = vec![CpuFreqStats::default(); usize::try_from(hardware.cpus).unwrap_or(0)];
            one(&CpuFreqStatsResponse { messages: vec![CpUsFreqStats { metadata: None, cpu_freq_stats }] })
        }
        "DiskStats" => {
            let stat = |name: String| DiskStat { name, ..DiskStat::default() };
            let devices = machine.disks().into_iter().map(|(name, _)| stat(name)).collect();
            let answer = DiskStats { metadata: None, total: Some(stat(String::new())), devices };
            one(&DiskStatsResponse { messages: vec![answer] })
        }
        "NetworkDeviceStats" => {
            let stat = |name: &str| NetDev { name: name.to_owned(), ..NetDev::default() };
            let devices = run.network.links.iter().map(|link| stat(&link.name)).collect();
            let answer = NetworkDeviceStats { metadata: None, total: Some(stat("")), devices };
            one(&NetworkDeviceStatsResponse { messages: vec![answer] })
        }
        "Mounts" => one(&MountsResponse { messages: vec![mounts(ground, machine, run)] }),
        "Processes" => one(&ProcessesResponse { messages: vec![processes(run)] }),
        "Containers" => {
            let running = run.services.iter().filter(|(_, service)| service.state == State::Running);
            let containers = running.map(|(id, _)| ContainerInfo {
                namespace: "system".into(),
                id: id.clone(),
                status: "RUNNING".into(),
                name: id.clone(),
                pod_id: id.clone(),
                ..ContainerInfo::default()
            });
            one(&ContainersResponse {
                messages: vec![Container { metadata: None, containers: containers.collect() }],
            })
        }
        "Stats" => one(&StatsResponse { messages: vec![Stats::default()] }),
        "Netstat" => one(&NetstatResponse { messages: vec![Netstat::default()] }),
        _ => refuse(code::UNIMPLEMENTED, format!("method {name} not implemented")),
    }
}

fn system(ground: &Ground, machine: &Machine, run: &Run) -> SystemStat {
    let up = ground.now.since(run.began).as_secs_f64();
    let cpu = CpuStat { user: up * 0.05, nice: 0.0, system: up * 0.03, idle: up * 0.92, iowait: 0.0 };
    SystemStat {
        metadata: None,
        boot_time: run.began.unix_seconds(),
        cpu_total: Some(cpu),
        cpu: vec![cpu; usize::try_from(machine.hardware.cpus).unwrap_or(0)],
        context_switches: 1000,
        process_created: 100,
        process_running: 1,
        process_blocked: 0,
    }
}

fn mounts(ground: &Ground, machine: &Machine, run: &Run) -> Mounts {
    const MIB: u64 = 1 << 20;
    let disk =
        machine.disks().into_iter().find(|(_, index)| machine.system_disk(&ground.media) == Some(*index));
    let mut stats = vec![MountStat {
        filesystem: "/dev/loop0".into(),
        size: 60 * MIB,
        available: 0,
        mounted_on: "/".into(),
    }];
    if let Some((name, index)) = disk.filter(|_| run.wanted.is_some()) {
        let size = machine.hardware.disks[index].size.saturating_sub(2200 * MIB);
        stats.push(MountStat {
            filesystem: format!("/dev/{name}5"),
            size: 100 * MIB,
            available: 90 * MIB,
            mounted_on: "/system/state".into(),
        });
        stats.push(MountStat {
            filesystem: format!("/dev/{name}6"),
            size,
            available: size / 4 * 3,
            mounted_on: "/var".into(),
        });
    }
    Mounts { metadata: None, stats }
}

fn processes(run: &Run) -> Process {
    let ids = std::iter::once("init").chain(run.services.keys().map(String::as_str));
    let processes = (1..).zip(ids).map(|(pid, command)| ProcessInfo {
        pid,
        ppid: i32::from(pid != 1),
        state: "S".into(),
        threads: 8,
        command: command.to_owned(),
        executable: format!("/usr/bin/{command}"),
        args: format!("/usr/bin/{command}"),
        ..ProcessInfo::default()
    });
    Process { metadata: None, processes: processes.collect() }
}
