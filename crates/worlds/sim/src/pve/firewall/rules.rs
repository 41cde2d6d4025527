//! Rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply,
        firewall::{Firewall, check_digest, scope},
        params::split_list,
    },
};

/// A rule: its settings as they were given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    settings: BTreeMap<String, String>,
}

/// Settings that a rule keeps.
const SETTINGS: [&str; 13] = [
    "action",
    "comment",
    "dest",
    "dport",
    "enable",
    "icmp-type",
    "iface",
    "log",
    "macro",
    "proto",
    "source",
    "sport",
    "type",
];

/// Names of macros.
pub const MACROS: &str = "Amanda Auth BGP BitTorrent BitTorrent32 Ceph Citrix CVS DAAP DCC DHCPfwd DHCPv6 Distcc DNS \
    Finger FTP Git GNUnet GRE HKP HTTP HTTP/3 HTTPS ICPV2 ICQ IMAP IMAPS IPIP IPsec IPsecah IPsecnat IRC Jetdirect \
    L2TP LDAP LDAPS Mail MDNS MSNP MSSQL Munin MySQL NeighborDiscovery NFS NNTP NNTPS NTP OpenVPN OSPF PBS PCA Ping \
    PMG POP3 POP3S PostgreSQL PPtP Printer Razor Rdate RDP RIP RNDC Rsync SANE SixXS SMB SMBswat SMTP SMTPS SNMP \
    SPAMD SPICEproxy Squid SSH Submission SVN Syslog Telnet Telnets TFTP Time Trcrt VNC VNCL Web Webcache Webmin \
    Whois";

impl Rule {
    fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn set(&mut self, params: &Params) {
        for name in SETTINGS {
            if let Some(text) = params.text(name) {
                self.settings.insert(name.into(), text);
            }
        }
    }

    /// Returns the family of the addresses of a rule: by the addresses, or by the ICMP type.
    fn family(&self) -> Option<u8> {
        let of_address = |text: &str| {
            let first = split_list(text).into_iter().next()?;
            let is_address = first.starts_with(|c: char| c.is_ascii_digit()) || first.contains(':');
            is_address.then(|| if first.contains(':') { 6 } else { 4 })
        };
        let by_address = ["source", "dest"].iter().find_map(|name| self.get(name).and_then(of_address));
        by_address.or_else(|| match (self.get("proto"), self.get("icmp-type")) {
            (Some("icmp"), Some(_)) => Some(4),
            (Some("ipv6-icmp" | "icmpv6"), Some(_)) => Some(6),
            _ => None,
        })
    }

    fn shown(&self, pos: Value, digest: &str, errors: &BTreeMap<String, String>) -> Value {
        let mut row = Map::new();
        for (name, text) in self.settings.iter().filter(|(name, _)| *name != "enable") {
            row.insert(name.clone(), text.clone().into());
        }
        let enabled =
            self.get("enable").is_some_and(|text| text.parse::<u64>().is_ok_and(|number| number > 0));
        row.insert("enable".into(), u8::from(enabled).into());
        row.insert("pos".into(), pos);
        row.insert("digest".into(), digest.into());
        if let Some(family) = self.family() {
            row.insert("ipversion".into(), family.into());
        }
        if !errors.is_empty() {
            row.insert("errors".into(), serde_json::to_value(errors).unwrap_or_default());
        }
        Value::Object(row)
    }

    /// Says what is wrong with a rule.
    fn faults(&self, kind: &str, own: &Firewall, cluster: &Firewall) -> BTreeMap<String, String> {
        let mut faults = BTreeMap::new();
        let mut fault = |name: &str, text: String| {
            faults.entry(name.to_owned()).or_insert(text);
        };
        let rule_type = self.get("type").unwrap_or_default();
        if rule_type == "forward" && kind == "vm" {
            fault("type", format!("invalid rule type 'forward' for rule_env '{kind}'"));
        }
        let action = self.get("action").unwrap_or_default();
        if rule_type != "group" && !matches!(action, "ACCEPT" | "DROP" | "REJECT") {
            fault("action", format!("unknown action '{action}'"));
        }
        if let Some(name) =
            self.get("macro").filter(|name| !MACROS.split_ascii_whitespace().any(|known| known == *name))
        {
            fault("macro", format!("unknown macro '{name}'"));
        }
        if kind == "vm"
            && let Some(iface) = self.get("iface")
            && !iface
                .strip_prefix("net")
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
        {
            fault("iface", "value does not match the regex pattern 'net\\d+'".into());
        }
        for name in ["dport", "sport", "icmp-type"] {
            if self.get(name).is_some() && self.get("proto").is_none() && self.get("macro").is_none() {
                fault("proto", format!("missing property - '{name}' requires this property"));
            }
        }
        for name in ["source", "dest"] {
            if let Some(text) = self.get(name).and_then(|text| unknown_name(text, own, cluster)) {
                fault(name, text);
            }
        }
        let family = |name: &str| {
            let alone = Self { settings: BTreeMap::from([("source".into(), self.get(name)?.to_owned())]) };
            alone.family()
        };
        if let (Some(source), Some(dest)) = (family("source"), family("dest"))
            && source != dest
        {
            fault("dest", "detected mixed ipv4/ipv6 addresses in rule".into());
        }
        faults
    }
}

