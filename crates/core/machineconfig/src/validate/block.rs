//! Rules of the volume documents.

use std::collections::BTreeSet;

use ichor_model::Code;

use super::{judge::Judge, text::is_plain_name};
use crate::document::{
    Node,
    quantity::{parse_bytes, parse_duration},
};

/// Checks a document of this family; others are left alone.
pub fn check(kind: &str, judge: &mut Judge<'_>) {
    match kind {
        "VolumeConfig" => system_volume(judge),
        "UserVolumeConfig" => user_volume(judge),
        "RawVolumeConfig" | "SwapVolumeConfig" => {
            name(judge, 34, false);
            provisioning(judge, true, true);
            encryption(judge);
        }
        "ExistingVolumeConfig" => {
            name(judge, usize::MAX, false);
            judge.required("discovery.volumeSelector.match", "volume selector is required");
        }
        "ExternalVolumeConfig" => external_volume(judge),
        "ZswapConfig" => zswap(judge),
        "FilesystemTrimConfig" => judge.not_negative("interval", "interval cannot be negative"),
        "FilesystemScrubConfig" => at_least_10s(judge, "interval", "scrub interval: minimum value is 10s"),
        "LVMVolumeGroupConfig" => {
            name(judge, 63, true);
            judge.required(
                "provisioning.volumeSelector.match",
                "provisioning.volumeSelector.match is required",
            );
        }
        "LVMLogicalVolumeConfig" => logical_volume(judge),
        "RAIDArrayConfig" => {
            name(judge, 32, true);
            judge.required(
                "provisioning.volumeSelector.match",
                "provisioning.volumeSelector.match is required",
            );
        }
        _ => return,
    }
    judge.not_negative("trim.interval", "trim interval cannot be negative");
    at_least_10s(judge, "scrub.interval", "scrub interval: minimum value is 10s");
}

fn name(judge: &mut Judge<'_>, longest: usize, underscores: bool) {
    let name = judge.text("name");
    if name.len() > longest {
        let words = format!("name must be between 1 and {longest} characters long");
        judge.fail(
            Code::CONFIG_REFUSED,
            "name",
            &words,
            "write a shorter name: partition labels have no more room",
        );
    }
    if !is_plain_name(name, underscores) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "name",
            "name can only contain ASCII letters, digits, and hyphens",
            "write a name of these characters",
        );
    }
}

/// Reports a duration that is set and shorter than ten seconds.
pub fn at_least_10s(judge: &mut Judge<'_>, path: &str, words: &str) {
    let interval = parse_duration(judge.text(path)).unwrap_or(0);
    if interval != 0 && interval < 10_000_000_000 {
        judge.fail(Code::CONFIG_REFUSED, path, words, "write `10s` or more");
    }
}

fn has_provisioning(judge: &Judge<'_>) -> bool {
    ["grow", "minSize", "maxSize", "diskSelector.match"]
        .iter()
        .any(|key| judge.get(&format!("provisioning.{key}")).is_some())
}

fn has_encryption(judge: &Judge<'_>) -> bool {
    judge.get("encryption.provider").is_some() || !judge.items("encryption.keys").is_empty()
}

fn system_volume(judge: &mut Judge<'_>) {
    let volumes: &[&str] = match judge.release {
        ..=8 => &["EPHEMERAL"],
        9 | 10 => &["EPHEMERAL", "IMAGECACHE"],
        11..=13 => &["STATE", "EPHEMERAL", "IMAGECACHE"],
        _ => &["STATE", "EPHEMERAL", "IMAGECACHE", "ETCD", "CRI", "KUBELET", "LOG"],
    };
    let name = judge.text("name");
    if !volumes.contains(&name) {
        let words = format!("only {volumes:?} volumes are supported");
        judge.fail(Code::CONFIG_REFUSED, "name", &words, "use a UserVolumeConfig for volumes of your own");
        return;
    }
    if name == "STATE" {
        if has_provisioning(judge) {
            judge.conflict(
                "provisioning",
                "provisioning config is not allowed for the \"STATE\" volume",
                "remove `provisioning`",
            );
        }
        for key in judge.items("encryption.keys") {
            if key.get("lockToState").and_then(Node::as_bool) == Some(true) {
                let words = "state-locked key is not allowed for the \"STATE\" volume";
                judge.wrong(Code::CONFIG_REFUSED, key.get("lockToState"), words, "remove `lockToState`");
            }
        }
    }
    if judge.release >= 14 {
        mounting(judge, name);
    }
    provisioning(judge, false, true);
    encryption(judge);
}

