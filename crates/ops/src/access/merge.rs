//! Access to a cluster in a file that holds access to others: theirs stays as it is.
//!
//! 1. [`default_file`]: the file that kubectl or talosctl reads;
//! 2. [`merge`]: what is there is read, our entries put in, and the whole written in its place.
//!
//! An entry is ours if it trusts this cluster's own authority, whatever its name: such a one is renewed, with what the
//! user has set in it, and one of another cluster is left alone. Ours gets a number then, as talosctl does it.

use std::path::{Path, PathBuf};

use ichor_model::{Code, Finding, Findings, SourceId, Span};
use ichor_spec::yaml::{self, Key, Kind as Yaml, Node};

use super::{Kind, MAX_BYTES, Made, block};
use crate::{
    Halt, HaltKind, Site, System,
    halt::only,
    place::{Guard, directory_of, settle},
    system::{Links, NotAFile, Unreadable},
    whole,
};

/// Most numbers that are tried for a name. Nobody has as many clusters of one name.
const MOST_NUMBERS: usize = 99;

/// How access is put into a file.
#[derive(Debug, Clone, Copy)]
pub struct Merging<'a> {
    /// The file.
    pub path: &'a Path,
    /// The name of the context; nothing: that of the cluster, with a number if it is taken.
    pub context: Option<&'a str>,
    /// Whether a context of the same name is replaced that leads to another cluster.
    pub overwrite: bool,
    /// The bundle that was given, which must be kept.
    pub given: Option<&'a Path>,
}

/// What became of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The context, which is the current one now.
    pub context: String,
    /// The name that it would have, if another cluster had not taken that.
    pub taken: Option<String>,
}

/// Returns the file that a program reads when nobody names one: `~/.kube/config` or `~/.talos/config`, unless the
/// environment says otherwise.
pub fn default_file(system: &dyn System, kind: Kind) -> Result<PathBuf, Halt> {
    let (variable, below_home) = match kind {
        Kind::Kubeconfig => ("KUBECONFIG", ".kube/config"),
        Kind::Talosconfig | Kind::Bundle => ("TALOSCONFIG", ".talos/config"),
    };
    let read = |name: &str| {
        let value = system.variable(name).map_err(|_| {
            Halt::invalid(only(Finding::error(Code::BAD_MATERIAL, None, format!("`${name}` is not text"))))
        })?;
        Ok::<_, Halt>(value.map(|value| value.expose().to_owned()).filter(|value| !value.is_empty()))
    };
    if let Some(value) = read(variable)? {
        // As kubectl chooses among several: the first that is there, or else the last. Talos knows one.
        let separator = if cfg!(windows) { ';' } else { ':' };
        let paths: Vec<PathBuf> = match kind {
            Kind::Kubeconfig => {
                value.split(separator).filter(|part| !part.is_empty()).map(PathBuf::from).collect()
            }
            Kind::Talosconfig | Kind::Bundle => vec![value.into()],
        };
        let there = paths.iter().find(|path| system.exists(path).unwrap_or_default());
        if let Some(path) = there.or(paths.last()) {
            return Ok(path.clone());
        }
    }
    let home = read("HOME")?.ok_or_else(|| {
        let finding = Finding::error(Code::BAD_MATERIAL, None, "it is not known which file to merge into");
        Halt::invalid(only(
            finding
                .because(format!("neither `${variable}` nor `$HOME` is set"))
                .remedy("name the file with `--out FILE`"),
        ))
    })?;
    Ok(Path::new(&home).join(below_home))
}

/// Returns access under another name of its context.
pub fn rename(made: Made, cluster: &str, context: &str) -> Result<Made, Halt> {
    let names = Names::chosen(made.kind, cluster, context);
    let ours = Entries::of(&made)?;
    let mut root = empty();
    ours.put(&mut root, &names);
    Ok(Made { text: block::write(&root).into(), ..made })
}

