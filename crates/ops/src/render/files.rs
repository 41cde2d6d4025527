//! Every file of a rendered cluster.

use std::path::Path;

use ichor_machineconfig::{
    cidata,
    compose::{Composer, Materials},
    meta,
    pki::{Client, TALOS_CLIENT_LIFETIME, TalosRole, Timestamp},
    reservations,
    secrets::{Bundle, SecretText},
    talosconfig::Talosconfig,
};
use ichor_model::{
    Code, Desired, Finding, Findings,
    desired::{AddressDelivery, ConfigDelivery, Machine, Role},
};

use super::terraform;
use crate::{
    Halt, System,
    access::{self, TalosAccess},
    system::Links,
};

/// Largest talosconfig that is looked at.
const MAX_TALOSCONFIG_BYTES: usize = 1024 * 1024;
const TALOSCONFIG: &str = "talosconfig";

/// A file that is to be written.
#[derive(Debug)]
pub struct File {
    /// Its path below the directory, with `/` between names.
    pub path: String,
    /// What it is, in a few words.
    pub what: String,
    /// Its content.
    pub content: SecretText,
}

impl File {
    fn new(path: impl Into<String>, what: impl Into<String>, content: SecretText) -> Self {
        Self { path: path.into(), what: what.into(), content }
    }

    /// A file without secrets.
    fn plain(path: impl Into<String>, what: impl Into<String>, content: impl Into<String>) -> Self {
        Self::new(path, what, SecretText::new(content))
    }
}

/// Draws up all files, with warnings, or says everything that is in the way.
pub fn draw_up(
    system: &dyn System,
    desired: &Desired,
    bundle: &Bundle,
    materials: &Materials,
    directory: &Path,
) -> Result<(Vec<File>, Findings), Halt> {
    let mut files = vec![
        File::plain(".gitignore", "keeps all of it out of git", "*\n"),
        File::new("secrets.yaml", "secrets of the cluster", bundle.to_secrets_yaml()),
    ];
    let mut findings = Findings::new();
    let composer = Composer::new(desired, bundle, materials).map_err(Halt::invalid)?;
    findings.extend(composer.notes().clone());
    configs(desired, &composer, &mut files, &mut findings);
    let (talosconfig, notes) = talosconfig(system, desired, bundle, directory)?;
    files.push(File::new(TALOSCONFIG, "access to the Talos API", talosconfig));
    findings.extend(notes);
    files.push(File::plain(
        terraform::NAME,
        "machines, for Terraform",
        terraform::variables(desired, config_path),
    ));
    let by_reservation = desired.machines.iter().filter(|m| m.boot.address == AddressDelivery::Dhcp);
    let reservations = reservations::dnsmasq(by_reservation);
    if !reservations.is_empty() {
        files.push(File::plain("dnsmasq.conf", "DHCP reservations, for dnsmasq", reservations));
    }
    let findings = findings.sorted();
    if findings.has_errors() { Err(Halt::invalid(findings)) } else { Ok((files, findings)) }
}

fn config_path(machine: &Machine) -> String {
    format!("machines/{}.yaml", machine.name)
}

/// Draws up the machine configs: of each role, and of each machine with what else carries it there.
fn configs(desired: &Desired, composer: &Composer<'_>, files: &mut Vec<File>, findings: &mut Findings) {
    for role in Role::ALL {
        match composer.role(role) {
            Ok(config) => {
                findings.extend(config.notes.clone());
                let what = format!("machine config of any {}", words(role));
                files.push(File::new(format!("{role}.yaml"), what, config.text()));
            }
            Err(found) => findings.extend(found),
        }
    }
    for machine in &desired.machines {
        match composer.machine(machine) {
            Ok(config) => {
                findings.extend(config.notes.clone());
                let config = config.text();
                let what = format!("machine config of {}", machine.name);
                files.push(File::new(config_path(machine), what, config.clone()));
                volume(desired, machine, config, files);
            }
            Err(found) => findings.extend(found),
        }
        match meta_value(desired, machine) {
            Ok(file) => files.extend(file),
            Err(finding) => findings.push(*finding),
        }
    }
}

