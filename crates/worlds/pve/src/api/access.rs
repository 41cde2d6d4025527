//! `/access`.

use std::{collections::BTreeMap, fmt};

use ichor_port::{Method, Secret};
use serde::Deserialize;

use crate::Call;

/// Somebody's rights: privileges by path, and whether they are inherited below.
pub type Permissions = BTreeMap<String, BTreeMap<String, u8>>;

/// Asks for the caller's own rights.
pub fn permissions() -> Call<Permissions> {
    Call::new(Method::Get, &["access", "permissions"])
}

/// What a login gives.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct TicketRow {
    /// What proves from now on who asks. Absent: the password was wrong in a way of its own.
    #[serde(default)]
    pub ticket: Option<String>,
    /// What goes with it in calls that change something.
    #[serde(default, rename = "CSRFPreventionToken")]
    pub csrf: Option<String>,
    /// Whether the password is not enough: the ticket is good for nothing but a second factor.
    #[serde(default, rename = "NeedTFA")]
    pub needs_more: Option<u8>,
}

impl fmt::Debug for TicketRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketRow").field("needs_more", &self.needs_more).finish_non_exhaustive()
    }
}

/// Logs in with a password.
pub fn log_in(user: &str, password: &Secret) -> Call<TicketRow> {
    Call::new(Method::Post, &["access", "ticket"]).with("username", user).with_secret("password", password)
}

/// Answers what Proxmox asks for after a password: a code that is good once.
pub fn second_factor(user: &str, challenge: &Challenge, code: &Secret) -> Call<TicketRow> {
    let answer = Secret::new(format!("totp:{}", code.expose()));
    let call = Call::new(Method::Post, &["access", "ticket"]).with("username", user);
    call.with_secret("password", &answer).with_secret("tfa-challenge", &challenge.ticket)
}

/// What Proxmox wants besides a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge {
    ticket: Secret,
    /// Whether a code of an authenticator app answers it.
    pub takes_codes: bool,
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge").field("takes_codes", &self.takes_codes).finish_non_exhaustive()
    }
}

impl Challenge {
    /// Takes what a login gave where the password was not enough. What answers it stands in the ticket as JSON whose
    /// colons are escaped: `PVE:!tfa!{"totp"%3Atrue}:68F1A2B3::signature`.
    pub fn of(row: &TicketRow) -> Option<Self> {
        let ticket =
            row.ticket.as_deref().filter(|ticket| ticket.bytes().all(|byte| byte.is_ascii_graphic()))?;
        let said = ticket.strip_prefix("PVE:!tfa!")?.split(':').next()?.replace("%3A", ":");
        let kinds: serde_json::Value = serde_json::from_str(&said).ok()?;
        let takes_codes = kinds["totp"].as_bool().unwrap_or_default();
        Some(Self { ticket: Secret::new(ticket), takes_codes })
    }
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RoleRow {
    /// Its name.
    pub roleid: String,
    /// Its privileges, joined by commas.
    #[serde(default)]
    pub privs: Option<String>,
}

impl RoleRow {
    /// Returns its privileges.
    pub fn privileges(&self) -> impl Iterator<Item = &str> {
        let words = self.privs.as_deref().unwrap_or_default().split([',', ' ', ';']);
        words.filter(|word| !word.is_empty())
    }
}

/// Lists the roles. Everybody may.
pub fn roles() -> Call<Vec<RoleRow>> {
    Call::new(Method::Get, &["access", "roles"])
}

/// Makes a role.
pub fn create_role(role: &str, privileges: &str) -> Call<()> {
    Call::new(Method::Post, &["access", "roles"]).with("roleid", role).with("privs", privileges)
}

/// Gives a role other privileges, in place of those that it has.
pub fn set_role(role: &str, privileges: &str) -> Call<()> {
    Call::new(Method::Put, &["access", "roles", role]).with("privs", privileges)
}

/// A user, with its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UserRow {
    /// Its name, with its realm.
    pub userid: String,
    /// Whether it may log in.
    #[serde(default = "yes")]
    pub enable: u8,
    /// When it expires, in Unix seconds; 0: never.
    #[serde(default)]
    pub expire: u64,
    /// Its tokens.
    #[serde(default)]
    pub tokens: Option<Vec<TokenRow>>,
}

/// A token of a user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TokenRow {
    /// Its name.
    pub tokenid: String,
    /// Whether it has rights of its own.
    #[serde(default = "yes")]
    pub privsep: u8,
    /// When it expires, in Unix seconds; 0: never.
    #[serde(default)]
    pub expire: u64,
}

const fn yes() -> u8 {
    1
}

/// Lists the users that the caller may see, with their tokens.
pub fn users() -> Call<Vec<UserRow>> {
    Call::new(Method::Get, &["access", "users"]).with("full", 1)
}

/// Makes a user, who has no password and so cannot log in but by tokens.
pub fn create_user(user: &str, comment: &str) -> Call<()> {
    Call::new(Method::Post, &["access", "users"]).with("userid", user).with("comment", comment)
}

/// A token that was made. Its secret is told this once.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct NewToken {
    /// Its whole name, `user@realm!name`.
    #[serde(rename = "full-tokenid")]
    pub id: String,
    value: String,
}

