//! Rendering over what is there.

use std::path::{Path, PathBuf};

use ichor_model::Desired;
use ichor_spec::Sources;

use super::{INVENTORY, Memory, codes, lab, messages, resolve, site, with_secrets};
use crate::{
    Halt, HaltKind, Origin, Site,
    render::{self, Outcome, Request, State},
    system::Openness,
};

fn run(memory: &Memory, desired: &Desired, overwrite: bool) -> Result<(Vec<Outcome>, String), Halt> {
    let request = Request { directory: Path::new("out"), secrets: None, overwrite };
    let drawn = render::draw(memory, site(desired), request, &mut Sources::default())?;
    Ok((render::write(memory, &drawn)?, messages(&drawn.findings)))
}

fn states(outcomes: &[Outcome], state: State) -> Vec<&str> {
    outcomes.iter().filter(|file| file.state == state).map(|file| file.path.as_str()).collect()
}

#[test]
fn rendering_twice_writes_nothing_the_second_time() {
    let memory = with_secrets();
    let (first, _) = run(&memory, lab(), false).expect("rendered");
    assert_eq!(states(&first, State::New).len(), first.len());
    let before = memory.files.borrow().clone();
    memory.acts_left.set(Some(0));
    let (second, _) = run(&memory, lab(), false).expect("rendered again");
    assert_eq!(states(&second, State::Unchanged).len(), second.len());
    assert_eq!(*memory.files.borrow(), before);
}

#[test]
fn a_talosconfig_is_renewed_in_the_second_half_of_its_life() {
    let memory = with_secrets();
    run(&memory, lab(), false).expect("rendered");
    memory.later.set(180 * 86_400);
    let (early, _) = run(&memory, lab(), false).expect("early");
    assert_eq!(states(&early, State::Changed), [""; 0]);
    memory.later.set(190 * 86_400);
    let (late, _) = run(&memory, lab(), false).expect("late");
    assert_eq!(states(&late, State::Changed), ["talosconfig"]);
}

#[test]
fn files_of_others_stop_everything() {
    let memory = with_secrets();
    memory.put("out/worker.yaml", b"mine");
    let halt = run(&memory, lab(), false).expect_err("not ours");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2109".to_owned()]));
    assert_eq!(memory.text("out/secrets.yaml"), None, "something was written");
    let (forced, _) = run(&memory, lab(), true).expect("as asked");
    assert_eq!(states(&forced, State::Overwritten), ["worker.yaml"]);

    memory.put("out/worker.yaml", b"edited");
    memory.put("out/talosconfig", b"edited");
    let halt = run(&memory, lab(), false).expect_err("edited");
    assert_eq!(codes(&halt), ["ICH-2109", "ICH-2109"]);
    assert!(messages(&halt.findings).contains("changed by hand"));
}

#[test]
fn our_own_files_are_replaced_and_left_over_ones_named() {
    let memory = with_secrets();
    let two = resolve(&INVENTORY.replace("worker, count: 1", "worker, count: 2"));
    run(&memory, &two, false).expect("two workers");
    let (fewer, said) = run(&memory, lab(), false).expect("one worker");
    assert_eq!(states(&fewer, State::Changed), ["talos-machines.auto.tfvars.json"]);
    assert!(said.contains("`out/machines/worker-2.yaml` is left over"), "{said}");
    assert!(memory.text("out/machines/worker-2.yaml").is_some());
    let (again, _) = run(&memory, &two, false).expect("two workers again");
    assert_eq!(states(&again, State::Unchanged).len(), again.len() - 1, "the left-over file is still ours");
}

#[test]
fn a_file_open_to_others_is_written_again() {
    let memory = with_secrets();
    run(&memory, lab(), false).expect("rendered");
    memory.open.borrow_mut().insert("out/secrets.yaml".into(), Openness::Readable);
    let (outcomes, _) = run(&memory, lab(), false).expect("rendered again");
    assert_eq!(states(&outcomes, State::Changed), ["secrets.yaml"]);
}

fn refused(memory: &Memory, site: Site<'_>, directory: &str, secrets: Option<&str>) -> Vec<String> {
    let request =
        Request { directory: Path::new(directory), secrets: secrets.map(Path::new), overwrite: true };
    let halt = render::draw(memory, site, request, &mut Sources::default()).expect_err(directory);
    assert_eq!(halt.kind, HaltKind::Refused, "{directory}: {halt:?}");
    codes(&halt)
}

