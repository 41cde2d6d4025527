//! The names of calls, as they stand in the path of a request.

/// The machine service.
pub const MACHINE: &str = "/machine.MachineService/";
/// Installing and upgrading, since 1.13.
pub const LIFECYCLE: &str = "/machine.LifecycleService/";
/// Container images, since 1.13.
pub const IMAGE: &str = "/machine.ImageService/";
/// Disks.
pub const STORAGE: &str = "/storage.StorageService/";
/// The health of a cluster.
pub const CLUSTER: &str = "/cluster.ClusterService/";
/// Clocks.
pub const TIME: &str = "/time.TimeService/";
/// Controllers.
pub const INSPECT: &str = "/inspect.InspectService/";
/// Server certificates for workers, on port 50001.
pub const SECURITY: &str = "/securityapi.SecurityService/";
/// Resources.
pub const STATE: &str = "/cosi.resource.State/";

/// Returns a call of the machine service.
pub fn machine(name: &str) -> String {
    format!("{MACHINE}{name}")
}

/// Returns a call of the resource service.
pub fn state(name: &str) -> String {
    format!("{STATE}{name}")
}
