//! Single values by type: what text each of them takes, and the form in which Talos writes it.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::GeneralPurpose};

use super::{
    Value,
    quantity::{bytes_text, duration_text, parse_bytes, parse_duration},
    raw::Style,
    scalar::{Resolved, old_bool, resolve},
};
use crate::schema::{Enum, Type};

/// Whether Talos takes a value for "not set".
pub fn is_zero(kind: Type, value: &Value) -> bool {
    match (kind, value) {
        (Type::Bool, Value::Bool(switch)) => !switch,
        (_, Value::Int(0) | Value::Octal(0)) => true,
        (Type::Enum(words), Value::Text(text)) => words.zero == Some(text),
        (Type::Table, Value::Text(text)) => text == "unspec",
        (Type::Duration, Value::Text(text)) => text == "0s",
        (Type::DiskSize, Value::Text(text)) => text == "0 B",
        (Type::Base64 | Type::Mac, _) => false,
        (_, Value::Text(text)) => text.is_empty(),
        (Type::Free | Type::Struct(_), Value::Map(map)) => map.is_empty(),
        _ => false,
    }
}

/// Says what a type takes, for messages.
pub fn wanted(kind: Type) -> &'static str {
    match kind {
        Type::Text | Type::Manifest => "text",
        Type::Argument => "text or a list of texts",
        Type::Expression => "a CEL expression",
        Type::Bool => "`true` or `false`",
        Type::Int(..) => "a whole number",
        Type::Octal => "permissions in octal, as in `0o644`",
        Type::Duration => "a duration with units, as in `1m30s`",
        Type::Url(_) => "a URL",
        Type::Enum(_) => "one of its words",
        Type::Table => "a routing table: `main`, `local`, `default` or a number from 1 to 252",
        Type::Address => "an IP address",
        Type::Prefix => "an address with its prefix length, as in `10.0.0.0/24`",
        Type::AddressPort => "an address and port, as in `10.0.0.1:51820`",
        Type::Mac => "bytes in hex, as in `bc:24:11:00:00:11`",
        Type::ByteSize | Type::DiskSize => "a size, as in `10GiB`",
        Type::Size => "a size, as in `10GiB`, or a percentage, as in `50%`",
        Type::SizeMatcher => "a comparison with a size, as in `>= 100GB`",
        Type::Base64 => "base64",
        Type::PortRange => "a port or a range, as in `8000-8010`",
        Type::List(_) => "a list",
        Type::Free | Type::Map(_) | Type::Struct(_) | Type::Pem(_) => "a map",
    }
}

/// Lists words in backticks.
pub fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Reads a switch.
pub fn read_bool(text: &str, style: Style) -> Option<bool> {
    let resolved = if style == Style::Quoted { Resolved::Text } else { resolve(text) };
    match resolved {
        Resolved::Bool(switch) => Some(switch),
        _ => old_bool(text),
    }
}

/// Reads a whole number, which may not be quoted.
pub fn read_int(text: &str, style: Style) -> Option<i128> {
    if style == Style::Quoted {
        return None;
    }
    match resolve(text) {
        Resolved::Int(int) => Some(int),
        // `1500.0` is 1500; Talos before 1.12 would also cut `1.5` to 1, which nobody means.
        #[allow(clippy::cast_possible_truncation)]
        Resolved::Float(float) if float.fract() == 0.0 && float.abs() < 1e18 => Some(float as i128),
        _ => None,
    }
}

/// Reads a duration.
pub fn read_duration(text: &str) -> Option<String> {
    parse_duration(text).map(duration_text)
}

/// Reads one of several words.
pub fn read_enum(text: &str, words: &Enum) -> Option<&'static str> {
    words.find(text)
}

/// Reads a routing table.
pub fn read_table(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let known = matches!(lower.as_str(), "unspec" | "default" | "main" | "local");
    let number =
        lower.parse::<u32>().is_ok_and(|table| (1..=252).contains(&table) && table.to_string() == lower);
    (known || number).then_some(lower)
}

/// Reads an IP address; an empty one is "not set".
pub fn read_address(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    let (address, zone) = text.split_once('%').map_or((text, None), |(a, zone)| (a, Some(zone)));
    let address: IpAddr = address.parse().ok()?;
    match (address, zone) {
        (address, None) => Some(address.to_string()),
        (IpAddr::V6(address), Some(zone)) if !zone.is_empty() => Some(format!("{address}%{zone}")),
        _ => None,
    }
}

/// Reads an address with its prefix length.
pub fn read_prefix(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    let (address, bits) = text.rsplit_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let length: u8 = bits.parse().ok()?;
    let plain = length.to_string() == bits;
    (plain && length <= if address.is_ipv4() { 32 } else { 128 }).then(|| format!("{address}/{length}"))
}

/// Reads an address and port.
pub fn read_address_port(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    let address: std::net::SocketAddr = text.parse().ok()?;
    Some(address.to_string())
}

/// Reads bytes in hex, with or without colons.
pub fn read_mac(text: &str) -> Option<String> {
    let hex = text.replace(':', "");
    if !hex.len().is_multiple_of(2) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let lower = hex.to_ascii_lowercase();
    let pairs: Vec<&str> = (0..lower.len()).step_by(2).map(|i| &lower[i..i + 2]).collect();
    Some(pairs.join(":"))
}

/// Reads a size, which is kept as written, or a percentage where one is allowed.
pub fn read_size(text: &str, percent: bool) -> Option<String> {
    let number = text.strip_prefix('-').unwrap_or(text);
    let good = match number.strip_suffix('%') {
        Some(part) => percent && part.parse::<f64>().is_ok_and(|value| (0.0..=100.0).contains(&value)),
        None => text.is_empty() || parse_bytes(number).is_some(),
    };
    good.then(|| text.to_owned())
}

/// Returns a size in the form in which Talos writes it.
pub fn disk_size(bytes: u64) -> Value {
    bytes_text(bytes).map_or(Value::Int(bytes.into()), Value::Text)
}

/// Reads a comparison with a size.
pub fn read_size_matcher(text: &str) -> Option<String> {
    let condition = text.trim();
    let size =
        [">=", "<=", ">", "<", "=="].iter().find_map(|op| condition.strip_prefix(op)).unwrap_or(condition);
    parse_bytes(size.trim()).map(|_| condition.to_owned())
}

/// Bits after the last byte are ignored, as Go does.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    base64::engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Reads base64, over several lines if need be.
pub fn read_base64(text: &str) -> Option<String> {
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    BASE64.decode(joined).ok().map(|bytes| BASE64.encode(bytes))
}

/// Reads a port or a range of ports.
pub fn read_port_range(text: &str, style: Style) -> Option<Value> {
    if let Some(port) = read_int(text, style).filter(|port| (0..=65535).contains(port)) {
        return Some(Value::Int(port));
    }
    let (low, high) = text.split_once('-')?;
    let port = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (low, high) = (port(low)?, port(high)?);
    Some(if low == high { Value::Int(low.into()) } else { Value::Text(format!("{low}-{high}")) })
}
