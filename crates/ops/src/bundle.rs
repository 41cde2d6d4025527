//! Reading a secrets bundle: out of the store, a file, or standard input.
//!
//! 1. `Input::read` takes the bytes within a limit, and warns when others can read them too;
//! 2. `parse` recognises what they are, and reads them, or says everything that is wrong, by line.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ichor_machineconfig::{
    pki::{Authority, Timestamp},
    secrets::{Bundle, Flaws, contracts_of},
};
use ichor_model::{Code, Finding, Findings, Minor, SourceId, Span};
use ichor_spec::Sources;
use zeroize::Zeroizing;

use crate::{Halt, Site, System, halt::only, masked, place, store, store::Store, system::Unreadable};

/// Largest file that is read: machine configs with inline manifests may be long, bundles are not.
const MAX_BYTES: usize = 4 * 1024 * 1024;
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

    fn read(&self, system: &dyn System) -> Result<(Zeroizing<Vec<u8>>, Findings), Unreadable> {
        match self {
            Self::Stdin => system.read_stdin(MAX_BYTES).map(|bytes| (bytes, Findings::new())),
            Self::File(path) => {
                let contents = system.read_given(path, MAX_BYTES)?;
                let open = contents.open_to_others.then(|| open_to_others(path));
                Ok((contents.bytes, open.into_iter().collect()))
            }
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
    match system.exists(store.bundle()) {
        Ok(false) => Err(Halt::invalid(only(store::no_secrets(store.bundle())))),
        _ => read(system, &Input::File(store.bundle().to_owned()), signer, sources),
    }
}

/// Reads a bundle, or says everything that is wrong with it.
pub fn read(
    system: &dyn System,
    input: &Input,
    signer: Signer,
    sources: &mut Sources,
) -> Result<Found, Halt> {
    let shown = input.shown();
    let (bytes, mut findings) =
        input.read(system).map_err(|why| Halt::invalid(only(store::unreadable(&shown, &why, MAX_BYTES))))?;
    let source = masked::add(sources, shown.clone(), &bytes);
    let (bundle, form) = match parse(&bytes) {
        Ok(parsed) => parsed,
        Err(wrong) => return Err(Halt::invalid(wrong.findings(sources, source, findings))),
    };
    findings.extend(times(&bundle, signer, system.now(), masked::line(sources, source, None)));
    if findings.has_errors() {
        return Err(Halt::invalid(findings));
    }
    let text = (form == Form::MachineConfig).then(|| String::from_utf8_lossy(&bytes));
    let contracts = text.and_then(|text| contracts_of(&text));
    Ok(Found { bundle, form, shown, contracts, findings })
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
    Encrypted(&'static str),
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
            Self::Encrypted(tool) => all.push(
                Finding::error(Code::ENCRYPTED_BUNDLE, whole, format!("the file is encrypted with {tool}"))
                    .because("encrypted bundles are not read yet")
                    .remedy(format!(
                        "decrypt it for the command, as in\n    {tool} -d FILE | ichor secrets import -"
                    )),
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
    if let Some(tool) = encrypted_with(text) {
        return Err(Wrong::Encrypted(tool));
    }
    if is_machine_config(text) {
        let bundle = Bundle::from_machine_config(text, None).map_err(Wrong::Flaws)?;
        return Ok((bundle, Form::MachineConfig));
    }
    let bundle = Bundle::from_secrets_yaml(text, None).map_err(Wrong::Flaws)?;
    Ok((bundle, Form::SecretsYaml))
}

/// Recognises files that are encrypted as a whole, or value by value.
fn encrypted_with(text: &str) -> Option<&'static str> {
    if text.starts_with("age-encryption.org/") || text.starts_with("-----BEGIN AGE ENCRYPTED FILE-----") {
        return Some("age");
    }
    let is_sops = text.contains("ENC[AES256_GCM,")
        || text.lines().any(|line| line.starts_with("sops:") || line.trim_start().starts_with("\"sops\":"));
    is_sops.then_some("sops")
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
