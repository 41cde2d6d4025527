//! Which files make up an inventory, and which are refused.

use std::fs;

use serde_json::{Value, json};

use super::{Lab, SHARED, clusters, errors, head, machines, own, whole};

fn files(report: &Value) -> Vec<Value> {
    let clusters = report["clusters"].as_array().expect("clusters");
    clusters.iter().map(|cluster| cluster["files"].clone()).collect()
}

#[test]
fn the_current_directory_is_looked_through_in_order() {
    let lab = Lab::new(&[("cluster.yaml", &whole("second"))]);
    assert_eq!(clusters(&lab.check(&[])), ["second"]);
    lab.write("ichor.yaml", whole("first"));
    let report = lab.check(&[]);
    assert_eq!((clusters(&report), files(&report)), (vec!["first"], vec![json!(["ichor.yaml"])]));
    assert_eq!(errors(&report), [""; 0]);
}

#[test]
fn no_inventory_is_said_with_what_was_looked_for() {
    let outcome = Lab::new(&[("other.yaml", "")]).run(&["check"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, ""));
    insta::assert_snapshot!(outcome.stderr, @r"
    error[ICH-1014]: there is no inventory in the current directory
     = note: looked for `ichor.yaml`, then for `cluster.yaml`
     = help: name a file or a directory with `-f PATH`, or change to the inventory's directory

    1 error; nothing was changed
    hint: to learn more, run
        ichor explain ICH-1014
    ");
    let report = Lab::new(&[("defaults.yaml", ""), ("sub/patch.yaml", "")]).check(&["-f", "."]);
    assert_eq!(errors(&report), ["ICH-1014"]);
}

#[test]
fn cluster_and_nodes_are_one_inventory_and_encrypted_files_are_left_alone() {
    let lab = Lab::new(&[
        ("prod/cluster.yaml", &format!("{}{SHARED}", head("prod", 0))),
        ("prod/nodes.yaml", &machines(0)),
        ("prod/secrets.sops.yaml", "\tnot: [yaml"),
    ]);
    for path in ["prod", "prod/", "prod/cluster.yaml", "./prod"] {
        let report = lab.check(&["-f", path]);
        assert_eq!((clusters(&report), errors(&report)), (vec!["prod"], vec![]), "{path}");
    }
    assert_eq!(files(&lab.check(&["-f", "prod"])), [json!(["prod/cluster.yaml", "prod/nodes.yaml"])]);
}

#[test]
fn shared_defaults_lie_below_outermost_first() {
    let lab = Lab::new(&[
        ("defaults.yaml", SHARED),
        ("prod/defaults.yaml", "network: {bridge: vmbr9}\n"),
        ("prod/ichor.yaml", &own("prod", 0)),
        ("lab.yaml", &own("lab", 1)),
    ]);
    let tree = lab.check(&["-f", "."]);
    assert_eq!((clusters(&tree), errors(&tree)), (vec!["lab", "prod"], vec![]));
    assert_eq!(
        files(&tree),
        [
            json!(["./defaults.yaml", "./lab.yaml"]),
            json!(["./defaults.yaml", "./prod/defaults.yaml", "./prod/ichor.yaml"]),
        ]
    );
    let alone = lab.check(&["-f", "prod"]);
    assert_eq!(files(&alone), [json!(["defaults.yaml", "prod/defaults.yaml", "prod/ichor.yaml"])]);
    assert_eq!(errors(&alone), [""; 0]);
    let mut inside = lab.command(&["check", "-o", "json"]);
    let inside = super::Outcome::of(inside.current_dir(lab.path("prod")));
    let inside: Value = serde_json::from_str(&inside.stdout).expect("JSON");
    assert_eq!(files(&inside), [json!(["../defaults.yaml", "defaults.yaml", "ichor.yaml"])]);
}

#[test]
fn what_is_wrong_with_a_shared_file_is_said_once() {
    let lab = Lab::new(&[
        ("defaults.yaml", &format!("{SHARED}os: {{colour: blue}}\n")),
        ("a.yaml", &own("a", 0)),
        ("b.yaml", &own("b", 1)),
    ]);
    let report = lab.check(&["-f", "."]);
    assert_eq!(errors(&report), ["ICH-1101"]);
    assert_eq!(report["findings"][0]["file"], "./defaults.yaml");
}

#[test]
fn one_cluster_of_a_tree_is_chosen_by_name() {
    let lab = Lab::new(&[
        ("defaults.yaml", SHARED),
        ("a.yaml", &own("alpha", 0)),
        ("b.yaml", &format!("{}bogus: 1\n", own("beta", 1))),
    ]);
    assert_eq!(clusters(&lab.check(&["-f", "."])), ["alpha", "beta"]);
    let chosen = lab.check(&["-f", ".", "--cluster", "alpha"]);
    assert_eq!((clusters(&chosen), errors(&chosen)), (vec!["alpha"], vec![]));
    let other = lab.check(&["-f", ".", "--cluster", "beta"]);
    assert_eq!(errors(&other), ["ICH-1101"]);
    let none = lab.run(&["check", "-f", ".", "--cluster", "gamma"]);
    assert_eq!(none.code, 3);
    insta::assert_snapshot!(none.stderr, @r"
    error[ICH-1209]: there is no cluster `gamma`
     = note: there are `alpha` and `beta`
     = help: choose one of these with `--cluster`, or leave it out for all

    1 error; nothing was changed
    hint: to learn more, run
        ichor explain ICH-1209
    ");
}

#[test]
fn a_cluster_whose_name_cannot_be_read_may_be_the_wanted_one() {
    let lab = Lab::new(&[("a.yaml", &whole("alpha")), ("b.yaml", "cluster: [")]);
    assert_eq!(errors(&lab.check(&["-f", ".", "--cluster", "beta"])), ["ICH-1004", "ICH-1209"]);
    assert_eq!(errors(&lab.check(&["-f", ".", "--cluster", "alpha"])), [""; 0]);
}

#[test]
fn a_missing_file_is_named_with_the_reason() {
    let outcome = Lab::new(&[]).run(&["check", "-f", "no/such.yaml"]);
    assert_eq!(outcome.code, 3);
    insta::assert_snapshot!(outcome.stderr, @r"
    error[ICH-1015]: `no/such.yaml` cannot be read
     = note: No such file or directory (os error 2)
     = help: check the path

    1 error; nothing was changed
    hint: to learn more, run
        ichor explain ICH-1015
    ");
}

#[test]
fn an_inventory_is_read_from_standard_input() {
    let lab = Lab::new(&[("defaults.yaml", "bogus: 1\n")]);
    let check = |text: &str| -> Value {
        let mut command = lab.command(&["check", "-o", "json", "-f", "-"]);
        let outcome = super::Outcome::of(command.write_stdin(text));
        serde_json::from_str(&outcome.stdout).expect("JSON")
    };
    let report = check(&whole("piped"));
    assert_eq!((clusters(&report), errors(&report)), (vec!["piped"], vec![]));
    assert_eq!(files(&report), [json!(["<stdin>"])]);
    let report = check(&format!("{}bogus: 1\n", whole("piped")));
    assert_eq!(report["findings"][0]["file"], "<stdin>");
    let report = check(&"#".repeat(5 * 1024 * 1024));
    assert_eq!(errors(&report), ["ICH-1002"]);
    assert_eq!(errors(&check("")), ["ICH-1001"]);
}

#[test]
fn flags_come_from_the_environment_too() {
    let lab = Lab::new(&[("x.yaml", &whole("x"))]);
    let mut command = lab.command(&["check"]);
    let outcome = super::Outcome::of(command.env("ICHOR_FILE", "x.yaml").env("ICHOR_OUTPUT", "json"));
    let report: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(clusters(&report), ["x"]);
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let lab = Lab::new(&[]);
    let huge = fs::File::create(lab.path("cluster.yaml")).expect("file");
    huge.set_len(1 << 40).expect("a sparse file");
    let report = lab.check(&[]);
    assert_eq!(errors(&report), ["ICH-1002"]);
    assert_eq!(report["findings"][0]["file"], "cluster.yaml");
    assert_eq!(report["findings"][0]["line"], Value::Null);
}

#[test]
fn a_file_that_is_not_utf_8_is_shown_all_the_same() {
    let lab = Lab::new(&[]);
    lab.write("cluster.yaml", b"cluster:\n  name: caf\xe9 # \x1b]0;x\x07\n");
    let outcome = lab.run(&["check"]);
    assert_eq!(outcome.code, 3);
    insta::assert_snapshot!(outcome.stderr, @r"
    error[ICH-1003]: byte 0xe9 is not UTF-8
     --> cluster.yaml:2:12
      |
    2 |   name: caf� # ␛]0;x␇
      |            ^
      |
      = help: save the file as UTF-8

    1 error in cluster.yaml; nothing was changed
    hint: to learn more, run
        ichor explain ICH-1003
    ");
}

#[cfg(unix)]
mod unix {
    use std::{os::unix::fs::PermissionsExt, process::Command};

    use super::*;

    #[test]
    fn what_is_not_a_file_is_refused_without_waiting_for_it() {
        let lab = Lab::new(&[]);
        let made = Command::new("mkfifo").arg(lab.path("cluster.yaml")).status().expect("mkfifo");
        assert!(made.success());
        let outcome = lab.run(&["check"]);
        assert_eq!(outcome.code, 3);
        insta::assert_snapshot!(outcome.stderr, @r"
        error[ICH-1015]: `cluster.yaml` cannot be read
        --> cluster.yaml
         = note: it is a pipe, not a file
         = help: write the inventory to a file, and name that

        1 error in cluster.yaml; nothing was changed
        hint: to learn more, run
            ichor explain ICH-1015
        ");
        assert_eq!(errors(&lab.check(&["-f", "/dev/zero"])), ["ICH-1015"]);
        let world = lab.run(&["plan", "--offline", "--observed", "/dev/zero"]);
        assert_eq!(world.code, 3);
        assert!(world.stderr.contains("it is a device, not a file"), "{}", world.stderr);
    }

    #[test]
    fn a_link_to_nothing_is_not_taken_for_an_absent_file() {
        let lab = Lab::new(&[("cluster.yaml", &whole("a"))]);
        std::os::unix::fs::symlink("gone.yaml", lab.path("defaults.yaml")).expect("link");
        assert_eq!(errors(&lab.check(&[])), ["ICH-1015"]);
    }

    #[test]
    fn a_file_without_permission_says_so() {
        let lab = Lab::new(&[("cluster.yaml", &whole("a"))]);
        let path = lab.path("cluster.yaml");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("permissions");
        if fs::read(&path).is_ok() {
            return; // root reads everything
        }
        let report = lab.check(&[]);
        assert_eq!(errors(&report), ["ICH-1015"]);
        assert_eq!(report["findings"][0]["remedy"], "give yourself access: `chmod u+r cluster.yaml`");
    }

    #[test]
    fn names_that_are_not_utf_8_are_read() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        let lab = Lab::new(&[]);
        let path = lab.path("").join(OsStr::from_bytes(b"caf\xe9.yaml"));
        if fs::write(path, whole("cafe")).is_err() {
            return; // some file systems refuse such names
        }
        let report = lab.check(&["-f", "."]);
        assert_eq!((clusters(&report), errors(&report)), (vec!["cafe"], vec![]));
    }
}
