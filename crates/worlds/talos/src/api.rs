//! A function per call of the Talos API.

mod etcd;
mod machine;
mod services;
mod state;
mod upgrade;

pub(crate) use etcd::recover_answer;
pub use etcd::{
    Alarm, AlarmKind, EtcdMember, EtcdStatus, etcd_alarm_disarm, etcd_alarm_list, etcd_defragment,
    etcd_forfeit_leadership, etcd_leave_cluster, etcd_members, etcd_remove_member, etcd_snapshot,
    etcd_status,
};
pub use machine::{
    Applied, ApplyMode, Disk, RebootMode, Recovery, Reset, Version, Wipe, apply_configuration, bootstrap,
    disks, read_file, reboot, reset, shutdown, version,
};
pub use services::{Health, Service, service_restart, service_start, service_stop, services};
pub use state::{Event, get, get_raw, list, list_raw, watch};
pub use upgrade::{Progress, Pull, UpgradeRequest, lifecycle_upgrade, pull_image, rollback, upgrade};

use std::time::Duration;

/// How long a machine may take for what it knows.
const SHORT: Duration = Duration::from_secs(15);
/// How long it may take for what it begins. Bootstrapping waits 5 s for the clock; leaving etcd asks the others.
const LONG: Duration = Duration::from_mins(1);
/// How long it may take for what moves data: images, snapshots.
const DATA: Duration = Duration::from_mins(30);
