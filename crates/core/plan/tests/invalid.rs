//! Every file of `invalid/` has mistakes, and says in its first lines which findings it expects:
//!
//! ```yaml
//! # expect: error ICH-1101 4:3
//! ```
//!
//! with the severity, the code, and the line and column (or `-` where no line is to blame). The
//! findings must be exactly those, none of them twice. What they say to people is in `invalid.txt`;
//! after a change of wording, `ICHOR_BLESS=1 cargo test -p ichor-plan` writes it anew. Where a file
//! holds a secret, the secret is [`SECRET`].

use std::{fmt::Write as _, fs, path::Path};

use ichor_model::{Code, Findings, Size, Span, World, desired::Arch, world::SeenHost};
use ichor_spec::{Layers, Sources};

/// Stands for every secret in the corpus, so that a finding that repeats it is noticed.
const SECRET: &str = "hunter2";

/// One finding as a file expects it: severity, code and place.
type Expectation = String;

struct Case {
    name: String,
    sources: Sources,
    findings: Findings,
}

impl Case {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        Self::of(name, fs::read(path).expect("a readable file"))
    }

    fn of(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        let mut sources = Sources::default();
        let layers = Layers { defaults: Vec::new(), files: vec![sources.add("ichor.yaml", bytes)] };
        let mut findings = Findings::new();
        if let Some(inventory) = ichor_spec::load(&sources, &layers, &mut findings) {
            findings.extend(ichor_plan::resolve(&inventory, &World::default()).findings);
        }
        let findings = sources.hide_private_lines(&findings.sorted());
        Self { name: name.into(), sources, findings }
    }

    fn text(&self) -> String {
        let bytes = &self.sources.get(ichor_model::SourceId(0)).expect("the file").bytes;
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn place(&self, at: Option<Span>) -> String {
        let place = at.and_then(|at| self.sources.place(at));
        place.map_or_else(|| "-".into(), |place| format!("{}:{}", place.line, place.column))
    }

    fn found(&self) -> Vec<Expectation> {
        let shown = self.findings.iter().map(|finding| {
            format!("{} {} {}", finding.severity.word(), finding.code, self.place(finding.at))
        });
        let mut found: Vec<Expectation> = shown.collect();
        found.sort();
        found
    }

    fn expected(&self) -> Vec<Expectation> {
        let text = self.text();
        let lines = text.lines().map_while(|line| line.strip_prefix("# expect: "));
        let mut expected: Vec<Expectation> = lines.map(ToOwned::to_owned).collect();
        expected.sort();
        expected
    }

    fn words(&self) -> String {
        let mut words = format!("{}\n", self.name);
        for finding in &self.findings {
            let hidden = if finding.private { " (its line is hidden)" } else { "" };
            let _ = writeln!(words, "  {} {}{hidden}", finding.code, finding.message);
            for note in &finding.notes {
                let _ = writeln!(words, "    because {note}");
            }
            for (at, what) in &finding.related {
                let _ = writeln!(words, "    see {}: {what}", self.place(Some(*at)));
            }
            let remedy = finding.remedy.as_deref().unwrap_or("(none)");
            let _ = writeln!(words, "    remedy: {remedy}");
        }
        words
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    paths.iter().map(|path| Case::read(path)).collect()
}

#[test]
fn every_mistake_is_found_where_it_stands_and_nothing_else_is() {
    let cases = cases();
    assert!(cases.len() >= 400, "the corpus has {} files", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .filter(|case| case.expected().is_empty() || case.found() != case.expected())
        .map(|case| {
            format!("{}:\n  expected {:?}\n  found    {:?}", case.name, case.expected(), case.found())
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_finding_has_a_remedy() {
    for case in cases() {
        for finding in &case.findings {
            assert!(finding.remedy.is_some(), "{}: {}", case.name, finding.message);
        }
    }
}

#[test]
fn no_finding_repeats_a_secret_or_shows_its_line() {
    let with_secret: Vec<Case> = cases().into_iter().filter(|case| case.text().contains(SECRET)).collect();
    assert!(with_secret.len() >= 15, "{} files hold a secret", with_secret.len());
    for case in with_secret {
        let text = case.text();
        assert!(!case.words().contains(SECRET), "{}", case.words());
        for finding in &case.findings {
            let line = finding.at.and_then(|at| case.sources.place(at)).map_or(0, |place| place.line);
            let shown = text.lines().nth(line.saturating_sub(1)).is_some_and(|line| line.contains(SECRET));
            assert!(finding.private || !shown, "{}: {}", case.name, finding.message);
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "whoever runs the test may accept new wording")]
fn what_findings_say_is_reviewed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid.txt");
    let words: String = cases().iter().map(Case::words).collect();
    if std::env::var_os("ICHOR_BLESS").is_some() {
        fs::write(&path, &words).expect("a writable file");
    }
    let reviewed = fs::read_to_string(&path).unwrap_or_default();
    for (now, before) in words.lines().zip(reviewed.lines()) {
        assert_eq!(now, before, "the wording changed; see the head of this file");
    }
    assert_eq!(
        words.lines().count(),
        reviewed.lines().count(),
        "the corpus changed; see the head of this file"
    );
}

#[test]
fn input_that_is_not_text_or_not_yaml_is_refused() {
    for (name, bytes, code) in [
        ("latin-1", b"cluster: {name: caf\xe9}\n".to_vec(), "ICH-1003"),
        ("utf-16", b"\xff\xfec\0l\0".to_vec(), "ICH-1003"),
        ("too large", vec![b' '; 4 * 1024 * 1024 + 1], "ICH-1002"),
        ("alias bomb", alias_bomb(), "ICH-1007"),
        (
            "deep lists",
            b"machines: ".iter().copied().chain(std::iter::repeat_n(b'[', 50_000)).collect(),
            "ICH-1006",
        ),
        ("a null byte", b"cluster: {name: a\0b}\n".to_vec(), "ICH-1004"),
    ] {
        let case = Case::of(name, bytes);
        let codes: Vec<String> = case.findings.iter().map(|finding| finding.code.to_string()).collect();
        assert_eq!(codes, [code], "{name}");
    }
}

#[test]
fn a_machine_pinned_to_a_host_that_is_offline_goes_nowhere_else() {
    let text = "cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3}\n\
        proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2]}\n\
        network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}\n\
        machines: {cp: {role: control-plane, host: pve2}}\n";
    let host = |name: &str, online| SeenHost {
        name: name.parse().expect(name),
        cpu: Some(16),
        memory: Some(Size::from_gib(64)),
        online,
        arch: Arch::Amd64,
    };
    let world = World { hosts: vec![host("pve1", true), host("pve2", false)], ..World::default() };
    let mut sources = Sources::default();
    let layers = Layers { defaults: Vec::new(), files: vec![sources.add("ichor.yaml", text)] };
    let inventory = ichor_spec::load(&sources, &layers, &mut Findings::new()).expect("an inventory");
    let resolution = ichor_plan::resolve(&inventory, &world);
    let codes: Vec<Code> = resolution.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::HOST_OFFLINE, Code::NO_FIT]);
    assert!(resolution.desired.is_none());
}

/// A token that may not audit a host is not told what it has. That is not nothing.
#[test]
fn a_host_of_unknown_size_takes_machines_and_is_named_with_the_privilege() {
    let text = |hosts: &str| {
        format!(
            "cluster: {{name: lab, talos: v1.13.9, kubernetes: v1.36.3}}\n\
             proxmox: {{endpoint: 'https://pve1:8006', hosts: {hosts}}}\n\
             network: {{cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}}\n\
             machines: {{cp: {{role: control-plane}}}}\n"
        )
    };
    let host = |cpu, memory| SeenHost {
        name: "pve1".parse().expect("a host"),
        cpu,
        memory,
        online: true,
        arch: Arch::Amd64,
    };
    let found = |hosts: &str, host: SeenHost| {
        let world = World { hosts: vec![host], ..World::default() };
        let mut sources = Sources::default();
        let layers = Layers { defaults: Vec::new(), files: vec![sources.add("ichor.yaml", text(hosts))] };
        let inventory = ichor_spec::load(&sources, &layers, &mut Findings::new()).expect("an inventory");
        let resolution = ichor_plan::resolve(&inventory, &world);
        let told = resolution.findings.iter().map(|it| (it.code, it.remedy.clone().unwrap_or_default()));
        (told.collect::<Vec<_>>(), resolution.desired.is_some())
    };
    let (told, resolved) = found("[pve1]", host(None, None));
    assert!(resolved, "{told:?}");
    assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), [Code::CAPACITY_UNSEEN]);
    assert!(told[0].1.contains("`Sys.Audit` on `/nodes/pve1`"), "{told:?}");
    // What is known counts, and what the inventory says stands for what is not.
    let (told, resolved) = found("[pve1]", host(Some(1), None));
    assert!(!resolved && told.iter().any(|it| it.0 == Code::NO_FIT), "{told:?}");
    assert_eq!(found("{pve1: {cpu: 8, memory: 16GiB}}", host(None, None)), (vec![], true));
    let (told, resolved) = found("{pve1: {cpu: 8, memory: 2GiB}}", host(None, None));
    assert!(!resolved && told.iter().all(|it| it.0 == Code::NO_FIT), "{told:?}");
}

/// An inventory with room for everybody, without its machines.
const ROOMY: &str = "cluster: {name: big, talos: v1.13.9, kubernetes: v1.36.3}\n\
    proxmox: {endpoint: 'https://pve:8006'}\n\
    network: {cidr: 10.0.0.0/8, gateway: 10.0.0.1, dns: 10.0.0.1, pods: 172.0.0.0/8, services: 192.168.0.0/16}\n\
    defaults: {vmid: 100000}\nmachines:\n  cp: {role: control-plane}\n";

#[test]
fn extremes_are_answered_shortly() {
    let chain: String = (0..1500).map(|i| format!("  w{i}: {{like: w{}}}\n", i + 1)).collect();
    let circle: String = (0..1500).map(|i| format!("  w{i}: {{like: w{}}}\n", (i + 1) % 1500)).collect();
    for (name, machines, codes) in [
        (
            "3,000 machines",
            "  w: {role: worker, count: 2000}\n  x: {role: worker, count: 999}\n".into(),
            &[][..],
        ),
        ("a long chain", chain + "  w1500: {role: worker}\n", &[]),
        ("a long circle", circle, &["ICH-1302"]),
        ("the last VMIDs", "  w: {role: worker, count: 500, vmid: 999999990}\n".into(), &["ICH-1112"]),
        ("the last names", "  w: {role: worker, count: 500, first: 1000000}\n".into(), &[]),
        (
            "the last addresses",
            "  w: {role: worker, count: 500, address: 10.255.255.0}\n".into(),
            &["ICH-1504"],
        ),
        ("the largest offset", "  w: {role: worker, address: +4294967295}\n".into(), &["ICH-1501"]),
        ("the largest machine", "  w: {role: worker, cpu: 512, sockets: 4, memory: 1024TiB}\n".into(), &[]),
    ] {
        let case = Case::of(name, format!("{ROOMY}{machines}"));
        let found: Vec<String> = case.findings.iter().map(|finding| finding.code.to_string()).collect();
        assert_eq!(found, codes, "{name}: {}", case.words());
    }
}

fn alias_bomb() -> Vec<u8> {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let _ =
            writeln!(text, "a{level}: &a{level} [{}]", [format!("*a{}", level - 1).as_str(); 10].join(", "));
    }
    text.into_bytes()
}

#[test]
fn a_thousand_wrong_machines_give_a_thousand_findings() {
    let mut text = String::from(
        "cluster: {name: big, talos: v1.13.9, kubernetes: v1.36.3}\nproxmox: {endpoint: 'https://pve:8006', hosts: [pve]}\n\
         network: {cidr: 10.0.0.0/16, gateway: 10.0.0.1, dns: 10.0.0.1, pods: 10.128.0.0/9}\nmachines:\n  cp: {role: control-plane}\n",
    );
    for i in 0..1000 {
        let _ = writeln!(text, "  w{i}: {{role: worker, memory: {i}}}");
    }
    let case = Case::of("thousand", text);
    assert_eq!(case.findings.iter().filter(|finding| finding.code.to_string() == "ICH-1108").count(), 1000);
}
