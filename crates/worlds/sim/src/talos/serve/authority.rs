//! Which calls there are in a release, and whose they are.

use ichor_model::Minor;
use ichor_talos_proto::{code, method};

use super::{Caller, Refusal, refuse};
use crate::talos::release;

/// Calls that only administrators may make.
const ADMIN: [&str; 16] = [
    "Bootstrap",
    "Copy",
    "EtcdForfeitLeadership",
    "EtcdLeaveCluster",
    "EtcdRecover",
    "EtcdRemoveMemberByID",
    "EtcdDowngradeCancel",
    "EtcdDowngradeEnable",
    "EtcdDowngradeValidate",
    "GenerateClientConfiguration",
    "Kubeconfig",
    "Read",
    "Reset",
    "Rollback",
    "Upgrade",
    "ApplyConfiguration",
];

/// Calls that change something, but no secrets and no configs.
const OPERATOR: [&str; 10] = [
    "EtcdAlarmDisarm",
    "EtcdDefragment",
    "ImagePull",
    "PacketCapture",
    "Reboot",
    "Restart",
    "ServiceRestart",
    "ServiceStart",
    "ServiceStop",
    "Shutdown",
];

/// Calls for those who take snapshots of etcd.
const BACKUP: [&str; 3] = ["EtcdAlarmList", "EtcdMemberList", "EtcdStatus"];

/// Calls that only look.
const READER: [&str; 23] = [
    "CPUInfo",
    "CPUFreqStats",
    "Containers",
    "DiskStats",
    "DiskUsage",
    "Dmesg",
    "Events",
    "Hostname",
    "ImageList",
    "List",
    "LoadAvg",
    "Logs",
    "LogsContainers",
    "Memory",
    "Mounts",
    "NetworkDeviceStats",
    "Netstat",
    "Processes",
    "ServiceList",
    "Stats",
    "SystemStat",
    "Version",
    "EtcdAlarmList",
];

const A: &[&str] = &["os:admin"];
const AO: &[&str] = &["os:admin", "os:operator"];
const AOR: &[&str] = &["os:admin", "os:operator", "os:reader"];

/// Returns the roles that may make a call, if there is such a call.
fn roles(talos: Minor, path: &str) -> Option<&'static [&'static str]> {
    let (service, name) = path.rsplit_once('/')?;
    let service = format!("{service}/");
    Some(match service.as_str() {
        method::MACHINE => match name {
            "EtcdDowngradeCancel" | "EtcdDowngradeEnable" | "EtcdDowngradeValidate"
                if !release::has_etcd_downgrade(talos) =>
            {
                return None;
            }
            "EtcdSnapshot" => &["os:admin", "os:operator", "os:etcd:backup"],
            "MetaWrite" | "MetaDelete" if release::has_lifecycle(talos) => &["os:admin", "os:meta:writer"],
            "MetaWrite" | "MetaDelete" => A,
            _ if ADMIN.contains(&name) => A,
            _ if OPERATOR.contains(&name) => AO,
            _ if BACKUP.contains(&name) => &["os:admin", "os:operator", "os:reader", "os:etcd:backup"],
            _ if READER.contains(&name) => AOR,
            _ => return None,
        },
        method::LIFECYCLE if release::has_lifecycle(talos) => match name {
            "Install" | "Upgrade" => A,
            _ => return None,
        },
        method::IMAGE if release::has_lifecycle(talos) => match name {
            "List" => AOR,
            "Pull" => AO,
            "Remove" => A,
            "Verify" => &["os:admin", "os:operator", "os:reader", "os:image:verifier"],
            _ => return None,
        },
        method::STORAGE => match name {
            "Disks" => AOR,
            "BlockDeviceWipe" => A,
            _ => return None,
        },
        method::CLUSTER | method::INSPECT | method::TIME => AOR,
        method::STATE => match name {
            "Get" | "List" | "Watch" => AOR,
            "Create" | "Update" | "Destroy" | "Teardown" => A,
            _ => return None,
        },
        _ => return None,
    })
}

/// Says whether a caller may make a call at a machine of this release.
pub fn check(talos: Minor, caller: &Caller, path: &str) -> Result<(), Refusal> {
    let Some(roles) = roles(talos, path) else { return unknown(path) };
    if caller.maintenance && !release::maintenance_is_whole(talos) {
        return maintenance(path);
    }
    // A machine without a config lets anybody give it one, and wipe its disks.
    let open =
        caller.maintenance && (path.ends_with("/ApplyConfiguration") || path.ends_with("/BlockDeviceWipe"));
    if open || roles.iter().any(|role| caller.roles.contains(*role)) {
        return Ok(());
    }
    refuse(code::PERMISSION_DENIED, "not authorized")
}

fn unknown(path: &str) -> Result<(), Refusal> {
    let (service, name) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    let known =
        [method::MACHINE, method::STATE, method::STORAGE, method::CLUSTER, method::TIME, method::INSPECT];
    let text = if known.contains(&format!("/{service}/").as_str()) {
        format!("unknown method {name} for service {service}")
    } else {
        format!("unknown service {service}")
    };
    refuse(code::UNIMPLEMENTED, text)
}

/// Until 1.12 maintenance mode had a small server of its own.
fn maintenance(path: &str) -> Result<(), Refusal> {
    let name = path.rsplit('/').next().unwrap_or_default();
    if path.starts_with(method::STORAGE) || path.starts_with(method::STATE) {
        return Ok(());
    }
    if !path.starts_with(method::MACHINE) {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        return refuse(code::UNIMPLEMENTED, format!("unknown service {service}"));
    }
    match name {
        "ApplyConfiguration" => Ok(()),
        "Version" | "Reset" | "Upgrade" | "MetaWrite" | "MetaDelete" => {
            refuse(code::UNIMPLEMENTED, "API is not implemented in maintenance mode")
        }
        "GenerateClientConfiguration" => refuse(
            code::UNIMPLEMENTED,
            "client configuration (talosconfig) can't be generated in the maintenance mode",
        ),
        _ => refuse(code::UNIMPLEMENTED, format!("method {name} not implemented")),
    }
}
