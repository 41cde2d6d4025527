//! When a cluster's secrets are made, when they are not, and what is done without them.

use std::{fs, net::TcpListener};

use super::{Lab, Outcome, whole};

const SECRETS: &str = ".ichor/lab/a/secrets.yaml";

/// A rehearsal of a cluster that is there and Ready.
fn rehearsed() -> Lab {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    let up = lab.run(&["--lab", "up", "--yes"]);
    assert_eq!(up.code, 0, "{}", up.stderr);
    lab
}

fn event(lab: &Lab, words: &[&str]) {
    let state = ["lab", "event", "--state", ".ichor/lab/a/lab.json"];
    let happened = lab.run(&[&state, words].concat());
    assert_eq!(happened.code, 0, "{}", happened.stderr);
}

fn stops(outcome: &Outcome, code: i32, saying: &[&str]) {
    assert_eq!(outcome.code, code, "{}", outcome.stderr);
    for words in saying {
        assert!(outcome.stderr.contains(words), "{words} is not in\n{}", outcome.stderr);
    }
}

#[test]
fn no_secrets_are_made_while_machines_of_the_cluster_know_others() {
    let lab = rehearsed();
    let given = lab.run(&["--lab", "kubeconfig"]);
    assert_eq!((given.code, given.stderr.as_str()), (0, ""), "nobody has to encrypt the secrets of a lab");
    fs::rename(lab.path(SECRETS), lab.path("kept.yaml")).expect("moved");
    let up = lab.run(&["--lab", "up", "--yes"]);
    stops(&up, 4, &["ICH-2135", "VM 2000 (`cp-1`)", "VM 2002 (`cp-3`)", "ichor --lab secrets import FILE"]);
    assert!(!lab.path(SECRETS).exists(), "others were made");
    assert!(!up.stderr.contains("destroy"), "{}", up.stderr);
    let plan = lab.run(&["--lab", "plan"]);
    assert!(plan.stderr.contains("ICH-2135"), "{}", plan.stderr);
    let examined = lab.run(&["--lab", "doctor"]);
    assert_eq!(examined.code, 4, "{}", examined.stdout);
    let told = &examined.stdout;
    assert!(told.contains("error    secrets") && told.contains("ICH-2135"), "{told}");
    assert!(
        told.contains("ichor --lab secrets import FILE") && !told.contains("`ichor up` makes them"),
        "{told}"
    );
    // Programs are told the same.
    let told = lab.run(&["--lab", "-f", "ichor.yaml", "doctor", "-o", "json"]).stdout;
    assert!(told.contains("ichor --lab -f ichor.yaml secrets import FILE"), "{told}");
    let told = lab.run(&["--lab", "--cluster", "a", "plan", "-o", "json"]).stdout;
    assert!(told.contains("ichor --lab --cluster a secrets import FILE"), "{told}");
    // As the remedy says, and in the lab.
    let imported = lab.run(&["--lab", "secrets", "import", "kept.yaml"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert_eq!(fs::read(lab.path(SECRETS)).expect("secrets"), fs::read(lab.path("kept.yaml")).expect("kept"));
    assert!(!lab.path(".ichor/a").exists(), "the store of the real cluster was written to");
    let up = lab.run(&["--lab", "up", "--yes"]);
    assert_eq!(up.code, 0, "{}", up.stderr);
}

/// The way out of `docs/guides/teams.md`, from one store into another.
#[test]
fn a_cluster_whose_inventory_names_another_store_is_told_where_its_secrets_are() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    let run = |words: &[&str]| lab.run(&[&["--lab", "--lab-state", "lab.json"], words].concat());
    assert_eq!(run(&["up", "--yes"]).code, 0);
    // It was made with a contract that the inventory does not say any more.
    let recorded = fs::read_to_string(lab.path(".ichor/lab/a/cluster.json")).expect("a record");
    let older = recorded.replace("1.13", "1.12");
    assert_ne!(recorded, older);
    fs::write(lab.path(".ichor/lab/a/cluster.json"), &older).expect("a record");
    lab.write("ichor.yaml", format!("{}store: {{path: team}}\n", whole("a")));
    let import = ["secrets", "import", ".ichor/lab/a/secrets.yaml"];
    let command = format!("ichor --lab --lab-state lab.json {}", import.join(" "));
    stops(&run(&["up", "--yes"]), 4, &["ICH-2135", &command]);
    let examined = run(&["doctor"]);
    assert!(examined.code == 4 && examined.stdout.contains(&command), "{}", examined.stdout);
    assert_eq!(run(&import).code, 0);
    assert_eq!(fs::read_to_string(lab.path("team/lab/a/cluster.json")).expect("a record"), older);
    fs::remove_dir_all(lab.path(".ichor")).expect("the old store");
    let up = run(&["up", "--yes"]);
    assert!(up.code == 0 && up.stderr.contains("nothing to do"), "{}", up.stderr);
}

#[test]
fn no_secrets_are_made_for_a_cluster_that_cannot_be_made() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    assert_eq!(lab.run(&["--lab", "plan"]).code, 2);
    event(&lab, &["impostor", "10.0.0.10"]);
    stops(&lab.run(&["--lab", "up", "--yes"]), 4, &["somebody else answers at the address", "of `cp-1`"]);
    assert!(!lab.path(SECRETS).exists(), "a run that changes nothing made secrets");
}