const fn words(role: Role) -> &'static str {
    match role {
        Role::ControlPlane => "control plane",
        Role::Worker => "worker",
    }
}

/// Adds the files of a machine's cidata volume, if it boots with one.
fn volume(desired: &Desired, machine: &Machine, config: SecretText, files: &mut Vec<File>) {
    let carries_config = machine.boot.config == ConfigDelivery::Cidata;
    if !carries_config && machine.boot.address != AddressDelivery::Cidata {
        return;
    }
    let volume = cidata::render(machine, desired.network.hostnames, carries_config.then_some(config));
    let name = &machine.name;
    let path = |file: &str| format!("cidata/{name}/{file}");
    let what = format!("cidata volume of {name}");
    files.push(File::new(path("user-data"), &what, volume.user_data));
    files.push(File::plain(path("meta-data"), &what, volume.meta_data));
    files.push(File::plain(path("network-config"), &what, volume.network_config));
}

/// Returns the value of META key 10, if the machine gets its address that way.
fn meta_value(desired: &Desired, machine: &Machine) -> Result<Option<File>, Box<Finding>> {
    if machine.boot.address != AddressDelivery::Meta {
        return Ok(None);
    }
    let name = &machine.name;
    let value = meta::network(machine, desired.network.hostnames, &desired.os.time_servers);
    let value = value.map_err(|problem| {
        let message = format!("the META value of `{name}` {}", problem.message);
        Box::new(Finding::error(Code::BOOT_PATH, None, message).remedy(problem.remedy))
    })?;
    Ok(Some(File::plain(format!("meta/{name}.yaml"), format!("META key 10 of {name}"), value + "\n")))
}

/// Returns the talosconfig. One that is there and still good keeps its credentials, so that rendering
/// again changes nothing.
fn talosconfig(
    system: &dyn System,
    desired: &Desired,
    bundle: &Bundle,
    directory: &Path,
) -> Result<(SecretText, Findings), Halt> {
    let (endpoints, unknown) = access::known_endpoints(desired);
    let client = match kept_client(system, desired, bundle, &directory.join(TALOSCONFIG)) {
        Some(client) => client,
        None => {
            let access = TalosAccess { roles: vec![TalosRole::Admin], lifetime: TALOS_CLIENT_LIFETIME };
            access::talos_client_of(system, bundle, &access)?
        }
    };
    let text = access::write_talosconfig(desired, bundle, &endpoints, &client)?;
    let warnings = unknown.iter().map(|machine| access::late_endpoint_of(machine, Finding::warning));
    Ok((text, warnings.collect()))
}

fn kept_client(system: &dyn System, desired: &Desired, bundle: &Bundle, path: &Path) -> Option<Client> {
    let contents = system.read(path, MAX_TALOSCONFIG_BYTES, Links::Refuse).ok()?;
    let config = Talosconfig::parse(std::str::from_utf8(&contents.bytes).ok()?).ok()?;
    let credentials = config.context(Some(desired.cluster.name.as_str()))?.credentials.clone()?;
    let certificate = &credentials.client.certificate;
    let is_good = credentials.authority == *bundle.os.certificate()
        && certificate.organizations() == [TalosRole::Admin.word()]
        && is_in_first_half(certificate.not_before(), certificate.not_after(), system.now());
    is_good.then_some(credentials.client)
}

fn is_in_first_half(begins: Timestamp, ends: Timestamp, now: Timestamp) -> bool {
    let (begins, ends, now) = (begins.unix_seconds(), ends.unix_seconds(), now.unix_seconds());
    begins <= now && now.saturating_sub(begins) < ends.saturating_sub(now)
}
