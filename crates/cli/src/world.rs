//! The world that a live verb acts on: the Proxmox of the inventory, or a lab in its place.

pub mod jump;
mod lab;
pub mod real;

use std::{path::PathBuf, sync::Arc};

use ichor_model::{Desired, Findings};
use ichor_net::{Dial, Trust};
use ichor_ops::{Halt, Keeping, Site, halt::only, live::Reach, store::Store};
use ichor_pve::Token;
use tokio::runtime::Runtime;

pub use self::lab::LabRun;
use crate::{args::Place, operating_system::OperatingSystem, terminal::Terminal};

/// A world that was opened.
#[derive(Debug)]
pub struct World {
    /// How it is reached.
    pub reach: Reach,
    /// The lab, if it is one.
    pub lab: Option<LabRun>,
    /// What is to be said about how it is reached.
    pub findings: Findings,
}

/// What of a world can be had, each part by itself.
pub struct Parts {
    /// Makes connections.
    pub dialer: Result<Arc<dyn Dial>, Halt>,
    /// The token that Proxmox knows us by.
    pub token: Result<Token, Halt>,
    /// Whom to trust as Proxmox.
    pub trust: Result<Vouched, Halt>,
    /// Whom to trust as the Image Factory.
    pub factory: Trust,
    /// The lab, if it is one.
    pub lab: Option<LabRun>,
}

/// The way to Proxmox, and whom to trust there.
pub struct Door {
    /// Makes connections.
    pub dialer: Arc<dyn Dial>,
    /// Whom to trust.
    pub trust: Trust,
    /// The lab, if it is one.
    pub lab: Option<LabRun>,
    /// What is to be said about how it is reached.
    pub findings: Findings,
}

/// Whom to trust, and why.
#[derive(Debug)]
pub struct Vouched {
    /// Whom.
    pub trust: Trust,
    /// Who vouches for them, in words.
    pub words: String,
    /// What is to be said about that.
    pub findings: Findings,
}

impl World {
    /// Opens the world of a cluster.
    pub fn open(
        place: Place<'_>,
        site: Site<'_>,
        runtime: &Runtime,
        terminal: &Terminal,
    ) -> Result<Self, Halt> {
        match place {
            Place::Real => real::open(&OperatingSystem, site, runtime, terminal),
            Place::Lab => lab::open(site, lab_file(site)?, runtime),
            Place::LabIn(file) => lab::open(site, file.to_owned(), runtime),
        }
    }

    /// Finds what of a cluster's world can be had, each part by itself. Nobody is asked whom to trust, and nothing is
    /// written.
    pub fn parts(
        place: Place<'_>,
        site: Site<'_>,
        runtime: &Runtime,
        terminal: &Terminal,
    ) -> Result<Parts, Halt> {
        if place == Place::Real {
            return Ok(real::parts(&OperatingSystem, site, runtime, terminal));
        }
        let Self { reach, lab, findings } = Self::open(place, site, runtime, terminal)?;
        let trust = Vouched { trust: reach.proxmox, words: "the lab's own certificate".into(), findings };
        Ok(Parts {
            dialer: Ok(reach.dialer),
            token: Ok(reach.token),
            trust: Ok(trust),
            factory: reach.factory,
            lab,
        })
    }

    /// Opens the way to the Proxmox of a cluster, and says whom to trust there. For that nobody needs a token.
    pub fn door(
        place: Place<'_>,
        site: Site<'_>,
        runtime: &Runtime,
        terminal: &Terminal,
    ) -> Result<Door, Halt> {
        if place == Place::Real {
            return real::door(&OperatingSystem, site, runtime, terminal);
        }
        let Self { reach, lab, findings } = Self::open(place, site, runtime, terminal)?;
        Ok(Door { dialer: reach.dialer, trust: reach.proxmox, lab, findings })
    }

    /// Opens the way to a cluster alone, for which nobody needs a token.
    pub fn way(
        place: Place<'_>,
        site: Site<'_>,
        runtime: &Runtime,
        terminal: &Terminal,
    ) -> Result<(Arc<dyn Dial>, Option<LabRun>), Halt> {
        if place == Place::Real {
            return jump::open(site.desired, runtime, terminal).map(|way| (way, None));
        }
        Self::open(place, site, runtime, terminal).map(|world| (world.reach.dialer, world.lab))
    }

    /// Ends what goes on in it, and keeps a lab.
    pub fn close(self) -> Result<(), Halt> {
        self.lab.map_or(Ok(()), LabRun::close)
    }
}

/// How secrets are written in a world: those of a lab open nothing, and need no encryption.
pub const fn keeping_in(place: Place<'_>) -> Keeping {
    match place {
        Place::Real => Keeping::Encrypted,
        Place::Lab | Place::LabIn(_) => Keeping::Plain,
    }
}

/// Returns a cluster as it is in its world. What happens in a lab leaves the store of the real cluster alone: its
/// secrets are others.
pub fn desired_in(place: Place<'_>, desired: &Desired) -> Desired {
    let mut desired = desired.clone();
    if place != Place::Real {
        let (place, settings) = match desired.store.split_once('?') {
            Some((place, settings)) => (place, format!("?{settings}")),
            None => (desired.store.as_str(), String::new()),
        };
        desired.store = format!("{}/lab{settings}", place.trim_end_matches('/'));
        desired.secrets_file = None;
        desired.recipients.clear();
    }
    desired
}

/// Does something for a cluster as it is in its world.
pub fn with_site_in<T>(place: Place<'_>, site: Site<'_>, act: impl FnOnce(Site<'_>) -> T) -> T {
    let desired = desired_in(place, site.desired);
    act(Site { desired: &desired, keeping: keeping_in(place), ..site })
}

/// A lab lies beside its secrets; that of a store in a bucket, in the mirror.
fn lab_file(site: Site<'_>) -> Result<PathBuf, Halt> {
    let store = with_site_in(Place::Lab, site, Store::of).map_err(|finding| Halt::invalid(only(*finding)))?;
    Ok(store.file("lab.json"))
}
