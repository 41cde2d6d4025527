//! Property strings: lists of `key=value`, as Proxmox writes them in VM configs.
//!
//! They were validated before they come here (by the description of the endpoint), so reading is lenient.

use std::{collections::BTreeMap, fmt};

/// The parts of a property string, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// The key whose name is left out when it is written.
    main: &'static str,
    values: BTreeMap<String, String>,
}

/// How to read a property string.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The key of a part without `=`.
    pub main: &'static str,
    /// Other names of keys, and the keys.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Keys whose values are booleans: `on`, `yes` and `true` are written `1`.
    pub flags: &'static [&'static str],
}

impl Shape {
    /// A shape with a main key and nothing else.
    pub const fn plain(main: &'static str) -> Self {
        Self { main, aliases: &[], flags: &[] }
    }
}

impl Properties {
    /// Reads a property string.
    pub fn read(shape: Shape, text: &str) -> Self {
        let mut values = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((shape.main, part));
            let key = shape.aliases.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, key)| key);
            let value = if shape.flags.contains(&key) { flag_text(value) } else { value };
            values.insert(key.to_owned(), value.to_owned());
        }
        Self { main: shape.main, values }
    }

    /// Returns a value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Returns whether a boolean is set.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| flag_text(value) == "1")
    }

    /// Sets a value.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.values.insert(key.to_owned(), value.into());
    }

    /// Takes a value away.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.values.remove(key)
    }

    /// Returns keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Writes a boolean as the server does.
fn flag_text(value: &str) -> &str {
    match value.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => "1",
        "0" | "off" | "no" | "false" => "0",
        _ => value,
    }
}

impl fmt::Display for Properties {
    /// The main value first, without its name, then the others by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        if let Some(value) = self.get(self.main) {
            write!(f, "{value}")?;
            comma = ",";
        }
        for (key, value) in self.values.iter().filter(|(key, _)| *key != self.main) {
            write!(f, "{comma}{key}={value}")?;
            comma = ",";
        }
        Ok(())
    }
}

/// Reads a size such as `10G`; absent when it is none or too large to count.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let (number, shift) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    scaled(number, 1 << shift, false)
}

/// Writes a size with the largest unit that leaves no rest. Nothing is `0T`, as on the server.
pub fn size_text(bytes: u64) -> String {
    let mut number = bytes;
    for unit in ["", "K", "M", "G"] {
        if !number.is_multiple_of(1024) {
            return format!("{number}{unit}");
        }
        number /= 1024;
    }
    format!("{number}T")
}

/// Converts gibibytes with decimals to kibibytes, rounded up; absent when too large to count.
pub fn gib_to_kib(text: &str) -> Option<u64> {
    scaled(text, 1 << 20, true)
}

/// Multiplies a decimal number, exactly.
fn scaled(text: &str, factor: u64, up: bool) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.get(..fraction.len().min(18))?;
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let divisor = 10u128.pow(u32::try_from(digits.len()).ok()?);
    let part = if digits.is_empty() { 0 } else { digits.parse::<u128>().ok()? };
    let value =
        whole.parse::<u128>().ok()?.checked_mul(divisor)?.checked_add(part)?.checked_mul(factor.into())?;
    let value = if up { value.div_ceil(divisor) } else { value / divisor };
    u64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Shape = Shape { main: "file", aliases: &[("volume", "file")], flags: &["ssd", "iothread"] };

    #[test]
    fn the_main_key_comes_first_and_the_others_by_name() {
        let read = Properties::read(DISK, "ssd=yes,discard=on,,volume=data:1,serial=abc");
        assert_eq!(read.to_string(), "data:1,discard=on,serial=abc,ssd=1");
    }

    #[test]
    fn sizes_are_written_as_the_server_writes_them() {
        let texts = [0, 1 << 30, 104_858 << 10, 540_672, 4 << 20, 2 << 40, 1025].map(size_text);
        assert_eq!(texts, ["0T", "1G", "104858K", "528K", "4M", "2T", "1025"]);
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("1.5G"), Some(3 << 29));
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size("0T"), Some(0));
        assert_eq!(parse_size("x"), None);
        assert_eq!(parse_size(""), None);
        assert_eq!(gib_to_kib("0.1"), Some(104_858));
        assert_eq!(gib_to_kib("99999999999999999999999"), None);
    }
}
