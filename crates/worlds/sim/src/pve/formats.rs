//! Named formats of values, with the texts of the real server.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::pve::{Datacentre, access};

mod cpu;
mod firewall;

pub use self::cpu::models as cpu_models;

/// Checks a scalar format. Formats that nobody knows are not checked. The error ends with a line break.
pub fn check_scalar(format: &str, text: &str, dc: &Datacentre) -> Result<(), String> {
    let fault = match format {
        "pve-configid" => (!is_config_id(text)).then(|| format!("invalid configuration ID '{text}'")),
        "pve-vmid" => (!is_vmid(text)).then(|| "value does not look like a valid VM ID".into()),
        "pve-node" => (!is_host_name(text)).then(|| "value does not look like a valid node name".into()),
        "dns-name" => (!is_dns_name(text)).then(|| "value does not look like a valid DNS name".into()),
        "mac-addr" => {
            (!is_unicast_mac(text)).then(|| "value does not look like a valid unicast MAC address".into())
        }
        "mac-prefix" => {
            (!is_mac_prefix(text)).then(|| "value is not a valid unicast MAC address prefix".into())
        }
        "ip" => text.parse::<IpAddr>().is_err().then(|| "value does not look like a valid IP address".into()),
        "address" => (text.parse::<IpAddr>().is_err() && !is_dns_name(text))
            .then(|| format!("value does not look like a valid address: {text}")),
        "ipv4" => {
            text.parse::<Ipv4Addr>().is_err().then(|| "value does not look like a valid IPv4 address".into())
        }
        "ipv6" => {
            text.parse::<Ipv6Addr>().is_err().then(|| "value does not look like a valid IPv6 address".into())
        }
        "ipv4mask" => (!is_netmask(text)).then(|| "value does not look like a valid IP netmask".into()),
        "CIDR" => (!is_cidr4(text) && !is_cidr6(text))
            .then(|| "value does not look like a valid CIDR network".into()),
        "CIDRv4" => (!is_cidr4(text)).then(|| "value does not look like a valid IPv4 network".into()),
        "CIDRv6" => (!is_cidr6(text)).then(|| "value does not look like a valid IPv6 network".into()),
        "IPorCIDR" => (text.parse::<IpAddr>().is_err() && !is_cidr4(text) && !is_cidr6(text))
            .then(|| "value does not look like a valid IP address or CIDR network".into()),
        "IPorCIDRorAlias" => (!firewall::is_alias_name(text)
            && text.parse::<IpAddr>().is_err()
            && !is_cidr4(text)
            && !is_cidr6(text))
        .then(|| "value does not look like a valid IP address or CIDR network".into()),
        "pve-ipv4-config" => (!matches!(text, "dhcp" | "manual") && !is_cidr4(text))
            .then(|| "value does not look like a valid ipv4 network configuration".into()),
        "pve-ipv6-config" => (!matches!(text, "auto" | "dhcp" | "manual") && !is_cidr6(text))
            .then(|| "value does not look like a valid ipv6 network configuration".into()),
        "email" => (!is_email(text)).then(|| "value does not look like a valid email address".into()),
        "email-or-username" => (!is_email(text) && text.contains(char::is_whitespace))
            .then(|| "value does not look like a valid email address or user name".into()),
        "disk-size" => {
            (!is_disk_size(text)).then(|| format!("value does not look like a valid disk size: {text}"))
        }
        "urlencoded" => (!is_urlencoded(text)).then(|| format!("invalid urlencoded string: {text}")),
        _ => return check_own_scalar(format, text, dc),
    };
    fault.map_or(Ok(()), |text| Err(text + "\n"))
}

