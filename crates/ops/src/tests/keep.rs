//! Two machines and one bucket.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use ichor_model::Desired;
use ichor_store::{
    Answer, Bucket, Fault, Object, Objects, Put, Version,
    audit::Deed,
    lock::{Holder, Lease, Process, Request, Terms},
};

use super::{INVENTORY, Memory, codes, lab, resolve, rsa, site, with_secrets};
use crate::{Halt, HaltKind, keep::Keep, secrets, store::Store};

pub(super) fn shared() -> Desired {
    resolve(&format!("{INVENTORY}store: s3://team/prod\n"))
}

pub(super) fn keep<'s>(memory: &'s Memory, desired: &Desired, bucket: &Bucket) -> Keep<'s> {
    let store = Store::of(site(desired)).expect("a store");
    Keep::over(memory, "lab", store, Arc::new(bucket.clone()))
}

pub(super) fn bundle(desired: &Desired) -> String {
    Store::of(site(desired)).expect("a store").bundle().display().to_string()
}

/// A whole bundle that can be told from others like it.
pub(super) fn named(text: &str) -> String {
    static WHOLE: OnceLock<String> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| with_secrets().text(&bundle(lab())).expect("secrets"));
    format!("{whole}# {text}\n")
}

pub(super) fn holder(who: &str) -> Holder {
    Holder {
        who: who.into(),
        verb: "up".into(),
        run: who.into(),
        since: "now".into(),
        process: Process { world: None, id: 1, started: None },
    }
}

pub(super) async fn take(keep: &mut Keep<'_>, who: &str) -> Result<Lease, Halt> {
    let begun = tokio::time::Instant::now();
    let request = Request {
        holder: holder(who),
        terms: Terms::default(),
        wait: Duration::ZERO,
        uptime: Arc::new(move || begun.elapsed()),
        is_dead: &|_| false,
        waiting: &|_| {},
    };
    keep.take(request).await.map(|(lease, _)| lease)
}

#[tokio::test(start_paused = true)]
async fn what_one_machine_commits_the_other_one_has() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let (ann, bob) = (Memory::default(), Memory::default());
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    secrets::new(&ann, site(&desired), || Ok(rsa())).expect("secrets");
    // Until they are committed nobody else has them.
    let mut his = keep(&bob, &desired, &bucket);
    his.refresh().await.expect("refreshed");
    assert_eq!(bob.text(&bundle(&desired)), None);
    let busy = take(&mut his, "bob@b").await.expect_err("held");
    assert_eq!((busy.kind, codes(&busy)), (HaltKind::Busy, vec!["ICH-2124".to_owned()]));
    assert!(busy.findings.iter().any(|finding| finding.message.contains("ann@a")));
    hers.commit(&lease, "now", "ann@a").await.expect("committed");
    lease.release().await.expect("given back");
    let lease = take(&mut his, "bob@b").await.expect("taken");
    assert_eq!(bob.text(&bundle(&desired)), ann.text(&bundle(&desired)));
    // Nothing has changed, and nothing is written.
    his.commit(&lease, "now", "bob@b").await.expect("committed");
    assert_eq!(bucket.list("generations/").await.map(|names| names.len()), Ok(1));
    // What is not committed is gone with the next look: the bucket counts.
    bob.put(&bundle(&desired), named("something else").as_bytes());
    his.refresh().await.expect("refreshed");
    assert_eq!(bob.text(&bundle(&desired)), ann.text(&bundle(&desired)));
}