#[test]
fn nothing_is_rendered_around_the_inventory_or_the_store() {
    let memory = with_secrets();
    let files = [PathBuf::from("top/home/ichor.yaml")];
    for (path, text) in with_secrets().files.borrow().iter() {
        memory.files.borrow_mut().insert(Path::new("top").join(path), text.clone());
    }
    let site = Site { files: &files, directory: Path::new("top/home"), ..site(lab()) };
    for directory in ["top/home", "top", "top/home/.ichor", "top/home/.ichor/lab", "top/home/.ichor/new"] {
        assert_eq!(refused(&memory, site, directory, None), ["ICH-2117"], "{directory}");
    }
    let inside = resolve(&format!("{INVENTORY}store: {{path: out/store}}\n"));
    let site = Site { desired: &inside, ..site };
    let given = Some("home/.ichor/lab/secrets.yaml");
    assert_eq!(refused(&memory, site, "top/home/out", given), ["ICH-2117"]);
}

#[test]
fn the_bundle_is_not_rendered_over() {
    let memory = with_secrets();
    let bundle = memory.text("home/.ichor/lab/secrets.yaml").expect("secrets");
    memory.put("home/out/secrets.yaml", bundle.as_bytes());
    memory.put("given/worker.yaml", bundle.as_bytes());
    let desired = resolve(&format!("{INVENTORY}secrets: {{file: out/secrets.yaml}}\n"));
    assert_eq!(refused(&memory, site(&desired), "home/out", None), ["ICH-2119"]);
    let other = Some("home/.ichor/lab/secrets.yaml");
    assert_eq!(refused(&memory, site(&desired), "home/out", other), ["ICH-2119"]);
    assert_eq!(refused(&memory, site(lab()), "given", Some("given/worker.yaml")), ["ICH-2119"]);
    assert_eq!(memory.text("home/out/secrets.yaml"), Some(bundle));
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let memory = with_secrets();
    run(&memory, lab(), false).expect("rendered");
    let before = memory.files.borrow().clone();
    let other = resolve(&INVENTORY.replace("name: lab", "name: other"));
    memory.put(
        "home/.ichor/other/secrets.yaml",
        memory.text("home/.ichor/lab/secrets.yaml").expect("it").as_bytes(),
    );
    let halt = run(&memory, &other, false).expect_err("of another");
    assert_eq!(halt.kind, HaltKind::Refused);
    assert!(messages(&halt.findings).contains("holds the files of cluster `lab`"));
    assert!(before.iter().all(|(path, bytes)| memory.files.borrow().get(path) == Some(bytes)));
    run(&memory, &other, true).expect("as asked");
}

#[test]
fn a_list_that_ichor_did_not_write_needs_a_word() {
    for list in ["", "{}", "{\"schema\": 1, \"files\": {}}"] {
        let memory = with_secrets();
        memory.put("out/.rendered.json", list.as_bytes());
        let halt = run(&memory, lab(), false).expect_err("foreign");
        assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2109".to_owned()]));
        run(&memory, lab(), true).expect("as asked");
        run(&memory, lab(), false).expect("ours now");
    }
}

#[test]
fn open_directories_are_closed_if_they_are_ours() {
    let memory = with_secrets();
    let open = |open| memory.open.borrow_mut().extend([(PathBuf::from("out"), open)]);
    memory.directories.borrow_mut().insert("out".into());
    open(Openness::Writable);
    run(&memory, lab(), false).expect("an empty directory");
    assert!(memory.open.borrow().is_empty());
    open(Openness::Readable);
    run(&memory, lab(), false).expect("ours");
    assert!(memory.open.borrow().is_empty());

    let memory = with_secrets();
    memory.directories.borrow_mut().insert("out".into());
    memory.put("out/diary", b"dear diary\n");
    memory.open.borrow_mut().insert("out".into(), Openness::Writable);
    let halt = run(&memory, lab(), false).expect_err("anybody's");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2117".to_owned()]));
    memory.open.borrow_mut().insert("out".into(), Openness::Readable);
    let (_, told) = run(&memory, lab(), false).expect("somebody's");
    assert!(told.contains("chmod 700 out") && memory.open.borrow().contains_key(Path::new("out")), "{told}");
}

