//! Secrets that got lost, and come back.

use std::sync::Arc;

use ichor_model::Desired;
use ichor_spec::Sources;
use ichor_store::{Bucket, Objects, lock::Lease};

use super::{
    Memory, codes,
    keep::{bundle, deed, keep, named, shared, take},
    lab, messages, rsa, site,
};
use crate::{
    Halt, HaltKind, Keeping, Site,
    bundle::Input,
    keep::Keep,
    past::Past,
    secrets::{self, Restored, Wanted},
    store::Store,
};

const BUNDLE: &str = "home/.ichor/lab/secrets.sops.yaml";
const RECORD: &str = "home/.ichor/lab/cluster.json";
const RESTORE: &str = "ichor secrets restore";

fn sealed(desired: &Desired) -> Site<'_> {
    Site { keeping: Keeping::Encrypted, ..site(desired) }
}

fn machine() -> Memory {
    Memory { variables: [("HOME".to_owned(), "user".to_owned())].into(), ..Memory::default() }
}

/// A store in a directory, whose objects are in memory too.
struct Shelf {
    memory: Memory,
    objects: Bucket,
}

impl Shelf {
    /// One whose cluster has secrets, and a generation of them.
    async fn new() -> Self {
        let shelf = Self { memory: machine(), objects: Bucket::in_memory() };
        secrets::new(&shelf.memory, sealed(lab()), || Ok(rsa())).expect("secrets");
        shelf.commit(1).await;
        shelf
    }

    fn keep(&self) -> Keep<'_> {
        let store = Store::of(sealed(lab())).expect("a store");
        Keep::over(&self.memory, "lab", store, Arc::new(self.objects.clone()))
    }

    /// Lets so many runs end, each of which leaves an entry and a generation.
    async fn commit(&self, runs: usize) {
        let mut keep = self.keep();
        let lease: Lease = take(&mut keep, "ann@a").await.expect("taken");
        for _ in 0..runs {
            keep.finish(&lease, deed(&keep, "ann@a")).await.expect("finished");
        }
        lease.release().await.expect("given back");
        for name in self.objects.list("generations/").await.expect("names") {
            let key = format!("generations/{name}");
            let object = self.objects.get(&key).await.expect("asked").expect("there");
            self.memory.put(&format!("home/.ichor/lab/{key}"), &object.bytes);
        }
    }

    async fn past(&self) -> Vec<Past> {
        self.keep().past().await.expect("generations")
    }

    fn text(&self) -> Option<String> {
        self.memory.text(BUNDLE)
    }

    fn lose(&self) {
        self.memory.files.borrow_mut().remove(std::path::Path::new(BUNDLE));
    }

    fn restore<'p>(&self, past: &'p [Past], wanted: Wanted) -> Result<Restored<'p>, Halt> {
        secrets::restore(&self.memory, sealed(lab()), past, wanted)
    }

    fn show(&self) -> Halt {
        secrets::show(&self.memory, sealed(lab()), &mut Sources::default()).expect_err("no secrets")
    }
}

/// What happens to a file that people and disks have.
fn damages(whole: &str) -> Vec<Option<String>> {
    let value = whole.find("data:").expect("a value") + 5;
    let mut changed = whole.to_owned();
    let other = if changed[value..].starts_with('A') { "B" } else { "A" };
    changed.replace_range(value..=value, other);
    vec![
        None,
        Some(String::new()),
        Some(whole[..whole.len() / 2].to_owned()),
        Some(changed),
        Some("\0\0".into()),
    ]
}