/// Puts access into a file. What others have there stays; comments do not, as with kubectl itself.
pub fn merge(system: &dyn System, site: Site<'_>, made: &Made, merging: Merging<'_>) -> Result<Merged, Halt> {
    // Whoever keeps the file elsewhere and links to it means that one.
    let path = settle(system, merging.path);
    Guard::new(system, site, merging.given)
        .check_file(system, &path)
        .map_err(|finding| Halt::refused(only(*finding)))?;
    let directory = directory_of(&path);
    system.make_directory(directory).map_err(|error| Halt::unwritable(directory, &error))?;
    let _lock = Lock::take(system, made.kind, &path)?;
    let mut root = read(system, made.kind, &path)?;
    let ours = Entries::of(made)?;
    let merged = ours.merge(&mut root, site.name(), merging)?;
    let text = block::write(&root);
    // Nothing is written that does not read as what was meant.
    match parse(text.as_bytes()) {
        Ok(Some(again)) if same(&again, &root) => {}
        _ => {
            return Err(Halt::refused(only(not_rewritten(
                &path,
                "it holds values that cannot be kept as they are",
            ))));
        }
    }
    whole::replace(system, &path, text.as_bytes()).map_err(|error| Halt::unwritable(&path, &error))?;
    Ok(merged)
}

/// Keeps other runs away, and kubectl, which makes a file of this name for as long as it writes.
struct Lock<'a> {
    system: &'a dyn System,
    file: Option<PathBuf>,
    _held: crate::system::Lock,
}

impl<'a> Lock<'a> {
    fn take(system: &'a dyn System, kind: Kind, path: &Path) -> Result<Self, Halt> {
        let directory = directory_of(path);
        let held = system.lock(directory).map_err(|error| Halt::unwritable(directory, &error))?;
        let held = held.ok_or_else(|| busy(path, "another run of ichor writes to it", "wait for it"))?;
        let mut lock = Self { system, file: None, _held: held };
        if kind == Kind::Kubeconfig {
            let mut name = path.as_os_str().to_owned();
            name.push(".lock");
            let file = PathBuf::from(name);
            system.write_new(&file, b"").map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => busy(
                    path,
                    "kubectl keeps it locked",
                    &format!(
                        "wait for it; if no kubectl runs, remove what it left:\n    rm {}",
                        crate::place::quoted(&file)
                    ),
                ),
                _ => Halt::unwritable(&file, &error),
            })?;
            lock.file = Some(file);
        }
        Ok(lock)
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Whoever comes next is told that it stands there.
            let _ = self.system.remove(file);
        }
    }
}

fn busy(path: &Path, why: &str, remedy: &str) -> Halt {
    let message = format!("`{}` is in use", path.display());
    let finding = Finding::error(Code::BUSY, None, message).because(why).remedy(remedy);
    Halt { kind: HaltKind::Busy, findings: only(finding) }
}

fn read(system: &dyn System, kind: Kind, path: &Path) -> Result<Node, Halt> {
    let refuse = |why: &str| Halt::refused(only(not_rewritten(path, why)));
    let bytes = match system.read(path, MAX_BYTES, Links::Follow) {
        Ok(contents) => contents.bytes,
        Err(why) if why.is_missing() => return Ok(empty()),
        Err(Unreadable::NotAFile(NotAFile::Directory)) => {
            return Err(Halt::refused(only(super::is_a_directory(path))));
        }
        Err(why) => return Err(refuse(&why.to_string())),
    };
    let root = match parse(&bytes) {
        Ok(Some(root)) if !matches!(root.kind, Yaml::Null) => root,
        Ok(_) => return Ok(empty()),
        Err(line) => {
            let at = line.map(|line| format!(", line {line}")).unwrap_or_default();
            return Err(refuse(&format!("it is no YAML that can be written again{at}")));
        }
    };
    if is_of(kind, &root) {
        return Ok(root);
    }
    Err(refuse(&format!("it is not a {}", kind.word())))
}

/// Whether a tree is a file of a kind. Both programs read files that lack parts.
fn is_of(kind: Kind, root: &Node) -> bool {
    if !matches!(root.kind, Yaml::Map(_)) {
        return false;
    }
    let is = |key: &str, word: &str| root.get(key).is_none_or(|node| text(node) == Some(word));
    let nothing_or = |key: &str, fits: fn(&Node) -> bool| {
        root.get(key).is_none_or(|node| matches!(node.kind, Yaml::Null) || fits(node))
    };
    let named = |node: &Node| match &node.kind {
        Yaml::List(items) => items.iter().all(|item| item.get("name").and_then(text).is_some()),
        _ => false,
    };
    let mapped = |node: &Node| matches!(node.kind, Yaml::Map(_));
    match kind {
        Kind::Kubeconfig => {
            is("kind", "Config") && is("apiVersion", "v1") && LISTS.iter().all(|list| nothing_or(list, named))
        }
        Kind::Talosconfig => nothing_or("contexts", mapped) && root.get("kind").is_none(),
        Kind::Bundle => false,
    }
}

