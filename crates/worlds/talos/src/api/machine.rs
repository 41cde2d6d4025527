//! What a machine is, its config, and its life.

use std::time::Duration;

use bytes::Bytes;
use ichor_talos_proto::{common, machine as proto, method, storage};

use super::{LONG, SHORT};
use crate::{
    Call, StreamCall,
    call::{admit, answers, decode, done, only},
    error::clean,
};

answers! {
    proto::VersionResponse => proto::Version,
    proto::ApplyConfigurationResponse => proto::ApplyConfiguration,
    proto::BootstrapResponse => proto::Bootstrap,
    proto::RebootResponse => proto::Reboot,
    proto::ShutdownResponse => proto::Shutdown,
    proto::ResetResponse => proto::Reset,
    storage::DisksResponse => storage::Disks,
}

/// What a machine runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    /// The release, as `v1.13.9`.
    pub tag: String,
    /// The architecture, as `amd64`.
    pub arch: String,
    /// The platform, as `nocloud`.
    pub platform: String,
    /// What the platform is, as `cloud` or `metal`.
    pub mode: String,
}

/// Asks what a machine runs. Until 1.12 it says so in maintenance mode to nobody.
pub fn version() -> Call<Version> {
    Call::new(method::machine("Version"), &(), SHORT, |bytes| {
        let entry = only::<proto::VersionResponse>(bytes)?;
        let (version, platform) = (entry.version.unwrap_or_default(), entry.platform.unwrap_or_default());
        Ok(Version {
            tag: clean(&version.tag),
            arch: clean(&version.arch),
            platform: clean(&platform.name),
            mode: clean(&platform.mode),
        })
    })
}

/// How a config is to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyMode {
    /// As the change needs. The only mode that all releases know in all states.
    Auto,
    /// With a reboot.
    Reboot,
    /// Without a reboot, or not at all.
    NoReboot,
    /// At the next reboot.
    Staged,
    /// For a time, and then as before.
    Try(Duration),
}

/// What became of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// How it was applied: never `Auto`, except by machines that say nothing else.
    pub mode: ApplyMode,
    /// What Talos says of it. After a trial without effects it has the difference, which may hold secrets.
    pub details: ichor_port::Secret,
    /// What it warns of.
    pub warnings: Vec<String>,
}

/// Gives a machine its config; `dry_run` only asks what would become of it.
pub fn apply_configuration(config: &[u8], mode: ApplyMode, dry_run: bool) -> Call<Applied> {
    use proto::apply_configuration_request::Mode;
    let (number, try_for) = match mode {
        ApplyMode::Auto => (Mode::Auto, None),
        ApplyMode::Reboot => (Mode::Reboot, None),
        ApplyMode::NoReboot => (Mode::NoReboot, None),
        ApplyMode::Staged => (Mode::Staged, None),
        ApplyMode::Try(time) => (Mode::Try, ichor_talos_proto::Duration::try_from(time).ok()),
    };
    let request = proto::ApplyConfigurationRequest {
        data: config.to_vec(),
        mode: number.into(),
        dry_run,
        try_mode_timeout: try_for,
    };
    Call::new(method::machine("ApplyConfiguration"), &request, LONG, |bytes| {
        let entry = only::<proto::ApplyConfigurationResponse>(bytes)?;
        let mode = match entry.mode() {
            Mode::Reboot => ApplyMode::Reboot,
            Mode::Auto => ApplyMode::Auto,
            Mode::NoReboot => ApplyMode::NoReboot,
            Mode::Staged => ApplyMode::Staged,
            Mode::Try => ApplyMode::Try(Duration::ZERO),
        };
        let warnings = entry.warnings.iter().map(|warning| clean(warning)).collect();
        Ok(Applied { mode, details: ichor_port::Secret::new(entry.mode_details), warnings })
    })
}

/// What etcd begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// With nothing.
    None,
    /// With the snapshot that was uploaded before.
    Snapshot,
    /// With a copy of a database that was uploaded before, which has no checksum.
    Copy,
}

/// Bootstraps etcd. Once per cluster, on one control plane: `AlreadyExists` is the answer where it was done.
pub fn bootstrap(recovery: Recovery) -> Call<()> {
    let request = proto::BootstrapRequest {
        recover_etcd: recovery != Recovery::None,
        recover_skip_hash_check: recovery == Recovery::Copy,
    };
    Call::new(method::machine("Bootstrap"), &request, LONG, done::<proto::BootstrapResponse>)
}

/// How to reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebootMode {
    /// Straight into the new kernel.
    Default,
    /// Through the firmware.
    PowerCycle,
    /// Without waiting for anything, since 1.12.
    Force,
}

/// Reboots a machine. It answers before it goes.
pub fn reboot(mode: RebootMode) -> Call<()> {
    use proto::reboot_request::Mode;
    let mode = match mode {
        RebootMode::Default => Mode::Default,
        RebootMode::PowerCycle => Mode::Powercycle,
        RebootMode::Force => Mode::Force,
    };
    let request = proto::RebootRequest { mode: mode.into() };
    Call::new(method::machine("Reboot"), &request, LONG, done::<proto::RebootResponse>)
}

/// Shuts a machine down. Without force it drains its node first, for up to five minutes.
pub fn shutdown(force: bool) -> Call<()> {
    let request = proto::ShutdownRequest { force };
    Call::new(method::machine("Shutdown"), &request, LONG, done::<proto::ShutdownResponse>)
}

/// What a reset wipes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wipe {
    /// The system disk: the machine boots from something else afterwards, or not at all.
    SystemDisk,
    /// These partitions of it, by label.
    Partitions(Vec<String>),
    /// These other disks, and not the system's.
    UserDisks(Vec<String>),
    /// The system disk and these other disks.
    All(Vec<String>),
}

