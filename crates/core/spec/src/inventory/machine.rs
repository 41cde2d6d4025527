//! What can be said of a machine: in `defaults`, in `roles`, of a group, or of one by name.

use ichor_model::{
    At, HostName, KubernetesVersion, MacAddress, MachineName, Size, TalosVersion,
    desired::{Arch, Bios, Board, Role},
};
use schemars::JsonSchema;

use super::{List, MachineNetwork, Module, Nic, Patch};
use crate::{
    read::{Map, OneOrMany, Read, Reader, record},
    values::{
        Address, CacheMode, CpuType, Extension, Filesystem, Int, LabelKey, LabelValue, LooseText,
        NamePattern, Notes, PciSlot, SchematicId, ScsiController, Tag, Taint, VmIds,
    },
    yaml::{Kind, Node},
};

record! {
    /// A machine, or a group of machines when it has a `count`.
    Machine {
        /// What it does in the cluster.
        role: Role,
        /// Makes this a group of so many machines.
        count: Int<0, 10_000>,
        /// The number of the first member of a group; 1 unless set.
        first: Int<0, 1_000_000>,
        /// The pattern of members' names. Absent: the group's name, a dash and the number.
        name: NamePattern,
        /// Takes its settings, not its identity, from another entry of `machines`.
        like: MachineName,

        /// The VMID, the first of them for a group, or a range. Absent: the first free one of 2000-2999 for control
        /// planes, of 3000-3999 for workers.
        vmid: VmIds,
        /// The address, the first of them for a group; two for dual stack. Absent: counted up from `+10` for control
        /// planes, from `+20` for workers.
        address: OneOrMany<Address>,
        /// The MAC address of the first network card. Absent: derived.
        mac: MacAddress,
        /// The host to run on.
        host: HostName,
        /// Hosts to choose from.
        hosts: List<HostName>,
        /// The zone to run in.
        zone: String,

        /// Processor cores of each socket; 4 unless set.
        cpu: Int<1, 512>,
        /// Sockets; 1 unless set.
        sockets: Int<1, 4>,
        /// The processor model shown to the guest; `x86-64-v2-AES` unless set, `host` on arm64.
        cpu_type: CpuType,
        /// Emulates NUMA.
        numa: bool,
        /// Memory; 4GiB for control planes and 8GiB for workers unless set. It is never ballooned.
        memory: Size,
        /// The system disk: its size, or a map with more; 20GiB for control planes and 50GiB for workers unless set.
        disk: SystemDisk,
        /// The storage of all disks of this machine, in place of `proxmox.storage.disks`.
        storage: String,
        /// Extra disks.
        disks: List<ExtraDisk>,
        /// What is different about the first network card.
        network: MachineNetwork,
        /// More network cards.
        nics: List<Nic>,
        /// Devices passed through from the host.
        pci: List<Pci>,

        /// The emulated board; `q35` unless set, `virt` on arm64.
        machine: Board,
        /// The firmware; `ovmf` unless set.
        bios: Bios,
        /// Adds a TPM 2.0. Absent: with secure boot.
        tpm: bool,
        /// The SCSI controller; `virtio-scsi-pci` unless set.
        scsi_controller: ScsiController,
        /// Expects the guest agent. Absent: when the image has its extension.
        agent: bool,
        /// Starts the VM with its host; so unless switched off.
        on_boot: bool,
        /// Makes Proxmox refuse to delete the VM.
        protection: bool,
        /// Its place in the host's start order.
        startup: Startup,
        /// Tags, added to those of `defaults` and of the role.
        tags: List<Tag>,
        /// Notes, shown above ichor's own.
        notes: Notes,

        /// The processor architecture.
        arch: Arch,
        /// The Talos release, where it differs from the cluster's.
        talos: TalosVersion,
        /// The Kubernetes release, where it differs from the cluster's.
        kubernetes: KubernetesVersion,
        /// Talos extensions, added to those of `image`.
        extensions: List<Extension>,
        /// What is different about its boot image.
        image: MachineImage,
        /// Kernel parameters, joined with those of `os`.
        sysctls: Map<String, LooseText>,
        /// Kernel modules, added to those of `os`; one of the same name is replaced.
        kernel_modules: List<Module>,
        /// Kubernetes labels.
        labels: Map<LabelKey, LabelValue>,
        /// Kubernetes annotations.
        annotations: Map<LabelKey, LooseText>,
        /// Kubernetes taints: `NoSchedule` or `value:NoSchedule` by key.
        taints: Map<LabelKey, Taint>,
        /// Patches to the machine config, after those of the cluster.
        patches: List<Patch>,
    }
}

