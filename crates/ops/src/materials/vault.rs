//! Secrets of a Vault or `OpenBao` server.
//!
//! The server and the login are those of its own command line, by the same environment variables, so that whoever can
//! run `vault kv get` can run ichor. `OpenBao` reads `BAO_...` first and then `VAULT_...`; so does this.

use std::{cell::OnceCell, net::IpAddr, path::PathBuf, time::Duration};

use ichor_machineconfig::{pki::Certificate, secrets::SecretText};
use ichor_model::{Code, Finding};
use ichor_net::{Endpoint, Trust};
use ichor_port::{Method, Request, Response, Secret, clean, percent};
use serde_json::Value;

use super::MAX_BYTES;
use crate::{System, system::Links};

/// How long the server may take for an answer.
const WITHIN: Duration = Duration::from_secs(15);
/// Where a token is kept by `vault login`, below the user's home.
const TOKEN_FILE: &str = ".vault-token";

/// Asks a server, and logs in at most once.
pub struct Vault<'s> {
    system: &'s dyn System,
    session: OnceCell<Result<Session, Trouble>>,
}

/// A server that we have a token for.
struct Session {
    server: Server,
    token: Secret,
}

/// How a server is reached.
struct Server {
    endpoint: Endpoint,
    trust: Trust,
    namespace: Option<String>,
}

/// Why a secret could not be had, and what to do about it.
#[derive(Debug, Clone)]
struct Trouble {
    why: String,
    remedy: String,
}

impl Trouble {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into() }
    }
}

/// Where a secret is: the engine that keeps it, and how that engine is asked.
struct Engine {
    mount: String,
    versioned: bool,
}

impl<'s> Vault<'s> {
    /// Nothing is asked before a secret is wanted.
    pub fn new(system: &'s dyn System) -> Self {
        Self { system, session: OnceCell::new() }
    }

    /// Reads `mount/path#field`.
    pub fn read(&self, place: &str) -> Result<SecretText, Finding> {
        let (path, field) = place.split_once('#').unwrap_or((place, ""));
        self.find(path.trim_matches('/'), field).map_err(|trouble| {
            let message = format!("the secret `{place}` of Vault cannot be had");
            Finding::error(Code::UNRESOLVED_SECRET, None, message).because(trouble.why).remedy(trouble.remedy)
        })
    }

    fn find(&self, path: &str, field: &str) -> Result<SecretText, Trouble> {
        let session = self.session.get_or_init(|| self.log_in()).as_ref().map_err(Clone::clone)?;
        let engine = self.engine(session, path)?;
        let target = engine.target(path);
        let answer = self.get(session, &target)?;
        let kept = match answer.status {
            200 => read_json(&answer)?,
            404 => {
                return Err(Trouble::new(
                    "it has no such secret, or its last version was deleted",
                    looks(path),
                ));
            }
            403 => {
                let remedy =
                    format!("give the token a policy with `read` on `{}`", target.trim_start_matches("/v1/"));
                return Err(Trouble::new(format!("the token may not read it{}", said(&answer)), remedy));
            }
            _ => return Err(refused(&answer)),
        };
        let fields = if engine.versioned { &kept["data"]["data"] } else { &kept["data"] };
        match &fields[field] {
            Value::String(text) if text.is_empty() => Err(Trouble::new("it is empty", looks(path))),
            Value::String(text) => Ok(SecretText::new(text)),
            Value::Null => Err(Trouble::new(format!("the secret has no field `{field}`"), looks(path))),
            _ => Err(Trouble::new(format!("its field `{field}` is no text"), looks(path))),
        }
    }

    /// Asks which engine keeps a path, as the server's own command line does. A server that does not tell is taken to
    /// have a versioned engine under the first name of the path.
    fn engine(&self, session: &Session, path: &str) -> Result<Engine, Trouble> {
        let answer = self.get(session, &format!("/v1/sys/internal/ui/mounts/{}", percent_path(path)))?;
        let usual = || Engine { mount: path.split('/').next().unwrap_or(path).to_owned(), versioned: true };
        match answer.status {
            200 => {
                let told = read_json(&answer)?;
                let mount = told["data"]["path"].as_str().map(|mount| mount.trim_matches('/').to_owned());
                let within = |mount: &String| {
                    path.strip_prefix(mount.as_str()).is_some_and(|rest| rest.starts_with('/'))
                };
                let versioned = told["data"]["options"]["version"] == "2";
                Ok(mount.filter(within).map_or_else(usual, |mount| Engine { mount, versioned }))
            }
            403 | 404 => Ok(usual()),
            _ => Err(refused(&answer)),
        }
    }

