//! Addresses, ports and protocols of firewall rules.

use std::net::IpAddr;

/// Protocols that rules may name; numbers from 0 to 255 are fine as well.
pub const PROTOCOLS: &str = "ip icmp igmp ggp ipencap st tcp egp igp pup udp hmp xns-idp rdp iso-tp4 dccp xtp ddp \
    idpr-cmtp ipv6 ipv6-route ipv6-frag idrp rsvp gre esp ah skip ipv6-icmp icmpv6 ipv6-nonxt ipv6-opts vmtp eigrp \
    ospf ax.25 ipip etherip encap pim ipcomp vrrp l2tp isis sctp fc mobility-header udplite mpls-in-ip hip shim6 \
    wesp rohc";

/// Names of services that stand for ports; the real server reads `/etc/services`.
const SERVICES: &str = "ftp ssh telnet smtp domain http pop3 ntp imap2 snmp ldap https imaps pop3s rsync nfs mysql \
    postgresql";

/// Whether a text can be the name of an alias.
pub fn is_alias_name(text: &str) -> bool {
    text.len() >= 2
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Says what is wrong with addresses: `+set`, an alias, addresses, networks and ranges, one family at a time.
pub fn address_fault(text: &str) -> Option<String> {
    if text.starts_with('+') {
        let name = text.trim_start_matches('+');
        let name = name.strip_prefix("dc/").or_else(|| name.strip_prefix("guest/")).unwrap_or(name);
        let name = name.strip_prefix("sdn/").unwrap_or(name);
        return (!is_alias_name(name)).then(|| format!("invalid characters in ipset name '{text}'"));
    }
    let alias = text.strip_prefix("dc/").or_else(|| text.strip_prefix("guest/")).unwrap_or(text);
    if is_alias_name(alias) {
        return None;
    }
    text.split(',').find_map(one_address_fault).map(|fault| format!("invalid IP address: {fault}"))
}

/// Says what is wrong with one address, network or range, in the words of the real server's IP library.
fn one_address_fault(text: &str) -> Option<String> {
    if let Some((from, to)) = text.split_once('-') {
        return one_address_fault(from).or_else(|| one_address_fault(to));
    }
    let (address, prefix) =
        text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    if address.parse::<IpAddr>().is_err()
        && let Some(fault) = malformed(address)
    {
        return Some(fault);
    }
    let bits = if address.contains(':') { 128 } else { 32 };
    let prefix = prefix?;
    match prefix.parse::<u32>() {
        Ok(length) if length <= bits => None,
        Ok(length) => Some(format!("Prefix length {length} is longer than IP address ({bits})")),
        Err(_) => Some(format!("Invalid prefix {prefix}")),
    }
}

/// Says what is wrong with an address; a few forms that are unusual are allowed, such as `10.0.0`.
fn malformed(address: &str) -> Option<String> {
    if address.contains(':') {
        return Some(format!("Invalid address {address}"));
    }
    if address.is_empty() || !address.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Some(format!("Invalid chars in IP {address}"));
    }
    if address.starts_with('.') {
        return Some(format!("Invalid IP {address} - starts with a dot"));
    }
    if address.ends_with('.') {
        return Some(format!("Invalid IP {address} - ends with a dot"));
    }
    let quads: Vec<&str> = address.split('.').collect();
    if quads.len() > 4 {
        return Some(format!("Invalid IP address {address}"));
    }
    if quads.iter().any(|quad| quad.is_empty()) {
        return Some(format!("Empty quad in IP address {address}"));
    }
    let wrong =
        quads.iter().find(|quad| quad.parse::<u32>().is_ok_and(|number| number > 255) || quad.len() > 9);
    wrong.map(|quad| format!("Invalid quad in IP address {address} - {quad}"))
}

/// Says what is wrong with ports: numbers, ranges and services.
pub fn port_fault(text: &str) -> Option<String> {
    let parts = text.split(',').map(str::trim);
    for part in parts {
        let (from, to) = part.split_once(':').unwrap_or((part, part));
        if let Some(fault) = [from, to].into_iter().find(|port| !is_port(port)) {
            return Some(format!("invalid port '{fault}'"));
        }
        if let (Ok(first), Ok(last)) = (from.parse::<u32>(), to.parse::<u32>())
            && first > last
        {
            return Some(format!("backwards range '{from}:{to}' not allowed"));
        }
    }
    None
}

fn is_port(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|port| port <= 65535)
        || SERVICES.split_ascii_whitespace().any(|service| service == text)
}

/// Says what is wrong with a protocol.
pub fn protocol_fault(text: &str) -> Option<String> {
    let known = text.parse::<u8>().is_ok() || PROTOCOLS.split_ascii_whitespace().any(|name| name == text);
    (!known).then(|| format!("unknown protocol '{text}'"))
}

const ICMP: &str = "any echo-reply destination-unreachable network-unreachable host-unreachable \
    protocol-unreachable port-unreachable fragmentation-needed source-route-failed network-unknown host-unknown \
    network-prohibited host-prohibited TOS-network-unreachable TOS-host-unreachable communication-prohibited \
    host-precedence-violation precedence-cutoff source-quench redirect network-redirect host-redirect \
    TOS-network-redirect TOS-host-redirect echo-request router-advertisement router-solicitation time-exceeded \
    ttl-zero-during-transit ttl-zero-during-reassembly parameter-problem ip-header-bad required-option-missing \
    timestamp-request timestamp-reply address-mask-request address-mask-reply no-route beyond-scope \
    address-unreachable failed-policy reject-route packet-too-big bad-header unknown-header-type unknown-option \
    neighbor-solicitation neighbour-solicitation neighbor-advertisement neighbour-advertisement";

/// Says what is wrong with an ICMP type.
pub fn icmp_fault(text: &str) -> Option<String> {
    let number = text.split('/').all(|part| part.parse::<u8>().is_ok());
    let known = number || ICMP.split_ascii_whitespace().any(|name| name == text);
    (!known).then(|| format!("invalid icmp-type value '{text}'"))
}
