//! Guarding the quorum of etcd. Talos takes a member out when it is told to, and asks nobody whether the rest can go
//! on: that is for us to know.

use ichor_model::{
    MachineName, Observed,
    observed::{MachineSeen, Sight},
    step::Verdict,
};

use crate::{drift::listed, voters::runs_etcd};

/// Judges whether etcd goes on without the vote of a machine that is gone: the machine must be silent, nobody may be
/// about to join, and of the voters that are left enough must answer. Others that are lost too are no hindrance: their
/// votes can only go one after the other. `on` are the control planes that were looked at.
pub(crate) fn quorum_without(observed: &Observed, machine: &MachineName, on: &[MachineName]) -> Verdict {
    match observed.machines.get(machine) {
        Some(Sight::Seen(MachineSeen::Ours(_))) => {
            return Verdict::Fails(format!("`{machine}` answers, so it is not gone"));
        }
        Some(Sight::Seen(MachineSeen::Stranger(why))) => return Verdict::Fails(why.clone()),
        Some(Sight::Seen(MachineSeen::Silent(_) | MachineSeen::Maintenance)) => {}
        Some(Sight::Unseen(why)) => return Verdict::Unknown(why.clone()),
        None => return Verdict::Unknown("nobody looked".into()),
    }
    let members = match &observed.etcd {
        Sight::Seen(members) => members,
        Sight::Unseen(why) => return Verdict::Unknown(why.clone()),
    };
    let machine_of = |name: &str| on.iter().find(|machine| machine.as_str() == name);
    let answers = |name: &str| machine_of(name).is_some_and(|machine| runs_etcd(observed, machine));
    let others = || members.iter().filter(|(name, _)| *name != machine.as_str());
    // One that has not said its name is about to; one that is silent will not vote.
    if others().any(|(name, member)| member.learner && (name.is_empty() || answers(name))) {
        return Verdict::Fails("another machine joins etcd just now, and has no vote yet".into());
    }
    let voters: Vec<&String> = others().filter(|(_, member)| !member.learner).map(|(name, _)| name).collect();
    let silent: Vec<String> =
        voters.iter().filter(|name| !answers(name)).map(|name| format!("`{name}`")).collect();
    let (left, needed) = (voters.len(), voters.len() / 2 + 1);
    let answering = left - silent.len();
    Verdict::of(answering >= needed, || {
        let silent = match &silent[..] {
            [] => String::new(),
            silent => format!("; silent, or not in the inventory: {}", listed(silent)),
        };
        format!("{answering} of the {left} voters that would be left answer, and {needed} are needed{silent}")
    })
}

#[cfg(test)]
mod tests {
    use ichor_model::observed::{MemberSeen, TalosSeen};
    use proptest::prelude::*;

    use super::*;

    /// How a member of etcd is found.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Found {
        Answers,
        Silent,
        Learner,
        LostLearner,
    }

    fn name(number: usize) -> MachineName {
        format!("cp-{number}").parse().expect("a name")
    }

    fn silent() -> Sight<MachineSeen> {
        Sight::Seen(MachineSeen::Silent("nobody answers".into()))
    }

    /// The first control plane is gone, and its vote is not; the others are as they are said to be.
    fn world(others: &[Found]) -> (Observed, Vec<MachineName>) {
        let on: Vec<MachineName> = (0..=others.len()).map(name).collect();
        let mut observed = Observed::default();
        let mut members = std::collections::BTreeMap::new();
        for (number, found) in std::iter::once(&Found::Silent).chain(others).enumerate() {
            let id = u64::try_from(number).expect("a number");
            let learner = matches!(found, Found::Learner | Found::LostLearner);
            members.insert(name(number).to_string(), MemberSeen { id, learner });
            let talos = TalosSeen { etcd: Some("Running".into()), ..TalosSeen::default() };
            let seen = match found {
                Found::Silent | Found::LostLearner => silent(),
                Found::Answers | Found::Learner => Sight::Seen(MachineSeen::Ours(talos)),
            };
            observed.machines.insert(name(number), seen);
        }
        observed.etcd = Sight::Seen(members);
        (observed, on)
    }

    fn judge(others: &[Found]) -> Verdict {
        let (observed, on) = world(others);
        quorum_without(&observed, &name(0), &on)
    }

    #[test]
    fn a_vote_goes_when_the_others_can_go_on_without_it() {
        use Found::{Answers, Learner, LostLearner, Silent};
        assert_eq!(judge(&[Answers, Answers]), Verdict::Holds);
        assert_eq!(judge(&[Answers, Answers, Answers, Silent]), Verdict::Holds);
        assert_eq!(judge(&[Answers, Answers, LostLearner]), Verdict::Holds, "it would wait for ever");
        let why = "1 of the 2 voters that would be left answer, and 2 are needed; silent, or not in the inventory: `cp-2`";
        assert_eq!(judge(&[Answers, Silent]), Verdict::Fails(why.into()));
        let why = "another machine joins etcd just now, and has no vote yet";
        assert_eq!(judge(&[Answers, Answers, Learner]), Verdict::Fails(why.into()));
        let why = "0 of the 0 voters that would be left answer, and 1 are needed";
        assert_eq!(judge(&[]), Verdict::Fails(why.into()), "the last one never goes");
    }

    #[test]
    fn nobody_goes_who_answers_or_of_whom_nothing_is_known() {
        let (mut observed, on) = world(&[Found::Answers, Found::Answers]);
        observed.machines.insert(name(0), Sight::Seen(MachineSeen::Ours(TalosSeen::default())));
        let why = "`cp-0` answers, so it is not gone";
        assert_eq!(quorum_without(&observed, &name(0), &on), Verdict::Fails(why.into()));
        observed.machines.insert(name(0), Sight::Seen(MachineSeen::Stranger("its VM is back".into())));
        assert_eq!(quorum_without(&observed, &name(0), &on), Verdict::Fails("its VM is back".into()));
        observed.machines.insert(name(0), Sight::Unseen("no way there".into()));
        assert_eq!(quorum_without(&observed, &name(0), &on), Verdict::Unknown("no way there".into()));
        observed.machines.insert(name(0), silent());
        observed.etcd = Sight::Unseen("nobody could tell".into());
        assert_eq!(quorum_without(&observed, &name(0), &on), Verdict::Unknown("nobody could tell".into()));
    }

    #[test]
    fn a_voter_that_is_no_control_plane_of_the_inventory_counts_as_silent() {
        let (observed, on) = world(&[Found::Answers, Found::Answers]);
        assert!(matches!(quorum_without(&observed, &name(0), &on[..2]), Verdict::Fails(_)));
    }

    proptest! {
        #[test]
        fn what_is_left_always_has_its_quorum(
            others in proptest::collection::vec(
                proptest::sample::select(vec![Found::Answers, Found::Silent, Found::Learner, Found::LostLearner]),
                0..8,
            )
        ) {
            let count = |wanted| others.iter().filter(|found| **found == wanted).count();
            let (answering, silent) = (count(Found::Answers), count(Found::Silent));
            let safe = count(Found::Learner) == 0 && answering > silent;
            prop_assert_eq!(judge(&others) == Verdict::Holds, safe);
        }
    }
}
