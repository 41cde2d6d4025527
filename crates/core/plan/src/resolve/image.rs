//! Images: platform, source and boot path are one choice, so that they cannot disagree.

use std::collections::BTreeMap;

use ichor_model::{
    Code, Finding, MachineName,
    desired::{
        AddressDelivery, Boot, CloneKind, ConfigDelivery, Image, ImageSource, Platform, Role, Template,
        Verify,
    },
};
use ichor_spec::values::{Addressing, Extension};

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
    if boot.config == ConfigDelivery::Cidata
        && !matches!(boot.address, AddressDelivery::Cidata | AddressDelivery::Dhcp)
    {
        cx.findings.push(
            Finding::error(
                Code::BOOT_PATH,
                config_at,
                "a machine config on a cidata volume needs that volume",
            )
            .because(format!(
                "`boot.address: {}` uses another drive, or a platform that reads none",
                boot.address
            ))
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
    if boot.address == AddressDelivery::Meta
        && let Some(fixed) =
            cx.image.file.as_ref().map(|file| file.span).or(cx.image.schematic.as_ref().map(|id| id.span))
    {
        cx.findings.push(
            Finding::error(
                Code::BOOT_PATH,
                fixed,
                "META is baked into an image per machine, so no single image can be given",
            )
            .remedy("remove the key, or deliver addresses another way"),
        );
    }
}

fn check_verify(cx: &mut Context<'_>, boot: Boot) {
    let Some(at) = cx.boot.verify.map(|at| at.span) else { return };
    if (boot.verify == Verify::Cidata) != (boot.config == ConfigDelivery::Cidata) {
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
    check_recipe(cx);
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

fn check_recipe(cx: &mut Context<'_>) {
    let image = cx.image.clone();
    if let Some(schematic) = &image.schematic {
        let others =
            [image.extensions.as_ref().map(|at| at.span), image.kernel_args.as_ref().map(|at| at.span)];
        for other in others.into_iter().flatten() {
            cx.findings.push(
                Finding::error(Code::SCHEMATIC, other, "a schematic id already fixes this")
                    .see(schematic.span, "the schematic")
                    .remedy("keep the id, or the recipe"),
            );
        }
    }
    let source = image.source.map_or(ImageSource::Disk, |source| source.value);
    if let Some(file) = image.file.as_ref() {
        if source != ImageSource::Iso {
            cx.findings.push(
                Finding::error(Code::CONFLICTING_KEYS, file.span, "`file` names installation media")
                    .remedy("set `source: iso`, or remove `file`"),
            );
        }
        let valid = file
            .split_once(':')
            .is_some_and(|(storage, path)| !storage.is_empty() && path.starts_with("iso/"));
        if !valid {
            cx.findings.push(
                Finding::error(
                    Code::BAD_PATH,
                    file.span,
                    format!("`{}` is not a file on a storage", ichor_spec::yaml::show(file)),
                )
                .remedy("write it as Proxmox does: `local:iso/talos.iso`"),
            );
        }
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

fn image_of(cx: &Context<'_>, draft: &Draft, boot: Boot) -> Option<Image> {
    let image = &cx.image;
    let source = image.source.map_or(ImageSource::Disk, |source| source.value);
    Some(Image {
        id: String::new(),
        talos: draft.all.talos.as_ref().or(cx.cluster.talos.as_ref())?.value.clone(),
        source,
        platform: platform(source, boot.address),
        arch: cx.arch_of(&draft.all),
        secureboot: image.secureboot.is_some_and(|at| at.value),
        extensions: extensions(cx, draft),
        kernel_args: kernel_args(cx, boot),
        schematic: image.schematic.as_ref().map(|id| id.value.0.clone()),
        file: image.file.as_ref().map(|file| file.value.clone()),
        factory: image.factory.as_ref().map_or_else(|| FACTORY.into(), |url| url.value.text.clone()),
    })
}

/// Only metal reads META, only nocloud reads cloud-init and cidata volumes.
const fn platform(source: ImageSource, address: AddressDelivery) -> Platform {
    match (source, address) {
        (_, AddressDelivery::Meta) | (ImageSource::Iso, AddressDelivery::Dhcp) => Platform::Metal,
        _ => Platform::Nocloud,
    }
}

/// The cluster's extensions and those of every level of the machine, sorted: the order changes the
/// schematic's id.
fn extensions(cx: &Context<'_>, draft: &Draft) -> Vec<String> {
    let recipe = &cx.image.extensions;
    let default = recipe.is_none() && cx.image.schematic.is_none() && cx.image.file.is_none();
    let mut all: Vec<String> = default.then(|| GUEST_AGENT.to_owned()).into_iter().collect();
    let own = draft.levels(cx).flat_map(|level| values(level.extensions.as_ref()));
    all.extend(values(recipe.as_ref()).into_iter().chain(own).map(|Extension(name)| name));
    all.sort();
    all.dedup();
    all
}

/// META names its link, so the name must be known before the machine has booted once.
fn kernel_args(cx: &Context<'_>, boot: Boot) -> Vec<String> {
    const PLAIN_NAMES: &str = "net.ifnames=0";
    let mut args = values(cx.image.kernel_args.as_ref());
    if boot.address == AddressDelivery::Meta && !args.iter().any(|arg| arg == PLAIN_NAMES) {
        args.push(PLAIN_NAMES.into());
    }
    args
}

fn same_content(known: &Image, image: &Image) -> bool {
    Image { id: String::new(), ..known.clone() } == *image
}

fn distinct_id(list: &[Image], image: &Image) -> String {
    let secureboot = if image.secureboot { "-secureboot" } else { "" };
    let base = format!("{}-{}-{}{secureboot}", image.talos, image.platform, image.arch);
    let taken =
        list.iter().filter(|known| known.id == base || known.id.starts_with(&format!("{base}-"))).count();
    if taken == 0 { base } else { format!("{base}-{}", taken + 1) }
}

/// Makes the template VMs, one for each role and image in use.
pub fn templates(
    cx: &mut Context<'_>,
    images: &Images,
    machines: &[ichor_model::desired::Machine],
) -> Vec<Template> {
    if cx.image.source.is_none_or(|source| source.value != ImageSource::Template) {
        return Vec::new();
    }
    let given = cx.image.templates.clone().unwrap_or_default();
    let clone = cx.image.clone.map_or(CloneKind::Full, |clone| clone.value);
    let mut templates = Vec::new();
    for role in Role::ALL {
        let Some(machine) = machines.iter().find(|machine| machine.role == role) else { continue };
        let Some((_, vmid)) = given.0.iter().find(|(key, _)| key.value == role) else {
            no_template(cx, role);
            continue;
        };
        let image = images.of.get(&machine.name).cloned().unwrap_or_default();
        let mixed = machines.iter().find(|other| other.role == role && other.image != image);
        if let Some(other) = mixed {
            cx.findings.push(
                Finding::error(
                    Code::TEMPLATE_IDS,
                    vmid.span,
                    format!("`{}` and `{}` share a template but need different images", machine.name, other.name),
                )
                .remedy("give all machines of a role the same release, extensions and architecture, or use `source: disk`"),
            );
        }
        templates.push(Template {
            vmid: vmid.value,
            role,
            image,
            clone,
            storage: storage(cx, None).templates,
        });
    }
    templates
}

fn no_template(cx: &mut Context<'_>, role: Role) {
    let at = cx.image.source.map(|source| source.span);
    cx.findings.push(
        Finding::error(Code::TEMPLATE_IDS, at, format!("there is no template for role `{role}`"))
            .remedy(format!("add its VMID: `templates: {{{role}: 998}}`")),
    );
}
