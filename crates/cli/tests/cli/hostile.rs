//! Paths, files and directories that make verbs lose something, or fall over.

use std::{fs, path::Path};

use serde_json::Value;

use super::{Lab, Outcome, SHARED, bundle, lab_with_secrets, own, whole};

#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_no_text_stop_no_verb() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let lab = Lab::new(&[]);
    let home = lab.path("").join(OsStr::from_bytes(b"n\xffd"));
    fs::create_dir(&home).expect("directory");
    fs::write(home.join("ichor.yaml"), whole("a")).expect("file");
    fs::write(home.join("given"), bundle()).expect("file");
    let (given, out) = (home.join("given"), home.join(OsStr::from_bytes(b"o\xffut")));
    let out = out.as_os_str();
    for (verb, rest) in [
        ("check", vec![]),
        ("plan --offline", vec![]),
        ("secrets import", vec![given.as_os_str()]),
        ("secrets show", vec![]),
        ("secrets export", vec![]),
        ("secrets export --out", vec![home.join("e").as_os_str()]),
        ("render", vec![out]),
        ("talosconfig --out", vec![home.join("t").as_os_str()]),
        ("kubeconfig --offline --out", vec![home.join("k").as_os_str()]),
        ("image id", vec![]),
    ] {
        for form in ["table", "json", "yaml"] {
            let mut arguments: Vec<&str> = vec!["-o", form];
            arguments.extend(verb.split(' '));
            let mut command = lab.command(&[]);
            command.arg("-f").arg(&home).args(arguments).args(&rest);
            let overwrite = verb.ends_with("--out");
            command.args(overwrite.then_some("--overwrite"));
            let outcome = Outcome::of(&mut command);
            assert_eq!(outcome.code, 0, "{verb} -o {form}: {}", outcome.stderr);
        }
    }
    fs::remove_dir_all(home.join(".ichor")).expect("removed");
    let outcome = Outcome::of(lab.command(&["secrets", "new", "-o", "json", "-f"]).arg(&home));
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
}

