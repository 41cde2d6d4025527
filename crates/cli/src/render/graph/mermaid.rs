//! The topology as a Mermaid flowchart.
//!
//! Mermaid refuses sources of more than 50,000 characters and charts of more than 500 links, and
//! neither limit can be raised from within a chart. The chart is therefore drawn with as much
//! detail as fits: see [`Detail`].

use ichor_model::{
    Desired, MachineName,
    desired::{Machine, Role},
};

use super::{Host, LIST_ABOVE, SUMMARISE_ABOVE, Topology, Zone, behind_endpoint, words};

/// Mermaid's `maxTextSize` is 50,000 characters; readers that add a theme need some of it.
const MAX_LENGTH: usize = 45_000;
/// Mermaid's `maxEdges` is 500.
const MAX_LINKS: usize = 450;
/// Titles of zones and hosts in characters; Mermaid 11 draws long ones over one another.
const MAX_TITLE: usize = 40;

const CLASSES: &str = "    classDef endpoint fill:#fff8e8,stroke:#e3ac3a,color:#5c3b00,stroke-width:1.5px
    classDef controlPlane fill:#f1f0ff,stroke:#5b52e6,color:#1a2236
    classDef worker fill:#e9f8f4,stroke:#0e9384,color:#1a2236
    classDef note fill:none,stroke:none,color:#6b7590
    classDef host fill:#fff,stroke:#c3cad9,color:#1a2236
    classDef zone fill:#eceff6,stroke:#dce1ec,color:#56607a
";

/// How much of each machine is drawn, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// A node per machine, and lists on hosts that have many.
    Machines,
    /// A list of names per role and host.
    Names,
    /// A number per role and host.
    Counts,
}

/// Renders the chart with as much detail as Mermaid takes.
pub(super) fn render(desired: &Desired, topology: &Topology<'_>) -> String {
    // JavaScript counts in UTF-16.
    let length = |chart: &Chart| chart.text.encode_utf16().count();
    let fits = |chart: &Chart| length(chart) <= MAX_LENGTH && chart.links <= MAX_LINKS;
    let draw = |detail| Chart::draw(desired, topology, detail);
    let detailed = [Detail::Machines, Detail::Names].into_iter().map(draw).find(fits);
    detailed.unwrap_or_else(|| draw(Detail::Counts)).text
}

/// A chart being written.
struct Chart {
    text: String,
    links: usize,
}

impl Chart {
    fn draw(desired: &Desired, topology: &Topology<'_>, detail: Detail) -> Self {
        let nodes: Vec<Vec<Node>> = topology.hosts().map(|host| nodes_of(host, detail)).collect();
        let mut chart = Self { text: title(desired), links: 0 };
        chart.line(0, "flowchart TB");
        chart.add_endpoint(desired);
        let mut by_host = nodes.iter();
        for (i, zone) in topology.zones.iter().enumerate() {
            chart.add_zone(i, zone, &mut by_host);
        }
        chart.add_links(desired, &nodes);
        chart.text.push_str(CLASSES);
        chart.add_classes(topology);
        chart
    }

    fn line(&mut self, depth: usize, text: &str) {
        self.text.push_str(&"    ".repeat(depth));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn add_endpoint(&mut self, desired: &Desired) {
        let endpoint = &desired.cluster.endpoint;
        let lines = [words::one_line(&endpoint.url()), words::endpoint_kind(endpoint)];
        self.line(1, &format!("endpoint([{}]):::endpoint", label(&lines)));
    }

    /// Adds links from the endpoint to what answers behind it; hosts where nothing does hang from
    /// an invisible link, so that they stand below the endpoint and in their order.
    fn add_links(&mut self, desired: &Desired, hosts: &[Vec<Node>]) {
        let behind = behind_endpoint(desired);
        let answers = |node: &&Node| node.machines.iter().any(|name| behind.contains(&name));
        let mut visible = Vec::new();
        for nodes in hosts {
            for node in nodes.iter().filter(answers) {
                visible.push(self.links.to_string());
                self.link("-->", node);
            }
            if let Some(first) = nodes.first().filter(|first| !answers(first)) {
                self.link("~~~", first);
            }
        }
        if !visible.is_empty() {
            self.line(1, &format!("linkStyle {} stroke:#dfa230,stroke-width:1.5px", visible.join(",")));
        }
    }

    fn link(&mut self, link: &str, to: &Node) {
        self.line(1, &format!("endpoint {link} {}", to.id));
        self.links += 1;
    }

    fn add_zone<'n>(
        &mut self,
        number: usize,
        zone: &Zone<'_>,
        nodes: &mut impl Iterator<Item = &'n Vec<Node>>,
    ) {
        let depth = if zone.name.is_some() { 2 } else { 1 };
        if let Some(name) = zone.name {
            self.line(1, &format!("subgraph {}[{}]", zone_id(number), label(&[cut(&words::one_line(name))])));
        }
        for (host, nodes) in zone.hosts.iter().zip(nodes) {
            self.add_host(depth, host, nodes);
        }
        if zone.name.is_some() {
            self.line(1, "end");
        }
    }

