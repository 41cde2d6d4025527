//! Tasks as the API shows them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route,
        params::split_list,
        tasks::{self, Task},
    },
};

/// The endpoints of tasks.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/cluster/tasks", list_cluster),
        Route::get("/nodes/{node}/tasks", list),
        Route::get("/nodes/{node}/tasks/{upid}", index),
        Route::delete("/nodes/{node}/tasks/{upid}", stop),
        Route::get("/nodes/{node}/tasks/{upid}/log", log),
        Route::get("/nodes/{node}/tasks/{upid}/status", status),
    ]
}

/// Returns whether a caller sees a task as its own: a user sees those of its tokens, a token only its own.
fn owns(call: &Call, task: &Task) -> bool {
    task.user == call.caller.id || !call.caller.token && task.user_only() == call.caller.id
}

/// A row of the archive: the token apart from the user.
fn archived(task: &Task) -> Value {
    let mut row = json!({
        "upid": task.upid,
        "node": task.host,
        "pid": task.pid,
        "pstart": task.pstart,
        "starttime": task.start,
        "type": task.kind,
        "id": task.id,
        "user": task.user_only(),
    });
    if let Some(token) = task.token() {
        row["tokenid"] = token.into();
    }
    if let Some(ended) = &task.exit {
        row["endtime"] = ended.at.into();
        row["status"] = ended.status.clone().into();
    }
    row
}

/// A row of the active list: the token inside the user (seen).
fn active(task: &Task) -> Value {
    json!({
        "upid": task.upid,
        "node": task.host,
        "pid": task.pid,
        "pstart": task.pstart,
        "starttime": task.start,
        "type": task.kind,
        "id": task.id,
        "user": task.user,
        "status": "RUNNING",
        "saved": "0",
    })
}

/// The status of a task in the words of its filter.
fn outcome(status: &str) -> &'static str {
    match status {
        "OK" => "ok",
        "unexpected status" | "unknown" => "unknown",
        _ if status.starts_with("WARNINGS: ") => "warning",
        _ => "error",
    }
}

fn list(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let host = params.host();
    let audit = dc.may(&call.caller, &format!("/nodes/{host}"), &["Sys.Audit"]);
    let source = params.text("source").unwrap_or_else(|| "archive".into());
    let wanted = |task: &&Task| task.host == host && (audit || owns(call, task)) && fits(task, params);
    let mut rows = Vec::new();
    if source != "archive" {
        let listed = dc.tasks.iter().rev().filter(wanted).filter(|task| task.listed_as_running);
        rows.extend(listed.map(active));
    }
    if source != "active" {
        let ended = dc.tasks.iter().rev().filter(wanted);
        rows.extend(ended.filter(|task| !task.runs() && !task.listed_as_running).map(archived));
    }
    let total = rows.len();
    let number = |name: &str, default: usize| {
        params.integer(name).map_or(default, |number| usize::try_from(number).unwrap_or_default())
    };
    let page = rows.into_iter().skip(number("start", 0)).take(number("limit", 50)).collect();
    let mut answer = Answer::page(page, total);
    if total == 0 {
        answer.total = None;
    }
    Ok(answer)
}

fn fits(task: &Task, params: &Params) -> bool {
    let status = task.exit.as_ref().map(|ended| ended.status.as_str()).unwrap_or_default();
    let text = |name: &str| params.text(name);
    let start = i64::try_from(task.start).unwrap_or_default();
    let filter = split_list(&params.text_or_empty("statusfilter"));
    text("vmid").is_none_or(|vmid| task.id == vmid)
        && text("typefilter").is_none_or(|kind| task.kind == kind)
        && text("userfilter").is_none_or(|part| task.user.to_lowercase().contains(&part.to_lowercase()))
        && params.integer("since").is_none_or(|since| start >= since)
        && params.integer("until").is_none_or(|until| start <= until)
        && (!params.flag("errors") || task.runs() || status != "OK")
        && (filter.is_empty() || filter.iter().any(|wanted| wanted == outcome(status)))
}

