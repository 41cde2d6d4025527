//! Reading a secrets bundle: out of the store, a file, or standard input.
//!
//! 1. `Input::read` takes the bytes within a limit, and warns when others can read them too;
//! 2. `unlock` decrypts them with the user's keys, if they are encrypted;
//! 3. `parse` recognises what they are, and reads them, or says everything that is wrong, by line.
//!
//! [`judge`] says in a word what bytes are worth, for whoever has to know whether they may be replaced.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ichor_machineconfig::{
    pki::{Authority, Timestamp},
    secrets::{Bundle, Flaws, contracts_of},
};
use ichor_model::{Code, Finding, Findings, Minor, SourceId, Span};
use ichor_sops::{Flaw as SealedFlaw, FlawKind, Format};
use ichor_spec::Sources;
use zeroize::Zeroizing;

use crate::{
    Halt, Keeping, Site, System,
    halt::only,
    keyring::{self, Keyring, sealed_finding},
    masked, past, place, store,
    store::Store,
    system::{Contents, Links, Unreadable},
};

/// Largest file that is read: machine configs with inline manifests may be long, bundles are not.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// An authority that ends within this time is worth a warning.
const SOON: Duration = Duration::from_hours(90 * 24);

/// Where a bundle comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

/// Who signs something with a bundle: that authority must be valid, and the others may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// Nobody: it is looked at, or copied.
    Nobody,
    /// The authority of the Talos API.
    Talos,
    /// That of Kubernetes.
    Kubernetes,
}

/// What a file with a bundle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// talosctl's `secrets.yaml`.
    SecretsYaml,
    /// The machine config of a control plane.
    MachineConfig,
}

impl Form {
    /// Returns a few words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SecretsYaml => "a secrets.yaml",
            Self::MachineConfig => "a control plane's machine config",
        }
    }
}

/// A bundle that was read.
#[derive(Debug)]
pub struct Found {
    /// The bundle.
    pub bundle: Bundle,
    /// What it was read from.
    pub form: Form,
    /// Where it was read, as it is shown.
    pub shown: String,
    /// To whom it is encrypted; nothing, if it is in plain.
    pub recipients: Option<Vec<String>>,
    /// The contracts whose shape it has, the first and the last, where it shows one.
    pub contracts: Option<(Minor, Minor)>,
    /// Warnings.
    pub findings: Findings,
}

impl Input {
    /// Reads the argument of a command, where `-` is standard input.
    pub fn of(path: &Path) -> Self {
        if path == Path::new("-") { Self::Stdin } else { Self::File(path.to_owned()) }
    }

    /// Returns the input as it is shown.
    pub fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "<stdin>".to_owned(),
        }
    }

    /// Reads it within the limit of a bundle.
    pub fn read(&self, system: &dyn System) -> Result<Contents, Unreadable> {
        match self {
            Self::Stdin => {
                system.read_stdin(MAX_BYTES).map(|bytes| Contents { bytes, open_to_others: false })
            }
            Self::File(path) => system.read_given(path, MAX_BYTES),
        }
    }
}

/// Reads the bundle of a cluster: the one that is given, or else the one that is kept.
pub fn of_cluster(
    system: &dyn System,
    site: Site<'_>,
    given: Option<&Path>,
    signer: Signer,
    sources: &mut Sources,
) -> Result<Found, Halt> {
    if let Some(path) = given {
        return read(system, &Input::of(path), signer, sources);
    }
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    let kept = store.kept(system);
    if matches!(system.exists(kept), Ok(false)) {
        return Err(Halt::invalid(only(past::missing(system, &store))));
    }
    let mut found = read(system, &Input::File(kept.to_owned()), signer, sources)
        .map_err(|halt| past::lead_back(system, &store, halt))?;
    if store.keeping() == Keeping::Encrypted {
        let plain = if found.recipients.is_none() { Some(kept) } else { store.left_plain(system) };
        found.findings.extend(plain.map(in_plain).into_iter().collect());
    }
    Ok(found)
}

fn in_plain(path: &Path) -> Finding {
    let message = format!("the cluster's secrets are kept in plain, in `{}`", path.display());
    Finding::warning(Code::PLAIN_SECRETS, None, message)
        .because("whoever reads the file, or a copy of it in a backup, owns the cluster")
        .remedy("encrypt them:\n    ichor secrets encrypt")
}

