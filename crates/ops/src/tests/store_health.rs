//! The doctor and the store: everything that can be wrong with one is told, and soon.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use ichor_model::{Desired, Severity};
use ichor_spec::Sources;
use ichor_store::{Answer, Bucket, Fault, Object, Objects, Put, Version};

use super::{
    Memory,
    keep::{bundle, deed, keep, named, shared, take},
    site,
};
use crate::{
    doctor::{
        Check, State, here,
        store::{Asked, Visitor, examine},
    },
    keep::Keep,
    store::Store,
};

/// How a bucket fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It never answers.
    Mute,
    /// It lets nobody in.
    Closed,
    /// It lets people read, and nothing else.
    ReadOnly,
    /// It takes conditions, and heeds none.
    Careless,
}

#[derive(Debug)]
struct Troubled(Bucket, Trouble);

impl Troubled {
    /// What comes before the bucket itself answers.
    async fn before(&self, writes: bool) -> Result<(), Fault> {
        match self.1 {
            Trouble::Mute => std::future::pending().await,
            Trouble::Closed => Err(Fault::Denied("AccessDenied: who are you?".into())),
            Trouble::ReadOnly if writes => Err(Fault::Denied("AccessDenied: look, and do not touch".into())),
            Trouble::ReadOnly | Trouble::Careless => Ok(()),
        }
    }
}

impl Objects for Troubled {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Object>> {
        async move {
            self.before(false).await?;
            self.0.get(key).await
        }
        .boxed()
    }

    fn create<'a>(&'a self, key: &'a str, bytes: &'a [u8]) -> Answer<'a, Put> {
        async move {
            self.before(true).await?;
            if self.1 == Trouble::Careless {
                self.0.delete(key).await?;
            }
            self.0.create(key, bytes).await
        }
        .boxed()
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: &'a [u8], unchanged: &'a Version) -> Answer<'a, Put> {
        async move {
            self.before(true).await?;
            self.0.replace(key, bytes, unchanged).await
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        async move {
            self.before(false).await?;
            self.0.list(prefix).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        async move {
            self.before(true).await?;
            self.0.delete(key).await
        }
        .boxed()
    }
}

/// A bucket with three generations and three entries, as a run left it.
async fn used(desired: &Desired) -> Bucket {
    let (ann, bucket) = (Memory::default(), Bucket::in_memory());
    let mut hers = keep(&ann, desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    for text in ["one", "two", "three"] {
        ann.put(&bundle(desired), named(text).as_bytes());
        hers.finish(&lease, deed(&hers, "ann@a")).await.expect("finished");
    }
    lease.release().await.expect("given back");
    bucket
}

async fn asked(memory: &Memory, desired: &Desired, objects: Arc<dyn Objects>) -> Asked {
    let store = Store::of(site(desired)).expect("a store");
    let mut keep = Keep::over(memory, "lab", store.clone(), objects);
    let visitor = Visitor { run: "0123", is_dead: &|process| process.id == 0 };
    examine(memory, &store, &mut keep, visitor).await
}

fn check<'a>(asked: &'a Asked, id: &str) -> &'a Check {
    asked.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}"))
}

fn states(asked: &Asked) -> Vec<(&str, State)> {
    asked.checks.iter().map(|check| (check.id, check.state())).collect()
}

