//! Secrets at rest: who can open them, who makes the key, and what is left when a run stops anywhere.

use std::path::{Path, PathBuf};

use ichor_model::SecretRef;
use ichor_spec::Sources;

use super::{INVENTORY, Memory, codes, lab, messages, resolve, rsa, site};
use crate::{
    Halt, HaltKind, Keeping, Site,
    bundle::Input,
    materials,
    secrets::{self, Change, Changed, Subject},
    system::Openness,
};

const BUNDLE: &str = "home/.ichor/lab/secrets.sops.yaml";
const PLAIN: &str = "home/.ichor/lab/secrets.yaml";
const KEYS: &str = "user/.config/sops/age/keys.txt";
const OTHER: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

fn sealed(desired: &ichor_model::Desired) -> Site<'_> {
    Site { keeping: Keeping::Encrypted, ..site(desired) }
}

/// A machine of somebody who has a home, and nothing in it.
fn machine() -> Memory {
    with(&[])
}

fn with(variables: &[(&str, &str)]) -> Memory {
    let all = [("HOME", "user")].iter().chain(variables);
    Memory { variables: all.map(|(k, v)| ((*k).into(), (*v).into())).collect(), ..Memory::default() }
}

fn make(memory: &Memory) {
    secrets::new(memory, sealed(lab()), || Ok(rsa())).unwrap_or_else(|halt| panic!("{halt:?}"));
}

fn export(memory: &Memory) -> Result<String, Halt> {
    let (made, _) = secrets::export(memory, sealed(lab()), &mut Sources::default())?;
    Ok(made.text.expose().to_owned())
}

/// What must be in no encrypted file: the longest words of the plain one.
fn canaries(plain: &str) -> Vec<String> {
    let words = plain.split_ascii_whitespace().filter(|word| word.len() > 15 && !word.ends_with(':'));
    words.map(str::to_owned).collect()
}

#[test]
fn new_secrets_are_encrypted_to_a_key_that_is_made_once() {
    let memory = machine();
    let new = secrets::new(&memory, sealed(lab()), || Ok(rsa())).expect("made");
    let chosen = new.chosen.expect("encrypted");
    let made = chosen.made.expect("an identity");
    assert_eq!(made.path, Path::new(KEYS));
    let keys = memory.text(KEYS).expect("keys");
    assert!(keys.contains(&made.recipient) && keys.contains("\nAGE-SECRET-KEY-1"), "{keys}");
    let text = memory.text(BUNDLE).expect("a bundle");
    assert!(text.contains(&made.recipient) && memory.text(PLAIN).is_none());
    let plain = export(&memory).expect("opened");
    let canaries = canaries(&plain);
    assert!(canaries.len() > 10);
    for canary in canaries {
        assert!(!text.contains(&canary), "{canary}");
    }
    let shown = secrets::show(&memory, sealed(lab()), &mut Sources::default()).expect("shown");
    assert_eq!(shown.recipients, Some(vec![made.recipient.clone()]));
    assert!(shown.findings.iter().next().is_none(), "{:?}", shown.findings);
    assert_eq!(secrets::identity(&memory).expect("own").recipient, made.recipient);
    assert_eq!(memory.text(KEYS), Some(keys), "a key is made once");
}

