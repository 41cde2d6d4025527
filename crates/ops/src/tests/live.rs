//! Whole clusters in the lab, in process and in virtual time.

use std::sync::Arc;

use ichor_engine::{Cancel, EventSink, Journal, Past};
use ichor_lab::{Inside, Target};
use ichor_machineconfig::compose::needs;
use ichor_model::Desired;
use ichor_net::{Fingerprint, Trust};
use ichor_plan::Extent;
use ichor_port::Secret;
use ichor_sim::{
    faults::Server,
    profile::Profile,
    setup::{Setup, TOKEN, USER},
};
use ichor_spec::Sources;

use super::{resolve, rsa, site};
use crate::{
    Halt,
    bundle::{self, Signer},
    converge::{Ended, Goal, converge, first_look, look},
    live::{Keys, Live, Reach, proxmox},
    materials,
    memory::{Memory, NOW},
    secrets,
};

const INVENTORY: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp: {role: control-plane, count: 3}
  worker: {role: worker, count: 2}
";

/// The lab and what a run needs to reach it.
pub struct Rehearsal {
    pub inside: Arc<Inside>,
    pub memory: Memory,
    pub desired: Desired,
}

impl Rehearsal {
    pub fn new(inventory: &str, profile: Profile) -> Self {
        let lab = Setup::new(1, profile).build();
        let routes = ichor_lab::proxy::Routes::of(&lab).with("pve1", 8006, Target::Pve);
        let hall = Arc::new(ichor_lab::Hall::new(lab));
        let inside = Arc::new(Inside::over(hall, routes));
        let memory = Memory::default();
        // Certificates are checked by the real clock.
        memory.later.set(ichor_lab::real_time().unix_seconds() - NOW);
        let desired = resolve(inventory);
        secrets::new(&memory, site(&desired), || Ok(rsa())).expect("secrets");
        Self { inside, memory, desired }
    }

    pub fn reach(&self) -> Reach {
        let (pin, secret) = self.inside.hall().look(|lab| {
            let persona = lab.own_persona().expect("a persona");
            let token = &lab.pve.access.users[USER].tokens[TOKEN];
            (Fingerprint::of(&persona.certificates[0]), token.secret.clone())
        });
        let token = Secret::new(format!("{USER}!{TOKEN}={secret}"));
        Reach {
            dialer: Arc::clone(&self.inside) as _,
            proxmox: Trust::Pin(pin),
            factory: Trust::Pin(pin),
            token: ichor_pve::Token::parse(&token).expect("a token"),
        }
    }

    pub async fn run(&self, goal: Goal) -> Ended {
        Box::pin(self.try_run(goal)).await.unwrap_or_else(|halt| panic!("{:?}", halt.findings))
    }

    pub async fn try_run(&self, goal: Goal) -> Result<Ended, Halt> {
        self.with(async |live| {
            let observed = look(live).await.expect("a look");
            let journal = Journal::new("test", Box::new(()));
            let events: Arc<dyn EventSink> = Arc::new(());
            converge(live, &goal, observed, &journal, Past::default(), &events, &Cancel::default()).await
        })
        .await
    }

    /// Does something with the cluster.
    pub async fn with<T>(&self, act: impl AsyncFnOnce(&Live<'_>) -> T) -> T {
        let mut sources = Sources::default();
        let found = bundle::of_cluster(&self.memory, site(&self.desired), None, Signer::Talos, &mut sources);
        let found = found.expect("secrets");
        let materials =
            materials::gather(&self.memory, site(&self.desired), &needs(&self.desired), &mut sources)
                .expect("materials");
        let reach = self.reach();
        let pve = proxmox(&self.desired.proxmox.endpoint, &reach).expect("a client");
        first_look(&pve, &self.desired).await.expect("a look");
        let keys = Keys::new(&self.memory, &found.bundle).expect("keys");
        let live =
            Live::new(&self.desired, pve, reach, Some((keys, &found.bundle)), &materials).expect("live");
        act(&live).await
    }

    pub fn changes(&self) -> usize {
        self.inside.hall().look(|lab| lab.ground.record.changing(Server::Pve).count())
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_up_stays_as_it_is_and_goes() {
    let rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    let ended = rehearsal.run(Goal::up()).await;
    assert!(ended.done, "{:#?}", ended.report);
    let changes = rehearsal.changes();
    let again = rehearsal.run(Goal::up()).await;
    assert!(again.done && again.report.is_none());
    assert_eq!(rehearsal.changes(), changes, "the second run changes nothing");
    let gone = rehearsal.run(Goal::Gone(Extent::Everything)).await;
    assert!(gone.done, "{:#?}", gone.report);
    rehearsal.inside.hall().look(|lab| assert!(lab.pve.vms.is_empty()));
}

/// The plan was made before somebody protected it.
#[tokio::test(start_paused = true)]
async fn a_vm_that_somebody_protects_is_not_deleted() {
    let rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    assert!(rehearsal.run(Goal::up()).await.done);
    let vmid = rehearsal.desired.machines[0].vmid;
    let protect = |value: &str| {
        rehearsal.inside.hall().visit(|lab| {
            let vm = lab.pve.vms.get_mut(&vmid).expect("a VM");
            vm.config.current.insert("protection".into(), value.into());
        });
    };
    protect("1");
    let kept = rehearsal.run(Goal::Gone(Extent::Machines)).await;
    assert!(!kept.done);
    let report = format!("{:?}", kept.report);
    assert!(report.contains("somebody has protected it"), "{report}");
    rehearsal.inside.hall().look(|lab| {
        assert_eq!(lab.pve.vms.keys().collect::<Vec<_>>(), [&vmid]);
    });
    protect("0");
    assert!(rehearsal.run(Goal::Gone(Extent::Machines)).await.done);
}