/// Checks the formats that are Proxmox's own.
fn check_own_scalar(format: &str, text: &str, dc: &Datacentre) -> Result<(), String> {
    let fault = match format {
        "pve-bridge-id" => (!is_bridge(text)).then(|| format!("invalid bridge ID '{text}'")),
        "pve-iface" => (!is_interface(text)).then(|| format!("invalid network interface name '{text}'")),
        "pve-tag" => (!is_tag(text)).then(|| "invalid characters in tag".into()),
        "pve-storage-id" => storage_id_fault(text),
        "pve-storage-content" => {
            (!STORAGE_CONTENT.contains(&text)).then(|| format!("invalid content type '{text}'"))
        }
        "pve-storage-path" => {
            (!is_absolute_path(text)).then(|| "value does not look like a valid absolute path".into())
        }
        "pve-storage-server" => (text.parse::<IpAddr>().is_err() && !is_dns_name(text))
            .then(|| "value does not look like a valid server name or IP address".into()),
        "pve-storage-vgname" => {
            (!is_volume_group(text)).then(|| "lvm volume group name contains illegal characters".into())
        }
        "pve-volume-id" => (!is_volume_id(text)).then(|| format!("unable to parse volume ID '{text}'")),
        "pve-volume-id-or-qm-path" => (!matches!(text, "none" | "cdrom") && !is_volume_or_path(text))
            .then(|| format!("unable to parse volume ID '{text}'")),
        "pve-volume-id-or-absolute-path" => (!text.starts_with('/') && !is_volume_id(text))
            .then(|| format!("unable to parse volume ID '{text}'")),
        "pve-qm-bootdev" => (!is_boot_device(text)).then(|| format!("invalid boot device '{text}'")),
        "pve-qm-bootdisk" => (!is_disk(text)).then(|| format!("invalid boot disk '{text}'")),
        "pve-hotplug-features" => hotplug_fault(text),
        "pve-startup-order" => (!is_startup(text)).then(|| "unable to parse startup options".into()),
        "pve-cpuset" => (!is_cpuset(text)).then(|| "value does not look like a valid cpuset".into()),
        "pve-phys-bits" => (text != "host" && !text.parse::<u8>().is_ok_and(|bits| (8..=64).contains(&bits)))
            .then(|| format!("invalid number of bits '{text}'")),
        "pve-priv" => (!access::all_privileges(dc.release).contains(text))
            .then(|| format!("invalid privilege '{text}'")),
        "pve-roleid" => {
            (!is_plain_name(text)).then(|| format!("role name '{text}' contains invalid characters"))
        }
        "pve-groupid" => {
            (!is_plain_name(text)).then(|| format!("group name '{text}' contains invalid characters"))
        }
        "pve-realm" => (!is_realm(text)).then(|| format!("value does not look like a valid realm: {text}")),
        "pve-userid" => user_id_fault(text),
        "pve-tokenid" => {
            (!is_token_id(text)).then(|| format!("value '{text}' does not look like a valid token ID"))
        }
        "pve-poolid" => pool_fault(text),
        "pve-day-of-week" => (!["mon", "tue", "wed", "thu", "fri", "sat", "sun"].contains(&text))
            .then(|| format!("value '{text}' is not a valid day")),
        "pve-calendar-event" => {
            text.trim().is_empty().then(|| "unable to parse calendar event - event is empty".into())
        }
        "pve-task-status-type" => (!matches!(text, "ok" | "error" | "warning" | "unknown"))
            .then(|| format!("invalid status '{text}'")),
        "pve-ha-resource-or-vm-id" => (!is_ha_resource(text) && !is_vmid(text))
            .then(|| format!("invalid HA resource ID or VM ID '{text}'")),
        "pve-ha-resource-id" => (!is_ha_resource(text))
            .then(|| format!("value does not look like a valid ha resource id: {text}")),
        "pve-ha-node" | "pve-ha-group-node" => {
            (!is_host_with_priority(text)).then(|| "value does not look like a valid ha group node".into())
        }
        "pve-ha-group-id" => (!is_config_id(text)).then(|| format!("invalid HA group ID '{text}'")),
        "pve-fw-addr-spec" => firewall::address_fault(text),
        "pve-fw-sport-spec" | "pve-fw-dport-spec" => firewall::port_fault(text),
        "pve-fw-protocol-spec" => firewall::protocol_fault(text),
        "pve-fw-icmp-type-spec" => firewall::icmp_fault(text),
        "storage-pair" => pair_fault(text, |part| storage_id_fault(part).is_none()),
        "bridge-pair" => pair_fault(text, is_bridge),
        "pve-replication-job-id" => {
            (!is_replication_job(text)).then(|| format!("invalid replication job id '{text}'"))
        }
        _ => None,
    };
    fault.map_or(Ok(()), |text| Err(text + "\n"))
}

