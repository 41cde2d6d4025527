//! Consoles: tickets for the serial port and the screen.

// Handlers share one signature, whether they can fail or not.
#![allow(clippy::unnecessary_wraps)]

use serde_json::json;

use super::load;
use crate::{
    ground::Ground,
    pve::{ApiError, Call, Datacentre, Params, Reply, drive::numbered, tasks},
};

/// The first port that consoles listen on.
const FIRST_PORT: u64 = 5900;

/// Answers `POST .../termproxy`: a ticket for the serial console.
pub fn term_proxy(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let config = &load(dc, &host, vmid)?.config;
    let wanted = params.text("serial");
    let serial = match &wanted {
        Some(name) => config.get(name).is_some(),
        None => {
            let display = config.get("vga").unwrap_or_default();
            let terminal = display.strip_prefix("type=").unwrap_or(display).starts_with("serial");
            terminal
                || config.current.keys().any(|key| numbered(key).is_some_and(|(name, _)| name == "serial"))
        }
    };
    if !serial {
        return Err(ApiError::server("unable to find a serial interface").into());
    }
    Ok(ticket(dc, ground, call, params, "vncproxy"))
}

/// Answers `POST .../vncproxy`: a ticket for the screen.
pub fn vnc_proxy(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    load(dc, &params.host(), params.path_vmid())?;
    Ok(ticket(dc, ground, call, params, "vncproxy"))
}

fn ticket(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &Call,
    params: &Params,
    kind: &str,
) -> crate::pve::Answer {
    let (vmid, host) = (params.path_vmid(), params.host());
    let seconds = ground.now.unix_seconds();
    let signature: String = (0..4).map(|_| format!("{:016x}", ground.random.bits())).collect();
    let ticket = format!("PVEVNC:{seconds:08X}::{signature}");
    // The proxy waits for its client and goes when nobody comes.
    let work = tasks::Work::Nothing(std::time::Duration::from_secs(10));
    let upid = tasks::start(dc, ground, &host, kind, &vmid.to_string(), &call.caller.id, work);
    let port = FIRST_PORT + ground.random.below(100);
    if let Some(run) = dc.vms.get_mut(&vmid).and_then(|vm| vm.run.as_mut()) {
        run.console_ticket = Some(ticket.clone());
    }
    json!({ "ticket": ticket, "port": port.to_string(), "upid": upid, "user": call.caller.id }).into()
}

/// Returns what a serial console shows to the holder of a ticket; the door for websockets asks here.
pub fn console_text<'a>(
    dc: &Datacentre,
    ground: &'a Ground,
    vmid: ichor_model::VmId,
    ticket: &str,
) -> Option<&'a str> {
    let run = dc.vms.get(&vmid)?.run.as_ref()?;
    if run.console_ticket.as_deref() != Some(ticket) {
        return None;
    }
    ground.guests.get(&vmid).map(|guest| guest.console.as_str())
}
