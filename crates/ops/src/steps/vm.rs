//! Making, starting and finishing VMs.

use ichor_engine::{EffectError, Report, StepContext};
use ichor_model::{
    HostName, Observed,
    desired::{CloneKind, ConfigDelivery, ImageSource, Machine, Verify},
};
use ichor_plan::{
    Condition,
    files::{host_of, image_place, seed_prefix, template_host, template_of},
};
use ichor_pve::{
    Params,
    api::{self, VmConfig},
    machine::{Changes, Difference, Media, Shape, System, eject, gib, insert},
    ownership::Whose,
    property::{Drive, DriveSource},
};

use super::{configure, image, remove, task};
use crate::{
    live::{Live, Pin, pve_trouble, transient},
    observe::Found,
};

/// Makes the pool of the cluster.
pub async fn make_pool(live: &Live<'_>, pool: &str) -> Result<(), EffectError> {
    let comment = format!("machines of {}", live.desired.cluster.name);
    let made = live.pve.send(&api::create_pool(pool, &comment)).await;
    made.map_err(|error| pve_trouble("making the pool", &error))
}

/// Makes a VM, or finishes one that an earlier run began.
pub async fn create(
    live: &Live<'_>,
    context: &StepContext<'_>,
    machine: &Machine,
    host: &HostName,
) -> Result<(), EffectError> {
    let what = format!("creating VM {} on host `{host}`", machine.vmid);
    live.notes.take_vm(machine.vmid);
    let earlier = task::follow_earlier(live, context, &what).await;
    // The engine has just looked: only an interrupted attempt can have changed something since.
    let known_missing = !earlier && live.memory.host(machine.vmid).is_none();
    if !known_missing {
        match live.find_vm(machine.vmid, host).await.map_err(|error| pve_trouble(&what, &error))? {
            Found::Nothing => {}
            Found::There(place, config) => match live.whose(machine, &config) {
                Whose::Ours | Whose::OursUnfinished => {
                    return finish(live, context, machine, &place).await;
                }
                Whose::Reserved { lock } => {
                    wait_for_maker(live, &what, machine, &place, &lock).await?;
                    return finish(live, context, machine, &place).await;
                }
                other => return Err(not_ours(machine, &other)),
            },
        }
    }
    begin(live, context, machine, host).await?;
    live.memory.saw(machine.vmid, host);
    live.memory.has_made(machine.vmid);
    grow_copy(live, context, &what, machine, host).await?;
    finish(live, context, machine, host).await
}

/// Gives the copy of an image the size that the machine's disk is to have: images are small, so nobody has to look
/// first. If it cannot be done, looking tells why.
async fn grow_copy(
    live: &Live<'_>,
    context: &StepContext<'_>,
    what: &str,
    machine: &Machine,
    host: &HostName,
) -> Result<(), EffectError> {
    let Some(disk) = machine.disks.first().filter(|_| copies_image(live, machine)) else { return Ok(()) };
    match live.pve.send(&api::resize(host, machine.vmid, &disk.slot, gib(disk))).await {
        Ok(Some(upid)) => match task::follow(live, context, what, &upid).await {
            Err(EffectError::Permanent(_)) => Ok(()),
            followed => followed,
        },
        Ok(None) => Ok(()),
        Err(error) if error.refusal().is_some() => Ok(()),
        Err(error) => Err(pve_trouble(what, &error)),
    }
}

/// Whether the system disk of a machine begins as a copy of an image.
fn copies_image(live: &Live<'_>, machine: &Machine) -> bool {
    let image = live.desired.images.iter().find(|image| image.id == machine.image);
    template_of(live.desired, machine).is_none()
        && image.is_some_and(|image| image.source != ImageSource::Iso)
}

fn not_ours(machine: &Machine, whose: &Whose) -> EffectError {
    let message = format!("VM {} is not `{}`: {whose}", machine.vmid, machine.name);
    EffectError::Permanent(
        Report::new(message).hint(
            "somebody else's VM is left as it is: choose another `vmid` for the machine, or free this one",
        ),
    )
}