/// Checks what belongs together in a property string.
pub fn check_whole(format: &str, found: &BTreeMap<String, String>) -> Result<(), String> {
    match format {
        "pve-vm-cpu-conf" => cpu::check(found),
        "pve-qm-ipconfig" => ip_config(found),
        _ => Ok(()),
    }
}

/// A gateway needs an address of its family.
fn ip_config(found: &BTreeMap<String, String>) -> Result<(), String> {
    let given = |key: &str| found.get(key).map(String::as_str);
    if given("gw").is_some() && !given("ip").is_some_and(is_cidr4) {
        return Err("gateway specified without specifying an IP address\n".into());
    }
    if given("gw6").is_some() && !given("ip6").is_some_and(is_cidr6) {
        return Err("IPv6 gateway specified without specifying an IP address\n".into());
    }
    Ok(())
}

const STORAGE_CONTENT: [&str; 8] =
    ["images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"];

/// Whether a text is a name in configuration files: a letter and at least one more sign.
pub fn is_config_id(text: &str) -> bool {
    text.len() >= 2
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Whether a text is a VMID.
pub fn is_vmid(text: &str) -> bool {
    (3..=9).contains(&text.len()) && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a text is a host name without a domain.
pub fn is_host_name(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Whether a text is a DNS name.
pub fn is_dns_name(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(is_host_name)
}

/// Whether a text is a MAC address that a card may have.
pub fn is_unicast_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6 && parts.iter().all(|part| is_hex_byte(part)) && is_even(parts[0])
}

fn is_hex_byte(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_even(part: &str) -> bool {
    u8::from_str_radix(part, 16).is_ok_and(|byte| byte & 1 == 0)
}

/// A beginning of MAC addresses has one to five bytes; a half one may follow.
fn is_mac_prefix(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let (last, whole) = parts.split_last().expect("splitting gives at least one part");
    let whole_bytes = whole.iter().all(|part| is_hex_byte(part));
    let last_fits = last.is_empty() && whole.len() >= 3
        || last.len() == 1 && last.bytes().all(|byte| byte.is_ascii_hexdigit())
        || is_hex_byte(last);
    (3..=6).contains(&parts.len()) && whole_bytes && last_fits && is_even(parts[0])
}

fn is_netmask(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok_and(|mask| {
        let bits = u32::from(mask);
        bits.leading_ones() + bits.trailing_zeros() == 32
    })
}

/// Whether a text is an IPv4 network or an address in one; very short prefixes are refused.
pub fn is_cidr4(text: &str) -> bool {
    cidr::<Ipv4Addr>(text).is_some_and(|prefix| prefix > 7 && prefix <= 32)
}

/// Whether a text is an IPv6 network or an address in one; very short prefixes are refused.
pub fn is_cidr6(text: &str) -> bool {
    cidr::<Ipv6Addr>(text).is_some_and(|prefix| prefix > 7 && prefix <= 128)
}

fn cidr<A: std::str::FromStr>(text: &str) -> Option<u32> {
    let (address, prefix) = text.split_once('/')?;
    address.parse::<A>().ok()?;
    prefix.parse().ok()
}

fn is_email(text: &str) -> bool {
    let Some((name, domain)) = text.rsplit_once('@') else { return false };
    !name.is_empty() && !name.contains(char::is_whitespace) && is_dns_name(domain)
}

/// Whether a text is a size: a number and a unit.
pub fn is_disk_size(text: &str) -> bool {
    let text = text
        .strip_suffix("iB")
        .map_or(text, |rest| if rest.ends_with(['K', 'M', 'G', 'T']) { rest } else { "x" });
    let number = text.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(text);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(part)
}

fn is_urlencoded(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-%_.!~*'()".contains(c))
}

fn is_bridge(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}

fn is_interface(text: &str) -> bool {
    (2..=20).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.:-".contains(c))
}

fn is_tag(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-+.".contains(c))
}

fn storage_id_fault(text: &str) -> Option<String> {
    if text.chars().count() < 2 {
        return Some(format!("storage ID '{text}' cannot be shorter than 2 characters"));
    }
    let valid = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (!valid).then(|| format!("storage ID '{text}' contains illegal characters"))
}

fn is_absolute_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(['\n', '\0'])
}

fn is_volume_group(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || "._+".contains(c))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c))
}

