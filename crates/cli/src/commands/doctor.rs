//! `ichor doctor`: everything that could stand in the way.
//!
//! 1. The store: what it keeps counts, and the inventory is read again with that;
//! 2. what lies on this computer, and how the world is reached, part by part: one that is missing leaves the others;
//! 3. Proxmox, if it lets us in: the inventory is resolved among what is there, and everything looked at;
//! 4. where images come from, whatever became of the rest.

use std::{future::Future, sync::Arc};

use ichor_model::{Finding, Findings, World as Seen};
use ichor_net::Dial;
use ichor_ops::{
    Halt, Site, System,
    converge::first_look,
    doctor::{
        self, Check, Examination, Group, State, Suppliers, certificate,
        here::{self, Here},
        store::{self, Asked, Visitor},
    },
    halt::only,
    keep::Keep,
    live::{Keys, Live, Reach, proxmox},
    observe::Survey,
    secrets,
    store::Store,
};
use ichor_spec::Sources;
use tokio::runtime::Runtime;

use super::session::{Gate, Session};
use crate::{
    args::{Global, Place},
    clusters,
    exit::Exit,
    failure::Failure,
    keeping,
    operating_system::OperatingSystem,
    render::{
        doctor::{document, exit, text},
        progress::Wait,
    },
    terminal::Terminal,
    world::{Parts, World, with_site_in},
};

/// What nobody can tell without Proxmox.
const INSIDE: [(&str, Group); 5] = [
    ("privileges", Group::Proxmox),
    ("hosts", Group::Hosts),
    ("storages", Group::Storage),
    ("bridges", Group::Network),
    ("vmids", Group::Machines),
];

/// The check of what the token may do and nobody needs.
const EXCESS: &str = "excess";

/// Looks at everything.
pub fn run(global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Failed, "the run cannot start").because(error.to_string()))?;
    let place = global.world.place();
    let asked = match ask_store(global, terminal, place, &runtime)? {
        Gate::Open(asked) => asked,
        Gate::Closed(exit) => return Ok(exit),
    };
    // What the store keeps says which contract a cluster was made with.
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let examined = session.with_one(|site, sources| {
        let parts = World::parts(place, site, &runtime, terminal)?;
        let doctor =
            Doctor { global, place, site, runtime: &runtime, parts: &parts, asked: &asked, terminal };
        let checks = doctor.examine(sources);
        let shown = text(site.name(), &checks, sources, terminal.width());
        let document = document(site.name(), &checks, sources);
        let ending = exit(&checks);
        parts.lab.map_or(Ok(()), crate::world::LabRun::close)?;
        Ok(((shown, document, ending), Findings::new()))
    })?;
    match examined {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((text, document, exit)) => session.end(exit, || text, || vec![document]),
    }
}

/// Asks the store of the one cluster there must be.
fn ask_store(
    global: &Global,
    terminal: &Terminal,
    place: Place<'_>,
    runtime: &Runtime,
) -> Result<Gate<Asked>, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(Gate::Closed(exit)),
    };
    session.with_one(|site, _| {
        let asked = with_site_in(place, site, |site| {
            let run = keeping::this_run("doctor")?.run;
            let opened = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)));
            Ok(match opened.and_then(|store| Ok((store, Keep::open(&OperatingSystem, site)?))) {
                Ok((store, mut keep)) => {
                    let visitor = Visitor { run: &run, is_dead: &keeping::is_dead };
                    let asked = store::examine(&OperatingSystem, &store, &mut keep, visitor);
                    Wait::on(terminal, runtime.handle(), keeping::ASKING, asked)
                }
                Err(halt) => store::unasked(&halt),
            })
        })?;
        Ok((asked, Findings::new()))
    })
}

struct Doctor<'a> {
    global: &'a Global,
    place: Place<'a>,
    site: Site<'a>,
    runtime: &'a Runtime,
    parts: &'a Parts,
    asked: &'a Asked,
    terminal: &'a Terminal,
}

