//! The Proxmox that the inventory names.

use std::{
    io::{self, BufRead, IsTerminal},
    sync::Arc,
    time::Duration,
};

use ichor_machineconfig::pki::Certificate;
use ichor_model::{Code, Finding, Findings, Hop, desired::Tls};
use ichor_net::{
    Dial, Endpoint, Fingerprint, Trust,
    tls::{Protocol, Secure, shown},
};
use ichor_ops::{Halt, Site, System, halt::only, live::Reach, materials, store::Store, system::Links, whole};
use ichor_port::Secret;
use ichor_pve::Token;
use tokio::{runtime::Runtime, time::timeout};

use super::{Door, Parts, Vouched, World, jump};
use crate::{render::progress::Wait, terminal::Terminal};

/// Largest file with a CA certificate.
const MAX_CA: usize = 1024 * 1024;
/// The file that remembers whom Proxmox proved to be at first use.
const REMEMBERED: &str = "proxmox.sha256";
/// How long a server may take to show who it is.
const SHOWN_WITHIN: Duration = Duration::from_secs(15);

/// Opens the world that an inventory names.
pub fn open(
    system: &dyn System,
    site: Site<'_>,
    runtime: &Runtime,
    terminal: &Terminal,
) -> Result<World, Halt> {
    let token = token(system, site)?;
    let Door { dialer, trust, findings, .. } = door(system, site, runtime, terminal)?;
    let reach = Reach { dialer, proxmox: trust, factory: Trust::System, token };
    Ok(World { reach, lab: None, findings })
}

/// Opens the way to Proxmox, and finds out whom to trust there.
pub fn door(
    system: &dyn System,
    site: Site<'_>,
    runtime: &Runtime,
    terminal: &Terminal,
) -> Result<Door, Halt> {
    let mut findings = Findings::new();
    let dialer = jump::open(site.desired, runtime, terminal)?;
    let trust = match &site.desired.proxmox.tls {
        Tls::Sha256(text) => Trust::Pin(pin(text)?),
        Tls::Ca(file) => authority(system, site, file)?,
        Tls::Insecure => {
            findings.push(insecure(site));
            Trust::Anybody
        }
        Tls::TrustOnFirstUse => first_use(system, site, &dialer, runtime, terminal)?,
    };
    Ok(Door { dialer, trust, lab: None, findings })
}

/// Finds what of the world can be had, without asking anybody and without remembering anything.
pub fn parts(system: &dyn System, site: Site<'_>, runtime: &Runtime, terminal: &Terminal) -> Parts {
    Parts {
        dialer: jump::open(site.desired, runtime, terminal),
        token: token(system, site),
        trust: vouched(system, site),
        factory: Trust::System,
        lab: None,
    }
}

fn vouched(system: &dyn System, site: Site<'_>) -> Result<Vouched, Halt> {
    let by = |trust: Trust, words: String| Vouched { trust, words, findings: Findings::new() };
    Ok(match &site.desired.proxmox.tls {
        Tls::Sha256(text) => by(Trust::Pin(pin(text)?), "the certificate is pinned".into()),
        Tls::Ca(file) => {
            by(authority(system, site, file)?, format!("the CA in `{file}` vouches for the certificate"))
        }
        Tls::Insecure => Vouched {
            findings: only(insecure(site)),
            ..by(Trust::Anybody, "nobody is asked who vouches for the certificate".into())
        },
        Tls::TrustOnFirstUse => match remembered(system, site)? {
            Some(known) => by(Trust::Pin(known), "the certificate is known since it was first met".into()),
            None => by(Trust::System, "a CA that this computer trusts vouches for the certificate".into()),
        },
    })
}

/// Returns whom somebody has confirmed before.
fn remembered(system: &dyn System, site: Site<'_>) -> Result<Option<Fingerprint>, Halt> {
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    let Ok(contents) = system.read(&store.file(REMEMBERED), MAX_CA, Links::Refuse) else { return Ok(None) };
    pin(String::from_utf8_lossy(&contents.bytes).trim()).map(Some)
}

fn token(system: &dyn System, site: Site<'_>) -> Result<Token, Halt> {
    let wrong = |why: &str| {
        let finding = Finding::error(Code::NO_TOKEN, None, "there is no API token for Proxmox").because(why);
        Halt::invalid(only(
            finding.remedy("write where it is:\n    proxmox: {token: {env: ICHOR_PVE_TOKEN}}"),
        ))
    };
    let reference = site.desired.proxmox.token.as_ref().ok_or_else(|| wrong("the inventory names none"))?;
    let text =
        materials::resolve(system, site, reference).map_err(|finding| Halt::invalid(only(*finding)))?;
    Token::parse(&Secret::new(text.expose())).map_err(|error| wrong(&error.to_string()))
}

fn pin(text: &str) -> Result<Fingerprint, Halt> {
    text.parse().map_err(|error: ichor_net::tls::NotAFingerprint| {
        let finding = Finding::error(Code::UNTRUSTED, None, "`proxmox.tls.sha256` is no fingerprint");
        Halt::invalid(only(finding.because(error.to_string())))
    })
}

fn authority(system: &dyn System, site: Site<'_>, file: &str) -> Result<Trust, Halt> {
    let wrong = |why: String| {
        let message = format!("the CA in `{file}` cannot be used");
        Halt::invalid(only(Finding::error(Code::BAD_MATERIAL, None, message).because(why)))
    };
    let contents =
        system.read(&site.path(file), MAX_CA, Links::Follow).map_err(|why| wrong(why.to_string()))?;
    let text = std::str::from_utf8(&contents.bytes).map_err(|_| wrong("it is no text".into()))?;
    let certificate =
        Certificate::from_pem(text).map_err(|problem| wrong(format!("it {}", problem.message)))?;
    Ok(Trust::Authorities(certificate.chain()))
}

