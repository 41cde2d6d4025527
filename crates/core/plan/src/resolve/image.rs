//! Images: platform, source and boot path are one choice, so that they cannot disagree.

use std::collections::BTreeMap;

use ichor_model::{
    At, Code, Finding, HostName, MachineName, Span, VmId,
    desired::{
        AddressDelivery, Boot, CloneKind, ConfigDelivery, Hostnames, Image, ImageSource, Late, Machine,
        MetaNetwork, Platform, Role, Source, Template, Verify,
    },
};
use ichor_spec::{
    inventory::{self as spec, TemplateKey, Templates},
    values::{Addressing, Extension, SchematicId},
};

use super::{Context, cluster::values, expand::Draft, seats::storage};

const FACTORY: &str = "https://factory.talos.dev";
/// The extension behind Proxmox's guest-agent channel.
pub const GUEST_AGENT: &str = "siderolabs/qemu-guest-agent";

/// The images, and which machine boots which.
#[derive(Debug, Default)]
pub struct Images {
    /// Each image once.
    pub list: Vec<Image>,
    /// The image of each machine, by its id.
    pub of: BTreeMap<MachineName, String>,
}

impl Images {
    /// Returns the image of a machine.
    pub fn image(&self, machine: &MachineName) -> Option<&Image> {
        let id = self.of.get(machine)?;
        self.list.iter().find(|image| image.id == *id)
    }
}

/// Decides how machines get their first address and their config.
pub fn boot(cx: &mut Context<'_>) -> Boot {
    let leased = cx.network.addressing.is_some_and(|addressing| addressing.value == Addressing::Dhcp);
    let default = if leased { AddressDelivery::Dhcp } else { AddressDelivery::Cloudinit };
    let address = cx.boot.address.map_or(default, |at| at.value);
    let config = cx.boot.config.map_or(ConfigDelivery::Maintenance, |at| at.value);
    let default = if config == ConfigDelivery::Cidata { Verify::Cidata } else { Verify::Console };
    let verify = cx.boot.verify.map_or(default, |at| at.value);
    let boot = Boot { address, config, verify };
    check_delivery(cx, boot, leased);
    check_lease(cx, boot, leased);
    check_verify(cx, boot);
    boot
}

fn check_delivery(cx: &mut Context<'_>, boot: Boot, leased: bool) {
    let at = cx.boot.address.map(|at| at.span);
    if leased && boot.address != AddressDelivery::Dhcp {
        cx.findings.push(
            Finding::error(
                Code::DHCP_AND_STATIC,
                at,
                format!(
                    "`boot.address: {}` hands out fixed addresses, but `network.addressing` is `dhcp`",
                    boot.address
                ),
            )
            .remedy("remove `boot.address`, or set `addressing: static`"),
        );
    }
    let config_at = cx.boot.config.map(|at| at.span);
    let address_known = !cx.boot.unread.has("address") && !cx.network.unread.has("addressing");
    if boot.config == ConfigDelivery::Cidata
        && address_known
        && !matches!(boot.address, AddressDelivery::Cidata | AddressDelivery::Dhcp)
    {
        let why = match boot.address {
            AddressDelivery::Meta => "a machine that reads META reads no cidata volume",
            _ => "Proxmox's cloud-init drive takes the place of a cidata volume",
        };
        cx.findings.push(
            Finding::error(
                Code::BOOT_PATH,
                config_at,
                format!("`config: cidata` does not work with `address: {}`", boot.address),
            )
            .because(why)
            .remedy("set `boot.address: cidata`"),
        );
    }
    let source = cx.image.source.map(|source| source.value);
    if boot.address == AddressDelivery::Meta && source == Some(ImageSource::Template) {
        cx.findings.push(
            Finding::error(
                Code::BOOT_PATH,
                at,
                "META needs an image of its own for each machine, not a template",
            )
            .remedy("set `image.source: disk`, or `boot.address: cloudinit`"),
        );
    }
}