/// Reads a file, or says on which line it cannot be read.
fn parse(bytes: &[u8]) -> Result<Option<Node>, Option<usize>> {
    let mut findings = Findings::new();
    let root = yaml::parse(SourceId::default(), bytes, &mut findings);
    match findings.iter().next() {
        None => Ok(root),
        Some(finding) => Err(finding.at.map(|span| line_of(bytes, span))),
    }
}

fn line_of(bytes: &[u8], span: Span) -> usize {
    let before = bytes.iter().take(usize::try_from(span.start).unwrap_or(usize::MAX));
    1 + before.filter(|byte| **byte == b'\n').count()
}

fn not_rewritten(path: &Path, why: &str) -> Finding {
    let message = format!("nothing can be merged into `{}`", path.display());
    Finding::error(Code::NOT_OURS, None, message).because(why).remedy("name another file with `--out FILE`")
}

fn taken(name: &str) -> Halt {
    let name = yaml::show(name);
    let finding = Finding::error(Code::NOT_OURS, None, format!("the context `{name}` is there already"))
        .because("it leads to another cluster")
        .remedy("choose another name, or add `--force` to replace it");
    Halt::refused(only(finding))
}

const LISTS: [&str; 3] = ["clusters", "contexts", "users"];

/// What the entries of a cluster are called.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    context: String,
    cluster: String,
    user: String,
}

impl Names {
    /// Returns the names of a cluster whose context was given one.
    fn chosen(kind: Kind, cluster: &str, context: &str) -> Self {
        let usual = Self::numbered(kind, cluster, 0);
        if usual.context == context {
            return usual;
        }
        Self { context: context.to_owned(), cluster: context.to_owned(), user: context.to_owned() }
    }

    /// Returns the names of a cluster, as they are or with a number.
    fn numbered(kind: Kind, cluster: &str, number: usize) -> Self {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        let cluster = format!("{cluster}{number}");
        let context = match kind {
            Kind::Kubeconfig => format!("admin@{cluster}"),
            Kind::Talosconfig | Kind::Bundle => cluster.clone(),
        };
        Self { user: context.clone(), context, cluster }
    }
}

/// What is put into a file.
enum Entries {
    Kubeconfig { cluster: Node, user: Node, context: Node },
    Talosconfig { context: Node },
}

impl Entries {
    /// Takes access that was made apart.
    fn of(made: &Made) -> Result<Self, Halt> {
        let apart = || {
            let root = parse(made.text.expose().as_bytes()).ok()??;
            let first = |list: &str, part: &str| items(&root, list).first()?.get(part).cloned();
            match made.kind {
                Kind::Kubeconfig => Some(Self::Kubeconfig {
                    cluster: first("clusters", "cluster")?,
                    user: first("users", "user")?,
                    context: first("contexts", "context")?,
                }),
                Kind::Talosconfig => {
                    let Yaml::Map(contexts) = &root.get("contexts")?.kind else { return None };
                    Some(Self::Talosconfig { context: contexts.first()?.1.clone() })
                }
                Kind::Bundle => None,
            }
        };
        apart().ok_or_else(|| {
            let message = format!("a {} cannot be merged", made.kind.word());
            Halt::invalid(only(Finding::error(Code::NOT_OURS, None, message)))
        })
    }

    const fn kind(&self) -> Kind {
        match self {
            Self::Kubeconfig { .. } => Kind::Kubeconfig,
            Self::Talosconfig { .. } => Kind::Talosconfig,
        }
    }

    fn merge(&self, root: &mut Node, cluster: &str, merging: Merging<'_>) -> Result<Merged, Halt> {
        let wanted = merging.context.map_or_else(
            || Names::numbered(self.kind(), cluster, 0),
            |name| Names::chosen(self.kind(), cluster, name),
        );
        let free = merging.overwrite || self.may_have(root, &wanted);
        let names = match merging.context {
            _ if free => wanted.clone(),
            Some(name) => return Err(taken(name)),
            None => (1..=MOST_NUMBERS)
                .map(|number| Names::numbered(self.kind(), cluster, number))
                .find(|names| self.may_have(root, names))
                .ok_or_else(|| taken(&wanted.context))?,
        };
        self.put(root, &names);
        let taken = (names != wanted).then_some(wanted.context);
        Ok(Merged { context: names.context, taken })
    }