#[test]
fn keys_are_found_where_sops_finds_them() {
    let memory = machine();
    make(&memory);
    let (keys, bundle) = (memory.text(KEYS).expect("keys"), memory.text(BUNDLE).expect("bundle"));
    let line = keys.lines().last().expect("a key").to_owned();
    for (variables, path) in [
        (vec![("SOPS_AGE_KEY", line.as_str())], "nowhere"),
        (vec![("SOPS_AGE_KEY_FILE", "given.txt")], "given.txt"),
        (vec![("XDG_CONFIG_HOME", "conf")], "conf/sops/age/keys.txt"),
    ] {
        let other = with(&variables);
        other.put(BUNDLE, bundle.as_bytes());
        other.put("home/.ichor/lab/cluster.json", b"{\"schema\": 1, \"contract\": \"1.13\"}");
        other.put(path, keys.as_bytes());
        export(&other).unwrap_or_else(|halt| panic!("{variables:?}: {halt:?}"));
        assert!(other.text(KEYS).is_none());
    }
    let stranger = machine();
    stranger.put(BUNDLE, bundle.as_bytes());
    let halt = export(&stranger).expect_err("no key");
    assert_eq!(codes(&halt), ["ICH-2130"]);
    assert!(messages(&halt.findings).contains(KEYS), "{}", messages(&halt.findings));
    stranger.put(KEYS, b"AGE-SECRET-KEY-1NONSENSE\n");
    let halt = export(&stranger).expect_err("a bad key");
    assert_eq!(codes(&halt), ["ICH-2130", "ICH-2133"]);
    assert!(!messages(&halt.findings).contains("NONSENSE"));
    memory.open.borrow_mut().insert(KEYS.into(), Openness::Readable);
    let own = secrets::identity(&memory).expect("own");
    assert!(messages(&own.findings).contains("chmod 600"), "{:?}", own.findings);
    let shown = secrets::show(&memory, sealed(lab()), &mut Sources::default()).expect("shown");
    assert!(messages(&shown.findings).contains("chmod 600"), "{:?}", shown.findings);
}

#[test]
fn recipients_come_from_the_inventory_the_environment_or_the_rules_of_sops() {
    let own = secrets::identity(&machine()).expect("own").recipient;
    let asked = format!("secrets: {{age: [{OTHER}, {own}]}}\n");
    let rules = format!(
        "keys: [&me {own}]\ncreation_rules:\n  - path_regex: other\n    age: {OTHER}\n  - path_regex: secrets\\.sops\\.yaml$\n    key_groups: [{{age: [*me, {OTHER}]}}]\n"
    );
    for (inventory, variables, rules) in [
        (asked.as_str(), vec![], ""),
        ("", vec![("SOPS_AGE_RECIPIENTS".to_owned(), format!("{own}, {OTHER}"))], ""),
        ("", vec![], rules.as_str()),
    ] {
        let mut memory = machine();
        memory.variables.extend(variables);
        secrets::identity(&memory).expect("own");
        memory.directories.borrow_mut().extend([PathBuf::from("home"), PathBuf::from("home/.ichor/lab")]);
        if !rules.is_empty() {
            memory.put("home/.sops.yaml", rules.as_bytes());
        }
        let desired = resolve(&format!("{INVENTORY}{inventory}"));
        let new =
            secrets::new(&memory, sealed(&desired), || Ok(rsa())).unwrap_or_else(|halt| panic!("{halt:?}"));
        let mut recipients: Vec<String> =
            new.chosen.expect("encrypted").policy.recipients.iter().map(|it| it.text().to_owned()).collect();
        recipients.sort_unstable();
        let mut wanted = vec![own.clone(), OTHER.to_owned()];
        wanted.sort_unstable();
        assert_eq!(recipients, wanted, "{inventory}{rules}");
    }
}

#[test]
fn nothing_is_made_that_could_not_be_opened_or_is_asked_for_wrongly() {
    for (inventory, rules, kind) in [
        (format!("secrets: {{age: [{OTHER}]}}\n"), "", HaltKind::Refused),
        (String::new(), "creation_rules: [{pgp: ABCD}]\n", HaltKind::Invalid),
        (String::new(), "creation_rules: [{age: nonsense}]\n", HaltKind::Invalid),
        (String::new(), "creation_rules: [{path_regex: '(', age: x}]\n", HaltKind::Invalid),
        (String::new(), "creation_rules: {[\n", HaltKind::Invalid),
        ("secrets: {file: secrets.yaml.age}\n".to_owned(), "", HaltKind::Invalid),
    ] {
        let memory = machine();
        memory.directories.borrow_mut().insert("home".into());
        if !rules.is_empty() {
            memory.put("home/.sops.yaml", rules.as_bytes());
        }
        let desired = resolve(&format!("{INVENTORY}{inventory}"));
        let halt = secrets::new(&memory, sealed(&desired), || Ok(rsa())).expect_err(rules);
        assert_eq!(halt.kind, kind, "{inventory}{rules}: {halt:?}");
        assert!(memory.text(BUNDLE).is_none() && memory.text(PLAIN).is_none());
    }
    let homeless = Memory::default();
    let halt = secrets::new(&homeless, sealed(lab()), || Ok(rsa())).expect_err("no home");
    assert_eq!(codes(&halt), ["ICH-2133"]);
}