/// Reads a bundle, or says everything that is wrong with it.
pub fn read(
    system: &dyn System,
    input: &Input,
    signer: Signer,
    sources: &mut Sources,
) -> Result<Found, Halt> {
    let shown = input.shown();
    let contents =
        input.read(system).map_err(|why| Halt::invalid(only(store::unreadable(&shown, &why, MAX_BYTES))))?;
    let unlocked = unlock(system, &contents.bytes, &shown).map_err(Halt::invalid)?;
    let mut findings = unlocked.as_ref().map(|unlocked| unlocked.findings.clone()).unwrap_or_default();
    if let (Input::File(path), true, None) = (input, contents.open_to_others, &unlocked) {
        findings.push(open_to_others(path));
    }
    // Where the plain text stands in the encrypted file is not known: its places are those of the text itself.
    let bytes = unlocked.as_ref().map_or(contents.bytes.as_slice(), |unlocked| unlocked.text.as_bytes());
    let source = masked::add(sources, shown.clone(), bytes);
    let (bundle, form) = match parse(bytes) {
        Ok(parsed) => parsed,
        Err(wrong) => return Err(Halt::invalid(wrong.findings(sources, source, findings))),
    };
    findings.extend(times(&bundle, signer, system.now(), masked::line(sources, source, None)));
    if findings.has_errors() {
        return Err(Halt::invalid(findings));
    }
    let text = (form == Form::MachineConfig).then(|| String::from_utf8_lossy(bytes));
    let contracts = text.and_then(|text| contracts_of(&text));
    let recipients = unlocked.map(|unlocked| unlocked.recipients);
    Ok(Found { bundle, form, shown, recipients, contracts, findings })
}

/// What the bytes of a bundle are worth.
#[derive(Debug)]
pub enum Worth {
    /// They are a whole bundle.
    Sound(Box<Bundle>),
    /// They are encrypted in a way that nobody here can open. Others may.
    Closed,
    /// They are none: nothing at all, a piece of one, or one that was changed.
    Damaged,
}

/// Says what the bytes of a bundle are worth, whatever its certificates say about the time.
pub fn judge(system: &dyn System, bytes: &[u8], shown: &str) -> Worth {
    let parsed = |bytes: &[u8]| match parse(bytes) {
        Ok((bundle, _)) => Worth::Sound(Box::new(bundle)),
        Err(Wrong::Encrypted) => Worth::Closed,
        Err(Wrong::NotText | Wrong::Flaws(_)) => Worth::Damaged,
    };
    let opened = match sealed(bytes, shown) {
        Ok(None) => return parsed(bytes),
        Ok(Some(sealed)) => Keyring::load(system).try_open(&sealed),
        Err(flaw) => Err(flaw),
    };
    match opened {
        Ok(opened) => parsed(opened.plain().to_text(Format::Yaml).as_bytes()),
        Err(flaw) => match flaw.kind {
            FlawKind::NoKey | FlawKind::Unsupported | FlawKind::BadKey => Worth::Closed,
            FlawKind::Syntax | FlawKind::Limit | FlawKind::NotSealed | FlawKind::Tampered => Worth::Damaged,
        },
    }
}

/// What there is of a cluster's secrets.
#[derive(Debug)]
pub enum Present {
    /// Nothing.
    Nothing,
    /// A whole bundle.
    Sound(Box<Bundle>),
    /// One that nobody here can open.
    Closed,
    /// Something that is no bundle.
    Damaged,
}

/// Says what there is of a cluster's secrets. What the machine does not let us read may be anything.
pub fn present(system: &dyn System, store: &Store) -> Result<Present, Box<Finding>> {
    let path = store.kept(system);
    let shown = path.display().to_string();
    match system.read(path, MAX_BYTES, Links::Follow) {
        Ok(contents) => Ok(match judge(system, &contents.bytes, &shown) {
            Worth::Sound(bundle) => Present::Sound(bundle),
            Worth::Closed => Present::Closed,
            Worth::Damaged => Present::Damaged,
        }),
        // A link that leads nowhere is something.
        Err(why) if why.is_missing() && !matches!(system.exists(path), Ok(false)) => Ok(Present::Damaged),
        Err(why) if why.is_missing() => Ok(Present::Nothing),
        Err(why) => Err(Box::new(store::unreadable(&shown, &why, MAX_BYTES))),
    }
}

/// Says everything that is wrong with a text that is to be a bundle.
pub fn check(bytes: &[u8], sources: &Sources, source: SourceId) -> Result<(), Findings> {
    parse(bytes).map(|_| ()).map_err(|wrong| wrong.findings(sources, source, Findings::new()))
}

/// The plain text of an encrypted file.
struct Unlocked {
    text: Zeroizing<String>,
    recipients: Vec<String>,
    /// Warnings about the keys that opened it.
    findings: Findings,
}

/// Decrypts a file, if it is encrypted value by value.
fn unlock(system: &dyn System, bytes: &[u8], shown: &str) -> Result<Option<Unlocked>, Findings> {
    let Some(sealed) = sealed(bytes, shown).map_err(|flaw| only(sealed_finding(&flaw, shown)))? else {
        return Ok(None);
    };
    let ring = Keyring::load(system);
    let opened = ring.open(&sealed, shown)?;
    let recipients = sealed.recipients().into_iter().map(str::to_owned).collect();
    // Keys that were not needed are nobody's trouble; those that others can read are.
    let open = ring.findings().iter().filter(|finding| finding.code == Code::OPEN_SECRETS).cloned();
    let findings = open.collect();
    Ok(Some(Unlocked { text: opened.plain().to_text(Format::Yaml), recipients, findings }))
}

