//! The lab's own description of the API: which endpoints there are, what they take, and who may call them.
//!
//! The facts stand in small text files, one line per parameter:
//!
//! ```text
//! /pools
//!   DELETE protected since=8.1 check=["perm","/pool/{poolid}",["Pool.Allocate"]]
//!     poolid string format=pve-poolid
//! ```
//!
//! `name?` is optional, `array:string` a list, `of=` a property string described under `format`, `use` takes in a
//! `group` of parameters, `kind=` says for which values of `type` a parameter is there. `pattern=` is the last
//! word of its line and may contain spaces.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use regex::Regex;
use serde_json::{Value, json};

use crate::pve::{
    Release,
    access::{Check, Rule},
};

/// An endpoint.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The path, with names in braces.
    pub path: String,
    /// The method.
    pub method: String,
    /// Whether the daemon behind the front proxy answers.
    pub protected: bool,
    /// Whether the host of the path answers.
    pub proxied: bool,
    /// Whether tokens may not call it.
    pub ticket_only: bool,
    /// Whether other parameters are allowed.
    pub open: bool,
    /// Since which release it is there.
    pub since: Option<Release>,
    /// Who may call it.
    pub check: Check,
    /// Its parameters by name; `net[n]` stands for `net0`, `net1` and so on.
    pub params: Arc<BTreeMap<String, Property>>,
}

/// A parameter, or a key of a property string.
#[derive(Debug, Clone, Default)]
pub struct Property {
    /// The type.
    pub kind: Kind,
    /// Whether it may be left out.
    pub optional: bool,
    /// The name of the scalar format or property string, if it has one.
    pub format: Option<String>,
    /// Whether `format` names an anonymous property string (`of=`).
    pub inline: bool,
    /// The least value.
    pub min: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
    /// The least length.
    pub min_length: Option<usize>,
    /// The greatest length.
    pub max_length: Option<usize>,
    /// The values that are allowed.
    pub options: Vec<String>,
    /// What it must match.
    pub pattern: Option<Pattern>,
    /// What it is when it is left out, as far as that is a plain value.
    pub default: Option<String>,
    /// Another parameter that must be there too.
    pub requires: Option<String>,
    /// Since which release it is there.
    pub since: Option<Release>,
    /// The values of `type` that it belongs to; empty for all.
    pub kinds: Vec<String>,
    /// It is another name of this key.
    pub alias: Option<String>,
    /// The key that takes the name which was used for the alias.
    pub key_alias: Option<String>,
    /// It is the key that need not be written.
    pub main: bool,
}

/// A type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `0` or `1`.
    Boolean,
    /// A list of values that the rest of the property describes.
    Array(Scalar),
    /// Anything.
    Any,
}

/// The type of a list's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    String,
    /// A whole number.
    Integer,
}

/// A pattern and what it was made from.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// The text in the description.
    pub text: String,
    regex: Arc<OnceLock<Option<Regex>>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), regex: Arc::default() }
    }

    /// Returns whether a value matches. The real server anchors patterns without brackets around them, so that
    /// of alternatives only the first is bound to the beginning and only the last to the end.
    pub fn matches(&self, value: &str) -> bool {
        let regex = self.regex.get_or_init(|| Regex::new(&format!("^{}\n?$", self.text)).ok());
        regex.as_ref().is_none_or(|regex| regex.is_match(value))
    }
}

/// The keys of a property string.
pub type Format = BTreeMap<String, Property>;

/// The whole description.
#[derive(Debug, Default)]
pub struct Description {
    /// All endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Property strings by name.
    pub formats: BTreeMap<String, Format>,
    tree: Node,
}

/// A level of the paths: what follows by name, and what follows for any name.
#[derive(Debug, Default)]
struct Node {
    named: BTreeMap<String, Node>,
    any: Option<(String, Box<Node>)>,
    methods: BTreeMap<String, usize>,
}

const FILES: [&str; 6] = [
    include_str!("describe/formats.txt"),
    include_str!("describe/access.txt"),
    include_str!("describe/cluster.txt"),
    include_str!("describe/nodes.txt"),
    include_str!("describe/qemu.txt"),
    include_str!("describe/storage.txt"),
];

