//! Findings as people and programs see them.

use serde_json::{Value, json};

use super::{Lab, Outcome, SHARED, errors, own, whole};

const TOKEN: &str = "root@pam!ichor=01234567-89ab-cdef-0123-456789abcdef";

#[test]
fn findings_are_told_on_stderr_with_their_lines() {
    let lab = Lab::new(&[("cluster.yaml", &format!("{}bogus: 1\nmachines: {{}}\n", whole("a")))]);
    let outcome = lab.run(&["check"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, ""));
    insta::assert_snapshot!(outcome.stderr, @r"
    error[ICH-1101]: `bogus` is not a key of the inventory
      --> cluster.yaml:12:1
       |
    12 | bogus: 1
       | ^^^^^
       |
       = help: its keys are `schema`, `cluster`, `proxmox`, `placement`, `network`, `image`, `boot`, `os`, `defaults`, `roles`, `machines`, `patches`, `addons`, `store`, `secrets`

    error[ICH-1009]: `machines` is written twice
      --> cluster.yaml:13:1
       |
    13 | machines: {}
       | ^^^^^^^^
       |
      ::: cluster.yaml:3:1
       |
     3 | machines:
       | -------- first written here
       |
       = help: keep one of them

    2 errors in cluster.yaml; nothing was changed
    hint: to learn more, run
        ichor explain ICH-1101
    ");
}

#[test]
fn programs_get_every_finding_with_its_place_and_remedy() {
    let lab = Lab::new(&[("cluster.yaml", &format!("{}bogus: 1\nmachines: {{}}\n", whole("a")))]);
    let report = lab.check(&[]);
    let of_language = |finding: &&Value| ["ICH-1101", "ICH-1009"].iter().any(|code| finding["code"] == *code);
    let found: Vec<&Value> =
        report["findings"].as_array().expect("findings").iter().filter(of_language).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&found).expect("JSON"), @r#"
    [
      {
        "code": "ICH-1101",
        "severity": "error",
        "message": "`bogus` is not a key of the inventory",
        "file": "cluster.yaml",
        "line": 12,
        "column": 1,
        "end_line": 12,
        "end_column": 6,
        "notes": [],
        "related": [],
        "remedy": "its keys are `schema`, `cluster`, `proxmox`, `placement`, `network`, `image`, `boot`, `os`, `defaults`, `roles`, `machines`, `patches`, `addons`, `store`, `secrets`",
        "explain": "ichor explain ICH-1101"
      },
      {
        "code": "ICH-1009",
        "severity": "error",
        "message": "`machines` is written twice",
        "file": "cluster.yaml",
        "line": 13,
        "column": 1,
        "end_line": 13,
        "end_column": 9,
        "notes": [],
        "related": [
          {
            "file": "cluster.yaml",
            "line": 3,
            "column": 1,
            "end_line": 3,
            "end_column": 9,
            "message": "first written here"
          }
        ],
        "remedy": "keep one of them",
        "explain": "ichor explain ICH-1009"
      }
    ]
    "#);
    assert_eq!(report["errors"], errors(&report).len());
    assert!(report["warnings"].is_u64());
    let as_yaml = lab.run(&["check", "-o", "yaml"]);
    assert!(as_yaml.stdout.starts_with("findings:\n- code: ICH-"), "{}", as_yaml.stdout);
}

#[test]
fn a_secret_in_an_inventory_is_never_shown() {
    let mistakes = [
        format!("proxmox:\n  token: {TOKEN}\n"),
        format!("proxmox: {{token: \"{TOKEN}\", bogus: 1, pool: [x]}}\n"),
        format!("proxmox:\n  token: >-\n    {TOKEN}\n"),
        format!("proxmox:\n  token: {{value: {TOKEN}}}\n"),
        format!("proxmox:\n  token: {TOKEN}\n  token: {TOKEN}\n"),
        format!("proxmox:\n  tokn: {TOKEN}\n"),
        format!("proxmox:\n  token: \"{TOKEN}\n"),
        format!("proxmox:\n\ttoken: {TOKEN}\n"),
        format!("proxmox:\n  token: {{env: '{TOKEN}'}}\n"),
        format!("proxmox:\n  endpoint: {TOKEN}\n"),
        format!("proxmox:\n  endpoint: https://root:{TOKEN}@pve1:8006\n"),
    ];
    for text in mistakes {
        let lab = Lab::new(&[("cluster.yaml", &text)]);
        for form in ["table", "json", "yaml"] {
            let Outcome { code, stdout, stderr } = lab.run(&["check", "-o", form]);
            assert_eq!(code, 3, "{text}");
            assert!(!stdout.contains("cdef") && !stderr.contains("cdef"), "{text}\n{stdout}\n{stderr}");
        }
    }
}

