//! The declared permission of an endpoint.

use serde_json::Value;

use crate::pve::{
    ApiError, Caller, Datacentre, Params,
    access::{ROOT, normal_path, user_of},
    params::split_list,
};

/// What an endpoint demands before its parameters are looked at.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    /// Nothing, not even a login.
    World,
    /// A login; the handler checks the rest.
    Login,
    /// `root@pam` with a ticket.
    Root,
    /// A condition.
    Rule(Rule),
}

/// A condition as endpoints declare it.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// All of them.
    And(Vec<Rule>),
    /// One of them.
    Or(Vec<Rule>),
    /// Privileges on a path with parameters in it.
    Privileges {
        /// The path.
        path: String,
        /// The privileges.
        names: Vec<String>,
        /// Whether one of them is enough.
        any: bool,
        /// It only holds if this parameter was given.
        needs: Option<String>,
    },
    /// The right to change the ACL of a path.
    ModifyAcl(String),
    /// The caller is the user of the parameter `userid`.
    SelfUser,
    /// The right to make users in the realm of `userid`.
    AllocateUser,
    /// Privileges on the groups of the user `userid`, or on those that it shall be in.
    UserGroups {
        /// The privileges, one of which is enough.
        names: Vec<String>,
        /// Whether the parameter `groups` counts too.
        groups: bool,
        /// Whether the user must not exist yet.
        create: bool,
    },
}

impl Rule {
    /// Reads a condition in the form that the API's own description has.
    pub fn parse(value: &Value) -> Option<Self> {
        let list = value.as_array()?;
        let text = |place: usize| list.get(place).and_then(Value::as_str).map(str::to_owned);
        let names = |place: usize| -> Option<Vec<String>> {
            let names = list.get(place)?.as_array()?;
            Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let option = |name: &str| {
            let place = list.iter().position(|value| value.as_str() == Some(name))?;
            list.get(place + 1)
        };
        let inner = || list[1..].iter().map(Self::parse).collect::<Option<Vec<_>>>();
        Some(match list.first()?.as_str()? {
            "and" => Self::And(inner()?),
            "or" => Self::Or(inner()?),
            "perm" => Self::Privileges {
                path: text(1)?,
                names: names(2)?,
                any: option("any").is_some(),
                needs: option("require_param").and_then(Value::as_str).map(str::to_owned),
            },
            "perm-modify" => Self::ModifyAcl(text(1)?),
            "userid-param" if text(1)? == "self" => Self::SelfUser,
            "userid-param" => Self::AllocateUser,
            "userid-group" => {
                let groups = option("groups_param").and_then(Value::as_str);
                Self::UserGroups {
                    names: names(1)?,
                    groups: groups.is_some(),
                    create: groups == Some("create"),
                }
            }
            _ => return None,
        })
    }
}

impl Datacentre {
    /// Checks the declared permission of an endpoint.
    pub fn check_declared(&self, check: &Check, caller: &Caller, params: &Params) -> Result<(), ApiError> {
        if *check == Check::World {
            return Ok(());
        }
        if caller.id.is_empty() {
            return Err(ApiError::forbidden("user != null"));
        }
        if caller.id == ROOT {
            return Ok(());
        }
        match check {
            Check::World | Check::Login => Ok(()),
            Check::Root => Err(ApiError::forbidden("user != root@pam")),
            Check::Rule(rule) => self.check_rule(rule, caller, params),
        }
    }

