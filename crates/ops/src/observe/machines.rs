//! Looking at machines.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use ichor_model::{
    Desired, MachineName, Observed,
    desired::{Machine, Role},
    observed::{MachineSeen, MemberSeen, Owner, Sight, TalosSeen},
};
use ichor_pve::{api as pve, ownership::Whose};
use ichor_talos::{Code, Error, Face, Talos, api, peek, resource::MachineStatus};

use tokio::time::timeout;

use super::{Found, Survey, last::Last};
use crate::live::Live;

/// Members of etcd by name.
pub type Members = Sight<BTreeMap<String, MemberSeen>>;

/// The last list of members.
pub type LastMembers = Last<Members>;

/// How long somebody whom nobody expects may take for a handshake.
const PEEK_WITHIN: Duration = Duration::from_secs(5);

/// Where servers usually listen: the Talos API and Kubernetes first.
const COMMON_PORTS: [u16; 5] = [50000, 6443, 22, 443, 80];
/// How long somebody on the same network may take to open the door.
const KNOCK_WITHIN: Duration = Duration::from_secs(3);

impl Live<'_> {
    /// Looks at a machine, if its VM runs. At the address of one that does not, only somebody else can be.
    pub(super) async fn see_machine_of_vm(
        &self,
        machine: &Machine,
        observed: &Observed,
    ) -> Sight<MachineSeen> {
        let vm = observed.vms.get(&machine.vmid);
        match vm {
            Some(Sight::Seen(Some(vm))) if vm.owner == Owner::Ours && vm.running => {
                self.see_machine(machine).await
            }
            Some(Sight::Unseen(_)) => self.see_machine(machine).await,
            _ => match self.see_face(machine).await {
                Sight::Seen(MachineSeen::Maintenance) => Sight::Seen(MachineSeen::Stranger(
                    "a machine in maintenance mode answers there, and it is not this VM".into(),
                )),
                Sight::Seen(MachineSeen::Ours(_)) => {
                    Sight::Seen(MachineSeen::Stranger("another machine of this cluster answers there".into()))
                }
                Sight::Seen(MachineSeen::Silent(_)) => {
                    let there = matches!(vm, Some(Sight::Seen(Some(vm))) if vm.owner == Owner::Ours);
                    let why = if there { "its VM is off" } else { "it has no VM yet" };
                    Sight::Seen(MachineSeen::Silent(why.into()))
                }
                seen => seen,
            },
        }
    }

    /// Looks at who has the VIP, as long as nobody of ours can have it: a control plane takes it once etcd runs.
    pub(super) async fn see_vip(&self, observed: &Observed) -> Sight<Option<String>> {
        let Some(vip) = self.desired.cluster.endpoint.vip else { return Sight::default() };
        let fresh = |machine: &Machine| {
            matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(None)))
                || matches!(observed.machines.get(&machine.name), Some(Sight::Seen(MachineSeen::Maintenance)))
        };
        if !self.control_planes().all(fresh) {
            return Sight::default();
        }
        let host = vip.to_string();
        let knocks = COMMON_PORTS.map(|port| {
            let host = host.clone();
            async move {
                let dialled = timeout(KNOCK_WITHIN, self.reach.dialer.dial(&host, port)).await;
                dialled.is_ok_and(|stream| stream.is_ok()).then_some(port)
            }
        });
        let open: Vec<u16> = join_all(knocks).await.into_iter().flatten().collect();
        let Some(port) = open.first() else { return Sight::Seen(None) };
        // A control plane that the inventory has given another address may have it.
        if self.is_ours_at(vip).await {
            return Sight::Seen(None);
        }
        let why = format!("something answers at {vip}, port {port}, and no machine of ours can have it yet");
        Sight::Seen(Some(why))
    }

    async fn is_ours_at(&self, address: IpAddr) -> bool {
        let Some(keys) = &self.keys else { return false };
        match self.memory.talos(address, || keys.talos(address, Arc::clone(&self.reach.dialer))) {
            Ok(talos) => talos.send(&api::version()).await.is_ok(),
            Err(_) => false,
        }
    }

    /// Looks at who a machine is, and at nothing more.
    pub(crate) async fn see_face(&self, machine: &Machine) -> Sight<MachineSeen> {
        self.meet(
            machine,
            |talos| async move { talos.send(&api::version()).await.map(|_| TalosSeen::default()) },
        )
        .await
    }

    /// Looks at which boot of a machine this is.
    pub(super) async fn see_boot(&self, machine: &Machine) -> Sight<MachineSeen> {
        self.meet(machine, |talos| async move {
            let boot = match talos.boot_id().await {
                Ok(boot) => Some(boot),
                // Who may not or cannot say it is believed without.
                Err(error)
                    if matches!(
                        error.code(),
                        Some(Code::PermissionDenied | Code::Unimplemented | Code::NotFound)
                    ) =>
                {
                    None
                }
                Err(error) => return Err(error),
            };
            Ok(TalosSeen { boot, ..TalosSeen::default() })
        })
        .await
    }

    /// Looks at a machine: its stage, its release, and its etcd.
    pub(super) async fn see_machine(&self, machine: &Machine) -> Sight<MachineSeen> {
        self.meet(machine, |talos| async move { Box::pin(look(&talos)).await }).await
    }

    /// Looks at a machine that may have had etcd on it. Nothing can have been on one that this run has made.
    pub(super) async fn see_past(&self, machine: &Machine) -> Sight<MachineSeen> {
        match self.see_machine(machine).await {
            Sight::Seen(MachineSeen::Ours(talos)) => Sight::Seen(MachineSeen::Ours(talos)),
            _ if self.memory.made(machine.vmid) => Sight::Seen(MachineSeen::Maintenance),
            seen => match self.see_vm(machine.vmid, |_| false).await {
                // Without a VM there is no disk that etcd could be on.
                Sight::Seen(None) => Sight::Seen(MachineSeen::Maintenance),
                _ => seen,
            },
        }
    }

    /// Looks at a machine that is thought to be lost: its VM may be back, on whatever host, and need not answer yet.
    pub(super) async fn see_lost(&self, machine: &Machine) -> Sight<MachineSeen> {
        let (found, seen) = tokio::join!(self.find_anywhere(machine.vmid), self.see_machine(machine));
        match (found, seen) {
            (Err(error), _) => Sight::Unseen(error.to_string()),
            (Ok(Found::There(host, _)), Sight::Seen(MachineSeen::Silent(_))) => {
                let why = format!("VM {} is there again, on host {host}", machine.vmid);
                Sight::Seen(MachineSeen::Stranger(why))
            }
            (Ok(_), seen) => seen,
        }
    }

    async fn meet<F>(&self, machine: &Machine, look: impl FnOnce(Arc<Talos>) -> F) -> Sight<MachineSeen>
    where
        F: Future<Output = Result<TalosSeen, Error>>,
    {
        if let Err(why) = self.find_lease(machine).await {
            return Sight::Seen(MachineSeen::Silent(why));
        }
        if self.keys.is_none() {
            return self.meet_unknown(machine).await;
        }
        let talos = match self.talos(machine) {
            Some(Ok(talos)) => talos,
            Some(Err(why)) => return Sight::Unseen(why),
            None => return Sight::Seen(MachineSeen::Silent("its address is not known yet".into())),
        };
        match look(talos).await {
            Ok(seen) => Sight::Seen(MachineSeen::Ours(TalosSeen { address: self.address(machine), ..seen })),
            Err(error @ Error::NotReached { .. }) if machine.role == Role::Worker => {
                let why = format!(
                    "{error} (a configured worker answers once a control plane has given it a certificate)"
                );
                Sight::Seen(MachineSeen::Silent(why))
            }
            Err(error) => judge(&error),
        }
    }

    /// Looks at who is at a machine's address before the cluster has secrets: nobody there can be ours.
    async fn meet_unknown(&self, machine: &Machine) -> Sight<MachineSeen> {
        let Some(address) = self.address(machine) else {
            return Sight::Seen(MachineSeen::Silent("its address is not known yet".into()));
        };
        match peek(&crate::live::at(address), &[], &*self.reach.dialer, PEEK_WITHIN).await {
            Ok(seen) if seen.face == Face::Maintenance => Sight::Seen(MachineSeen::Maintenance),
            Ok(seen) => Sight::Seen(MachineSeen::Stranger(format!(
                "{} answers there ({}), and this cluster has no secrets yet",
                seen.face, seen.names
            ))),
            Err(error) => Sight::Seen(MachineSeen::Silent(error.to_string())),
        }
    }

    /// Asks the guest agent which address a machine has leased, if that is not known yet.
    async fn find_lease(&self, machine: &Machine) -> Result<(), String> {
        if self.address(machine).is_some() || !Self::is_leased(machine) {
            return Ok(());
        }
        let host = self.memory.host(machine.vmid).ok_or("its VM is not there")?;
        let answer = self.pve.send(&pve::agent_interfaces(&host, machine.vmid)).await;
        let answer = answer.map_err(|error| {
            format!("the guest agent, which tells the leased address, does not answer: {error}")
        })?;
        let address = usable(self.desired, machine, &answer).ok_or("it has no address yet")?;
        self.memory.leased(&machine.name, address);
        Ok(())
    }

    /// Asks the guest agents of machines that run, are not met where the inventory has them, and have no cloud-init
    /// that tells, which address they have.
    pub(super) async fn ask_where(&self, observed: &mut Observed) {
        let lost = |machine: &&Machine| {
            let met = matches!(
                observed.machines.get(&machine.name),
                Some(Sight::Seen(MachineSeen::Ours(_) | MachineSeen::Maintenance))
            );
            let vm = observed.vms.get(&machine.vmid).and_then(Sight::seen).and_then(Option::as_ref);
            let runs = vm.is_some_and(|vm| vm.owner == Owner::Ours && vm.running && vm.addresses.is_empty());
            !met && runs && !Self::is_leased(machine)
        };
        let asked = self.desired.machines.iter().filter(lost).map(|machine| async move {
            let host = self.memory.host(machine.vmid)?;
            let call = pve::agent_interfaces(&host, machine.vmid);
            let answer = timeout(PEEK_WITHIN, self.pve.send(&call)).await.ok()?.ok()?;
            Some((machine.vmid, usable(self.desired, machine, &answer)?))
        });
        for (vmid, address) in join_all(asked).await.into_iter().flatten() {
            if let Some(Sight::Seen(Some(vm))) = observed.vms.get_mut(&vmid) {
                vm.addresses = vec![address];
            }
        }
    }

    /// Learns the addresses that control planes have leased, and says of which that could not be told, and why.
    pub async fn learn_leases(&self, survey: &Survey) -> Vec<(MachineName, String)> {
        for (vmid, guest) in &survey.guests {
            self.memory.saw(*vmid, &guest.node);
        }
        let leased = self.control_planes().filter(|machine| Self::is_leased(machine));
        let learnt = join_all(leased.map(|machine| async {
            let told = match self.is_there(survey, machine) {
                Ok(()) => self.find_lease(machine).await,
                Err(why) => Err(why),
            };
            (machine.name.clone(), told)
        }));
        learnt.await.into_iter().filter_map(|(name, told)| Some((name, told.err()?))).collect()
    }

    /// Whether a machine's VM is there, ours, and may know an address.
    fn is_there(&self, survey: &Survey, machine: &Machine) -> Result<(), String> {
        let vmid = machine.vmid;
        let guest = survey.guests.get(&vmid).ok_or("it has no VM yet")?;
        let config = survey.configs.get(&vmid).ok_or("nobody asked its VM")?.as_ref();
        let config = config.map_err(|why| format!("VM {vmid} cannot be looked at: {why}"))?;
        match self.whose(machine, config) {
            Whose::Ours if guest.status.as_deref() == Some("stopped") => Err(format!("VM {vmid} is off")),
            Whose::Ours => Ok(()),
            _ => Err(format!("VM {vmid} is not this machine")),
        }
    }

    /// Looks at the members of etcd, as the first control plane that can tell sees them.
    pub(crate) async fn see_etcd(&self) -> Members {
        self.members.get(|| self.list_members()).await
    }

    async fn list_members(&self) -> Members {
        let mut why = "no control plane answers".to_owned();
        for machine in self.control_planes() {
            let Some(Ok(talos)) = self.talos(machine) else { continue };
            match talos.send(&api::etcd_members(false)).await {
                Ok(members) if !members.is_empty() => {
                    let seen = members.into_iter().map(|member| {
                        (member.hostname, MemberSeen { id: member.id, learner: member.is_learner })
                    });
                    return Sight::Seen(seen.collect());
                }
                Ok(_) => why = format!("{} knows no members", machine.name),
                Err(error) => why = error.to_string(),
            }
        }
        Sight::Unseen(why)
    }
}