/// Whoever is turned away, or turns away, has changed nothing, here neither.
#[test]
fn no_secrets_are_made_before_it_is_sure_that_they_are_wanted() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    let nobody = lab.run(&["--lab", "up", "--yes", "--only", "nobody"]);
    stops(&nobody, 3, &["there is no machine `nobody`"]);
    assert!(!lab.path(SECRETS).exists(), "a run that was refused made secrets");
    assert_eq!(lab.run(&["--lab", "plan", "--out", "plan.json"]).code, 2);
    lab.write("ichor.yaml", whole("a").replace("count: 3", "count: 1"));
    stops(&lab.run(&["--lab", "up", "plan.json"]), 7, &["the saved plan is not the right one any more"]);
    assert!(!lab.path(SECRETS).exists(), "a plan that does not fit made secrets");
}

/// The volumes of a plan that is made before there are secrets have no names yet.
#[test]
fn a_plan_that_was_saved_before_there_were_secrets_is_carried_out() {
    let lab = Lab::new(&[("ichor.yaml", &(whole("a") + "boot: {address: cidata, config: cidata}\n"))]);
    assert_eq!(lab.run(&["--lab", "plan", "--out", "plan.json"]).code, 2);
    assert!(!lab.path(SECRETS).exists());
    let up = lab.run(&["--lab", "up", "plan.json"]);
    assert_eq!(up.code, 0, "{}", up.stderr);
    assert!(lab.path(SECRETS).exists());
}

#[test]
fn a_file_that_is_gone_stops_only_those_who_need_it() {
    let patched = whole("a") + "patches: [patch.yaml]\nboot: {address: cidata, config: cidata}\n";
    let patch = "machine: {sysctls: {vm.max_map_count: \"262144\"}}\n";
    let lab = Lab::new(&[("ichor.yaml", &patched), ("patch.yaml", patch)]);
    let machines = lab.run(&["--lab", "up", "--yes", "--phase", "machines"]);
    assert_eq!(machines.code, 0, "{}", machines.stderr);
    fs::remove_file(lab.path("patch.yaml")).expect("gone");
    for verb in [&["plan"][..], &["up", "--yes"], &["up", "--dry-run"]] {
        stops(&lab.run(&[&["--lab"], verb].concat()), 3, &["error[ICH-2112]", "patch.yaml"]);
    }
    for verb in ["status", "health"] {
        let shown = lab.run(&["--lab", verb]);
        assert!(shown.stderr.contains("warning[ICH-2112]"), "{verb}: {}", shown.stderr);
        assert!(shown.stdout.contains("cp-1"), "{verb}: {}", shown.stdout);
    }
    let gone = lab.run(&["--lab", "destroy", "--yes"]);
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    assert!(!gone.stderr.contains("patch.yaml"), "it is not even looked for: {}", gone.stderr);
    let state = fs::read(lab.path(".ichor/lab/a/lab.json")).expect("a lab");
    let state: serde_json::Value = serde_json::from_slice(&state).expect("JSON");
    let storage = state["pve"]["storage"].to_string();
    assert!(
        storage.contains("ichor-talos-") && !storage.contains("ichor-cidata-"),
        "volumes with configs are left"
    );
}

