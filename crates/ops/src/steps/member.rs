//! Taking a member out of etcd whose machine is gone.

use ichor_engine::EffectError;
use ichor_model::MachineName;
use ichor_talos::{Code, api};

use crate::live::{Live, talos_trouble, transient};

/// Takes a member out, by the first of the other control planes that can be told to. That it is out already is as good.
pub async fn remove(live: &Live<'_>, lost: &MachineName, member: u64) -> Result<(), EffectError> {
    let what = format!("taking the vote of {lost} out of etcd");
    let mut trouble = transient(format!("{what}: no other control plane can be asked"));
    for machine in live.control_planes().filter(|machine| machine.name != *lost) {
        let Some(Ok(talos)) = live.talos(machine) else { continue };
        let error = match talos.send(&api::etcd_remove_member(member)).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if error.code() == Some(Code::NotFound) {
            return Ok(());
        }
        trouble = talos_trouble(&what, &error);
        // One that has not heard of it is no reason not to tell another.
        if !matches!(trouble, EffectError::Transient(_)) {
            break;
        }
    }
    Err(trouble)
}