fn list_cluster(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, _: &Params) -> Reply {
    let audit = |host: &str| dc.may(&call.caller, &format!("/nodes/{host}"), &["Sys.Audit"]);
    let row = |(place, task): (usize, &Task)| {
        let mut row = archived(task);
        if let Some(row) = row.as_object_mut() {
            row.remove("pid");
            row.remove("pstart");
        }
        if !task.runs() {
            // What was written last is still a number; the rest was read from a file (seen).
            row["saved"] = if place == 0 { 1.into() } else { "1".into() };
        }
        row
    };
    let tasks = dc.tasks.iter().rev().filter(|task| audit(&task.host) || owns(call, task));
    Ok(broadcast(tasks).into_iter().enumerate().map(row).collect::<Vec<_>>().into())
}

/// Leaves what each host tells the others: all tasks that run, and the latest of the rest up to 25 in all
/// (`active_workers` of pve-common).
fn broadcast<'a>(tasks: impl Iterator<Item = &'a Task>) -> Vec<&'a Task> {
    let mut tasks: Vec<&Task> = tasks.collect();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.runs()) {
        *rows.entry(&task.host).or_default() += 1;
    }
    tasks.retain(|task| {
        let rows = rows.entry(&task.host).or_default();
        let told = task.runs() || *rows < 25;
        *rows += usize::from(told && !task.runs());
        told
    });
    tasks
}

/// Finds the task of a path; the host of the path must be the one in its name.
fn find<'a>(dc: &'a Datacentre, params: &Params) -> Result<&'a Task, ApiError> {
    let upid = params.text_or_empty("upid");
    let parts: Vec<&str> = upid.split(':').collect();
    let hex = |part: &str, least: usize| part.len() >= least && part.bytes().all(|b| b.is_ascii_hexdigit());
    let valid = parts.len() == 9
        && parts[0] == "UPID"
        && hex(parts[2], 8)
        && hex(parts[3], 8)
        && hex(parts[4], 8)
        && !parts[5].is_empty()
        && !parts[7].is_empty()
        && parts[8].is_empty();
    if !valid {
        return Err(ApiError::param("upid", "unable to parse worker upid"));
    }
    let task = dc.tasks.get(&upid).filter(|task| task.host == params.host());
    task.ok_or_else(|| ApiError::param("upid", "no such task"))
}

fn check_owner(dc: &Datacentre, call: &Call, params: &Params, privilege: &str) -> Result<(), ApiError> {
    let upid = params.text_or_empty("upid");
    let owner = upid.split(':').nth(7).unwrap_or_default();
    let own =
        owner == call.caller.id || !call.caller.token && owner.split('!').next() == Some(&call.caller.id);
    if own { Ok(()) } else { dc.check(&call.caller, &format!("/nodes/{}", params.host()), &[privilege]) }
}

fn index(_: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    Ok(json!([{ "name": "log" }, { "name": "status" }]).into())
}

fn status(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let task = find(dc, params)?;
    check_owner(dc, call, params, "Sys.Audit")?;
    let mut row = archived(task);
    row["status"] = if task.runs() { "running" } else { "stopped" }.into();
    if let Some(row) = row.as_object_mut() {
        row.remove("endtime");
    }
    if let Some(ended) = &task.exit {
        row["exitstatus"] = ended.status.clone().into();
    }
    Ok(row.into())
}

fn log(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let task = find(dc, params)?;
    check_owner(dc, call, params, "Sys.Audit")?;
    let number = |name: &str, default: usize| {
        params.integer(name).map_or(default, |number| usize::try_from(number).unwrap_or_default())
    };
    if params.flag("download") {
        return Ok((task.log.join("\n") + "\n").into());
    }
    let (start, limit) = (number("start", 0), number("limit", 50));
    let limit = if limit == 0 { usize::MAX } else { limit };
    let lines = task.log.iter().enumerate().skip(start).take(limit);
    let mut rows: Vec<Value> = lines.map(|(place, line)| json!({ "n": place + 1, "t": line })).collect();
    if task.log.is_empty() {
        rows.push(json!({ "n": 1, "t": "no content" }));
        return Ok(Answer::page(rows, 1));
    }
    Ok(Answer::page(rows, task.log.len()))
}

fn stop(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let upid = find(dc, params)?.upid.clone();
    check_owner(dc, call, params, "Sys.Modify")?;
    tasks::interrupt(dc, ground, &upid);
    Ok(Answer::null())
}