#[test]
fn a_plain_bundle_is_read_and_told_of_and_encrypted_when_asked() {
    let plain = super::with_secrets().text(PLAIN).expect("plain");
    let mut stopped = 0;
    for acts in 0.. {
        let memory = machine();
        memory.put(PLAIN, plain.as_bytes());
        memory.put("home/.ichor/lab/cluster.json", b"{\"schema\": 1, \"contract\": \"1.13\"}");
        let shown = secrets::show(&memory, sealed(lab()), &mut Sources::default()).expect("shown");
        assert!(shown.recipients.is_none() && messages(&shown.findings).contains("ichor secrets encrypt"));
        memory.acts_left.set(Some(acts));
        let first = secrets::encrypt(&memory, sealed(lab()), Subject::Bundle);
        memory.acts_left.set(None);
        assert_eq!(export(&memory).expect("the same secrets"), plain, "after {acts} acts");
        let second = secrets::encrypt(&memory, sealed(lab()), Subject::Bundle).expect("encrypted");
        assert_eq!((export(&memory).expect("the same"), memory.text(PLAIN)), (plain.clone(), None));
        assert!(secrets::new(&memory, sealed(lab()), || Ok(rsa())).is_err(), "never replaced");
        if let Ok(first) = first {
            assert_eq!((first.change, second.change), (Change::Encrypted, Change::Nothing));
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 8, "only {stopped} acts");
}

#[test]
fn secrets_are_whole_or_absent_wherever_their_making_stops() {
    let mut stopped = 0;
    for acts in 0.. {
        let memory = machine();
        memory.acts_left.set(Some(acts));
        let first = secrets::new(&memory, sealed(lab()), || Ok(rsa()));
        let left = memory.text(BUNDLE);
        memory.acts_left.set(None);
        let second = secrets::new(&memory, sealed(lab()), || Ok(rsa()));
        match &left {
            Some(kept) => assert_eq!(memory.text(BUNDLE).as_ref(), Some(kept)),
            None => assert!(second.is_ok(), "{acts}: {second:?}"),
        }
        export(&memory).unwrap_or_else(|halt| panic!("after {acts} acts: {halt:?}"));
        if first.is_ok() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 12, "only {stopped} acts");
}

/// Does something with a bundle, stopped after any act, and demands that the old or the new file is there.
fn whole_wherever_it_stops(act: impl Fn(&Memory) -> Result<Changed, Halt>) {
    let before = machine();
    make(&before);
    let plain = export(&before).expect("opened");
    let old = before.text(BUNDLE);
    let mut stopped = 0;
    for acts in 0.. {
        let memory = machine();
        *memory.files.borrow_mut() = before.files.borrow().clone();
        memory.drawn.set(77);
        memory.acts_left.set(Some(acts));
        let done = act(&memory);
        memory.acts_left.set(None);
        assert_eq!(export(&memory).expect("opened"), plain, "after {acts} acts");
        if done.is_ok() {
            assert_ne!(memory.text(BUNDLE), old);
            break;
        }
        stopped += 1;
        assert!(act(&memory).is_ok(), "again, after {acts} acts");
    }
    assert!(stopped > 3, "only {stopped} acts");
}

#[test]
fn keys_and_recipients_change_at_once_or_not_at_all() {
    whole_wherever_it_stops(|memory| secrets::rotate_key(memory, sealed(lab()), Subject::Bundle));
    whole_wherever_it_stops(|memory| {
        secrets::add_recipients(memory, sealed(lab()), Subject::Bundle, &[OTHER.to_owned()])
    });
}

#[test]
fn recipients_are_added_and_removed_but_never_oneself() {
    let memory = machine();
    make(&memory);
    let own = secrets::identity(&memory).expect("own").recipient;
    let site = sealed(lab());
    let other = [OTHER.to_owned()];
    let added = secrets::add_recipients(&memory, site, Subject::Bundle, &other).expect("added");
    assert_eq!((added.change, added.recipients), (Change::Added, vec![own.clone(), OTHER.to_owned()]));
    let again = secrets::add_recipients(&memory, site, Subject::Bundle, &other).expect("added");
    assert_eq!(again.change, Change::Nothing);
    let halt = secrets::remove_recipients(&memory, site, Subject::Bundle, std::slice::from_ref(&own));
    assert_eq!(halt.expect_err("oneself").kind, HaltKind::Refused);
    let removed = secrets::remove_recipients(&memory, site, Subject::Bundle, &other).expect("removed");
    assert_eq!((removed.change, removed.recipients), (Change::Removed, vec![own]));
    for wrong in [OTHER, "nonsense"] {
        let halt = secrets::remove_recipients(&memory, site, Subject::Bundle, &[wrong.to_owned()]);
        assert_eq!(codes(&halt.expect_err(wrong)), ["ICH-2131"]);
    }
    export(&memory).expect("still opened");
}

#[test]
fn a_file_is_edited_and_nothing_is_left_in_plain() {
    let memory = machine();
    let site = sealed(lab());
    let path = Path::new("home/values.sops.yaml");
    let run = |text: &'static str| {
        secrets::edit(&memory, site, Subject::File(path), &mut Sources::default(), &mut |file| {
            memory.files.borrow_mut().insert(file.to_owned(), text.into());
            // Editors leave copies behind.
            memory.files.borrow_mut().insert(file.with_extension("swp"), text.into());
            if text.contains("fail") { Err("it failed".to_owned()) } else { Ok(()) }
        })
    };
    assert_eq!(
        run("proxmox:\n    token: canary-token\n    port: 8006\n").expect("made").change,
        Change::Edited
    );
    let sealed_text = memory.text("home/values.sops.yaml").expect("a file");
    for wrong in ["a: [", "fail", "a: &x 1"] {
        run(wrong).expect_err(wrong);
        assert_eq!(memory.text("home/values.sops.yaml").as_ref(), Some(&sealed_text));
    }
    assert_eq!(
        run("proxmox:\n    token: canary-token\n    port: 8007\n").expect("edited").change,
        Change::Edited
    );
    let everything: String = memory.paths().iter().filter_map(|path| memory.text(path)).collect();
    assert!(!everything.contains("canary") && !memory.paths().iter().any(|path| path.contains("edit")));
    let find = |place: &str| materials::resolve(&memory, site, &SecretRef::Sops(place.to_owned()));
    assert_eq!(find("values.sops.yaml#proxmox.token").expect("found").expose(), "canary-token");
    assert_eq!(find("values.sops.yaml#proxmox.port").expect("found").expose(), "8007");
    for wrong in ["values.sops.yaml#proxmox", "values.sops.yaml#none", "none.sops.yaml#a"] {
        let finding = find(wrong).expect_err(wrong);
        assert_eq!(finding.code.to_string(), "ICH-2106");
    }
    memory.put("home/plain.yaml", b"a: canary");
    let finding = find("plain.yaml#a").expect_err("a plain file");
    assert!(finding.code.to_string() == "ICH-2130" && !finding.message.contains("canary"));
}