/// Reads a file that is encrypted value by value; nothing, if it is another one.
pub fn sealed(bytes: &[u8], shown: &str) -> Result<Option<ichor_sops::Sealed>, SealedFlaw> {
    let is_sops = std::str::from_utf8(bytes).is_ok_and(looks_sealed);
    match is_sops.then(|| keyring::parse(bytes, shown)).transpose() {
        Err(flaw) if flaw.kind == FlawKind::NotSealed => Ok(None),
        result => result,
    }
}

/// Returns the authorities of a bundle, with what each is for.
pub fn authorities(bundle: &Bundle) -> [(&'static str, &Authority); 4] {
    [
        ("Talos API", &bundle.os),
        ("Kubernetes", &bundle.kubernetes),
        ("aggregation layer", &bundle.aggregator),
        ("etcd", &bundle.etcd),
    ]
}

/// Finds authorities that are out of their time, or soon will be. Only the one that signs has to be in it.
fn times(bundle: &Bundle, signer: Signer, now: Timestamp, at: Span) -> Findings {
    let signs = match signer {
        Signer::Nobody => None,
        Signer::Talos => Some(&bundle.os),
        Signer::Kubernetes => Some(&bundle.kubernetes),
    };
    let judge = |(name, authority): (&str, &Authority)| {
        let certificate = authority.certificate();
        let subject = format!("the certificate authority of the {name}");
        match certificate.check_validity(now) {
            Err(problem) if signs == Some(authority) => {
                let message = format!("{subject} {}", problem.message);
                Some(Finding::error(Code::BAD_BUNDLE, at, message).remedy(problem.remedy))
            }
            Err(problem) => {
                let message = format!("{subject} {}", problem.message);
                Some(Finding::warning(Code::AUTHORITY_ENDS, at, message).remedy(problem.remedy))
            }
            Ok(()) if now.plus(SOON) > certificate.not_after() => {
                let message = format!("{subject} ends at {}", certificate.not_after());
                let finding = Finding::warning(Code::AUTHORITY_ENDS, at, message);
                Some(
                    finding
                        .because("nothing that it signed is accepted after that")
                        .remedy("rotate it while it is valid"),
                )
            }
            Ok(()) => None,
        }
    };
    authorities(bundle).into_iter().filter_map(judge).collect()
}

/// Why bytes are no bundle.
enum Wrong {
    NotText,
    Encrypted,
    Flaws(Flaws),
}

impl Wrong {
    fn findings(&self, sources: &Sources, source: SourceId, mut all: Findings) -> Findings {
        let whole = masked::line(sources, source, None);
        match self {
            Self::NotText => all.push(
                Finding::error(Code::BAD_BUNDLE, whole, "the file is not UTF-8 text")
                    .remedy("name a `secrets.yaml`, or the machine config of a control plane"),
            ),
            Self::Encrypted => all.push(
                Finding::error(Code::ENCRYPTED_BUNDLE, whole, "the file is encrypted with age as a whole")
                    .because("only files that are encrypted value by value are read, as sops writes them")
                    .remedy("decrypt it for the command, as in\n    age -d FILE | ichor secrets import -"),
            ),
            Self::Flaws(flaws) => {
                for flaw in flaws {
                    let subject = match flaw.path.as_str() {
                        "" => "the file".to_owned(),
                        path => format!("`{path}`"),
                    };
                    let at = masked::line(sources, source, flaw.line);
                    let message = format!("{subject} {}", flaw.problem.message);
                    let finding = Finding::error(Code::BAD_BUNDLE, at, message).remedy(&flaw.problem.remedy);
                    all.push(finding.private());
                }
            }
        }
        all
    }
}

fn parse(bytes: &[u8]) -> Result<(Bundle, Form), Wrong> {
    let text = std::str::from_utf8(bytes).map_err(|_| Wrong::NotText)?;
    if text.starts_with("age-encryption.org/") || text.starts_with("-----BEGIN AGE ENCRYPTED FILE-----") {
        return Err(Wrong::Encrypted);
    }
    if is_machine_config(text) {
        let bundle = Bundle::from_machine_config(text, None).map_err(Wrong::Flaws)?;
        return Ok((bundle, Form::MachineConfig));
    }
    let bundle = Bundle::from_secrets_yaml(text, None).map_err(Wrong::Flaws)?;
    Ok((bundle, Form::SecretsYaml))
}

/// Recognises files that are encrypted value by value, also those whose other half is missing.
fn looks_sealed(text: &str) -> bool {
    text.contains("ENC[AES256_GCM,")
        || text.lines().any(|line| line.starts_with("sops:") || line.trim_start().starts_with("\"sops\":"))
}

/// A machine config has a `machine` section or documents with a kind; a bundle has neither.
fn is_machine_config(text: &str) -> bool {
    text.lines().any(|line| {
        ["machine:", "kind:", "version: v1alpha1", "apiVersion:"].iter().any(|key| line.starts_with(key))
    })
}

fn open_to_others(path: &Path) -> Finding {
    Finding::warning(Code::OPEN_SECRETS, None, format!("others can read `{}`", path.display()))
        .because("whoever reads it owns the cluster")
        .remedy(format!("keep it to yourself:\n    chmod 600 {}", place::quoted(path)))
}
