//! Looking at VMs, templates, volumes and pools.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::future::join_all;
use ichor_factory::Asset;
use ichor_model::{
    HostName, Observed, VmId,
    desired::{Image, Machine, Template},
    observed::{Owner, Rights, Sight, StorageSeen, VmSeen, VolumeSeen},
    stamp::Party,
};
use ichor_plan::files::{has_seed, host_of, image_place, storage_of, template_host, users_of};
use ichor_pve::{
    Kind, Upid,
    api::{self, VmConfig},
    machine::{Difference, TemplateShape},
    ownership::{Identity, Whose, identify, maker, whose},
};

use tokio::time::Instant;

use super::survey::Survey;
use crate::live::Live;

/// How long the factory may take to say how long an image is that it has made before.
const LENGTH_WITHIN: Duration = Duration::from_secs(10);

/// What was found under a VMID.
#[derive(Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A VM, with where it is and what it says.
    There(HostName, VmConfig),
}

type VmSight = Sight<Option<VmSeen>>;

impl Live<'_> {
    /// What Proxmox's side of a cluster looks like by a survey. Images are asked for when something is to be made.
    pub(super) async fn proxmox_side(&self, survey: &Survey) -> Observed {
        let mut observed = Observed {
            release: survey
                .release
                .map_or_else(|| Sight::Unseen("its release is no number".into()), Sight::Seen),
            hosts: survey.hosts.iter().map(|host| (host.node.clone(), host.status == "online")).collect(),
            storages: storages(survey),
            ..Observed::default()
        };
        self.memory.runs(survey.release);
        self.see_doubtful_storages(&mut observed).await;
        *self.seen_storages.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            observed.storages.clone();
        for (vmid, guest) in &survey.guests {
            self.memory.saw(*vmid, &guest.node);
        }
        let mut wanted = self.desired.vmids();
        wanted.extend(survey.configs.keys().filter(|vmid| self.concerns_us(survey, **vmid)));
        let vms = join_all(
            wanted.into_iter().map(|vmid| async move { (vmid, self.by_survey(survey, vmid).await) }),
        );
        observed.vms = vms.await.into_iter().collect();
        for (vmid, sight) in &observed.vms {
            // The list may say for seconds too long that a VM is off.
            if let Sight::Seen(seen) = sight
                && seen.as_ref().is_none_or(|vm| vm.running)
            {
                self.notes.vm(*vmid, seen.clone(), survey.at);
            }
        }
        if self.desired.proxmox.pool.is_some() {
            observed.pool = self.see_pool().await;
        }
        if self.something_to_make(&observed) || self.has_nameless_seeds() {
            (observed.volumes, observed.rights) =
                tokio::join!(self.see_volumes(&observed), self.see_rights());
            for ((host, volume), sight) in &observed.volumes {
                if let Sight::Seen(seen) = sight {
                    self.notes.volume(host, volume, seen.clone(), Instant::now());
                }
            }
        }
        observed
    }

    /// Somebody else's VM that cannot be asked is no concern of ours.
    fn concerns_us(&self, survey: &Survey, vmid: VmId) -> bool {
        let asked = survey.configs.get(&vmid).is_some_and(Result::is_ok);
        asked || survey.may_be_ours(vmid, self.desired)
    }

    /// Looks at what the token may do.
    pub(crate) async fn see_rights(&self) -> Sight<Rights> {
        match self.pve.send(&api::permissions()).await {
            Ok(told) => {
                let inherited = |privileges: BTreeMap<String, u8>| {
                    privileges.into_iter().map(|(name, inherited)| (name, inherited != 0)).collect()
                };
                let paths = told.into_iter().map(|(path, privileges)| (path, inherited(privileges)));
                Sight::Seen(Rights { who: self.reach.token.id().to_owned(), paths: paths.collect() })
            }
            Err(error) => Sight::Unseen(error.to_string()),
        }
    }

    /// The list says of a storage only whether its host has spoken of it lately: one that does not work and one of
    /// a host that has just come back look the same. Those that are wanted are asked.
    async fn see_doubtful_storages(&self, observed: &mut Observed) {
        let wanted: BTreeSet<(HostName, String)> = self.wanted_storages().collect();
        let up = |host: &HostName| observed.hosts.get(host) == Some(&true);
        let doubtful =
            observed.storages.iter().filter(|(at, seen)| !seen.active && up(&at.0) && wanted.contains(at));
        let doubtful: Vec<(HostName, String)> = doubtful.map(|(at, _)| at.clone()).collect();
        for at in doubtful {
            let Ok(status) = self.pve.send(&api::storage_status(&at.0, &at.1)).await else { continue };
            if let Some(seen) = observed.storages.get_mut(&at).filter(|_| status.active == 1) {
                seen.active = true;
                seen.content = words(&status.content);
                seen.free = Some(status.avail);
            }
        }
    }

    fn wanted_storages(&self) -> impl Iterator<Item = (HostName, String)> {
        let machines = self.desired.machines.iter().filter_map(|machine| Some((host_of(machine)?, machine)));
        machines.flat_map(|(host, machine)| {
            let images = storage_of(self.desired, host).images.clone();
            let extra = [&machine.vm.efi_storage, &machine.vm.cloudinit_storage];
            let disks = machine.disks.iter().map(|disk| disk.storage.clone());
            let all = disks.chain(extra.into_iter().flatten().cloned()).chain([images]);
            all.map(|storage| (host.clone(), storage)).collect::<Vec<_>>()
        })
    }

    fn something_to_make(&self, observed: &Observed) -> bool {
        self.desired.machines.iter().any(|machine| {
            !matches!(observed.vms.get(&machine.vmid), Some(Sight::Seen(Some(vm))) if vm.owner == Owner::Ours)
        })
    }

    /// Whether there may be cidata volumes that can only be found by looking: their names follow from what is in them,
    /// and they cannot be drawn up.
    fn has_nameless_seeds(&self) -> bool {
        let mut seeded = self.desired.machines.iter().filter(|machine| has_seed(machine));
        seeded.any(|machine| !self.names().seeds.contains_key(&machine.name))
    }

    async fn by_survey(&self, survey: &Survey, vmid: VmId) -> VmSight {
        let Some(guest) = survey.guests.get(&vmid) else { return Sight::Seen(None) };
        let config = match survey.configs.get(&vmid) {
            Some(Ok(config)) => config,
            Some(Err(why)) => return Sight::Unseen(why.clone()),
            None => return Sight::Unseen("nobody asked it".into()),
        };
        // The list lags behind by seconds, and says `unknown` of new VMs: only `running` and `stopped` count.
        let running = match guest.status.as_deref() {
            Some("running") => true,
            Some("stopped") => false,
            _ => match self.is_running(&guest.node, vmid).await {
                Ok(running) => running,
                Err(error) => return Sight::Unseen(error.to_string()),
            },
        };
        let mut sight = self.describe(vmid, &guest.node, config, running).await;
        if let Sight::Seen(Some(seen)) = &mut sight {
            seen.drift.extend(self.other_pool(seen, guest.pool.as_deref()));
        }
        sight
    }

    /// Only the list of all VMs tells pools. An inventory without one asks for none.
    fn other_pool(&self, seen: &VmSeen, is: Option<&str>) -> Option<String> {
        let wanted = self.desired.proxmox.pool.as_deref()?;
        let told = seen.owner == Owner::Ours && seen.running && is != Some(wanted);
        let is = is.map_or_else(|| "in no pool".to_owned(), |pool| format!("in pool `{pool}`"));
        told.then(|| format!("it is {is}, wanted `{wanted}`"))
    }

    async fn is_running(&self, host: &HostName, vmid: VmId) -> Result<bool, ichor_pve::Error> {
        self.pve.send(&api::status(host, vmid)).await.map(|status| status.status == "running")
    }

    /// Looks at a VM of the cluster. Whether it runs is a call more, made where that `matters`.
    pub(super) async fn see_vm(&self, vmid: VmId, matters: impl Fn(&VmSeen) -> bool) -> VmSight {
        let machine = self.desired.machines.iter().find(|machine| machine.vmid == vmid);
        let hint = self.memory.host(vmid).or_else(|| machine.and_then(host_of).cloned());
        let Some(hint) = hint else { return Sight::Unseen("it is not known where to look".into()) };
        let (host, config) = match self.find_vm(vmid, &hint).await {
            Ok(Found::There(host, config)) => (host, config),
            Ok(Found::Nothing) => return Sight::Seen(None),
            Err(error) => return Sight::Unseen(error.to_string()),
        };
        let off = self.describe(vmid, &host, &config, false).await;
        if !matches!(&off, Sight::Seen(Some(vm)) if matters(vm)) {
            return off;
        }
        match self.is_running(&host, vmid).await {
            Ok(true) => self.describe(vmid, &host, &config, true).await,
            Ok(false) => off,
            Err(error) => Sight::Unseen(error.to_string()),
        }
    }

    /// Finds a VM where it was last, or wherever it has moved.
    pub(crate) async fn find_vm(&self, vmid: VmId, hint: &HostName) -> Result<Found, ichor_pve::Error> {
        match self.pve.send(&api::config(hint, vmid)).await {
            Ok(config) => {
                self.memory.saw(vmid, hint);
                return Ok(Found::There(hint.clone(), config));
            }
            Err(error) if error.refusal() == Some(Kind::Missing) => {}
            Err(error) => return Err(error),
        }
        // One that was never seen anywhere cannot have moved.
        if self.memory.host(vmid).is_none() {
            return Ok(Found::Nothing);
        }
        self.find_anywhere(vmid).await
    }

    /// Finds a VM on any host.
    pub(crate) async fn find_anywhere(&self, vmid: VmId) -> Result<Found, ichor_pve::Error> {
        let guests = self.pve.send(&api::guests()).await?;
        let Some(guest) = guests.into_iter().find(|guest| guest.vmid == vmid) else {
            self.memory.lost(vmid);
            return Ok(Found::Nothing);
        };
        match self.pve.send(&api::config(&guest.node, vmid)).await {
            Ok(config) => {
                self.memory.saw(vmid, &guest.node);
                Ok(Found::There(guest.node, config))
            }
            // The list lags behind: it is neither here nor there.
            Err(error) if error.refusal() == Some(Kind::Missing) => {
                self.memory.lost(vmid);
                Ok(Found::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Says whose the VM under a machine's number is.
    pub(crate) fn whose(&self, machine: &Machine, config: &VmConfig) -> Whose {
        whose(self.claim_to_own(), machine, machine.vmid, config)
    }

    /// Whether a VM belongs to this cluster, by what it says of itself.
    pub(crate) async fn is_of_cluster(&self, vmid: VmId, host: &HostName, config: &VmConfig) -> bool {
        let seen = self.describe(vmid, host, config, false).await;
        matches!(seen, Sight::Seen(Some(vm)) if vm.owner.is_cluster())
    }

    /// Notes a VM that was just made and looked at, so that nobody looks again at once.
    pub(crate) async fn note(&self, vmid: VmId, host: &HostName, config: &VmConfig) {
        let at = Instant::now();
        if let Sight::Seen(seen) = self.describe(vmid, host, config, false).await {
            self.notes.vm(vmid, seen, at);
        }
    }

    async fn describe(&self, vmid: VmId, host: &HostName, config: &VmConfig, running: bool) -> VmSight {
        let mut seen = VmSeen {
            host: host.clone(),
            owner: Owner::Foreign(String::new()),
            name: config.text("name").unwrap_or_default(),
            running,
            template: config.text("template").as_deref() == Some("1"),
            lock: config.text("lock"),
            differences: Vec::new(),
            drift: Vec::new(),
            medium: false,
            protected: config.text("protection").as_deref() == Some("1"),
            addresses: config.addresses(),
        };
        if let Some(machine) = self.desired.machines.iter().find(|machine| machine.vmid == vmid) {
            self.describe_machine(machine, config, &mut seen).await;
        } else if let Some(template) = self.desired.templates.iter().find(|template| template.vmid == vmid) {
            self.describe_template(template, config, &mut seen);
            let reserved = matches!(identify(vmid, config), Identity::Reserved { .. });
            if !template.existing && reserved && self.maker_of(vmid, host).await.is_some() {
                seen.owner = Owner::Ours;
                seen.differences.push("it is being made".into());
            }
        } else {
            seen.owner = self.owner_by_stamp(vmid, config);
        }
        if seen.owner == Owner::Ours {
            self.memory.is_ours(vmid);
        }
        Sight::Seen(Some(seen))
    }

    async fn describe_machine(&self, machine: &Machine, config: &VmConfig, seen: &mut VmSeen) {
        seen.owner = match self.whose(machine, config) {
            Whose::Ours | Whose::OursUnfinished => Owner::Ours,
            Whose::OursOther { machine, generation } => {
                Owner::OtherMachine(format!("`{machine}`, generation {generation}"))
            }
            Whose::OursTemplate => Owner::OtherMachine("a template".into()),
            Whose::OtherCluster(cluster) => Owner::OtherCluster(cluster),
            Whose::Namesake => Owner::Namesake,
            Whose::Foreign(why) => Owner::Foreign(why.to_string()),
            Whose::Reserved { lock } => match self.maker(machine, &seen.host).await {
                Some(_) => {
                    seen.differences.push("it is being made".into());
                    Owner::Ours
                }
                None => Owner::Foreign(format!("it is locked ({lock}), and no task of ours makes it")),
            },
        };
        if seen.owner != Owner::Ours {
            return;
        }
        let shape = self.shape(machine);
        seen.medium = !self.passing_media(machine, config).is_empty();
        // A VM that runs was finished once; what differs now is not for making it.
        if seen.running {
            seen.drift = shape.differences(config).iter().map(drift).collect();
        } else if seen.differences.is_empty() {
            let differences = shape.differences(config).into_iter().filter(Difference::is_ours_to_settle);
            seen.differences = differences.map(|difference| difference.to_string()).collect();
            if self.seed_to_insert(machine, config).is_some() {
                seen.differences.push("its cidata volume is not in its drive".into());
            }
        }
    }

    fn describe_template(&self, template: &Template, config: &VmConfig, seen: &mut VmSeen) {
        if template.existing {
            seen.owner = Owner::Foreign("somebody else made it".into());
            return;
        }
        let image = self.desired.images.iter().find(|image| image.id == template.image);
        let schematic = self.images.get(&template.image).map_or("", |named| named.id.as_str());
        let shape = image.map(|image| TemplateShape {
            claim: self.claim(),
            pool: self.desired.proxmox.pool.as_deref(),
            template,
            image,
            schematic,
        });
        seen.owner = self.owner_by_stamp(template.vmid, config);
        if let (Owner::Ours, Some(shape), Identity::Stamped(stamp)) =
            (&seen.owner, shape, identify(template.vmid, config))
            && !stamp.agrees_with(&shape.stamp())
        {
            seen.differences.push("it holds another image".into());
        }
    }

    /// Whose a VM is that is no machine of the inventory: ours if the stamp says this cluster.
    fn owner_by_stamp(&self, vmid: VmId, config: &VmConfig) -> Owner {
        match identify(vmid, config) {
            Identity::Stamped(stamp) => match self.claim().party(&stamp) {
                Party::Own => Owner::Ours,
                Party::Namesake => Owner::Namesake,
                Party::Other => Owner::OtherCluster(stamp.cluster),
            },
            Identity::Reserved { lock } => Owner::Foreign(format!("it is locked ({lock})")),
            Identity::Foreign(why) => Owner::Foreign(why.to_string()),
        }
    }

    /// Finds the task of ours that is making a VM.
    pub(crate) async fn maker(&self, machine: &Machine, host: &HostName) -> Option<Upid> {
        let mut tasks = self.pve.send(&api::tasks_of(host, machine.vmid)).await.ok()?;
        if let Some(template) = machine.template {
            let home = self.memory.host(template).unwrap_or_else(|| host.clone());
            tasks.extend(self.pve.send(&api::tasks_of(&home, template)).await.unwrap_or_default());
        }
        let mine = self.reach.token.id();
        tasks.retain(|task| task.upid.user() == mine);
        maker(machine.vmid, machine.template, &tasks).cloned()
    }

    /// Finds the task of ours that is making a template.
    pub(crate) async fn maker_of(&self, vmid: VmId, host: &HostName) -> Option<Upid> {
        let mut tasks = self.pve.send(&api::tasks_of(host, vmid)).await.ok()?;
        tasks.retain(|task| task.upid.user() == self.reach.token.id());
        maker(vmid, None, &tasks).cloned()
    }

    /// Looks at a template.
    pub(super) async fn see_template(&self, vmid: VmId) -> VmSight {
        let template = self.desired.templates.iter().find(|template| template.vmid == vmid);
        let home = template
            .and_then(|template| template_host(self.desired, &Observed::default(), template).cloned());
        match (self.memory.host(vmid), home) {
            (None, None) => Sight::Unseen("it is not known where to look".into()),
            (None, Some(home)) => {
                let found = self.find_vm(vmid, &home).await;
                match found {
                    Ok(Found::Nothing) => Sight::Seen(None),
                    Ok(Found::There(host, config)) => self.describe(vmid, &host, &config, false).await,
                    Err(error) => Sight::Unseen(error.to_string()),
                }
            }
            (Some(_), _) => self.see_vm(vmid, |_| false).await,
        }
    }

    /// Looks for the pool.
    pub(super) async fn see_pool(&self) -> Sight<bool> {
        let Some(pool) = &self.desired.proxmox.pool else { return Sight::Seen(true) };
        match self.pve.send(&api::pools()).await {
            Ok(pools) => Sight::Seen(pools.iter().any(|row| row.poolid == *pool)),
            Err(error) => Sight::Unseen(error.to_string()),
        }
    }

    /// Looks for a file on a storage.
    pub(super) async fn see_volume(&self, host: &HostName, volume: &str) -> Sight<Option<VolumeSeen>> {
        match self.find_volume(host, volume).await {
            Ok(found) => Sight::Seen(found),
            Err(error) => Sight::Unseen(error.to_string()),
        }
    }

    /// Finds a file on a storage.
    pub(crate) async fn find_volume(
        &self,
        host: &HostName,
        volume: &str,
    ) -> Result<Option<VolumeSeen>, ichor_pve::Error> {
        let (storage, path) = volume.split_once(':').unwrap_or((volume, ""));
        let kind = path.split('/').next().unwrap_or_default();
        let rows = self.pve.send(&api::volumes(host, storage, kind)).await?;
        let row = rows.into_iter().find(|row| row.volid == volume);
        Ok(row.map(|row| self.volume_seen(&row)))
    }

    async fn see_volumes(
        &self,
        observed: &Observed,
    ) -> std::collections::BTreeMap<(HostName, String), Sight<Option<VolumeSeen>>> {
        let mut wanted = BTreeSet::new();
        let mut images = BTreeMap::new();
        for image in self.desired.images.iter().filter(|image| image.file.is_none()) {
            let schematic = self.images.get(&image.id).map_or("", |named| named.id.as_str());
            for host in users_of(self.desired, observed, image) {
                let place = image_place(self.desired, observed, image, schematic, &host);
                images.insert(place.volume.clone(), image);
                wanted.insert((place.host, place.volume));
            }
        }
        for machine in self.desired.machines.iter().filter(|machine| has_seed(machine)) {
            if let Some((host, volume)) = host_of(machine).zip(self.seed_volume(machine)) {
                wanted.insert((host.clone(), volume));
            }
        }
        let shelves: BTreeSet<(HostName, String)> =
            wanted.iter().map(|(host, volume)| (host.clone(), shelf(volume).to_owned())).collect();
        let listed = join_all(shelves.into_iter().map(|(host, shelf)| async move {
            let (storage, kind) = shelf.split_once(':').unwrap_or((&shelf, ""));
            let rows = self.pve.send(&api::volumes(&host, storage, kind)).await;
            ((host, shelf), rows.map_err(|error| error.to_string()))
        }));
        let listed: BTreeMap<_, _> = listed.await.into_iter().collect();
        let mut seen: BTreeMap<_, _> = wanted
            .into_iter()
            .map(|(host, volume)| {
                let rows = listed.get(&(host.clone(), shelf(&volume).to_owned()));
                let sight = match rows {
                    Some(Ok(rows)) => {
                        let row = rows.iter().find(|row| row.volid == volume);
                        Sight::Seen(row.map(|row| self.volume_seen(row)))
                    }
                    Some(Err(why)) => Sight::Unseen(why.clone()),
                    None => Sight::default(),
                };
                ((host, volume), sight)
            })
            .collect();
        // Cidata volumes that earlier runs left for machines which they never made.
        for machine in self.desired.machines.iter().filter(|machine| has_seed(machine)) {
            let Some(host) = host_of(machine) else { continue };
            let rows =
                listed.iter().filter(|((at, _), _)| at == host).filter_map(|(_, rows)| rows.as_ref().ok());
            for row in rows.flatten().filter(|row| self.is_seed_of(machine, &row.volid)) {
                let key = (host.clone(), row.volid.clone());
                seen.entry(key).or_insert_with(|| Sight::Seen(Some(self.volume_seen(row))));
            }
        }
        for ((_, volume), sight) in &mut seen {
            if let (Sight::Seen(Some(file)), Some(image)) = (sight, images.get(volume)) {
                file.wanted = self.length_of(image, volume).await;
            }
        }
        seen
    }

    fn volume_seen(&self, row: &api::VolumeRow) -> VolumeSeen {
        VolumeSeen { bytes: row.size, wanted: self.memory.expected_bytes(&row.volid) }
    }

    /// Asks the factory how long an image is: one on a storage may have broken off. A factory that does not answer
    /// is no reason to do without an image that is there.
    async fn length_of(&self, image: &Image, volume: &str) -> Option<u64> {
        if let Some(known) = self.memory.expected_bytes(volume) {
            return Some(known);
        }
        let factory = self.factory(&image.factory).ok()?;
        let schematic = &self.images.get(&image.id)?.id;
        let asset = Asset::of(image);
        let head = tokio::time::timeout(LENGTH_WITHIN, factory.head(&asset, schematic, &image.talos)).await;
        let length = head.ok()?.ok()?.length?;
        self.memory.expect_bytes(volume, length);
        Some(length)
    }

    /// Returns what is known of storages, for finding the place of an image.
    pub(crate) fn storages(&self) -> Observed {
        let storages = self.seen_storages.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        Observed { storages, ..Observed::default() }
    }
}

/// Says how an option of a VM that runs differs. Notes are long, and everybody can read them in Proxmox.
fn drift(difference: &Difference) -> String {
    match difference.option.as_str() {
        "description" => "its notes lack what the inventory says, or the stamp".into(),
        option if option.starts_with("ipconfig") => {
            format!("{difference}; a machine that runs keeps the address that it has")
        }
        _ => difference.to_string(),
    }
}

/// Returns storage and kind of a volume: `local:iso` of `local:iso/talos.iso`.
fn shelf(volume: &str) -> &str {
    volume.split_once('/').map_or(volume, |(shelf, _)| shelf)
}

fn words(list: &str) -> Vec<String> {
    list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn storages(survey: &Survey) -> std::collections::BTreeMap<(HostName, String), StorageSeen> {
    let seen = survey.storages.iter().map(|row| {
        let seen = StorageSeen {
            content: words(&row.content),
            shared: row.shared == 1,
            active: row.status == "available",
            free: (row.maxdisk > 0).then(|| row.maxdisk.saturating_sub(row.disk)),
        };
        ((row.node.clone(), row.storage.clone()), seen)
    });
    seen.collect()
}
