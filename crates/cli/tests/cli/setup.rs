//! `ichor pve setup`, as its users see it.

use std::fs;

use serde_json::Value;

use super::{Lab, Outcome, whole};

const PASSWORD: &str = "ichor-lab";

fn setup(lab: &Lab, more: &[&str]) -> Outcome {
    let words = ["--lab", "pve", "setup", "--password-file", "password"];
    lab.run(&[&words, more].concat())
}

fn lab() -> Lab {
    Lab::new(&[("cluster.yaml", &whole("demo")), ("password", &format!("{PASSWORD}\n"))])
}

fn secret(lab: &Lab) -> String {
    let text = fs::read_to_string(lab.path(".ichor/lab/demo/tokens.yaml")).expect("a token");
    let line = text.lines().find(|line| line.contains("proxmox:")).expect("a token");
    line.rsplit_once('=').expect("a secret").1.trim_end_matches('"').to_owned()
}

#[test]
fn an_account_is_shown_made_and_left_alone() {
    let lab = lab();
    let before = setup(&lab, &["--dry-run"]);
    assert_eq!(before.code, 2, "{}", before.stderr);
    let plan = before.stderr.lines().skip_while(|line| !line.starts_with("The account of"));
    insta::assert_snapshot!(plan.collect::<Vec<_>>().join("\n"));
    let nobody = setup(&lab, &[]);
    assert_eq!(nobody.code, 3, "there is nobody to ask: {}", nobody.stderr);
    let made = setup(&lab, &["--yes"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let again = setup(&lab, &["--yes"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stdout.contains("nothing to do"), "{}", again.stdout);
    let secret = secret(&lab);
    for outcome in [&before, &made, &again] {
        let all = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!all.contains(&secret) && !all.contains(PASSWORD), "{all}");
    }
}

#[test]
fn a_lost_secret_is_replaced_with_consent_alone() {
    let lab = lab();
    assert_eq!(setup(&lab, &["--yes"]).code, 0);
    let first = secret(&lab);
    fs::remove_file(lab.path(".ichor/lab/demo/tokens.yaml")).expect("it goes");
    let refused = setup(&lab, &["--yes"]);
    assert_eq!(refused.code, 7, "{}", refused.stderr);
    assert!(refused.stderr.contains("ichor --lab pve setup --new-token"), "{}", refused.stderr);
    let shown = setup(&lab, &["--yes", "--new-token", "--show-token"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert_ne!(secret(&lab), first);
    assert_eq!(shown.stdout, format!("ichor-demo@pve!demo={}\n", secret(&lab)));
}

#[test]
fn the_secret_of_another_token_is_not_written_over_without_a_word() {
    let lab = lab();
    assert_eq!(setup(&lab, &["--yes"]).code, 0);
    let kept = || fs::read(lab.path(".ichor/lab/demo/tokens.yaml")).expect("tokens");
    let (before, world) = (kept(), fs::read(lab.path(".ichor/lab/demo/lab.json")).expect("a lab"));
    let refused = setup(&lab, &["--yes", "--user", "other@pve"]);
    assert_eq!(refused.code, 7, "{}", refused.stderr);
    for word in [
        "ICH-3149",
        "token `ichor-demo@pve!demo` is kept",
        "ichor --lab pve setup --user ichor-demo@pve --token demo",
        "ichor --lab pve setup --replace-token",
    ] {
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
    assert!(!refused.stderr.contains(&secret(&lab)), "{}", refused.stderr);
    assert_eq!(kept(), before);
    let users = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("other@pve");
    assert!(!users(&world) && !users(&fs::read(lab.path(".ichor/lab/demo/lab.json")).expect("a lab")));
    let asked = setup(&lab, &["--yes", "--user", "other@pve", "--replace-token"]);
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    assert!(String::from_utf8_lossy(&kept()).contains("other@pve!demo="));
    assert_eq!(setup(&lab, &["--yes", "--user", "other@pve"]).code, 0, "the one that is kept now");
}

#[test]
fn a_second_factor_is_read_from_a_file_where_nobody_can_be_asked() {
    let lab = lab();
    assert_eq!(setup(&lab, &["--dry-run"]).code, 2);
    let path = lab.path(".ichor/lab/demo/lab.json");
    let mut world: Value = serde_json::from_slice(&fs::read(&path).expect("a lab")).expect("JSON");
    world["pve"]["access"]["users"]["root@pam"]["totp"] = "123456".into();
    fs::write(&path, world.to_string()).expect("a lab");
    let asked = setup(&lab, &["--dry-run"]);
    assert_eq!(asked.code, 4, "{}", asked.stderr);
    assert!(asked.stderr.contains("ICH-3148") && asked.stderr.contains("--totp-file"), "{}", asked.stderr);
    lab.write("code", "654321\n");
    let wrong = setup(&lab, &["--yes", "--totp-file", "code"]);
    assert_eq!(wrong.code, 4, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("does not take the code of `root@pam`"), "{}", wrong.stderr);
    assert_eq!(setup(&lab, &["--yes", "--totp-file", "password"]).code, 3, "one file cannot be both");
    lab.write("code", "123456\n");
    let made = setup(&lab, &["--yes", "--totp-file", "code"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    for outcome in [&asked, &wrong, &made] {
        assert!(!outcome.stderr.contains("123456") && !outcome.stdout.contains("123456"));
    }
}

#[test]
fn accounts_of_add_ons_are_made_by_the_same_verb() {
    let lab = lab();
    for whom in ["ccm", "csi"] {
        let made = setup(&lab, &["--yes", "--for", whom]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        assert!(made.stdout.contains(&format!("under `demo.{whom}`")), "{}", made.stdout);
    }
}

#[test]
fn who_cannot_log_in_changes_nothing() {
    let lab = lab();
    lab.write("password", "wrong");
    let refused = setup(&lab, &["--yes"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("error[ICH-3148]: Proxmox does not let `root@pam` in"),
        "{}",
        refused.stderr
    );
    lab.write("password", "");
    assert_eq!(setup(&lab, &["--yes"]).code, 3);
    let narrowed =
        lab.run(&["--lab", "pve", "setup", "--yes", "--user", "ichor@pve", "--password-file", "none"]);
    assert_eq!(narrowed.code, 3, "{}", narrowed.stderr);
    lab.write("password", PASSWORD);
    let narrowed = setup(&lab, &["--yes", "--user", "ichor@pve"]);
    assert_eq!(narrowed.code, 7, "{}", narrowed.stderr);
    assert!(narrowed.stderr.contains("it has role `Administrator` on `/`"), "{}", narrowed.stderr);
}
