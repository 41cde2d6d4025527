//! What the text of an option means, whoever wrote it.
//!
//! Proxmox keeps values that are its defaults if they were given, sorts parts and tags, and writes switches as it got
//! them. Two texts are compared by their meaning: parts by name, without those that are defaults.

use std::collections::BTreeMap;

use super::Wish;
use crate::property::{Drive, Properties};

/// What a text means.
pub type Meaning = BTreeMap<String, String>;

/// How the text of an option is built.
enum Form {
    /// One value, with its default.
    Plain(&'static str),
    /// Words in no order.
    Words,
    /// Words in order.
    List,
    /// Parts, the first of which may stand without this key; and those that are the same as nothing.
    Parts(&'static str, &'static [(&'static str, &'static str)]),
    /// A network card.
    Card,
}

fn form(option: &str) -> Form {
    match option.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "cores" | "sockets" => Form::Plain("1"),
        "numa" | "onboot" | "protection" => Form::Plain("0"),
        "bios" => Form::Plain("seabios"),
        "ostype" => Form::Plain("other"),
        "scsihw" => Form::Plain("lsi"),
        "memory" => Form::Parts("current", &[("current", "512")]),
        "tags" => Form::Words,
        "nameserver" => Form::List,
        "agent" => Form::Parts("enabled", &[("enabled", "0"), ("type", "virtio")]),
        "cpu" => Form::Parts("cputype", &[("hidden", "0"), ("cputype", "kvm64")]),
        "machine" => Form::Parts("type", &[("type", "pc")]),
        "startup" => Form::Parts("order", &[]),
        "hostpci" => Form::Parts("host", &[("pcie", "0"), ("x-vga", "0"), ("rombar", "1")]),
        "ipconfig" => Form::Parts("", &[]),
        "net" => Form::Card,
        _ => Form::Plain(""),
    }
}

/// Says what the text of an option that is no drive means; nothing is the same as its default.
pub fn of(option: &str, text: Option<&str>) -> Meaning {
    let text = text.unwrap_or_default().trim();
    match form(option) {
        Form::Plain(default) => {
            let value = if text.is_empty() { default } else { text };
            Meaning::from([(String::new(), value.to_owned())])
        }
        Form::Words => words(text).map(|word| (word.to_lowercase(), String::new())).collect(),
        Form::List => words(text).enumerate().map(|(i, word)| (format!("{i:04}"), word.to_owned())).collect(),
        Form::Parts(main, defaults) => parts(&Properties::parse(text), main, defaults),
        Form::Card => card(&Properties::parse(text)),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([';', ',', ' ']).filter(|word| !word.is_empty())
}

fn parts(properties: &Properties, main: &str, defaults: &[(&str, &str)]) -> Meaning {
    let first = properties.first().map(|first| (main, first));
    let all = first.into_iter().chain(properties.parts());
    let all = all.map(|(key, value)| (key.to_owned(), switch(key, value)));
    all.filter(|(key, value)| !defaults.contains(&(key, value))).collect()
}

/// Inside property strings many words mean yes and no. Only a switch has them: `discard=on` is none.
fn switch(key: &str, value: &str) -> String {
    const SWITCHES: [&str; 15] = [
        "backup",
        "base64",
        "enabled",
        "firewall",
        "hidden",
        "iothread",
        "link_down",
        "pcie",
        "pre-enrolled-keys",
        "replicate",
        "ro",
        "rombar",
        "shared",
        "ssd",
        "x-vga",
    ];
    match value.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" if SWITCHES.contains(&key) => "1".into(),
        "off" | "no" | "false" if SWITCHES.contains(&key) => "0".into(),
        _ => value.to_owned(),
    }
}

const MODELS: [&str; 5] = ["virtio", "e1000", "e1000e", "vmxnet3", "rtl8139"];

/// A card's model may be the key of its address, or stand by itself.
fn card(properties: &Properties) -> Meaning {
    let mut meaning = parts(properties, "model", &[("firewall", "0"), ("link_down", "0")]);
    let keyed = MODELS.iter().find_map(|model| Some((*model, meaning.remove(*model)?)));
    if let Some((model, mac)) = keyed {
        meaning.insert("model".into(), model.to_owned());
        meaning.insert("macaddr".into(), mac);
    }
    if let Some(mac) = meaning.get_mut("macaddr") {
        mac.make_ascii_lowercase();
    }
    meaning
}

/// Says what is said of a drive besides its volume, without what Proxmox finds out by itself.
pub fn of_drive(drive: &Drive) -> Meaning {
    const FOUND_OUT: [&str; 6] = ["size", "format", "file", "volume", "import-from", "ms-cert"];
    const DEFAULTS: [(&str, &str); 11] = [
        ("backup", "1"),
        ("replicate", "1"),
        ("iothread", "0"),
        ("ssd", "0"),
        ("ro", "0"),
        ("shared", "0"),
        ("discard", "ignore"),
        ("cache", "none"),
        ("media", "disk"),
        ("pre-enrolled-keys", "0"),
        ("efitype", "2m"),
    ];
    let mut meaning = parts(&drive.options, "", &DEFAULTS);
    meaning.retain(|key, _| !FOUND_OUT.contains(&key.as_str()));
    meaning
}

/// Whether only root's own login may set this: a device by its raw address. API tokens are refused, root's too.
pub fn is_root_only(wish: &Wish) -> bool {
    wish.option.starts_with("hostpci") && Properties::parse(&wish.text).get("host").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_said_differently_means_the_same() {
        for (option, one, other) in [
            ("agent", Some("1"), Some("type=virtio,enabled=yes")),
            ("agent", Some("0"), None),
            ("cores", Some("1"), None),
            ("memory", Some("2048"), Some("current=2048")),
            ("cpu", Some("host"), Some("cputype=host,hidden=0")),
            ("tags", Some("ichor;CP"), Some("cp;ichor")),
            ("machine", Some("pc"), None),
            ("startup", Some("order=1,up=5"), Some("up=5,order=1")),
            ("hostpci0", Some("host=01:00.0,pcie=1"), Some("01:00.0,pcie=on")),
            ("nameserver", Some("1.1.1.1 9.9.9.9"), Some("1.1.1.1,9.9.9.9")),
            (
                "net0",
                Some("virtio=02:00:00:00:00:0A,bridge=vmbr0"),
                Some("bridge=vmbr0,model=virtio,macaddr=02:00:00:00:00:0a,firewall=0"),
            ),
        ] {
            assert_eq!(of(option, one), of(option, other), "{option}: {one:?} and {other:?}");
        }
    }

    #[test]
    fn something_else_means_something_else() {
        for (option, one, other) in [
            ("agent", Some("1"), None),
            // A card without it is left out of what the guest is told.
            ("ipconfig0", Some("ip=dhcp"), None),
            ("cores", Some("2"), None),
            ("nameserver", Some("1.1.1.1 9.9.9.9"), Some("9.9.9.9 1.1.1.1")),
            (
                "net0",
                Some("virtio=02:00:00:00:00:0A,bridge=vmbr0"),
                Some("virtio=02:00:00:00:00:0A,bridge=vmbr0,link_down=1"),
            ),
            ("machine", Some("q35"), Some("pc-q35-9.0")),
        ] {
            assert_ne!(of(option, one), of(option, other), "{option}: {one:?} and {other:?}");
        }
    }
}