#[tokio::test(start_paused = true)]
async fn an_older_store_is_refused_by_those_who_saw_a_newer_one() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let (ann, bob) = (Memory::default(), Memory::default());
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    for text in ["one", "two"] {
        ann.put(&bundle(&desired), named(text).as_bytes());
        hers.commit(&lease, "now", "ann@a").await.expect("committed");
    }
    bucket.delete("generations/00000002.json").await.expect("deleted");
    let replayed = keep(&ann, &desired, &bucket).refresh().await.expect_err("older");
    assert_eq!((replayed.kind, codes(&replayed)), (HaltKind::Preflight, vec!["ICH-2142".to_owned()]));
    assert_eq!(ann.text(&bundle(&desired)).as_deref(), Some(&*named("two")), "nothing of it is used");
    keep(&bob, &desired, &bucket).refresh().await.expect("he has seen nothing");
    assert_eq!(bob.text(&bundle(&desired)).as_deref(), Some(&*named("one")));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_committed_without_the_lock() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let (ann, bob) = (Memory::default(), Memory::default());
    let mut hers = keep(&ann, &desired, &bucket);
    let lost = take(&mut hers, "ann@a").await.expect("taken");
    ann.put(&bundle(&desired), named("hers").as_bytes());
    tokio::time::sleep(Terms::default().lease).await;
    let halt = hers.commit(&lost, "now", "ann@a").await.expect_err("too late");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::PartWay, vec!["ICH-2144".to_owned()]));
    // Also one who does not know that it is lost writes over nothing.
    let mut his = keep(&bob, &desired, &bucket);
    hers.break_lock().await.expect("broken");
    let lease = take(&mut his, "bob@b").await.expect("taken");
    bob.put(&bundle(&desired), named("his").as_bytes());
    his.commit(&lease, "now", "bob@b").await.expect("committed");
    let overtaken = hers.commit(&lease, "now", "ann@a").await.expect_err("overtaken");
    assert_eq!(codes(&overtaken), ["ICH-2144"]);
    his.refresh().await.expect("refreshed");
    assert_eq!(bob.text(&bundle(&desired)).as_deref(), Some(&*named("his")));
}

pub(super) fn deed(keep: &Keep<'_>, who: &str) -> Deed {
    keep.deed(&holder(who), "now".into(), "done")
}

#[tokio::test(start_paused = true)]
async fn a_run_is_refused_before_it_changes_anything_when_the_end_of_the_trail_is_gone() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let (ann, bob) = (Memory::default(), Memory::default());
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    ann.put(&bundle(&desired), named("hers").as_bytes());
    for _ in 0..3 {
        hers.finish(&lease, deed(&hers, "ann@a")).await.expect("finished");
    }
    lease.release().await.expect("given back");
    let last = bucket.get("audit/00000003.json").await.expect("asked").expect("there").bytes;
    bucket.delete("audit/00000003.json").await.expect("deleted");
    let before = bucket.list("generations/").await;
    let mut his = keep(&bob, &desired, &bucket);
    let refused = take(&mut his, "bob@b").await.expect_err("cut off");
    assert_eq!((refused.kind, codes(&refused)), (HaltKind::Refused, vec!["ICH-2146".to_owned()]));
    let told = format!("{:?}", refused.findings);
    assert!(told.contains("entry 3 is missing") && told.contains("audit/00000003.json"), "{told}");
    assert_eq!(bob.text(&bundle(&desired)), None, "the mirror is as it was");
    assert_eq!(bucket.list("generations/").await, before);
    assert_eq!(his.holder().await.expect("read"), None, "the lock is given back");
    // Another one in its place is no better.
    keep(&bob, &desired, &bucket).record(&deed(&his, "bob@b")).await.expect("added");
    let refused = take(&mut his, "bob@b").await.expect_err("another");
    assert_eq!(codes(&refused), ["ICH-2146"]);
    // Looking goes on, and so do runs, once it is back.
    his.refresh().await.expect("refreshed");
    bucket.delete("audit/00000003.json").await.expect("deleted");
    bucket.create("audit/00000003.json", &last).await.expect("brought back");
    let lease = take(&mut his, "bob@b").await.expect("taken");
    his.finish(&lease, deed(&his, "bob@b")).await.expect("finished");
    assert_eq!(his.trail().await.expect("read").broken, None);
}

#[tokio::test(start_paused = true)]
async fn a_trail_whose_end_is_lost_goes_on_after_the_gap_once_somebody_accepts_it() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let ann = Memory::default();
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    for _ in 0..3 {
        hers.finish(&lease, deed(&hers, "ann@a")).await.expect("finished");
    }
    assert_eq!(hers.accept(&lease, deed(&hers, "ann@a")).await.expect("whole"), None);
    lease.release().await.expect("given back");
    for number in [2, 3] {
        bucket.delete(&format!("audit/{number:08}.json")).await.expect("deleted");
    }
    let mut hers = keep(&ann, &desired, &bucket).accepting();
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    let gap = hers.accept(&lease, deed(&hers, "ann@a")).await.expect("accepted").expect("a gap");
    assert_eq!((gap.first, gap.last), (2, 3));
    lease.release().await.expect("given back");
    // Everybody goes on, and the gap stays to be seen.
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    hers.finish(&lease, deed(&hers, "ann@a")).await.expect("finished");
    let trail = hers.trail().await.expect("read");
    let told: Vec<_> = trail.entries.iter().map(|it| (it.number, &*it.deed.outcome)).collect();
    assert_eq!(told, [(1, "done"), (4, "accepted: entries 2 and 3 are missing"), (5, "done")]);
    assert_eq!(trail.broken, Some(gap));
}