impl NewToken {
    /// Returns the token as it is sent, `user@realm!name=secret`.
    pub fn secret(&self) -> Secret {
        Secret::new(format!("{}={}", self.id, self.value))
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Makes a token with rights of its own.
pub fn create_token(user: &str, token: &str, comment: &str) -> Call<NewToken> {
    at_token(Method::Post, user, token).with("privsep", 1).with("comment", comment)
}

/// Gives a token rights of its own, in place of its user's.
pub fn separate_token(user: &str, token: &str) -> Call<serde::de::IgnoredAny> {
    at_token(Method::Put, user, token).with("privsep", 1)
}

/// Deletes a token, and what the ACL says about it.
pub fn delete_token(user: &str, token: &str) -> Call<()> {
    at_token(Method::Delete, user, token)
}

fn at_token<T>(method: Method, user: &str, token: &str) -> Call<T> {
    Call::new(method, &["access", "users", user, "token", token])
}

/// An entry of the ACL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct AclRow {
    /// On what.
    pub path: String,
    /// `user`, `group` or `token`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Who.
    pub ugid: String,
    /// What they may do.
    pub roleid: String,
    /// Whether it holds below the path too.
    #[serde(default = "yes")]
    pub propagate: u8,
}

/// Lists the entries of the ACL that the caller may change, or all with the right to audit.
pub fn acl() -> Call<Vec<AclRow>> {
    Call::new(Method::Get, &["access", "acl"])
}

/// Who an entry of the ACL is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grantee<'a> {
    /// A user.
    User(&'a str),
    /// A token, by its whole name.
    Token(&'a str),
}

/// Gives somebody roles on a path and below it, beside those that they have there.
pub fn grant(path: &str, who: Grantee<'_>, roles: &str) -> Call<()> {
    about(path, who).with("roles", roles)
}

/// Takes a role on a path away from somebody.
pub fn revoke(path: &str, who: Grantee<'_>, role: &str) -> Call<()> {
    about(path, who).with("roles", role).with("delete", 1)
}

fn about(path: &str, who: Grantee<'_>) -> Call<()> {
    let call = Call::new(Method::Put, &["access", "acl"]).with("path", path);
    match who {
        Grantee::User(name) => call.with("users", name),
        Grantee::Token(name) => call.with("tokens", name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sent_and_never_shown() {
        let call = log_in("root@pam", &Secret::new("hunter2;=& "));
        assert!(!format!("{call:?}").contains("hunter2"));
        assert_eq!(call.target(), "/api2/json/access/ticket");
        assert_eq!(call.body(), b"username=root%40pam&password=hunter2%3B%3D%26%20");
        let made: NewToken =
            serde_json::from_str(r#"{"full-tokenid":"a@pve!b","info":{"privsep":1},"value":"uuid"}"#)
                .expect("a token");
        assert!(!format!("{made:?}").contains("uuid"));
        assert_eq!(made.secret().expose(), "a@pve!b=uuid");
        let ticket: TicketRow =
            serde_json::from_str(r#"{"ticket":"PVE:x","CSRFPreventionToken":"y"}"#).expect("a ticket");
        assert!(!format!("{ticket:?}").contains("PVE"));
        assert_eq!(Challenge::of(&ticket), None);
    }

    #[test]
    fn a_challenge_says_what_answers_it_and_is_answered_with_a_kind() {
        let row = |ticket: &str| TicketRow { ticket: Some(ticket.into()), csrf: None, needs_more: Some(1) };
        let ticket = r#"PVE:!tfa!{"totp"%3Atrue,"recovery"%3A[1,2]}:68F1A2B3::c2ln"#;
        let challenge = Challenge::of(&row(ticket)).expect("a challenge");
        assert!(challenge.takes_codes && !format!("{challenge:?}").contains("68F1"), "{challenge:?}");
        let call = second_factor("root@pam", &challenge, &Secret::new("123456"));
        assert!(!format!("{call:?}").contains("123456"));
        let body = String::from_utf8(call.body()).expect("text");
        assert!(
            body.starts_with("username=root%40pam&password=totp%3A123456&tfa-challenge=PVE%3A%21tfa%21"),
            "{body}"
        );
        let key = Challenge::of(&row(r#"PVE:!tfa!{"webauthn"%3A{}}:68F1A2B3::c2ln"#)).expect("a challenge");
        assert!(!key.takes_codes);
        for other in ["PVE:root@pam:68F1A2B3::c2ln", "PVE:!tfa!rubbish:1::x", "PVE:!tfa!\u{1b}:1::x", ""] {
            assert_eq!(Challenge::of(&row(other)), None, "{other}");
        }
    }

    #[test]
    fn roles_are_written_in_several_ways() {
        let role = RoleRow { roleid: "x".into(), privs: Some("VM.Audit,Sys.Audit VM.Clone".into()) };
        assert_eq!(role.privileges().collect::<Vec<_>>(), ["VM.Audit", "Sys.Audit", "VM.Clone"]);
        assert_eq!(RoleRow { privs: None, ..role }.privileges().count(), 0);
    }
}
