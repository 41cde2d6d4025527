//! etcd: one model for each cluster, shared by the machines whose disks hold its data.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

/// An etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd {
    /// Its id, which names the Kubernetes cluster too.
    pub id: String,
    /// The certificate of its CA: who has another one cannot join.
    pub ca: String,
    /// Its members, learners among them.
    pub members: BTreeMap<u64, Member>,
    /// The leader; absent while none is elected.
    pub leader: Option<u64>,
    /// Whether an election is under way.
    pub electing: bool,
    /// How many leaders there were.
    pub term: u64,
    /// How many changes there were.
    pub index: u64,
    /// Alarms: 1 is no space, 2 is corruption.
    pub alarms: BTreeMap<u64, i32>,
    /// How much of the database is unused, in bytes.
    pub unused: u64,
    /// Shared addresses of its machines.
    pub vips: BTreeMap<IpAddr, Vip>,
}

/// A shared address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vip {
    /// Who holds it.
    pub holder: Option<VmId>,
    /// Whether it is about to move.
    pub moving: bool,
}

/// A member of an etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name: the host name of its machine.
    pub name: String,
    /// The address that other members reach it at.
    pub address: IpAddr,
    /// Whether it does not vote yet.
    pub learner: bool,
    /// Its machine.
    pub vmid: VmId,
}

impl Etcd {
    /// Makes a cluster of one.
    pub fn new(first: u64, member: Member, ca: &str) -> Self {
        Self {
            id: format!("{first:016x}"),
            ca: ca.to_owned(),
            members: BTreeMap::from([(first, member)]),
            leader: None,
            electing: false,
            term: 1,
            index: 4,
            alarms: BTreeMap::new(),
            unused: 4 * 1024 * 1024,
            vips: BTreeMap::new(),
        }
    }

    /// Returns how many members vote.
    pub fn voters(&self) -> usize {
        self.members.values().filter(|member| !member.learner).count()
    }

    /// Whether enough of the voters are alive.
    pub fn has_quorum(&self, alive: &[u64]) -> bool {
        let voting =
            alive.iter().filter(|id| self.members.get(id).is_some_and(|member| !member.learner)).count();
        voting * 2 > self.voters()
    }

    /// Whether a voter can be taken out: the rest must still have a majority among those alive.
    pub fn can_lose(&self, id: u64, alive: &[u64]) -> bool {
        let rest = self.members.iter().filter(|(member, facts)| **member != id && !facts.learner);
        let (mut all, mut living) = (0, 0);
        for (member, _) in rest {
            all += 1;
            living += usize::from(alive.contains(member));
        }
        all == 0 || living * 2 > all
    }

    /// Notes a change.
    pub const fn change(&mut self) {
        self.index += 1;
    }

    /// Elects a leader among those alive: the wanted one, or the first.
    pub fn elect(&mut self, alive: &[u64], wanted: Option<u64>) {
        self.electing = false;
        if !self.has_quorum(alive) {
            self.leader = None;
            return;
        }
        let votes = |id: &u64| self.members.get(id).is_some_and(|member| !member.learner);
        let mut able = alive.iter().copied().filter(votes);
        let wanted = wanted.filter(|id| alive.contains(id) && votes(id));
        self.leader = wanted.or_else(|| able.next());
        self.term += 1;
        self.index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(voters: u64, learners: u64) -> Etcd {
        let member = |learner| Member {
            name: "n".into(),
            address: "10.0.0.1".parse().expect("address"),
            learner,
            vmid: VmId::new(100).expect("vmid"),
        };
        let mut etcd = Etcd::new(1, member(false), "ca");
        etcd.members.extend((2..=voters).map(|id| (id, member(false))));
        etcd.members.extend((1..=learners).map(|id| (100 + id, member(true))));
        etcd
    }

    #[test]
    fn a_majority_of_voters_is_a_quorum() {
        let three = cluster(3, 0);
        assert!(three.has_quorum(&[1, 3]) && !three.has_quorum(&[2]));
        let learning = cluster(1, 1);
        assert!(learning.has_quorum(&[1]) && !learning.has_quorum(&[101]));
        let two = cluster(2, 0);
        assert!(!two.has_quorum(&[1]) && two.has_quorum(&[1, 2]));
    }

    #[test]
    fn members_are_not_taken_out_at_the_price_of_the_quorum() {
        let three = cluster(3, 0);
        assert!(three.can_lose(3, &[1, 2, 3]) && three.can_lose(3, &[1, 2]));
        assert!(!three.can_lose(1, &[1, 2]), "one of two is no majority");
        assert!(cluster(1, 0).can_lose(1, &[1]));
    }

    #[test]
    fn learners_do_not_lead() {
        let mut etcd = cluster(1, 1);
        etcd.elect(&[101, 1], Some(101));
        assert_eq!(etcd.leader, Some(1));
    }
}