/// Talos asks for leases of IPv4 addresses only, and names come with leases only.
fn check_lease(cx: &mut Context<'_>, boot: Boot, leased: bool) {
    let cidr = cx.network.cidr.as_ref().filter(|_| leased && !cx.network.unread.has("cidr"));
    if let Some(cidr) = cidr.filter(|cidr| cidr.0.iter().all(|net| net.value.0.addr().is_ipv6())) {
        cx.findings.push(
            Finding::error(Code::FAMILY, cidr.span, "an IPv6 network alone gives machines no lease")
                .because("machines ask for IPv4 leases until they have their config")
                .remedy("set `addressing: static`, or add an IPv4 network"),
        );
    }
    let named = cx.network.hostnames.filter(|at| at.value == Hostnames::Dhcp);
    let known = !cx.boot.unread.has("address") && !cx.network.unread.has("addressing");
    if let Some(hostnames) = named.filter(|_| known && boot.address != AddressDelivery::Dhcp) {
        let message = format!("no DHCP server names machines whose address comes by {}", boot.address);
        cx.findings.push(
            Finding::error(Code::DHCP_AND_STATIC, hostnames.span, message)
                .because("a machine with a fixed address asks for no lease, and so for no name")
                .remedy("remove `hostnames`, or set `boot.address: dhcp`"),
        );
    }
}

/// META is baked into images, so images that are made elsewhere cannot carry it.
fn check_meta(cx: &mut Context<'_>, drafts: &[Draft], boot: Boot) {
    if boot.address != AddressDelivery::Meta {
        return;
    }
    let file = cx.image.file.as_ref().map(|file| (file.span, "file"));
    let schematics = drafts.iter().filter_map(|draft| schematic(cx, &draft.all));
    let fixed: BTreeMap<Span, &str> = match file {
        Some(file) => BTreeMap::from([file]),
        None => schematics.map(|id| (id.span, "schematic")).collect(),
    };
    for (span, key) in fixed {
        cx.findings.push(
            Finding::error(
                Code::BOOT_PATH,
                span,
                "META is baked into an image per machine, so no single image can be given",
            )
            .remedy(format!("remove `{key}`, or set `boot.address: cloudinit`")),
        );
    }
}

fn check_verify(cx: &mut Context<'_>, boot: Boot) {
    let Some(at) = cx.boot.verify.map(|at| at.span) else { return };
    let config_known = !cx.boot.unread.has("config");
    if config_known && (boot.verify == Verify::Cidata) != (boot.config == ConfigDelivery::Cidata) {
        cx.findings.push(
            Finding::error(Code::BOOT_PATH, at, "`verify: cidata` and `config: cidata` go together")
                .remedy("set both, or neither"),
        );
    }
    if boot.verify == Verify::Network {
        cx.findings.push(
            Finding::warning(Code::UNVERIFIED, at, "machines are trusted by network alone")
                .because("a machine config with the cluster's secrets goes to whoever answers at the address")
                .remedy("set `verify: console`"),
        );
    }
}

/// Makes the images that the machines need, each once.
pub fn images(cx: &mut Context<'_>, drafts: &[Draft], boot: Boot) -> Images {
    check_schematic(cx, drafts);
    check_source(cx);
    check_meta(cx, drafts, boot);
    let mut images = Images::default();
    for draft in drafts {
        let Some(image) = image_of(cx, draft, boot) else { continue };
        let id = match images.list.iter().find(|known| same_content(known, &image)) {
            Some(known) => known.id.clone(),
            None => {
                let id = distinct_id(&images.list, &image);
                images.list.push(Image { id: id.clone(), ..image });
                id
            }
        };
        images.of.insert(draft.name.clone(), id);
    }
    images
}

/// Returns the schematic of a machine's image: its own, or else the cluster's.
pub fn schematic<'a>(cx: &'a Context<'_>, machine: &'a spec::Machine) -> Option<&'a At<SchematicId>> {
    own_schematic(machine).or(cx.image.schematic.as_ref())
}

fn own_schematic(machine: &spec::Machine) -> Option<&At<SchematicId>> {
    machine.image.as_ref().and_then(|image| image.schematic.as_ref())
}

