//! Beginning the etcd of a cluster, once in its life.

use ichor_engine::{EffectError, Report};
use ichor_model::desired::Machine;
use ichor_talos::{Code, api};

use crate::live::{Live, talos_trouble, transient};

/// Begins etcd on a machine. That it has begun already is as good: the machine is one of ours, or it would not
/// have let us in.
pub async fn begin(live: &Live<'_>, machine: &Machine) -> Result<(), EffectError> {
    let what = format!("bootstrapping etcd on {}", machine.name);
    let talos = match live.talos(machine) {
        Some(Ok(talos)) => talos,
        Some(Err(why)) => return Err(transient(format!("{what}: {why}"))),
        None => return Err(transient(format!("{what}: its address is not known yet"))),
    };
    match talos.send(&api::bootstrap(api::Recovery::None)).await {
        Ok(()) => Ok(()),
        Err(error) => match error.code() {
            Some(Code::AlreadyExists) => Ok(()),
            // A race inside Talos says the same without a number.
            Some(Code::Unknown) if error.to_string().contains("etcd data directory is not empty") => Ok(()),
            // It still installs, its clock is not set, or its container runtime is not up.
            Some(Code::FailedPrecondition) => Err(EffectError::Transient(clock_hint(&what, &error))),
            _ => Err(talos_trouble(&what, &error)),
        },
    }
}

fn clock_hint(what: &str, error: &ichor_talos::Error) -> Report {
    let report = Report::new(format!("{what}: {error}"));
    if error.to_string().contains("time is not in sync") {
        return report.hint("the machine must reach a time server: see `os.time_servers`");
    }
    report
}
