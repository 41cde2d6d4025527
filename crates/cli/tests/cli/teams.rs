//! Two people and one cluster: the lock, what it leaves behind, and the audit trail.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{DEADLINE, Lab, lab_with_secrets, whole};

/// Waits until something holds, and not for ever.
#[expect(clippy::disallowed_methods, reason = "a real process is waited for")]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A run that holds the lock until it is killed: its editor does not end.
pub struct Editing(Child);

impl Editing {
    pub fn begin(lab: &Lab) -> Self {
        // It ends with whoever asked for it.
        lab.write("editor", "#!/bin/sh\nwhile kill -0 $PPID; do sleep 0.1; done\n");
        fs::set_permissions(lab.path("editor"), PermissionsExt::from_mode(0o700)).expect("mode");
        let child = Command::new(env!("CARGO_BIN_EXE_ichor"))
            .args(["secrets", "edit"])
            .current_dir(lab.path(""))
            .env("HOME", lab.home())
            .env("USER", "ann")
            .env_remove("GITHUB_ACTOR")
            .env_remove("XDG_CONFIG_HOME")
            .env("SOPS_EDITOR", lab.path("editor"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let editing = Self(child);
        until("the lock is held", || lock(lab)["holder"]["verb"] == "secrets edit");
        editing
    }

    pub fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }
}

fn kept(lab: &Lab, name: &str) -> PathBuf {
    lab.path(".ichor/a").join(name)
}

fn lock(lab: &Lab) -> Value {
    let text = fs::read_to_string(kept(lab, "lock.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

#[test]
fn the_second_run_stops_with_the_name_of_the_first_and_the_lock_of_a_dead_one_is_taken() {
    let lab = lab_with_secrets(&whole("a"));
    let editing = Editing::begin(&lab);
    let second = lab.run(&["secrets", "rotate-key"]);
    assert_eq!(second.code, 5, "{}", second.stderr);
    for word in ["ICH-2124", "`ann@", "ichor secrets edit", "--lock-timeout", "ichor lock break"] {
        assert!(second.stderr.contains(word), "{word}: {}", second.stderr);
    }
    let waited = lab.run(&["--lock-timeout", "1s", "secrets", "rotate-key"]);
    assert_eq!(waited.code, 5, "{}", waited.stderr);
    assert!(waited.stderr.contains("waiting for `ann@"), "{}", waited.stderr);
    let shown = lab.run(&["lock", "show"]);
    assert!(shown.stdout.starts_with("ann@") && shown.stdout.contains("secrets edit"), "{}", shown.stdout);
    let holder = |lab: &Lab| -> Value {
        serde_json::from_str(&lab.run(&["lock", "show", "-o", "json"]).stdout).expect("JSON")
    };
    assert_eq!(holder(&lab)["holder"]["gone"], false);
    // Reading needs no lock.
    assert_eq!(lab.run(&["secrets", "show"]).code, 0);
    editing.kill();
    let shown = lab.run(&["lock", "show"]).stdout;
    assert!(shown.contains("is gone") && shown.contains("takes the lock over"), "{shown}");
    assert!(!shown.contains("at work"), "{shown}");
    assert_eq!(holder(&lab)["holder"]["gone"], true);
    let third = lab.run(&["secrets", "rotate-key"]);
    assert_eq!(third.code, 0, "{}", third.stderr);
    assert!(third.stderr.contains("its lock was taken over"), "{}", third.stderr);
    assert_eq!(lock(&lab)["holder"], Value::Null);
    let log = lab.run(&["log", "show", "-o", "json"]);
    let log: Value = serde_json::from_str(&log.stdout).expect("JSON");
    let entries = log["entries"].as_array().expect("entries");
    let told: Vec<_> = entries
        .iter()
        .map(|it| [&it["verb"], &it["outcome"]].map(|it| it.as_str().unwrap_or_default()))
        .collect();
    let story = [["secrets import", "done"], ["secrets edit", "cut short"], ["secrets rotate-key", "done"]];
    assert_eq!(told, story);
}

/// Somebody who writes to the store and holds no lock of ichor's.
#[cfg(target_os = "linux")]
#[test]
fn whoever_writes_to_the_store_is_named_and_waited_for() {
    let lab = lab_with_secrets(&whole("a"));
    let writer = fs::File::open(kept(&lab, "")).expect("the store");
    writer.lock().expect("held");
    let busy = lab.run(&["secrets", "rotate-key"]);
    assert_eq!(busy.code, 5, "{}", busy.stderr);
    for word in ["ICH-2124", &format!("process {}, `", std::process::id()), "--lock-timeout"] {
        assert!(busy.stderr.contains(word), "{word}: {}", busy.stderr);
    }
    assert_eq!(lock(&lab)["holder"], Value::Null);
    let waiting = std::thread::scope(|scope| {
        let run = scope.spawn(|| lab.run(&["--lock-timeout", "1m", "secrets", "rotate-key"]));
        until("it has the lock", || lock(&lab)["holder"]["verb"] == "secrets rotate-key");
        drop(writer);
        run.join().expect("a run")
    });
    assert_eq!(waiting.code, 0, "{}", waiting.stderr);
}

#[test]
fn a_lock_is_broken_by_command_and_never_without_a_word() {
    let lab = lab_with_secrets(&whole("a"));
    let editing = Editing::begin(&lab);
    let asked = lab.run(&["lock", "break"]);
    assert_eq!(asked.code, 3, "{}", asked.stderr);
    assert!(
        asked.stderr.contains("ichor lock show") && !asked.stderr.contains("--dry-run"),
        "{}",
        asked.stderr
    );
    assert_eq!(lock(&lab)["holder"]["verb"], "secrets edit");
    let broken = lab.run(&["lock", "break", "--yes"]);
    assert_eq!(broken.code, 0, "{}", broken.stderr);
    assert!(broken.stdout.contains("ann@"), "{}", broken.stdout);
    assert!(lab.run(&["lock", "show"]).stdout.contains("nobody"));
    assert_eq!(lab.run(&["secrets", "rotate-key"]).code, 0);
    editing.kill();
    // What is no lock is not waited for, and can be broken.
    fs::write(kept(&lab, "lock.json"), "{}").expect("a file");
    let illegible = lab.run(&["secrets", "rotate-key"]);
    assert!(illegible.code == 4 && illegible.stderr.contains("ICH-2145"), "{}", illegible.stderr);
    assert_eq!(lab.run(&["lock", "break", "--yes"]).code, 0);
    assert_eq!(lab.run(&["secrets", "rotate-key"]).code, 0);
}

#[test]
fn a_trail_that_somebody_changed_is_found_out() {
    let lab = lab_with_secrets(&whole("a"));
    for _ in 0..2 {
        assert_eq!(lab.run(&["secrets", "rotate-key"]).code, 0);
    }
    let whole = lab.run(&["log", "verify"]);
    assert_eq!((whole.code, whole.stdout.contains("3 entries")), (0, true), "{}", whole.stdout);
    let second = kept(&lab, "audit/00000002.json");
    let before = fs::read_to_string(&second).expect("an entry");
    fs::write(&second, before.replace("rotate-key", "show")).expect("a file");
    let changed = lab.run(&["log", "verify"]);
    assert_eq!(changed.code, 7, "{}", changed.stderr);
    for word in ["ICH-2146", "entry 2 or 3 was changed", "entry 1 is as it was written"] {
        assert!(changed.stderr.contains(word), "{word}: {}", changed.stderr);
    }
    fs::write(&second, before).expect("a file");
    // The newest is taken away, and nothing after it shows that; the generation does.
    let third = kept(&lab, "audit/00000003.json");
    let newest = fs::read(&third).expect("an entry");
    fs::remove_file(&third).expect("an entry");
    let cut = lab.run(&["log", "verify"]);
    assert!(cut.code == 7 && cut.stderr.contains("entry 3 is missing"), "{}", cut.stderr);
    // No run writes another one in its place.
    let secrets = fs::read(kept(&lab, "secrets.sops.yaml")).expect("secrets");
    let refused = lab.run(&["secrets", "rotate-key"]);
    assert_eq!(refused.code, 7, "{}", refused.stderr);
    for word in ["ICH-2146", "entry 3 is missing", "audit/00000003.json"] {
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
    assert!(!third.exists() && lock(&lab)["holder"] == Value::Null);
    assert_eq!(fs::read(kept(&lab, "secrets.sops.yaml")).expect("secrets"), secrets);
    // Looking goes on, with a warning.
    let shown = lab.run(&["log", "show"]);
    assert_eq!((shown.code, shown.stderr.contains("ICH-2146")), (0, true), "{}", shown.stderr);
    fs::write(&third, newest).expect("a file");
    assert_eq!(lab.run(&["secrets", "rotate-key"]).code, 0);
    assert_eq!(lab.run(&["log", "verify"]).code, 0);
    let nothing = lab.run(&["log", "accept", "--yes"]);
    assert_eq!((nothing.code, nothing.stdout.contains("nothing to accept")), (0, true), "{}", nothing.stderr);
    assert!(!kept(&lab, "audit/00000005.json").exists());
}

#[test]
fn a_trail_whose_end_is_lost_is_accepted_by_command_and_never_without_a_word() {
    let lab = lab_with_secrets(&whole("a"));
    assert_eq!(lab.run(&["secrets", "rotate-key"]).code, 0);
    fs::remove_file(kept(&lab, "audit/00000002.json")).expect("an entry");
    let asked = lab.run(&["log", "accept"]);
    assert_eq!(asked.code, 3, "{}", asked.stderr);
    let refused = lab.run(&["secrets", "rotate-key"]);
    assert!(refused.code == 7 && refused.stderr.contains("ichor log accept"), "{}", refused.stderr);
    let accepted = lab.run(&["log", "accept", "--yes"]);
    assert_eq!(accepted.code, 0, "{}", accepted.stderr);
    assert!(accepted.stdout.contains("entry 2 is missing"), "{}", accepted.stdout);
    assert_eq!(lab.run(&["secrets", "rotate-key"]).code, 0);
    let shown = lab.run(&["log", "show"]);
    assert!(shown.stdout.contains("accepted: entry 2 is missing"), "{}", shown.stdout);
    // It stays to be seen.
    let verified = lab.run(&["log", "verify"]);
    assert!(verified.code == 7 && verified.stderr.contains("entry 2 is missing"), "{}", verified.stderr);
}

#[test]
fn what_is_kept_is_for_its_owner_alone_and_holds_no_secret_in_plain() {
    let lab = lab_with_secrets(&whole("a"));
    let script = format!("umask 000; '{}' secrets rotate-key", env!("CARGO_BIN_EXE_ichor"));
    let run = Command::new("sh")
        .args(["-c", &script])
        .current_dir(lab.path(""))
        .env("HOME", lab.home())
        .env_remove("XDG_CONFIG_HOME")
        .output();
    assert!(run.expect("the program runs").status.success());
    let secret = super::bundle().lines().find_map(|line| line.trim().strip_prefix("key: ")).expect("a key");
    let mut looked = 0;
    for directory in ["", "audit", "generations"] {
        for entry in fs::read_dir(kept(&lab, directory)).expect("a directory") {
            let path = entry.expect("an entry").path();
            let mode = fs::metadata(&path).expect("something").permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
            if path.is_file() {
                let text = String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned();
                assert!(!text.contains(secret), "{}", path.display());
                looked += 1;
            }
        }
    }
    assert!(looked >= 7, "{looked}");
}

#[test]
fn a_bucket_that_is_not_reached_stops_a_verb_before_it_begins_and_check_needs_none() {
    let inventory = format!("{}store: s3://team/prod?endpoint=http://127.0.0.1:1\n", whole("a"));
    let lab = Lab::new(&[("ichor.yaml", &inventory)]);
    assert_eq!(lab.run(&["check"]).code, 0);
    let run = |arguments: &[&str]| {
        let mut command = lab.command(arguments);
        command.env("AWS_ACCESS_KEY_ID", "CANARYKEY").env("AWS_SECRET_ACCESS_KEY", "CANARYSECRET");
        super::Outcome::of(&mut command)
    };
    let made = run(&["secrets", "new"]);
    assert_eq!(made.code, 4, "{}", made.stderr);
    assert!(made.stderr.contains("ICH-2140") && made.stderr.contains("s3://team/prod"), "{}", made.stderr);
    assert!(!made.stderr.contains("CANARY"), "{}", made.stderr);
    let examined = run(&["doctor"]);
    assert_eq!(examined.code, 4, "{}", examined.stderr);
    let told = &examined.stdout;
    assert!(told.contains("error    store") && told.contains("error[ICH-2140]"), "{told}");
    assert!(told.contains("unknown  secrets") && !told.contains("CANARY"), "{told}");
    assert!(!lab.path(".ichor").exists(), "a doctor changes nothing");
    let plain = inventory.replace("http://127.0.0.1:1", "http://s3.example:9000");
    lab.write("ichor.yaml", plain);
    let refused = run(&["secrets", "new"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("ICH-2113") && refused.stderr.contains("plain_http"),
        "{}",
        refused.stderr
    );
    assert!(run(&["doctor"]).stdout.contains("error[ICH-2113]"));
    lab.write("ichor.yaml", inventory.replace("s3://", "ftp://"));
    let unknown = run(&["check"]);
    assert_eq!(unknown.code, 3, "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("ICH-2113") && unknown.stderr.contains("`ftp://` is no kind of store"),
        "{}",
        unknown.stderr
    );
}

/// Lets calls meet a fault in the lab of a rehearsal; none, if there is none.
fn spoil(lab: &Lab, plan: &Value) {
    lab.write("faults.json", plan.to_string());
    let set = lab.run(&["lab", "faults", "--state", ".ichor/lab/a/lab.json", "faults.json"]);
    assert_eq!(set.code, 0, "{}", set.stderr);
}

/// Returns the calls to Proxmox that change something.
fn changes(lab: &Lab) -> Vec<String> {
    let state = lab.run(&["lab", "state", "--state", ".ichor/lab/a/lab.json"]);
    let state: Value = serde_json::from_str(&state.stdout).expect("JSON");
    let calls = state["ground"]["record"]["calls"].as_array().expect("calls").clone();
    let word = |call: &Value, key: &str| call[key].as_str().unwrap_or_default().to_owned();
    let changing = calls.iter().filter(|call| call["server"] == "pve" && call["method"] != "GET");
    changing.map(|call| format!("{} {}", word(call, "method"), word(call, "path"))).collect()
}

#[test]
fn a_run_that_loses_its_lock_begins_nothing_more_and_the_next_one_finishes() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
    assert_eq!(lab.run(&["--lab", "plan"]).code, 2);
    // VMs take longer than it takes to notice that the lock is gone.
    spoil(
        &lab,
        &serde_json::json!([{
            "server": "pve", "method": "POST", "path": "/nodes/*/qemu", "occurrence": 0,
            "fault": { "slow": { "millis": 15_000 } },
        }]),
    );
    let mut up = Command::new(env!("CARGO_BIN_EXE_ichor"))
        .args(["--lab", "up", "--yes", "--json"])
        .current_dir(lab.path(""))
        .env("HOME", lab.home())
        .env_remove("XDG_CONFIG_HOME")
        .stdin(Stdio::null())
        .stdout(fs::File::create(lab.path("said")).expect("a file"))
        .stderr(fs::File::create(lab.path("told")).expect("a file"))
        .spawn()
        .expect("the program runs");
    let said = || fs::read_to_string(lab.path("said")).unwrap_or_default();
    until("VMs are being made", || said().contains("machine/cp-1/create"));
    let generations = || {
        let names = fs::read_dir(lab.path(".ichor/lab/a/generations")).expect("generations");
        let mut names: Vec<_> = names.flatten().map(|name| name.file_name()).collect();
        names.sort();
        names
    };
    let before = generations();
    let broken = lab.run(&["--lab", "lock", "break", "--yes"]);
    assert_eq!(broken.code, 0, "{}", broken.stderr);
    let code = up.wait().expect("an end").code();
    let told = fs::read_to_string(lab.path("told")).expect("what it told");
    assert_eq!(code, Some(6), "{told}");
    assert!(told.contains("ICH-2144") && told.contains("was lost"), "{told}");
    // What was in flight is done, and nothing came after it.
    let made = changes(&lab);
    assert!(made.iter().any(|call| call.ends_with("/qemu")), "{made:?}");
    assert!(!made.iter().any(|call| call.ends_with("/status/start")), "{made:?}");
    assert_eq!(generations(), before, "it wrote to the store after its lock was lost");
    let log = lab.run(&["--lab", "log", "show", "-o", "json"]);
    let log: Value = serde_json::from_str(&log.stdout).expect("JSON");
    let last = log["entries"].as_array().and_then(|entries| entries.last()).expect("an entry");
    assert_eq!((&last["verb"], &last["outcome"]), (&"up".into(), &"lost-lock".into()));
    spoil(&lab, &serde_json::json!([]));
    let next = lab.run(&["--lab", "up", "--yes"]);
    assert_eq!(next.code, 0, "{}", next.stderr);
    assert_eq!(lab.run(&["--lab", "plan"]).code, 0);
    let verified = lab.run(&["--lab", "log", "verify"]);
    assert_eq!(verified.code, 0, "{}", verified.stderr);
}
