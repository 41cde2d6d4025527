//! A run that stops after any act leaves nothing that a second run cannot finish.

use std::path::Path;

use ichor_model::Desired;
use ichor_spec::Sources;

use super::{INVENTORY, Memory, lab, messages, resolve, rsa, site, with_secrets};
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
        assert_eq!(memory.paths().len(), 3, "{:?} after {acts} acts", memory.paths());
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
    let run = |memory: &Memory, desired: &Desired| {
        let drawn = render::draw(memory, site(desired), request, &mut Sources::default())?;
        render::write(memory, &drawn)
    };
    // The second time every machine config is another one, so that files are replaced and not only completed.
    let changed = resolve(&INVENTORY.replace("v1.36.3", "v1.36.2"));
    let whole = with_secrets();
    run(&whole, &changed).expect("rendered");
    let mut stopped = 0;
    for acts in 0.. {
        let memory = with_secrets();
        run(&memory, lab()).expect("rendered before");
        let before = memory.text("out/machines/worker-1.yaml");
        memory.acts_left.set(Some(acts));
        let first = run(&memory, &changed);
        memory.acts_left.set(None);
        let again = run(&memory, &changed).unwrap_or_else(|halt| panic!("after {acts} acts: {halt:?}"));
        assert_eq!(memory.paths(), whole.paths(), "after {acts} acts");
        // These two differ in the credentials of the talosconfig.
        let differs = |name: &String| ["talosconfig", ".rendered.json"].iter().any(|end| name.ends_with(end));
        for name in whole.paths().iter().filter(|name| !differs(name)) {
            assert_eq!(memory.text(name), whole.text(name), "{name} after {acts} acts");
        }
        assert_ne!(memory.text("out/machines/worker-1.yaml"), before);
        match first {
            Ok(first) => {
                let changed = first.iter().filter(|file| file.state == render::State::Changed).count();
                assert!(changed > 3, "{first:?}");
                assert!(again.iter().all(|file| file.state == render::State::Unchanged), "{again:?}");
                break;
            }
            Err(halt) => {
                let told = messages(&halt.findings);
                let wrote = told.split(" of ").next().and_then(|head| head.rsplit('"').next());
                let wrote: Option<usize> = wrote.and_then(|number| number.parse().ok());
                assert_eq!(halt.kind == HaltKind::PartWay, wrote.is_some_and(|wrote| wrote > 0), "{told}");
            }
        }
        stopped += 1;
    }
    assert!(stopped > 12, "only {stopped} acts");
}

#[test]
fn of_two_renderings_at_once_one_is_told() {
    let memory = with_secrets();
    let request = Request { directory: Path::new("out"), secrets: None, overwrite: false };
    let draw = || render::draw(&memory, site(lab()), request, &mut Sources::default()).expect("drawn");
    let (one, other) = (draw(), draw());
    memory.is_locked.set(true);
    assert_eq!(render::write(&memory, &one).expect_err("locked").kind, HaltKind::Busy);
    memory.is_locked.set(false);
    render::write(&memory, &one).expect("written");
    // The other one has looked before the first one wrote.
    assert_eq!(render::write(&memory, &other).expect_err("too late").kind, HaltKind::Busy);
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