/// Trusts whom the system trusts, or whoever was confirmed before. Somebody new is shown, and asked about where there
/// is somebody to ask.
fn first_use(
    system: &dyn System,
    site: Site<'_>,
    dialer: &Arc<dyn Dial>,
    runtime: &Runtime,
    terminal: &Terminal,
) -> Result<Trust, Halt> {
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    let file = store.file(REMEMBERED);
    if let Some(known) = remembered(system, site)? {
        return Ok(Trust::Pin(known));
    }
    let Ok(endpoint) = site.desired.proxmox.endpoint.parse::<Endpoint>() else { return Ok(Trust::System) };
    let way = Way { dialer, jump: &site.desired.proxmox.jump };
    let Some(fingerprint) = meet(&endpoint, way, runtime, terminal)? else { return Ok(Trust::System) };
    if !io::stdin().is_terminal() {
        return Err(Halt::preflight(only(not_known(&endpoint, fingerprint))));
    }
    terminal.tell(&format!(
        "Proxmox at {endpoint} shows a certificate that nobody here knows yet:\n  SHA-256 {fingerprint}\n\
         Proxmox shows the same under Node > System > Certificates.\nIs it the right one? Type `yes` to trust it from now on:"
    ));
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    if answer.trim() != "yes" {
        return Err(Halt::preflight(only(not_known(&endpoint, fingerprint))));
    }
    drop(store.hold(system)?);
    whole::replace(system, &file, format!("{fingerprint}\n").as_bytes())
        .map_err(|error| Halt::unwritable(&file, &error))?;
    Ok(Trust::Pin(fingerprint))
}

/// How a server is reached.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    /// Makes connections.
    pub dialer: &'a Arc<dyn Dial>,
    /// Whom they lead through.
    pub jump: &'a [Hop],
}

/// Returns the fingerprint of a server that the system does not trust; nothing where it does, or nobody answers.
pub fn meet(
    endpoint: &Endpoint,
    way: Way<'_>,
    runtime: &Runtime,
    terminal: &Terminal,
) -> Result<Option<Fingerprint>, Halt> {
    let _waiting = Wait::new(terminal, "waiting for Proxmox to show who it is");
    let met = runtime.block_on(async { timeout(SHOWN_WITHIN, unknown(endpoint, &**way.dialer)).await });
    met.map_err(|_| Halt::preflight(only(silent(endpoint, way.jump))))
}

async fn unknown(endpoint: &Endpoint, dialer: &dyn Dial) -> Option<Fingerprint> {
    let meet = |trust: Trust| async move {
        let secure = Secure::new(trust, None, Protocol::Http1).ok()?;
        let stream = dialer.dial(&endpoint.host, endpoint.port).await.ok()?;
        Some(secure.connect(stream, &endpoint.host).await)
    };
    if meet(Trust::System).await?.is_ok() {
        return None;
    }
    meet(Trust::Anybody).await?.ok().map(|stream| shown(&stream))
}

fn silent(endpoint: &Endpoint, jump: &[Hop]) -> Finding {
    let message = format!("whoever listens at {endpoint} does not show who it is");
    let finding = Finding::error(Code::UNREACHABLE, None, message)
        .because(format!("the connection says nothing for {} seconds", SHOWN_WITHIN.as_secs()));
    if jump.is_empty() {
        return finding.remedy(
            "check that `proxmox.endpoint` is a Proxmox, with the right port, and whether it is well",
        );
    }
    let hops: Vec<String> = jump.iter().map(|hop| format!("`{hop}`")).collect();
    finding.because(format!("it leads through {}", hops.join(", then "))).remedy(
        "check that `proxmox.jump` leads on, and that `proxmox.endpoint` is a Proxmox, with the right port, as seen from there",
    )
}

fn not_known(endpoint: &Endpoint, fingerprint: Fingerprint) -> Finding {
    Finding::error(Code::UNTRUSTED, None, format!("nobody vouches for Proxmox at {endpoint}"))
        .because(format!("it shows a certificate with the SHA-256 {fingerprint}"))
        .remedy(format!("if that is your Proxmox, write it into the inventory:\n    proxmox: {{tls: {{sha256: \"{fingerprint}\"}}}}"))
}

fn insecure(site: Site<'_>) -> Finding {
    let message = format!("whoever answers at {} is trusted", site.desired.proxmox.endpoint);
    Finding::warning(Code::UNTRUSTED, None, message)
        .because("the inventory says `proxmox.tls: {insecure: true}`")
        .remedy("pin the certificate instead: `proxmox.tls: {sha256: \"...\"}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_reached_through_others_is_not_blamed_alone() {
        let endpoint: Endpoint = "https://10.0.0.1:8006".parse().expect("an endpoint");
        let hops = ["ssh://ann@jump.lab.example", "socks5://10.0.0.9:1080"];
        let hops = hops.map(|hop| hop.parse::<Hop>().expect("a hop"));
        let told = silent(&endpoint, &hops);
        let note = "it leads through `ssh://ann@jump.lab.example`, then `socks5://10.0.0.9:1080`";
        assert!(told.notes.iter().any(|it| it == note), "{told:?}");
        assert!(told.remedy.is_some_and(|remedy| remedy.contains("proxmox.jump")));
        let told = silent(&endpoint, &[]);
        assert!(!format!("{told:?}").contains("jump"), "{told:?}");
    }
}