/// Whether a text is `<storage>:<volume>`.
pub fn is_volume_id(text: &str) -> bool {
    let Some((storage, name)) = text.split_once(':') else { return false };
    storage_id_fault(storage).is_none() && !name.is_empty()
}

fn is_volume_or_path(text: &str) -> bool {
    text.starts_with('/') || is_volume_id(text)
}

fn numbered(text: &str, stems: &[(&str, u32)]) -> bool {
    stems.iter().any(|(stem, count)| {
        text.strip_prefix(stem).is_some_and(|digits| {
            (digits == "0" || !digits.starts_with('0')) && digits.parse::<u32>().is_ok_and(|n| n < *count)
        })
    })
}

fn is_disk(text: &str) -> bool {
    numbered(text, &[("ide", 4), ("sata", 6), ("scsi", 31), ("virtio", 16)])
}

fn is_boot_device(text: &str) -> bool {
    is_disk(text) || numbered(text, &[("net", 32), ("usb", 14), ("hostpci", 16)])
}

fn hotplug_fault(text: &str) -> Option<String> {
    if matches!(text, "0" | "1") {
        return None;
    }
    let known = ["network", "disk", "cpu", "memory", "usb", "cloudinit"];
    let parts = crate::pve::params::split_list(text);
    let unknown = parts.iter().any(|part| !known.contains(&part.as_str()));
    unknown.then(|| "unable to parse hotplug option".into())
}

fn is_startup(text: &str) -> bool {
    text.split(',').all(|part| {
        let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match part.split_once('=') {
            Some(("order" | "up" | "down", digits)) => number(digits),
            Some(_) => false,
            None => number(part),
        }
    })
}

fn is_cpuset(text: &str) -> bool {
    text.split(',').all(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        matches!((from.parse::<u32>(), to.parse::<u32>()), (Ok(from), Ok(to)) if from <= to)
    })
}

fn is_plain_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
}

fn is_realm(text: &str) -> bool {
    text.len() >= 2 && text.starts_with(|c: char| c.is_ascii_alphabetic()) && is_plain_name(text)
}

/// Says what is wrong with a user id.
pub fn user_id_fault(text: &str) -> Option<String> {
    let length = text.chars().count();
    if length < 3 {
        return Some(format!("user name '{text}' is too short"));
    }
    if length > 64 {
        return Some(format!("user name '{text}' is too long ({length} > 64)"));
    }
    let valid = text.rsplit_once('@').is_some_and(|(name, realm)| {
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || ":/".contains(c)) && is_realm(realm)
    });
    (!valid).then(|| format!("value '{text}' does not look like a valid user name"))
}

fn is_token_id(text: &str) -> bool {
    text.split_once('!').is_some_and(|(user, token)| user_id_fault(user).is_none() && is_realm(token))
}

fn pool_fault(text: &str) -> Option<String> {
    let levels: Vec<&str> = text.split('/').collect();
    if levels.len() > 3 {
        return Some(format!("pool name '{text}' nested too deeply (max levels = 3)"));
    }
    (!levels.iter().all(|level| is_plain_name(level)))
        .then(|| format!("pool name '{text}' contains invalid characters"))
}

fn is_ha_resource(text: &str) -> bool {
    text.split_once(':').is_some_and(|(kind, name)| matches!(kind, "vm" | "ct") && is_vmid(name))
}

fn is_host_with_priority(text: &str) -> bool {
    let (host, priority) = text.split_once(':').unwrap_or((text, "0"));
    is_host_name(host) && priority.parse::<u32>().is_ok()
}

fn pair_fault(text: &str, valid: impl Fn(&str) -> bool) -> Option<String> {
    let fits = text == "1"
        || match text.split_once(':') {
            Some((from, to)) => valid(from) && valid(to),
            None => valid(text),
        };
    (!fits).then(|| format!("invalid storage id '{text}'"))
}

fn is_replication_job(text: &str) -> bool {
    text.split_once('-').is_some_and(|(vmid, number)| is_vmid(vmid) && number.parse::<u32>().is_ok())
}