#[test]
fn access_to_another_cluster_is_not_lost() {
    let lab = lab_with_secrets(&whole("a"));
    assert_eq!(lab.run(&["kubeconfig", "--offline", "--out", "k"]).code, 0);
    assert_eq!(lab.run(&["kubeconfig", "--offline", "--out", "k"]).code, 0, "the same cluster's");
    let merged = fs::read_to_string(lab.path("k"))
        .expect("a kubeconfig")
        .replace("users:\n", "users:\n- name: work\n  user: {token: hunter2}\n");
    lab.write("k", &merged);
    let refused = lab.run(&["kubeconfig", "--offline", "--out", "k"]);
    assert_eq!(refused.code, 7);
    assert!(refused.stderr.contains("it also holds `user work`"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(lab.path("k")).expect("kept"), merged);
    assert_eq!(lab.run(&["kubeconfig", "--offline", "--out", "k", "--overwrite"]).code, 0);
}

#[test]
fn the_only_bundle_survives_every_verb() {
    let lab = lab_with_secrets(&whole("a"));
    let kept = ".ichor/a/secrets.sops.yaml";
    let before = fs::read(lab.path(kept)).expect("kept");
    for arguments in [
        &["render", ".ichor/a"][..],
        &["render", ".ichor/a", "--overwrite", "--secrets", "given/secrets.yaml"],
        &["render", ".ichor"],
        &["render", ".ichor/new"],
        &["render", "x/../.ichor/a"],
        &["talosconfig", "--out", kept, "--overwrite"],
        &["talosconfig", "--out", ".ichor/a/cluster.json", "--overwrite"],
        &["kubeconfig", "--offline", "--out", "ichor.yaml", "--overwrite"],
        &["secrets", "export", "--out", kept, "--overwrite"],
    ] {
        let outcome = lab.run(arguments);
        assert_eq!(outcome.code, 7, "{arguments:?}: {}", outcome.stderr);
    }
    assert_eq!(fs::read(lab.path(kept)).expect("kept"), before);
    lab.write("ichor.yaml", format!("{}secrets: {{file: rendered/secrets.yaml}}\n", whole("a")));
    lab.write("rendered/secrets.yaml", bundle());
    assert_eq!(lab.run(&["render", "--overwrite"]).code, 7);
    assert_eq!(lab.run(&["render", "--overwrite", "--secrets", "given/secrets.yaml"]).code, 7);
    assert_eq!(lab.run(&["render", "elsewhere"]).code, 0);
}

#[test]
fn a_repository_is_not_hidden() {
    let lab = Lab::new(&[("lab/ichor.yaml", &whole("a")), ("s", bundle())]);
    for (inventory, directory) in [("lab/ichor.yaml", "."), ("lab", "lab"), ("lab", "../work")] {
        let outcome = lab.run(&["-f", inventory, "render", directory, "--secrets", "s"]);
        assert_eq!(outcome.code, 7, "{directory}: {}", outcome.stderr);
    }
    let mut command = lab.command(&["-f", "-", "render", ".", "--secrets", "s"]);
    assert_eq!(Outcome::of(command.write_stdin(whole("a"))).code, 7);
    assert!(!lab.path(".gitignore").exists());
    assert_eq!(lab.run(&["-f", "lab", "render", "lab/rendered", "--secrets", "s"]).code, 0);
}

#[test]
fn choosing_a_cluster_does_not_change_where_its_files_are() {
    let lab = Lab::new(&[
        ("defaults.yaml", SHARED),
        ("a.yaml", &own("a", 0)),
        ("b.yaml", &own("b", 1)),
        ("s", bundle()),
    ]);
    let render = |cluster: &str, directory: &str| {
        lab.run(&["-f", ".", "--cluster", cluster, "render", directory, "--secrets", "s", "-o", "json"])
    };
    let value: Value = serde_json::from_str(&render("a", "out").stdout).expect("JSON");
    assert_eq!((&value["cluster"], &value["directory"]), (&"a".into(), &"out/a".into()));
    assert_eq!(render("b", "out").code, 0);
    assert!(lab.path("out/a/talosconfig").exists() && lab.path("out/b/talosconfig").exists());
    // One cluster alone has the directory itself, but not that of another one.
    let alone = |file: &str| lab.run(&["-f", file, "render", "out/a", "--secrets", "s"]);
    assert_eq!(alone("a.yaml").code, 0);
    let refused = alone("b.yaml");
    assert_eq!(refused.code, 7);
    assert!(refused.stderr.contains("holds the files of cluster `a`"), "{}", refused.stderr);
}

#[test]
fn standard_input_has_one_reader() {
    let lab = lab_with_secrets(&whole("a"));
    for arguments in [
        &["render", "--secrets", "-"][..],
        &["talosconfig", "--secrets", "-"],
        &["kubeconfig", "--offline", "--secrets", "-"],
        &["secrets", "import", "-"],
    ] {
        let mut command = lab.command(arguments);
        let outcome = Outcome::of(command.args(["-f", "-"]).write_stdin(whole("a")));
        assert_eq!(outcome.code, 3, "{arguments:?}");
        assert!(outcome.stderr.contains("both the inventory and the secrets"), "{}", outcome.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_that_is_named_is_read() {
    let lab = Lab::new(&[("ichor.yaml", &whole("a")), ("s", bundle())]);
    let program = env!("CARGO_BIN_EXE_ichor");
    let status = std::process::Command::new("bash")
        .args(["-c", &format!("'{program}' secrets import <(cat s)")])
        .current_dir(lab.path(""))
        .env("HOME", lab.home())
        .status()
        .expect("bash");
    assert!(status.success());
    assert_eq!(lab.run(&["secrets", "export"]).stdout, bundle());
}

#[cfg(unix)]
#[test]
fn directories_are_closed_and_links_to_them_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let lab = lab_with_secrets(&whole("a"));
    let mode = |path: &str| fs::metadata(lab.path(path)).expect(path).permissions().mode() & 0o777;
    let open = |path: &str| {
        fs::create_dir_all(lab.path(path)).expect("directory");
        fs::set_permissions(lab.path(path), fs::Permissions::from_mode(0o777)).expect("mode");
    };
    open("rendered/machines");
    open("rendered");
    assert_eq!(lab.run(&["render", "rendered"]).code, 7, "it holds something, and others can write");
    open("empty");
    assert_eq!(lab.run(&["render", "empty"]).code, 0);
    assert_eq!(mode("empty"), 0o700);
    open("empty");
    open("empty/machines");
    assert_eq!(lab.run(&["render", "empty"]).code, 0, "it is ours");
    assert_eq!((mode("empty"), mode("empty/machines")), (0o700, 0o700));

    fs::create_dir(lab.path("linked")).expect("directory");
    fs::create_dir(lab.path("elsewhere")).expect("directory");
    symlink(lab.path("elsewhere"), lab.path("linked/machines")).expect("link");
    for arguments in [&["render", "linked"][..], &["render", "linked", "--overwrite"]] {
        assert_eq!(lab.run(arguments).code, 7);
    }
    assert_eq!(fs::read_dir(lab.path("elsewhere")).expect("directory").count(), 0);
}

#[test]
fn what_a_killed_run_left_behind_is_removed() {
    let lab = lab_with_secrets(&whole("a"));
    assert_eq!(lab.run(&["render"]).code, 0);
    let strays = ["rendered/.secrets.yaml", "rendered/machines/.cp-1.yaml", ".ichor/a/.secrets.sops.yaml"];
    let strays = strays.map(|stray| format!("{stray}.00000000deadbeef.tmp"));
    for stray in &strays {
        lab.write(stray, "secret");
    }
    assert_eq!(lab.run(&["render"]).code, 0);
    assert!(strays.iter().all(|stray| !lab.path(stray).exists()));
}

#[test]
fn one_form_for_programs() {
    let lab = lab_with_secrets(&whole("a"));
    let json = |arguments: &[&str]| -> Value {
        let outcome = lab.run(arguments);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    };
    for arguments in [
        &["secrets", "import", "given/secrets.yaml"][..],
        &["secrets", "show"],
        &["image", "id"],
        &["render"],
        &["secrets", "export", "--out", "s"],
        &["talosconfig", "--out", "t"],
        &["kubeconfig", "--offline", "--out", "k"],
    ] {
        let value = json(&[arguments, &["-o", "json"]].concat());
        assert_eq!(value["cluster"], "a", "{arguments:?}");
        assert!(value["findings"].is_array(), "{arguments:?}");
    }
    let written = json(&["talosconfig", "--out", "t", "-o", "json"]);
    assert_eq!((&written["path"], &written["endpoints"][0]), (&"t".into(), &"10.0.0.10".into()));
    let written = json(&["kubeconfig", "--offline", "--out", "k", "-o", "json"]);
    assert_eq!(written["server"], "https://10.0.0.200:6443");
    assert!(written["ends"].as_str().is_some_and(|ends| ends.ends_with('Z')));
    assert_eq!(json(&["kubeconfig", "--offline", "-o", "json"])["kind"], "Config");
    assert_eq!(json(&["talosconfig", "-o", "json"])["context"], "a");
    assert!(json(&["secrets", "export", "-o", "json"])["certs"]["k8s"]["crt"].is_string());
}

#[test]
fn two_clusters_are_told_apart() {
    let lab = Lab::new(&[
        ("defaults.yaml", SHARED),
        ("a.yaml", &own("a", 0)),
        ("b.yaml", &own("b", 1)),
        ("s", bundle()),
    ]);
    for name in ["a", "b"] {
        assert_eq!(lab.run(&["-f", ".", "--cluster", name, "secrets", "import", "s"]).code, 0);
    }
    let text = lab.run(&["-f", ".", "image", "id"]).stdout;
    let ends: Vec<&str> = text.lines().filter_map(|line| line.rsplit("  ").next()).collect();
    assert_eq!(ends, ["a", "b"]);
    for arguments in [&["image", "id"][..], &["secrets", "show"]] {
        let all = [&["-f", ".", "-o", "json"], arguments].concat();
        let value: Value = serde_json::from_str(&lab.run(&all).stdout).expect("JSON");
        let names: Vec<&str> = value["clusters"]
            .as_array()
            .expect("clusters")
            .iter()
            .filter_map(|it| it["cluster"].as_str())
            .collect();
        assert_eq!(names, ["a", "b"], "{arguments:?}");
    }
    let shown = lab.run(&["-f", ".", "secrets", "show"]);
    assert!(shown.code == 0 && shown.stderr.contains("warning[ICH-2118]"), "{}", shown.stderr);
    let rendered = lab.run(&["-f", ".", "render"]);
    assert!(rendered.code == 3 && rendered.stderr.contains("ICH-2118"), "{}", rendered.stderr);
    assert!(!lab.path("rendered").exists());
}

#[test]
fn a_lost_record_is_not_passed_over() {
    let lab = lab_with_secrets(&whole("a"));
    fs::remove_file(lab.path(".ichor/a/cluster.json")).expect("removed");
    for arguments in [&["check"][..], &["plan", "--offline"], &["render"]] {
        let outcome = lab.run(arguments);
        assert!(outcome.code == 0 && outcome.stderr.contains("warning[ICH-2122]"), "{}", outcome.stderr);
    }
    assert_eq!(lab.run(&["secrets", "import", "given/secrets.yaml"]).code, 0);
    assert_eq!(lab.run(&["check"]).stderr, "");
}

#[cfg(unix)]
#[test]
fn another_run_in_the_directory_is_waited_for() {
    let lab = lab_with_secrets(&whole("a"));
    assert_eq!(lab.run(&["render"]).code, 0);
    let held = fs::File::open(lab.path("rendered")).expect("directory");
    held.lock().expect("locked");
    let outcome = lab.run(&["render"]);
    assert_eq!(outcome.code, 5, "{}", outcome.stderr);
    drop(held);
    assert_eq!(lab.run(&["render"]).code, 0);
    assert!(Path::new(&lab.path("rendered/talosconfig")).exists());
}
