//! A control plane is lost with its VM, and etcd cannot do without its vote.

use std::{io, sync::Arc};

use ichor_net::{Dial, Dialled};
use ichor_sim::faults::{Kind, Server, When};

use super::{compare, proxmox::SPREAD, shows};
use crate::tests::live::Rehearsal;

/// The way to one address is cut.
struct Cut {
    way: Arc<dyn Dial>,
    to: &'static str,
}

impl Dial for Cut {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        if host == self.to {
            return Box::pin(async { Err(io::Error::other("the way is cut")) });
        }
        self.way.dial(host, port)
    }
}

fn removals(world: &Rehearsal) -> usize {
    let is_one = |path: &str| path.ends_with("/EtcdRemoveMemberByID");
    world.inside.hall().look(|lab| lab.ground.record.calls.iter().filter(|call| is_one(&call.path)).count())
}

/// A cluster that was ready, and has lost a control plane.
async fn crippled() -> Rehearsal {
    let world = Rehearsal::bad(SPREAD);
    world.recovers().await;
    world.befall(&format!("vm-deleted {}", world.vmid("cp-2")));
    world
}

#[tokio::test(start_paused = true)]
async fn a_vote_stays_while_too_few_of_the_others_answer() {
    let world = Box::pin(crippled()).await;
    let mut reach = world.reach();
    reach.dialer = Arc::new(Cut { way: reach.dialer, to: "10.0.0.13" });
    let before = world.changed();
    compare("vote-needed", &world.attempt_with(reach).await);
    assert_eq!((world.changed(), removals(&world)), (before, 0), "nothing is changed");
    world.recovers().await;
    assert_eq!(removals(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn a_vote_stays_when_another_control_plane_is_lost_meanwhile() {
    let world = Box::pin(crippled()).await;
    let event = format!("vm-stopped {}", world.vmid("cp-3")).parse().expect("an incident");
    let list = "/machine.MachineService/EtcdMemberList";
    world.fault(Server::Talos, list, 1, Kind::Befall { event, when: When::After });
    shows("vote-needed-meanwhile", &world).await;
    assert_eq!(removals(&world), 0);
    world.mend();
    world.recovers().await;
}