/// A schematic id stands for a whole recipe.
fn check_schematic(cx: &mut Context<'_>, drafts: &[Draft]) {
    let mut others: BTreeMap<Span, Span> = BTreeMap::new();
    if let Some(schematic) = &cx.image.schematic {
        let extensions = cx.image.extensions.as_ref().map(|at| at.span);
        let recipe = [extensions, cx.image.kernel_args.as_ref().map(|at| at.span)];
        others.extend(recipe.into_iter().flatten().map(|other| (other, schematic.span)));
    }
    for draft in drafts {
        let Some(schematic) = schematic(cx, &draft.all) else { continue };
        for level in draft.levels(cx) {
            let args = level.image.as_ref().and_then(|image| image.kernel_args.as_ref());
            let recipe = [level.extensions.as_ref().map(|at| at.span), args.map(|at| at.span)];
            others.extend(recipe.into_iter().flatten().map(|other| (other, schematic.span)));
        }
    }
    for (other, schematic) in others {
        cx.findings.push(
            Finding::error(Code::SCHEMATIC, other, "a schematic id already fixes this")
                .see(schematic, "the schematic")
                .remedy("remove this, or replace `schematic` by `extensions` and `kernel_args`"),
        );
    }
}

/// Some keys of `image` belong to one source.
fn check_source(cx: &mut Context<'_>) {
    let image = cx.image.clone();
    if image.unread.has("source") {
        return;
    }
    let source = image.source.map_or(ImageSource::Disk, |source| source.value);
    if let Some(file) = image.file.as_ref() {
        if source != ImageSource::Iso {
            cx.findings.push(
                Finding::error(Code::CONFLICTING_KEYS, file.span, "`file` is for `source: iso`")
                    .remedy("set `source: iso`, or remove `file`"),
            );
        }
        check_file(cx, file);
    }
    if source != ImageSource::Template {
        let unused = [
            ("templates", image.templates.as_ref().map(|at| at.span)),
            ("clone", image.clone.map(|at| at.span)),
        ];
        for (key, span) in unused.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            cx.findings.push(
                Finding::error(Code::CONFLICTING_KEYS, span, format!("`{key}` is for `source: template`"))
                    .remedy(format!("set `source: template`, or remove `{key}`")),
            );
        }
    }
}

fn check_file(cx: &mut Context<'_>, file: &At<String>) {
    let on_storage = file.split_once(':').filter(|(storage, _)| !storage.is_empty());
    let wrong = match on_storage {
        Some((_, path)) if path.starts_with("iso/") => return,
        Some(_) => "is not an ISO",
        None => "is not a file on a Proxmox storage",
    };
    cx.findings.push(
        Finding::error(Code::BAD_PATH, file.span, format!("`{}` {wrong}", ichor_spec::yaml::show(file)))
            .remedy("write it as Proxmox does: `local:iso/talos.iso`"),
    );
}

fn image_of(cx: &Context<'_>, draft: &Draft, boot: Boot) -> Option<Image> {
    let image = &cx.image;
    let source = image.source.map_or(ImageSource::Disk, |source| source.value);
    Some(Image {
        id: String::new(),
        talos: draft.all.talos.as_ref().or(cx.cluster.talos.as_ref())?.value.clone(),
        source,
        platform: platform(source, boot),
        arch: cx.arch_of(&draft.all),
        secureboot: secureboot(cx, &draft.all).is_some(),
        extensions: extensions(cx, draft),
        kernel_args: kernel_args(cx, draft, boot),
        schematic: schematic(cx, &draft.all).map(|id| id.value.0.clone()),
        file: image.file.as_ref().map(|file| file.value.clone()),
        factory: image.factory.as_ref().map_or_else(|| FACTORY.into(), |url| url.value.text.clone()),
        meta: None,
    })
}

/// Only metal reads META, only nocloud reads cloud-init and cidata volumes. An ISO whose machines
/// need neither is the metal one, which is what people have.
const fn platform(source: ImageSource, boot: Boot) -> Platform {
    match (source, boot.address, boot.config) {
        (_, AddressDelivery::Meta, _)
        | (ImageSource::Iso, AddressDelivery::Dhcp, ConfigDelivery::Maintenance) => Platform::Metal,
        _ => Platform::Nocloud,
    }
}

