//! From files to an inventory: shared defaults below, the files of a directory side by side.

use std::collections::BTreeMap;

use ichor_model::{Code, Finding, Findings, SourceId, Span};

use crate::{
    inventory::Inventory,
    read::{Read, Reader},
    yaml::{self, Key, Kind, Node},
};

/// The files that were read, for findings to point into.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

/// One file: how it is shown, and its content.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// The path as it is shown to the user.
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// A place for people: line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Sources {
    /// Adds a file.
    pub fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> SourceId {
        self.files.push(SourceFile { path: path.into(), bytes: bytes.into() });
        SourceId(u16::try_from(self.files.len() - 1).unwrap_or(u16::MAX))
    }

    /// Returns a file.
    pub fn get(&self, source: SourceId) -> Option<&SourceFile> {
        self.files.get(usize::from(source.0))
    }

    /// Returns the line and column where a span begins.
    pub fn place(&self, span: Span) -> Option<Place> {
        let bytes = &self.get(span.source)?.bytes;
        let before = &bytes[..bytes.len().min(span.start as usize)];
        let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let column =
            String::from_utf8_lossy(&before[line_start..]).trim_start_matches('\u{feff}').chars().count();
        Some(Place { line: before.iter().filter(|b| **b == b'\n').count() + 1, column: column + 1 })
    }
}

impl Sources {
    /// Keeps every line with a private finding out of sight of all findings: a secret stands there,
    /// whatever they are about. To be called with all findings before any of them is shown.
    #[must_use]
    pub fn hide_private_lines(&self, findings: &Findings) -> Findings {
        let private = findings.iter().filter(|finding| finding.private).filter_map(|finding| finding.at);
        let lines: BTreeMap<(SourceId, u32), u32> = private
            .map(|span| self.lines_of(span))
            .map(|line| ((line.source, line.start), line.end))
            .collect();
        let is_hidden = |at: Span| {
            let before = lines.range(..=(at.source, at.start)).next_back();
            before.is_some_and(|((source, _), end)| *source == at.source && at.start <= *end)
        };
        let hidden = findings.iter().cloned().map(|finding| {
            let mut places = finding.at.into_iter().chain(finding.related.iter().map(|(at, _)| *at));
            let private = finding.private || places.any(is_hidden);
            Finding { private, ..finding }
        });
        hidden.collect()
    }

    /// Returns the whole lines that a span touches.
    fn lines_of(&self, span: Span) -> Span {
        let bytes = self.get(span.source).map_or(&[][..], |file| &file.bytes);
        let (start, end) = (bytes.len().min(span.start as usize), bytes.len().min(span.end as usize));
        let first = bytes[..start].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let last = bytes[end..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| end + i);
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { source: span.source, start: offset(first), end: offset(last) }
    }
}

/// The files of one inventory, weakest first.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// Shared defaults, the outermost first.
    pub defaults: Vec<SourceId>,
    /// The inventory itself: one file, or `cluster.yaml` and `nodes.yaml`.
    pub files: Vec<SourceId>,
}

/// Reads one inventory and reports everything that is wrong with it.
///
/// `None` means that nothing sensible could be read. An inventory that is returned together with
/// errors lacks the values that could not be read, so that the rest can still be checked.
pub fn load(sources: &Sources, layers: &Layers, findings: &mut Findings) -> Option<Inventory> {
    let mut tree: Option<Node> = None;
    for source in &layers.defaults {
        tree = lay_over(parse(sources, *source, findings), tree);
    }
    let mut own: Option<Node> = None;
    for source in &layers.files {
        own = join(own, parse(sources, *source, findings), findings);
    }
    if own.is_none() {
        let at = layers.files.first().map(|source| Span { source: *source, start: 0, end: 0 });
        if !findings.has_errors() {
            findings.push(
                Finding::error(Code::EMPTY, at, "the inventory is empty")
                    .remedy("start from the example in the README"),
            );
        }
        return None;
    }
    let tree = lay_over(own, tree)?;
    let mut reader = Reader::with_bases(bases(sources, layers));
    let inventory = Inventory::read(&tree, &mut reader);
    findings.extend(reader.findings);
    *findings = sources.hide_private_lines(findings);
    inventory
}

/// Returns where shared defaults lie that are not beside the inventory, relative to it.
fn bases(sources: &Sources, layers: &Layers) -> BTreeMap<SourceId, String> {
    let directory = |source: &SourceId| sources.get(*source).map(|file| directory_of(&file.path));
    let Some(own) = layers.files.first().and_then(directory) else { return BTreeMap::new() };
    let way = |source: &SourceId| Some((*source, way_between(&own, &directory(source)?)));
    layers.defaults.iter().filter_map(way).filter(|(_, way)| !way.is_empty()).collect()
}