#[test]
fn the_bundle_is_edited_only_into_a_bundle() {
    let memory = machine();
    make(&memory);
    let before = memory.text(BUNDLE);
    let edit = |change: &dyn Fn(&str) -> String| {
        secrets::edit(&memory, sealed(lab()), Subject::Bundle, &mut Sources::default(), &mut |file| {
            let text = memory.text(&file.display().to_string()).expect("the plain text");
            memory.put(&file.display().to_string(), change(&text).as_bytes());
            Ok(())
        })
    };
    assert_eq!(edit(&str::to_owned).expect("unchanged").change, Change::Nothing);
    let halt = edit(&|text| text.replace("secretboxencryptionsecret", "other")).expect_err("no bundle");
    assert_eq!(codes(&halt)[0], "ICH-2103");
    assert_eq!(memory.text(BUNDLE), before);
    edit(&|text| format!("# mine\n{text}")).expect("a comment");
    assert_ne!(memory.text(BUNDLE), before);
    export(&memory).expect("still a bundle");
}

#[test]
fn what_was_tampered_with_is_refused_and_never_replaced() {
    let memory = machine();
    make(&memory);
    let text = memory.text(BUNDLE).expect("a bundle");
    let value = text.split("ENC[").nth(1).and_then(|rest| rest.split(']').next()).expect("a value");
    let plain = export(&memory).expect("opened");
    for changed in [
        text.replacen(value, &value.replace("data:", "data:AAAA"), 1),
        text.split("sops:").next().expect("text").to_owned(),
        text.replace("lastmodified: \"2", "lastmodified: \"1"),
        text.replacen("cluster:", "cluster2:", 1),
        plain.clone() + "sops: {mac: x, lastmodified: y}\n",
    ] {
        memory.put(BUNDLE, changed.as_bytes());
        let halt = export(&memory).expect_err("tampered");
        assert_eq!(codes(&halt)[0], "ICH-2130", "{changed}");
        let said = messages(&halt.findings);
        assert!(canaries(&plain).iter().all(|canary| !said.contains(canary)), "{said}");
        for act in [secrets::rotate_key, secrets::encrypt] {
            let _ = act(&memory, sealed(lab()), Subject::Bundle);
            assert_eq!(memory.text(BUNDLE), Some(changed.clone()));
        }
    }
}

