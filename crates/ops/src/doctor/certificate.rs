//! Who answers as Proxmox, and for how long that is vouched for.

use std::time::Duration;

use ichor_machineconfig::pki::{Certificate, Timestamp};
use ichor_model::{Code, Finding};
use ichor_net::{
    Dial, Endpoint, Fingerprint, Trust,
    tls::{self, Protocol, Secure},
};
use tokio::time::timeout;

use super::{Check, Group, WITHIN};

/// A certificate that ends within this time is worth a warning. Proxmox renews its own two weeks ahead.
const SOON: Duration = Duration::from_hours(30 * 24);
const ID: &str = "tls";

/// Looks at the certificate of Proxmox. `vouched` says in words who vouches for it.
pub async fn examine(
    endpoint: &str,
    trust: &Trust,
    vouched: &str,
    dialer: &dyn Dial,
    now: Timestamp,
) -> Check {
    let at: Endpoint = match endpoint.parse() {
        Ok(at) => at,
        Err(error) => {
            let error: ichor_net::NotAnEndpoint = error;
            return Check::unknown(ID, Group::Proxmox, error.to_string());
        }
    };
    if !at.tls {
        return Check::new(ID, Group::Proxmox, "the connection is not encrypted").with([plain(endpoint)]);
    }
    let shown = match meet(&at, Trust::Anybody, dialer).await {
        Ok(shown) => shown,
        Err(why) => {
            return Check::new(ID, Group::Proxmox, "nobody shows a certificate")
                .with([silent(endpoint, &why)]);
        }
    };
    let (says, ends) = match Certificate::from_der(&shown) {
        Ok(certificate) => {
            let ends = certificate.not_after();
            (format!("{vouched}; it ends on {}", day(ends)), Some(ends))
        }
        Err(_) => (vouched.to_owned(), None),
    };
    let check = Check::new(ID, Group::Proxmox, says);
    let check = check.with(ends.and_then(|ends| ending(ends, now, trust)));
    match meet(&at, trust.clone(), dialer).await {
        Ok(_) => check,
        Err(why) => check.with([not_trusted(endpoint, &why, &shown)]),
    }
}

async fn meet(at: &Endpoint, trust: Trust, dialer: &dyn Dial) -> Result<Vec<u8>, String> {
    let secure = Secure::new(trust, None, Protocol::Http1).map_err(|error| error.to_string())?;
    let met = async {
        let stream = dialer.dial(&at.host, at.port).await.map_err(|error| error.to_string())?;
        let stream = secure.connect(stream, &at.host).await.map_err(|error| error.to_string())?;
        Ok(tls::certificate(&stream).to_vec())
    };
    let late = |_| format!("it says nothing for {} seconds", WITHIN.as_secs());
    timeout(WITHIN, met).await.map_err(late)?
}

/// Returns the day of a time.
fn day(time: Timestamp) -> String {
    time.to_string().split('T').next().unwrap_or_default().to_owned()
}

fn ending(ends: Timestamp, now: Timestamp, trust: &Trust) -> Option<Finding> {
    if ends > now.plus(SOON) {
        return None;
    }
    let over = ends <= now;
    let message = if over {
        format!("the certificate of Proxmox has ended on {}", day(ends))
    } else {
        format!("the certificate of Proxmox ends on {}", day(ends))
    };
    let finding = Finding::warning(Code::CERTIFICATE_ENDS, None, message);
    Some(match trust {
        Trust::Pin(_) => finding
            .because("it is pinned: a new one has another fingerprint, and would be refused")
            .remedy("renew it, and write its fingerprint as `proxmox.tls.sha256`:\n    openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem"),
        _ => finding
            .because("nobody vouches for it after that")
            .remedy("renew it on the host:\n    pvecm updatecerts --force && systemctl restart pveproxy"),
    })
}

fn plain(endpoint: &str) -> Finding {
    Finding::warning(Code::PLAIN_HTTP, None, format!("{endpoint} is plain HTTP"))
        .because("the token goes over the wire for everybody to read")
        .remedy("write `https://`")
}

fn silent(endpoint: &str, why: &str) -> Finding {
    Finding::error(Code::UNREACHABLE, None, format!("Proxmox is not reached at {endpoint}"))
        .because(why)
        .remedy("check `proxmox.endpoint`, and whether it is reached from here")
}

fn not_trusted(endpoint: &str, why: &str, shown: &[u8]) -> Finding {
    let fingerprint = Fingerprint::of(shown);
    Finding::error(Code::UNTRUSTED, None, format!("nobody vouches for Proxmox at {endpoint}"))
        .because(why)
        .because(format!("it shows a certificate with the SHA-256 {fingerprint}"))
        .remedy(format!(
            "compare it with what the host says:\n    openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem\nif that is your Proxmox, write it into the inventory:\n    proxmox: {{tls: {{sha256: \"{fingerprint}\"}}}}"
        ))
}