    fn check_rule(&self, rule: &Rule, caller: &Caller, params: &Params) -> Result<(), ApiError> {
        match rule {
            Rule::And(rules) => rules.iter().try_for_each(|rule| self.check_rule(rule, caller, params)),
            Rule::Or(rules) => {
                for rule in rules {
                    match self.check_rule(rule, caller, params) {
                        Ok(()) => return Ok(()),
                        // A malformed user id ends the check at once; a missing right or user does not.
                        Err(error) if error.status != 403 && !error.message.starts_with("no such user") => {
                            return Err(error);
                        }
                        Err(_) => {}
                    }
                }
                Err(ApiError::forbidden(""))
            }
            Rule::Privileges { path, names, any, needs } => {
                if needs.as_ref().is_some_and(|name| !params.has(name)) {
                    return Err(ApiError::forbidden(""));
                }
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                // Nobody but root has a right on what is no path.
                let Some(path) = normal_path(&filled(path, params)) else {
                    return Err(ApiError::forbidden(&format!(", {}", names.join("|"))));
                };
                if *any { self.check_any(caller, &path, &names) } else { self.check(caller, &path, &names) }
            }
            Rule::ModifyAcl(path) => match normal_path(&filled(path, params)) {
                Some(path) => self.check_modify_acl(caller, &path),
                // The handler says that the path is wrong.
                None => Ok(()),
            },
            Rule::SelfUser => {
                let userid = params.text_or_empty("userid");
                let userid = verified_user(&userid)?;
                self.check_user_exists(userid)?;
                if caller.id == userid { Ok(()) } else { Err(ApiError::forbidden("")) }
            }
            Rule::AllocateUser => {
                let userid = params.text_or_empty("userid");
                let realm = verified_user(&userid)?.rsplit('@').next().unwrap_or_default();
                self.check(caller, &format!("/access/realm/{realm}"), &["Realm.AllocateUser"])
            }
            Rule::UserGroups { names, groups, create } => {
                self.check_user_groups(caller, params, names, *groups, *create)
            }
        }
    }

    /// Checks the right to change the ACL of a path.
    pub fn check_modify_acl(&self, caller: &Caller, path: &str) -> Result<(), ApiError> {
        let below = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
        let mut names = vec!["Permissions.Modify"];
        if below("/storage/") {
            names.push("Datastore.Allocate");
        } else if below("/vms/") {
            names.push("VM.Allocate");
        } else if below("/pool/") {
            names.push("Pool.Allocate");
        }
        self.check_any(caller, path, &names)
    }

    fn check_user_exists(&self, userid: &str) -> Result<(), ApiError> {
        if self.access.users.contains_key(userid) {
            return Ok(());
        }
        Err(ApiError::server(format!("no such user ('{userid}')")))
    }

    fn check_user_groups(
        &self,
        caller: &Caller,
        params: &Params,
        names: &[String],
        groups: bool,
        create: bool,
    ) -> Result<(), ApiError> {
        let userid = params.text_or_empty("userid");
        if !create {
            self.check_user_exists(user_of(&userid))?;
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if self.may_any(caller, "/access/groups", &names) {
            return Ok(());
        }
        let wanted = names.join("|");
        let allowed = |group: &str| self.may_any(caller, &format!("/access/groups/{group}"), &names);
        if groups {
            let given = split_list(&params.text_or_empty("groups"));
            if given.is_empty() {
                return Err(ApiError::forbidden(&format!("/access/groups, {wanted}")));
            }
            for group in given {
                if !allowed(&group) {
                    return Err(ApiError::forbidden(&format!("/access/groups/{group}, {wanted}")));
                }
            }
        }
        if create {
            return Ok(());
        }
        let member = |(name, group): (&String, &super::Group)| group.users.contains(&userid) && allowed(name);
        if self.access.groups.iter().any(member) { Ok(()) } else { Err(ApiError::forbidden("")) }
    }
}

/// Checks the form of a user id as the permission check does: its complaint is no 400.
fn verified_user(userid: &str) -> Result<&str, ApiError> {
    match userid.rsplit_once('@') {
        Some((name, realm)) if !name.is_empty() && !realm.is_empty() && !name.contains([':', '/', ' ']) => {
            Ok(userid)
        }
        _ if userid.chars().count() < 3 => {
            Err(ApiError::server(format!("user name '{userid}' is too short")))
        }
        _ => Err(ApiError::server(format!("value '{userid}' does not look like a valid user name"))),
    }
}

/// Puts parameters into a path; what was not given is empty.
fn filled(template: &str, params: &Params) -> String {
    let mut path = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        path.push_str(before);
        path.push_str(&params.text_or_empty(name));
        rest = after;
    }
    path + rest
}