async fn wait_for_maker(
    live: &Live<'_>,
    what: &str,
    machine: &Machine,
    host: &HostName,
    lock: &str,
) -> Result<(), EffectError> {
    while let Some(upid) = live.maker(machine, host).await {
        // However it ended: looking again tells.
        if let Err(EffectError::Unsure(report)) = task::wait(live, what, &upid).await {
            return Err(EffectError::Unsure(report));
        }
        let config = live.pve.send(&api::config(host, machine.vmid)).await;
        let config = config.map_err(|error| pve_trouble(what, &error))?;
        // What has ended may have been another clone of the same template.
        if !matches!(live.whose(machine, &config), Whose::Reserved { .. }) {
            return Ok(());
        }
    }
    let message = format!("VM {} is locked ({lock}), and no task of ours is making it", machine.vmid);
    let hint = format!(
        "if nobody else makes a VM of this number, remove what is left on host `{host}`:\n    qm unlock {0} && qm destroy {0}",
        machine.vmid
    );
    Err(EffectError::Transient(Report::new(message).hint(hint)))
}

/// Makes a VM that is not there: from an image, with an installer, or as a clone.
async fn begin(
    live: &Live<'_>,
    context: &StepContext<'_>,
    machine: &Machine,
    host: &HostName,
) -> Result<(), EffectError> {
    let what = format!("creating VM {} on host `{host}`", machine.vmid);
    let shape = live.shape(machine);
    let made = match template_of(live.desired, machine) {
        Some(template) => {
            let chosen = || template_host(live.desired, &Observed::default(), template).cloned();
            let home = live.memory.host(template.vmid).or_else(chosen).unwrap_or_else(|| host.clone());
            let mut options = shape.cloned(template.clone == CloneKind::Full);
            options.target = Some(host).filter(|host| **host != home);
            live.pve.send(&api::clone(&home, template.vmid, &options)).await
        }
        None => {
            image::know_installer(live, machine, &what).await?;
            let (volume, installs) = image_of(live, machine, host);
            let seed = live.seed_volume(machine);
            let system = if installs { System::Installer(&volume) } else { System::Import(&volume) };
            let options = shape.create(Media { system, cidata: seed.as_deref() });
            live.pve.send(&api::create(host, machine.vmid, options)).await
        }
    };
    let upid = made.map_err(|error| pve_trouble(&what, &error))?;
    task::follow(live, context, &what, &upid).await
}

/// Returns the image of a machine on its host, and whether it is an installer.
fn image_of(live: &Live<'_>, machine: &Machine, host: &HostName) -> (String, bool) {
    let image = live.desired.images.iter().find(|image| image.id == machine.image);
    let Some(image) = image else { return (String::new(), false) };
    let schematic = live.images.get(&image.id).map_or("", |named| named.id.as_str());
    let place = image_place(live.desired, &live.storages(), image, schematic, host);
    (place.volume, image.source == ImageSource::Iso)
}

/// Gives a VM what it still lacks: a clone everything of its own, any VM disks of the right size.
async fn finish(
    live: &Live<'_>,
    context: &StepContext<'_>,
    machine: &Machine,
    host: &HostName,
) -> Result<(), EffectError> {
    let what = format!("finishing VM {} on host `{host}`", machine.vmid);
    let config = live.pve.send(&api::config(host, machine.vmid)).await;
    let config = config.map_err(|error| pve_trouble(&what, &error))?;
    if !live.whose(machine, &config).is_ours() {
        return Err(not_ours(machine, &live.whose(machine, &config)));
    }
    live.memory.is_ours(machine.vmid);
    let differences = live.shape(machine).differences(&config);
    if live.memory.made(machine.vmid) && !differences.iter().any(Difference::is_ours_to_settle) {
        live.note(machine.vmid, host, &config).await;
    }
    let mut changes = Changes::of(&differences);
    let stale = match live.seed_to_insert(machine, &config) {
        Some(Insert { slot, volume, stale }) => {
            live.notes.take_vm(machine.vmid);
            changes.drives.set(slot, insert(&volume));
            stale
        }
        None => None,
    };
    change(live, context, &what, machine, host, changes.options).await?;
    change(live, context, &what, machine, host, changes.drives).await?;
    for (disk, gib) in changes.grow {
        let grown = live.pve.send(&api::resize(host, machine.vmid, &disk, gib)).await;
        if let Some(upid) = grown.map_err(|error| pve_trouble(&what, &error))? {
            task::follow(live, context, &what, &upid).await?;
        }
    }
    change(live, context, &what, machine, host, changes.last).await?;
    match stale {
        Some(volume) => remove::volume(live, context, host, &volume).await,
        None => Ok(()),
    }
}

