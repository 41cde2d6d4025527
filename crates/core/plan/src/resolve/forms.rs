//! Texts that Proxmox and Kubernetes take in one form only. They would be refused when a VM is
//! made or a node joins, which is late.

use std::collections::BTreeMap;

use ichor_model::{At, Code, Finding, Span};
use ichor_spec::{
    inventory::{Machine, Storage},
    values::{LabelValue, Tag},
    yaml::show,
};

use super::{Context, expand::Draft};

/// What a text names.
#[derive(Debug, Clone, Copy)]
enum Form {
    Storage,
    Bridge,
    Pool,
    Mapping,
}

impl Form {
    /// Whether Proxmox takes the text (`pve-storage-id`, `pve-bridge-id`, `pve-poolid`,
    /// `pve-configid`).
    fn allows(self, text: &str) -> bool {
        let of = |more: &[u8]| text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b));
        let letter_first = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let ends_well = text.ends_with(|c: char| c.is_ascii_alphanumeric());
        match self {
            Self::Storage => text.len() >= 2 && letter_first && ends_well && of(b"-_."),
            Self::Bridge => !text.is_empty() && of(b"-_."),
            Self::Pool => {
                let level = |level: &str| level.starts_with(|c: char| c.is_ascii_alphabetic());
                of(b"-_./") && text.split('/').all(level) && text.split('/').count() <= 3
            }
            Self::Mapping => text.len() >= 2 && letter_first && of(b"-_"),
        }
    }

    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Storage => (
                "a Proxmox storage",
                "use two or more letters, digits, `-`, `_` and `.`, beginning with a letter, as in `local-lvm`",
            ),
            Self::Bridge => ("a Proxmox bridge", "use letters, digits, `-`, `_` and `.`, as in `vmbr0`"),
            Self::Pool => (
                "a Proxmox pool",
                "use letters, digits, `-`, `_` and `.`, beginning with a letter, and at most two `/`",
            ),
            Self::Mapping => (
                "a Proxmox resource mapping",
                "use two or more letters, digits, `-` and `_`, beginning with a letter, as in `igpu`",
            ),
        }
    }
}

/// Reports texts that Proxmox or Kubernetes would refuse.
pub fn check(cx: &mut Context<'_>, drafts: &[Draft]) {
    for (at, (form, text)) in names(cx, drafts) {
        let (what, remedy) = form.words();
        let message = format!("`{}` cannot name {what}", show(&text));
        cx.findings.push(Finding::error(Code::BAD_NAME, at, message).remedy(remedy));
    }
    if let Some(word) = cx.cluster.environment.clone().filter(|word| word.parse::<Tag>().is_err()) {
        cx.findings.push(
            Finding::error(Code::BAD_TAG, word.span, format!("`{}` cannot be a tag", show(&word)))
                .remedy("use letters, digits, `_`, `-`, `+` and `.`, as in `production`"),
        );
    }
    if let Some(region) = cx.cluster.region.clone().filter(|text| text.parse::<LabelValue>().is_err()) {
        cx.findings.push(
            Finding::error(Code::BAD_LABEL, region.span, format!("`{}` cannot be a label", show(&region)))
                .remedy("use at most 63 letters, digits, `-`, `_` and `.`, as in `eu-west`"),
        );
    }
}

/// Returns the names of things in Proxmox that are not as they should be, each place once.
fn names(cx: &Context<'_>, drafts: &[Draft]) -> BTreeMap<Span, (Form, String)> {
    let mut names: Vec<(Form, Option<&At<String>>)> =
        vec![(Form::Pool, cx.proxmox.pool.as_ref()), (Form::Bridge, cx.network.bridge.as_ref())];
    names.extend(cx.proxmox.storage.iter().flat_map(|storage| of_storage(storage)));
    for (_, host) in cx.proxmox.hosts.iter().flat_map(|hosts| &hosts.0.0) {
        names.push((Form::Bridge, host.bridge.as_ref()));
        names.extend(host.storage.iter().flat_map(|storage| of_storage(storage)));
    }
    names.extend(drafts.iter().flat_map(|draft| of_machine(&draft.all)));
    let written = names.into_iter().filter_map(|(form, text)| Some((form, text?)));
    let wrong = written.filter(|(form, text)| !form.allows(text));
    wrong.map(|(form, text)| (text.span, (form, text.value.clone()))).collect()
}

fn of_storage(storage: &Storage) -> Vec<(Form, Option<&At<String>>)> {
    let Storage { disks, images, templates, cloudinit, snippets, .. } = storage;
    [disks, images, templates, cloudinit, snippets].map(|id| (Form::Storage, id.as_ref())).into()
}

fn of_machine(machine: &Machine) -> Vec<(Form, Option<&At<String>>)> {
    let network = machine.network.as_ref().map(|network| network.bridge.as_ref());
    let mut names = vec![(Form::Storage, machine.storage.as_ref()), (Form::Bridge, network.flatten())];
    if let Some(ichor_spec::inventory::SystemDisk::Full(disk)) = machine.disk.as_ref().map(|disk| &disk.value)
    {
        names.push((Form::Storage, disk.storage.as_ref()));
    }
    let disks = machine.disks.iter().flat_map(|disks| &disks.value);
    names.extend(disks.map(|disk| (Form::Storage, disk.storage.as_ref())));
    let nics = machine.nics.iter().flat_map(|nics| &nics.value);
    names.extend(nics.map(|nic| (Form::Bridge, nic.bridge.as_ref())));
    let devices = machine.pci.iter().flat_map(|pci| &pci.value);
    names.extend(devices.map(|device| (Form::Mapping, device.mapping.as_ref())));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_proxmox_takes_them() {
        for (form, good, bad) in [
            (
                Form::Storage,
                &["local", "local-lvm", "Ceph_1.x", "a1"][..],
                &["a", "1a", "a-", "a b", "", "ä1"][..],
            ),
            (Form::Bridge, &["vmbr0", "br.20", "_x-1"], &["", "vm br", "br/0"]),
            (Form::Pool, &["k8s", "a/b/c", "k8s-home.lab"], &["", "a b", "a/b/c/d", "1a", "a//b", "a/"]),
            (Form::Mapping, &["igpu", "GPU_1", "a-b"], &["g", "1gpu", "a.b", "a b"]),
        ] {
            assert!(good.iter().all(|text| form.allows(text)), "{form:?}");
            assert!(!bad.iter().any(|text| form.allows(text)), "{form:?}");
        }
    }
}