#[test]
fn what_sops_encrypted_is_imported() {
    let memory = machine();
    make(&memory);
    let elsewhere = machine();
    elsewhere.put("talsecret.sops.yaml", memory.text(BUNDLE).expect("bundle").as_bytes());
    elsewhere.put(KEYS, memory.text(KEYS).expect("keys").as_bytes());
    elsewhere.drawn.set(99);
    let input = Input::File("talsecret.sops.yaml".into());
    let run = || secrets::import(&elsewhere, sealed(lab()), &input, &mut Sources::default());
    assert!(!run().expect("imported").was_there);
    assert_eq!(export(&elsewhere).expect("opened"), export(&memory).expect("opened"));
    assert!(run().expect("imported again").was_there);
}

#[test]
fn commands_give_secrets_within_limits() {
    let mut memory = machine();
    memory.programs.insert("pass show pve".to_owned(), Some("canary\n".to_owned()));
    memory.programs.insert("fails".to_owned(), None);
    memory.programs.insert("silent".to_owned(), Some("\n".to_owned()));
    memory.programs.insert("loud".to_owned(), Some("canary".repeat(20_000)));
    let run = |words: &str| {
        let words = words.split(' ').map(str::to_owned).collect();
        materials::resolve(&memory, sealed(lab()), &SecretRef::Command(words))
    };
    assert_eq!(run("pass show pve").expect("printed").expose(), "canary");
    for words in ["fails canary", "fails", "silent", "loud", "none --token canary"] {
        let finding = run(words).expect_err(words);
        assert_eq!(finding.code.to_string(), "ICH-2106");
        assert!(!format!("{finding:?}").contains("canary"), "{finding:?}");
    }
}

#[test]
fn whoever_has_no_token_yet_is_told_what_makes_one() {
    let (memory, mut desired) = (machine(), lab().clone());
    let token = SecretRef::Sops("tokens.sops.yaml#lab.proxmox".into());
    let told = |desired: &ichor_model::Desired, memory: &Memory| {
        let finding = materials::resolve(memory, sealed(desired), &token).expect_err("no file");
        assert_eq!(finding.code.to_string(), "ICH-2106");
        finding.remedy.expect("a remedy")
    };
    assert!(!told(&desired, &memory).contains("pve setup"), "it is another secret");
    desired.proxmox.token = Some(token.clone());
    assert!(told(&desired, &memory).contains("\n    ichor pve setup\n"));
    memory.directories.borrow_mut().insert("home/tokens.sops.yaml".into());
    assert!(!told(&desired, &memory).contains("pve setup"), "something is there");
}
