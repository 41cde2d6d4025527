//! The stamp: the lines in a VM's notes that say whose it is.
//!
//! ````text
//! What the user wants to say about the VM.
//!
//! Kept by ichor, cluster homelab. The block below is how it knows this VM: leave it as it is.
//!
//! ```ichor
//! schema: 1
//! cluster: homelab
//! vmid: 2000
//! machine: cp-1
//! generation: 1
//! role: control-plane
//! secrets: 5d1c0f3ab27e9946
//! ```
//! ````
//!
//! Proxmox shows notes as Markdown, so the lines stand in a code block, where no name can turn into markup.
//! People may write above and below it. A block with a line that is missing, doubled or not known is no stamp at
//! all: a VM whose stamp was tampered with is nobody's to change.
//!
//! The stamp names its own VMID, because a backup that is restored elsewhere keeps notes and uuid. It names the
//! secrets of its cluster by a print, because two inventories may have one name: whoever has other secrets is another
//! cluster. A stamp without a print is anybody's of that name.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::{
    MachineName, SmbiosUuid, TalosVersion, VmId,
    desired::{Arch, Image, Machine, Platform, Role},
    identity::Seed,
};

/// Proxmox takes so many characters of notes.
pub const MOST_CHARACTERS: usize = 8192;

const SCHEMA: &str = "1";
const OPENING: &str = "```ichor";
const CLOSING: &str = "```";
/// Readers stop here: a stamp has fewer lines.
const MOST_LINES: usize = 32;

/// What tells clusters of one name apart: a print of their secrets that gives nothing of them away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretsPrint(u64);

impl SecretsPrint {
    /// Takes the print of secrets by the random id that they carry.
    pub fn of(cluster_id: &str) -> Self {
        let digest = Sha256::digest(format!("ichor secrets\0{cluster_id}"));
        Self(digest.iter().take(8).fold(0, |print, byte| print << 8 | u64::from(*byte)))
    }

    fn read(text: &str) -> Option<Self> {
        let print = Self(u64::from_str_radix(text, 16).ok()?);
        (print.to_string() == text).then_some(print)
    }
}

impl fmt::Display for SecretsPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A cluster, as its stamps name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Its `id`.
    pub cluster: &'a str,
    /// The print of its secrets. Nothing: it has none yet, or its name alone is to count.
    pub secrets: Option<SecretsPrint>,
}

/// Whose a stamped VM is, seen from a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// That cluster's.
    Own,
    /// That of a cluster of the same `id` with other secrets.
    Namesake,
    /// That of a cluster of another `id`.
    Other,
}

impl Claim<'_> {
    /// Tells whose a VM with a stamp is.
    pub fn party(&self, stamp: &Stamp) -> Party {
        if stamp.cluster != self.cluster {
            Party::Other
        } else if are_at_odds(self.secrets, stamp.secrets) {
            Party::Namesake
        } else {
            Party::Own
        }
    }
}

fn are_at_odds(one: Option<SecretsPrint>, other: Option<SecretsPrint>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// Whose a VM is, and what it is there for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The `id` of its cluster.
    pub cluster: String,
    /// The print of the secrets that its cluster had.
    pub secrets: Option<SecretsPrint>,
    /// The VMID that it was made under.
    pub vmid: VmId,
    /// What it is there for.
    pub bearer: Bearer,
}

/// What a stamped VM is there for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bearer {
    /// A machine of the cluster.
    Machine(StampedMachine),
    /// A template that machines are cloned from.
    Template(StampedImage),
}

/// A machine as its stamp names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampedMachine {
    /// Its name.
    pub name: MachineName,
    /// Its generation.
    pub generation: u32,
    /// What it does.
    pub role: Role,
    /// Whether it is only a clone so far, with everything still to be set: Proxmox takes notes for a clone,
    /// but no uuid.
    pub is_unfinished: bool,
}

/// The image that a template holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampedImage {
    /// The id of its schematic at the Image Factory, or another word for where it came from.
    pub schematic: String,
    /// Its Talos release.
    pub talos: TalosVersion,
    /// Its platform.
    pub platform: Platform,
    /// Its processor architecture.
    pub arch: Arch,
    /// Whether it is signed for secure boot.
    pub secureboot: bool,
}

