//! Comparing machines that run with what the inventory stands for.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use ichor_machineconfig::{Config, compose::Composer, differences, schematic::image_id};
use ichor_model::{
    MachineName, SourceId,
    desired::Machine,
    observed::{MachineSeen, Sight, TalosSeen},
};
use ichor_port::Secret;
use ichor_talos::resource::{ExtensionStatus, MachineConfig, schematic};

use crate::live::Live;

/// What a machine says that it runs with; nothing where it does not say.
#[derive(Default)]
struct RunsWith {
    config: Option<Secret>,
    schematic: Option<String>,
}

impl Live<'_> {
    /// Says of all machines that answer where their machine config and their image are not those of the inventory.
    /// What a machine does not tell is no difference.
    pub(super) async fn compare_machines(&self, machines: &mut BTreeMap<MachineName, Sight<MachineSeen>>) {
        let ours = |machine: &&Machine| {
            matches!(machines.get(&machine.name), Some(Sight::Seen(MachineSeen::Ours(_))))
        };
        let asked = self.desired.machines.iter().filter(ours);
        let told =
            join_all(asked.map(|machine| async move { (machine, self.runs_with(machine).await) })).await;
        let known = self.known();
        let composer = self.composer(&known).ok();
        for (machine, runs_with) in told {
            if let Some(Sight::Seen(MachineSeen::Ours(talos))) = machines.get_mut(&machine.name) {
                self.compare(machine, &runs_with, composer.as_ref(), talos);
            }
        }
    }

    async fn runs_with(&self, machine: &Machine) -> RunsWith {
        let Some(Ok(talos)) = self.talos(machine) else { return RunsWith::default() };
        let (config, extensions) = tokio::join!(
            talos.find_id::<MachineConfig>(MachineConfig::ACTIVE),
            talos.list::<ExtensionStatus>()
        );
        RunsWith {
            config: config.ok().flatten().map(|config| config.spec.0),
            schematic: extensions.ok().and_then(|all| schematic(&all).map(str::to_owned)),
        }
    }

    fn compare(
        &self,
        machine: &Machine,
        runs_with: &RunsWith,
        composer: Option<&Composer<'_>>,
        talos: &mut TalosSeen,
    ) {
        talos.other_schematic = runs_with.schematic.clone().filter(|is| !self.stands_for(machine, is));
        let drawn = composer.and_then(|composer| composer.machine(machine).ok());
        if let (Some(is), Some(drawn)) = (&runs_with.config, drawn) {
            // Both come from text: empty values that are never written are no difference.
            let read = |text: &str| Config::read(SourceId::default(), text.as_bytes()).0;
            talos.config_drift = differences(&read(drawn.text().expose()), &read(is.expose()));
        }
    }

    /// Whether a machine may run an image of this schematic: the one that it boots, or the installer's, which has no
    /// META values.
    fn stands_for(&self, machine: &Machine, schematic: &str) -> bool {
        let booted = self.images.get(&machine.image).is_none_or(|named| named.id == schematic);
        let image = self.desired.images.iter().find(|image| image.id == machine.image);
        booted || image.is_some_and(|image| image_id(image) == schematic)
    }
}