/// Returns where secure boot is asked for, if a machine has it.
pub fn secureboot(cx: &Context<'_>, machine: &spec::Machine) -> Option<At<bool>> {
    let own = machine.image.as_ref().and_then(|image| image.secureboot);
    own.or(cx.image.secureboot).filter(|secureboot| secureboot.value)
}

/// The cluster's extensions and those of every level of the machine, sorted: the order changes the
/// schematic's id.
///
/// What a given file holds is its own affair, but the installer must bring the guest agent along that is expected.
fn extensions(cx: &Context<'_>, draft: &Draft) -> Vec<String> {
    let recipe = cx.image.extensions.as_ref().filter(|_| own_schematic(&draft.all).is_none());
    let fixed = schematic(cx, &draft.all).is_some() || cx.image.file.is_some();
    let default = cx.image.extensions.is_none() && !fixed;
    let expected = cx.image.file.is_some()
        && schematic(cx, &draft.all).is_none()
        && draft.all.agent.is_some_and(|agent| agent.value);
    let mut all: Vec<String> = (default || expected).then(|| GUEST_AGENT.to_owned()).into_iter().collect();
    let own = draft.levels(cx).flat_map(|level| values(level.extensions.as_ref()));
    all.extend(values(recipe).into_iter().chain(own).map(|Extension(name)| name));
    all.sort();
    all.dedup();
    all
}

/// The cluster's arguments and those of every level of the machine, each once. META names its link,
/// so the name must be known before the machine has booted once.
fn kernel_args(cx: &Context<'_>, draft: &Draft, boot: Boot) -> Vec<String> {
    const PLAIN_NAMES: &str = "net.ifnames=0";
    let recipe = cx.image.kernel_args.as_ref().filter(|_| own_schematic(&draft.all).is_none());
    let own = draft.levels(cx).filter_map(|level| level.image.as_ref());
    let own = own.flat_map(|image| values(image.kernel_args.as_ref()));
    let link = (boot.address == AddressDelivery::Meta).then(|| PLAIN_NAMES.to_owned());
    let mut args = Vec::new();
    for arg in values(recipe).into_iter().chain(own).chain(link) {
        if !args.contains(&arg) {
            args.push(arg);
        }
    }
    args
}

fn same_content(known: &Image, image: &Image) -> bool {
    Image { id: String::new(), ..known.clone() } == *image
}

fn base_id(image: &Image) -> String {
    let secureboot = if image.secureboot { "-secureboot" } else { "" };
    format!("{}-{}-{}{secureboot}", image.talos, image.platform, image.arch)
}

fn distinct_id(list: &[Image], image: &Image) -> String {
    let base = base_id(image);
    let taken =
        list.iter().filter(|known| known.id == base || known.id.starts_with(&format!("{base}-"))).count();
    if taken == 0 { base } else { format!("{base}-{}", taken + 1) }
}

/// Returns the images for good. META is baked in, so with it every machine has an image of its own.
pub fn bake(images: Images, machines: &mut [Machine], hostnames: Hostnames) -> Vec<Image> {
    let by_meta = machines.iter_mut().filter(|machine| machine.boot.address == AddressDelivery::Meta);
    let own: Vec<Image> = by_meta
        .filter_map(|machine| {
            let shared = images.list.iter().find(|image| image.id == machine.image)?;
            let id = format!("{}-{}", base_id(shared), machine.name);
            let meta = Some(meta_network(machine, hostnames));
            machine.image.clone_from(&id);
            Some(Image { id, meta, ..shared.clone() })
        })
        .collect();
    if own.is_empty() { images.list } else { own }
}

fn meta_network(machine: &Machine, hostnames: Hostnames) -> MetaNetwork {
    let nic = machine.primary_nic();
    MetaNetwork {
        // [`kernel_args`] sees to it that the first card is called so.
        link: "eth0".into(),
        hostname: (hostnames == Hostnames::Inventory).then(|| machine.name.clone()),
        addresses: nic.addresses.iter().filter_map(|address| address.known()).copied().collect(),
        gateways: nic.gateways.clone(),
        dns: nic.dns.clone(),
        // Proxmox takes 1 for the bridge's own, which the guest then learns from its card.
        mtu: nic.mtu.filter(|mtu| *mtu > 1),
    }
}

