//! `ichor doctor`, as its users see it.

use serde_json::Value;

use super::{Lab, own, whole};

fn shown(text: &str) -> String {
    // The day on which the lab's certificate ends follows from the day on which the lab was made.
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match line.split_once("it ends on ") {
            Some((head, _)) => lines.push(format!("{head}it ends on DAY")),
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

#[test]
fn a_world_that_is_ready_is_a_list_of_short_lines() {
    let lab = Lab::new(&[("cluster.yaml", &whole("demo"))]);
    let examined = lab.run(&["--lab", "doctor"]);
    assert_eq!(examined.code, 0, "{}", examined.stderr);
    insta::assert_snapshot!(shown(&examined.stdout));
    let told = lab.run(&["--lab", "doctor", "-o", "json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert_eq!(told["ready"], true);
    let checks = told["checks"].as_array().expect("checks");
    assert!(checks.len() > 20, "{told}");
    for check in checks {
        for key in ["id", "group", "state", "says", "findings"] {
            assert!(!check[key].is_null(), "{key}: {check}");
        }
    }
}

/// Neither a token, nor a server, nor its certificate: everything else is told all the same.
#[test]
fn a_world_that_is_not_reached_leaves_the_rest_to_be_told() {
    let inventory = whole("demo").replace("https://pve1.lab.example:8006", "https://127.0.0.1:1");
    let lab =
        Lab::new(&[("cluster.yaml", &format!("{inventory}image: {{factory: 'http://127.0.0.1:1'}}\n"))]);
    let examined = lab.run(&["doctor", "-o", "json"]);
    assert_eq!(examined.code, 4, "{}", examined.stderr);
    let told: Value = serde_json::from_str(&examined.stdout).expect("JSON");
    let state = |id: &str| {
        let checks = told["checks"].as_array().expect("checks");
        let check = checks.iter().find(|check| check["id"] == id);
        check.map_or("none", |check| check["state"].as_str().expect("a state")).to_owned()
    };
    let ids = ["store", "secrets", "tls", "answers", "factory", "privileges", "hosts", "storages", "vmids"];
    let states = ids.map(state);
    assert_eq!(
        states.each_ref().map(String::as_str),
        ["ok", "ok", "error", "error", "error", "unknown", "unknown", "unknown", "unknown"]
    );
    assert!(!lab.path(".ichor").exists(), "a doctor changes nothing");
    let text = lab.run(&["doctor"]);
    assert_eq!(text.code, 4);
    assert!(
        text.stdout.contains("error[ICH-3101]: Proxmox is not reached at https://127.0.0.1:1"),
        "{}",
        text.stdout
    );
    assert!(text.stdout.contains("`ICHOR_PVE_TOKEN` cannot be had"), "{}", text.stdout);
}

#[test]
fn one_cluster_has_to_be_chosen() {
    let lab = Lab::new(&[
        ("a/cluster.yaml", &format!("{}{}", own("one", 0), super::SHARED)),
        ("b/cluster.yaml", &format!("{}{}", own("two", 1), super::SHARED)),
    ]);
    assert_eq!(lab.run(&["--lab", "doctor", "-f", "."]).code, 3);
    assert_eq!(lab.run(&["--lab", "doctor", "-f", ".", "--cluster", "two"]).code, 0);
}
