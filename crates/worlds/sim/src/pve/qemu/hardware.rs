//! From config to machine: what a VM needs to start, and what its guest then sees.

use ichor_model::VmId;

use super::{
    boot, cloudinit,
    config::Config,
    disks, load, load_mut,
    network::{Net, is_net},
    property::{Properties, Shape},
};
use crate::{
    ground::{Content, DiscKind, HardDisk, Hardware, Media, NetworkCard, OpticalDisc},
    pve::{
        ApiError, Datacentre, Worker,
        drive::{Drive, numbered},
        storage::volume::{ContentType, VolumeId},
    },
};

/// Checks what QEMU would stumble over, in the server's order.
pub fn check(dc: &Datacentre, host: &str, vmid: VmId) -> Result<(), ApiError> {
    let config = &load(dc, host, vmid)?.config;
    check_snippets(dc, host, config)?;
    for drive in config.drives() {
        check_volume(dc, host, &drive)?;
    }
    check_machine(dc, host, config)?;
    check_processors(dc, host, config)?;
    check_devices(dc, host, config)?;
    for (_, value) in config.current.iter().filter(|(key, _)| is_net(key)) {
        check_bridge(dc, host, &Net::read(value))?;
    }
    Ok(())
}

fn check_snippets(dc: &Datacentre, host: &str, config: &Config) -> Result<(), ApiError> {
    let has_drive = super::config::cloud_init_slot(&config.current, None).is_some();
    let Some(custom) = config.get("cicustom").filter(|_| has_drive) else { return Ok(()) };
    for (_, volume) in Properties::read(Shape::plain(""), custom).iter() {
        let found = dc.storage.look_up(volume).map_err(ApiError::server)?;
        if found.name.kind != ContentType::Snippets {
            return Err(ApiError::server(format!("{volume} is not in the snippets directory")));
        }
        if dc.storage.get(host, volume).is_none() {
            return Err(ApiError::server(format!("volume '{volume}' does not exist")));
        }
    }
    Ok(())
}

fn check_volume(dc: &Datacentre, host: &str, drive: &Drive) -> Result<(), ApiError> {
    let file = drive.file();
    let Some(id) = VolumeId::read(file) else { return Ok(()) };
    dc.storage.activate(&id.storage, host).map_err(ApiError::server)?;
    if drive.is_cloud_init() || dc.storage.get(host, file).is_some() {
        return Ok(());
    }
    Err(ApiError::server(format!("volume '{file}' does not exist")))
}

fn check_machine(dc: &Datacentre, host: &str, config: &Config) -> Result<(), ApiError> {
    let machine = disks::machine(config.get("machine"));
    let Some(kind) = machine.get("type") else { return Ok(()) };
    let installed = dc.hosts.get(host).map_or("10.0.2".into(), |host| host.qemu.clone());
    let version = |text: &str| {
        let mut numbers = text.split(['.', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    };
    let Some(wanted) = kind.rsplit('-').next().filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))
    else {
        return Ok(());
    };
    if version(wanted) > version(&installed) {
        return Err(ApiError::server(format!(
            "Installed QEMU version '{installed}' is too old to run machine type '{kind}', please upgrade node \
             '{host}'"
        )));
    }
    Ok(())
}

fn check_processors(dc: &Datacentre, host: &str, config: &Config) -> Result<(), ApiError> {
    let wanted = config.number("sockets").unwrap_or(1).saturating_mul(config.number("cores").unwrap_or(1));
    let allowed = dc.hosts.get(host).map_or(u64::MAX, |host| u64::from(host.cpus));
    if wanted > allowed {
        return Err(ApiError::server(format!("MAX {allowed} vcpus allowed per VM on this node")));
    }
    Ok(())
}

fn check_devices(dc: &Datacentre, host: &str, config: &Config) -> Result<(), ApiError> {
    for (key, value) in &config.current {
        let (kind, title) = match numbered(key).map(|(name, _)| name) {
            Some("hostpci") => ("pci", "PCI device"),
            Some("usb") => ("usb", "USB device"),
            _ => continue,
        };
        let device = Properties::read(Shape::plain("host"), value);
        if let Some(name) = device.get("mapping")
            && !dc.has_mapping(kind, name, host)
        {
            return Err(ApiError::server(format!("{title} mapping not found for '{name}'")));
        }
    }
    Ok(())
}

/// Refuses a card whose bridge the host does not have.
pub fn check_bridge(dc: &Datacentre, host: &str, net: &Net) -> Result<(), ApiError> {
    let Some(bridge) = net.get("bridge") else { return Ok(()) };
    if dc.has_bridge(host, bridge) {
        return Ok(());
    }
    Err(ApiError::server(format!("bridge '{bridge}' does not exist")))
}

/// Makes the drive of cloud-init anew from the config.
pub fn regenerate_cloud_init(
    dc: &mut Datacentre,
    host: &str,
    vmid: VmId,
    worker: &mut Worker,
) -> Result<(), ApiError> {
    let vm = load_mut(dc, host, vmid)?;
    if super::config::cloud_init_slot(&vm.config.current, None).is_some() {
        vm.config.cloud_init.clear();
        worker.say("generating cloud-init ISO");
    }
    Ok(())
}