    /// Adds a host with its nodes below one another.
    fn add_host(&mut self, depth: usize, host: &Host<'_>, nodes: &[Node]) {
        self.line(depth, &format!("subgraph {}[{}]", host_id(host), label(&[host_title(host)])));
        for node in nodes {
            self.line(depth + 1, &format!("{}[{}]:::{}", node.id, label(&node.lines), node.class));
        }
        if nodes.len() > 1 {
            let ids: Vec<_> = nodes.iter().map(|node| node.id.as_str()).collect();
            self.line(depth + 1, &ids.join(" ~~~ "));
            self.links += ids.len() - 1;
        }
        self.line(depth, "end");
    }

    fn add_classes(&mut self, topology: &Topology<'_>) {
        let named = topology.zones.iter().enumerate().filter(|(_, zone)| zone.name.is_some());
        let zones: Vec<_> = named.map(|(i, _)| zone_id(i)).collect();
        let hosts: Vec<_> = topology.hosts().map(host_id).collect();
        for (ids, class) in [(hosts, "host"), (zones, "zone")] {
            if !ids.is_empty() {
                self.line(1, &format!("class {} {class}", ids.join(",")));
            }
        }
    }
}

/// A box of the chart: a machine, or several.
struct Node {
    id: String,
    class: &'static str,
    lines: Vec<String>,
    machines: Vec<MachineName>,
}

fn nodes_of(host: &Host<'_>, detail: Detail) -> Vec<Node> {
    let nodes: Vec<Node> = Role::ALL.iter().flat_map(|role| nodes_of_role(host, *role, detail)).collect();
    if nodes.is_empty() { vec![empty_node(host)] } else { nodes }
}

fn nodes_of_role(host: &Host<'_>, role: Role, detail: Detail) -> Vec<Node> {
    let machines: Vec<&Machine> = host.of_role(role).collect();
    if machines.is_empty() {
        Vec::new()
    } else if detail == Detail::Machines && machines.len() <= LIST_ABOVE {
        machines.into_iter().map(machine_node).collect()
    } else {
        vec![list_node(host, role, &machines, detail)]
    }
}

fn machine_node(machine: &Machine) -> Node {
    let mut lines = vec![machine.name.to_string(), format!("VM {}", machine.vmid)];
    lines.extend(words::addresses(machine).iter().map(words::late));
    lines.push(words::resources(machine));
    let disks = machine.disks.iter().skip(1).map(words::disk);
    lines.extend(disks.chain(machine.vm.pci.iter().map(words::pci)).map(|text| cut(&text)));
    Node {
        id: id("machine", machine.name.as_str()),
        class: class(machine.role),
        lines,
        machines: vec![machine.name.clone()],
    }
}

fn list_node(host: &Host<'_>, role: Role, machines: &[&Machine], detail: Detail) -> Node {
    let names: Vec<MachineName> = machines.iter().map(|machine| machine.name.clone()).collect();
    let mut lines = vec![words::count(names.len(), words::role(role))];
    lines.extend(match detail {
        Detail::Counts => vec![first_and_last(&names)],
        Detail::Machines | Detail::Names => name_lines(&names, role, host.machines.len()),
    });
    let kind = match role {
        Role::ControlPlane => "control_planes",
        Role::Worker => "workers",
    };
    Node { id: scoped_id(kind, host), class: class(role), lines, machines: names }
}

/// A subgraph without nodes is drawn as a node, which looks like a machine.
fn empty_node(host: &Host<'_>) -> Node {
    let lines = vec!["no machine of this cluster".into()];
    Node { id: scoped_id("empty", host), class: "note", lines, machines: Vec::new() }
}

const fn class(role: Role) -> &'static str {
    match role {
        Role::ControlPlane => "controlPlane",
        Role::Worker => "worker",
    }
}