/// Picks the address by which a machine can be reached: on its first card, and neither one that every machine
/// has nor one that moves.
fn usable(desired: &Desired, machine: &Machine, answer: &pve::AgentInterfaces) -> Option<IpAddr> {
    let mac = machine.primary_nic().mac.to_string();
    let endpoint = &desired.cluster.endpoint;
    let moving = endpoint.vip.into_iter().chain(endpoint.kube_vip.as_ref().map(|vip| vip.address));
    let moving: Vec<IpAddr> = moving.collect();
    let inside = |address: &IpAddr| {
        let mut networks = desired.network.pods.iter().chain(&desired.network.services);
        networks.any(|network| network.contains(address))
    };
    let mut all = answer.addresses(&mac);
    all.sort_by_key(IpAddr::is_ipv6);
    all.into_iter().find(|address| {
        !address.is_loopback() && !is_link_local(address) && !moving.contains(address) && !inside(address)
    })
}

async fn look(talos: &Talos) -> Result<TalosSeen, Error> {
    let (version, services) = (api::version(), api::services());
    let (version, status, services, boot) = tokio::join!(
        talos.send(&version),
        talos.find::<MachineStatus>(),
        talos.send(&services),
        talos.boot_id()
    );
    let (version, services) = (version?, services?);
    let status = status?.map(|status| status.spec);
    let etcd = services.into_iter().find(|service| service.id == "etcd").map(|service| service.state);
    Ok(TalosSeen {
        address: None,
        version: version.tag,
        stage: status.as_ref().map_or("unknown", |status| status.stage.word()).to_owned(),
        ready: status.as_ref().is_some_and(|status| status.ready),
        unmet: status
            .map(|status| {
                status.unmet.iter().map(|unmet| format!("{}: {}", unmet.name, unmet.reason)).collect()
            })
            .unwrap_or_default(),
        etcd,
        boot: boot.ok(),
        ..TalosSeen::default()
    })
}