#[test]
fn a_link_to_a_directory_is_not_followed() {
    let memory = with_secrets();
    memory.links.borrow_mut().insert("out/machines".into());
    for overwrite in [false, true] {
        let halt = run(&memory, lab(), overwrite).expect_err("a link");
        assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2109".to_owned()]));
    }
}

#[test]
fn what_killed_runs_left_behind_is_removed() {
    let memory = with_secrets();
    run(&memory, lab(), false).expect("rendered");
    let before = memory.paths();
    let strays = [
        "out/.secrets.yaml",
        "out/machines/.cp-1.yaml",
        "out/..rendered.json",
        "home/.ichor/lab/.secrets.yaml",
    ];
    for stray in strays {
        memory.put(&format!("{stray}.0123456789abcdef.tmp"), b"half a sec");
    }
    memory.put("out/.mine.0123456789abcdef.tmp", b"mine");
    let (again, _) = run(&memory, lab(), false).expect("rendered again");
    assert_eq!(states(&again, State::Unchanged).len(), again.len());
    let kept: Vec<String> = memory.paths().into_iter().filter(|path| !path.contains(".mine.")).collect();
    assert_eq!((kept.len(), &kept), (memory.paths().len() - 1, &before));
}

#[test]
fn given_secrets_without_a_contract_are_warned_about() {
    let memory = with_secrets();
    let bundle = memory.text("home/.ichor/lab/secrets.yaml").expect("secrets");
    let memory = Memory::with(&[("s.yaml", &bundle)]);
    for (contract, is_told) in [(Origin::Assumed, true), (Origin::Written, false)] {
        let request =
            Request { directory: Path::new("out"), secrets: Some(Path::new("s.yaml")), overwrite: false };
        let site = Site { contract, ..site(lab()) };
        let drawn = render::draw(&memory, site, request, &mut Sources::default()).expect("drawn");
        assert_eq!(messages(&drawn.findings).contains("it is not known which contract"), is_told);
    }
}

#[test]
fn all_that_cannot_be_had_is_said_at_once() {
    let desired = resolve(&format!(
        "{INVENTORY}\
         patches: [missing.yaml, directory, latin1.yaml, large.yaml, ichor.yaml]\n\
         os:\n  extension_services:\n    vpn:\n      environment:\n        \
         A: {{env: NOT_SET}}\n        B: {{env: EMPTY}}\n        C: {{file: empty}}\n        \
         D: {{sops: 's.yaml#a'}}\n        E: {{vault: 'kv/a#b'}}\n        F: {{command: [pass, hunter2]}}\n"
    ));
    let mut memory = with_secrets();
    memory.variables.insert("EMPTY".into(), String::new());
    memory.put("home/empty", b"\n");
    memory.put("home/latin1.yaml", b"\xff");
    memory.put("home/large.yaml", &vec![b'#'; 10_000_000]);
    memory.put("home/ichor.yaml", INVENTORY.as_bytes());
    memory.directories.borrow_mut().insert("home/directory".into());
    let files = [PathBuf::from("home/ichor.yaml")];
    let site = Site { files: &files, ..site(&desired) };
    let request = Request { directory: Path::new("out"), secrets: None, overwrite: false };
    let halt = render::draw(&memory, site, request, &mut Sources::default()).expect_err("much");
    let said = messages(&halt.findings);
    let count = |code: &str| codes(&halt).iter().filter(|other| *other == code).count();
    assert_eq!((count("ICH-2112"), count("ICH-2106")), (5, 6), "{said}");
    for part in [
        "is the inventory itself",
        "10000000 bytes",
        "not UTF-8",
        "a directory",
        "`NOT_SET`",
        "`F` of extension service `vpn`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("hunter2"));
}

#[test]
fn secrets_of_files_lose_their_last_newline() {
    let desired = resolve(&format!(
        "{INVENTORY}os: {{extension_services: {{vpn: {{environment: {{KEY: {{file: key}}}}}}}}}}\n"
    ));
    let memory = with_secrets();
    memory.put("home/key", b"abc\n");
    run(&memory, &desired, false).expect("rendered");
    let config = memory.text("out/machines/worker-1.yaml").expect("a config");
    assert!(config.contains("KEY=abc\n"), "{config}");
}
