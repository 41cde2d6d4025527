//! The core decides and does nothing else: no runtime, no sockets, no terminal in its dependencies.

use std::{collections::BTreeSet, process::Command};

const CORE: [&str; 5] = ["ichor-model", "ichor-spec", "ichor-plan", "ichor-machineconfig", "ichor-sops"];
const EFFECTS: [&str; 10] =
    ["tokio", "mio", "hyper", "reqwest", "tonic", "socket2", "kube", "russh", "clap", "tracing-subscriber"];

#[test]
fn the_core_depends_on_nothing_that_acts() {
    for package in CORE {
        let reached = dependencies(package);
        let acting: Vec<&&str> = EFFECTS.iter().filter(|effect| reached.contains(**effect)).collect();
        assert!(acting.is_empty(), "{package} depends on {acting:?}");
    }
}

#[test]
fn lower_crates_do_not_know_higher_ones() {
    let order = ["ichor-model", "ichor-spec", "ichor-plan", "ichor-ops", "ichor"];
    for (i, lower) in order.iter().enumerate() {
        let reached = dependencies(lower);
        let higher: Vec<&&str> = order[i + 1..].iter().filter(|higher| reached.contains(**higher)).collect();
        assert!(higher.is_empty(), "{lower} depends on {higher:?}");
    }
}

/// Names of everything a package links, as cargo resolves it for this platform.
#[expect(clippy::disallowed_methods, reason = "cargo names itself to what it runs")]
fn dependencies(package: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--locked",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let names: BTreeSet<String> =
        text.lines().filter_map(|line| line.split(' ').next()).map(Into::into).collect();
    assert!(names.contains("serde"), "cargo knows nothing of {package}: {text}");
    names
}
