//! Realms.

use serde_json::{Map, Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Lock, Params, Reply, Route, access::Realm, options::digest,
        params::split_list,
    },
};

/// The endpoints below `/access/domains`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/access/domains", list),
        Route::post("/access/domains", create),
        Route::get("/access/domains/{realm}", read),
        Route::put("/access/domains/{realm}", update),
        Route::delete("/access/domains/{realm}", remove),
    ]
}

fn list(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let row = |(name, realm): (&String, &Realm)| {
        let mut row = json!({ "realm": name, "type": realm.kind });
        for key in ["comment", "tfa"] {
            if let Some(value) = realm.facts.get(key) {
                row[key] = value.clone().into();
            }
        }
        row
    };
    Ok(dc.access.realms.iter().map(row).collect::<Vec<_>>().into())
}

fn missing(name: &str) -> ApiError {
    ApiError::server(format!("domain '{name}' does not exist"))
}

fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("realm");
    let realm = dc.access.realms.get(&name).ok_or_else(|| missing(&name))?;
    let mut row: Map<String, Value> =
        realm.facts.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    row.insert("type".into(), realm.kind.clone().into());
    row.insert("digest".into(), digest(&format!("{:?}", dc.access.realms)).into());
    Ok(Value::Object(row).into())
}

fn set(realm: &mut Realm, params: &Params) {
    for (key, _) in
        params.iter().filter(|(key, _)| !matches!(key.as_str(), "realm" | "type" | "delete" | "digest"))
    {
        realm.facts.insert(key.clone(), params.text_or_empty(key));
    }
    for key in split_list(&params.text_or_empty("delete")) {
        realm.facts.remove(&key);
    }
}

fn create(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("realm");
    call.lock(dc, ground, &Lock::file("domains.cfg"))?;
    if dc.access.realms.contains_key(&name) {
        return Err(
            ApiError::server(format!("add auth server failed: domain '{name}' already exists")).into()
        );
    }
    let mut realm = Realm { kind: params.text_or_empty("type"), ..Realm::default() };
    set(&mut realm, params);
    dc.access.realms.insert(name, realm);
    Ok(Answer::null())
}

fn update(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("realm");
    call.lock(dc, ground, &Lock::file("domains.cfg"))?;
    let realm = dc.access.realms.get_mut(&name).ok_or_else(|| missing(&name))?;
    set(realm, params);
    Ok(Answer::null())
}

fn remove(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("realm");
    call.lock(dc, ground, &Lock::file("domains.cfg"))?;
    dc.access.realms.remove(&name).ok_or_else(|| missing(&name))?;
    Ok(Answer::null())
}
