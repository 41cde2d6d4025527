//! `ichor secrets restore`, by the real binary and on real files.

use std::fs;

use serde_json::Value;

use super::{Lab, Outcome, lab_with_secrets, whole};

const BUNDLE: &str = ".ichor/a/secrets.sops.yaml";

fn stops(lab: &Lab, words: &[&str], code: i32, saying: &[&str]) {
    let outcome = lab.run(words);
    assert_eq!(outcome.code, code, "{words:?}: {}", outcome.stderr);
    for text in saying {
        assert!(outcome.stderr.contains(text), "{words:?}: {text} is not in\n{}", outcome.stderr);
    }
}

#[test]
fn secrets_that_got_lost_or_damaged_come_back() {
    let lab = lab_with_secrets(&whole("a"));
    let good = fs::read(lab.path(BUNDLE)).expect("secrets");
    for (damage, code) in [(None, "ICH-2101"), (Some(&b""[..]), "ICH-2103"), (Some(&good[..300]), "ICH-2130")]
    {
        match damage {
            None => fs::remove_file(lab.path(BUNDLE)).expect("removed"),
            Some(bytes) => fs::write(lab.path(BUNDLE), bytes).expect("damaged"),
        }
        for words in [&["secrets", "show"][..], &["kubeconfig"], &["render"]] {
            stops(&lab, words, 3, &[code, "has the", "    ichor secrets restore\n"]);
        }
        let both = ["ICH-2102", "    ichor secrets restore\n", "    mv .ichor/a .ichor/a.old"];
        stops(&lab, &["secrets", "new"], 7, &both);
        let restored = lab.run(&["secrets", "restore", "-o", "json"]);
        assert_eq!(restored.code, 0, "{}", restored.stderr);
        assert_eq!(fs::read(lab.path(BUNDLE)).expect("secrets"), good);
        let told: Value = serde_json::from_str(&restored.stdout).expect("JSON");
        assert_eq!(told["was_there"], false, "{told}");
        assert!(told["generation"]["number"].is_u64() && told["generation"]["by"].is_string(), "{told}");
        assert_eq!(told["put_aside"].as_array().map(Vec::len), Some(usize::from(damage.is_some())), "{told}");
    }
    let restored = lab.run(&["secrets", "restore"]);
    assert!(
        restored.stdout.starts_with("nothing to do: the secrets in .ichor/a/secrets.sops.yaml are whole")
    );
    stops(
        &lab,
        &["secrets", "restore", "99"],
        3,
        &["ICH-2136", "there is no generation 99", "has whole secrets"],
    );
    let listed = lab.run(&["secrets", "restore", "--list"]).stdout;
    assert!(listed.starts_with("NO") && listed.contains("whole"), "{listed}");
    let log = lab.run(&["log", "show"]).stdout;
    assert!(log.contains("secrets restore"), "{log}");
}

#[test]
fn an_import_takes_the_place_of_a_file_that_is_no_bundle() {
    let lab = lab_with_secrets(&whole("a"));
    fs::write(lab.path(BUNDLE), "").expect("emptied");
    let imported = lab.run(&["secrets", "import", "given/secrets.yaml"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(imported.stdout.contains("what was there before is in .ichor/a/secrets.sops.yaml.old"));
    assert_eq!(lab.run(&["secrets", "show"]).code, 0);
}

#[test]
fn secrets_that_only_others_can_open_are_not_replaced() {
    let lab = lab_with_secrets(&whole("a"));
    fs::remove_file(lab.path(BUNDLE)).expect("removed");
    fs::create_dir(lab.path("home-of-another")).expect("a home");
    let stops = |words: &[&str], code: i32, saying: &[&str]| {
        let outcome = Outcome::of(lab.command(words).env("HOME", lab.path("home-of-another")));
        assert_eq!(outcome.code, code, "{words:?}: {}", outcome.stderr);
        for text in saying {
            assert!(outcome.stderr.contains(text), "{words:?}: {text} is not in\n{}", outcome.stderr);
        }
    };
    let key = ["no key of yours opens them", "    ichor secrets restore\n"];
    stops(&["secrets", "show"], 3, &["ICH-2101", key[0], key[1]]);
    stops(&["secrets", "new"], 7, &["ICH-2102", key[0], key[1]]);
    stops(&["secrets", "restore"], 3, &["ICH-2136", key[0]]);
    assert_eq!(lab.run(&["secrets", "restore"]).code, 0);
}
