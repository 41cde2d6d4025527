//! Text that has to have a form: names, labels, subnets, keys, certificates.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::document::url::Url;

/// Whether text is an address or a network.
pub fn is_subnet_or_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || parse_network(text).is_some()
}

/// Reads a network, whether or not host bits are set.
pub fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// Whether an address has bits set outside of its network.
pub fn has_host_bits(address: IpAddr, bits: u8) -> bool {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_shl(u32::from(bits)).unwrap_or(0) != 0,
        IpAddr::V6(v6) => v6.to_bits().checked_shl(u32::from(bits)).unwrap_or(0) != 0,
    }
}

/// Says what is wrong with the address of a server.
pub fn endpoint_problem(text: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(text) else { return Some("this is not a URL") };
    if url.host().matches(':').count() > 2 && !(url.host().contains('[') && url.host().contains(']')) {
        return Some("IPv6 addresses MUST be enclosed by square brackets");
    }
    if url.host_name().is_empty() {
        return Some("hostname must not be blank");
    }
    if !url.port().is_empty() && url.port().parse::<u16>().is_err() {
        return Some("port number must be between 0 and 65535");
    }
    None
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

/// Whether text is the name part of a Kubernetes label key, or a label value that is not empty.
fn is_label_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.chars().all(|c| is_alphanumeric(c) || matches!(c, '-' | '_' | '.'))
        && text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
}

/// Whether text is a name of DNS in lower case, as Kubernetes wants it.
pub fn is_dns_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.starts_with(known) && label.ends_with(known) && label.chars().all(|c| known(c) || c == '-')
    };
    (1..=253).contains(&text.len()) && text.split('.').all(label)
}

/// Whether text is a domain as `cluster.network.dnsDomain` takes it.
pub fn is_domain(text: &str) -> bool {
    let known = |c: char| is_alphanumeric(c) || c == '_';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.starts_with(known)
            && label.chars().all(|c| known(c) || c == '-')
    };
    let body = text.strip_suffix('.').unwrap_or(text);
    !text.is_empty() && text.len() - text.matches('.').count() <= 255 && body.split('.').all(label)
}

/// Whether text is a key of a label, annotation or taint.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_name(name),
        None => is_label_name(text),
    }
}

/// Whether text is the value of a label.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_name(text)
}

/// Whether text is a taint: `Effect`, or `value:Effect`.
pub fn is_taint(text: &str) -> bool {
    let (value, effect) = text.split_once(':').unwrap_or(("", text));
    is_label_value(value) && matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute")
}

/// Whether text is 32 bytes in base64, as keys of Wireguard are.
pub fn is_wireguard_key(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|key| key.len() == 32)
}

/// Whether text holds PEM blocks, all of them certificates if so wanted.
pub fn is_pem(text: &str, certificates: bool) -> bool {
    let mut blocks = 0;
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((kind, body)) = after.split_once("-----") else { return false };
        let Some((body, after)) = body.split_once(&format!("-----END {kind}-----")) else { return false };
        // Headers, as encrypted keys have them, come before an empty line.
        let data = body.rsplit("\n\n").next().unwrap_or(body);
        let joined: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        if STANDARD.decode(joined).is_err() || certificates && kind != "CERTIFICATE" {
            return false;
        }
        blocks += 1;
        rest = after;
    }
    blocks > 0
}

/// Whether text is made of letters, digits and hyphens, and underscores if they are allowed.
pub fn is_plain_name(text: &str, underscores: bool) -> bool {
    text.chars().all(|c| is_alphanumeric(c) || c == '-' || underscores && c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints() {
        for key in ["a", "example.com/tier", "a.b_c-d"] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["", "/a", "a/", "a/b/c", "-a", "Example.com/a", "a b", &"a".repeat(64)] {
            assert!(!is_label_key(key), "{key}");
        }
        for taint in ["NoSchedule", ":NoExecute", "gpu:PreferNoSchedule"] {
            assert!(is_taint(taint), "{taint}");
        }
        for taint in ["", "no", "a:b:NoSchedule", "a b:NoSchedule"] {
            assert!(!is_taint(taint), "{taint}");
        }
    }

    #[test]
    fn pem_blocks() {
        let certificate = "-----BEGIN CERTIFICATE-----\nYWJj\nZGVm\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4\n\nYWJj\n-----END EC PRIVATE KEY-----\n";
        assert!(is_pem(certificate, true) && is_pem(&certificate.repeat(2), true));
        assert!(is_pem(key, false) && !is_pem(key, true));
        for text in
            ["", "YWJj", "-----BEGIN CERTIFICATE-----\nYWJ\n-----END CERTIFICATE-----", &certificate[..40]]
        {
            assert!(!is_pem(text, true), "{text}");
        }
    }

    #[test]
    fn endpoints_and_networks() {
        for endpoint in ["https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://lab.example"] {
            assert_eq!(endpoint_problem(endpoint), None, "{endpoint}");
        }
        for endpoint in ["", "https://", "https:///x", "https://fd00::1:6443", "https://a:99999"] {
            assert!(endpoint_problem(endpoint).is_some(), "{endpoint}");
        }
        assert!(is_subnet_or_address("10.0.0.0/8") && is_subnet_or_address("fd00::1"));
        assert!(!is_subnet_or_address("10.0.0.0/33") && !is_subnet_or_address("lab"));
        assert!(has_host_bits("10.0.0.1".parse().expect("address"), 24));
        assert!(!has_host_bits("10.0.0.0".parse().expect("address"), 24));
        assert!(!has_host_bits("10.0.0.1".parse().expect("address"), 32));
    }
}
