//! Every way to boot: from nothing to Ready and back to nothing, each in the lab that its inventory takes for
//! granted.

use std::{path::Path, sync::Arc};

use ichor_engine::Outcome;
use ichor_lab::{Inside, proxy::Routes};
use ichor_model::{Desired, Findings, World};
use ichor_plan::Extent;
use ichor_sim::{Lab, faults::Server, profile::Profile, pve::release::Release, rehearsal};
use ichor_spec::{Layers, Sources};

use super::{live::Rehearsal, rsa, site};
use crate::{
    converge::{Ended, Goal},
    memory::{Memory, NOW},
    secrets,
};

/// A cluster in its lab.
struct Trial(Rehearsal);

impl Trial {
    fn of(desired: Desired, release: Release) -> Self {
        Self::prepared(desired, release, |_| {})
    }

    /// Begins in a lab that was changed before anybody came.
    fn prepared(desired: Desired, release: Release, prepare: impl FnOnce(&mut Lab)) -> Self {
        let mut lab = rehearsal::setup(&desired, 1, Profile::Lab, release);
        prepare(&mut lab);
        let routes = Routes::of_cluster(&lab, &desired);
        let inside = Arc::new(Inside::over(Arc::new(ichor_lab::Hall::new(lab)), routes));
        let variables =
            ["HEADSCALE_AUTH_KEY", "FLUX_GIT_TOKEN"].map(|name| (name.to_owned(), "s3cret".to_owned()));
        let memory = Memory { variables: variables.into(), ..Memory::default() };
        memory.later.set(ichor_lab::real_time().unix_seconds() - NOW);
        secrets::new(&memory, site(&desired), || Ok(rsa())).expect("secrets");
        Self(Rehearsal { inside, memory, desired })
    }

    fn lab<T>(&self, look: impl FnOnce(&Lab) -> T) -> T {
        self.0.inside.hall().look(look)
    }

    /// Returns the calls that changed something: of Proxmox and the machines.
    fn changes(&self) -> usize {
        self.lab(|lab| {
            let record = &lab.ground.record;
            record.changing(Server::Pve).count() + record.changing(Server::Talos).count()
        })
    }

    async fn up(&self) -> Ended {
        let ended = self.0.run(Goal::up()).await;
        assert!(ended.done, "{}", failures(&ended));
        ended
    }

    /// A second run has nothing to do, and does nothing.
    async fn idle(&self) {
        let changes = self.changes();
        let again = self.up().await;
        assert!(again.report.is_none(), "{:?}", again.report);
        assert_eq!(self.changes(), changes, "the second run changes nothing");
    }

    /// Everything of ours goes, and nothing else.
    async fn gone(&self) {
        let gone = self.0.run(Goal::Gone(Extent::Everything)).await;
        assert!(gone.done, "{}", failures(&gone));
        self.lab(|lab| {
            let left: Vec<_> = lab.pve.vms.iter().filter(|(_, vm)| !vm.config.is_template()).collect();
            assert!(left.is_empty(), "{left:?}");
            let storages = serde_json::to_string(&lab.pve.storage).expect("storages");
            let left = storages.find("ichor-").map(|at| &storages[at..storages.len().min(at + 80)]);
            assert_eq!(left, None, "files of ours are left");
        });
    }

    async fn there_and_back(&self) {
        self.up().await;
        self.idle().await;
        self.gone().await;
    }
}

/// Says which steps failed, and which were never done although none failed.
fn failures(ended: &Ended) -> String {
    let Some(report) = &ended.report else { return "nothing was done".into() };
    let outcomes = report.outcomes.iter();
    let failed = outcomes.filter(|(_, outcome)| matches!(outcome, Outcome::Failed { .. }));
    failed.map(|(step, outcome)| format!("{step}: {outcome:?}\n")).collect()
}

fn example(name: &str) -> Desired {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut sources = Sources::default();
    let mut add = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("an example");
        sources.add(path.display().to_string(), text)
    };
    let home = root.join(name);
    let defaults = home.parent().map(|parent| parent.join("defaults.yaml")).filter(|path| path.exists());
    let defaults = defaults.iter().map(|path| add(path)).collect();
    let mut files: Vec<_> =
        std::fs::read_dir(&home).expect("an example").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let files = files.iter().map(|path| add(path)).collect();
    let layers = Layers { defaults, files };
    let mut findings = Findings::new();
    let loaded = ichor_spec::load(&sources, &layers, &mut findings).expect("an inventory");
    let resolution = ichor_plan::resolve(&loaded, &World::default());
    resolution.desired.unwrap_or_else(|| panic!("{:?}", resolution.findings))
}

async fn rehearse(name: &str) {
    Trial::of(example(name), Release::V9_2).there_and_back().await;
}

#[tokio::test(start_paused = true)]
async fn minimal() {
    rehearse("minimal").await;
}

#[tokio::test(start_paused = true)]
async fn capacity() {
    rehearse("capacity").await;
}

#[tokio::test(start_paused = true)]
async fn environments() {
    rehearse("environments/dev").await;
    rehearse("environments/prod").await;
}

#[tokio::test(start_paused = true)]
async fn private_network() {
    rehearse("private-network").await;
}

#[tokio::test(start_paused = true)]
async fn tailscale() {
    rehearse("tailscale").await;
}

#[tokio::test(start_paused = true)]
async fn templates() {
    rehearse("templates").await;
}