#[cfg(unix)]
#[test]
fn a_second_run_is_kept_out_before_it_decides_anything() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a")), (SECRETS, "half of what the first run wri")]);
    let held = fs::File::open(lab.path(".ichor/lab/a")).expect("a directory");
    held.try_lock().expect("nobody else has it");
    for verb in ["up", "destroy"] {
        stops(&lab.run(&["--lab", verb, "--yes"]), 5, &["ICH-2124"]);
    }
}

#[test]
fn an_inventory_of_the_same_name_deletes_nothing_without_its_secrets() {
    let lab = rehearsed();
    let state = lab.path(".ichor/lab/a/lab.json").display().to_string();
    let one = whole("a").replace("count: 3", "count: 1").replace("address: +10", "address: +77");
    lab.write("elsewhere/ichor.yaml", one);
    let destroy = |words: &[&str]| {
        let all = ["--lab", "--lab-state", &state, "-f", "elsewhere/ichor.yaml", "destroy"];
        lab.run(&[&all, words].concat())
    };
    let shown = destroy(&["--dry-run"]);
    stops(&shown, 2, &["ICH-2135", "another inventory of that name", "may be members too"]);
    stops(&destroy(&["--yes"]), 7, &["ICH-2135", "--without-secrets"]);
    // Neither does one that has others, or a file that says nothing.
    lab.write("double/ichor.yaml", whole("a"));
    let double = |words: &[&str]| {
        lab.run(&[&["--lab", "--lab-state", &state, "-f", "double/ichor.yaml"], words].concat())
    };
    assert_eq!(double(&["secrets", "new"]).code, 0);
    stops(&double(&["destroy", "--yes"]), 7, &["ICH-2135", "made with other secrets than are here"]);
    // The name counts for its own numbers alone.
    lab.write("part/ichor.yaml", whole("a").replace("count: 3", "count: 1"));
    let part = |words: &[&str]| {
        lab.run(&[&["--lab", "--lab-state", &state, "-f", "part/ichor.yaml"], words].concat())
    };
    assert_eq!(part(&["secrets", "new"]).code, 0);
    let shown = part(&["destroy", "--dry-run", "--without-secrets"]);
    stops(&shown, 2, &["delete VM 2000"]);
    assert!(!shown.stderr.contains("delete VM 2001"), "{}", shown.stderr);
    lab.write("double/.ichor/lab/a/secrets.yaml", "");
    stops(&double(&["destroy", "--yes"]), 7, &["ICH-2135", "its secrets cannot be read"]);
    let there = lab.run(&["--lab", "plan"]);
    assert_eq!(there.code, 0, "something was deleted: {}", there.stdout);
    let gone = destroy(&["--yes", "--without-secrets"]);
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    assert_eq!(destroy(&["--yes"]).code, 0, "there is nothing left to refuse");
}

#[test]
fn secrets_that_cannot_be_read_keep_a_cluster_alive_unless_told_otherwise() {
    let lab = rehearsed();
    let whole = fs::read_to_string(lab.path(SECRETS)).expect("secrets");
    for broken in ["", &whole[..whole.len() / 2]] {
        lab.write(SECRETS, broken);
        let shown = lab.run(&["--lab", "destroy", "--dry-run"]);
        stops(&shown, 2, &["warning[ICH-2103]", "delete VM 2000"]);
        stops(&lab.run(&["--lab", "up", "--yes"]), 3, &["error[ICH-2103]"]);
    }
    stops(&lab.run(&["--lab", "destroy", "--yes"]), 7, &["error[ICH-2135]", "its secrets cannot be read"]);
    let gone = lab.run(&["--lab", "destroy", "--yes", "--without-secrets"]);
    stops(&gone, 0, &["warning[ICH-2103]", "the cluster's secrets, in .ichor/lab/a/secrets.yaml"]);
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_for_ever() {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = mute.local_addr().expect("an address").port();
    let inventory = whole("a").replace("pve1.lab.example:8006", &format!("127.0.0.1:{port}"));
    let without_pin = inventory.lines().filter(|line| !line.contains("tls:")).collect::<Vec<_>>().join("\n");
    let lab = Lab::new(&[("ichor.yaml", &without_pin)]);
    let secret = "ichor@pve!lab=00000000-0000-0000-0000-000000000000";
    let plan = Outcome::of(lab.command(&["plan"]).env("ICHOR_PVE_TOKEN", secret));
    stops(&plan, 4, &["ICH-3101", "does not show who it is"]);
}