/// Settings of the mount, which not every system volume has.
fn mounting(judge: &mut Judge<'_>, name: &str) {
    let set = |path: &str| judge.get(path).and_then(Node::as_map).is_some_and(|map| !map.is_empty());
    let (mount, filesystem) = (set("mount"), set("filesystem"));
    let partition = has_provisioning(judge);
    if mount && matches!(name, "STATE" | "IMAGECACHE") {
        let words = format!("mount config is not allowed for the \"{name}\" volume");
        judge.conflict("mount", &words, "remove `mount`");
    }
    if filesystem && name == "IMAGECACHE" {
        let words = format!("filesystem config is not allowed for the \"{name}\" volume");
        judge.conflict("filesystem", &words, "remove `filesystem`");
    }
    if mount && !partition && matches!(name, "ETCD" | "CRI" | "KUBELET" | "LOG") {
        let words = format!(
            "mount config for the \"{name}\" volume is only supported when it is provisioned onto a dedicated partition"
        );
        judge.conflict("mount", &words, "set `provisioning`, or remove `mount`");
    }
}

fn provisioning(judge: &mut Judge<'_>, required: bool, sizes: bool) {
    if required {
        judge.required("provisioning.diskSelector.match", "disk selector is required");
    }
    let (low, high) = (judge.text("provisioning.minSize"), judge.text("provisioning.maxSize"));
    if !sizes {
        if !low.is_empty() || !high.is_empty() || judge.get("provisioning.grow").is_some() {
            judge.conflict(
                "provisioning",
                "min size, max size and grow are not supported",
                "keep only `diskSelector`: the volume takes the whole disk",
            );
        }
        return;
    }
    if required && low.is_empty() && high.is_empty() {
        judge.fail(
            Code::CONFIG_REFUSED,
            "provisioning",
            "min size or max size is required",
            "set `provisioning.minSize`",
        );
    }
    if low.starts_with('-') {
        judge.fail(
            Code::CONFIG_REFUSED,
            "provisioning.minSize",
            "min size cannot be negative",
            "write a positive size",
        );
    }
    if let (Some(low), Some(high)) = (parse_bytes(low), parse_bytes(high))
        && low > high
    {
        judge.fail(
            Code::CONFIG_REFUSED,
            "provisioning.minSize",
            "min size is greater than max size",
            "write a smaller `minSize` or a larger `maxSize`",
        );
    }
}

fn encryption(judge: &mut Judge<'_>) {
    if !has_encryption(judge) {
        return;
    }
    if judge.text("encryption.provider") != "luks2" {
        judge.fail(
            Code::CONFIG_REFUSED,
            "encryption.provider",
            "unsupported encryption provider",
            "write `provider: luks2`",
        );
    }
    judge.required("encryption.keys", "encryption keys are required");
    keys(judge, "encryption.keys");
}

/// Checks the keys of an encrypted volume.
pub fn keys(judge: &mut Judge<'_>, path: &str) {
    let mut slots = BTreeSet::new();
    for key in judge.items(path) {
        let slot = key.get("slot").and_then(Node::as_int).unwrap_or(0);
        if !slots.insert(slot) {
            let words = format!("duplicate key slot {slot}: it is already in use");
            judge.wrong(Code::CONFIG_REFUSED, Some(key), &words, "give each key a slot of its own");
        }
        if ["static", "nodeID", "kms", "tpm"].iter().all(|kind| key.get(kind).is_none()) {
            let words = format!("at least one encryption key type must be specified for slot {slot}");
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(key),
                &words,
                "add `nodeID: {}`, `tpm`, `kms` or `static`",
            );
        }
        let registers = key.at_path("tpm.options.pcrs").and_then(Node::as_list).unwrap_or_default();
        for register in registers {
            if !register.as_int().is_some_and(|pcr| (0..=23).contains(&pcr)) {
                judge.wrong(
                    Code::CONFIG_REFUSED,
                    Some(register),
                    "TPM PCR is out of range (0-23)",
                    "write 0 to 23",
                );
            }
        }
    }
}

