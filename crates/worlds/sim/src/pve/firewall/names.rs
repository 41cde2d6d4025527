//! Aliases, IP sets and security groups.

use serde_json::{Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply,
        firewall::{Alias, Firewall, Group, Member, Set, check_digest, scope},
    },
};

fn firewall<'a>(dc: &'a mut Datacentre, params: &Params) -> Result<&'a mut Firewall, ApiError> {
    let firewall = dc.firewall.scopes.entry(scope(params)).or_default();
    check_digest(params, &firewall.digest())?;
    Ok(firewall)
}

fn with_comment(mut row: Value, comment: Option<&String>) -> Value {
    if let Some(comment) = comment {
        row["comment"] = comment.clone().into();
    }
    row
}

fn version(cidr: &str) -> u8 {
    if cidr.contains(':') { 6 } else { 4 }
}

fn alias_row(alias: &Alias, digest: &str) -> Value {
    let row = json!({
        "name": alias.name,
        "cidr": alias.cidr,
        "ipversion": version(&alias.cidr),
        "digest": digest,
    });
    with_comment(row, alias.comment.as_ref())
}

pub fn list_aliases(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    let digest = firewall.digest();
    let rows = firewall.aliases.values().map(|alias| alias_row(alias, &digest));
    Ok(rows.collect::<Vec<_>>().into())
}

pub fn create_alias(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("name");
    let firewall = firewall(dc, params)?;
    if firewall.aliases.contains_key(&name.to_lowercase()) {
        return Err(ApiError::param("name", format!("alias '{name}' already exists")).into());
    }
    let key = name.to_lowercase();
    let alias = Alias { name, cidr: params.text_or_empty("cidr"), comment: params.text("comment") };
    firewall.aliases.insert(key, alias);
    Ok(Answer::null())
}

fn no_alias(name: &str) -> ApiError {
    ApiError::param("name", format!("no such alias '{name}'"))
}

pub fn read_alias(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("name").to_lowercase();
    let firewall = dc.firewall.get(&scope(params));
    let alias = firewall.aliases.get(&name).ok_or_else(|| no_alias(&name))?;
    Ok(alias_row(alias, &firewall.digest()).into())
}

pub fn update_alias(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("name").to_lowercase();
    let firewall = firewall(dc, params)?;
    let mut alias = firewall.aliases.get(&name).cloned().ok_or_else(|| no_alias(&name))?;
    alias.cidr = params.text("cidr").unwrap_or(alias.cidr);
    alias.comment = params.text("comment").or(alias.comment);
    alias.name = params.text("rename").unwrap_or(alias.name);
    let new = alias.name.to_lowercase();
    if new != name && firewall.aliases.contains_key(&new) {
        return Err(ApiError::param("name", format!("alias '{}' already exists", alias.name)).into());
    }
    firewall.aliases.remove(&name);
    firewall.aliases.insert(new, alias);
    Ok(Answer::null())
}

pub fn remove_alias(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("name").to_lowercase();
    firewall(dc, params)?.aliases.remove(&name);
    Ok(Answer::null())
}

pub fn list_sets(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    let digest = firewall.digest();
    let row = |(name, set): (&String, &Set)| {
        with_comment(json!({ "name": name, "digest": digest }), set.comment.as_ref())
    };
    Ok(firewall.sets.iter().map(row).collect::<Vec<_>>().into())
}

pub fn create_set(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("name");
    let firewall = firewall(dc, params)?;
    let comment = params.text("comment");
    if let Some(old) = params.text("rename") {
        let Some(mut set) = firewall.sets.get(&old).cloned() else {
            return Err(ApiError::param("name", format!("IPSet '{old}' does not exist")).into());
        };
        if old != name && firewall.sets.contains_key(&name) {
            return Err(ApiError::param("name", format!("IPSet '{name}' already exists")).into());
        }
        set.comment = comment.or(set.comment);
        firewall.sets.remove(&old);
        firewall.sets.insert(name, set);
        return Ok(Answer::null());
    }
    if firewall.sets.contains_key(&name) {
        return Err(ApiError::param("name", format!("IPSet '{name}' already exists")).into());
    }
    firewall.sets.insert(name, Set { comment, ..Set::default() });
    Ok(Answer::null())
}

fn set<'a>(firewall: &'a mut Firewall, params: &Params) -> Result<&'a mut Set, ApiError> {
    let name = params.text_or_empty("name");
    firewall.sets.get_mut(&name).ok_or_else(|| ApiError::server(format!("no such IPSet '{name}'")))
}

pub fn remove_set(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("name");
    let firewall = firewall(dc, params)?;
    if firewall.sets.get(&name).is_some_and(|set| !set.members.is_empty() && !params.flag("force")) {
        return Err(ApiError::server(format!("IPSet '{name}' is not empty")).into());
    }
    firewall.sets.remove(&name);
    Ok(Answer::null())
}

fn member_row(cidr: &str, member: &Member, digest: &str) -> Value {
    let mut row = json!({ "cidr": cidr, "digest": digest });
    if member.except {
        row["nomatch"] = 1.into();
    }
    with_comment(row, member.comment.as_ref())
}

