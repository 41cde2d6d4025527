//! Whole verbs at servers that mean harm, as their users see them.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use serde_json::{Value, json};

use super::{Lab, Outcome, whole};

const STATE: &str = ".ichor/lab/a/lab.json";
/// What steers terminals: the title, the clipboard, the screen, colours that are not ours, and the direction of text.
const ESCAPES: &str =
    "x\u{1b}]0;owned\u{7}\u{1b}]52;c;AAAA\u{7}\u{1b}[2J\u{9b}31m\u{8}\u{202e}\r\nall is well";

/// Every verb that asks somebody, and what it exits with at a Proxmox that makes no sense.
const VERBS: [(&[&str], i32); 12] = [
    (&["plan"], 4),
    (&["plan", "-o", "json"], 4),
    (&["plan", "--out", "plan.json"], 4),
    (&["up", "--yes"], 4),
    (&["up", "--yes", "--json"], 4),
    (&["status"], 4),
    (&["status", "-o", "json"], 4),
    (&["health"], 4),
    (&["health", "-o", "json"], 4),
    (&["doctor"], 4),
    (&["doctor", "-o", "json"], 4),
    (&["destroy", "--yes"], 4),
];

/// Lets calls of a server meet a fault from now on.
fn spoil(lab: &Lab, server: &str, path: &str, fault: &Value) {
    let plan = json!([{ "server": server, "path": path, "occurrence": 0, "fault": fault }]);
    lab.write("faults.json", plan.to_string());
    let set = lab.run(&["lab", "faults", "--state", STATE, "faults.json"]);
    assert_eq!(set.code, 0, "{}", set.stderr);
}

/// Whether a text does something to a terminal that is neither a colour of ours nor a new line.
fn steers(text: &str) -> bool {
    let mut rest = text.to_owned();
    while let Some(at) = rest.find("\u{1b}[") {
        let end = rest[at + 2..].find(|c: char| !c.is_ascii_digit() && c != ';').map(|end| at + 2 + end);
        match end {
            Some(end) if rest[end..].starts_with('m') => rest.replace_range(at..=end, ""),
            _ => return true,
        }
    }
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    rest.contains(|c: char| c.is_control() && c != '\n' || turns(c))
}

/// Runs a verb in the lab, as somebody with a terminal would see it.
fn run(lab: &Lab, verb: &[&str], about: &str) -> Outcome {
    let outcome = lab.run(&[&["--lab", "--color", "always"], verb].concat());
    for text in [&outcome.stdout, &outcome.stderr] {
        assert!(!steers(text), "{about}: {verb:?}: {text:?}");
        assert!(!text.contains("panicked"), "{about}: {verb:?}: {text}");
        assert!(text.len() < 100_000, "{about}: {verb:?}: {} bytes", text.len());
    }
    outcome
}

#[test]
fn what_steers_a_terminal_is_told_from_colours() {
    assert!(!steers("\u{1b}[1m\u{1b}[31merror\u{1b}[0m: a\nb"));
    for text in ["\u{1b}[2J", "\u{1b}]52;c;AAAA\u{7}", "a\rb", "\u{9b}1m", "\u{202e}", "\u{1b}["] {
        assert!(steers(text), "{text:?}");
    }
}

#[test]
fn a_hostile_proxmox_stops_every_verb_with_the_same_code_and_calm_words() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    assert_eq!(lab.run(&["--lab", "plan"]).code, 2);
    for hostility in ["endless", "headers", "redirect", "garbage", "nested", "escapes", "oversized"] {
        spoil(&lab, "pve", "*", &json!({ "hostile": hostility }));
        for (verb, code) in VERBS {
            let outcome = run(&lab, verb, hostility);
            assert_eq!(outcome.code, code, "{hostility}: {verb:?}: {}{}", outcome.stdout, outcome.stderr);
            assert!(!format!("{}{}", outcome.stdout, outcome.stderr).is_empty(), "{hostility}: {verb:?}");
        }
        assert!(!lab.path("plan.json").exists(), "{hostility}");
    }
    // Nobody is hurt: with a good one everything is as it was.
    lab.write("faults.json", "[]");
    assert_eq!(lab.run(&["lab", "faults", "--state", STATE, "faults.json"]).code, 0);
    assert_eq!(lab.run(&["--lab", "plan"]).code, 2);
}

