//! Volumes, swap, RAID and LVM.

use super::{
    BOOL, INT, Kind, Struct, TEXT, TEXTS, Type,
    Type::Struct as Obj,
    U32, U64,
    enums::{ENCRYPTION_PROVIDER, FILESYSTEM, LOGICAL_VOLUME, RAID_LEVEL, RAID_METADATA, VOLUME_TYPE},
    field, fields, list, must, opt,
};

/// The kinds of this file.
pub const KINDS: &[Kind] = &[
    Kind::named("ExistingVolumeConfig", 11, EXISTING_VOLUME_CONFIG).against(&["UserVolumeConfig"]),
    Kind::named("ExternalVolumeConfig", 13, EXTERNAL_VOLUME_CONFIG),
    Kind::new("FilesystemScrubConfig", 14, FILESYSTEM_SCRUB_CONFIG),
    Kind::new("FilesystemTrimConfig", 14, FILESYSTEM_TRIM_CONFIG),
    Kind::named("RawVolumeConfig", 11, RAW_VOLUME_CONFIG),
    Kind::named("SwapVolumeConfig", 11, SWAP_VOLUME_CONFIG),
    Kind::named("UserVolumeConfig", 10, USER_VOLUME_CONFIG).against(&["ExistingVolumeConfig"]),
    Kind::named("VolumeConfig", 8, VOLUME_CONFIG),
    Kind::new("ZswapConfig", 11, ZSWAP_CONFIG),
    Kind::named("LVMLogicalVolumeConfig", 14, LVM_LOGICAL_VOLUME_CONFIG),
    Kind::named("LVMVolumeGroupConfig", 14, LVM_VOLUME_GROUP_CONFIG),
    Kind::named("RAIDArrayConfig", 14, RAID_ARRAY_CONFIG),
];

const VOLUME_SELECTOR: Struct = fields(&[field("match", Type::Expression)]);

const VOLUME_DISCOVERY_SPEC: Struct = fields(&[field("volumeSelector", Obj(&VOLUME_SELECTOR))]);

const EXISTING_MOUNT_SPEC: Struct =
    fields(&[opt("readOnly", BOOL), opt("disableAccessTime", BOOL).since(13), opt("secure", BOOL).since(13)]);

const TRIM_CONFIG: Struct = fields(&[opt("enabled", BOOL), field("interval", Type::Duration)]);

const SCRUB_CONFIG: Struct = fields(&[opt("enabled", BOOL), field("interval", Type::Duration)]);

const EXISTING_VOLUME_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("discovery", Obj(&VOLUME_DISCOVERY_SPEC)),
    field("mount", Obj(&EXISTING_MOUNT_SPEC)),
    opt("trim", Obj(&TRIM_CONFIG)).since(14),
    opt("scrub", Obj(&SCRUB_CONFIG)).since(14),
]);

const VIRTIOFS_MOUNT_SPEC: Struct = fields(&[must("tag", TEXT)]);

const EXTERNAL_MOUNT_SPEC: Struct = fields(&[
    opt("readOnly", BOOL),
    opt("disableAccessTime", BOOL),
    opt("secure", BOOL),
    opt("virtiofs", Obj(&VIRTIOFS_MOUNT_SPEC)),
]);

const EXTERNAL_VOLUME_CONFIG: Struct = fields(&[
    must("name", TEXT),
    must("filesystemType", Type::Enum(&FILESYSTEM)),
    field("mount", Obj(&EXTERNAL_MOUNT_SPEC)),
]);

const FILESYSTEM_SCRUB_CONFIG: Struct = fields(&[field("interval", Type::Duration)]);

const FILESYSTEM_TRIM_CONFIG: Struct = fields(&[field("interval", Type::Duration)]);

const DISK_SELECTOR: Struct = fields(&[field("match", Type::Expression)]);

const PROVISIONING_SPEC: Struct = fields(&[
    field("diskSelector", Obj(&DISK_SELECTOR)),
    opt("grow", BOOL),
    field("minSize", Type::ByteSize),
    field("maxSize", Type::Size),
]);

const ENCRYPTION_KEY_STATIC: Struct = fields(&[field("passphrase", TEXT).secret()]);

const ENCRYPTION_KEY_NODE_ID: Struct = fields(&[]);

const ENCRYPTION_KEY_KMS: Struct = fields(&[must("endpoint", TEXT)]);

const ENCRYPTION_KEY_TPM_OPTIONS: Struct = fields(&[field("pcrs", list(&INT))]);

const ENCRYPTION_KEY_TPM: Struct = fields(&[
    opt("options", Obj(&ENCRYPTION_KEY_TPM_OPTIONS)).since(12),
    opt("checkSecurebootStatusOnEnroll", BOOL),
]);