/// Says that a set or alias is unknown.
fn unknown_name(text: &str, own: &Firewall, cluster: &Firewall) -> Option<String> {
    if let Some(name) = text.strip_prefix('+') {
        let (prefix, bare) = name.split_once('/').map_or(("", name), |(prefix, bare)| (prefix, bare));
        let known = own.sets.contains_key(bare) && prefix != "dc"
            || cluster.sets.contains_key(bare) && prefix != "guest";
        return (!known && prefix != "sdn").then(|| format!("no such ipset '{name}'"));
    }
    let (prefix, bare) = text.split_once('/').map_or(("", text), |(prefix, bare)| (prefix, bare));
    let (prefix, bare) = if matches!(prefix, "dc" | "guest") { (prefix, bare) } else { ("", text) };
    if !bare.starts_with(|c: char| c.is_ascii_alphabetic()) || bare.contains([':', '.', ',']) {
        return None;
    }
    let bare = bare.to_lowercase();
    let known = own.aliases.contains_key(&bare) && prefix != "dc"
        || cluster.aliases.contains_key(&bare) && prefix != "guest";
    (!known).then(|| format!("no such alias '{text}'"))
}

/// Finds the rules of a path: those of a scope, or of a security group of the cluster.
fn rules_of(firewall: &Firewall, params: &Params) -> Result<Vec<Rule>, ApiError> {
    let Some(name) = params.text("group") else { return Ok(firewall.rules.clone()) };
    let missing = || ApiError::server(format!("no such security group '{name}'"));
    firewall.groups.get(&name).map(|group| group.rules.clone()).ok_or_else(missing)
}

fn store(dc: &mut Datacentre, params: &Params, rules: Vec<Rule>) {
    let firewall = dc.firewall.scopes.entry(scope(params)).or_default();
    match params.text("group").and_then(|name| firewall.groups.get_mut(&name)) {
        Some(group) => group.rules = rules,
        None => firewall.rules = rules,
    }
}

/// What kind of rules a path has, in the words of the real server.
fn environment(params: &Params) -> &'static str {
    match scope(params).split('/').next() {
        Some("vm") => "vm",
        Some("vnet") => "vnet",
        Some("host") => "host",
        _ if params.has("group") => "group",
        _ => "cluster",
    }
}

pub fn list(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    let cluster = dc.firewall.cluster();
    let digest = firewall.digest();
    let row = |(pos, rule): (usize, &Rule)| {
        rule.shown(pos.into(), &digest, &rule.faults(environment(params), &firewall, &cluster))
    };
    let rules = rules_of(&firewall, params)?;
    Ok(rules.iter().enumerate().map(row).collect::<Vec<_>>().into())
}

fn place(rules: &[Rule], params: &Params) -> Result<usize, ApiError> {
    let pos = params.integer("pos").unwrap_or_default();
    let place = usize::try_from(pos).unwrap_or(usize::MAX);
    if place < rules.len() { Ok(place) } else { Err(ApiError::server(format!("no rule at position {pos}"))) }
}

pub fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    let rules = rules_of(&firewall, params)?;
    let place = place(&rules, params)?;
    Ok(rules[place].shown(place.to_string().into(), &firewall.digest(), &BTreeMap::new()).into())
}

pub fn create(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    check_digest(params, &firewall.digest())?;
    let mut rules = rules_of(&firewall, params)?;
    let mut rule = Rule::default();
    rule.set(params);
    let faults = rule.faults(environment(params), &firewall, &dc.firewall.cluster());
    if !faults.is_empty() {
        return Err(ApiError::params(faults).into());
    }
    // A new rule always comes first, whatever `pos` says.
    rules.insert(0, rule);
    store(dc, params, rules);
    Ok(Answer::null())
}

pub fn update(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    check_digest(params, &firewall.digest())?;
    let mut rules = rules_of(&firewall, params)?;
    let place = place(&rules, params)?;
    if let Some(target) = params.integer("moveto") {
        let target = usize::try_from(target).unwrap_or_default().min(rules.len());
        let rule = rules.remove(place);
        rules.insert(if target > place { target - 1 } else { target }.min(rules.len()), rule);
    } else {
        for name in split_list(&params.text_or_empty("delete")) {
            rules[place].settings.remove(&name);
        }
        rules[place].set(params);
        let faults = rules[place].faults(environment(params), &firewall, &dc.firewall.cluster());
        if !faults.is_empty() {
            return Err(ApiError::params(faults).into());
        }
    }
    store(dc, params, rules);
    Ok(Answer::null())
}

pub fn remove(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    check_digest(params, &firewall.digest())?;
    let mut rules = rules_of(&firewall, params)?;
    let place = place(&rules, params)?;
    rules.remove(place);
    store(dc, params, rules);
    Ok(Answer::null())
}
