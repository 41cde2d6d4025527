//! Access that is kept beside the secrets, and made anew when it does not lead to the cluster any more.

use std::{path::Path, time::Duration};

use ichor_machineconfig::{
    kubeconfig::InUse,
    pki::{Certificate, Timestamp},
    talosconfig::Talosconfig,
};

use super::{Kind, MAX_BYTES, Made, would_lose};
use crate::{Halt, System, system::Links, whole};

/// Access that ends within this time is made anew.
const SOON: Duration = Duration::from_hours(30 * 24);

/// Keeps access in a file of ichor's own. What is there stays if it leads to the same places, is signed by the same
/// authority, and does not end soon. What else somebody has put into the file is not lost: it is moved aside.
pub fn keep_current(system: &dyn System, made: &Made, path: &Path) -> Result<(), Halt> {
    let unwritable = |error: std::io::Error| Halt::unwritable(path, &error);
    if let Ok(contents) = system.read(path, MAX_BYTES, Links::Refuse) {
        if is_current(made, &contents.bytes, system.now()) {
            return Ok(());
        }
        let empty = contents.bytes.iter().all(u8::is_ascii_whitespace);
        if !empty && would_lose(made, &contents.bytes).is_some() {
            let mut old = path.as_os_str().to_owned();
            old.push(".old");
            system.rename(path, Path::new(&old)).map_err(unwritable)?;
        }
    }
    whole::replace(system, path, made.text.expose().as_bytes()).map_err(unwritable)
}

/// Whether a file is as good as the one that was made.
fn is_current(made: &Made, there: &[u8], now: Timestamp) -> bool {
    let read = |text: &str| match made.kind {
        Kind::Kubeconfig => Lead::of_kubeconfig(text),
        Kind::Talosconfig => Lead::of_talosconfig(text),
        Kind::Bundle => None,
    };
    let new = read(made.text.expose());
    let old = std::str::from_utf8(there).ok().and_then(read);
    new.zip(old).is_some_and(|(new, old)| old.is_as_good_as(&new, now))
}

/// Where access leads, and what vouches for it.
struct Lead {
    to: Vec<String>,
    authority: Certificate,
    client: Certificate,
}

impl Lead {
    fn of_kubeconfig(text: &str) -> Option<Self> {
        let InUse { server, authority, client } = InUse::read(text)?;
        Some(Self { to: vec![server], authority, client: client.certificate })
    }

    fn of_talosconfig(text: &str) -> Option<Self> {
        let config = Talosconfig::parse(text).ok()?;
        let context = config.context(None)?;
        let credentials = context.credentials.clone()?;
        let (authority, client) = (credentials.authority, credentials.client.certificate);
        Some(Self { to: context.endpoints.clone(), authority, client })
    }

    fn is_as_good_as(&self, new: &Self, now: Timestamp) -> bool {
        let lasts = [now, now.plus(SOON)].into_iter().all(|time| self.client.check_validity(time).is_ok());
        let same = self.to == new.to && self.authority.der() == new.authority.der();
        same && lasts && self.client.is_signed_by(&new.authority)
    }
}