fn first_and_last(names: &[MachineName]) -> String {
    match names {
        [first, .., last] => format!("{first} … {last}"),
        names => names.iter().map(ToString::to_string).collect(),
    }
}

fn name_lines(names: &[MachineName], role: Role, on_host: usize) -> Vec<String> {
    let limit = if on_host > SUMMARISE_ABOVE { LIST_ABOVE } else { usize::MAX };
    let mut lines: Vec<_> = names.iter().take(limit).map(ToString::to_string).collect();
    let hidden = names.len() - lines.len();
    let more = format!("more {}", words::role(role));
    lines.extend((hidden > 0).then(|| format!("and {}", words::count(hidden, &more))));
    lines
}

/// Returns a host's name and what is taken of it, on one line: Mermaid 11 hides a second one.
fn host_title(host: &Host<'_>) -> String {
    let name = words::host(host.name);
    let title = format!("{name} · {} · {}", words::cpu_taken(host), words::memory_taken(host));
    if title.chars().count() <= MAX_TITLE { title } else { cut(&name) }
}

fn cut(title: &str) -> String {
    match title.char_indices().nth(MAX_TITLE) {
        Some(_) => title.chars().take(MAX_TITLE - 1).chain(['…']).collect(),
        None => title.into(),
    }
}

fn zone_id(number: usize) -> String {
    format!("zone_{number}")
}

fn host_id(host: &Host<'_>) -> String {
    scoped_id("host", host)
}

/// Returns an id that is a host's alone; no other id starts with `live_`.
fn scoped_id(kind: &str, host: &Host<'_>) -> String {
    host.name.map_or_else(|| format!("live_{kind}"), |name| id(kind, name.as_str()))
}

/// Returns an id for a name. Names have no `_`, so no two become the same; the prefix keeps words
/// that Mermaid reserves, such as `end`, from standing alone.
fn id(kind: &str, name: &str) -> String {
    format!("{kind}_{}", name.replace('-', "_"))
}

/// Returns the front matter with the chart's title.
///
/// Mermaid cleans titles as HTML and then shows them as text, so that neither markup nor its
/// escapes come out right; look-alikes do.
fn title(desired: &Desired) -> String {
    let cluster = &desired.cluster;
    let environment = cluster.environment.as_deref().map(words::one_line).filter(|text| !text.is_empty());
    let environment = environment.map_or_else(String::new, |text| format!(" · {text}"));
    let title = format!(
        "{}{environment} · Talos {} · Kubernetes {}",
        cluster.name, cluster.talos, cluster.kubernetes
    );
    let title = title.replace('<', "‹").replace('>', "›").replace('&', "＆");
    format!("---\ntitle: \"{}\"\n---\n", escape_with(&title, |c| format!("\\U{:08x}", u32::from(c))))
}

/// Returns a quoted label of several lines, with spaces at which Mermaid does not break them again.
fn label(lines: &[String]) -> String {
    let text = escape(&lines.join("\n")).replace(' ', "\u{a0}").replace('\n', "<br/>");
    format!("\"{text}\"")
}

/// Escapes text for a quoted label.
///
/// Mermaid takes the last `;` from a line in which `style` or `classDef` comes before a colon and an
/// escape, wherever that stands; such text goes without colons.
fn escape(text: &str) -> String {
    let escaped = escape_with(text, |c| format!("#{};", u32::from(c)));
    let misread = ["style", "classDef"].iter().any(|word| escaped.contains(word));
    if misread { escaped.replace(':', "#58;") } else { escaped }
}

/// Escapes all but letters, digits, and signs that mean nothing to Mermaid, Markdown or YAML.
fn escape_with(text: &str, escape: impl Fn(char) -> String) -> String {
    let plain = |c: char| c.is_alphanumeric() || " .,:/-·…\n".contains(c) || u32::from(c) > 0x2000;
    text.chars().map(|c| if plain(c) { c.to_string() } else { escape(c) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_hold_nothing_that_mermaid_reads() {
        for (text, escaped) in [
            ("cp-1 10.0.0.1 fd00::1", "cp-1 10.0.0.1 fd00::1"),
            ("a\"b", "a#34;b"),
            ("<b>&", "#60;b#62;#38;"),
            ("#quot;", "#35;quot#59;"),
            ("style: #", "style#58; #35;"),
            ("🚀 日本 é", "🚀 日本 é"),
        ] {
            assert_eq!(escape(text), escaped);
        }
    }
}
