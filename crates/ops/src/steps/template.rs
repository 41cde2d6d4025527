//! Making template VMs.

use ichor_engine::{EffectError, Report, StepContext};
use ichor_model::{HostName, VmId};
use ichor_plan::files::image_place;
use ichor_pve::{api, machine::TemplateShape};

use super::task;
use crate::{
    live::{Live, pve_trouble},
    observe::Found,
};

/// Makes a VM that holds an image, and a template of it. One that an earlier run left is finished.
pub async fn build(
    live: &Live<'_>,
    context: &StepContext<'_>,
    vmid: VmId,
    host: &HostName,
) -> Result<(), EffectError> {
    let what = format!("building template {vmid}");
    let lost = || EffectError::Permanent(Report::new(format!("{what}: the inventory has no such template")));
    let template = live.desired.templates.iter().find(|template| template.vmid == vmid).ok_or_else(lost)?;
    let image = live.desired.images.iter().find(|image| image.id == template.image).ok_or_else(lost)?;
    let schematic = live.images.get(&image.id).map_or("", |named| named.id.as_str());
    task::follow_earlier(live, context, &what).await;
    let there = live.find_vm(vmid, host).await.map_err(|error| pve_trouble(&what, &error))?;
    if matches!(there, Found::Nothing) {
        let shape = TemplateShape {
            claim: live.claim(),
            pool: live.desired.proxmox.pool.as_deref(),
            template,
            image,
            schematic,
        };
        let place = image_place(live.desired, &live.storages(), image, schematic, host);
        let made = live.pve.send(&api::create(host, vmid, shape.create(&place.volume))).await;
        let upid = made.map_err(|error| pve_trouble(&what, &error))?;
        task::follow(live, context, &what, &upid).await?;
        live.memory.saw(vmid, host);
    } else if let Some(upid) = live.maker_of(vmid, host).await {
        // A run that broke off has begun it.
        task::wait(live, &what, &upid).await?;
    }
    let made = live.pve.send(&api::make_template(host, vmid)).await;
    match made.map_err(|error| pve_trouble(&what, &error))? {
        Some(upid) => task::follow(live, context, &what, &upid).await,
        None => Ok(()),
    }
}