    /// Whether names are free, or those of entries of this cluster.
    fn may_have(&self, root: &Node, names: &Names) -> bool {
        match self {
            Self::Talosconfig { context } => {
                let there = root.get("contexts").and_then(|contexts| contexts.get(&names.context));
                there.is_none_or(|there| same_text(there, context, "ca"))
            }
            Self::Kubeconfig { cluster, .. } => {
                let trusts_ours = |name: &str| {
                    let there = named(root, "clusters", name).and_then(|entry| entry.get("cluster"));
                    there.is_some_and(|there| same_text(there, cluster, AUTHORITY))
                };
                let leads_to_ours = |entry: &Node| {
                    let to = entry.get("context").and_then(|context| context.get("cluster"));
                    to.and_then(text).is_some_and(trusts_ours)
                };
                let used_for = |entry: &&Node| {
                    let user = entry.get("context").and_then(|context| context.get("user"));
                    user.and_then(text) == Some(&names.user)
                };
                let cluster_free =
                    named(root, "clusters", &names.cluster).is_none() || trusts_ours(&names.cluster);
                let context_free = named(root, "contexts", &names.context).is_none_or(leads_to_ours);
                // A user belongs to whatever the contexts use it for.
                let user_free = named(root, "users", &names.user).is_none() || {
                    let contexts = items(root, "contexts");
                    let mut uses = contexts.iter().filter(used_for).peekable();
                    uses.peek().is_some() && uses.all(leads_to_ours)
                };
                cluster_free && context_free && user_free
            }
        }
    }

    fn put(&self, root: &mut Node, names: &Names) {
        match self {
            Self::Talosconfig { context } => {
                set(root, "context", scalar(&names.context));
                let contexts = child(root, "contexts", Yaml::Map(Vec::new()));
                renew(child(contexts, &names.context, Yaml::Map(Vec::new())), context, "ca");
            }
            Self::Kubeconfig { cluster, user, context } => {
                for (key, word) in [("apiVersion", "v1"), ("kind", "Config")] {
                    set(root, key, plain(word));
                }
                renew(entry(root, "clusters", &names.cluster, "cluster"), cluster, AUTHORITY);
                *entry(root, "users", &names.user, "user") = user.clone();
                let there = entry(root, "contexts", &names.context, "context");
                if !matches!(&there.kind, Yaml::Map(entries) if !entries.is_empty()) {
                    there.kind = context.kind.clone();
                }
                set(there, "cluster", scalar(&names.cluster));
                set(there, "user", scalar(&names.user));
                set(root, "current-context", scalar(&names.context));
            }
        }
    }
}

const AUTHORITY: &str = "certificate-authority-data";

/// Renews an entry: what the user has added to one of ours stays, and one of somebody else is replaced.
fn renew(there: &mut Node, ours: &Node, authority: &str) {
    if !same_text(there, ours, authority) {
        there.kind = ours.kind.clone();
        return;
    }
    let Yaml::Map(entries) = &ours.kind else { return };
    for (key, value) in entries {
        set(there, &key.text, value.clone());
    }
}

/// Returns a part of the entry of a name in a list, made if it is missing.
fn entry<'n>(root: &'n mut Node, list: &str, name: &str, part: &str) -> &'n mut Node {
    let list = child(root, list, Yaml::List(Vec::new()));
    if !matches!(list.kind, Yaml::List(_)) {
        list.kind = Yaml::List(Vec::new());
    }
    let Yaml::List(items) = &mut list.kind else { unreachable!("it was made a list") };
    let at = items.iter().position(|item| item.get("name").and_then(text) == Some(name));
    let at = at.unwrap_or_else(|| {
        let mut fresh = empty();
        set(&mut fresh, part, empty());
        set(&mut fresh, "name", scalar(name));
        items.push(fresh);
        items.len() - 1
    });
    child(&mut items[at], part, Yaml::Map(Vec::new()))
}

/// Returns the value of a key of a map, made if it is missing or nothing.
fn child<'n>(node: &'n mut Node, key: &str, fresh: Yaml) -> &'n mut Node {
    if !matches!(node.kind, Yaml::Map(_)) {
        node.kind = Yaml::Map(Vec::new());
    }
    let Yaml::Map(entries) = &mut node.kind else { unreachable!("it was made a map") };
    let at = entries.iter().position(|(there, _)| there.text == key).unwrap_or_else(|| {
        let text = key.to_owned();
        entries.push((Key { text, span: Span::default(), plain: is_plain(key) }, node_of(Yaml::Null)));
        entries.len() - 1
    });
    let value = &mut entries[at].1;
    if matches!(value.kind, Yaml::Null) {
        value.kind = fresh;
    }
    value
}