/// How to reset a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// Whether it drains its node and leaves etcd first, which needs both to work.
    pub graceful: bool,
    /// Whether it reboots afterwards, or powers off.
    pub reboot: bool,
    /// What it wipes.
    pub wipe: Wipe,
}

/// Resets a machine. It answers before it begins.
pub fn reset(how: &Reset) -> Call<()> {
    use proto::reset_request::WipeMode;
    let (mode, labels, disks) = match &how.wipe {
        Wipe::SystemDisk => (WipeMode::SystemDisk, &[][..], &[][..]),
        Wipe::Partitions(labels) => (WipeMode::SystemDisk, &labels[..], &[][..]),
        Wipe::UserDisks(disks) => (WipeMode::UserDisks, &[][..], &disks[..]),
        Wipe::All(disks) => (WipeMode::All, &[][..], &disks[..]),
    };
    let partition = |label: &String| proto::ResetPartitionSpec { label: label.clone(), wipe: true };
    let request = proto::ResetRequest {
        graceful: how.graceful,
        reboot: how.reboot,
        system_partitions_to_wipe: labels.iter().map(partition).collect(),
        user_disks_to_wipe: disks.to_vec(),
        mode: mode.into(),
    };
    Call::new(method::machine("Reset"), &request, LONG, done::<proto::ResetResponse>)
}

/// Reads a file of a machine, in pieces.
pub fn read_file(path: &str) -> StreamCall<Bytes> {
    let request = proto::ReadRequest { path: path.to_owned() };
    StreamCall::new(method::machine("Read"), &request, SHORT, |bytes| {
        let data = decode::<common::Data>(bytes)?;
        admit(data.metadata.as_ref())?;
        Ok(data.bytes.into())
    })
}

/// A disk, as every release and also maintenance mode shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its device, as `/dev/sda`.
    pub device: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its model.
    pub model: String,
    /// Its serial number.
    pub serial: String,
    /// Its world-wide name.
    pub wwid: String,
    /// Whether Talos is on it.
    pub system: bool,
    /// Whether nothing can be written to it.
    pub readonly: bool,
}

/// Asks for the disks of a machine.
pub fn disks() -> Call<Vec<Disk>> {
    Call::new(format!("{}Disks", method::STORAGE), &(), SHORT, |bytes| {
        let disk = |disk: storage::Disk| Disk {
            device: clean(&disk.device_name),
            size: disk.size,
            model: clean(&disk.model),
            serial: clean(&disk.serial),
            wwid: clean(&disk.wwid),
            system: disk.system_disk,
            readonly: disk.readonly,
        };
        Ok(only::<storage::DisksResponse>(bytes)?.disks.into_iter().map(disk).collect())
    })
}

#[cfg(test)]
mod tests {
    use ichor_talos_proto::Message;

    use super::*;

    fn sent<T, M: Message + Default>(call: &Call<T>) -> M {
        M::decode(call.head.request.clone()).expect("a message")
    }

    #[test]
    fn configs_are_applied_as_asked() {
        let call = apply_configuration(b"config", ApplyMode::Auto, true);
        assert_eq!(call.head.method, "/machine.MachineService/ApplyConfiguration");
        let request: proto::ApplyConfigurationRequest = sent(&call);
        assert_eq!((request.data.as_slice(), request.mode, request.dry_run), (&b"config"[..], 1, true));
        let call = apply_configuration(b"", ApplyMode::Try(Duration::from_secs(90)), false);
        let request: proto::ApplyConfigurationRequest = sent(&call);
        assert_eq!(request.try_mode_timeout.map(|time| time.seconds), Some(90));
    }

    #[test]
    fn answers_to_configs_are_read() {
        let entry = proto::ApplyConfiguration {
            metadata: None,
            warnings: vec!["old\tkey".into()],
            mode: 2,
            mode_details: "Applied configuration without a reboot".into(),
        };
        let answer = proto::ApplyConfigurationResponse { messages: vec![entry] };
        let call = apply_configuration(b"", ApplyMode::Auto, false);
        let applied = (call.read)(answer.encode_to_vec().into()).expect("readable");
        assert_eq!((applied.mode, applied.warnings), (ApplyMode::NoReboot, vec!["old key".to_owned()]));
    }

    #[test]
    fn resets_wipe_what_is_named_and_nothing_else() {
        let how = |wipe| Reset { graceful: true, reboot: false, wipe };
        let labels = vec!["STATE".to_owned(), "EPHEMERAL".to_owned()];
        let request: proto::ResetRequest = sent(&reset(&how(Wipe::Partitions(labels))));
        assert_eq!(request.system_partitions_to_wipe.len(), 2);
        assert!(request.system_partitions_to_wipe.iter().all(|partition| partition.wipe));
        assert_eq!((request.mode, request.graceful, request.reboot), (1, true, false));
        let request: proto::ResetRequest = sent(&reset(&how(Wipe::UserDisks(vec!["/dev/sdb".into()]))));
        assert_eq!((request.mode, request.user_disks_to_wipe.len()), (2, 1));
    }

    #[test]
    fn recovery_is_two_switches() {
        for (recovery, expected) in [
            (Recovery::None, (false, false)),
            (Recovery::Snapshot, (true, false)),
            (Recovery::Copy, (true, true)),
        ] {
            let request: proto::BootstrapRequest = sent(&bootstrap(recovery));
            assert_eq!((request.recover_etcd, request.recover_skip_hash_check), expected, "{recovery:?}");
        }
    }
}