impl Stamp {
    /// Makes the stamp of a machine.
    pub fn of_machine(claim: Claim<'_>, machine: &Machine) -> Self {
        let stamped = StampedMachine {
            name: machine.name.clone(),
            generation: machine.generation,
            role: machine.role,
            is_unfinished: false,
        };
        Self::of(claim, machine.vmid, Bearer::Machine(stamped))
    }

    /// Makes the stamp of a template that holds an image, built from a schematic.
    pub fn of_template(claim: Claim<'_>, vmid: VmId, image: &Image, schematic: &str) -> Self {
        let stamped = StampedImage {
            schematic: schematic.to_owned(),
            talos: image.talos.clone(),
            platform: image.platform,
            arch: image.arch,
            secureboot: image.secureboot,
        };
        Self::of(claim, vmid, Bearer::Template(stamped))
    }

    fn of(claim: Claim<'_>, vmid: VmId, bearer: Bearer) -> Self {
        Self { cluster: claim.cluster.to_owned(), secrets: claim.secrets, vmid, bearer }
    }

    /// Whether it says what another one says. One without a print of secrets agrees with any print.
    pub fn agrees_with(&self, other: &Self) -> bool {
        !are_at_odds(self.secrets, other.secrets)
            && (&self.cluster, self.vmid, &self.bearer) == (&other.cluster, other.vmid, &other.bearer)
    }

    /// Says that the machine is only a clone so far.
    #[must_use]
    pub const fn unfinished(mut self) -> Self {
        if let Bearer::Machine(machine) = &mut self.bearer {
            machine.is_unfinished = true;
        }
        self
    }

    /// Returns the SMBIOS uuid that a VM with this stamp must have.
    pub fn uuid(&self) -> SmbiosUuid {
        match &self.bearer {
            Bearer::Machine(machine) => {
                let (machine, generation) = (machine.name.as_str(), machine.generation);
                Seed { cluster: &self.cluster, machine, generation }.uuid()
            }
            // No machine can have a name with a slash.
            Bearer::Template(_) => {
                let machine = &format!("template/{}", self.vmid);
                Seed { cluster: &self.cluster, machine, generation: 1 }.uuid()
            }
        }
    }

    /// Returns notes with the stamp below them. Notes that leave no room for it are cut.
    pub fn write(&self, notes: Option<&str>) -> String {
        let stamp = self.to_string();
        let notes = tame(notes.unwrap_or_default());
        if notes.is_empty() {
            return stamp;
        }
        let room = MOST_CHARACTERS.saturating_sub(stamp.chars().count() + 2);
        if notes.chars().count() <= room {
            return format!("{notes}\n\n{stamp}");
        }
        let kept: String = notes.chars().take(room.saturating_sub(1)).collect();
        format!("{}…\n\n{stamp}", kept.trim_end())
    }

    /// Finds the stamp in a VM's notes. Nothing: there is none, or not exactly one that is whole.
    pub fn read(notes: &str) -> Option<Self> {
        let mut lines = notes.lines().map(str::trim_end);
        lines.find(|line| *line == OPENING)?;
        let mut block = Vec::new();
        loop {
            match lines.next()? {
                CLOSING => break,
                line if block.len() < MOST_LINES => block.push(line),
                _ => return None,
            }
        }
        if lines.any(|line| line == OPENING) {
            return None;
        }
        let mut fields = Fields::of(&block)?;
        let stamp = Self::from_fields(&mut fields)?;
        fields.0.is_empty().then_some(stamp)
    }

    /// Whether notes have something that looks like a stamp, readable or not.
    pub fn is_in(notes: &str) -> bool {
        notes.lines().any(|line| line.trim() == OPENING)
    }