/// Returns the parts of the directory of a file.
fn directory_of(path: &str) -> Vec<&str> {
    let (directory, _) = path.rsplit_once('/').unwrap_or_default();
    let root = path.starts_with('/').then_some("");
    root.into_iter().chain(directory.split('/').filter(|part| !part.is_empty() && *part != ".")).collect()
}

/// Returns the way from one directory to another, both seen from the same place.
fn way_between(from: &[&str], to: &[&str]) -> String {
    let shared = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let up = from[shared..].iter().map(|_| "..");
    up.chain(to[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

fn parse(sources: &Sources, source: SourceId, findings: &mut Findings) -> Option<Node> {
    let node = yaml::parse(source, &sources.get(source)?.bytes, findings)?;
    (node.kind != Kind::Null).then_some(node)
}

/// Lays one tree over another: maps join, nothing removes, everything else hides what is below.
fn lay_over(above: Option<Node>, below: Option<Node>) -> Option<Node> {
    match (above, below) {
        (Some(above), Some(below)) => Some(lay_node(above, below)),
        (above, below) => above.or(below),
    }
}

fn lay_node(above: Node, below: Node) -> Node {
    match (above.kind, below.kind) {
        (Kind::Map(top), Kind::Map(bottom)) => {
            Node { span: above.span, kind: Kind::Map(lay_entries(top, bottom)) }
        }
        (kind, _) => Node { span: above.span, kind },
    }
}

fn lay_entries(top: Vec<(Key, Node)>, bottom: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
    let mut joined: Vec<(Key, Option<Node>)> =
        bottom.into_iter().map(|(key, node)| (key, Some(node))).collect();
    let index: BTreeMap<String, usize> =
        joined.iter().enumerate().map(|(i, (key, _))| (key.text.clone(), i)).collect();
    for (key, node) in top {
        match index.get(&key.text) {
            Some(i) => {
                let (old_key, old) = &mut joined[*i];
                let below = old.take();
                *old = if node.kind == Kind::Null { None } else { lay_over(Some(node), below) };
                *old_key = key;
            }
            None => joined.push((key, Some(node))),
        }
    }
    joined.into_iter().filter_map(|(key, node)| node.map(|node| (key, node))).collect()
}

/// Joins the files of a directory: each section may stand in one of them.
fn join(first: Option<Node>, second: Option<Node>, findings: &mut Findings) -> Option<Node> {
    let (first, second) = match (first, second) {
        (Some(first), Some(second)) => (first, second),
        (first, second) => return first.or(second),
    };
    let (Kind::Map(mut entries), Kind::Map(more)) = (first.kind, second.kind) else {
        findings.push(
            Finding::error(
                Code::WRONG_TYPE,
                second.span,
                "an inventory file holds something other than a map",
            )
            .remedy("begin with keys such as `cluster:` and `machines:`"),
        );
        return None;
    };
    for (key, node) in more {
        match entries.iter().find(|(k, _)| k.text == key.text) {
            Some((other, _)) => findings.push(
                Finding::error(
                    Code::TWO_FILES,
                    key.span,
                    format!("`{}` is written in two files", yaml::show(&key.text)),
                )
                .see(other.span, "also written here")
                .remedy("keep it in one of them; what clusters share belongs in `defaults.yaml`"),
            ),
            None => entries.push((key, node)),
        }
    }
    Some(Node { span: first.span, kind: Kind::Map(entries) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(defaults: &[&str], files: &[&str]) -> (Option<Inventory>, Vec<String>) {
        let mut sources = Sources::default();
        let layers = Layers {
            defaults: defaults.iter().map(|text| sources.add("defaults.yaml", *text)).collect(),
            files: files.iter().map(|text| sources.add("cluster.yaml", *text)).collect(),
        };
        let mut findings = Findings::new();
        let inventory = load(&sources, &layers, &mut findings);
        (inventory, findings.iter().map(|finding| format!("{} {}", finding.code, finding.message)).collect())
    }

    #[test]
    fn an_inventory_wins_over_shared_defaults() {
        let (inventory, findings) = load_text(
            &["network: {bridge: vmbr0, vlan: 10}\nos: {time_servers: [a, b]}\n"],
            &["network: {bridge: vmbr1}\nos: {time_servers: [c]}\n"],
        );
        assert!(findings.is_empty(), "{findings:?}");
        let inventory = inventory.expect("inventory");
        let network = inventory.network.expect("network").value;
        assert_eq!(network.bridge.expect("bridge").value, "vmbr1");
        assert_eq!(network.vlan.expect("vlan").value.0, 10);
        assert_eq!(inventory.os.expect("os").time_servers.as_ref().expect("servers").len(), 1);
    }

    #[test]
    fn nothing_lifts_a_default() {
        let (inventory, _) = load_text(&["network: {vlan: 10}\n"], &["network: {vlan: ~}\n"]);
        assert_eq!(inventory.expect("inventory").network.expect("network").vlan, None);
    }

    #[test]
    fn nothing_removes_an_entry() {
        let (inventory, findings) = load_text(
            &[
                "proxmox: {hosts: {pve1: {zone: a}, pve2: {zone: b}}}\nmachines: {cp: {role: worker}, gone: {role: worker}}\n",
            ],
            &["proxmox: {hosts: {pve1: ~, pve3: ~}}\nmachines: {gone: ~}\n"],
        );
        assert!(findings.is_empty(), "{findings:?}");
        let inventory = inventory.expect("inventory");
        let hosts = inventory.proxmox.expect("proxmox").value.hosts.expect("hosts").value.0.0;
        let names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["pve2", "pve3"], "a host of which nothing is said is a host");
        assert_eq!(inventory.machines.expect("machines").0.len(), 1);
    }

    #[test]
    fn nothing_removes_an_entry_of_the_levels_below() {
        let (inventory, findings) = load_text(
            &[],
            &[
                "defaults: {labels: {a: x, b: x}}\nroles: {worker: {labels: {b: ~, c: x}}}\nmachines: {w: {labels: {a: ~}}}\n",
            ],
        );
        assert!(findings.is_empty(), "{findings:?}");
        let mut inventory = inventory.expect("inventory");
        let machine = inventory.machines.take().expect("machines").value.0.remove(0).1.value;
        let role = inventory.roles.expect("roles").value.0.0.remove(0).1.value;
        let defaults = inventory.defaults.expect("defaults").value;
        let keys = |machine: crate::inventory::Machine| {
            let labels = machine.labels.expect("labels").value.0;
            labels.into_iter().map(|(key, _)| key.value.0).collect::<Vec<_>>()
        };
        let one_way = machine.clone().over(role.clone().over(defaults.clone()));
        let other_way = machine.over(role).over(defaults);
        assert_eq!((keys(one_way), keys(other_way)), (vec!["c".to_owned()], vec!["c".to_owned()]));
    }

    #[test]
    fn paths_lead_from_the_inventory_wherever_they_are_named() {
        for (defaults, own, wanted) in [
            ("environments/defaults.yaml", "environments/dev/cluster.yaml", "../s.yaml"),
            ("../defaults.yaml", "./cluster.yaml", "../s.yaml"),
            ("/a/defaults.yaml", "/a/b/c/ichor.yaml", "../../s.yaml"),
            ("../defaults.yaml", "dev/ichor.yaml", "../../s.yaml"),
            ("defaults.yaml", "ichor.yaml", "s.yaml"),
        ] {
            let mut sources = Sources::default();
            let text =
                "secrets: {file: s.yaml}\nproxmox: {token: {sops: 's.yaml#a'}}\npatches: [/etc/x.yaml]\n";
            let layers = Layers {
                defaults: vec![sources.add(defaults, text)],
                files: vec![sources.add(own, "proxmox: {tls: {ca: ca.pem}}\n")],
            };
            let mut findings = Findings::new();
            let inventory = load(&sources, &layers, &mut findings).expect("inventory");
            let proxmox = inventory.proxmox.expect("proxmox").value;
            assert_eq!(inventory.secrets.expect("secrets").file.as_ref().expect("file").0, wanted);
            let token = ichor_model::SecretRef::Sops(format!("{wanted}#a"));
            assert_eq!(proxmox.token.expect("token").value.0, token);
            assert_eq!(proxmox.tls.expect("tls").ca.as_ref().expect("ca").0, "ca.pem");
            assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::BAD_PATH]);
        }
    }

    #[test]
    fn files_of_a_directory_share_no_section() {
        let (inventory, findings) =
            load_text(&[], &["cluster: {name: a}\n", "machines: {}\ncluster: {name: b}\n"]);
        assert!(inventory.is_some());
        assert_eq!(findings, ["ICH-1016 `cluster` is written in two files"]);
    }

    #[test]
    fn an_empty_file_is_said_to_be_empty() {
        for text in ["", "\n# only a comment\n", "---\n", "~"] {
            let (inventory, findings) = load_text(&[], &[text]);
            assert!(inventory.is_none());
            assert_eq!(findings, ["ICH-1001 the inventory is empty"], "{text:?}");
        }
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let text = "clustr: {}\nnetwork: {vlna: 3, mtu: many, firewall: yes}\nmachines: {cp: {memory: 8, vmid: 0400}}\n";
        let (_, findings) = load_text(&[], &[text]);
        let codes: Vec<&str> = findings.iter().map(|finding| &finding[..8]).collect();
        assert_eq!(codes, ["ICH-1101", "ICH-1101", "ICH-1105", "ICH-1104", "ICH-1112", "ICH-1108"]);
    }

    #[test]
    fn what_cannot_be_read_is_remembered_key_by_key() {
        let (inventory, _) = load_text(
            &[],
            &[
                "cluster: [lab]\nnetwork: {cidr: x, dns: [1.1.1.1, x], brigde: a, vlan: 3}\nmachines: {cp: {cpu: x}, c_p: {}}\n",
            ],
        );
        let inventory = inventory.expect("inventory");
        assert!(inventory.cluster.is_none() && inventory.unread.has("cluster"));
        assert!(inventory.unread.has("machines"), "`c_p` is lost");
        assert!(!inventory.unread.has("network"), "only keys inside it are lost");
        let network = inventory.network.expect("network").value;
        assert_eq!(network.dns.as_ref().map(|dns| dns.0.len()), Some(1));
        for key in ["cidr", "dns", "bridge"] {
            assert!(network.unread.has(key), "{key}");
        }
        assert!(!network.unread.has("vlan") && !network.unread.has("gateway"));
    }

    #[test]
    fn a_readable_value_hides_an_unreadable_one_below() {
        let text = "defaults: {cpu: x, memory: y}\nroles: {worker: {cpu: 4}}\n";
        let (inventory, _) = load_text(&[], &[text]);
        let inventory = inventory.expect("inventory");
        let worker = inventory.roles.expect("roles").value.0.0.remove(0).1.value;
        let joined = worker.over(inventory.defaults.expect("defaults").value);
        assert!(joined.unread.has("memory") && !joined.unread.has("cpu"));
    }

    #[test]
    fn findings_name_the_key_they_are_about() {
        let (_, findings) = load_text(
            &[],
            &[
                "cluster: x\nnetwork: {brigde: a}\ndefaults: {tags: [~], bios: efi}\nproxmox: {hosts: [a, a]}\n",
            ],
        );
        assert_eq!(
            findings,
            [
                "ICH-1102 `cluster` is a single value",
                "ICH-1009 `a` is written twice",
                "ICH-1101 `brigde` is not a key of `network`",
                "ICH-1106 `efi` is not a choice for `defaults.bios`",
                "ICH-1102 an item of `defaults.tags` is nothing",
            ]
        );
    }

    #[test]
    fn what_may_be_a_secret_is_never_repeated() {
        for text in [
            "token: user@pve!name=hunter2",
            "token: [hunter2]",
            "token: {plain: hunter2}",
            "token: {env: hunter2, file: hunter2}",
            "token: {env: user@pve!name=hunter2}",
            "token: {env: [hunter2]}",
            "token: {sops: hunter2}",
            "token: {vault: hunter2}",
            "token: {command: echo hunter2}",
            "token: {command: [echo, {hunter2: hunter2}]}",
            "token: !vault hunter2",
            "api_token: hunter2",
            "token: {env: A}, token: hunter2",
            "tls: {}, secret: hunter2, secret: hunter2",
            "endpoint: https://root:hunter2@pve1:8006",
            "endpoint: https://root:hunter2@pve1:0",
            "endpoint: root:hunter2@pve1",
            "endpoint: https://root:hunter 2@pve1",
            "jump: ssh://root:hunter2@pve1",
        ] {
            let mut sources = Sources::default();
            let files = vec![sources.add("ichor.yaml", format!("proxmox: {{{text}}}\n"))];
            let mut findings = Findings::new();
            load(&sources, &Layers { defaults: Vec::new(), files }, &mut findings);
            assert!(!findings.is_empty(), "{text}");
            for finding in &findings {
                assert!(finding.private && !format!("{finding:?}").contains("hunter"), "{text}: {finding:?}");
            }
        }
    }

    #[test]
    fn a_line_with_a_secret_is_hidden_from_all_findings() {
        let mut sources = Sources::default();
        let text = "proxmox: {token: hunter2, pool: ''}\nnetwork: {vlan: x}\n";
        let files = vec![sources.add("ichor.yaml", text)];
        let mut findings = Findings::new();
        load(&sources, &Layers { defaults: Vec::new(), files }, &mut findings);
        let private: Vec<(Code, bool)> = findings.iter().map(|f| (f.code, f.private)).collect();
        assert_eq!(private, [(Code::BAD_SECRET, true), (Code::EMPTY_VALUE, true), (Code::BAD_NUMBER, false)]);
    }

    #[test]
    fn places_count_characters_from_one() {
        let mut sources = Sources::default();
        let source = sources.add("x", "a: 1\né: 2\n");
        let span = Span { source, start: 9, end: 10 };
        assert_eq!(sources.place(span), Some(Place { line: 2, column: 4 }));
    }
}