async fn change(
    live: &Live<'_>,
    context: &StepContext<'_>,
    what: &str,
    machine: &Machine,
    host: &HostName,
    options: Params,
) -> Result<(), EffectError> {
    if options.pairs().is_empty() {
        return Ok(());
    }
    let changed = live.pve.send(&api::configure(host, machine.vmid, options)).await;
    match changed.map_err(|error| pve_trouble(what, &error))? {
        Some(upid) => task::follow(live, context, what, &upid).await,
        None => Ok(()),
    }
}

/// Switches a VM on, and listens to its serial console from then on if that is to vouch for its key.
pub async fn start(live: &Live<'_>, context: &StepContext<'_>, machine: &Machine) -> Result<(), EffectError> {
    let what = format!("starting VM {}", machine.vmid);
    let host = place(live, &what, machine).await?;
    let what = format!("{what} on host `{host}`");
    let done = Condition::VmRunning { vmid: machine.vmid };
    let seen = live.notes.take_vm(machine.vmid);
    if !task::done_earlier(live, context, &what, &done).await {
        let upid = live.pve.send(&api::start(&host, machine.vmid)).await;
        let upid =
            upid.map_err(|error| pve_trouble(&what, &error)).map_err(|error| moved(live, machine, error))?;
        task::follow(live, context, &what, &upid).await.map_err(|error| moved(live, machine, error))?;
        // A task of the HA manager only asks for it.
        if upid.kind() == "qmstart" {
            live.notes.runs(machine.vmid, seen, true);
        }
    }
    match machine.boot.verify {
        Verify::Console => configure::listen(live, machine, &host).await,
        Verify::Network => live.memory.pin(&machine.name, Pin::Network),
        Verify::Cidata => {}
    }
    Ok(())
}

/// Returns where a VM of ours is. The guard has just seen it; one that has moved since is looked for, and must prove
/// again that it is ours.
async fn place(live: &Live<'_>, what: &str, machine: &Machine) -> Result<HostName, EffectError> {
    if let Some(host) = live.memory.host(machine.vmid).filter(|_| live.memory.proved_ours(machine.vmid)) {
        return Ok(host);
    }
    match live.find_anywhere(machine.vmid).await.map_err(|error| pve_trouble(what, &error))? {
        Found::There(host, config) if live.whose(machine, &config).is_ours() => {
            live.memory.is_ours(machine.vmid);
            Ok(host)
        }
        Found::There(_, config) => Err(not_ours(machine, &live.whose(machine, &config))),
        Found::Nothing => Err(transient(format!("{what}: there is no such VM any more"))),
    }
}

/// A VM that is not where it was has been moved, by people or by HA: where to is for the next attempt to find out.
fn moved(live: &Live<'_>, machine: &Machine, error: EffectError) -> EffectError {
    match error {
        EffectError::Permanent(report) if is_absence(&report.message) => {
            live.memory.lost(machine.vmid);
            EffectError::Transient(report)
        }
        other => other,
    }
}

fn is_absence(message: &str) -> bool {
    message.contains(".conf' does not exist") || message.contains("unable to find configuration file for VM")
}