const ENCRYPTION_KEY: Struct = fields(&[
    must("slot", INT),
    opt("static", Obj(&ENCRYPTION_KEY_STATIC)),
    opt("nodeID", Obj(&ENCRYPTION_KEY_NODE_ID)),
    opt("kms", Obj(&ENCRYPTION_KEY_KMS)),
    opt("tpm", Obj(&ENCRYPTION_KEY_TPM)),
    opt("lockToState", BOOL).since(11),
]);

const ENCRYPTION_SPEC: Struct = fields(&[
    must("provider", Type::Enum(&ENCRYPTION_PROVIDER)),
    must("keys", list(&Obj(&ENCRYPTION_KEY))),
    field("cipher", TEXT),
    field("keySize", U64),
    field("blockSize", U64),
    field("options", TEXTS),
    opt("allowDiscards", BOOL).since(14),
]);

const RAW_VOLUME_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("provisioning", Obj(&PROVISIONING_SPEC)),
    field("encryption", Obj(&ENCRYPTION_SPEC)),
]);

const SWAP_VOLUME_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("provisioning", Obj(&PROVISIONING_SPEC)),
    field("encryption", Obj(&ENCRYPTION_SPEC)),
]);

const XFS_SPEC: Struct = fields(&[field("minAllocationGroupSize", Type::ByteSize)]);

const FILESYSTEM_SPEC: Struct = fields(&[
    field("type", Type::Enum(&FILESYSTEM)),
    opt("projectQuotaSupport", BOOL).since(11),
    opt("xfs", Obj(&XFS_SPEC)).since(14),
]);

const USER_MOUNT_SPEC: Struct = fields(&[opt("disableAccessTime", BOOL), opt("secure", BOOL)]);

const USER_VOLUME_CONFIG: Struct = fields(&[
    must("name", TEXT),
    opt("volumeType", Type::Enum(&VOLUME_TYPE)).since(12),
    field("provisioning", Obj(&PROVISIONING_SPEC)),
    field("filesystem", Obj(&FILESYSTEM_SPEC)),
    field("encryption", Obj(&ENCRYPTION_SPEC)),
    field("mount", Obj(&USER_MOUNT_SPEC)).since(13),
    opt("trim", Obj(&TRIM_CONFIG)).since(14),
    opt("scrub", Obj(&SCRUB_CONFIG)).since(14),
]);

const SYSTEM_VOLUME_FILESYSTEM_SPEC: Struct = fields(&[opt("xfs", Obj(&XFS_SPEC))]);

const MOUNT_SPEC: Struct = fields(&[opt("secure", BOOL), opt("disableAccessTime", BOOL).since(14)]);

const VOLUME_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("provisioning", Obj(&PROVISIONING_SPEC)),
    field("filesystem", Obj(&SYSTEM_VOLUME_FILESYSTEM_SPEC)).since(14),
    field("encryption", Obj(&ENCRYPTION_SPEC)).since(11),
    field("mount", Obj(&MOUNT_SPEC)).since(13),
    opt("trim", Obj(&TRIM_CONFIG)).since(14),
    opt("scrub", Obj(&SCRUB_CONFIG)).since(14),
]);

const ZSWAP_CONFIG: Struct = fields(&[opt("maxPoolPercent", INT), opt("shrinkerEnabled", BOOL)]);

const LVM_LOGICAL_VOLUME_PROVISIONING_SPEC: Struct =
    fields(&[must("volumeGroup", TEXT), field("minSize", Type::ByteSize), field("maxSize", Type::Size)]);

const LVM_LOGICAL_VOLUME_CONFIG: Struct = fields(&[
    must("name", TEXT),
    must("type", Type::Enum(&LOGICAL_VOLUME)),
    opt("mirrors", U32),
    opt("stripes", U32),
    must("provisioning", Obj(&LVM_LOGICAL_VOLUME_PROVISIONING_SPEC)),
]);

const LVM_VOLUME_SELECTOR_SPEC: Struct = fields(&[field("match", Type::Expression)]);

const LVM_PROVISIONING_SPEC: Struct = fields(&[field("volumeSelector", Obj(&LVM_VOLUME_SELECTOR_SPEC))]);

const LVM_VOLUME_GROUP_CONFIG: Struct =
    fields(&[must("name", TEXT), must("provisioning", Obj(&LVM_PROVISIONING_SPEC))]);

const RAID_VOLUME_SELECTOR: Struct = fields(&[field("match", Type::Expression)]);

const RAID_PROVISIONING_SPEC: Struct = fields(&[must("volumeSelector", Obj(&RAID_VOLUME_SELECTOR))]);

const RAID_ARRAY_CONFIG: Struct = fields(&[
    must("name", TEXT),
    must("level", Type::Enum(&RAID_LEVEL)),
    field("metadata", Type::Enum(&RAID_METADATA)),
    must("provisioning", Obj(&RAID_PROVISIONING_SPEC)),
]);