fn user_volume(judge: &mut Judge<'_>) {
    name(judge, 34, false);
    match judge.text("volumeType") {
        "directory" => directory(judge),
        "disk" => {
            provisioning(judge, true, false);
            filesystem(judge);
            encryption(judge);
        }
        "" | "partition" => {
            provisioning(judge, true, true);
            filesystem(judge);
            encryption(judge);
        }
        other => {
            let words = format!("unsupported volume type \"{other}\"");
            judge.fail(
                Code::CONFIG_REFUSED,
                "volumeType",
                &words,
                "write `partition`, `disk` or `directory`",
            );
        }
    }
}

fn directory(judge: &mut Judge<'_>) {
    let filesystem = ["type", "projectQuotaSupport", "xfs"];
    let has_filesystem = filesystem.iter().any(|key| judge.get(&format!("filesystem.{key}")).is_some());
    for (there, path) in [
        (has_provisioning(judge), "provisioning"),
        (has_encryption(judge), "encryption"),
        (has_filesystem, "filesystem"),
        (judge.get("mount.disableAccessTime").is_some(), "mount.disableAccessTime"),
    ] {
        if there {
            let words = format!("{path} is invalid for volumeType directory");
            judge.conflict(path, &words, "remove it: a directory lives on the EPHEMERAL volume");
        }
    }
}

fn filesystem(judge: &mut Judge<'_>) {
    let kind = judge.text("filesystem.type");
    if !matches!(kind, "" | "xfs" | "ext4" | "btrfs") {
        let words = format!("unsupported filesystem type: {kind}");
        judge.fail(Code::CONFIG_REFUSED, "filesystem.type", &words, "write `xfs` or `ext4`");
    }
    if judge.is_on("filesystem.projectQuotaSupport") && !matches!(kind, "" | "xfs") {
        judge.conflict(
            "filesystem.projectQuotaSupport",
            "project quota support is only available for xfs filesystem",
            "write `type: xfs`, or remove `projectQuotaSupport`",
        );
    }
    if judge.get("filesystem.xfs").is_some() && !matches!(kind, "" | "xfs") {
        judge.conflict("filesystem.xfs", "xfs options are only available for xfs filesystem", "remove `xfs`");
    }
}

fn external_volume(judge: &mut Judge<'_>) {
    name(judge, 34, false);
    if judge.text("filesystemType") != "virtiofs" {
        judge.fail(Code::CONFIG_REFUSED, "filesystemType", "invalid filesystem type", "write `virtiofs`");
    }
    judge.required("mount.virtiofs.tag", "virtiofs tag is required");
}

fn zswap(judge: &mut Judge<'_>) {
    if !(0..=100).contains(&judge.int("maxPoolPercent")) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "maxPoolPercent",
            "maxPoolPercent must be between 0 and 100",
            "write a percentage",
        );
    }
}

fn logical_volume(judge: &mut Judge<'_>) {
    name(judge, 63, true);
    let kind = judge.text("type");
    for (path, kinds, least) in [("mirrors", ["raid1", "raid10"], 1), ("stripes", ["raid0", "raid10"], 2)] {
        if judge.get(path).is_none() {
            continue;
        }
        if !kinds.contains(&kind) {
            let words = format!("{path} is only valid for {}/{}", kinds[0], kinds[1]);
            judge.conflict(path, &words, "remove it, or choose another `type`");
        } else if judge.int(path) < least {
            let words = format!("{path} must be at least {least}");
            judge.fail(Code::CONFIG_REFUSED, path, &words, "write a larger number");
        }
    }
    judge.required("provisioning.volumeGroup", "provisioning.volumeGroup is required");
    judge.required("provisioning.maxSize", "provisioning.maxSize is required");
}
