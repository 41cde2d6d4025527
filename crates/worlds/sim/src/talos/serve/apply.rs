//! Applying a config.

use std::time::Duration;

use ichor_machineconfig::{
    Config,
    document::{Map, Node, Value},
    emit::emit_redacted,
    validate::{Mode as Place, validate},
};
use ichor_model::{Code, Findings, Severity, SourceId};
use ichor_talos_proto::{
    code,
    machine::{
        ApplyConfiguration, ApplyConfigurationRequest, ApplyConfigurationResponse,
        apply_configuration_request::Mode,
    },
};

use super::{Call, Outcome, Refusal, one, refuse, request};
use crate::{
    ground::Ground,
    talos::{
        Machines,
        life::Step,
        machine::{Sequence, State, takes},
        release,
        wanted::Wanted,
    },
};

/// Parts of the legacy document that Talos until 1.13 changes without a reboot, besides all of `cluster`.
const IMMEDIATE: [&str; 19] = [
    "ca",
    "acceptedCAs",
    "time",
    "certSANs",
    "install",
    "network",
    "sysfs",
    "sysctls",
    "logging",
    "controlPlane",
    "kubelet",
    "kernel",
    "registries",
    "pods",
    "seccompProfiles",
    "nodeLabels",
    "nodeAnnotations",
    "nodeTaints",
    "features",
];
const IMMEDIATE_FEATURES: [&str; 5] =
    ["kubernetesTalosAPIAccess", "kubePrism", "hostDNS", "imageCache", "nodeAddressSortAlgorithm"];

/// A trial ends after this time unless the caller says otherwise.
const TRIAL: Duration = Duration::from_mins(1);