record! {
    /// What is different about the boot image of a machine.
    MachineImage {
        /// Kernel arguments, added to those of `image`.
        kernel_args: List<String>,
        /// Uses the image signed for secure boot.
        secureboot: bool,
        /// The id of a schematic made elsewhere, in place of the extensions and arguments of `image`.
        schematic: SchematicId,
    }
}

/// Settings by role.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Roles(pub Map<Role, Machine>);

impl Roles {
    /// Returns the settings of a role, if there are any.
    pub fn of(&self, role: Role) -> Option<&Machine> {
        self.0.0.iter().find(|(key, _)| key.value == role).map(|(_, machine)| &machine.value)
    }
}

impl Read for Roles {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        Map::read(node, reader).map(Self)
    }

    fn over(self, below: Self) -> Self {
        Self(self.0.over(below.0))
    }
}

impl JsonSchema for Roles {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Roles".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let machine = generator.subschema_for::<Machine>();
        schemars::json_schema!({
            "description": "Settings by role.",
            "type": "object",
            "properties": { "control-plane": machine, "worker": machine },
            "additionalProperties": false,
        })
    }
}

/// The system disk: its size, or a map with more.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum SystemDisk {
    /// Its size.
    Size(At<Size>),
    /// Its size and options.
    Full(DiskShape),
}

impl SystemDisk {
    /// Returns the disk in its full form.
    pub fn shape(&self) -> DiskShape {
        match self {
            Self::Size(size) => DiskShape { size: Some(*size), ..DiskShape::default() },
            Self::Full(shape) => shape.clone(),
        }
    }
}

impl Read for SystemDisk {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match node.kind {
            Kind::Map(_) => DiskShape::read(node, reader).map(Self::Full),
            _ => Size::read(node, reader).map(|size| Self::Size(At::new(size, node.span))),
        }
    }

    /// A size alone keeps the options given below: `disk: 80GiB` on a machine does not forget
    /// that `defaults` asked for `ssd`.
    fn over(self, below: Self) -> Self {
        match (self, below) {
            (above @ Self::Size(_), Self::Size(_)) => above,
            (above, below) => Self::Full(above.shape().over(below.shape())),
        }
    }
}

record! {
    /// A disk's size and options.
    DiskShape {
        /// Its size.
        size: Size,
        /// The storage it lives on.
        storage: String,
        /// Shows it to the guest as a solid-state disk.
        ssd: bool,
        /// Gives freed blocks back; so unless switched off.
        discard: bool,
        /// Gives it a thread of its own; takes effect with `scsi_controller: virtio-scsi-single`.
        iothread: bool,
        /// Includes it in backups; so unless switched off.
        backup: bool,
        /// Includes it in replication; so unless switched off.
        replicate: bool,
        /// The cache mode.
        cache: CacheMode,
    }
}

record! {
    /// An extra disk.
    ExtraDisk {
        /// Its name, which becomes the Talos volume.
        name: String,
        /// Its size.
        size: Size,
        /// The storage it lives on.
        storage: String,
        /// Where it is mounted. Absent: `/var/mnt/NAME`. `none` leaves it raw.
        mount: String,
        /// Its filesystem; `xfs` unless set.
        filesystem: Filesystem,
        /// Shows it to the guest as a solid-state disk.
        ssd: bool,
        /// Gives freed blocks back; so unless switched off.
        discard: bool,
        /// Gives it a thread of its own.
        iothread: bool,
        /// Includes it in backups; so unless switched off.
        backup: bool,
        /// Includes it in replication; so unless switched off.
        replicate: bool,
        /// The cache mode.
        cache: CacheMode,
    }
}

record! {
    /// A device passed through from the host.
    Pci {
        /// The name of a Proxmox resource mapping.
        mapping: String,
        /// A raw address, which only root's own login may set.
        address: PciSlot,
        /// Presents it as PCI Express; needs `machine: q35`.
        pcie: bool,
        /// Makes it the guest's first display.
        primary_gpu: bool,
    }
}

record! {
    /// A VM's place in the host's start order.
    Startup {
        /// Lower starts earlier.
        order: Int<0, 1_000_000>,
        /// Seconds to wait after starting it.
        up: Int<0, 86_400>,
        /// Seconds to wait for it to stop.
        down: Int<0, 86_400>,
    }
}
