//! The status of HA.

use serde_json::{Map, Value, json};

use crate::{
    clock::Time,
    ground::Ground,
    pve::{Call, Datacentre, Params, Reply, Route},
};

/// The endpoints of the status.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/cluster/ha", |_, _, _, _| Ok(ids(&["status", "resources", "groups", "rules"]).into())),
        Route::get("/cluster/ha/status", |_, _, _, _| {
            let names = ["current", "manager_status", "arm-ha", "disarm-ha"];
            Ok(names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>().into())
        }),
        Route::get("/cluster/ha/status/current", current),
        Route::get("/cluster/ha/status/manager_status", manager_status),
    ]
}

fn ids(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "id": name })).collect()
}

/// The order of days and months in dates.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Writes a moment as `Sun Nov 15 20:30:17 2026`.
fn date(time: Time) -> String {
    let seconds = time.unix_seconds();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that leap days come last in a year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_part = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_part + 2) / 5 + 1;
    let month = (month_part + 2) % 12;
    let year = year_of_era + era * 400 + u64::from(month < 2);
    let name = DAYS[usize::try_from(days % 7).unwrap_or_default()];
    let month = MONTHS[usize::try_from(month).unwrap_or_default()];
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{name} {month} {day:>2} {hours:02}:{minutes:02}:{seconds:02} {year}")
}

fn current(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let front = &dc.front;
    let quorate = u8::from(dc.is_quorate());
    let mut rows = vec![json!({
        "id": "quorum",
        "type": "quorum",
        "node": front,
        "status": if quorate == 1 { "OK" } else { "No quorum on node" },
        "quorate": quorate,
    })];
    let manager = dc.ha.manager.as_ref();
    if let Some(manager) = manager {
        rows.push(json!({
            "id": "master",
            "type": "master",
            "node": front,
            "timestamp": manager.seen.unix_seconds(),
            "status": format!("{front} (active, {})", date(manager.seen)),
        }));
    }
    let (armed, status) = match manager {
        Some(_) => ("armed", "armed (CRM watchdog active)"),
        None => ("standby", "standby (CRM watchdog standby)"),
    };
    rows.push(
        json!({ "id": "fencing", "type": "fencing", "node": front, "armed-state": armed, "status": status }),
    );
    for host in manager.iter().flat_map(|manager| &manager.hosts) {
        let acts = manager.is_some_and(|manager| manager.acts);
        let status = match manager.filter(|_| acts) {
            Some(manager) => format!("{host} (active, {})", date(manager.seen)),
            None => format!("{host} (unable to read lrm status)"),
        };
        rows.push(json!({ "id": format!("lrm:{host}"), "type": "lrm", "node": host, "status": status }));
    }
    rows.extend(dc.ha.resources.keys().map(|name| service(dc, name)));
    Ok(rows.into())
}

fn service(dc: &Datacentre, name: &str) -> Value {
    let settings = &dc.ha.resources[name];
    let vmid = name.split(':').nth(1).and_then(|number| number.parse().ok());
    let host = vmid.and_then(|vmid| dc.vms.get(&vmid)).map_or(dc.front.as_str(), |vm| vm.host.as_str());
    let requested = settings.get("state").map_or("started", String::as_str);
    let known = dc.ha.manager.as_ref().and_then(|manager| manager.services.get(name));
    let state = match known {
        Some(state) => state.as_str(),
        None if requested == "ignored" => "ignored",
        None => "queued",
    };
    let number = |key: &str| settings.get(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
    let mut row = json!({
        "id": format!("service:{name}"),
        "type": "service",
        "sid": name,
        "node": host,
        "state": state,
        "request_state": requested,
        "status": format!("{name} ({host}, {state})"),
        "max_restart": number("max_restart"),
        "max_relocate": number("max_relocate"),
    });
    if dc.release.at_least(9, 0) {
        row["failback"] = number("failback").into();
    }
    if let Some(comment) = settings.get("comment") {
        row["comment"] = comment.bytes().map(char::from).collect::<String>().into();
    }
    row
}

fn manager_status(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let quorum = json!({ "node": dc.front, "quorate": u8::from(dc.is_quorate()).to_string() });
    let Some(manager) = &dc.ha.manager else {
        return Ok(json!({ "quorum": quorum, "manager_status": { "node_status": {} } }).into());
    };
    let hosts = |value: &dyn Fn(&str) -> Value| -> Map<String, Value> {
        manager.hosts.iter().map(|host| (host.clone(), value(host))).collect()
    };
    let online = |host: &str| dc.hosts.get(host).is_some_and(|host| host.online);
    let services: Map<String, Value> = manager
        .services
        .iter()
        .map(|(name, state)| (name.clone(), json!({ "state": state, "node": dc.front })))
        .collect();
    let mode = if manager.acts { "active" } else { "unknown" };
    Ok(json!({
        "quorum": quorum,
        "manager_status": {
            "master_node": dc.front,
            "timestamp": manager.seen.unix_seconds(),
            "node_status": hosts(&|host| if online(host) { "online" } else { "unknown" }.into()),
            "service_status": services,
        },
        "lrm_status": hosts(&|_| json!({ "mode": mode })),
    })
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(Time::from_millis(1_794_774_617_000)), "Sun Nov 15 20:30:17 2026");
        assert_eq!(date(Time::from_millis(951_782_400_000)), "Tue Feb 29 00:00:00 2000");
        assert_eq!(date(Time::START), "Thu Jan  1 00:00:00 2026");
    }
}
