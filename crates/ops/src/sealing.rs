//! Encrypting what is to be kept.

use ichor_machineconfig::secrets::SecretText;
use ichor_model::{Code, Finding};
use ichor_sops::{Entropy, Flaw, Format, Tree, seal};
use zeroize::Zeroizing;

use crate::{
    Halt, Keeping, Site, System,
    halt::only,
    keyring::{Keyring, sealed_finding},
    recipients::{self, Chosen},
    store::Store,
};

/// Chooses the recipients of a new bundle; nothing, if it is kept in plain.
pub fn choose(system: &dyn System, site: Site<'_>, store: &Store) -> Result<Option<Chosen>, Halt> {
    if store.keeping() == Keeping::Plain {
        return Ok(None);
    }
    recipients::choose(system, site, store.bundle(), &mut Keyring::load(system)).map(Some)
}

/// Returns the file of a bundle.
pub fn file(
    system: &dyn System,
    plain: &SecretText,
    chosen: Option<&Chosen>,
) -> Result<Zeroizing<Vec<u8>>, Halt> {
    let bytes = plain.expose().as_bytes();
    let Some(chosen) = chosen else { return Ok(Zeroizing::new(bytes.to_vec())) };
    let now = system.now().to_string();
    let sealed = drawing(system, "the secrets", |entropy| {
        seal(&Tree::parse(bytes, Format::Yaml)?, Format::Yaml, &chosen.policy, &now, entropy)
    })?;
    Ok(Zeroizing::new(sealed.to_text().into_bytes()))
}

/// Encrypts something with the machine's randomness, and keeps it only if there was some.
pub fn drawing<T>(
    system: &dyn System,
    shown: &str,
    act: impl FnOnce(Entropy<'_>) -> Result<T, Flaw>,
) -> Result<T, Halt> {
    let mut failed = false;
    let made = act(&mut |buffer| failed |= system.random(buffer).is_err());
    if failed {
        let finding = Finding::error(Code::RECIPIENTS, None, format!("`{shown}` cannot be encrypted"));
        return Err(Halt::failed(only(finding.because("the system gives no random bytes"))));
    }
    made.map_err(|flaw| Halt::invalid(only(sealed_finding(&flaw, shown))))
}
