//! Every verb, its exit code and its output.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use super::{Lab, Outcome, SHARED, own, whole};

#[test]
fn exit_codes_tell_what_happened() {
    let lab = Lab::new(&[("good.yaml", &whole("a")), ("bad.yaml", "bogus: 1\n")]);
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["help", "plan"], 0),
        (&["check", "-f", "good.yaml"], 0),
        (&["plan", "--offline", "-f", "good.yaml"], 0),
        (&["plan", "--lab", "-f", "good.yaml"], 2),
        (&["up", "-f", "good.yaml"], 3),
        (&["plan", "-f", "good.yaml"], 3),
        (&["check", "-f", "bad.yaml"], 3),
        (&["plan", "--offline", "-f", "bad.yaml"], 3),
        (&["check", "-f", "good.yaml", "--cluster", "b"], 3),
        (&[], 3),
        (&["nonsense"], 3),
        (&["check", "--nonsense"], 3),
        (&["check", "-o", "xml"], 3),
        (&["plan", "--offline", "--lose", "no_host"], 3),
        (&["explain", "ICH-0001"], 3),
    ] {
        let outcome = lab.run(arguments);
        assert_eq!(outcome.code, code, "{arguments:?}: {}", outcome.stderr);
        let pending = code == 2;
        assert!(code == 0 || pending || !outcome.stderr.is_empty(), "{arguments:?} fails without a word");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let lab = Lab::new(&[]);
    let help = lab.run(&["--help"]).stdout;
    assert!(help.contains("Exit codes:\n    0  done") && help.contains("Examples:"), "{help}");
    assert_eq!(lab.run(&["--version"]).stdout, format!("ichor {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_account_of_a_cluster_is_told_for_each_release() {
    let lab = Lab::new(&[("cluster.yaml", &whole("a"))]);
    let told = lab.run(&["pve", "role"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stdout.contains("pveum user token add ichor@pve ichor-a --privsep 1\n"), "{}", told.stdout);
    assert!(!told.stdout.contains("VM.Monitor"), "Proxmox 9 refuses roles with it: {}", told.stdout);
    let named = lab.run(&["pve", "role", "--user", "ops@pam", "--token", "t1", "--release", "8"]);
    assert!(named.stdout.contains("--tokens 'ops@pam!t1'"), "{}", named.stdout);
    let told = lab.run(&["pve", "role", "-o", "json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert_eq!(told["roles"]["ichor-a-networks"], json!(["SDN.Use"]));
    for trick in ["ichor@pve;reboot", "$(reboot)@pve", "--help@pve", "ichor", "@pve", "a@b@c d"] {
        assert_eq!(lab.run(&["pve", "role", &format!("--user={trick}")]).code, 3, "{trick}");
    }
}

#[test]
fn planning_without_a_token_says_where_it_should_be() {
    let outcome = Lab::new(&[("cluster.yaml", &whole("a"))]).run(&["plan"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, ""));
    insta::assert_snapshot!(outcome.stderr, @r"
    error[ICH-2106]: the secret in the environment variable `ICHOR_PVE_TOKEN` cannot be had
     = note: it is not set
     = help: set it:
                 export ICHOR_PVE_TOKEN=...

    1 error; nothing was changed
    hint: to learn more, run
        ichor explain ICH-2106
    ");
}

#[test]
fn nobody_is_asked_without_a_terminal() {
    let outcome = Lab::new(&[("cluster.yaml", &whole("a"))]).run(&["up", "--lab"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, ""));
    insta::assert_snapshot!(outcome.stderr, @r"
    error: `up` has nobody to ask
      there is no terminal, and it changes things
    hint: go ahead without asking, or look first:
        ichor --lab up --yes
        ichor --lab up --dry-run
    ");
}

#[test]
fn a_cluster_is_rehearsed_from_nothing_to_ready_and_back() {
    let lab = Lab::new(&[("cluster.yaml", &whole("a"))]);
    let up = lab.run(&["--lab", "up", "--yes"]);
    assert_eq!(up.code, 0, "{}", up.stderr);
    assert!(up.stdout.contains("node Ready"), "{}", up.stdout);
    // Machines go on booting for a moment when their nodes are ready.
    for verb in [&["plan"][..], &["health", "--wait", "1m"]] {
        let looked = lab.run(&[&["--lab"], verb].concat());
        assert_eq!(looked.code, 0, "{verb:?}: {}{}", looked.stdout, looked.stderr);
    }
    differences_are_told_and_left(&lab);
    let gone = lab.run(&["--lab", "destroy", "--yes", "--all"]);
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    assert_eq!(lab.run(&["--lab", "plan"]).code, 2);
}

/// Reads a stream of events.
fn events(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

#[test]
fn programs_get_one_document_or_events_that_end_with_a_result() {
    let lab = Lab::new(&[("cluster.yaml", &whole("a"))]);
    let result = |arguments: &[&str], code: i32| {
        let outcome = lab.run(&[&["--lab", "up", "--json"], arguments].concat());
        assert_eq!(outcome.code, code, "{}", outcome.stderr);
        let last = events(&outcome.stdout).pop().expect("a result");
        assert_eq!((&last["event"], &last["exit_code"]), (&json!("result"), &json!(code)), "{last}");
        last
    };
    let planned = result(&["--dry-run"], 2);
    let plan = lab.run(&["--lab", "plan", "-o", "json"]);
    let document: Value = serde_json::from_str(&plan.stdout).expect("a document");
    assert_eq!((&document["exit_code"], plan.code), (&json!(2), 2), "{document}");
    assert_eq!(planned["empty"], false, "{planned}");
    let stopped = result(&["--yes", "--only", "nobody"], 3);
    assert_eq!(stopped["errors"], 1, "{stopped}");
    let unasked = result(&[], 3);
    assert_eq!(unasked["findings"][0]["message"], "`up` has nobody to ask", "{unasked}");
    let refused = lab.run(&["--lab", "destroy", "-o", "json"]);
    let document: Value = serde_json::from_str(&refused.stdout).expect("a document");
    assert_eq!((&document["exit_code"], refused.code), (&json!(3), 3), "{document}");

    let up = |code: i32| {
        let up = lab.run(&["--lab", "up", "--yes", "-o", "json"]);
        assert_eq!(up.code, code, "{}", up.stderr);
        serde_json::from_str::<Value>(&up.stdout).expect("one document")
    };
    let state = lab.path(".ichor/lab/a/lab.json").display().to_string();
    lab.write(
        "denied.json",
        r#"[{"server": "pve", "method": "POST", "path": "/nodes/*/qemu", "occurrence": 0, "fault": {"status": {"code": 403, "reason": "Permission check failed", "when": "before"}}}]"#,
    );
    let faults = |plan: &str| assert_eq!(lab.run(&["lab", "faults", "--state", &state, plan]).code, 0);
    faults("denied.json");
    let broken = up(6);
    assert_eq!(
        (&broken["done"], &broken["next"]),
        (&json!(false), &json!("ichor --lab up --yes")),
        "{broken}"
    );
    let trouble = broken["trouble"].as_array().expect("a list");
    let why = trouble.first().and_then(|step| step["message"].as_str()).expect("a reason");
    assert!(why.contains("Permission check failed"), "{why}");
    lab.write("none.json", "[]");
    faults("none.json");

    let up = up(0);
    assert_eq!((&up["done"], &up["counts"]["failed"]), (&json!(true), &json!(0)), "{up}");
    assert_eq!(up["status"]["nodes"]["ready"], up["status"]["nodes"]["wanted"], "{up}");
    for access in ["kubeconfig", "talosconfig"] {
        let path = up[access].as_str().expect("a path");
        assert!(fs::exists(lab.path("").join(path)).expect("a look"), "{path}");
    }

    let idle = result(&["--yes"], 0);
    assert_eq!((&idle["done"], &idle["counts"]["done"]), (&json!(true), &json!(0)), "{idle}");
}

/// An inventory that changes what runs: no verb calls the cluster equal, and none fails.
fn differences_are_told_and_left(lab: &Lab) {
    let changed = whole("a") + "os: {sysctls: {vm.max_map_count: 262144}}\n";
    lab.write("changed.yaml", changed);
    let plan = lab.run(&["--lab", "plan", "-f", "changed.yaml"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(
        plan.stdout.contains("nothing to do: 1 difference to the inventory is left as it is"),
        "{}",
        plan.stdout
    );
    assert!(
        plan.stderr.contains("warning[ICH-3133]") && plan.stderr.contains("machine.sysctls"),
        "{}",
        plan.stderr
    );
    let plan = lab.run(&["--lab", "plan", "-f", "changed.yaml", "-o", "json"]);
    let document: serde_json::Value = serde_json::from_str(&plan.stdout).expect("JSON");
    let findings = document["findings"].as_array().expect("findings");
    assert!(findings.iter().any(|finding| finding["code"] == "ICH-3133"), "{document}");
    for verb in [&["up", "--yes"][..], &["status"], &["health"]] {
        let outcome = lab.run(&[&["--lab", "-f", "changed.yaml"], verb].concat());
        assert_eq!(outcome.code, 0, "{verb:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("ICH-3133"), "{verb:?}: {}", outcome.stderr);
    }
}

#[test]
fn one_machine_is_made_alone_and_one_that_is_not_there_is_told() {
    let lab = Lab::new(&[("cluster.yaml", &whole("a"))]);
    let one = lab.run(&["--lab", "up", "--dry-run", "--only", "cp-2"]);
    assert_eq!(one.code, 2, "{}", one.stderr);
    assert!(one.stderr.contains("cp-2") && !one.stderr.contains("cp-1"), "{}", one.stderr);
    assert!(!one.stderr.contains("bootstrap"), "{}", one.stderr);
    let nobody = lab.run(&["--lab", "up", "--dry-run", "--only", "cp2"]);
    assert_eq!(nobody.code, 3, "{}", nobody.stderr);
    assert!(nobody.stderr.contains("did you mean `cp-2`?"), "{}", nobody.stderr);
}

#[test]
fn a_network_that_is_still_to_come_is_told_once() {
    let lab = Lab::new(&[("cluster.yaml", &format!("{}addons: {{cni: cilium}}\n", whole("a")))]);
    let told = lab.run(&["--lab", "up", "--dry-run"]);
    assert_eq!(told.code, 2, "{}", told.stderr);
    assert_eq!(told.stderr.matches("warning[ICH-3117]").count(), 1, "{}", told.stderr);
}

#[cfg(unix)]
#[test]
fn whoever_is_told_to_end_finishes_what_is_in_flight_and_reports() {
    ends_in_order("-TERM");
}

#[cfg(unix)]
#[test]
fn a_closed_terminal_ends_a_run_in_order() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    if ignored.is_some_and(|mask| mask.trim().ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f'])) {
        return; // The tests run under `nohup` themselves.
    }
    ends_in_order("-HUP");
}

/// Under `nohup` a closed terminal is none of the run's business, and being told to end still is, once.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_to_outlive_its_terminal_does() {
    ends_in_order_after(&["nohup"], &["-HUP", "-TERM"]);
}

#[cfg(unix)]
fn ends_in_order(signal: &str) {
    ends_in_order_after(&[], &[signal]);
}

/// Sends signals one after the other; the last one is the one that ends the run.
#[cfg(unix)]
fn ends_in_order_after(wrapper: &[&str], signals: &[&str]) {
    use std::{
        io::{BufRead, BufReader, Read},
        process::Command,
    };

    let lab = Lab::new(&[("cluster.yaml", &whole("a"))]);
    let words = [wrapper, &[env!("CARGO_BIN_EXE_ichor"), "--lab", "up", "--yes", "--json"]].concat();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .current_dir(lab.path(""))
        .env("HOME", lab.home())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let mut said = BufReader::new(child.stdout.take().expect("stdout"));
    let began = said.by_ref().lines().map_while(Result::ok).any(|line| line.contains("machine/cp-1/create"));
    assert!(began, "it ended before it began");
    for signal in signals {
        let killed = Command::new("kill").args([*signal, &child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("events");
    assert_eq!(child.wait().expect("an end").code(), Some(130), "{rest}");
    let events = events(&rest);
    let [.., report, result] = &events[..] else { panic!("{rest}") };
    assert_eq!((&result["event"], &result["exit_code"]), (&json!("result"), &json!(130)));
    assert_eq!((&report["event"], &report["stopped"]), (&json!("report"), &json!(true)));
    assert_eq!(report["counts"]["unknown"], 0, "what was in flight is finished: {report}");
    assert_ne!(report["counts"]["not_begun"], 0);
}

#[test]
fn observations_are_read_or_refused_with_a_reason() {
    let seen = |name: &str| json!({ "name": name, "cpu": 32, "memory": "128GiB" });
    let hosts = ["pve1", "pve2", "pve3"].map(seen);
    let world = json!({ "hosts": hosts }).to_string();
    let lab = Lab::new(&[
        ("cluster.yaml", &whole("a")),
        ("world.json", &world),
        ("typo.json", "{\"hosts\": [],\n \"macines\": []}"),
        ("broken.json", "{\"hosts\": ["),
    ]);
    let plan = |file: &str| lab.run(&["plan", "--offline", "--observed", file]);
    assert_eq!(plan("world.json").code, 0);
    for (file, why) in [
        (
            "typo.json",
            "unknown field `macines`, expected one of `hosts`, `machines`, `foreign`, `contract` at line 2 column 10",
        ),
        ("broken.json", "EOF while parsing a list at line 1 column 11"),
        ("none.json", "No such file or directory"),
    ] {
        let outcome = plan(file);
        assert_eq!(outcome.code, 3, "{file}");
        assert!(outcome.stderr.contains(why), "{file}: {}", outcome.stderr);
    }
}

#[test]
fn a_plan_for_programs_says_what_stands_in_its_way() {
    let lab = Lab::new(&[("cluster.yaml", &format!("{}bogus: 1\n", whole("a")))]);
    for form in ["json", "yaml"] {
        let plan = lab.run(&["plan", "--offline", "-o", form]);
        assert_eq!(plan.code, 3);
        assert_eq!(plan.stdout, lab.run(&["check", "-o", form]).stdout);
    }
    assert_eq!(lab.run(&["plan", "--offline", "-o", "json", "--graph", "svg"]).stdout, "");
}

#[test]
fn a_plan_for_programs_carries_its_warnings() {
    let plan = |lab: &Lab, path: &str| -> Value {
        let outcome = lab.run(&["plan", "--offline", "-o", "json", "-f", path]);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    };
    let even = own("b", 1).replace("count: 3", "count: 4");
    let lab = Lab::new(&[("defaults.yaml", SHARED), ("a.yaml", &own("a", 0)), ("b.yaml", &even)]);
    assert!(plan(&lab, "a.yaml").get("findings").is_none());
    let both = plan(&lab, ".");
    assert!(both[0].get("findings").is_none(), "{}", both[0]["findings"]);
    assert_eq!(both[1]["findings"][0]["code"], "ICH-1205");
    assert_eq!(both[1]["findings"][0]["file"], "./b.yaml");
}

#[test]
fn the_loss_of_a_host_tells_what_finds_no_place_and_what_the_others_carry() {
    let lab = Lab::new(&[("cluster.yaml", &whole("a").replace("memory: 128GiB", "memory: 8GiB"))]);
    let outcome = lab.run(&["plan", "--offline", "--lose", "pve1", "-o", "json"]);
    let plan: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(plan["loss"]["unplaced"], json!({ "cpu": 4, "memory": "8GiB" }));
    let usage = plan["loss"]["usage"].as_array().expect("usage");
    assert_eq!(usage.len(), 2);
    assert_eq!(usage[0]["host"], "pve2");
    assert_eq!(usage[0]["used"], json!({ "cpu": 4, "memory": "8GiB" }));
    assert_eq!(usage[0]["capacity"], json!({ "cpu": 32, "memory": "8GiB" }));
    let text = lab.run(&["plan", "--offline", "--lose", "pve1"]).stdout;
    assert!(text.contains("no host has room for: 4 vCPU and 8GiB"), "{text}");
    assert!(text.contains("HOST LEFT"), "{text}");
}

#[test]
fn schema_is_json_or_yaml() {
    let lab = Lab::new(&[]);
    let schema: Value = serde_json::from_str(&lab.run(&["schema"]).stdout).expect("JSON");
    assert_eq!(schema["title"], "ichor inventory");
    assert!(lab.run(&["schema", "-o", "yaml"]).stdout.contains("title: ichor inventory\n"));
}

#[test]
fn codes_are_explained() {
    let lab = Lab::new(&[]);
    let list = lab.run(&["explain"]).stdout;
    assert!(list.starts_with("CODE") && list.contains("\nICH-1101  a key is not known\n"), "{list}");
    let one = lab.run(&["explain", "1101"]).stdout;
    assert!(one.starts_with("ICH-1101: a key is not known\n\nKeys that ichor does not know"), "{one}");
    let value: Value =
        serde_json::from_str(&lab.run(&["explain", "ich1101", "-o", "json"]).stdout).expect("JSON");
    assert_eq!(value["title"], "a key is not known");
    assert!(lab.run(&["explain", "exit-codes"]).stdout.contains("130  interrupted"));
    let narrow = Outcome::of(lab.command(&["explain", "1101"]).env("COLUMNS", "40")).stdout;
    assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    assert!(lab.run(&["explain", "versions"]).stdout.starts_with("TALOS"));
    insta::assert_snapshot!(lab.run(&["explain", "ICH-1122"]).stderr, @r"
    error: nothing is known about `ICH-1122`
    hint: perhaps one of these:
        ichor explain ICH-1121  # a Kubernetes label, annotation or taint is not allowed
        ichor explain ICH-1120  # a Proxmox tag is not allowed
        ichor explain ICH-1119  # a path is not usable
    ");
}

#[test]
fn completions_exist_for_every_shell() {
    let lab = Lab::new(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = lab.run(&["completions", shell]).stdout;
        assert!(script.contains("ichor") && script.contains("deny-warnings"), "{shell}");
    }
}

#[test]
fn the_manual_is_printed_or_written() {
    let lab = Lab::new(&[]);
    assert!(lab.run(&["man"]).stdout.contains(".TH ichor 1"));
    assert_eq!(lab.run(&["man", "share/man"]).code, 0);
    let mut pages: Vec<String> = fs::read_dir(lab.path("share/man"))
        .expect("pages")
        .map(|page| page.expect("page").file_name().to_string_lossy().into_owned())
        .collect();
    pages.sort();
    assert!(pages.contains(&"ichor.1".into()) && pages.contains(&"ichor-plan.1".into()), "{pages:?}");
    lab.write("file", "");
    assert_eq!(lab.run(&["man", "file"]).code, 1);
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let lab = Lab::new(&[("cluster.yaml", "bogus: 1\n")]);
    for (arguments, code) in
        [(&["schema"][..], 0), (&["--help"], 0), (&["explain"], 0), (&["check", "-o", "json"], 3)]
    {
        let (reader, writer) = std::io::pipe().expect("pipe");
        drop(reader);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ichor"))
            .current_dir(lab.path(""))
            .args(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("the program runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ichor"))
        .arg("schema")
        .stdout(full)
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("could not write the output"));
}

#[test]
fn several_clusters_are_drawn_one_at_a_time() {
    let lab = Lab::new(&[("defaults.yaml", SHARED), ("a.yaml", &own("a", 0)), ("b.yaml", &own("b", 1))]);
    let outcome = lab.run(&["plan", "--offline", "-f", ".", "--graph", "mermaid", "--cluster", "a"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
}

#[test]
fn a_saved_plan_is_done_without_asking() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    let planned = lab.run(&["--lab", "plan", "--out", "plan.json"]);
    assert_eq!(planned.code, 2, "{}", planned.stderr);
    let unasked = lab.run(&["--lab", "up"]);
    assert_eq!(unasked.code, 3, "nobody can be asked");
    let done = lab.run(&["--lab", "up", "plan.json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let stale = lab.run(&["--lab", "up", "plan.json"]);
    assert!(stale.code == 7 && stale.stderr.contains("ICH-3113"), "{}", stale.stderr);
}
