//! Login: tokens and tickets.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    clock::Time,
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Caller, Datacentre, Params, Reply, Route,
        access::{ROOT, user_of},
        formats,
        request::{self, Front},
    },
    wire::Request,
};

/// What came of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Somebody, or nobody where none is needed.
    Caller(Caller),
    /// Nobody: status and reason, told after three seconds.
    Refused(u16, String),
}

/// The endpoints about tickets.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/access/ticket", |_, _, _, _| Ok(Answer::null())),
        Route::post("/access/ticket", create_ticket),
        Route::put("/access/password", change_password),
    ]
}

/// How long a ticket is valid, in seconds.
const LIFETIME: u64 = 2 * 60 * 60;

/// Finds out who calls.
pub fn authenticate(dc: &Datacentre, now: Time, request: &Request, front: &Front) -> Login {
    let method = request.method.as_str();
    if needs_no_login(method, &front.path) {
        return Login::Caller(Caller::default());
    }
    let authorization = request.header("authorization");
    let ticket = offered(request.header("cookie"), "PVEAuthCookie")
        .or_else(|| offered(authorization, "PVEAuthCookie"));
    let found = match (ticket, offered(authorization, "PVEAPIToken")) {
        (Some(ticket), _) => with_ticket(dc, now, &ticket, request, front),
        (None, Some(token)) => with_token(dc, now, &token),
        (None, None) => Err("No ticket".into()),
    };
    let caller = match found {
        Ok(caller) => caller,
        Err(reason) => return Login::Refused(401, reason),
    };
    if request::is_upload(method, &front.path) {
        let storage = front.path.split('/').nth(4).unwrap_or_default();
        if let Err(error) = dc.check(&caller, &format!("/storage/{storage}"), &["Datastore.AllocateTemplate"])
        {
            return Login::Refused(error.status, error.reason().to_owned());
        }
    }
    Login::Caller(caller)
}

fn needs_no_login(method: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path == "/access/domains" && method == "GET"
        || path == "/access/ticket" && matches!(method, "GET" | "POST")
        || path.starts_with("/access/openid/") && method == "POST"
}

/// Finds a value in a header: after the key follows `=` or a space, and it ends at a semicolon.
fn offered(header: Option<&str>, key: &str) -> Option<String> {
    let header = header?;
    let (place, _) = header.match_indices(key).find(|(place, _)| {
        let before = header[..*place].chars().next_back();
        let after = header[place + key.len()..].chars().next();
        before.is_none_or(char::is_whitespace) && after.is_some_and(|c| c == '=' || c == ' ')
    })?;
    let value = header[place + key.len() + 1..].split(';').next().unwrap_or_default();
    Some(request::unescaped(value)).filter(|value| !value.is_empty() && value != "0")
}

/// What is said about every fault of a ticket or token. From 9.1.5 on it is the same for all.
fn fault(dc: &Datacentre, specific: String) -> String {
    if dc.release.at_least(9, 2) { "Authentication failed!".into() } else { specific }
}

fn with_token(dc: &Datacentre, now: Time, text: &str) -> Result<Caller, String> {
    let (id, secret) = text.split_once('=').unwrap_or((text, ""));
    let user = user_of(id);
    let (false, Some(token_name)) = (secret.is_empty(), id.split_once('!').map(|(_, name)| name)) else {
        return Err(fault(dc, "invalid token value!".into()));
    };
    if !dc.access.users.contains_key(user) {
        return Err(fault(dc, format!("no such user ('{user}')")));
    }
    if !dc.access.is_enabled(user, now) {
        return Err(fault(dc, format!("user '{user}' is disabled")));
    }
    let Some(token) = dc.access.token(id) else {
        return Err(fault(dc, format!("no such token '{token_name}' for user '{user}'")));
    };
    if token.expire != 0 && token.expire < now.unix_seconds() {
        return Err(fault(dc, format!("token '{token_name}' access expired")));
    }
    if token.secret != secret {
        return Err(fault(dc, "invalid token value!".into()));
    }
    Ok(Caller { id: id.to_owned(), token: true })
}