/// The other servers are met in the middle of verbs, which say what is missing and go on with the rest.
#[test]
fn other_hostile_servers_are_told_of_and_no_more() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    assert_eq!(lab.run(&["--lab", "up", "--yes"]).code, 0);
    let looks: &[&[&str]] = &[&["status"], &["health", "-o", "json"]];
    let images: &[&[&str]] = &[&["doctor"]];
    for (server, verbs) in [("talos", looks), ("kube", looks), ("factory", images)] {
        // What has no end is read until there is too much of it, for each call: that is tried in virtual time.
        for hostility in ["headers", "garbage", "nested", "escapes"] {
            spoil(&lab, server, "*", &json!({ "hostile": hostility }));
            for verb in verbs {
                let outcome = run(&lab, verb, &format!("{server} {hostility}"));
                let known = [0, 1, 4].contains(&outcome.code);
                assert!(known, "{server} {hostility}: {verb:?}: {} {}", outcome.code, outcome.stderr);
            }
        }
    }
}

/// Names that somebody else gave: of VMs, in their tags and notes, and of storages and volumes.
#[test]
fn names_do_nothing_to_a_terminal() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    assert_eq!(lab.run(&["--lab", "up", "--yes"]).code, 0);
    let text = fs::read_to_string(lab.path(STATE)).expect("a lab");
    let before: Value = serde_json::from_str(&text).expect("JSON");
    for key in ["name", "tags", "description", "smbios1", "net0"] {
        let mut state = before.clone();
        let vms = state["pve"]["vms"].as_object_mut().expect("VMs");
        let (_, vm) = vms.iter_mut().next().expect("a VM");
        let config = vm["config"]["current"].as_object_mut().expect("a config");
        let is = config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        config.insert(key.into(), format!("{is}{ESCAPES}").into());
        lab.write(STATE, state.to_string());
        let looks: [&[&str]; 4] =
            [&["status"], &["plan", "-o", "json"], &["doctor"], &["destroy", "--dry-run"]];
        for verb in looks {
            run(&lab, verb, key);
        }
    }
    run(&lab, &["up", "--yes"], "a run");
}

/// Serves a bucket that answers everybody with the same words, for as long as the process lives. Returns its port.
fn bucket(answer: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 8192];
            let read = stream.read(&mut request).unwrap_or(0);
            // What was sent comes back in the words of the refusal.
            let request = String::from_utf8_lossy(&request[..read]).replace("\r\n", " ");
            let body = answer.replace("HEARD", &request);
            let length = body.len();
            let _ = stream.write_all(
                format!(
                    "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                )
                .as_bytes(),
            );
        }
    });
    port
}

#[test]
fn a_hostile_bucket_stops_every_verb_with_the_same_code_and_calm_words() {
    for answer in [
        format!("<Error><Code>{ESCAPES}</Code><Message>{ESCAPES} HEARD</Message></Error>"),
        ESCAPES.repeat(1_000),
        "<a>".repeat(100_000),
    ] {
        let port = bucket(answer);
        let inventory = format!("{}store: s3://team/prod?endpoint=http://127.0.0.1:{port}\n", whole("a"));
        let lab = Lab::new(&[("ichor.yaml", &inventory)]);
        for verb in [
            "secrets new",
            "secrets show",
            "secrets rotate-key",
            "lock show",
            "lock break --yes",
            "log show",
            "log verify",
        ] {
            for form in ["table", "json"] {
                let mut words: Vec<&str> = verb.split(' ').collect();
                words.extend(["-o", form, "--color", "always"]);
                let mut command = lab.command(&words);
                command.env("AWS_ACCESS_KEY_ID", "SOMEBODY").env("AWS_SECRET_ACCESS_KEY", "CANARYSECRET");
                command.env("AWS_SESSION_TOKEN", "CANARYTOKEN").env_remove("AWS_ENDPOINT_URL");
                let outcome = Outcome::of(&mut command);
                assert_eq!(outcome.code, 4, "{words:?}: {}{}", outcome.stdout, outcome.stderr);
                for text in [&outcome.stdout, &outcome.stderr] {
                    assert!(!steers(text) && text.len() < 10_000, "{words:?}: {text:?}");
                    assert!(!text.contains("CANARY"), "{words:?}: {text}");
                }
            }
        }
    }
}