/// Makes the template VMs that are in use. Roles and groups whose machines boot the same image may
/// share one.
pub fn templates(cx: &mut Context<'_>, images: &Images, drafts: &[Draft]) -> Vec<Template> {
    if cx.image.source.is_none_or(|source| source.value != ImageSource::Template) {
        return Vec::new();
    }
    let given = cx.image.templates.clone().map(|at| at.value).unwrap_or_default();
    check_templates(cx, &given, drafts);
    let missing: Vec<Role> = Role::ALL
        .into_iter()
        .filter(|role| {
            drafts.iter().any(|draft| draft.role == *role && template_key(&given, draft).is_none())
        })
        .collect();
    if !missing.is_empty() && !cx.image.unread.has("templates") {
        let taken: Vec<u32> = given.numbers().map(|(_, vmid)| vmid.value.number()).collect();
        no_template(cx, &missing, &taken);
    }
    let mut templates: Vec<Template> = Vec::new();
    for (key, template) in &given.0 {
        let users: Vec<&Draft> = drafts
            .iter()
            .filter(|draft| template_key(&given, draft).is_some_and(|found| *found == key.value))
            .collect();
        let Some(vmid) = template.vmid.filter(|_| !users.is_empty()) else { continue };
        let image = template_image(cx, images, &users, vmid.span);
        let new = template_vm(cx, key, template, vmid.value, image);
        match templates.iter_mut().find(|known| known.vmid == new.vmid && known.image == new.image) {
            Some(known) => {
                check_same_template(cx, known, &new, vmid.span);
                known.serves.extend(new.serves);
            }
            None => templates.push(new),
        }
    }
    for template in &mut templates {
        template.serves.sort();
    }
    templates.sort_by(|a, b| a.serves.cmp(&b.serves));
    templates
}

fn template_vm(
    cx: &Context<'_>,
    key: &TemplateKey,
    written: &spec::Template,
    vmid: VmId,
    image: String,
) -> Template {
    let host = written.host.as_ref().map(|host| host.value.clone()).or_else(|| only_host(cx));
    Template {
        vmid,
        serves: vec![key.0.clone()],
        existing: written.existing.is_some_and(|at| at.value),
        image,
        clone: cx.image.clone.map_or(CloneKind::Full, |clone| clone.value),
        storage: storage(cx, host.as_ref()).templates,
        host: host.map_or(Late::From(Source::LiveHosts), Late::Known),
    }
}

/// One template is on one host, and made by one of us.
fn check_same_template(cx: &mut Context<'_>, known: &Template, new: &Template, at: Span) {
    if known.host != new.host || known.existing != new.existing {
        let message = format!("template {} is said to be two different things", new.vmid);
        cx.findings.push(
            Finding::error(Code::CONFLICTING_KEYS, at, message)
                .because(format!(
                    "for `{}` and `{}` it differs in `host` or `existing`",
                    known.serves.join(", "),
                    new.serves.join(", ")
                ))
                .remedy("say the same of it in both places, or use two templates"),
        );
    }
}

fn only_host(cx: &Context<'_>) -> Option<HostName> {
    match cx.proxmox.hosts.as_ref()?.0.0.as_slice() {
        [(name, _)] => Some(name.value.clone()),
        _ => None,
    }
}

/// Returns which template a machine is cloned from: its group's, or else its role's.
fn template_key<'a>(given: &'a Templates, draft: &Draft) -> Option<&'a TemplateKey> {
    let mut keys = given.0.iter().map(|(key, _)| &key.value);
    let of_group = keys.clone().find(|key| key.role().is_none() && key.0 == draft.group.as_str());
    of_group.or_else(|| keys.find(|key| key.role() == Some(draft.role)))
}

/// Returns the template that a machine is cloned from.
pub fn template_of(cx: &Context<'_>, draft: &Draft) -> Option<VmId> {
    let source = cx.image.source.map(|source| source.value);
    let given = cx.image.templates.as_ref().filter(|_| source == Some(ImageSource::Template))?;
    let key = template_key(given, draft)?;
    given.numbers().find(|(written, _)| *written == key).map(|(_, vmid)| vmid.value)
}