fn set(node: &mut Node, key: &str, value: Node) {
    *child(node, key, Yaml::Null) = value;
}

fn items<'n>(root: &'n Node, list: &str) -> &'n [Node] {
    match root.get(list).map(|node| &node.kind) {
        Some(Yaml::List(items)) => items,
        _ => &[],
    }
}

fn named<'n>(root: &'n Node, list: &str, name: &str) -> Option<&'n Node> {
    items(root, list).iter().find(|item| item.get("name").and_then(text) == Some(name))
}

fn text(node: &Node) -> Option<&str> {
    match &node.kind {
        Yaml::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

fn same_text(a: &Node, b: &Node, key: &str) -> bool {
    let read = |node: &Node| node.get(key).and_then(text).map(|text| text.trim().to_owned());
    read(a).is_some_and(|a| Some(a) == read(b))
}

/// Whether two trees hold the same, wherever it stands.
fn same(a: &Node, b: &Node) -> bool {
    match (&a.kind, &b.kind) {
        (Yaml::Null, Yaml::Null) => true,
        (Yaml::Scalar { text: a, plain: plain_a }, Yaml::Scalar { text: b, plain: plain_b }) => {
            // What needed quotes was text before it had them.
            a == b && (plain_a == plain_b || (!plain_a && a.contains(block::is_special)))
        }
        (Yaml::List(a), Yaml::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Yaml::Map(a), Yaml::Map(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((key_a, a), (key_b, b))| key_a.text == key_b.text && same(a, b))
        }
        _ => false,
    }
}

const fn node_of(kind: Yaml) -> Node {
    Node { span: Span { source: SourceId(0), start: 0, end: 0 }, kind }
}

const fn empty() -> Node {
    node_of(Yaml::Map(Vec::new()))
}

fn plain(text: &str) -> Node {
    node_of(Yaml::Scalar { text: text.to_owned(), plain: true })
}

/// A name, in quotes unless every reader takes it for text anyway.
fn scalar(text: &str) -> Node {
    node_of(Yaml::Scalar { text: text.to_owned(), plain: is_plain(text) })
}

/// Words that some readers of YAML take for a switch, or for nothing.
const SWITCHES: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// Whether a name is text to every reader of YAML without quotes.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = chars.next().is_some_and(|first| first.is_ascii_alphabetic());
    let is_word = chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '@' | '.'));
    begins && is_word && !SWITCHES.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> String {
        let root = parse(text.as_bytes()).expect("YAML").expect("something");
        let written = block::write(&root);
        let read = parse(written.as_bytes()).expect("YAML").expect("something");
        assert!(same(&read, &root), "{}", *written);
        written.to_string()
    }

    #[test]
    fn what_is_written_reads_as_what_was_read() {
        assert_eq!(
            again("a: true\nb: \"true\"\nc: '0123'\nd: 0123\ne: ~\nf: []\ng: {}\nh: [x, [1, 2], {k: v}]\n"),
            "a: true\nb: \"true\"\nc: \"0123\"\nd: 0123\ne: null\nf: []\ng: {}\nh:\n- x\n- - 1\n  - 2\n- k: v\n"
        );
        assert_eq!(again("a: |\n  x\n   \"y\\\n"), "a: \"x\\n \\\"y\\\\\\n\"\n");
        assert_eq!(again("a: one\n  two\n\n  three\n"), "a: \"one two\\nthree\"\n");
        assert_eq!(again("'no': \"\\u2028\\e\"\n"), "\"no\": \"\\U00002028\\U0000001B\"\n");
        assert_eq!(again("a: &x {k: v}\nb: *x\n"), "a:\n  k: v\nb:\n  k: v\n");
    }

    #[test]
    fn names_that_look_like_something_else_are_quoted() {
        for (name, plain) in [
            ("admin@lab", true),
            ("lab-1", true),
            ("no", false),
            ("Null", false),
            ("1.30", false),
            ("a: b", false),
            ("", false),
        ] {
            assert_eq!(is_plain(name), plain, "{name}");
        }
    }
}