#[test]
fn a_plan_finding_beside_a_secret_does_not_show_it() {
    // Nothing on the secret's line says what it is, and only planning finds the bad pool.
    let proxmox = "proxmox: {endpoint: 'https://pve1.lab.example:8006', token:\n  hunter2, pool: ' a b '}\n";
    let network = "network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: [9.9.9.9]}\n";
    let lab = Lab::new(&[("cluster.yaml", &format!("{}{proxmox}{network}", own("a", 0)))]);
    let outcome = lab.run(&["plan", "--offline"]);
    assert_eq!(outcome.code, 3);
    assert!(outcome.stderr.contains("ICH-1114") && !outcome.stderr.contains("hunter2"), "{}", outcome.stderr);
    let beside = outcome.stderr.matches("the line is not shown").count();
    assert_eq!(beside, 2, "{}", outcome.stderr);
}

#[test]
fn findings_without_a_line_name_their_inventory() {
    let text = whole("a").replace(SHARED.split_once("network").expect("network").0, "");
    let lab = Lab::new(&[("cluster.yaml", &text)]);
    let outcome = lab.run(&["check"]);
    insta::assert_snapshot!(outcome.stderr, @r"
    error[ICH-1103]: `proxmox.endpoint` is missing
    --> cluster.yaml
     = help: add `proxmox: {endpoint: https://pve1.lab.example:8006}`

    1 error in cluster.yaml; nothing was changed
    hint: to learn more, run
        ichor explain ICH-1103
    ");
    let finding = &lab.check(&[])["findings"][0];
    assert_eq!((&finding["file"], &finding["line"]), (&json!("cluster.yaml"), &json!(1)));
    assert_eq!(finding["column"], 1);
}

#[test]
fn a_line_of_a_megabyte_is_shown_in_part() {
    let text = format!("cluster: {{{}bogus: 1}}\n", "name: a, ".repeat(120_000));
    let lab = Lab::new(&[("cluster.yaml", &text)]);
    let outcome = lab.run(&["check"]);
    assert_eq!(outcome.code, 3);
    assert!(outcome.stderr.lines().all(|line| line.chars().count() < 200));
    assert!(outcome.stderr.len() < 200_000, "{}", outcome.stderr.len());
    assert!(outcome.stderr.contains("more; `ichor check -o json` has all of them"));
}

#[test]
fn many_findings_on_one_line_are_placed_without_delay() {
    let text = format!("cluster: {{{}}}\n", (0..30_000).map(|i| format!("k{i}: 1, ")).collect::<String>());
    let report = Lab::new(&[("cluster.yaml", &text)]).check(&[]);
    let findings = report["findings"].as_array().expect("findings").iter();
    let unknown: Vec<&Value> = findings.filter(|finding| finding["code"] == "ICH-1101").collect();
    assert_eq!(unknown.len(), 30_000);
    assert_eq!(unknown[1]["column"], 18);
}

#[test]
fn colour_follows_the_flag_and_the_environment() {
    let lab = Lab::new(&[("cluster.yaml", "bogus: 1\n")]);
    let coloured = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = lab.command(arguments);
        Outcome::of(command.envs(variables.iter().copied())).stderr.contains('\u{1b}')
    };
    assert!(!coloured(&["check"], &[]), "a pipe is no terminal");
    assert!(coloured(&["check"], &[("CLICOLOR_FORCE", "1")]));
    assert!(coloured(&["check", "--color", "always"], &[]));
    assert!(coloured(&["check"], &[("ICHOR_COLOR", "always")]));
    assert!(!coloured(&["check", "--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&["check"], &[("NO_COLOR", "1")]));
    assert!(coloured(&["nonsense", "--color=always"], &[]), "usage errors follow it too");
    assert!(!coloured(&["nonsense"], &[]));
}

#[test]
fn findings_without_a_place_name_their_inventory_when_there_are_several() {
    let lab = Lab::new(&[("a.yaml", "cluster: {name: a}\n"), ("b.yaml", "cluster: {name: b}\n")]);
    let report = lab.check(&["-f", "."]);
    for finding in report["findings"].as_array().expect("findings").iter().filter(|f| f["file"].is_null()) {
        let notes = finding["notes"].to_string();
        assert!(notes.contains("in the inventory ./a.yaml") || notes.contains("in the inventory ./b.yaml"));
    }
}
