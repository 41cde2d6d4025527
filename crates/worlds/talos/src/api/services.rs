//! The services of a machine.

use ichor_talos_proto::{machine as proto, method};

use super::{LONG, SHORT};
use crate::{
    Call,
    call::{answers, only},
    error::clean,
};

answers! {
    proto::ServiceListResponse => proto::ServiceList,
    proto::ServiceStartResponse => proto::ServiceStart,
    proto::ServiceStopResponse => proto::ServiceStop,
    proto::ServiceRestartResponse => proto::ServiceRestart,
}

/// Whether a service is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It is.
    Healthy,
    /// It is not.
    Unhealthy,
    /// Nobody knows, or it is never checked.
    Unknown,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name, as `etcd`.
    pub id: String,
    /// How it is, in Talos' words: `Running`, `Preparing`, `Failed`, ...
    pub state: String,
    /// Whether it is well.
    pub health: Health,
    /// What its last check said.
    pub message: String,
}

impl Service {
    /// Whether it runs and nothing speaks against it.
    pub fn is_up(&self) -> bool {
        self.state == "Running" && self.health != Health::Unhealthy
    }
}

/// Asks for the services.
pub fn services() -> Call<Vec<Service>> {
    Call::new(method::machine("ServiceList"), &(), SHORT, |bytes| {
        let service = |info: proto::ServiceInfo| {
            let health = info.health.unwrap_or(proto::ServiceHealth { unknown: true, ..Default::default() });
            Service {
                id: clean(&info.id),
                state: clean(&info.state),
                health: match (health.unknown, health.healthy) {
                    (true, _) => Health::Unknown,
                    (false, true) => Health::Healthy,
                    (false, false) => Health::Unhealthy,
                },
                message: clean(&health.last_message),
            }
        };
        Ok(only::<proto::ServiceListResponse>(bytes)?.services.into_iter().map(service).collect())
    })
}

/// Starts a service, and returns what Talos says.
pub fn service_start(id: &str) -> Call<String> {
    let request = proto::ServiceStartRequest { id: id.to_owned() };
    Call::new(method::machine("ServiceStart"), &request, LONG, |bytes| {
        Ok(clean(&only::<proto::ServiceStartResponse>(bytes)?.resp))
    })
}

/// Stops a service, and returns what Talos says.
pub fn service_stop(id: &str) -> Call<String> {
    let request = proto::ServiceStopRequest { id: id.to_owned() };
    Call::new(method::machine("ServiceStop"), &request, LONG, |bytes| {
        Ok(clean(&only::<proto::ServiceStopResponse>(bytes)?.resp))
    })
}

/// Restarts a service, and returns what Talos says.
pub fn service_restart(id: &str) -> Call<String> {
    let request = proto::ServiceRestartRequest { id: id.to_owned() };
    Call::new(method::machine("ServiceRestart"), &request, LONG, |bytes| {
        Ok(clean(&only::<proto::ServiceRestartResponse>(bytes)?.resp))
    })
}
