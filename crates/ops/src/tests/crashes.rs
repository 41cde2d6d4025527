//! A run that stops after any act leaves nothing that a second run cannot finish.

use std::path::Path;

use ichor_spec::Sources;

use super::{Memory, lab, rsa, site, with_secrets};
use crate::{
    HaltKind,
    render::{self, Request},
    secrets,
};

const BUNDLE: &str = "home/.ichor/lab/secrets.yaml";
const RECORD: &str = "home/.ichor/lab/cluster.json";

#[test]
fn secrets_are_whole_or_absent_wherever_it_stops() {
    let mut stopped = 0;
    for acts in 0.. {
        let memory = Memory::default();
        memory.acts_left.set(Some(acts));
        let first = secrets::new(&memory, site(lab()), || Ok(rsa()));
        let left = memory.text(BUNDLE);
        memory.acts_left.set(None);
        let second = secrets::new(&memory, site(lab()), || Ok(rsa()));
        match &left {
            Some(kept) => {
                assert_eq!(second.expect_err("never replaced").kind, HaltKind::Refused, "{acts}");
                assert_eq!(memory.text(BUNDLE).as_ref(), Some(kept));
            }
            None => assert!(second.is_ok(), "{acts}: {second:?}"),
        }
        let shown = secrets::show(&memory, site(lab()), &mut Sources::default()).expect("whole secrets");
        assert!(shown.recorded, "{acts}: a bundle without its contract");
        assert!(memory.text(RECORD).expect("a record").contains("\"1.13\""));
        assert_eq!(memory.text("home/.ichor/.gitignore").as_deref(), Some("*\n"));
        if first.is_ok() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 8, "only {stopped} acts");
}

#[test]
fn rendering_is_finished_by_running_it_again_wherever_it_stops() {
    let request = Request { directory: Path::new("out"), secrets: None, overwrite: false };
    let run = |memory: &Memory| {
        let drawn = render::draw(memory, site(lab()), request, &mut Sources::default())?;
        render::write(memory, &drawn)
    };
    let whole = with_secrets();
    run(&whole).expect("rendered");
    let mut stopped = 0;
    for acts in 0.. {
        let memory = with_secrets();
        memory.acts_left.set(Some(acts));
        let first = run(&memory);
        // Something changes before it is run again, so that files are replaced and not only completed.
        memory.later.set(60);
        memory.acts_left.set(None);
        let again = run(&memory).unwrap_or_else(|halt| panic!("after {acts} acts: {halt:?}"));
        assert_eq!(memory.names(), whole.names(), "after {acts} acts");
        // These two differ in the credentials of the talosconfig.
        let differs = |name: &String| ["talosconfig", ".rendered.json"].iter().any(|end| name.ends_with(end));
        for name in whole.names().iter().filter(|name| !differs(name)) {
            assert_eq!(memory.text(name), whole.text(name), "{name} after {acts} acts");
        }
        if first.is_ok() {
            assert!(again.iter().all(|file| file.state == render::State::Unchanged), "{again:?}");
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 20, "only {stopped} acts");
}

#[test]
fn of_two_runs_at_once_one_keeps_its_secrets_and_the_other_is_told() {
    let memory = Memory::default();
    // The other run ends while this one waits for its RSA key.
    let lost = secrets::new(&memory, site(lab()), || {
        secrets::new(&memory, site(lab()), || Ok(rsa())).expect("the other run");
        Ok(rsa())
    });
    assert_eq!(lost.expect_err("refused").kind, HaltKind::Refused);
    secrets::show(&memory, site(lab()), &mut Sources::default()).expect("the other's secrets");
}
