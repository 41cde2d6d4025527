//! Tokens that were made, in an encrypted file that the inventory refers to.

use std::path::PathBuf;

use ichor_machineconfig::secrets::SecretText;
use ichor_model::{Code, Finding, Findings, SecretRef};
use ichor_sops::{Format, Tree, seal};
use zeroize::Zeroizing;

use crate::{
    Halt, Keeping, Site, System,
    halt::only,
    keyring::Keyring,
    recipients, sealing,
    secrets::{Holding, Subject},
    store::Store,
    whole,
};

/// Where tokens are kept, beside the inventory: encrypted, and so no secret.
pub const FILE: &str = "tokens.sops.yaml";
/// The last key of the token that a cluster is run with.
pub const OWN: &str = "proxmox";
/// Where those of a lab are kept, in plain: they open nothing.
const PLAIN: &str = "tokens.yaml";

/// Where a token is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The file, as the inventory names it.
    pub name: String,
    /// The keys that lead to it, joined by dots.
    pub key: String,
}

impl Place {
    /// Returns where a token is kept: where the inventory looks for it already, or else in a file of its own.
    pub fn of(site: Site<'_>, purpose: &str, given: Option<&str>) -> Result<Self, Halt> {
        let own = format!("{}.{purpose}", site.name());
        let place = |name: &str, key: String| Self { path: site.path(name), name: name.to_owned(), key };
        if site.keeping == Keeping::Plain {
            let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
            let path = store.file(PLAIN);
            return Ok(Self { name: path.display().to_string(), path, key: own });
        }
        if let Some(name) = given {
            return Ok(place(name, own));
        }
        match &site.desired.proxmox.token {
            Some(SecretRef::Sops(said)) if purpose == OWN => {
                let (name, key) = said.split_once('#').unwrap_or((said, &own));
                Ok(place(name, key.to_owned()))
            }
            _ => Ok(place(FILE, own)),
        }
    }

    /// Returns the reference that an inventory finds it by.
    pub fn reference(&self) -> String {
        format!("{}#{}", self.name, self.key)
    }

    fn keys(&self) -> Vec<&str> {
        self.key.split('.').collect()
    }

    /// Returns the token that is kept, if there is one.
    pub fn read(&self, system: &dyn System, site: Site<'_>) -> Result<Option<SecretText>, Halt> {
        let holding = Holding::read(system, site, Subject::File(&self.path))?;
        let Some(before) = &holding.before else { return Ok(None) };
        let found = match site.keeping {
            Keeping::Plain => self.parsed(before)?.find(&self.keys()),
            Keeping::Encrypted => holding.open(&Keyring::load(system))?.plain().find(&self.keys()),
        };
        Ok(found.map(SecretText::from))
    }

    /// Makes sure, before there is a token, that it can be kept: that the file can be opened, or that somebody can
    /// open a new one. A key is made for whoever has none.
    pub fn prepare(&self, system: &dyn System, site: Site<'_>) -> Result<Findings, Halt> {
        if site.keeping == Keeping::Plain {
            return Ok(Findings::new());
        }
        let holding = Holding::read(system, site, Subject::File(&self.path))?;
        let mut ring = Keyring::load(system);
        if holding.before.is_some() {
            let plain = holding.open(&ring)?.plain().clone();
            self.set_in(plain, "")?;
            return Ok(Findings::new());
        }
        let chosen = recipients::choose(system, site, &self.path, &mut ring)?;
        Ok(chosen.note().into_iter().collect())
    }

    /// Keeps a token, beside whatever else is in the file.
    pub fn write(&self, system: &dyn System, site: Site<'_>, token: &str) -> Result<(), Halt> {
        if site.keeping == Keeping::Plain {
            return self.write_plain(system, site, token);
        }
        let holding = Holding::read(system, site, Subject::File(&self.path))?;
        let mut ring = Keyring::load(system);
        let now = system.now().to_string();
        let sealed = if holding.before.is_some() {
            let opened = holding.open(&ring)?;
            let tree = self.set_in(opened.plain().clone(), token)?;
            sealing::drawing(system, &holding.shown(), |entropy| opened.reseal(&tree, &now, entropy))?
        } else {
            let chosen = recipients::choose(system, site, &self.path, &mut ring)?;
            let tree = self.set_in(Tree::default(), token)?;
            sealing::drawing(system, &holding.shown(), |entropy| {
                seal(&tree, holding.format(), &chosen.policy, &now, entropy)
            })?
        };
        holding.write(system, &sealed).map(drop)
    }

    fn write_plain(&self, system: &dyn System, site: Site<'_>, token: &str) -> Result<(), Halt> {
        let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
        let _lock = store.hold(system)?;
        let holding = Holding::read(system, site, Subject::File(&self.path))?;
        let before = holding.before.as_deref().map(|bytes| self.parsed(bytes)).transpose()?;
        let text = self.set_in(before.unwrap_or_default(), token)?.to_text(Format::Yaml);
        whole::replace(system, &self.path, text.as_bytes())
            .map_err(|error| Halt::unwritable(&self.path, &error))
    }

    fn parsed(&self, bytes: &[u8]) -> Result<Tree, Halt> {
        Tree::parse(bytes, Format::Yaml)
            .map_err(|flaw| Halt::invalid(only(crate::keyring::sealed_finding(&flaw, &self.name))))
    }

    fn set_in(&self, mut tree: Tree, token: &str) -> Result<Tree, Halt> {
        if tree.set(&self.keys(), Zeroizing::new(token.to_owned())) {
            return Ok(tree);
        }
        let message = format!("there is no place for `{}` in `{}`", self.key, self.name);
        Err(Halt::invalid(only(
            Finding::error(Code::ACCOUNT, None, message)
                .because("one of the keys that lead to it has a value of its own")
                .remedy("name another file with `--into`"),
        )))
    }
}