    fn get(&self, session: &Session, target: &str) -> Result<Response, Trouble> {
        let authorization = Some(Secret::new(format!("Bearer {}", session.token.expose())));
        let request = Request {
            method: Method::Get,
            target: target.to_owned(),
            headers: session.server.headers(),
            authorization,
            body: Vec::new(),
        };
        self.ask(&session.server, request)
    }

    fn ask(&self, server: &Server, request: Request) -> Result<Response, Trouble> {
        self.system.ask(&server.endpoint, &server.trust, request, WITHIN).map_err(|error| {
            let remedy = "check `VAULT_ADDR`, and `VAULT_CACERT` for a server with a CA of its own";
            Trouble::new(error.to_string(), remedy)
        })
    }

    /// Takes the token that is there, or logs in as a role.
    fn log_in(&self) -> Result<Session, Trouble> {
        let server = self.server()?;
        if let Some(token) = self.variable("TOKEN")? {
            return Ok(Session { server, token });
        }
        if let (Some(role), Some(secret)) = (self.variable("ROLE_ID")?, self.variable("SECRET_ID")?) {
            let token = self.log_in_as(&server, &role, &secret)?;
            return Ok(Session { server, token });
        }
        let token = self.token_file()?.ok_or_else(|| {
            let remedy =
                "log in with `vault login`, or set `VAULT_TOKEN`, or `VAULT_ROLE_ID` and `VAULT_SECRET_ID`";
            Trouble::new("nobody is logged in", remedy)
        })?;
        Ok(Session { server, token })
    }

    fn log_in_as(&self, server: &Server, role: &Secret, secret: &Secret) -> Result<Secret, Trouble> {
        let mount = self.variable("APPROLE_MOUNT")?;
        let mount = mount.as_ref().map_or("approle", |mount| mount.expose().trim_matches('/'));
        let login = serde_json::json!({"role_id": role.expose(), "secret_id": secret.expose()});
        let mut headers = server.headers();
        headers.push(("content-type", "application/json".to_owned()));
        let request = Request {
            method: Method::Post,
            target: format!("/v1/auth/{}/login", percent_path(mount)),
            headers,
            authorization: None,
            body: login.to_string().into_bytes(),
        };
        let answer = self.ask(server, request)?;
        if answer.status != 200 {
            let remedy = "check `VAULT_ROLE_ID`, and make a new `VAULT_SECRET_ID`: they expire, and are good for so many logins";
            return Err(Trouble::new(format!("the login as a role was refused{}", said(&answer)), remedy));
        }
        let token = read_json(&answer)?["auth"]["client_token"].as_str().map(Secret::new);
        token.ok_or_else(|| Trouble::new("the login gave no token", "see what the server's log says"))
    }

    fn server(&self) -> Result<Server, Trouble> {
        let set = "set it, as in\n    export VAULT_ADDR=https://vault.example:8200";
        let address = self.variable("ADDR")?.ok_or_else(|| Trouble::new("`VAULT_ADDR` is not set", set))?;
        let endpoint: Endpoint = address
            .expose()
            .trim_end_matches('/')
            .parse()
            .map_err(|why| Trouble::new(format!("`VAULT_ADDR`: {why}"), set))?;
        if !endpoint.tls && !is_here(&endpoint.host) {
            let why = "`VAULT_ADDR` has `http`, and secrets would cross the network in the clear";
            return Err(Trouble::new(why, "give the server TLS, and write `https`"));
        }
        let trust = match self.variable("CACERT")? {
            Some(file) => Trust::Authorities(self.authorities(file.expose())?),
            None => Trust::System,
        };
        let namespace = self.variable("NAMESPACE")?.map(|namespace| namespace.expose().to_owned());
        Ok(Server { endpoint, trust, namespace })
    }

