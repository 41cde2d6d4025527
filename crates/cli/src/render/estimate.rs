//! How long a plan may take: its longest way, with what can only be done so often at once.
//!
//! A step's [`expected`](ichor_model::step::Step::expected) says nothing about a step that waits. People ask how long it
//! takes, so each kind of step has a usual length here. During a run the lengths are stretched or shrunk by how the
//! steps that ended compare with them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ichor_model::step::{Lane, StepId};
use ichor_plan::{Action, ClusterStep};

/// Steps with what they wait for.
#[derive(Debug)]
pub struct Schedule {
    places: Vec<Place>,
    /// How many steps each lane takes at once.
    widths: Vec<usize>,
}

#[derive(Debug)]
struct Place {
    usual: Duration,
    needs: Vec<usize>,
    lanes: Vec<usize>,
}

impl Schedule {
    /// Takes the steps of a plan, in its order: each after those that it needs.
    pub fn new(steps: &[ClusterStep]) -> Self {
        let places: BTreeMap<&StepId, usize> =
            steps.iter().enumerate().map(|(i, step)| (&step.id, i)).collect();
        let lanes: BTreeSet<&Lane> = steps.iter().flat_map(|step| &step.lanes).collect();
        let numbers: BTreeMap<&Lane, usize> = lanes.iter().enumerate().map(|(i, lane)| (*lane, i)).collect();
        let place = |step: &ClusterStep| Place {
            usual: usual(&step.action).max(step.expected),
            needs: step.needs.iter().filter_map(|need| places.get(need).copied()).collect(),
            lanes: step.lanes.iter().map(|lane| numbers[lane]).collect(),
        };
        Self {
            places: steps.iter().map(place).collect(),
            widths: lanes.iter().map(|lane| width(lane)).collect(),
        }
    }

    /// Returns how long a step usually takes.
    pub fn usual(&self, step: usize) -> Duration {
        self.places.get(step).map(|place| place.usual).unwrap_or_default()
    }

    /// Returns how long all steps take together.
    pub fn whole(&self) -> Duration {
        self.time(|step| self.usual(step))
    }

    /// Returns how long it is until the last step has ended, when each takes as long as `takes` says. Steps that
    /// take no time occupy no lane.
    pub fn time(&self, takes: impl Fn(usize) -> Duration) -> Duration {
        let mut free: Vec<Vec<Duration>> =
            self.widths.iter().map(|width| vec![Duration::ZERO; *width]).collect();
        let mut ends: Vec<Duration> = Vec::with_capacity(self.places.len());
        for (step, place) in self.places.iter().enumerate() {
            let takes = takes(step);
            let mut begins =
                place.needs.iter().filter_map(|need| ends.get(*need)).max().copied().unwrap_or_default();
            if takes > Duration::ZERO {
                let tracks: Vec<usize> = place.lanes.iter().map(|lane| soonest(&free[*lane])).collect();
                for (lane, track) in place.lanes.iter().zip(&tracks) {
                    begins = begins.max(free[*lane][*track]);
                }
                for (lane, track) in place.lanes.iter().zip(&tracks) {
                    free[*lane][*track] = begins + takes;
                }
            }
            ends.push(begins + takes);
        }
        ends.into_iter().max().unwrap_or_default()
    }
}

fn soonest(tracks: &[Duration]) -> usize {
    tracks.iter().enumerate().min_by_key(|(_, free)| **free).map_or(0, |(track, _)| track)
}

/// Hosts do three things at once, templates and downloads one after another.
fn width(lane: &Lane) -> usize {
    if lane.kind() == "host" { 3 } else { 1 }
}

/// On a small server with SSDs and a line of 100 Mbit/s.
const fn usual(action: &Action) -> Duration {
    Duration::from_secs(match action {
        Action::MakePool { .. }
        | Action::DetachMedium { .. }
        | Action::DeleteVolume { .. }
        | Action::RemoveMember { .. } => 1,
        Action::StartVm { .. } | Action::StopVm { .. } | Action::UploadSeed { .. } => 2,
        Action::DeleteVm { .. } | Action::RemoveTemplate { .. } => 3,
        Action::CreateVm { .. } | Action::BuildTemplate { .. } => 8,
        Action::BootstrapEtcd { .. } | Action::AwaitMember { .. } => 15,
        Action::AwaitTalos { .. } | Action::FetchImage { .. } => 30,
        Action::AwaitKubernetes | Action::AwaitNode { .. } => 40,
        Action::ApplyConfig { .. } | Action::AwaitConfig { .. } => 60,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn seconds(steps: &[ClusterStep]) -> u64 {
        Schedule::new(steps).whole().as_secs()
    }

    #[test]
    fn the_longest_way_counts_and_not_the_sum() {
        let plan = fixture::plan_from_nothing(&fixture::live());
        // image, create, start, Talos, config, bootstrap, then Kubernetes and the node, which outlast joining
        assert_eq!(seconds(plan.steps()), 30 + 8 + 2 + 30 + 60 + 15 + 40 + 40);
    }

    #[test]
    fn machines_of_one_host_queue_for_it() {
        let few = fixture::plan_from_nothing(&fixture::crowd(3));
        let many = fixture::plan_from_nothing(&fixture::crowd(60));
        assert!(seconds(many.steps()) > seconds(few.steps()) + 60);
    }

    #[test]
    fn nothing_takes_no_time() {
        assert_eq!(seconds(&[]), 0);
        let plan = fixture::plan_from_nothing(&fixture::live());
        assert_eq!(Schedule::new(plan.steps()).time(|_| Duration::ZERO), Duration::ZERO);
    }
}
