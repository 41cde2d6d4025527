//! Tokens.

use serde_json::{Map, Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route,
        access::{Subject, Token, User, lock_config},
        params::split_list,
    },
};

/// The endpoints below `/access/users/{userid}/token`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/access/users/{userid}/token", list),
        Route::get("/access/users/{userid}/token/{tokenid}", read),
        Route::post("/access/users/{userid}/token/{tokenid}", create),
        Route::put("/access/users/{userid}/token/{tokenid}", update),
        Route::delete("/access/users/{userid}/token/{tokenid}", remove),
    ]
}

/// Returns what the API shows of a token: never its secret.
pub fn shown(token: &Token) -> Value {
    let mut row = json!({ "privsep": u8::from(token.separated), "expire": token.expire });
    if let Some(comment) = &token.comment {
        row["comment"] = comment.clone().into();
    }
    row
}

/// Returns the tokens of a user as a list.
pub fn rows(user: &User) -> Vec<Value> {
    let row = |(name, token): (&String, &Token)| {
        let mut row = shown(token);
        row["tokenid"] = name.clone().into();
        row
    };
    user.tokens.iter().map(row).collect()
}

fn user_of_path<'a>(dc: &'a mut Datacentre, id: &str) -> Result<&'a mut User, ApiError> {
    dc.access.users.get_mut(id).ok_or_else(|| ApiError::server(format!("no such user ('{id}')")))
}

fn missing(user: &str, token: &str) -> ApiError {
    ApiError::server(format!("no such token '{token}' for user '{user}'"))
}

fn list(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    Ok(rows(user_of_path(dc, &params.text_or_empty("userid"))?).into())
}

fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let (id, name) = (params.text_or_empty("userid"), params.text_or_empty("tokenid"));
    let user = user_of_path(dc, &id)?;
    Ok(shown(user.tokens.get(&name).ok_or_else(|| missing(&id, &name))?).into())
}

fn create(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (id, name) = (params.text_or_empty("userid"), params.text_or_empty("tokenid"));
    lock_config(dc, ground, call, "generating token failed")?;
    let secret = ground.random.uuid();
    let user = user_of_path(dc, &id)?;
    if user.tokens.contains_key(&name) {
        return Err(ApiError::param("tokenid", "Token already exists.").into());
    }
    let mut token = Token { separated: true, secret: secret.clone(), ..Token::default() };
    set(&mut token, params);
    user.tokens.insert(name.clone(), token);
    let mut info = told(params);
    info.entry("privsep").or_insert_with(|| 1.into());
    Ok(json!({ "full-tokenid": format!("{id}!{name}"), "info": info, "value": secret }).into())
}

/// Returns the settings that were given, as they were given.
fn told(params: &Params) -> Map<String, Value> {
    let names = ["privsep", "expire", "comment"];
    names.iter().filter_map(|name| Some(((*name).into(), params.get(name)?.clone()))).collect()
}

fn set(token: &mut Token, params: &Params) {
    token.separated = params.flag_or("privsep", token.separated);
    if let Some(expire) = params.integer("expire") {
        token.expire = u64::try_from(expire).unwrap_or_default();
    }
    if let Some(comment) = params.text("comment") {
        token.comment = Some(comment);
    }
}

fn update(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (id, name) = (params.text_or_empty("userid"), params.text_or_empty("tokenid"));
    lock_config(dc, ground, call, "updating token info failed")?;
    let secret = params.flag("regenerate").then(|| ground.random.uuid());
    let user = user_of_path(dc, &id)?;
    let token = user.tokens.get_mut(&name).ok_or_else(|| missing(&id, &name))?;
    for setting in split_list(&params.text_or_empty("delete")) {
        match setting.as_str() {
            "comment" => token.comment = None,
            "expire" => token.expire = 0,
            "privsep" => token.separated = true,
            _ => return Err(ApiError::param("delete", format!("unknown option '{setting}'")).into()),
        }
    }
    set(token, params);
    let mut row = shown(token);
    for (key, value) in told(params) {
        row[key] = value;
    }
    if let Some(secret) = secret {
        row["full-tokenid"] = format!("{id}!{name}").into();
        row["value"] = secret.clone().into();
        token.secret = secret;
    }
    Ok(row.into())
}

fn remove(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (id, name) = (params.text_or_empty("userid"), params.text_or_empty("tokenid"));
    lock_config(dc, ground, call, "deleting token failed")?;
    let user = user_of_path(dc, &id)?;
    user.tokens.remove(&name).ok_or_else(|| missing(&id, &name))?;
    let full = format!("{id}!{name}");
    dc.access.drop_acl(|entry| entry.subject == Subject::Token && entry.name == full);
    Ok(Answer::null())
}