fn with_ticket(
    dc: &Datacentre,
    now: Time,
    ticket: &str,
    request: &Request,
    front: &Front,
) -> Result<Caller, String> {
    let Some(user) = ticket_user(dc, now, ticket) else {
        return Err(fault(dc, "permission denied - invalid PVE ticket".into()));
    };
    let method = request.method.as_str();
    if method != "GET" && !request::is_upload(method, &front.path) {
        let token = request.header("csrfpreventiontoken").unwrap_or_default();
        if !is_csrf_token(dc, now, &user, token) {
            return Err("Permission denied - invalid csrf token".into());
        }
    }
    Ok(Caller { id: user, token: false })
}

/// Returns the user of a valid ticket.
fn ticket_user(dc: &Datacentre, now: Time, ticket: &str) -> Option<String> {
    let (head, signature) = ticket.split_once("::")?;
    let mut parts = head.splitn(3, ':');
    let (kind, user, time) = (parts.next()?, parts.next()?, parts.next()?);
    let made = u64::from_str_radix(time, 16).ok()?;
    let age = now.unix_seconds().checked_sub(made)?;
    let valid = kind == "PVE"
        && age <= LIFETIME
        && signature == signed(dc.access.signature, head)
        && dc.access.is_enabled(user, now);
    valid.then(|| user.to_owned())
}

fn is_csrf_token(dc: &Datacentre, now: Time, user: &str, token: &str) -> bool {
    let Some((time, _)) = token.split_once(':') else { return false };
    let made = u64::from_str_radix(time, 16).ok();
    let fresh = made.is_some_and(|made| made + LIFETIME >= now.unix_seconds());
    fresh && token == csrf_token(dc, user, time)
}

fn csrf_token(dc: &Datacentre, user: &str, time: &str) -> String {
    format!("{time}:{}", &signed(dc.access.signature, &format!("csrf {time} {user}"))[..43])
}

/// Signs a text. The lab has no secrets: this only keeps tickets from being made up by accident.
fn signed(key: u64, text: &str) -> String {
    let mut signature = String::new();
    for part in 0..4 {
        for byte in Sha256::digest(format!("{key} {part} {text}")) {
            let _ = write!(signature, "{byte:02x}");
        }
    }
    signature
}

/// Makes a ticket for a user, and the token that goes with it in calls that change something.
pub fn ticket(dc: &Datacentre, now: Time, user: &str) -> (String, String) {
    let time = format!("{:08X}", now.unix_seconds());
    let head = format!("PVE:{user}:{time}");
    let signature = signed(dc.access.signature, &head);
    (format!("{head}::{signature}"), csrf_token(dc, user, &time))
}

fn create_ticket(dc: &mut Datacentre, ground: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let mut user = params.text_or_empty("username");
    if let Some(realm) = params.text("realm").filter(|_| !user.contains('@')) {
        user = format!("{user}@{realm}");
    }
    let known = formats::user_id_fault(&user).is_none() && dc.access.is_enabled(&user, ground.now);
    let Some(proof) = proof(dc, ground.now, &user, params).filter(|_| known) else {
        return Err(ApiError::status(401, "authentication failure\n").into());
    };
    let (ticket, csrf) = ticket(dc, ground.now, &user);
    let mut data = json!({ "username": user, "ticket": ticket, "CSRFPreventionToken": csrf });
    match proof {
        Proof::Whole => data["cap"] = capabilities(dc, &user),
        Proof::Half => {
            data["ticket"] = challenge(dc, ground.now, &user).into();
            data["NeedTFA"] = 1.into();
        }
    }
    let caller = Caller { id: user, token: false };
    if let Some(name) = dc.cluster.as_ref().filter(|_| dc.may(&caller, "/", &["Sys.Audit"])) {
        data["clustername"] = name.clone().into();
    }
    Ok(data.into())
}

/// How far somebody has shown who they are.
enum Proof {
    Whole,
    /// A second factor is missing.
    Half,
}

