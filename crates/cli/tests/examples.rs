//! Every example, and every inventory written after a cluster that somebody runs, as the real
//! binary shows it. The snapshots are there to be compared with what they are written after.

use std::path::{Path, PathBuf};

use assert_cmd::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn ichor(args: &[&str]) -> (String, String) {
    let output = Command::cargo_bin("ichor")
        .expect("the binary")
        .current_dir(repository())
        .env_clear()
        .args(args)
        .output()
        .expect("a run");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr))
}

/// What a reviewer reads: the plan with its reasons, then everything that was decided.
fn shown(path: &str) -> String {
    let (plan, findings) = ichor(&["plan", "--offline", "--explain", "-f", path]);
    let (whole, _) = ichor(&["plan", "--offline", "-o", "yaml", "-f", path]);
    format!("{plan}\n{findings}\n{whole}")
}

macro_rules! snapshots {
    ($($name:ident: $path:literal;)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(stringify!($name), shown($path));
            }
        )*
    };
}

snapshots! {
    minimal: "examples/minimal";
    templates: "examples/templates";
    capacity: "examples/capacity";
    environments_dev: "examples/environments/dev";
    environments_prod: "examples/environments/prod";
    private_network: "examples/private-network";
    tailscale: "examples/tailscale";
    schedulable_control_planes: "crates/cli/tests/real/schedulable-control-planes.yaml";
    load_balancer_pair: "crates/cli/tests/real/load-balancer-pair.yaml";
    bridge_per_host: "crates/cli/tests/real/bridge-per-host.yaml";
    secure_boot: "crates/cli/tests/real/secure-boot.yaml";
    templates_by_hand: "crates/cli/tests/real/templates-by-hand.yaml";
}

#[test]
fn the_minimal_example_is_the_one_of_the_readme_and_has_under_15_lines() {
    let root = repository();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let minimal = read("examples/minimal/ichor.yaml");
    assert!(minimal.lines().count() < 15);
    assert!(read("README.md").contains(&minimal), "the README shows another inventory");
}

#[test]
fn environments_check_together() {
    let (said, _) = ichor(&["check", "-f", "examples/environments"]);
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn an_environment_means_the_same_alone_and_in_its_tree() {
    let (alone, _) = ichor(&["plan", "--offline", "-o", "json", "-f", "examples/environments/prod"]);
    let tree = ["plan", "--offline", "-o", "json", "-f", "examples/environments", "--cluster", "prod"];
    assert_eq!(alone, ichor(&tree).0);
}