#[tokio::test(start_paused = true)]
async fn a_trail_that_is_cut_during_a_run_is_found_out_by_the_next_one() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let ann = Memory::default();
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    for _ in 0..3 {
        hers.finish(&lease, deed(&hers, "ann@a")).await.expect("finished");
    }
    bucket.delete("audit/00000003.json").await.expect("deleted");
    ann.put(&bundle(&desired), named("hers").as_bytes());
    // With its own entries the trail goes further than before, and what is kept is kept.
    for at in ["later", "later still"] {
        let deed = Deed { at: at.into(), ..deed(&hers, "ann@a") };
        hers.finish(&lease, deed).await.expect("finished");
    }
    lease.release().await.expect("given back");
    let bob = Memory::default();
    let mut his = keep(&bob, &desired, &bucket);
    assert_eq!(codes(&take(&mut his, "bob@b").await.expect_err("cut off")), ["ICH-2146"]);
    let broken = his.trail().await.expect("read").broken.expect("broken");
    assert_eq!((broken.first, broken.last), (3, 3), "{}", broken.why);
    his.refresh().await.expect("refreshed");
    assert_eq!(bob.text(&bundle(&desired)).as_deref(), Some(&*named("hers")));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lost_its_lock_leaves_an_entry_and_nothing_else() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let (ann, bob) = (Memory::default(), Memory::default());
    let mut hers = keep(&ann, &desired, &bucket);
    let lost = take(&mut hers, "ann@a").await.expect("taken");
    ann.put(&bundle(&desired), named("hers").as_bytes());
    tokio::time::sleep(Terms::default().lease).await;
    hers.break_lock().await.expect("broken");
    let mut his = keep(&bob, &desired, &bucket);
    let lease = take(&mut his, "bob@b").await.expect("taken");
    let halt = hers.finish(&lost, deed(&hers, "ann@a")).await.expect_err("lost");
    assert_eq!((halt.kind, codes(&halt)), (HaltKind::PartWay, vec!["ICH-2144".to_owned()]));
    assert_eq!(bucket.list("generations/").await, Ok(vec![]));
    his.finish(&lease, deed(&his, "bob@b")).await.expect("finished");
    let trail = his.trail().await.expect("read");
    let told: Vec<_> = trail.entries.iter().map(|it| [&*it.deed.who, &*it.deed.outcome]).collect();
    assert_eq!((told, trail.broken), (vec![["ann@a", "lost-lock"], ["bob@b", "done"]], None));
}

/// Stops the machine after every act on its mirror, and looks what the next run has.
#[tokio::test(start_paused = true)]
async fn a_mirror_is_whole_again_wherever_it_stopped() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let ann = Memory::default();
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    let record = Store::of(site(&desired)).expect("a store").record().display().to_string();
    for text in ["old", "new"] {
        ann.put(&bundle(&desired), named(text).as_bytes());
        ann.put(&record, text.as_bytes());
        hers.commit(&lease, "now", "ann@a").await.expect("committed");
    }
    let mut stopped = 0;
    loop {
        let bob = Memory::default();
        bob.acts_left.set(Some(stopped));
        let first = keep(&bob, &desired, &bucket).refresh().await;
        assert!(bob.text(&bundle(&desired)).is_none_or(|text| text == named("new")));
        bob.acts_left.set(None);
        keep(&bob, &desired, &bucket).refresh().await.expect("refreshed");
        assert_eq!(bob.text(&bundle(&desired)).as_deref(), Some(&*named("new")));
        assert_eq!(bob.text(&record).as_deref(), Some("new"));
        if first.is_ok() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 5, "only {stopped} acts");
}