/// Looks at what somebody shows, as `create_ticket_do` and `authenticate_2nd_new_do` of pve-access-control do: the
/// answer to a challenge stands in `password`, behind its kind and a colon; `otp` has one that comes unasked.
fn proof(dc: &Datacentre, now: Time, user: &str, params: &Params) -> Option<Proof> {
    let password = params.text_or_empty("password");
    let entry = dc.access.users.get(user);
    let code = entry.and_then(|entry| entry.totp.as_ref()).map(|code| format!("totp:{code}"));
    if let Some(challenge) = params.text("tfa-challenge") {
        let asked = params.text("otp").is_none() && is_challenge(dc, now, user, &challenge);
        return (asked && code.as_ref() == Some(&password)).then_some(Proof::Whole);
    }
    if ticket_user(dc, now, &password).is_some_and(|ticket_user| ticket_user == user) {
        return Some(Proof::Whole);
    }
    if entry.is_none_or(|entry| entry.password.as_deref() != Some(&*password)) {
        return None;
    }
    match (code, params.text("otp")) {
        (None, None) => Some(Proof::Whole),
        (Some(_), None) => Some(Proof::Half),
        // "no such challenge"
        (None, Some(_)) => None,
        (Some(code), Some(given)) => (code == given).then_some(Proof::Whole),
    }
}

/// Makes a ticket that is good for nothing but a second factor. Whose it is stands in its signature alone, and colons
/// are escaped (`PVE::Ticket::assemble_rsa_ticket`).
fn challenge(dc: &Datacentre, now: Time, user: &str) -> String {
    let head = format!("PVE:!tfa!{{\"totp\"%3Atrue}}:{:08X}", now.unix_seconds());
    let signature = signed(dc.access.signature, &format!("{head}:{user}"));
    format!("{head}::{signature}")
}

fn is_challenge(dc: &Datacentre, now: Time, user: &str, ticket: &str) -> bool {
    let Some((head, signature)) = ticket.split_once("::") else { return false };
    let made = head.rsplit(':').next().and_then(|time| u64::from_str_radix(time, 16).ok());
    let age = made.and_then(|made| now.unix_seconds().checked_sub(made));
    head.starts_with("PVE:!tfa!")
        && age.is_some_and(|age| age <= LIFETIME)
        && signature == signed(dc.access.signature, &format!("{head}:{user}"))
}

/// The paths that a login answer sums up, and the beginnings of privileges that count there.
const SUMMED_UP: [(&str, &str, &[&str]); 7] = [
    ("vms", "/vms", &["VM.", "Permissions.Modify"]),
    ("storage", "/storage", &["Datastore.", "Permissions.Modify"]),
    ("access", "/access", &["User.", "Group.", "Permissions.Modify"]),
    ("nodes", "/nodes", &["Sys.", "Permissions.Modify"]),
    ("sdn", "/sdn", &["SDN.", "Permissions.Modify"]),
    ("dc", "/", &["Sys.", "SDN."]),
    ("mapping", "/mapping", &["Mapping.", "Permissions.Modify"]),
];

/// Sums up what a user may do, for user interfaces.
pub fn capabilities(dc: &Datacentre, user: &str) -> Value {
    let mut capabilities = Map::new();
    for (name, path, beginnings) in SUMMED_UP {
        let has = dc.access.privileges(user, path, dc.release).into_keys();
        let counted = has.filter(|privilege| beginnings.iter().any(|start| privilege.starts_with(start)));
        capabilities.insert(name.into(), counted.map(|name| (name, 1.into())).collect::<Map<_, _>>().into());
    }
    capabilities.into()
}

fn change_password(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let userid = params.text_or_empty("userid");
    if call.caller.id != userid && call.caller.id != ROOT {
        dc.check_any(&call.caller, "/access/groups", &["User.Modify"])?;
    }
    let Some(user) = dc.access.users.get_mut(&userid) else {
        return Err(ApiError::server(format!("no such user ('{userid}')")).into());
    };
    user.password = params.text("password");
    Ok(Answer::null())
}