/// Returns what the guest of a VM sees.
pub fn of(dc: &Datacentre, media: &Media, host: &str, vmid: VmId) -> Result<Hardware, ApiError> {
    let config = &load(dc, host, vmid)?.config;
    let smbios = Properties::read(
        Shape { main: "", aliases: &[], flags: &["base64"] },
        config.get("smbios1").unwrap_or_default(),
    );
    let order = boot::boot_order(&config.current);
    let mut drives = config.drives();
    drives.sort_by_key(|drive| order.iter().position(|slot| *slot == drive.slot).unwrap_or(usize::MAX));
    let cores = config.number("sockets").unwrap_or(1).saturating_mul(config.number("cores").unwrap_or(1));
    let cpus = config.number("vcpus").filter(|count| *count > 0).unwrap_or(cores);
    let cpu = Properties::read(Shape::plain("cputype"), config.get("cpu").unwrap_or("kvm64"));
    Ok(Hardware {
        vmid,
        host: host.to_owned(),
        uuid: smbios.get("uuid").unwrap_or_default().to_lowercase(),
        serial: decoded(smbios.get("serial").unwrap_or_default(), smbios.flag("base64")),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        cpu_type: cpu.get("cputype").unwrap_or("kvm64").to_owned(),
        memory_mib: config.memory_mib(),
        uefi: config.get("bios") == Some("ovmf"),
        tpm: config.get("tpmstate0").is_some(),
        agent: super::agent::is_enabled(config),
        serial_console: config
            .current
            .keys()
            .any(|key| numbered(key).is_some_and(|(name, _)| name == "serial")),
        disks: drives.iter().filter_map(|drive| hard_disk(dc, host, drive)).collect(),
        discs: drives.iter().filter_map(|drive| optical_disc(dc, media, host, vmid, config, drive)).collect(),
        cards: cards(config),
        boot_order: order,
    })
}

fn hard_disk(dc: &Datacentre, host: &str, drive: &Drive) -> Option<HardDisk> {
    if drive.is_disc() || ["efidisk0", "tpmstate0"].contains(&drive.slot.as_str()) {
        return None;
    }
    let volume = dc.storage.get(host, drive.file())?;
    Some(HardDisk {
        slot: drive.slot.clone(),
        serial: drive.get("serial").map(cloudinit::unescaped),
        size: volume.size,
        content: volume.content,
    })
}

fn optical_disc(
    dc: &Datacentre,
    media: &Media,
    host: &str,
    vmid: VmId,
    config: &Config,
    drive: &Drive,
) -> Option<OpticalDisc> {
    if !drive.is_disc() {
        return None;
    }
    let kind = if drive.is_cloud_init() {
        let files = cloud_init_files(dc, media, host, vmid, config);
        DiscKind::CloudInit { user_data: files.user, meta_data: files.meta, network_config: files.network }
    } else {
        DiscKind::File(dc.storage.get(host, drive.file())?.content)
    };
    Some(OpticalDisc { slot: drive.slot.clone(), kind })
}

/// Returns what is on the drive of cloud-init, snippets in place of generated files.
fn cloud_init_files(
    dc: &Datacentre,
    media: &Media,
    host: &str,
    vmid: VmId,
    config: &Config,
) -> cloudinit::Files {
    let custom = Properties::read(Shape::plain(""), config.get("cicustom").unwrap_or_default());
    let snippet = |key: &str| {
        let volume = dc.storage.get(host, custom.get(key)?)?;
        text_of(media.get(volume.content))
    };
    let custom =
        cloudinit::Custom { user: snippet("user"), network: snippet("network"), meta: snippet("meta") };
    let resolver = dc.hosts.get(host).map(|host| host.dns.clone()).unwrap_or_default();
    cloudinit::files(&config.current, vmid.number(), &resolver, custom)
}

fn cards(config: &Config) -> Vec<NetworkCard> {
    (0..32)
        .filter_map(|number| {
            let slot = format!("net{number}");
            let net = Net::read(config.get(&slot)?);
            Some(NetworkCard {
                slot,
                mac: net.mac().unwrap_or_default().to_lowercase(),
                bridge: net.get("bridge").unwrap_or_default().to_owned(),
                vlan: net.get("tag").and_then(|tag| tag.parse().ok()),
                link_down: net.flag("link_down"),
            })
        })
        .collect()
}

/// Decodes a value of the SMBIOS.
fn decoded(text: &str, base64: bool) -> String {
    if !base64 {
        return text.to_owned();
    }
    let digits: Vec<u32> = text
        .bytes()
        .filter_map(|byte| {
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
                .iter()
                .position(|c| *c == byte)
        })
        .filter_map(|digit| u32::try_from(digit).ok())
        .collect();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len().max(1)]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the text of a small file.
fn text_of(content: &Content) -> Option<String> {
    match content {
        Content::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Content::Blank | Content::Image(_) | Content::Installed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_decoded() {
        assert_eq!(decoded("Y3AtMQ==", true), "cp-1");
        assert_eq!(decoded("SWNob3I=", true), "Ichor");
        assert_eq!(decoded("abc", false), "abc");
    }
}
