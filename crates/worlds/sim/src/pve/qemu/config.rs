//! The config of a VM: what its file says, what is pending, and its snapshots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use crate::pve::drive::{Drive, is_slot, is_unused, slots};

/// Options and their values, as texts.
pub type Section = BTreeMap<String, String>;

/// How many unused volumes a config can name.
const MOST_UNUSED: u32 = 256;

/// Options that are whole numbers.
const INTEGERS: [&str; 9] =
    ["balloon", "cores", "cpuunits", "migrate_speed", "shares", "smp", "snaptime", "sockets", "vcpus"];

/// Options that are booleans.
const BOOLEANS: [&str; 15] = [
    "acpi",
    "allow-ksm",
    "autostart",
    "ciupgrade",
    "freeze",
    "keephugepages",
    "kvm",
    "localtime",
    "numa",
    "onboot",
    "protection",
    "reboot",
    "tablet",
    "tdf",
    "template",
];

/// Options that are numbers with decimals, which the server gives back as texts.
const NUMBERS: [&str; 2] = ["cpulimit", "migrate_downtime"];

/// The config of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// What holds now.
    pub current: Section,
    /// What will hold after a restart.
    pub pending: Section,
    /// What will be deleted then, and whether volumes are destroyed with it.
    pub deletes: BTreeMap<String, bool>,
    /// What cloud-init's drive was made from, where that has changed since; `added` names what is new.
    pub cloud_init: Section,
    /// Snapshots by name.
    pub snapshots: BTreeMap<String, Section>,
}