/// Reports templates for nobody, on no host, or without a number.
fn check_templates(cx: &mut Context<'_>, given: &Templates, drafts: &[Draft]) {
    let hosts = cx.proxmox.hosts.as_ref().map(|hosts| {
        let names = hosts.0.0.iter().map(|(name, _)| name.value.clone());
        names.collect::<Vec<_>>()
    });
    let hosts = hosts.filter(|_| !cx.proxmox.unread.has("hosts"));
    for (key, template) in &given.0 {
        let is_group = drafts.iter().any(|draft| draft.group.as_str() == key.value.0);
        if key.role().is_none() && !is_group && cx.machines_known {
            let mut groups: Vec<&str> = drafts.iter().map(|draft| draft.group.as_str()).collect();
            groups.dedup();
            let message = format!("there is no role or group `{}`", ichor_spec::yaml::show(&key.value.0));
            cx.findings.push(Finding::error(Code::TEMPLATE_IDS, key.span, message).remedy(format!(
                "write `control-plane`, `worker`, or one of the groups {}",
                super::words(&groups)
            )));
        }
        if template.vmid.is_none() && !template.unread.has("vmid") {
            cx.missing(Some(key.span), "vmid", "add its number: `{vmid: 998, host: pve1}`");
        }
        if let Some((host, hosts)) = template.host.as_ref().zip(hosts.as_ref())
            && !hosts.contains(&host.value)
        {
            let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
            cx.findings.push(
                Finding::error(Code::UNKNOWN_HOST, host.span, format!("there is no host `{}`", host.value))
                    .remedy(format!("the hosts are {}", super::words(&names))),
            );
        }
    }
}

/// Returns the image that all machines of a template share.
fn template_image(cx: &mut Context<'_>, images: &Images, users: &[&Draft], at: Span) -> String {
    let mut wanted = users.iter().filter_map(|draft| Some((draft, images.of.get(&draft.name)?)));
    let Some((first, image)) = wanted.next() else { return String::new() };
    if let Some((other, _)) = wanted.find(|(_, other)| *other != image) {
        cx.findings.push(
            Finding::error(
                Code::TEMPLATE_IDS,
                at,
                format!("`{}` and `{}` share a template but need different images", first.name, other.name),
            )
            .remedy("give them the same release, extensions and architecture, or a template of its own to one group: `templates: {GROUP: VMID}`"),
        );
    }
    image.clone()
}

fn no_template(cx: &mut Context<'_>, roles: &[Role], taken: &[u32]) {
    let written = cx.image.templates.as_ref().map(|templates| templates.span);
    let at = written.or(cx.image.source.map(|source| source.span));
    let names: Vec<String> = roles.iter().map(|role| format!("`{role}`")).collect();
    let free = (998..).filter(|id| !taken.contains(id));
    let ids: Vec<String> = roles.iter().zip(free).map(|(role, id)| format!("{role}: {id}")).collect();
    cx.findings.push(
        Finding::error(Code::TEMPLATE_IDS, at, format!("there is no template for {}", names.join(" and ")))
            .remedy(format!("add the VMIDs: `templates: {{{}}}`", ids.join(", "))),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_reads_what_is_delivered() {
        use AddressDelivery::{Cidata, Cloudinit, Dhcp, Meta};
        use ImageSource::{Disk, Iso, Template};
        let maintenance = ConfigDelivery::Maintenance;
        for (sources, address, config, wanted) in [
            (&[Disk, Template, Iso][..], Cloudinit, maintenance, Platform::Nocloud),
            (&[Disk, Template, Iso], Cidata, maintenance, Platform::Nocloud),
            (&[Disk, Template, Iso], Cidata, ConfigDelivery::Cidata, Platform::Nocloud),
            (&[Disk, Template, Iso], Dhcp, ConfigDelivery::Cidata, Platform::Nocloud),
            (&[Disk, Template], Dhcp, maintenance, Platform::Nocloud),
            (&[Iso], Dhcp, maintenance, Platform::Metal),
            (&[Disk, Iso], Meta, maintenance, Platform::Metal),
        ] {
            for source in sources {
                let boot = Boot { address, config, verify: Verify::Console };
                assert_eq!(platform(*source, boot), wanted, "{source} {address} {config:?}");
            }
        }
    }
}