    fn from_fields(fields: &mut Fields<'_>) -> Option<Self> {
        if fields.take("schema")? != SCHEMA {
            return None;
        }
        let cluster = unquote(fields.take("cluster")?)?;
        let vmid = fields.take("vmid")?.parse().ok()?;
        let bearer = match fields.take("machine") {
            Some(name) => Bearer::Machine(StampedMachine {
                name: name.parse().ok()?,
                generation: canonical_number(fields.take("generation")?)?,
                role: word(fields.take("role")?, &Role::ALL)?,
                is_unfinished: match fields.take("stage") {
                    None => false,
                    Some("cloned") => true,
                    Some(_) => return None,
                },
            }),
            None => Bearer::Template(StampedImage {
                schematic: unquote(fields.take("template")?)?,
                talos: fields.take("talos")?.parse().ok()?,
                platform: word(fields.take("platform")?, &[Platform::Nocloud, Platform::Metal])?,
                arch: word(fields.take("arch")?, &[Arch::Amd64, Arch::Arm64])?,
                secureboot: match fields.take("secureboot") {
                    None => false,
                    Some("yes") => true,
                    Some(_) => return None,
                },
            }),
        };
        let secrets = match fields.take("secrets") {
            None => None,
            Some(print) => Some(SecretsPrint::read(print)?),
        };
        Some(Self { cluster, secrets, vmid, bearer })
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = quote(&self.cluster);
        writeln!(
            f,
            "Kept by ichor, cluster {cluster}. The block below is how it knows this VM: leave it as it is.\n"
        )?;
        writeln!(f, "{OPENING}\nschema: {SCHEMA}\ncluster: {cluster}\nvmid: {}", self.vmid)?;
        match &self.bearer {
            Bearer::Machine(machine) => {
                writeln!(f, "machine: {}\ngeneration: {}", machine.name, machine.generation)?;
                writeln!(f, "role: {}", machine.role)?;
                if machine.is_unfinished {
                    writeln!(f, "stage: cloned")?;
                }
            }
            Bearer::Template(image) => {
                writeln!(f, "template: {}\ntalos: {}", quote(&image.schematic), image.talos)?;
                writeln!(f, "platform: {}\narch: {}", image.platform, image.arch)?;
                if image.secureboot {
                    writeln!(f, "secureboot: yes")?;
                }
            }
        }
        if let Some(print) = self.secrets {
            writeln!(f, "secrets: {print}")?;
        }
        f.write_str(CLOSING)
    }
}

/// The lines of a stamp, each of which is read once.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn of(lines: &[&'a str]) -> Option<Self> {
        let mut fields: Vec<(&str, &str)> = Vec::new();
        for line in lines {
            let (key, value) = line.split_once(": ")?;
            if fields.iter().any(|(known, _)| *known == key) {
                return None;
            }
            fields.push((key, value));
        }
        Some(Self(fields))
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.remove(at).1)
    }
}

/// Plain words stand as they are; everything else as a JSON string, so that it keeps to its line.
fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

fn unquote(text: &str) -> Option<String> {
    let read = if text.starts_with('"') { serde_json::from_str(text).ok()? } else { text.to_owned() };
    (quote(&read) == text).then_some(read)
}

fn canonical_number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn word<T: Copy + fmt::Display>(text: &str, all: &[T]) -> Option<T> {
    all.iter().copied().find(|value| value.to_string() == text)
}

