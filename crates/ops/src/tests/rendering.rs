//! Rendering over what is there.

use std::path::{Path, PathBuf};

use ichor_model::Desired;
use ichor_spec::Sources;

use super::{INVENTORY, Memory, codes, lab, messages, resolve, site, with_secrets};
use crate::{
    Halt, HaltKind, Site,
    render::{self, Outcome, Request, State},
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
    memory.open.borrow_mut().insert("out/secrets.yaml".into());
    let (outcomes, _) = run(&memory, lab(), false).expect("rendered again");
    assert_eq!(states(&outcomes, State::Changed), ["secrets.yaml"]);
}

#[test]
fn nothing_is_rendered_beside_the_inventory() {
    let memory = with_secrets();
    memory.directories.borrow_mut().insert("home".into());
    let files = [PathBuf::from("home/ichor.yaml")];
    let site = Site { files: &files, ..site(lab()) };
    let request = Request { directory: Path::new("home"), secrets: None, overwrite: true };
    let halt = render::draw(&memory, site, request, &mut Sources::default()).expect_err("home");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::Refused, vec!["ICH-2117".to_owned()]));
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
    assert_eq!((count("ICH-2112"), count("ICH-2106"), count("ICH-2107")), (5, 3, 3), "{said}");
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