/// Somebody of this computer who holds no lock, or lost it, and still writes.
#[tokio::test(start_paused = true)]
async fn whoever_may_wait_waits_for_a_run_that_still_writes_here() {
    let desired = shared();
    for (wait, until, taken) in [(0, 0, true), (0, 60, false), (30, 60, false), (120, 60, true)] {
        let (ann, bucket) = (Memory::default(), Bucket::in_memory());
        let mut hers = keep(&ann, &desired, &bucket);
        ann.is_locked.set(until > 0);
        let begun = tokio::time::Instant::now();
        let request = Request {
            holder: holder("ann@a"),
            terms: Terms::default(),
            wait: Duration::from_secs(wait),
            uptime: Arc::new(move || begun.elapsed()),
            is_dead: &|_| false,
            waiting: &|_| {},
        };
        let writes = async {
            tokio::time::sleep(Duration::from_secs(until)).await;
            ann.is_locked.set(false);
        };
        let (result, ()) = tokio::join!(
            async {
                let result = hers.take(request).await;
                (result, begun.elapsed())
            },
            writes
        );
        match result {
            (Ok((lease, _)), waited) => {
                assert!(taken && waited >= Duration::from_secs(until), "{wait} {until} {waited:?}");
                assert_eq!(lease.check(), Ok(()), "it was renewed while it waited");
            }
            (Err(halt), waited) => {
                assert!(!taken && waited <= Duration::from_secs(wait + 1), "{wait} {until} {waited:?}");
                assert_eq!((halt.kind, codes(&halt)), (HaltKind::Busy, vec!["ICH-2124".to_owned()]));
                assert!(super::messages(&halt.findings).contains("--lock-timeout"));
                assert_eq!(hers.holder().await.expect("read"), None, "the lock is given back");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn damage_is_told_with_what_is_whole_and_how_to_go_back() {
    let (desired, bucket) = (shared(), Bucket::in_memory());
    let ann = Memory::default();
    let mut hers = keep(&ann, &desired, &bucket);
    let lease = take(&mut hers, "ann@a").await.expect("taken");
    for text in ["one", "two", "three"] {
        ann.put(&bundle(&desired), named(text).as_bytes());
        hers.commit(&lease, "then", "ann@a").await.expect("committed");
    }
    lease.release().await.expect("given back");
    for (number, whole) in
        [(3, "generation 2, which `ann@a` wrote at then, is whole"), (2, "generation 3, which")]
    {
        let key = format!("generations/{number:08}.json");
        let good = bucket.get(&key).await.expect("asked").expect("there");
        bucket.replace(&key, b"rubbish", &good.version).await.expect("damaged");
        let bob = Memory::default();
        let halt = keep(&bob, &desired, &bucket).refresh().await.expect_err("damaged");
        let told = super::messages(&halt.findings);
        assert_eq!(codes(&halt), ["ICH-2143"], "{told}");
        assert!(told.contains(&key) && told.contains(whole) && told.contains("seen.json"), "{told}");
        // In a directory the files count, and the damaged one only has to go.
        let plain = super::lab();
        let store = Store::of(site(plain)).expect("a store");
        let halt =
            Keep::over(&bob, "lab", store, Arc::new(bucket.clone())).trail().await.expect_err("damaged");
        let told = super::messages(&halt.findings);
        let moved = format!("mv home/.ichor/lab/{key} home/.ichor/lab/{key}.damaged");
        assert!(told.contains(&moved) && told.contains(whole), "{told}");
        // As the remedy says.
        bucket.delete(&key).await.expect("deleted");
        let store = Store::of(site(plain)).expect("a store");
        Keep::over(&bob, "lab", store, Arc::new(bucket.clone())).trail().await.expect("good again");
        bucket.create(&key, &good.bytes).await.expect("brought back");
    }
}

/// A bucket whose owner dies at an act that changes something: before it, or after it and without its answer.
#[derive(Debug)]
struct Dying {
    bucket: Bucket,
    left: AtomicUsize,
    done: bool,
}

impl Dying {
    async fn change<T>(&self, act: Answer<'_, T>) -> Result<T, Fault> {
        let left = self.left.load(Ordering::SeqCst);
        self.left.store(left.saturating_sub(1), Ordering::SeqCst);
        match left {
            0 => Err(Fault::NotReached("nobody is there any more".into())),
            1 if self.done => act.await.and(Err(Fault::NotReached("the answer is lost".into()))),
            1 => Err(Fault::NotReached("it was not sent".into())),
            _ => act.await,
        }
    }

    fn is_dead(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }
}

impl Objects for Dying {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Object>> {
        if self.is_dead() {
            return async { Err(Fault::NotReached("nobody is there any more".into())) }.boxed();
        }
        self.bucket.get(key)
    }

    fn create<'a>(&'a self, key: &'a str, bytes: &'a [u8]) -> Answer<'a, Put> {
        self.change(self.bucket.create(key, bytes)).boxed()
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: &'a [u8], unchanged: &'a Version) -> Answer<'a, Put> {
        self.change(self.bucket.replace(key, bytes, unchanged)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        self.bucket.list(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.change(self.bucket.delete(key)).boxed()
    }
}

/// Takes the lock of somebody who is known to be dead.
async fn take_over(keep: &mut Keep<'_>, who: &str) -> Result<Lease, Halt> {
    let request = Request {
        holder: holder(who),
        terms: Terms::default(),
        wait: Duration::ZERO,
        uptime: Arc::new(|| Duration::ZERO),
        is_dead: &|_| true,
        waiting: &|_| {},
    };
    keep.take(request).await.map(|(lease, _)| lease)
}

/// Changes the secrets, as every verb that does: in the mirror, in a generation, and in the trail.
async fn change_secrets(keep: &mut Keep<'_>, memory: &Memory, file: &str, text: &str) -> Result<(), Halt> {
    let lease = take_over(keep, text).await?;
    memory.put(file, named(text).as_bytes());
    keep.commit(&lease, "now", text).await?;
    let deed = deed(keep, text);
    keep.finish(&lease, deed).await?;
    // The lock of a run that could not give it back is taken over.
    let _ = lease.release().await;
    Ok(())
}

/// Kills a whole run at each of its writes, and looks at the store from the same machine and from another one.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_killed_at_any_write_leaves_its_secrets_or_those_before_them() {
    let desired = shared();
    let file = bundle(&desired);
    let mut kills = 0;
    for done in [false, true] {
        for acts in 1.. {
            let place = format!("act {acts}, {}", if done { "done" } else { "not done" });
            let (bucket, ann, bob) = (Bucket::in_memory(), Memory::default(), Memory::default());
            for text in ["older", "old"] {
                let mut hers = keep(&ann, &desired, &bucket);
                change_secrets(&mut hers, &ann, &file, text).await.expect("a run");
            }
            let dying = Arc::new(Dying { bucket: bucket.clone(), left: AtomicUsize::new(acts), done });
            let store = Store::of(site(&desired)).expect("a store");
            let mut hers = Keep::over(&ann, "lab", store, dying.clone());
            let ended = change_secrets(&mut hers, &ann, &file, "new").await;
            assert!(dying.is_dead() || ended.is_ok(), "{place}: {ended:?}");
            // Somebody else finds one of the two, and a trail that is whole.
            let mut his = keep(&bob, &desired, &bucket);
            his.refresh().await.unwrap_or_else(|halt| panic!("{place}: {halt:?}"));
            let there = bob.text(&file).expect("secrets");
            assert!(there == named("new") || ended.is_err() && there == named("old"), "{place}: {there}");
            assert_eq!(his.trail().await.expect("a trail").broken, None, "{place}");
            // So does she, and both go on.
            let mut hers = keep(&ann, &desired, &bucket);
            hers.refresh().await.unwrap_or_else(|halt| panic!("{place}: {halt:?}"));
            assert_eq!(ann.text(&file).as_deref(), Some(&*there), "{place}");
            change_secrets(&mut his, &bob, &file, "his")
                .await
                .unwrap_or_else(|halt| panic!("{place}: {halt:?}"));
            hers.refresh().await.unwrap_or_else(|halt| panic!("{place}: {halt:?}"));
            assert_eq!(ann.text(&file).as_deref(), Some(&*named("his")), "{place}");
            assert_eq!(hers.trail().await.expect("a trail").broken, None, "{place}");
            if !dying.is_dead() {
                break;
            }
            kills += 1;
        }
    }
    // The lock, a generation, an entry, a generation that names it, and the lock again.
    assert!(kills >= 2 * 5, "{kills}");
}