impl Config {
    /// Returns an option that holds now.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.current.get(key).map(String::as_str)
    }

    /// Returns whether a boolean option is set.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key) == Some("1")
    }

    /// Returns a number; absent when it is not set.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Returns whether the VM is a template.
    pub fn is_template(&self) -> bool {
        self.flag("template")
    }

    /// Returns the config lock.
    pub fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    /// Refuses when the config is locked.
    pub fn check_lock(&self) -> Result<(), String> {
        match self.lock() {
            Some(lock) => Err(format!("VM is locked ({lock})")),
            None => Ok(()),
        }
    }

    /// Refuses when the VM is protected.
    pub fn check_protection(&self, what: &str) -> Result<(), String> {
        if self.flag("protection") { Err(format!("{what} - protection mode enabled")) } else { Ok(()) }
    }

    /// Returns the memory in MiB.
    pub fn memory_mib(&self) -> u64 {
        memory_mib(self.get("memory"))
    }

    /// Returns the SHA-1 of the config's file.
    pub fn digest(&self) -> String {
        Sha1::digest(self.text().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Writes the config's file.
    pub fn text(&self) -> String {
        let mut text = section_text(&self.current);
        if !self.pending.is_empty() || !self.deletes.is_empty() {
            text.push_str("\n[PENDING]\n");
            let mut pending = self.pending.clone();
            if !self.deletes.is_empty() {
                pending.insert("delete".into(), self.deletes_text());
            }
            text.push_str(&section_text(&pending));
        }
        if !self.cloud_init.is_empty() {
            text.push_str("\n[special:cloudinit]\n");
            text.push_str(&section_text(&self.cloud_init));
        }
        for (name, section) in &self.snapshots {
            text.push_str(&format!("\n[{name}]\n"));
            text.push_str(&section_text(section));
        }
        text
    }

    fn deletes_text(&self) -> String {
        let keys: Vec<String> = self
            .deletes
            .iter()
            .map(|(key, force)| format!("{}{key}", if *force { "!" } else { "" }))
            .collect();
        keys.join(",")
    }

    /// Does what writing and reading the file does to values: an empty one becomes a space. The error names the option.
    pub fn write(&mut self) -> Result<(), String> {
        for section in [&mut self.current].into_iter().chain(self.snapshots.values_mut()) {
            write_section(section)?;
        }
        // An empty description that is pending deletes the old one.
        let emptied = self.pending.get("description").is_some_and(|text| text.trim().is_empty());
        write_section(&mut self.pending)?;
        if emptied {
            self.pending.insert("description".into(), String::new());
        }
        let used: Vec<String> = [&self.current, &self.pending]
            .into_iter()
            .flat_map(|section| section.iter())
            .filter(|(key, _)| is_slot(key))
            .filter_map(|(key, value)| Some(Drive::read(key, value)?.file().to_owned()))
            .collect();
        self.current.retain(|key, value| !is_unused(key) || !used.contains(value));
        if self.pending.is_empty()
            && self.deletes.is_empty()
            && cloud_init_slot(&self.current, None).is_none()
        {
            self.cloud_init.clear();
        }
        Ok(())
    }

    /// Forgets pending changes that change nothing.
    pub fn clean_pending(&mut self) {
        let current = &self.current;
        self.pending.retain(|key, value| current.get(key) != Some(value));
        self.deletes.retain(|key, _| current.contains_key(key));
    }

    /// Returns the drives that hold now, in the server's order of slots.
    pub fn drives(&self) -> Vec<Drive> {
        drives(&self.current)
    }

    /// Returns a drive that holds now.
    pub fn drive(&self, slot: &str) -> Option<Drive> {
        Drive::read(slot, self.get(slot)?)
    }

    /// Notes a volume that no drive names any more. Returns where; nowhere when it is noted already.
    pub fn add_unused(&mut self, volume: &str) -> Result<Option<String>, String> {
        if self.current.iter().any(|(key, value)| is_unused(key) && value == volume) {
            return Ok(None);
        }
        let key = (0..MOST_UNUSED)
            .map(|number| format!("unused{number}"))
            .find(|key| !self.current.contains_key(key))
            .ok_or("Too many unused volumes - please delete them first.")?;
        self.current.insert(key.clone(), volume.to_owned());
        Ok(Some(key))
    }

    /// Returns whether a volume is named by a drive other than the given one, now or in a snapshot.
    pub fn names_volume(&self, volume: &str, except: &str) -> bool {
        let names = |section: &Section, except: &str| {
            drives(section)
                .iter()
                .any(|drive| drive.slot != except && !drive.is_disc() && drive.file() == volume)
        };
        names(&self.current, except) || self.snapshots.values().any(|section| names(section, ""))
    }

    /// Returns the config as the API shows it: with pending values, or as it holds now.
    pub fn shown(&self, now: bool) -> Map<String, Value> {
        let mut section = self.current.clone();
        if !now {
            section.extend(self.pending.clone());
            section.retain(|key, _| !self.deletes.contains_key(key));
        }
        let mut shown = section_json(&section);
        shown.insert("digest".into(), self.digest().into());
        shown
    }

    /// Returns a snapshot as the API shows it.
    pub fn shown_snapshot(&self, name: &str) -> Option<Map<String, Value>> {
        self.snapshots.get(name).map(section_json)
    }

    /// Returns what holds now and what is pending, option by option.
    pub fn shown_pending(&self) -> Vec<Value> {
        let hide =
            |key: &str, value: Value, hidden: &str| if key == "cipassword" { hidden.into() } else { value };
        let mut rows = Vec::new();
        for (key, value) in &self.current {
            let mut row = json!({ "key": key, "value": hide(key, shown_value(key, value), "**********") });
            if let Some(pending) = self.pending.get(key) {
                row["pending"] = hide(key, shown_value(key, pending), "********** ");
            }
            if let Some(force) = self.deletes.get(key) {
                row["delete"] = (if *force { 2 } else { 1 }).into();
            }
            rows.push(row);
        }
        rows.push(json!({ "key": "digest", "value": self.digest() }));
        for (key, value) in self.pending.iter().filter(|(key, _)| !self.current.contains_key(*key)) {
            rows.push(json!({ "key": key, "pending": hide(key, shown_value(key, value), "********** ") }));
        }
        for key in self.deletes.keys().filter(|key| !self.current.contains_key(*key)) {
            rows.push(json!({ "key": key, "delete": 2 }));
        }
        rows
    }
}

/// Returns the memory in MiB that an option says.
pub fn memory_mib(option: Option<&str>) -> u64 {
    let Some(text) = option else { return 512 };
    text.strip_prefix("current=").unwrap_or(text).parse().unwrap_or(512)
}

/// Returns the drives of a section in the server's order of slots.
pub fn drives(section: &Section) -> Vec<Drive> {
    slots().filter_map(|slot| Drive::read(&slot, section.get(&slot)?)).collect()
}

/// Returns the slot of cloud-init's drive.
pub fn cloud_init_slot(section: &Section, except: Option<&str>) -> Option<String> {
    drives(section)
        .into_iter()
        .find(|drive| Some(drive.slot.as_str()) != except && drive.is_cloud_init())
        .map(|drive| drive.slot)
}

/// Returns a value as the API shows it: whole numbers and booleans as numbers, everything else as text.
pub fn shown_value(key: &str, value: &str) -> Value {
    if is_whole(key)
        && let Ok(number) = value.parse::<u64>()
    {
        return number.into();
    }
    value.into()
}

fn is_whole(key: &str) -> bool {
    INTEGERS.contains(&key) || BOOLEANS.contains(&key)
}

fn section_json(section: &Section) -> Map<String, Value> {
    section
        .iter()
        .map(|(key, value)| {
            let value = if key == "cipassword" { "**********".into() } else { shown_value(key, value) };
            (key.clone(), value)
        })
        .collect()
}

fn section_text(section: &Section) -> String {
    let mut text = String::new();
    if let Some(description) = section.get("description") {
        for line in description.split('\n') {
            text.push_str(&format!("#{}\n", line.replace('%', "%25").replace('\r', "%0D")));
        }
    }
    for (key, value) in section.iter().filter(|(key, _)| *key != "description") {
        text.push_str(&format!("{key}: {value}\n"));
    }
    text
}

fn write_section(section: &mut Section) -> Result<(), String> {
    let keys: Vec<String> = section.keys().cloned().collect();
    for key in keys {
        let Some(value) = section.remove(&key) else { continue };
        if let Some(value) = written(&key, &value)? {
            section.insert(key, value);
        }
    }
    Ok(())
}

/// Returns what a value is after it was written to the file and read again; absent when nothing is left.
///
/// Trailing white space of a description is lost. An empty value becomes a space: the file's line `boot: ` is
/// read so (seen).
fn written(key: &str, value: &str) -> Result<Option<String>, String> {
    if key == "description" {
        let text = value.trim_end_matches(char::is_whitespace);
        return Ok((!text.is_empty()).then(|| text.to_owned()));
    }
    let wrong = |why: &str| Err(format!("unable to parse value of '{key}' - {why}"));
    if value.contains(['\n', '\r']) {
        return wrong("property contains a line feed");
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if BOOLEANS.contains(&key) {
        return match value.to_ascii_lowercase().as_str() {
            "1" | "on" | "yes" | "true" => Ok(Some("1".into())),
            "0" | "off" | "no" | "false" => Ok(Some("0".into())),
            _ => wrong(&format!("type check ('boolean') failed - got '{value}'")),
        };
    }
    if INTEGERS.contains(&key) {
        if !digits(value) {
            return wrong(&format!("type check ('integer') failed - got '{value}'"));
        }
        let trimmed = value.trim_start_matches('0');
        return Ok(Some(if trimmed.is_empty() { "0".into() } else { trimmed.into() }));
    }
    if NUMBERS.contains(&key) {
        let (whole, rest) = value.split_once('.').map_or((value, "0"), |(whole, rest)| (whole, rest));
        if !digits(whole) || !digits(rest) {
            return wrong(&format!("type check ('number') failed - got '{value}'"));
        }
    }
    let trimmed = value.trim_end_matches(char::is_whitespace);
    Ok(Some(if trimmed.is_empty() { " ".into() } else { trimmed.into() }))
}

/// Returns tags as the server keeps them: in lower case, each once, in order.
pub fn unique_tags(tags: &[String]) -> String {
    let mut tags: Vec<String> = tags.iter().map(|tag| tag.to_lowercase()).collect();
    tags.sort();
    tags.dedup();
    tags.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Config {
        let current = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config { current, ..Config::default() }
    }

    #[test]
    fn whole_numbers_are_shown_as_numbers_and_others_as_texts() {
        let mut config =
            config(&[("cores", "02"), ("memory", "0512"), ("cpulimit", "2.50"), ("onboot", "0")]);
        config.write().expect("written");
        let shown = config.shown(true);
        assert_eq!(shown["cores"], 2);
        assert_eq!(shown["memory"], "0512");
        assert_eq!(shown["cpulimit"], "2.50");
        assert_eq!(shown["onboot"], 0);
    }

    #[test]
    fn values_change_as_the_file_changes_them() {
        let mut config = config(&[("description", "  a\tb  \n\n"), ("boot", "")]);
        config.write().expect("written");
        assert_eq!(config.get("description"), Some("  a\tb"));
        assert_eq!(config.get("boot"), Some(" "));
        config.current.insert("cores".into(), "+2".into());
        assert_eq!(
            config.write(),
            Err("unable to parse value of 'cores' - type check ('integer') failed - got '+2'".into())
        );
    }

    #[test]
    fn the_digest_follows_every_part() {
        let mut config = config(&[("cores", "2")]);
        let first = config.digest();
        config.pending.insert("cores".into(), "3".into());
        let second = config.digest();
        config.snapshots.insert("s1".into(), Section::new());
        assert!(first.len() == 40 && first != second && second != config.digest());
    }

    #[test]
    fn a_volume_that_is_used_again_is_not_unused() {
        let mut config = config(&[("unused0", "data:401/vm-401-disk-1.raw")]);
        config.current.insert("scsi2".into(), "data:401/vm-401-disk-1.raw,ssd=1".into());
        config.write().expect("written");
        assert_eq!(config.get("unused0"), None);
        assert_eq!(config.add_unused("data:401/vm-401-disk-7.raw"), Ok(Some("unused0".into())));
        assert_eq!(config.add_unused("data:401/vm-401-disk-7.raw"), Ok(None));
    }

    #[test]
    fn pending_values_are_shown_beside_the_current_ones() {
        let mut config = config(&[("agent", "0"), ("net0", "virtio")]);
        config.pending.insert("agent".into(), "1".into());
        config.deletes.insert("net0".into(), true);
        let rows = config.shown_pending();
        assert!(rows.contains(&json!({ "key": "agent", "value": "0", "pending": "1" })));
        assert!(rows.contains(&json!({ "key": "net0", "value": "virtio", "delete": 2 })));
        assert_eq!(config.shown(false).get("net0"), None);
    }

    #[test]
    fn tags_are_sorted_and_single() {
        let tags = ["Zeta", "alpha", "beta", "alpha", "ALPHA"].map(str::to_owned);
        assert_eq!(unique_tags(&tags), "alpha;beta;zeta");
    }
}