#[tokio::test(start_paused = true)]
async fn whoever_misses_secrets_is_told_which_generation_has_them_and_gets_them_back() {
    let shelf = Shelf::new().await;
    let whole = shelf.text().expect("secrets");
    let record = shelf.memory.text(RECORD);
    for (number, damage) in damages(&whole).into_iter().enumerate() {
        match &damage {
            None => shelf.lose(),
            Some(text) => shelf.memory.put(BUNDLE, text.as_bytes()),
        }
        shelf.memory.files.borrow_mut().remove(std::path::Path::new(RECORD));
        let told = messages(&shelf.show().findings);
        assert!(
            told.contains(RESTORE) && told.contains("generation 1, which `ann@a` wrote"),
            "{number}: {told}"
        );
        // Others are not made in their place, also not by `up`.
        let refused =
            secrets::new(&shelf.memory, sealed(lab()), || panic!("a key is made")).expect_err("refused");
        assert_eq!(
            (refused.kind, codes(&refused)),
            (HaltKind::Refused, vec!["ICH-2102".to_owned()]),
            "{number}"
        );
        let told = messages(&refused.findings);
        assert!(told.contains(RESTORE) && told.contains("mv home/.ichor/lab home/.ichor/lab.old"), "{told}");
        assert_eq!(shelf.text(), damage, "{number}: looking changes nothing");
        let past = shelf.past().await;
        let restored =
            shelf.restore(&past, Wanted::default()).unwrap_or_else(|halt| panic!("{number}: {halt:?}"));
        assert!(!restored.was_there);
        assert_eq!((shelf.text().as_ref(), shelf.memory.text(RECORD)), (Some(&whole), record.clone()));
        let aside = restored.aside.iter().map(|path| shelf.memory.text(&path.display().to_string()));
        assert_eq!(aside.collect::<Vec<_>>(), damage.map(Some).into_iter().collect::<Vec<_>>(), "{number}");
        assert!(secrets::show(&shelf.memory, sealed(lab()), &mut Sources::default()).is_ok());
        let again = shelf.restore(&past, Wanted::default()).expect("nothing to do");
        assert!(again.was_there && again.aside.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn no_generation_takes_secrets_that_are_none_and_runs_without_them_lose_nothing() {
    let shelf = Shelf::new().await;
    let whole = shelf.text().expect("secrets");
    for damage in damages(&whole) {
        match &damage {
            None => shelf.lose(),
            Some(text) => shelf.memory.put(BUNDLE, text.as_bytes()),
        }
        shelf.commit(12).await;
        let past = shelf.past().await;
        assert_eq!(past.len(), 10);
        assert!(past.iter().all(|past| past.secrets.sound().is_some()), "{damage:?}: {past:?}");
        assert_eq!(shelf.text(), damage, "the file itself is nobody's to mend unasked");
    }
    // Of a cluster that never had any there is nothing to carry on.
    let shelf = Shelf { memory: machine(), objects: Bucket::in_memory() };
    shelf.memory.put(BUNDLE, b"");
    shelf.commit(1).await;
    let past = shelf.past().await;
    let none = shelf.restore(&past, Wanted::default()).expect_err("none");
    let told = messages(&none.findings);
    assert_eq!(codes(&none), ["ICH-2136"]);
    assert!(told.contains("generation 1, which `ann@a` wrote at now, has no secrets"), "{told}");
    assert!(!messages(&shelf.show().findings).contains(RESTORE));
}

#[tokio::test(start_paused = true)]
async fn secrets_that_are_whole_are_not_replaced_by_others_unasked() {
    let shelf = Shelf::new().await;
    let first = shelf.text().expect("secrets");
    // Another cluster's.
    shelf.lose();
    shelf.memory.put("other.yaml", named("other").as_bytes());
    let other = Input::File("other.yaml".into());
    secrets::import(&shelf.memory, sealed(lab()), &other, &mut Sources::default()).expect("imported");
    shelf.commit(1).await;
    let second = shelf.text().expect("secrets");
    let past = shelf.past().await;
    assert!(shelf.restore(&past, Wanted::default()).expect("nothing to do").was_there);
    let back = Wanted { generation: Some(1), replace: false };
    let refused = shelf.restore(&past, back).expect_err("another cluster's");
    assert_eq!((refused.kind, codes(&refused)), (HaltKind::Refused, vec!["ICH-2102".to_owned()]));
    assert!(messages(&refused.findings).contains("ichor secrets restore 1 --replace"));
    assert_eq!(shelf.text().as_ref(), Some(&second));
    let restored = shelf.restore(&past, Wanted { replace: true, ..back }).expect("asked for");
    let aside: Vec<_> =
        restored.aside.iter().filter_map(|it| shelf.memory.text(&it.display().to_string())).collect();
    assert!(aside.contains(&second) && shelf.text().as_ref() == Some(&first));
    // What nobody here can open may be good.
    let stranger = machine();
    stranger.drawn.set(77);
    secrets::new(&stranger, sealed(lab()), || Ok(rsa())).expect("secrets");
    let closed = stranger.text(BUNDLE).expect("secrets");
    shelf.memory.put(BUNDLE, closed.as_bytes());
    let refused = shelf.restore(&past, Wanted::default()).expect_err("closed");
    assert!(messages(&refused.findings).contains("no key of yours opens"), "{refused:?}");
    assert_eq!(shelf.text().as_ref(), Some(&closed));
    assert!(!messages(&shelf.show().findings).contains(RESTORE), "it is not damaged");
    // A number that is none is told with those that are.
    let none = shelf.restore(&past, Wanted { generation: Some(9), replace: true }).expect_err("none");
    let told = messages(&none.findings);
    assert!(told.contains("there is no generation 9") && told.contains("generation 2, which"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn stopped_anywhere_a_restore_leaves_what_was_there_or_what_comes_back() {
    let shelf = Shelf::new().await;
    let (whole, record) = (shelf.text().expect("secrets"), shelf.memory.text(RECORD).expect("a record"));
    let past = shelf.past().await;
    let mut stopped = 0;
    loop {
        shelf.memory.put(BUNDLE, b"half");
        shelf.memory.put(RECORD, b"half");
        shelf.memory.acts_left.set(Some(stopped));
        let first = shelf.restore(&past, Wanted::default()).map(drop);
        let there = shelf.text().expect("something");
        assert!(there == whole || there == "half", "{stopped}: {there}");
        assert!(there != whole || shelf.memory.text(RECORD).as_ref() == Some(&record), "{stopped}");
        shelf.memory.acts_left.set(None);
        let again =
            shelf.restore(&past, Wanted::default()).unwrap_or_else(|halt| panic!("{stopped}: {halt:?}"));
        assert!(again.was_there == (there == whole), "{stopped}");
        assert_eq!(shelf.text().as_ref(), Some(&whole));
        assert!(
            shelf.memory.paths().iter().any(|path| path.starts_with(&format!("{BUNDLE}.old"))),
            "{stopped}"
        );
        if first.is_ok() {
            break;
        }
        let mut files = shelf.memory.files.borrow_mut();
        files.retain(|path, _| !path.display().to_string().contains(".old"));
        drop(files);
        stopped += 1;
    }
    assert!(stopped > 5, "only {stopped} acts");
}

/// Where the inventory names a file for the secrets, what is left in the store is in the way too, and can be moved.
#[tokio::test(start_paused = true)]
async fn secrets_come_back_to_the_file_that_the_inventory_names() {
    let shelf = Shelf::new().await;
    let whole = shelf.text().expect("secrets");
    shelf.lose();
    let mut desired = lab().clone();
    desired.secrets_file = Some("kept/secrets.sops.yaml".into());
    let refused = secrets::new(&shelf.memory, sealed(&desired), || Ok(rsa())).expect_err("refused");
    let told = messages(&refused.findings);
    assert!(told.contains("mv home/.ichor/lab home/.ichor/lab.old"), "{told}");
    let past = shelf.past().await;
    secrets::restore(&shelf.memory, sealed(&desired), &past, Wanted::default()).expect("restored");
    assert_eq!(shelf.memory.text("home/kept/secrets.sops.yaml"), Some(whole));
}

#[test]
fn an_import_puts_a_file_aside_that_is_no_bundle() {
    for damage in ["", "half of what was wri", "\0"] {
        let memory = machine();
        memory.put("kept.yaml", named("kept").as_bytes());
        memory.put(BUNDLE, damage.as_bytes());
        let import = || {
            let kept = Input::File("kept.yaml".into());
            secrets::import(&memory, sealed(lab()), &kept, &mut Sources::default())
        };
        let imported = import().unwrap_or_else(|halt| panic!("{halt:?}"));
        assert_eq!(imported.aside, [std::path::Path::new("home/.ichor/lab/secrets.sops.yaml.old")]);
        assert_eq!(memory.text("home/.ichor/lab/secrets.sops.yaml.old").as_deref(), Some(damage));
        assert!(memory.text(RECORD).is_some_and(|record| record.contains("1.13")));
        assert!(secrets::show(&memory, sealed(lab()), &mut Sources::default()).is_ok());
        assert!(import().expect("nothing to do").was_there);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_goes_back_to_what_an_older_generation_has() {
    let (desired, bucket, ann) = (shared(), Bucket::in_memory(), Memory::default());
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    for text in ["one", "two"] {
        ann.put(&bundle(&desired), named(text).as_bytes());
        hers.finish(&lease, deed(&hers, "ann@a")).await.expect("finished");
    }
    let past = hers.past().await.expect("generations");
    let wanted = Wanted { generation: Some(1), replace: false };
    let restored = secrets::restore(&ann, site(&desired), &past, wanted).expect("the same cluster's");
    assert_eq!(ann.text(&restored.aside[0].display().to_string()), Some(named("two")));
    hers.finish(&lease, deed(&hers, "ann@a")).await.expect("finished");
    let bob = Memory::default();
    keep(&bob, &desired, &bucket).refresh().await.expect("refreshed");
    assert_eq!(bob.text(&bundle(&desired)), Some(named("one")));
    // In a mirror nothing is moved away for good.
    let taken = secrets::new(&bob, site(&desired), || Ok(rsa())).expect_err("taken");
    let told = messages(&taken.findings);
    assert!(told.contains("another prefix than `s3://team/prod`") && !told.contains("mv "), "{told}");
}