fn judge(error: &Error) -> Sight<MachineSeen> {
    match error {
        Error::NotReached { .. } => Sight::Seen(MachineSeen::Silent(error.to_string())),
        Error::NotTrusted { shown: Some(shown), .. } => match shown.face {
            Face::Maintenance => Sight::Seen(MachineSeen::Maintenance),
            Face::Ours => Sight::Unseen(error.to_string()),
            Face::OtherCluster | Face::Stranger => {
                Sight::Seen(MachineSeen::Stranger(format!("{} answers there ({})", shown.face, shown.names)))
            }
        },
        Error::NotAdmitted { .. } => Sight::Seen(MachineSeen::Stranger(error.to_string())),
        _ => Sight::Unseen(error.to_string()),
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_is_one_that_the_machine_alone_has_and_keeps() {
        let desired = crate::tests::lab();
        let machine = &desired.machines[0];
        let mac = machine.primary_nic().mac.to_string().to_lowercase();
        let card = |mac: &str, addresses: &[&str]| {
            let all: Vec<_> = addresses.iter().map(|address| json!({ "ip-address": address })).collect();
            json!({ "hardware-address": mac, "ip-addresses": all })
        };
        let pick = |addresses: &[&str]| {
            let loopback = card("00:00:00:00:00:00", &["127.0.0.1", "::1"]);
            let flannel = card("5a:00:00:00:00:01", &["10.244.0.1"]);
            let result = json!([loopback, flannel, card(&mac, addresses)]);
            usable(desired, machine, &pve::AgentInterfaces { result }).map(|address| address.to_string())
        };
        let picked =
            pick(&["fe80::1", "169.254.1.1", "10.0.0.5", "10.244.3.1", "10.96.0.10", "fd00::7", "10.0.0.33"]);
        assert_eq!(picked.as_deref(), Some("10.0.0.33"), "10.0.0.5 is the VIP");
        assert_eq!(pick(&["fe80::1", "fd00::7"]).as_deref(), Some("fd00::7"));
        assert_eq!(pick(&["127.0.0.1", "fe80::1", "10.0.0.5"]), None);
    }
}
