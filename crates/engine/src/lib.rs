//! Runs the steps of a plan: any steps, in any world.
//!
//! 1. A [`Step`] names what it needs, what must hold before it ([`Step::guards`]), what holds after it
//!    ([`Step::done`]) and which [`Lane`]s it occupies. What it does ([`Step::action`]) is passed on unopened.
//! 2. [`execute`] starts every step whose needs are met and whose lanes have room. One that is done already is
//!    skipped; one whose guards do not hold is refused.
//! 3. The intent is in the [`journal`] before the effect, the receipt as soon as there is one, the outcome
//!    after. A lost answer is resolved by looking, never by repeating blindly ([`EffectError::Unsure`]).
//! 4. Everything that people see are [`Event`]s.
//!
//! The engine knows graphs, time and the journal. It knows no Proxmox, Talos or Kubernetes.

mod cancel;
mod effects;
mod event;
mod execute;
pub mod journal;
mod lanes;
mod report;

pub use cancel::{Cancel, Haste};
pub use effects::{EffectError, Effects, Report, StepContext};
pub use event::{Event, EventSink};
pub use execute::{Policy, execute};
pub use ichor_model::step::{BadPlan, Impact, Lane, Plan, Reason, Step, StepId, Verdict};
pub use journal::{Journal, Past};
pub use lanes::Limits;
pub use report::{Outcome, RunReport};