/// Notes as Proxmox keeps them, and without anything that a reader would take for a stamp.
fn tame(notes: &str) -> String {
    let lines = notes.lines().map(|line| {
        if line.trim() == OPENING { line.replacen(OPENING, "``` ichor", 1) } else { line.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp {
            cluster: "homelab".into(),
            secrets: Some(SecretsPrint::of("secret id")),
            vmid: VmId::new(2000).expect("a VMID"),
            bearer: Bearer::Machine(StampedMachine {
                name: "cp-1".parse().expect("a name"),
                generation: 1,
                role: Role::ControlPlane,
                is_unfinished: false,
            }),
        }
    }

    fn template() -> Stamp {
        let image = StampedImage {
            schematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba".into(),
            talos: TalosVersion::new(1, 13, 9),
            platform: Platform::Nocloud,
            arch: Arch::Amd64,
            secureboot: true,
        };
        Stamp { bearer: Bearer::Template(image), ..stamp() }
    }

    #[test]
    fn the_stamp_never_changes_between_releases() {
        // A release that wrote another one would have to read this one as well.
        assert_eq!(
            stamp().write(Some("Rack 3.\n")),
            "Rack 3.\n\nKept by ichor, cluster homelab. The block below is how it knows this VM: \
             leave it as it is.\n\n```ichor\nschema: 1\ncluster: homelab\nvmid: 2000\nmachine: cp-1\n\
             generation: 1\nrole: control-plane\nsecrets: a99a89770c5174ff\n```"
        );
    }

    #[test]
    fn a_stamp_without_a_print_agrees_with_any() {
        let (ours, old) = (stamp(), Stamp { secrets: None, ..stamp() });
        let other = Stamp { secrets: Some(SecretsPrint::of("another id")), ..stamp() };
        assert!(ours.agrees_with(&old) && old.agrees_with(&ours) && ours.agrees_with(&ours));
        assert!(!ours.agrees_with(&other));
        assert!(!ours.agrees_with(&ours.clone().unfinished()));
        assert_eq!(Stamp::read(&old.write(None)), Some(old));
    }

    #[test]
    fn stamps_read_back_below_any_notes() {
        let odd = Stamp { cluster: "my lab\n```\n\"*ü*\"".into(), ..stamp() };
        for stamp in [stamp(), template(), stamp().unfinished(), odd] {
            let quoting = stamp.write(None);
            for notes in
                ["", "plain", "```\nunclosed", "```ichor\nschema: 1\n```", "```ichor", &quoting, "ü\r\n"]
            {
                let written = stamp.write(Some(notes));
                assert_eq!(Stamp::read(&written), Some(stamp.clone()), "{notes:?}: {written}");
                let edited = format!("# seen\n{}\r\nmore below", written.replace('\n', "\r\n"));
                assert_eq!(Stamp::read(&edited), Some(stamp.clone()), "{edited}");
            }
        }
    }

    #[test]
    fn a_stamp_that_was_tampered_with_is_none() {
        let whole = stamp().write(None);
        let tampered = [
            whole.replace("schema: 1", "schema: 2"),
            whole.replace("schema: 1\n", ""),
            whole.replace("vmid: 2000", "vmid: 02000"),
            whole.replace("generation: 1", "generation: +1"),
            whole.replace("generation: 1", "generation: 1\ngeneration: 1"),
            whole.replace("generation: 1", "generation: 1\ncolour: red"),
            whole.replace("control-plane", "Control-Plane"),
            whole.replace("machine: cp-1", "machine: CP_1"),
            whole.replace("secrets: ", "secrets: 0"),
            whole.replace("secrets: ", "secrets: +"),
            whole.replace("cluster: homelab", "cluster: \"homelab\""),
            whole.replace("```ichor", "  ```ichor"),
            format!("{whole}\n{whole}"),
            whole.trim_end_matches('`').to_owned(),
        ];
        for text in tampered {
            assert_eq!(Stamp::read(&text), None, "{text}");
            assert!(Stamp::is_in(&text), "{text}");
        }
        assert!(!Stamp::is_in("kept by ichor"));
    }

    #[test]
    fn hostile_notes_are_read_in_bounds() {
        let endless = format!("```ichor\n{}", "a: b\n".repeat(100_000));
        assert_eq!(Stamp::read(&endless), None);
        let many: String = (0..100).map(|i| format!("k{i}: b\n")).collect();
        assert_eq!(Stamp::read(&format!("```ichor\n{many}```")), None);
    }

    #[test]
    fn long_notes_make_room_for_the_stamp() {
        let notes = "ü".repeat(MOST_CHARACTERS);
        let written = stamp().write(Some(&notes));
        assert!(written.chars().count() <= MOST_CHARACTERS);
        assert_eq!(Stamp::read(&written), Some(stamp()));
    }

    #[test]
    fn templates_and_machines_have_uuids_of_their_own() {
        assert_eq!(stamp().uuid().to_string(), "42031b72-c15d-8c0e-bd95-92b795bb558c");
        assert_ne!(template().uuid(), stamp().uuid());
        assert_ne!(Stamp { vmid: VmId::new(2001).expect("a VMID"), ..template() }.uuid(), template().uuid());
    }
}