/// Returns the description, read once.
pub fn description() -> &'static Description {
    static DESCRIPTION: OnceLock<Description> = OnceLock::new();
    DESCRIPTION.get_or_init(|| {
        let mut description = Description::default();
        let mut groups = BTreeMap::new();
        for file in FILES {
            read_groups(file, &mut groups);
        }
        for file in FILES {
            read(file, &groups, &mut description);
        }
        for (place, endpoint) in description.endpoints.iter().enumerate() {
            description.tree.add(&endpoint.path, &endpoint.method, place);
        }
        description
    })
}

impl Node {
    fn add(&mut self, path: &str, method: &str, place: usize) {
        let mut node = self;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            node = match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                Some(name) => &mut node.any.get_or_insert_with(|| (name.to_owned(), Box::default())).1,
                None => node.named.entry(part.to_owned()).or_default(),
            };
        }
        node.methods.insert(method.to_owned(), place);
    }
}

/// Parameters whose value may contain slashes: they take the rest of the path.
const GREEDY: [&str; 2] = ["volume", "cidr"];

/// Finds an endpoint and the parameters that stand in its path.
pub fn find(
    method: &str,
    path: &str,
    release: Release,
) -> Option<(&'static Endpoint, Vec<(String, String)>)> {
    let description = description();
    let mut node = &description.tree;
    let mut params = Vec::new();
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        if let Some(next) = node.named.get(part) {
            node = next;
            continue;
        }
        let (name, next) = node.any.as_ref()?;
        let mut value = part.to_owned();
        if GREEDY.contains(&name.as_str()) {
            for more in parts.by_ref() {
                value = format!("{value}/{more}");
            }
        }
        params.push((name.clone(), value));
        node = next;
    }
    let endpoint = &description.endpoints[*node.methods.get(method)?];
    if endpoint.since.is_some_and(|since| !release.at_least(since.major, since.minor)) {
        return None;
    }
    Some((endpoint, params))
}

/// Answers an endpoint that only lists what is below it.
pub fn index(endpoint: &Endpoint) -> Option<Value> {
    if endpoint.method != "GET" {
        return None;
    }
    let row = |key: &str, name: &str| json!({ key: name });
    if let Some((_, key, names)) = INDEXES.iter().find(|(path, _, _)| *path == endpoint.path) {
        return Some(names.split(' ').map(|name| row(key, name)).collect());
    }
    let below = format!("{}/", endpoint.path.trim_end_matches('/'));
    let names: std::collections::BTreeSet<&str> = description()
        .endpoints
        .iter()
        .filter_map(|other| other.path.strip_prefix(&below)?.split('/').next())
        .filter(|name| !name.starts_with('{'))
        .collect();
    // The key and the order are not recorded for these.
    (!names.is_empty()).then(|| names.into_iter().map(|name| row("subdir", name)).collect())
}

/// Endpoints that list what is below them: path, key, and names in the recorded order.
const INDEXES: &[(&str, &str, &str)] = &[
    ("/", "subdir", "version cluster nodes storage access pools"),
    ("/access", "subdir", "users groups roles acl domains openid tfa ticket password"),
    (
        "/nodes/{node}",
        "name",
        "aplinfo apt capabilities ceph certificates config disks dns firewall hardware hosts journal lxc \
         migrateall netstat network qemu query-oci-repo-tags query-url-metadata replication report rrd rrddata \
         scan sdn services spiceshell startall status stopall storage subscription suspendall syslog tasks \
         termproxy time version vncshell vzdump wakeonlan",
    ),
];

/// Reads the groups of a file.
fn read_groups(file: &str, groups: &mut BTreeMap<String, Vec<String>>) {
    let mut current = None;
    for line in file.lines() {
        if let Some(name) = line.strip_prefix("group ") {
            current = Some(name.to_owned());
        } else if !line.starts_with(' ') {
            current = None;
        } else if let Some(name) = &current {
            groups.entry(name.clone()).or_default().push(line.trim().to_owned());
        }
    }
}