impl Machines {
    pub(super) fn apply_configuration(&mut self, ground: &mut Ground, call: &Call<'_>) -> Outcome {
        let asked: ApplyConfigurationRequest = request(call.rpc)?;
        let Some(run) = self.run(call.vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        let talos = run.minor();
        let small = call.caller.maintenance && !release::maintenance_is_whole(talos);
        let mode = Mode::try_from(asked.mode).or_else(|_| {
            refuse(
                code::UNKNOWN,
                format!("incorrect mode '{}' specified for the apply config call", asked.mode),
            )
        })?;
        if run.awaits_reboot {
            let text = "configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot";
            return refuse(code::FAILED_PRECONDITION, text);
        }
        if small && matches!(mode, Mode::NoReboot | Mode::Staged) {
            let word = if mode == Mode::Staged { "staged" } else { "no-reboot" };
            let text = format!("apply configuration --mode='{word}' is not supported in maintenance mode");
            return refuse(code::UNIMPLEMENTED, text);
        }
        if !call.caller.maintenance && mode == Mode::Reboot && release::never_reboots_to_apply(talos) {
            return refuse(code::UNIMPLEMENTED, "apply configuration --mode='reboot' is not supported");
        }
        let config = parse(&asked.data, small)?;
        if !call.caller.maintenance && config.legacy().is_none() {
            let text = "the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?";
            return refuse(code::INVALID_ARGUMENT, text);
        }
        let installed =
            self.by_id.get(&call.vmid).is_some_and(|machine| machine.installed(&ground.media).is_some());
        let place = if run.image.platform == "metal" && !installed { Place::Metal } else { Place::Cloud };
        let warnings = judge(&config, &run.image.talos, place, small)?;
        if small {
            return self.apply_small(ground, call, &asked, &config, warnings);
        }
        self.apply_whole(ground, call, &asked, mode, &config, warnings)
    }

    /// Maintenance mode until 1.12.
    fn apply_small(
        &mut self,
        ground: &mut Ground,
        call: &Call<'_>,
        asked: &ApplyConfigurationRequest,
        config: &Config,
        warnings: Vec<String>,
    ) -> Outcome {
        let mut answer = ApplyConfiguration { warnings, ..ApplyConfiguration::default() };
        if asked.dry_run {
            answer.mode_details =
                "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."
                    .into();
        } else {
            self.take(ground, call, &asked.data, config);
        }
        one(&ApplyConfigurationResponse { messages: vec![answer] })
    }

    fn apply_whole(
        &mut self,
        ground: &mut Ground,
        call: &Call<'_>,
        asked: &ApplyConfigurationRequest,
        mode: Mode,
        config: &Config,
        warnings: Vec<String>,
    ) -> Outcome {
        let maintenance = call.caller.maintenance;
        let Some(run) = self.run(call.vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        let current =
            run.config.as_deref().map(|bytes| Config::read(SourceId::default(), bytes).0).unwrap_or_default();
        let never = release::never_reboots_to_apply(run.minor());
        let obstacle = if maintenance || never { None } else { obstacle(&current, config) };
        let mut reason = String::new();
        let mode = match mode {
            Mode::Reboot if maintenance => Mode::NoReboot,
            Mode::NoReboot | Mode::Try => match obstacle {
                Some(obstacle) => return refuse(code::INVALID_ARGUMENT, obstacle),
                None => mode,
            },
            Mode::Auto => match obstacle {
                Some(obstacle) => {
                    reason = format!(": {obstacle}");
                    Mode::Reboot
                }
                None => Mode::NoReboot,
            },
            Mode::Reboot | Mode::Staged => mode,
        };
        let mut details = match mode {
            Mode::Staged => "Staged configuration to be applied after the next reboot",
            Mode::Reboot => "Applied configuration with a reboot",
            _ => "Applied configuration without a reboot",
        }
        .to_owned();
        if asked.dry_run {
            let changes = diff(&current, config);
            let changes = if changes.is_empty() { "No changes.".to_owned() } else { changes };
            let mode_details =
                format!("Dry run summary:\n{details} (skipped in dry-run).\nConfig diff:\n\n{changes}");
            let answer =
                ApplyConfiguration { mode: mode as i32, mode_details, ..ApplyConfiguration::default() };
            return one(&ApplyConfigurationResponse { messages: vec![answer] });
        }
        match mode {
            Mode::Try => details.push_str(&self.try_out(ground, call, asked, config)),
            Mode::Staged => self.store(ground, call, &asked.data),
            Mode::Reboot => {
                self.store(ground, call, &asked.data);
                if let Some(run) = self.run_mut(call.vmid) {
                    run.awaits_reboot = true;
                }
                self.start_sequence(ground, call.vmid, Sequence::Reboot, "");
            }
            Mode::NoReboot | Mode::Auto => self.take(ground, call, &asked.data, config),
        }
        let mode_details = details + &reason;
        let answer = ApplyConfiguration { metadata: None, warnings, mode: mode as i32, mode_details };
        one(&ApplyConfigurationResponse { messages: vec![answer] })
    }

    /// Puts a config into force, and keeps it.
    fn take(&mut self, ground: &mut Ground, call: &Call<'_>, bytes: &[u8], config: &Config) {
        if let Some(run) = self.run_mut(call.vmid) {
            run.trial = None;
        }
        self.put_into_force(ground, call, bytes, config);
        self.keep_config(ground, call.vmid);
        if call.caller.maintenance && config.legacy().is_some() {
            // The answer comes first; then the open door closes.
            self.after(ground, call.vmid, takes::ANSWER, Step::GoOn);
        }
    }

    fn put_into_force(&mut self, ground: &mut Ground, call: &Call<'_>, bytes: &[u8], config: &Config) {
        if let Some(run) = self.run_mut(call.vmid) {
            let before = run.wanted.take();
            run.config = Some(bytes.to_vec());
            run.wanted = config.legacy().is_some().then(|| Wanted::read(config));
            // Another image means another kubelet: it stops, and starts again with the new one.
            let kubelet = |wanted: &Option<Wanted>| {
                wanted.as_ref().and_then(|wanted| wanted.images.get("kubelet").cloned())
            };
            if before.is_some() && kubelet(&before) != kubelet(&run.wanted) {
                run.move_service(ground.now, "kubelet", State::Waiting, "Restarting");
            }
        }
        if self.run(call.vmid).is_some_and(|run| {
            run.services.get("kubelet").is_some_and(|kubelet| kubelet.state == State::Waiting)
        }) {
            self.node_down(ground, call.vmid);
        }
        self.set_network(ground, call.vmid);
    }

    /// Keeps a config for the next boot.
    fn store(&self, ground: &mut Ground, call: &Call<'_>, bytes: &[u8]) {
        if let Some(machine) = self.by_id.get(&call.vmid) {
            machine.change_installed(&mut ground.media, |installed| installed.config = Some(bytes.to_vec()));
        }
    }

    /// Puts a config into force for a while; returns what the caller is told.
    fn try_out(
        &mut self,
        ground: &mut Ground,
        call: &Call<'_>,
        asked: &ApplyConfigurationRequest,
        config: &Config,
    ) -> String {
        let lasts = asked
            .try_mode_timeout
            .as_ref()
            .map_or(TRIAL, |lasts| Duration::from_secs(u64::try_from(lasts.seconds).unwrap_or(0)));
        let mut number = 0;
        if let Some(run) = self.run_mut(call.vmid) {
            run.trials += 1;
            number = run.trials;
            let before = run.trial.take().map_or_else(|| run.config.clone(), |(_, before)| before);
            run.trial = Some((number, before));
        }
        self.put_into_force(ground, call, &asked.data, config);
        if call.caller.maintenance && config.legacy().is_some() {
            // The answer comes first; then the open door closes.
            self.after(ground, call.vmid, takes::ANSWER, Step::GoOn);
        }
        self.after(ground, call.vmid, lasts, Step::TrialOver(number));
        format!(
            "\nThe config is applied in 'try' mode and will be automatically reverted back in {}",
            go_duration(lasts)
        )
    }
}

/// Writes a duration as Go does.
fn go_duration(duration: Duration) -> String {
    let (hours, minutes, seconds) =
        (duration.as_secs() / 3600, duration.as_secs() / 60 % 60, duration.as_secs() % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Reads a config, with the code that a release gives to what it cannot read.
fn parse(bytes: &[u8], small: bool) -> Result<Config, Refusal> {
    Config::parse(SourceId::default(), bytes).or_else(|findings| unread(&unreadable(&findings), small))
}

/// Refuses a config that cannot be read.
fn unread<T>(text: &str, small: bool) -> Result<T, Refusal> {
    if small {
        return refuse(code::UNKNOWN, format!("failed to parse config: {text}"));
    }
    refuse(code::INVALID_ARGUMENT, text)
}

/// Talos shows the offending YAML below this line; the lab names the keys.
fn unreadable(findings: &Findings) -> String {
    let errors: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    let unknown: Vec<&str> = errors
        .iter()
        .filter(|finding| finding.code == Code::CONFIG_KEY && !finding.message.contains("not registered"))
        .map(|finding| finding.message.as_str())
        .collect();
    if unknown.is_empty() {
        return errors.first().map(|finding| finding.message.clone()).unwrap_or_default();
    }
    format!("unknown keys found during decoding:\n{}\n", unknown.join("\n"))
}

/// Judges a config; returns its warnings.
fn judge(config: &Config, tag: &str, place: Place, small: bool) -> Result<Vec<String>, Refusal> {
    let findings = validate(config, release::minor(tag), place);
    // What came with a later release cannot even be read.
    let late = findings.iter().filter(|finding| finding.code == Code::CONFIG_RELEASE);
    let unreadable =
        late.flat_map(|finding| &finding.notes).find_map(|note| note.split_once(" refuses it: "));
    if let Some((_, reason)) = unreadable {
        return unread(reason, small);
    }
    let of = |wanted| findings.iter().filter(move |finding| finding.severity == wanted);
    let errors: Vec<&str> = of(Severity::Error).map(|finding| finding.message.as_str()).collect();
    if errors.is_empty() {
        return Ok(of(Severity::Warning).map(|finding| bare(&finding.message).to_owned()).collect());
    }
    let text = several(&grouped(config, &errors, tag));
    if small {
        return refuse(code::INVALID_ARGUMENT, format!("configuration validation failed: {text}"));
    }
    refuse(code::INVALID_ARGUMENT, text)
}

/// What our findings call the legacy document.
const LEGACY: &str = "the v1alpha1 document: ";

fn bare(message: &str) -> &str {
    message.strip_prefix(LEGACY).unwrap_or(message)
}

/// Gathers the errors of each document, as Talos does: the legacy one first, conflicts between them last.
fn grouped(config: &Config, errors: &[&str], tag: &str) -> Vec<String> {
    let mut groups = Vec::new();
    let mut rest: Vec<&str> = errors.to_vec();
    for document in config.documents() {
        let identity = document.identity();
        let label = format!("{}: ", identity.label());
        let own: Vec<String> = rest
            .iter()
            .filter_map(|error| error.strip_prefix(&label))
            .map(|error| exact(error, tag))
            .collect();
        rest.retain(|error| !error.starts_with(&label));
        if own.is_empty() {
            continue;
        }
        let named = match (document.is_legacy(), identity.name.as_str()) {
            (true, _) => "v1alpha1.Config".to_owned(),
            (false, "") => identity.kind.clone(),
            (false, name) => format!("{}/{name}", identity.kind),
        };
        groups.push(format!("{named}: {}", several(&own)));
    }
    groups.extend(rest.into_iter().map(|error| exact(error, tag)));
    groups
}

/// Talos names the whole of its own release, and Kubernetes without the letter.
fn exact(error: &str, tag: &str) -> String {
    let (minor, whole) = (release::minor(tag).to_string(), tag.trim_start_matches('v'));
    match error.strip_suffix(&format!("to be used with Talos {minor}")) {
        Some(start) => {
            let start = start.replace("version of Kubernetes v", "version of Kubernetes ");
            format!("{start}to be used with Talos {whole}")
        }
        None => error.to_owned(),
    }
}

/// Writes errors as Talos gathers them.
fn several(errors: &[String]) -> String {
    let plural = if errors.len() == 1 { "error" } else { "errors" };
    let list: String = errors.iter().map(|error| format!("\t* {error}\n")).collect();
    format!("{} {plural} occurred:\n{list}\n", errors.len())
}

/// Says why a change needs a reboot, if it does.
fn obstacle(current: &Config, next: &Config) -> Option<String> {
    let (old, new) = (current.legacy()?.body(), next.legacy()?.body());
    let kept = differs(old, new, &["debug", "cluster", "machine"]);
    let part = |map: &Map, path: &str| {
        map.get("machine").and_then(|machine| machine.at_path(path)).and_then(Node::as_map).cloned()
    };
    let machine = |map: &Map| map.get("machine").and_then(Node::as_map).cloned().unwrap_or_default();
    let changed = kept
        || differs(&machine(old), &machine(new), &IMMEDIATE)
        || differs(
            &part(old, "features").unwrap_or_default(),
            &part(new, "features").unwrap_or_default(),
            &IMMEDIATE_FEATURES,
        );
    changed.then(|| {
        format!("this config change can't be applied in immediate mode\ndiff: {}", diff(current, next))
    })
}

/// Whether two maps differ in a key that is not among these.
fn differs(old: &Map, new: &Map, except: &[&str]) -> bool {
    let empty = Node::from(Value::Null);
    let keys = old.iter().chain(new.iter()).map(|(key, _)| key.text.as_str());
    keys.filter(|key| !except.contains(key))
        .any(|key| old.get(key).unwrap_or(&empty) != new.get(key).unwrap_or(&empty))
}

/// Shows the lines that differ, without secrets. Talos' own form of this text is not recorded.
fn diff(current: &Config, next: &Config) -> String {
    let show =
        |config: &Config| if config.documents().is_empty() { String::new() } else { emit_redacted(config) };
    let (old, new) = (show(current), show(next));
    if old == new {
        return String::new();
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let lines =
        |sign: char, lines: &[&str]| lines.iter().map(|line| format!("{sign}{line}\n")).collect::<String>();
    lines('-', &old[start..old.len() - end]) + &lines('+', &new[start..new.len() - end])
}
