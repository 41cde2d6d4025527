//! `ichor render`: files, their modes, and what is never written over.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{Lab, bundle, lab_with_secrets, whole};

/// Returns all files below a directory.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(tree(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).expect("a file"));
        }
    }
    files
}

#[test]
fn a_cluster_is_rendered_for_its_owner_alone() {
    let lab = lab_with_secrets(&whole("a"));
    let outcome = lab.run(&["render"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(outcome.stdout, @r"
    FILE                             WHAT                                 STATE
    .gitignore                       keeps all of it out of git           new
    secrets.yaml                     secrets of the cluster               new
    control-plane.yaml               machine config of any control plane  new
    worker.yaml                      machine config of any worker         new
    machines/cp-1.yaml               machine config of cp-1               new
    machines/cp-2.yaml               machine config of cp-2               new
    machines/cp-3.yaml               machine config of cp-3               new
    talosconfig                      access to the Talos API              new
    talos-machines.auto.tfvars.json  machines, for Terraform              new

    rendered: 9 new, in rendered
    ");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
        assert_eq!(mode(&lab.path("rendered")), 0o700);
        assert_eq!(mode(&lab.path("rendered/machines")), 0o700);
        for path in tree(&lab.path("rendered")).keys() {
            assert_eq!(mode(path), 0o600, "{}", path.display());
        }
    }
    let variables = fs::read(lab.path("rendered/talos-machines.auto.tfvars.json")).expect("variables");
    let variables: Value = serde_json::from_slice(&variables).expect("JSON");
    let machine = &variables["talos_machines"]["cp-1"];
    assert_eq!((&machine["vmid"], &machine["ip"]), (&2000.into(), &"10.0.0.10".into()));
    assert_eq!((&machine["memory_mib"], &machine["disk_gib"]), (&8192.into(), &40.into()));
    assert_eq!(machine["machine_config"], "machines/cp-1.yaml");
}

#[test]
fn every_example_is_rendered_twice_with_the_same_bytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in
        ["minimal", "templates", "private-network", "tailscale", "environments/dev", "environments/prod"]
    {
        let lab = Lab::new(&[("secrets.yaml", bundle())]);
        for (from, bytes) in tree(&root.join("examples")) {
            let to = from.strip_prefix(root.join("examples")).expect("an example").display().to_string();
            lab.write(&to, bytes);
        }
        let run = || {
            let arguments = ["-f", name, "render", "out", "--secrets", "secrets.yaml", "-o", "json"];
            let output = lab.command(&arguments).env("HEADSCALE_AUTH_KEY", "key").output().expect("a run");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{name}: {said}");
            serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
        };
        let all_are = |value: &Value, state: &str| {
            let files = value["files"].as_array().expect("files");
            assert!(files.len() > 6 && files.iter().all(|file| file["state"] == state), "{name}: {value}");
        };
        all_are(&run(), "new");
        let before = tree(&lab.path("out"));
        all_are(&run(), "unchanged");
        assert_eq!(tree(&lab.path("out")), before, "{name}");
    }
}

#[test]
fn a_leased_endpoint_cannot_be_rendered_yet() {
    let example = include_str!("../../../../examples/capacity/ichor.yaml");
    let lab = Lab::new(&[("ichor.yaml", example), ("secrets.yaml", bundle())]);
    let outcome = lab.run(&["render", "--secrets", "secrets.yaml"]);
    assert_eq!(outcome.code, 3);
    assert!(outcome.stderr.contains("ICH-2009"), "{}", outcome.stderr);
    assert!(!lab.path("rendered").exists());
}

#[test]
fn several_clusters_get_a_directory_each() {
    let lab = Lab::new(&[
        ("defaults.yaml", super::SHARED),
        ("a.yaml", &super::own("a", 0)),
        ("b.yaml", &super::own("b", 1)),
        ("given/secrets.txt", bundle()),
    ]);
    assert_eq!(lab.run(&["-f", ".", "--cluster", "a", "secrets", "import", "given/secrets.txt"]).code, 0);
    assert_eq!(lab.run(&["-f", ".", "--cluster", "b", "secrets", "new"]).code, 0);
    assert_eq!(
        lab.run(&["-f", ".", "render", "--secrets", "given/secrets.txt"]).code,
        3,
        "one bundle for two"
    );
    assert_eq!(lab.run(&["-f", ".", "render"]).code, 0);
    assert!(lab.path("rendered/a/talosconfig").exists() && lab.path("rendered/b/talosconfig").exists());
}

#[test]
fn what_others_wrote_is_kept() {
    let lab = lab_with_secrets(&whole("a"));
    lab.write("rendered/worker.yaml", "mine\n");
    let outcome = lab.run(&["render"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (7, ""));
    insta::assert_snapshot!(outcome.stderr, @r"
    error[ICH-2109]: `rendered/worker.yaml` would be written over
     = note: ichor did not write it
     = help: move it away, render to another directory, or add `--overwrite`

    1 error; nothing was changed
    hint: to learn more, run
        ichor explain ICH-2109
    ");
    assert_eq!(tree(&lab.path("rendered")).len(), 1, "something was written");
    assert_eq!(lab.run(&["render", "."]).code, 7, "not beside the inventory");
    assert!(lab.run(&["render", "--overwrite"]).stdout.contains("8 new, 1 overwritten"));
}

#[cfg(unix)]
#[test]
fn a_link_is_neither_followed_nor_taken_for_ours() {
    let lab = lab_with_secrets(&whole("a"));
    lab.write("elsewhere", "kept\n");
    fs::create_dir(lab.path("rendered")).expect("directory");
    std::os::unix::fs::symlink(lab.path("elsewhere"), lab.path("rendered/secrets.yaml")).expect("link");
    assert_eq!(lab.run(&["render"]).code, 7);
    assert_eq!(lab.run(&["render", "--overwrite"]).code, 0);
    assert_eq!(fs::read_to_string(lab.path("elsewhere")).expect("file"), "kept\n");
}

#[test]
fn all_patches_that_cannot_be_used_are_named_at_once() {
    let patches = "patches: [missing.yaml, folder, loop.yaml, ichor.yaml, broken.yaml]\n";
    let lab = lab_with_secrets(&format!("{}{patches}", whole("a")));
    fs::create_dir(lab.path("folder")).expect("directory");
    lab.write("broken.yaml", b"\xff\xfe");
    #[cfg(unix)]
    std::os::unix::fs::symlink("loop.yaml", lab.path("loop.yaml")).expect("link");
    let outcome = lab.run(&["render", "-o", "json"]);
    assert_eq!(outcome.code, 3);
    let report: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(super::errors(&report), ["ICH-2112"; 5], "{}", outcome.stderr);
}
