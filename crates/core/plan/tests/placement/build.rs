//! Hosts and requests in few words.

use ichor_model::{
    HostName, MachineName, Size,
    desired::{Arch, Role},
};
use ichor_plan::placement::{Host, Placement, Refusal, Request, Resources, Strategy, place};

pub fn resources(cpu: u32, gib: u64) -> Resources {
    Resources::new(cpu, Size::from_gib(gib))
}

pub fn host_name(name: &str) -> HostName {
    name.parse().expect("a host name")
}

pub fn machine_name(name: &str) -> MachineName {
    name.parse().expect("a machine name")
}

/// A host with as many GiB as processors, which is enough where only the amount matters.
pub fn host(name: &str, size: u32) -> Host {
    Host {
        name: host_name(name),
        zone: None,
        arch: Arch::Amd64,
        capacity: Some(resources(size, size.into())),
    }
}

pub fn host_in(zone: &str, name: &str, size: u32) -> Host {
    Host { zone: Some(zone.into()), ..host(name, size) }
}

/// A host of unknown size.
pub fn vast(name: &str) -> Host {
    Host { capacity: None, ..host(name, 0) }
}

fn request(name: &str, role: Role, size: u32) -> Request {
    Request {
        name: machine_name(name),
        role,
        needs: resources(size, size.into()),
        arch: Arch::Amd64,
        pin: None,
        hosts: Vec::new(),
        zone: None,
        stays: None,
    }
}

pub fn control_plane(name: &str, size: u32) -> Request {
    request(name, Role::ControlPlane, size)
}

pub fn worker(name: &str, size: u32) -> Request {
    request(name, Role::Worker, size)
}

/// `count` control planes `cp-1`, `cp-2` ...
pub fn control_planes(count: usize, size: u32) -> Vec<Request> {
    (1..=count).map(|i| control_plane(&format!("cp-{i}"), size)).collect()
}

/// `count` workers `w-1`, `w-2` ...
pub fn workers(count: usize, size: u32) -> Vec<Request> {
    (1..=count).map(|i| worker(&format!("w-{i}"), size)).collect()
}

pub trait RequestExt {
    fn pinned_to(self, host: &str) -> Self;
    fn limited_to(self, hosts: &[&str]) -> Self;
    fn staying_on(self, host: &str) -> Self;
}

impl RequestExt for Request {
    fn pinned_to(self, host: &str) -> Self {
        Self { pin: Some(host_name(host)), ..self }
    }

    fn limited_to(self, hosts: &[&str]) -> Self {
        Self { hosts: hosts.iter().map(|host| host_name(host)).collect(), ..self }
    }

    fn staying_on(self, host: &str) -> Self {
        Self { stays: Some(host_name(host)), ..self }
    }
}

/// Shows the seats as `machine@host`, in the order of the requests.
pub fn shown(placement: &Placement) -> String {
    let seats: Vec<_> =
        placement.seats.iter().map(|seat| format!("{}@{}", seat.machine, seat.host)).collect();
    seats.join(" ")
}

/// Places everything and shows the seats.
pub fn placed(hosts: &[Host], requests: &[Request], strategy: Strategy) -> String {
    shown(&place(hosts, requests, strategy).expect("all machines fit"))
}

/// Spreads everything and shows the seats.
pub fn spread(hosts: &[Host], requests: &[Request]) -> String {
    placed(hosts, requests, Strategy::Spread)
}

/// Returns the refusals of a spread that does not fit.
pub fn refused(hosts: &[Host], requests: &[Request]) -> Vec<Refusal> {
    place(hosts, requests, Strategy::Spread).expect_err("not all machines fit")
}