impl Doctor<'_> {
    fn examine(&self, sources: &mut Sources) -> Vec<Check> {
        let waiting = Wait::new(self.terminal, "reading what the inventory names");
        let here = with_site_in(self.place, self.site, |site| {
            here::examine(&OperatingSystem, site, self.asked, sources)
        });
        drop(waiting);
        let mut checks = [self.asked.checks.clone(), here.checks.clone()].concat();
        let reached = self.reached(&here);
        // What machines show of the cluster's secrets takes the place of what this computer alone could say.
        if reached.iter().any(|check| check.id == here::SECRETS) {
            checks.retain(|check| check.id != here::SECRETS);
        }
        checks.extend(reached);
        checks.sort_by_key(|check| check.group);
        checks
    }

    /// Waits for what somebody far away is asked.
    fn wait<F: Future>(&self, what: &'static str, asked: F) -> F::Output {
        Wait::on(self.terminal, self.runtime.handle(), what, asked)
    }

    /// Looks at all that is reached over the network.
    fn reached(&self, here: &Here) -> Vec<Check> {
        let dialer = match &self.parts.dialer {
            Ok(dialer) => dialer,
            Err(halt) => {
                let check = Check::new("answers", Group::Proxmox, "there is no way to Proxmox");
                return vec![check.with(all(halt))];
            }
        };
        let suppliers = Suppliers {
            dialer: Arc::clone(dialer),
            factory: self.parts.factory.clone(),
            registries: self.place == Place::Real,
        };
        let images = async { doctor::images(self.site.desired, &suppliers).await };
        let proxmox = async {
            let tls = self.tls(&**dialer).await;
            let (answers, survey) = self.answers(dialer, tls.state() == State::Error).await;
            (tls, answers, survey)
        };
        let both = async { tokio::join!(images, proxmox) };
        let (images, (tls, answers, survey)) =
            self.wait("asking Proxmox, the Image Factory and registries", both);
        let mut checks = vec![tls, answers];
        match survey {
            Some((reach, survey)) => checks.extend(self.inside(here, reach, &survey)),
            None => {
                checks.extend(INSIDE.map(|(id, group)| Check::unknown(id, group, "Proxmox does not tell")));
            }
        }
        checks.extend(images);
        checks
    }

    async fn tls(&self, dialer: &dyn Dial) -> Check {
        match &self.parts.trust {
            Ok(vouched) => {
                let endpoint = &self.site.desired.proxmox.endpoint;
                let now = OperatingSystem.now();
                let check = certificate::examine(endpoint, &vouched.trust, &vouched.words, dialer, now).await;
                check.with(vouched.findings.iter().cloned())
            }
            Err(halt) => Check::new("tls", Group::Proxmox, "nobody can tell whom to trust").with(all(halt)),
        }
    }

    /// Looks at Proxmox, with the token. A `stranger` is not asked, and does not get to see it.
    async fn answers(&self, dialer: &Arc<dyn Dial>, stranger: bool) -> (Check, Option<(Reach, Survey)>) {
        let check = |says: String| Check::new("answers", Group::Proxmox, says);
        let endpoint = &self.site.desired.proxmox.endpoint;
        let token = match &self.parts.token {
            Ok(token) => token.clone(),
            Err(halt) => {
                let says = "there is no token to log in with; `ichor pve setup` makes one".to_owned();
                return (check(says).with(all(halt)), None);
            }
        };
        let Some(vouched) = self.parts.trust.as_ref().ok().filter(|_| !stranger) else {
            let says = "nobody was asked, and no token was sent: see `tls`";
            return (Check::unknown("answers", Group::Proxmox, says), None);
        };
        let reach = Reach {
            dialer: Arc::clone(dialer),
            proxmox: vouched.trust.clone(),
            factory: self.parts.factory.clone(),
            token,
        };
        let looked = match proxmox(endpoint, &reach) {
            Ok(pve) => first_look(&pve, self.site.desired).await,
            Err(halt) => Err(halt),
        };
        match looked {
            Ok(survey) => {
                let says = format!("{endpoint} lets token `{}` in", reach.token.id());
                (check(says), Some((reach, survey)))
            }
            Err(halt) => (check(format!("{endpoint} gives no answer")).with(all(&halt)), None),
        }
    }

    /// Looks at everything that Proxmox lets us see, with the inventory resolved among what is there.
    fn inside(&self, here: &Here, reach: Reach, survey: &Survey) -> Vec<Check> {
        let seen = survey.world(self.site.desired);
        let resolved = self.resolved(&seen);
        let before = self.resolved(&Seen::default());
        let known: Vec<&Finding> = before.findings.iter().collect();
        let placed: Findings =
            resolved.findings.iter().filter(|finding| !known.contains(finding)).cloned().collect();
        let site = resolved.list.first().and_then(clusters::Cluster::site).unwrap_or(self.site);
        with_site_in(self.place, site, |site| {
            self.examination(here, reach, survey, site, &placed)
                .unwrap_or_else(|halt| vec![Check::new("machines", Group::Machines, "").with(all(&halt))])
        })
    }

    fn resolved(&self, seen: &Seen) -> clusters::Clusters {
        clusters::load(self.global.file.as_deref(), self.global.cluster.as_deref(), seen)
    }

    fn examination(
        &self,
        here: &Here,
        reach: Reach,
        survey: &Survey,
        site: Site<'_>,
        placed: &Findings,
    ) -> Result<Vec<Check>, Halt> {
        let system = &OperatingSystem;
        let pve = proxmox(&site.desired.proxmox.endpoint, &reach)?;
        let bundle = here.secrets.as_ref().map(|found| &found.bundle);
        let keys = bundle.map(|bundle| Keys::new(system, bundle)).transpose()?;
        let live = Live::new(site.desired, pve, reach, keys.zip(bundle), &here.materials)?;
        let looked = Examination::new(&live, survey, self.site.desired, system.now());
        let examined = self.wait("looking at Proxmox and the network", looked);
        let mut checks = examined.checks(placed);
        if self.place != Place::Real {
            checks.iter_mut().filter(|check| check.id == EXCESS).for_each(of_a_lab);
        }
        if here.has_none
            && let Ok(store) = Store::of(site)
            && let Some(lost) = secrets::lost(&OperatingSystem, &store, examined.observed())
        {
            checks.push(here::lost(lost));
        }
        Ok(checks)
    }
}

/// The token of a lab is an administrator's whatever anybody does, and nobody can steal anything with it.
fn of_a_lab(excess: &mut Check) {
    *excess = Check::new(EXCESS, excess.group, "the token of a lab may do everything");
}

fn all(halt: &Halt) -> Vec<Finding> {
    halt.findings.iter().cloned().collect()
}
