//! Processors and memory, and what a host offers of them.

use std::fmt;

use ichor_model::Size;
use serde::Serialize;

/// An amount of processors and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Resources {
    /// Virtual processors.
    pub cpu: u32,
    /// Memory.
    pub memory: Size,
}

impl Resources {
    /// Makes an amount from its two parts.
    pub const fn new(cpu: u32, memory: Size) -> Self {
        Self { cpu, memory }
    }

    /// Whether this much is enough for `needs`.
    pub fn covers(self, needs: Self) -> bool {
        self.cpu >= needs.cpu && self.memory >= needs.memory
    }

    /// Returns the sum of both amounts.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        let memory = self.memory.mib().saturating_add(other.memory.mib());
        Self { cpu: self.cpu.saturating_add(other.cpu), memory: Size::from_mib(memory) }
    }

    /// Returns what is left of this amount without the other, nothing if the other is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        let memory = self.memory.mib().saturating_sub(other.memory.mib());
        Self { cpu: self.cpu.saturating_sub(other.cpu), memory: Size::from_mib(memory) }
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} vCPU and {}", self.cpu, self.memory)
    }
}

/// How many times over a host's budget may be given to machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overcommit {
    /// The factor for processors.
    pub cpu: f64,
    /// The factor for memory.
    pub memory: f64,
}

impl Default for Overcommit {
    /// Gives nothing twice.
    fn default() -> Self {
        Self { cpu: 1.0, memory: 1.0 }
    }
}

/// Returns what a host offers to our machines: its budget, overcommitted, without what foreign VMs
/// take; nothing if they take more.
pub fn offer(budget: Resources, overcommit: Overcommit, foreign: Resources) -> Resources {
    let cpu = stretch(budget.cpu.into(), overcommit.cpu);
    let memory = stretch(budget.memory.mib(), overcommit.memory);
    let stretched = Resources::new(u32::try_from(cpu).unwrap_or(u32::MAX), Size::from_mib(memory));
    stretched.saturating_sub(foreign)
}

/// Products that should be whole come out a hair below: 100 * 1.15 is 114.99999999999999.
const HAIR: f64 = 1e-6;

// The cast back saturates: a factor that is no number or below zero offers nothing.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn stretch(amount: u64, factor: f64) -> u64 {
    (amount as f64 * factor + HAIR).floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(cpu: u32, gib: u64) -> Resources {
        Resources::new(cpu, Size::from_gib(gib))
    }

    #[test]
    fn overcommit_stretches_the_budget_and_foreign_vms_take_from_it() {
        let overcommit = Overcommit { cpu: 2.0, memory: 1.0 };
        assert_eq!(offer(resources(16, 64), overcommit, resources(6, 8)), resources(26, 56));
    }

    #[test]
    fn foreign_vms_beyond_the_budget_leave_nothing() {
        assert_eq!(offer(resources(4, 8), Overcommit::default(), resources(6, 4)), resources(0, 4));
    }

    #[test]
    fn a_product_that_should_be_whole_is_whole() {
        let overcommit = Overcommit { cpu: 1.15, memory: 1.15 };
        let budget = Resources::new(100, Size::from_mib(100));
        assert_eq!(offer(budget, overcommit, Resources::default()), Resources::new(115, Size::from_mib(115)));
    }

    #[test]
    fn a_fraction_of_a_processor_is_not_offered() {
        let overcommit = Overcommit { cpu: 1.5, memory: 1.0 };
        assert_eq!(offer(resources(3, 1), overcommit, Resources::default()), resources(4, 1));
    }

    #[test]
    fn senseless_factors_do_not_wrap_around() {
        for (factor, cpu) in [(f64::NAN, 0), (-1.0, 0), (f64::INFINITY, u32::MAX), (1e300, u32::MAX)] {
            let overcommit = Overcommit { cpu: factor, memory: 1.0 };
            assert_eq!(offer(resources(4, 1), overcommit, Resources::default()).cpu, cpu, "{factor}");
        }
    }

    #[test]
    fn sums_stop_at_the_largest_number() {
        let most = Resources::new(u32::MAX, Size::from_mib(u64::MAX));
        assert_eq!(most.saturating_add(resources(1, 1)), most);
    }
}