/// Returns codes, messages and remedies.
fn told(check: &Check) -> String {
    let of = |finding: &ichor_model::Finding| {
        let remedy = finding.remedy.as_deref().expect("a remedy");
        format!("{} {} {:?} {remedy}\n", finding.code, finding.message, finding.notes)
    };
    check.findings.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_well_says_what_it_keeps_and_is_left_as_it_was() {
    let desired = shared();
    let bucket = used(&desired).await;
    let bob = Memory::default();
    let before = [bucket.list("").await, bucket.list("generations").await, bucket.list("audit").await];
    let asked = asked(&bob, &desired, Arc::new(bucket.clone())).await;
    let well = ["store", "generations", "lock", "audit"].map(|id| (id, State::Ok));
    assert_eq!(states(&asked), well, "{asked:?}");
    assert!(asked.is_read);
    assert_eq!(check(&asked, "store").says, "`s3://team/prod` lets you in, and keeps two runs apart");
    assert_eq!(check(&asked, "generations").says, "the newest is 3, written by `ann@a` at now");
    assert_eq!(check(&asked, "lock").says, "nobody is at work");
    let after = [bucket.list("").await, bucket.list("generations").await, bucket.list("audit").await];
    assert_eq!(after, before);
    assert_eq!(bucket.list("probe").await, Ok(vec![]));
    // What the bucket keeps is what the rest of the doctor looks at.
    assert_eq!(bob.text(&bundle(&desired)).as_deref(), Some(&*named("three")));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_says_nothing_or_no_is_told_once_and_soon() {
    let desired = shared();
    let bucket = used(&desired).await;
    for (trouble, word) in [(Trouble::Mute, "no answer within 15 seconds"), (Trouble::Closed, "who are you?")]
    {
        let bob = Memory::default();
        let begun = tokio::time::Instant::now();
        let asked = asked(&bob, &desired, Arc::new(Troubled(bucket.clone(), trouble))).await;
        assert!(begun.elapsed() <= Duration::from_secs(16), "{trouble:?}: {:?}", begun.elapsed());
        let expected = [
            ("store", State::Error),
            ("generations", State::Unknown),
            ("lock", State::Unknown),
            ("audit", State::Unknown),
        ];
        assert_eq!(states(&asked), expected, "{trouble:?}");
        let told = told(check(&asked, "store"));
        assert!(told.contains("ICH-2140") && told.contains(word), "{trouble:?}: {told}");
        // That there are no secrets nobody can tell then.
        assert!(!asked.is_read);
        let here = here::examine(&bob, site(&desired), &asked, &mut Sources::default());
        assert!(!here.has_none);
        let secrets = here.checks.iter().find(|check| check.id == here::SECRETS).expect("a check");
        assert_eq!(secrets.state(), State::Unknown, "{}", secrets.says);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_can_only_be_read_or_heeds_no_conditions_is_no_store() {
    let desired = shared();
    let bucket = used(&desired).await;
    for (trouble, words) in [
        (Trouble::ReadOnly, ["ICH-2140", "do not touch"]),
        (Trouble::Careless, ["ICH-2141", "If-None-Match"]),
    ] {
        let bob = Memory::default();
        let asked = asked(&bob, &desired, Arc::new(Troubled(bucket.clone(), trouble))).await;
        assert_eq!(check(&asked, "store").state(), State::Error, "{trouble:?}");
        let told = told(check(&asked, "store"));
        assert!(words.iter().all(|word| told.contains(word)), "{trouble:?}: {told}");
        assert_eq!(check(&asked, "generations").state(), State::Ok, "what can be read is read");
        assert!(asked.is_read);
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_generation_than_this_computer_has_seen_is_told() {
    let desired = shared();
    let bucket = used(&desired).await;
    let bob = Memory::default();
    keep(&bob, &desired, &bucket).refresh().await.expect("seen");
    bucket.delete("generations/00000003.json").await.expect("deleted");
    let asked = asked(&bob, &desired, Arc::new(bucket.clone())).await;
    let generations = check(&asked, "generations");
    assert_eq!(generations.state(), State::Error);
    assert!(told(generations).contains("ICH-2142"), "{}", told(generations));
    assert_eq!(check(&asked, "store").state(), State::Ok);
    assert_eq!(check(&asked, "audit").state(), State::Unknown, "who trusts its end?");
    assert!(!asked.is_read);
    assert_eq!(bob.text(&bundle(&desired)).as_deref(), Some(&*named("three")), "nothing of it is used");
}

#[tokio::test(start_paused = true)]
async fn whoever_holds_the_lock_is_named_and_a_dead_one_as_such() {
    let desired = shared();
    let bucket = used(&desired).await;
    let (ann, bob) = (Memory::default(), Memory::default());
    let _lease = take(&mut keep(&ann, &desired, &bucket), "ann@a").await.expect("taken");
    let at_work = asked(&bob, &desired, Arc::new(bucket.clone())).await;
    assert_eq!(check(&at_work, "lock").says, "`ann@a` is at work with `ichor up`, since now");
    let store = Store::of(site(&desired)).expect("a store");
    let mut keep = Keep::over(&bob, "lab", store.clone(), Arc::new(bucket.clone()));
    let visitor = Visitor { run: "0123", is_dead: &|_| true };
    let dead = examine(&bob, &store, &mut keep, visitor).await;
    assert!(check(&dead, "lock").says.contains("the next run takes the lock over"), "{dead:?}");
}

#[tokio::test(start_paused = true)]
async fn a_trail_that_stops_the_next_run_is_an_error_and_one_that_was_changed_a_warning() {
    let desired = shared();
    let bucket = used(&desired).await;
    let bob = Memory::default();
    let second = bucket.get("audit/00000002.json").await.expect("asked").expect("there");
    let changed = String::from_utf8(second.bytes.clone()).expect("text").replace("ann@a", "bob@b");
    bucket.replace("audit/00000002.json", changed.as_bytes(), &second.version).await.expect("changed");
    let forged = asked(&bob, &desired, Arc::new(bucket.clone())).await;
    let audit = check(&forged, "audit");
    assert_eq!(audit.state(), State::Warning);
    assert_eq!(audit.findings[0].severity, Severity::Warning);
    assert!(told(audit).contains("ICH-2146"), "{}", told(audit));
    bucket.delete("audit/00000003.json").await.expect("deleted");
    let cut = asked(&bob, &desired, Arc::new(bucket.clone())).await;
    let audit = check(&cut, "audit");
    assert_eq!(audit.state(), State::Error);
    assert!(
        told(audit).contains("entry 3 is missing") && told(audit).contains("ichor log accept"),
        "{}",
        told(audit)
    );
}
