//! Bad days: `ichor lab event` at a lab that runs, and at one in a file.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::Lab;

/// A lab that is served; stopped when it is dropped.
struct Served(Child);

impl Served {
    fn start(lab: &Lab, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ichor"))
            .current_dir(lab.path(""))
            .args(["lab", "serve", "--port", "0", "--factory-port", "0", "--proxy-port", "0"])
            .args(["--state", "lab.json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        // It says so when it is open.
        let said = BufReader::new(child.stderr.take().expect("stderr"));
        assert!(said.lines().map_while(Result::ok).any(|line| line.contains("the lab is open")));
        Self(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn state(lab: &Lab) -> Value {
    let shown = lab.run(&["lab", "state", "--state", "lab.json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {shown:?}"))
}

fn event(lab: &Lab, words: &[&str]) -> crate::Outcome {
    let all: Vec<&str> = ["lab", "event", "--state", "lab.json"].iter().chain(words).copied().collect();
    lab.run(&all)
}

#[test]
fn events_reach_a_lab_that_runs_and_one_in_a_file() {
    let lab = Lab::new(&[]);
    let served = Served::start(&lab, &["--strangers", "7"]);
    let online = |state: &Value| state["pve"]["hosts"]["pve2"]["online"].clone();
    // The socket is there as soon as the lab can be asked.
    let first = state(&lab);
    assert_eq!(online(&first), true);
    assert_eq!(first["strangers"].as_array().map(Vec::len), Some(7));
    let down = event(&lab, &["host-down", "pve2"]);
    assert_eq!((down.code, down.stdout.as_str(), down.stderr.as_str()), (0, "", ""));
    assert_eq!(online(&state(&lab)), false);
    let planned =
        event(&lab, &["--on", "POST /nodes/*/qemu", "--occurrence", "2", "storage-full", "local-lvm"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let faults = lab.run(&["lab", "faults", "--state", "lab.json"]);
    insta::assert_snapshot!(faults.stdout, @r#"
    [
      {
        "server": "pve",
        "method": "POST",
        "path": "/nodes/*/qemu",
        "occurrence": 2,
        "fault": {
          "befall": {
            "event": {
              "storage_full": {
                "storage": "local-lvm"
              }
            },
            "when": "before"
          }
        },
        "seen": 0
      }
    ]
    "#);
    drop(served);

    let kept = lab.path("lab.json");
    assert!(kept.exists());
    let up = event(&lab, &["host-up", "pve2"]);
    // Whether the file has the last second is not promised to a program that was killed.
    assert!(up.code == 0 || up.stderr.contains("is up already"), "{}", up.stderr);
    assert_eq!(online(&state(&lab)), true);
    assert_eq!(event(&lab, &["--after", "30", "vm-stopped", "1999"]).code, 0);
    assert!(state(&lab)["ground"]["agenda"].to_string().contains("vm_stopped"));
    assert_eq!(event(&lab, &["--on", "/version", "certificate-swapped"]).code, 0);
    let yaml = lab.run(&["lab", "faults", "--state", "lab.json", "-o", "yaml"]).stdout;
    assert!(yaml.starts_with("- ") && yaml.contains("path: /version\n"), "{yaml}");
    assert!(lab.run(&["lab", "state", "--state", "lab.json", "-o", "yaml"]).stdout.contains("\nfactory:"));
}

#[test]
fn a_lab_begins_again_as_it_was_set_up_whoever_serves_it() {
    let lab = Lab::new(&[]);
    drop(Served::start(&lab, &["--host", "a=4:8", "--host", "b=4:8", "--strangers", "3", "--seed", "5"]));
    let set_up = state(&lab);
    let like_the_first = |state: &Value| {
        let seen = |state: &Value| (state["pve"]["hosts"].clone(), state["strangers"].clone());
        assert_eq!(seen(state), seen(&set_up));
        assert_eq!(
            (&state["persona"], &state["pve"]["access"]),
            (&set_up["persona"], &set_up["pve"]["access"])
        );
    };
    let served = Served::start(&lab, &["--host", "c=1:1", "--profile", "instant", "--seed", "6"]);
    assert_eq!(event(&lab, &["host-down", "b"]).code, 0);
    let reset = ["lab", "reset", "--state", "lab.json"];
    assert_eq!(lab.run(&reset).code, 0);
    let again = state(&lab);
    like_the_first(&again);
    let factories = &again["ground"]["web"]["factories"];
    assert!(factories.to_string().contains("127.0.0.1:"), "hosts still find the factory: {factories}");
    drop(served);
    assert_eq!(event(&lab, &["host-down", "a"]).code, 0);
    assert_eq!(lab.run(&reset).code, 0);
    like_the_first(&state(&lab));
}

#[test]
fn a_fault_plan_that_cannot_be_followed_is_refused() {
    let lab = Lab::new(&[(
        "plan.json",
        r#"[{"server": "pve", "path": "/version", "fault": {"status": {"code": 700, "when": "before"}}},
            {"server": "talos", "path": "*", "fault": {"status": {"code": 500, "when": "after"}}},
            {"server": "kube", "path": "*",
             "fault": {"befall": {"event": {"host_down": {"host": "pve9"}}, "when": "before"}}}]"#,
    )]);
    drop(Served::start(&lab, &[]));
    let refused = lab.run(&["lab", "faults", "--state", "lab.json", "plan.json"]);
    assert_eq!(refused.code, 3);
    insta::assert_snapshot!(refused.stderr, @r"
    error: `plan.json` is no fault plan
      fault 1: 700 is no status of an HTTP answer: these are 200 to 599
      fault 2: 500 is no status of gRPC: these are 0 to 16
      fault 3: there is no host `pve9`
    hint: a plan is a JSON list; `ichor lab faults --help` shows one
    ");
    assert_eq!(lab.run(&["lab", "faults", "--state", "lab.json"]).stdout, "[]\n");
}

#[test]
fn hosts_have_names_of_their_own() {
    let lab = Lab::new(&[]);
    let twice = lab.run(&["lab", "serve", "--host", "a=1:1", "--host", "b=1:1", "--host", "a=2:2"]);
    assert_eq!(twice.code, 3);
    insta::assert_snapshot!(twice.stderr, @r"
    error: the lab cannot have these hosts
      `a` is there more than once
    hint: a lab has up to 200 hosts, each with a name of its own
    ");
}

#[test]
fn what_cannot_happen_is_said() {
    let lab = Lab::new(&[]);
    let none = event(&lab, &["host-down", "pve1"]);
    assert_eq!(none.code, 3);
    insta::assert_snapshot!(none.stderr, @r"
    error: there is no lab in `lab.json`
    hint: start one:
        ichor lab serve --state lab.json
    ");
    let wrong = event(&lab, &["earthquake", "pve1"]);
    assert_eq!(wrong.code, 3);
    insta::assert_snapshot!(wrong.stderr, @r"
    error: that cannot befall a lab
      `earthquake pve1` is no event that the lab knows, or lacks a word
    hint: `ichor lab event --help` says what can
    ");
    let wrong = event(&lab, &["--on", "POST", "host-down", "pve1"]);
    assert_eq!(wrong.code, 3);
    insta::assert_snapshot!(wrong.stderr, @r"
    error: `POST` is no call
    hint: a call is written `POST /nodes/*/qemu`, or without a method for any
    ");
    drop(Served::start(&lab, &["--profile", "instant"]));
    let impossible = event(&lab, &["host-down", "pve9"]);
    assert_eq!(impossible.code, 1);
    insta::assert_snapshot!(impossible.stderr, @r"
    error: `host-down pve9` did not happen
      there is no host `pve9`
    hint: see what is there:
        ichor lab state --state lab.json
    ");
    for (words, why) in [
        (["--after", "5", "vm-stopped", "4711"], "there is no VM 4711"),
        (["--after", "5", "host-up", "pve9"], "there is no host `pve9`"),
        (["--after", "5", "storage-broken", "attic"], "storage 'attic' does not exist"),
        (["--on", "/version", "host-down", "pve9"], "there is no host `pve9`"),
    ] {
        let never = event(&lab, &words);
        assert_eq!(never.code, 1, "{words:?}");
        assert!(never.stderr.contains("will not happen") && never.stderr.contains(why), "{}", never.stderr);
    }
    // A VM may be there by the time of a call.
    assert_eq!(event(&lab, &["--on", "/version", "vm-stopped", "4711"]).code, 0);
}
