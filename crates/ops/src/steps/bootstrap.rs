//! Beginning the etcd of a cluster, once in its life.

use std::time::Duration;

use ichor_engine::{EffectError, Report, StepContext};
use ichor_model::desired::Machine;
use ichor_talos::{Code, api};
use tokio::time::{Instant, sleep};

use crate::live::{Live, talos_trouble, transient};

/// How long a configured machine may take until it can begin: a clock that has not been set for years takes minutes.
const READY_WITHIN: Duration = Duration::from_mins(10);
/// Between two attempts, at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(5));

/// What takes long is tried less often: it begins late by no more than such a share of the time that it took.
const LOOKS_WITHIN: u32 = 20;

/// Begins etcd on a machine. That it has begun already is as good: the machine is one of ours, or it would not
/// have let us in.
pub async fn begin(live: &Live<'_>, context: &StepContext<'_>, machine: &Machine) -> Result<(), EffectError> {
    let what = format!("bootstrapping etcd on {}", machine.name);
    let talos = match live.talos(machine) {
        Some(Ok(talos)) => talos,
        Some(Err(why)) => return Err(transient(format!("{what}: {why}"))),
        None => return Err(transient(format!("{what}: its address is not known yet"))),
    };
    live.memory.bootstraps();
    let began = Instant::now();
    let until = began + READY_WITHIN;
    loop {
        let pause = (began.elapsed() / LOOKS_WITHIN).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1);
        let error = match talos.send(&api::bootstrap(api::Recovery::None)).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.code() {
            Some(Code::AlreadyExists) => return Ok(()),
            // A race inside Talos says the same without a number.
            Some(Code::Unknown) if error.to_string().contains("etcd data directory is not empty") => {
                return Ok(());
            }
            // It still installs, its clock is not set, or its container runtime is not up: that passes.
            Some(Code::FailedPrecondition) if Instant::now() + pause < until && !context.is_cancelled() => {
                context.progress(0.0, &error.to_string());
            }
            Some(Code::FailedPrecondition) => return Err(EffectError::Permanent(not_ready(&what, &error))),
            _ => return Err(talos_trouble(&what, &error)),
        }
        sleep(pause).await;
    }
}

fn not_ready(what: &str, error: &ichor_talos::Error) -> Report {
    let minutes = READY_WITHIN.as_secs() / 60;
    let report = Report::new(format!("{what}: not ready for it within {minutes}m: {error}"));
    if error.to_string().contains("time is not in sync") {
        return report.hint("the machine must reach a time server: see `os.time_servers`");
    }
    report
}