    fn authorities(&self, file: &str) -> Result<Vec<Vec<u8>>, Trouble> {
        let bad = |why: String| {
            Trouble::new(format!("`VAULT_CACERT`, `{file}`: {why}"), "name a file with certificates in PEM")
        };
        let contents = self
            .system
            .read(&PathBuf::from(file), MAX_BYTES, Links::Follow)
            .map_err(|why| bad(why.to_string()))?;
        let text =
            std::str::from_utf8(&contents.bytes).map_err(|_| bad("it is not UTF-8 text".to_owned()))?;
        let certificate =
            Certificate::from_pem(text).map_err(|problem| bad(format!("it {}", problem.message)))?;
        Ok(certificate.chain())
    }

    fn token_file(&self) -> Result<Option<Secret>, Trouble> {
        let Ok(Some(home)) = self.system.variable("HOME") else { return Ok(None) };
        let path = PathBuf::from(home.expose()).join(TOKEN_FILE);
        let contents = match self.system.read(&path, MAX_BYTES, Links::Follow) {
            Err(why) if why.is_missing() => return Ok(None),
            read => read.map_err(|why| {
                Trouble::new(format!("`~/{TOKEN_FILE}`: {why}"), "log in with `vault login`")
            })?,
        };
        if contents.open_to_others {
            let why = format!("others can read `~/{TOKEN_FILE}`");
            return Err(Trouble::new(why, format!("close it:\n    chmod 600 ~/{TOKEN_FILE}")));
        }
        let token =
            std::str::from_utf8(&contents.bytes).ok().map(str::trim).filter(|token| !token.is_empty());
        Ok(token.map(Secret::new))
    }

    /// Returns a setting by either product's name.
    fn variable(&self, name: &str) -> Result<Option<Secret>, Trouble> {
        for product in ["BAO", "VAULT"] {
            let name = format!("{product}_{name}");
            match self.system.variable(&name) {
                Ok(Some(value)) if !value.expose().is_empty() => {
                    return Ok(Some(Secret::new(value.expose())));
                }
                Ok(_) => {}
                Err(_) => return Err(Trouble::new(format!("`{name}` is not UTF-8 text"), "set it anew")),
            }
        }
        Ok(None)
    }
}

impl Server {
    fn headers(&self) -> Vec<(&'static str, String)> {
        // Agents and proxies of Vault answer requests without it only if told to.
        let mut headers = vec![("x-vault-request", "true".to_owned())];
        headers.extend(self.namespace.clone().map(|namespace| ("x-vault-namespace", namespace)));
        headers
    }
}

impl Engine {
    fn target(&self, path: &str) -> String {
        let within = path.strip_prefix(self.mount.as_str()).unwrap_or(path).trim_matches('/');
        let kind = if self.versioned { "data/" } else { "" };
        format!("/v1/{}/{kind}{}", percent_path(&self.mount), percent_path(within))
    }
}

fn percent_path(path: &str) -> String {
    path.split('/').map(percent).collect::<Vec<_>>().join("/")
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn looks(path: &str) -> String {
    format!("see what is there:\n    vault kv get {path}")
}

fn read_json(answer: &Response) -> Result<Value, Trouble> {
    serde_json::from_slice(&answer.body).map_err(|_| {
        Trouble::new("its answer makes no sense", "check that `VAULT_ADDR` is a Vault or OpenBao server")
    })
}

fn refused(answer: &Response) -> Trouble {
    let remedy = match answer.status {
        503 => "unseal the server",
        300..=399 => {
            "name the server that is active as `VAULT_ADDR`: no secret is asked for elsewhere than there"
        }
        _ => "see what the server's log says",
    };
    Trouble::new(format!("the server answered {}{}", answer.status, said(answer)), remedy)
}

/// Returns what a server says about a refusal.
fn said(answer: &Response) -> String {
    let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let errors = told["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    match errors.iter().find_map(Value::as_str) {
        Some(error) => format!(": {}", clean(error.trim())),
        None => String::new(),
    }
}