/// Takes the media of the first boot out of the drives.
///
/// The file of a cidata volume goes before the drive forgets which one it was: so a run that is interrupted in
/// between is finished by the next, and no secrets are left on the storage. The guest keeps what it has open.
pub async fn detach(
    live: &Live<'_>,
    context: &StepContext<'_>,
    machine: &Machine,
) -> Result<(), EffectError> {
    let what = format!("taking the media of the first boot out of VM {}", machine.vmid);
    live.notes.take_vm(machine.vmid);
    let host = place(live, &what, machine).await?;
    let config = live.pve.send(&api::config(&host, machine.vmid)).await;
    let config = config.map_err(|error| pve_trouble(&what, &error))?;
    for media in live.passing_media(machine, &config) {
        if let Some(volume) = media.seed {
            remove::volume_if_there(live, &host, &volume, &what).await?;
        }
        let changed = change(live, context, &what, machine, &host, eject(&media.slot)).await;
        changed.map_err(|error| moved(live, machine, error))?;
    }
    Ok(())
}

/// A cidata volume to put into a drive.
pub struct Insert {
    slot: String,
    volume: String,
    /// The one of ours that is there now.
    stale: Option<String>,
}

/// Something in a drive that was for the first boot alone.
pub struct Passing {
    slot: String,
    /// The cidata volume of ours that it is.
    seed: Option<String>,
}

/// Returns the volume that is in an optical drive.
pub fn in_drive(config: &VmConfig, slot: &str) -> Option<String> {
    let drive = Drive::parse(&config.text(slot)?).filter(Drive::is_optical)?;
    match drive.source {
        DriveSource::Volume(volume) => Some(volume),
        _ => None,
    }
}

impl Live<'_> {
    /// Returns the shape of a machine.
    pub(crate) fn shape<'m>(&'m self, machine: &'m Machine) -> Shape<'m> {
        Shape { claim: self.claim(), pool: self.desired.proxmox.pool.as_deref(), machine }
    }

    /// Returns the cidata volume that a VM which is off lacks: an unfinished one has none yet, and one of ours may be
    /// stale. An empty drive of a finished VM stays empty: the machine has its config.
    pub(crate) fn seed_to_insert(&self, machine: &Machine, config: &VmConfig) -> Option<Insert> {
        let wanted = self.seed_volume(machine)?;
        let slot = self.shape(machine).slots().cidata;
        let inside = in_drive(config, &slot);
        let stale = inside.as_ref().filter(|volume| self.is_seed_of(machine, volume) && **volume != wanted);
        let missing = inside.is_none() && self.whose(machine, config) == Whose::OursUnfinished;
        let stale = stale.cloned();
        (missing || stale.is_some()).then_some(Insert { slot, volume: wanted, stale })
    }

    /// Returns what is in the drives of a VM that was for the first boot alone.
    pub(crate) fn passing_media(&self, machine: &Machine, config: &VmConfig) -> Vec<Passing> {
        let slots = self.shape(machine).slots();
        let mut found = Vec::new();
        let installs = self
            .desired
            .images
            .iter()
            .any(|image| image.id == machine.image && image.source == ImageSource::Iso);
        if installs && in_drive(config, &slots.installer).is_some() {
            found.push(Passing { slot: slots.installer, seed: None });
        }
        if machine.boot.config == ConfigDelivery::Cidata
            && let Some(volume) = in_drive(config, &slots.cidata)
        {
            let seed = self.is_seed_of(machine, &volume).then_some(volume);
            found.push(Passing { slot: slots.cidata, seed });
        }
        found
    }

    /// Whether a volume is a cidata volume that ichor made for a machine, on whatever storage.
    pub(crate) fn is_seed_of(&self, machine: &Machine, volume: &str) -> bool {
        let Some(host) = host_of(machine) else { return false };
        let own = seed_prefix(self.desired, machine, host);
        let file = |volume: &str| volume.split_once(':').map(|(_, file)| file.to_owned());
        file(volume).zip(file(&own)).is_some_and(|(file, own)| file.starts_with(&own))
    }
}