pub fn list_members(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let mut firewall = dc.firewall.get(&scope(params));
    let digest = firewall.digest();
    let set = set(&mut firewall, params)?;
    let rows = set.members.iter().map(|(cidr, member)| member_row(cidr, member, &digest));
    Ok(rows.collect::<Vec<_>>().into())
}

pub fn create_member(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let cidr = params.text_or_empty("cidr");
    let cluster = dc.firewall.cluster();
    let own = dc.firewall.get(&scope(params));
    let alias = cidr.trim_start_matches("dc/").trim_start_matches("guest/").to_lowercase();
    if cidr.starts_with(|c: char| c.is_ascii_alphabetic())
        && !cidr.contains(':')
        && !own.aliases.contains_key(&alias)
        && !cluster.aliases.contains_key(&alias)
    {
        return Err(ApiError::server(format!("no such alias '{cidr}'")).into());
    }
    let firewall = firewall(dc, params)?;
    let set = set(firewall, params)?;
    if set.members.contains_key(&cidr) {
        return Err(ApiError::param("cidr", format!("address '{cidr}' already exists")).into());
    }
    let member = Member { comment: params.text("comment"), except: params.flag("nomatch") };
    set.members.insert(cidr, member);
    Ok(Answer::null())
}

/// The words are not recorded.
fn no_member(cidr: &str) -> ApiError {
    ApiError::param("cidr", format!("no such entry '{cidr}'"))
}

pub fn read_member(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let cidr = params.text_or_empty("cidr");
    let mut firewall = dc.firewall.get(&scope(params));
    let digest = firewall.digest();
    let set = set(&mut firewall, params)?;
    let member = set.members.get(&cidr).ok_or_else(|| no_member(&cidr))?;
    Ok(member_row(&cidr, member, &digest).into())
}

pub fn update_member(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let cidr = params.text_or_empty("cidr");
    let set = set(firewall(dc, params)?, params)?;
    let member = set.members.get_mut(&cidr).ok_or_else(|| no_member(&cidr))?;
    member.except = params.flag_or("nomatch", member.except);
    member.comment = params.text("comment").or_else(|| member.comment.take());
    Ok(Answer::null())
}

pub fn remove_member(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let cidr = params.text_or_empty("cidr");
    set(firewall(dc, params)?, params)?.members.remove(&cidr);
    Ok(Answer::null())
}

pub fn list_groups(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let cluster = dc.firewall.cluster();
    let digest = cluster.digest();
    let row = |(name, group): (&String, &Group)| {
        with_comment(json!({ "group": name, "digest": digest }), group.comment.as_ref())
    };
    Ok(cluster.groups.iter().map(row).collect::<Vec<_>>().into())
}

pub fn create_group(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("group");
    let firewall = firewall(dc, params)?;
    let comment = params.text("comment");
    if let Some(old) = params.text("rename") {
        let Some(mut group) = firewall.groups.get(&old).cloned() else {
            return Err(ApiError::param("group", format!("Security group '{old}' does not exist")).into());
        };
        if old != name && firewall.groups.contains_key(&name) {
            return Err(ApiError::param("group", format!("Security group '{name}' already exists")).into());
        }
        group.comment = comment.or(group.comment);
        firewall.groups.remove(&old);
        firewall.groups.insert(name, group);
        return Ok(Answer::null());
    }
    if firewall.groups.contains_key(&name) {
        return Err(ApiError::param("group", format!("Security group '{name}' already exists")).into());
    }
    firewall.groups.insert(name, Group { comment, ..Group::default() });
    Ok(Answer::null())
}

pub fn remove_group(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("group");
    let firewall = firewall(dc, params)?;
    match firewall.groups.get(&name) {
        None => Err(ApiError::server(format!("no such security group '{name}'")).into()),
        Some(group) if !group.rules.is_empty() => {
            Err(ApiError::server(format!("Security group '{name}' is not empty")).into())
        }
        Some(_) => {
            firewall.groups.remove(&name);
            Ok(Answer::null())
        }
    }
}

pub fn refs(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let own = dc.firewall.get(&scope(params));
    let cluster = dc.firewall.cluster();
    let wanted = |kind: &str| params.text("type").is_none_or(|asked| asked == kind);
    let mut rows = Vec::new();
    let scopes: &[(&str, &Firewall)] =
        if params.has("vmid") { &[("dc", &cluster), ("guest", &own)] } else { &[("dc", &cluster)] };
    for (place, firewall) in scopes {
        for alias in firewall.aliases.values().filter(|_| wanted("alias")) {
            let name = &alias.name;
            let row =
                json!({ "type": "alias", "name": name, "ref": format!("{place}/{name}"), "scope": place });
            rows.push(with_comment(row, alias.comment.as_ref()));
        }
        for (name, set) in firewall.sets.iter().filter(|_| wanted("ipset")) {
            let row =
                json!({ "type": "ipset", "name": name, "ref": format!("+{place}/{name}"), "scope": place });
            rows.push(with_comment(row, set.comment.as_ref()));
        }
    }
    Ok(rows.into())
}
