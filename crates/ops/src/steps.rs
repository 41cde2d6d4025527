//! Carrying out steps: one file for each kind of change, all on fresh looks.

mod advice;
mod bootstrap;
pub(crate) mod configure;
mod image;
mod member;
mod remove;
mod task;
mod template;
mod vm;

use ichor_engine::{EffectError, Effects, Report, StepContext};
use ichor_model::{MachineName, desired::Machine, step::Verdict};
use ichor_plan::{Action, ClusterStep, Condition};

use crate::live::Live;

impl Effects<Action, Condition> for Live<'_> {
    async fn judge(&self, condition: &Condition) -> Verdict {
        condition.judge(&self.look_for(condition).await)
    }

    fn recall(&self, condition: &Condition) -> Option<Verdict> {
        if let Condition::VmRunning { vmid } = condition
            && self.console_vouches(*vmid)
        {
            return Some(Verdict::Holds);
        }
        self.recall_for(condition).map(|seen| condition.judge(&seen))
    }

    async fn perform(&self, step: &ClusterStep, context: &StepContext<'_>) -> Result<(), EffectError> {
        let done = self.carry_out(step, context).await;
        done.map_err(|error| {
            advice::advise(error, &step.action, self.reach.token.id(), self.memory.release())
        })
    }
}

impl Live<'_> {
    async fn carry_out(&self, step: &ClusterStep, context: &StepContext<'_>) -> Result<(), EffectError> {
        match &step.action {
            Action::MakePool { pool } => vm::make_pool(self, pool).await,
            Action::FetchImage { image, host, volume } => {
                image::fetch(self, context, image, host, volume).await
            }
            Action::BuildTemplate { vmid, host } => template::build(self, context, *vmid, host).await,
            Action::UploadSeed { machine, host, volume } => {
                image::upload_seed(self, context, self.wanted(machine)?, host, volume).await
            }
            Action::CreateVm { machine, host, .. } => {
                vm::create(self, context, self.wanted(machine)?, host).await
            }
            Action::StartVm { machine, .. } => vm::start(self, context, self.wanted(machine)?).await,
            Action::ApplyConfig { machine } => configure::apply(self, context, self.wanted(machine)?).await,
            Action::DetachMedium { machine, .. } => vm::detach(self, context, self.wanted(machine)?).await,
            Action::BootstrapEtcd { machine } => bootstrap::begin(self, context, self.wanted(machine)?).await,
            Action::RemoveMember { machine, member } => member::remove(self, machine, *member).await,
            Action::StopVm { vmid, .. } => remove::stop(self, context, *vmid).await,
            Action::DeleteVm { vmid, .. } | Action::RemoveTemplate { vmid } => {
                remove::delete(self, context, *vmid).await
            }
            Action::DeleteVolume { host, volume } => remove::volume(self, context, host, volume).await,
            Action::AwaitTalos { machine } => {
                configure::hear(self, self.wanted(machine)?).await;
                Ok(())
            }
            // What is only waited for: the engine looks until it is there.
            Action::AwaitConfig { .. }
            | Action::AwaitMember { .. }
            | Action::AwaitKubernetes
            | Action::AwaitNode { .. } => Ok(()),
        }
    }

    fn wanted(&self, name: &MachineName) -> Result<&Machine, EffectError> {
        let wrong = || EffectError::Permanent(Report::new(format!("there is no machine `{name}`")));
        self.machine(name).ok_or_else(wrong)
    }
}