fn read(file: &str, groups: &BTreeMap<String, Vec<String>>, description: &mut Description) {
    let mut path = String::new();
    let mut format = None;
    let mut params = Format::new();
    for line in file.lines() {
        let depth = line.len() - line.trim_start().len();
        let text = line.trim();
        match depth {
            0 => {
                finish(description, &mut params);
                format = text.strip_prefix("format ").map(str::to_owned);
                path = if text.starts_with('/') { text.to_owned() } else { String::new() };
            }
            2 if format.is_some() => {
                let (name, property) = read_property(text);
                let keys = description.formats.entry(format.clone().unwrap_or_default()).or_default();
                keys.insert(name, property);
            }
            2 if !path.is_empty() => {
                finish(description, &mut params);
                description.endpoints.push(read_endpoint(&path, text));
            }
            4 => match text.strip_prefix("use ") {
                Some(group) => {
                    let lines = groups.get(group).map(Vec::as_slice).unwrap_or_default();
                    params.extend(lines.iter().map(|line| read_property(line)));
                }
                None => params.extend([read_property(text)]),
            },
            _ => {}
        }
    }
    finish(description, &mut params);
}

/// Gives the parameters that were read to the endpoint they follow.
fn finish(description: &mut Description, params: &mut Format) {
    if let Some(endpoint) = description.endpoints.last_mut().filter(|_| !params.is_empty()) {
        endpoint.params = Arc::new(std::mem::take(params));
    }
}

fn read_endpoint(path: &str, text: &str) -> Endpoint {
    let (text, check) = match text.split_once(" check=") {
        Some((text, rule)) => (text, serde_json::from_str(rule).ok().and_then(|rule| Rule::parse(&rule))),
        None => (text, None),
    };
    let words: Vec<&str> = text.split(' ').collect();
    let has = |word: &str| words.contains(&word);
    let check = match check {
        Some(rule) => Check::Rule(rule),
        None if has("world") => Check::World,
        None if has("root") => Check::Root,
        None => Check::Login,
    };
    Endpoint {
        path: path.to_owned(),
        method: words[0].to_owned(),
        protected: has("protected"),
        proxied: has("proxy=node"),
        ticket_only: has("ticket"),
        open: has("open"),
        since: words.iter().find_map(|word| word.strip_prefix("since=")?.parse().ok()),
        check,
        params: Arc::default(),
    }
}

fn read_property(line: &str) -> (String, Property) {
    let mut property = Property::default();
    let (line, pattern) = match line.split_once(" pattern=") {
        Some((line, pattern)) => (line, Some(Pattern::new(pattern))),
        None => (line, None),
    };
    property.pattern = pattern;
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "string" => property.kind = Kind::String,
            "integer" => property.kind = Kind::Integer,
            "number" => property.kind = Kind::Number,
            "boolean" => property.kind = Kind::Boolean,
            "array:string" => property.kind = Kind::Array(Scalar::String),
            "array:integer" => property.kind = Kind::Array(Scalar::Integer),
            "format" => property.format = Some(value.to_owned()),
            "of" => {
                property.format = Some(value.to_owned());
                property.inline = true;
            }
            "min" => property.min = value.parse().ok(),
            "max" => property.max = value.parse().ok(),
            "minlen" => property.min_length = value.parse().ok(),
            "maxlen" => property.max_length = value.parse().ok(),
            "enum" => property.options = value.split('|').map(str::to_owned).collect(),
            "default" => property.default = Some(value.to_owned()),
            "requires" => property.requires = Some(value.to_owned()),
            "since" => property.since = value.parse().ok(),
            "kind" => property.kinds = value.split('|').map(str::to_owned).collect(),
            "alias" => property.alias = Some(value.to_owned()),
            "keyalias" => property.key_alias = Some(value.to_owned()),
            "main" => property.main = true,
            _ => property.kind = Kind::Any,
        }
    }
    property.optional = name.ends_with('?');
    (name.trim_end_matches('?').to_owned(), property)
}
