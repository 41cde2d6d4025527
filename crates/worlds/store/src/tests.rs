//! The contract of a store, and what is built on it, in memory and in a directory.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use object_store::memory::InMemory;

use crate::{
    Answer, Bucket, Directory, Fault, Object, Objects, Put, Unfit, Version,
    audit::{self, Break, Deed},
    generation::{self, Draft, Files, Flaw, Generation, KEPT, Seen},
    lock::{self, Holder, Lease, NotTaken, Process, Request, Terms, Uptime},
    probe,
};

/// What goes wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// Nothing.
    Good,
    /// It fails after so many acts that change something: before the act, or after it with the answer lost.
    StopsAfter { acts: usize, done: bool },
    /// It ignores conditions, as some servers do.
    Careless,
    /// Nobody reaches it.
    Away,
}

#[derive(Debug)]
struct Moody {
    inner: Bucket,
    mood: Mutex<Mood>,
    acts: AtomicUsize,
}

impl Moody {
    fn new(mood: Mood) -> Self {
        Self::over(Bucket::new(Arc::new(InMemory::new()), "team/prod"), mood)
    }

    fn over(inner: Bucket, mood: Mood) -> Self {
        Self { inner, mood: Mutex::new(mood), acts: AtomicUsize::new(0) }
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().expect("mood")
    }

    fn becomes(&self, mood: Mood) {
        *self.mood.lock().expect("mood") = mood;
    }

    async fn change<T>(&self, act: Answer<'_, T>) -> Result<T, Fault> {
        let gone = || Fault::NotReached("the connection broke".into());
        let number = self.acts.fetch_add(1, Ordering::SeqCst);
        match self.mood() {
            Mood::Away => Err(gone()),
            Mood::StopsAfter { acts, .. } if number > acts => Err(gone()),
            Mood::StopsAfter { acts, done } if number == acts => {
                if done {
                    act.await?;
                }
                self.becomes(Mood::Away);
                Err(gone())
            }
            _ => act.await,
        }
    }
}

impl Objects for Moody {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Object>> {
        async move {
            if self.mood() == Mood::Away {
                return Err(Fault::NotReached("nobody is there".into()));
            }
            self.inner.get(key).await
        }
        .boxed()
    }

    fn create<'a>(&'a self, key: &'a str, bytes: &'a [u8]) -> Answer<'a, Put> {
        async move {
            if self.mood() == Mood::Careless {
                self.inner.delete(key).await?;
            }
            self.change(self.inner.create(key, bytes)).await
        }
        .boxed()
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: &'a [u8], unchanged: &'a Version) -> Answer<'a, Put> {
        self.change(self.inner.replace(key, bytes, unchanged)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        self.inner.list(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.change(self.inner.delete(key)).boxed()
    }
}

async fn keeps_the_contract(objects: &dyn Objects) {
    assert_eq!(objects.get("a/1").await, Ok(None));
    assert_eq!(objects.list("a/").await, Ok(vec![]));
    let Ok(Put::Done(first)) = objects.create("a/1", b"one").await else { panic!("not created") };
    assert_eq!(objects.create("a/1", b"two").await, Ok(Put::Beaten));
    let there = objects.get("a/1").await.expect("asked").expect("there");
    assert_eq!((there.bytes.as_slice(), &there.version), (b"one".as_slice(), &first));
    let Ok(Put::Done(second)) = objects.replace("a/1", b"three", &first).await else {
        panic!("not replaced")
    };
    assert_eq!(objects.replace("a/1", b"four", &first).await, Ok(Put::Beaten));
    assert_eq!(objects.replace("a/none", b"x", &first).await, Ok(Put::Beaten));
    assert_eq!(objects.get("a/1").await.expect("asked").map(|it| it.version), Some(second));
    objects.create("a/2", b"other").await.expect("created");
    assert_eq!(objects.list("a/").await, Ok(vec!["1".to_owned(), "2".to_owned()]));
    objects.delete("a/1").await.expect("deleted");
    objects.delete("a/1").await.expect("deleted again");
    assert_eq!(objects.list("a/").await, Ok(vec!["2".to_owned()]));
    probe(objects, "nonce").await.expect("fit");
    assert_eq!(objects.list("probe/").await, Ok(vec![]));
}

#[tokio::test]
async fn a_bucket_and_a_directory_keep_one_contract() {
    keeps_the_contract(&Moody::new(Mood::Good)).await;
    let directory = tempfile::tempdir().expect("directory");
    keeps_the_contract(&Directory::new(directory.path().join("cluster"))).await;
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_not_fit() {
    assert_eq!(probe(&Moody::new(Mood::Careless), "nonce").await, Err(Unfit::CreatesTwice));
    let away = probe(&Moody::new(Mood::Away), "nonce").await;
    assert!(matches!(away, Err(Unfit::Fault(Fault::NotReached(_)))), "{away:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_in_place_of_an_object_is_not_followed() {
    let directory = tempfile::tempdir().expect("directory");
    let precious = directory.path().join("precious");
    std::fs::write(&precious, "mine").expect("a file");
    let root = directory.path().join("cluster");
    std::fs::create_dir(&root).expect("a directory");
    std::os::unix::fs::symlink(&precious, root.join("lock.json")).expect("a link");
    let objects = Directory::new(&root);
    assert!(matches!(objects.get("lock.json").await, Err(Fault::Refused(_))));
    assert_eq!(objects.create("lock.json", b"x").await, Ok(Put::Beaten));
    assert_eq!(std::fs::read_to_string(precious).expect("a file"), "mine");
}

// ---- the lock

const TERMS: Terms = Terms {
    lease: Duration::from_secs(40),
    renew: Duration::from_secs(10),
    patience: Duration::from_mins(2),
};

fn uptime() -> Uptime {
    let begun = tokio::time::Instant::now();
    Arc::new(move || begun.elapsed())
}

fn holder(run: &str) -> Holder {
    Holder {
        who: format!("{run}@laptop"),
        verb: "up".into(),
        run: run.into(),
        since: "2026-01-01T00:00:00Z".into(),
        process: Process { world: Some("here".into()), id: 1, started: Some(1) },
    }
}

async fn take(
    objects: &Arc<Moody>,
    run: &str,
    wait: u64,
    dead: bool,
) -> Result<(Lease, Option<Holder>), NotTaken> {
    let request = Request {
        holder: holder(run),
        terms: TERMS,
        wait: Duration::from_secs(wait),
        uptime: uptime(),
        is_dead: &|_| dead,
        waiting: &|_| {},
    };
    lock::take(objects.clone(), request).await
}

#[tokio::test(start_paused = true)]
async fn the_second_one_stops_with_the_name_of_the_first_or_waits() {
    let objects = Arc::new(Moody::new(Mood::Good));
    let (first, cut) = take(&objects, "ann", 0, false).await.expect("taken");
    assert_eq!(cut, None);
    let refused = take(&objects, "bob", 0, false).await.expect_err("held");
    assert!(matches!(&refused, NotTaken::Held(holder) if holder.who == "ann@laptop"), "{refused}");
    let give_back = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        first.release().await.expect("given back");
    };
    let (second, ()) = tokio::join!(take(&objects, "bob", 60, false), give_back);
    let (second, cut) = second.expect("taken");
    assert_eq!((cut, lock::holder(&*objects).await), (None, Ok(Some(holder("bob")))));
    second.release().await.expect("given back");
    assert_eq!(lock::holder(&*objects).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_renews_is_waited_for_in_vain_and_one_that_is_silent_is_not() {
    let objects = Arc::new(Moody::new(Mood::Good));
    let (first, _) = take(&objects, "ann", 0, false).await.expect("taken");
    tokio::select! {
        lost = first.keep() => panic!("{lost}"),
        second = take(&objects, "bob", 1000, false) => {
            assert!(matches!(second, Err(NotTaken::Held(_))), "{second:?}");
        }
    }
    assert_eq!(first.check(), Ok(()));
    // From here on nobody renews. The first one stops long before the second one begins.
    let begun = tokio::time::Instant::now();
    let stopped = async {
        while first.check().is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        begun.elapsed()
    };
    let (second, stopped) = tokio::join!(take(&objects, "bob", 1000, false), stopped);
    let (second, cut) = second.expect("taken");
    assert_eq!(cut, Some(holder("ann")));
    assert!(stopped <= TERMS.lease + Duration::from_secs(1), "{stopped:?}");
    assert!(begun.elapsed() >= TERMS.patience, "{:?}", begun.elapsed());
    // It does not come back: what it writes or gives back is refused.
    assert_eq!(first.renew().await, Ok(Put::Beaten));
    first.release().await.expect("nothing to give back");
    assert_eq!(lock::holder(&*objects).await, Ok(Some(holder("bob"))));
    assert_eq!(second.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_process_is_gone_is_taken_at_once() {
    let objects = Arc::new(Moody::new(Mood::Good));
    let (first, _) = take(&objects, "ann", 0, false).await.expect("taken");
    let (_second, cut) = take(&objects, "bob", 0, true).await.expect("taken");
    assert_eq!(cut, Some(holder("ann")));
    assert_eq!(first.keep().await, lock::Lost);
    assert_eq!(first.lost().await, lock::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_long_costs_the_lease_and_for_a_moment_does_not() {
    let objects = Arc::new(Moody::new(Mood::Good));
    let (first, _) = take(&objects, "ann", 0, false).await.expect("taken");
    let away = async {
        objects.becomes(Mood::Away);
        tokio::time::sleep(Duration::from_secs(25)).await;
        objects.becomes(Mood::Good);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(first.check(), Ok(()));
        objects.becomes(Mood::Away);
    };
    let begun = tokio::time::Instant::now();
    let (lost, ()) = tokio::join!(first.keep(), away);
    assert_eq!(lost, lock::Lost);
    let after = begun.elapsed().as_secs();
    assert!((115..=135).contains(&after), "{after}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_broken_by_command_and_its_holder_notices() {
    let objects = Arc::new(Moody::new(Mood::Good));
    assert_eq!(lock::break_now(&*objects).await, Ok(None));
    let (first, _) = take(&objects, "ann", 0, false).await.expect("taken");
    assert_eq!(lock::break_now(&*objects).await, Ok(Some(holder("ann"))));
    assert_eq!(lock::break_now(&*objects).await, Ok(None));
    assert_eq!(first.keep().await, lock::Lost);
    take(&objects, "bob", 0, false).await.expect("taken");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_lock_is_not_taken_for_one_and_can_be_broken() {
    let objects = Arc::new(Moody::new(Mood::Good));
    objects.create(lock::KEY, b"{}").await.expect("created");
    assert_eq!(take(&objects, "ann", 5, true).await.map(drop), Err(NotTaken::Illegible));
    assert_eq!(lock::break_now(&*objects).await, Ok(None));
    take(&objects, "ann", 0, false).await.expect("taken");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_again_by_looking() {
    for done in [false, true] {
        let objects = Arc::new(Moody::new(Mood::StopsAfter { acts: 0, done }));
        let first = take(&objects, "ann", 0, false).await;
        assert!(matches!(first, Err(NotTaken::Fault(Fault::NotReached(_)))), "{first:?}");
        objects.becomes(Mood::Good);
        let again = take(&objects, "ann", 0, false).await;
        // What nobody knows of is held until it is known to be dead.
        assert_eq!(again.is_err(), done, "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_count_in_a_directory_and_none_is_lost() {
    let directory = tempfile::tempdir().expect("directory");
    let root = directory.path().join("cluster");
    let count = directory.path().join("count");
    std::fs::write(&count, "0").expect("a file");
    let runs = (0..8).map(|number| {
        let (root, count) = (root.clone(), count.clone());
        tokio::spawn(async move {
            let objects: Arc<dyn Objects> = Arc::new(Directory::new(root));
            for turn in 0..5 {
                let request = Request {
                    holder: holder(&format!("{number}-{turn}")),
                    terms: TERMS,
                    wait: Duration::from_mins(5),
                    uptime: uptime(),
                    is_dead: &|_| false,
                    waiting: &|_| {},
                };
                let (lease, _) = lock::take(objects.clone(), request).await.expect("taken");
                let now: u32 = std::fs::read_to_string(&count).expect("a file").parse().expect("a number");
                tokio::task::yield_now().await;
                std::fs::write(&count, (now + 1).to_string()).expect("a file");
                lease.release().await.expect("given back");
            }
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.expect("a run");
    }
    assert_eq!(std::fs::read_to_string(count).expect("a file"), "40");
}

// ---- generations

fn files(text: &str) -> Files {
    Files::from([("secrets.sops.yaml".to_owned(), text.as_bytes().to_vec())])
}

async fn commit(objects: &dyn Objects, after: Option<&Generation>, text: &str) -> Result<Generation, Flaw> {
    let files = files(text);
    let draft = Draft { files: &files, audit: None, at: "now", by: "ann@laptop" };
    generation::commit(objects, after, draft).await
}

async fn chain(objects: &dyn Objects, length: u64) -> Vec<Generation> {
    let mut made: Vec<Generation> = Vec::new();
    for number in 1..=length {
        let next = commit(objects, made.last(), &number.to_string()).await.expect("written");
        made.push(next);
    }
    made
}

#[tokio::test]
async fn the_newest_generation_is_read_and_the_last_ten_are_kept() {
    let objects = Moody::new(Mood::Good);
    assert_eq!(generation::newest(&objects, None).await, Ok(None));
    let made = chain(&objects, 14).await;
    let newest = generation::newest(&objects, None).await.expect("read").expect("there");
    assert_eq!(Some(&newest), made.last());
    assert_eq!(newest.files, files("14"));
    let names = objects.list("generations/").await.expect("listed");
    assert_eq!(names.len() as u64, KEPT);
    assert_eq!(names[0], "00000005.json");
    for seen in &made {
        generation::newest(&objects, Some(&seen.here)).await.expect("each was seen");
    }
}

#[tokio::test]
async fn an_older_generation_is_not_taken_for_the_newest() {
    let objects = Moody::new(Mood::Good);
    let made = chain(&objects, 3).await;
    let seen = &made[2].here;
    let replayed = |flaw: &Result<Option<Generation>, Flaw>| matches!(flaw, Err(Flaw::Replayed(_)));
    // Somebody takes the newest away.
    objects.delete("generations/00000003.json").await.expect("deleted");
    let read = generation::newest(&objects, Some(seen)).await;
    assert!(replayed(&read), "{read:?}");
    // Somebody goes on from the older one.
    commit(&objects, Some(&made[1]), "forged").await.expect("written");
    let read = generation::newest(&objects, Some(seen)).await;
    assert!(replayed(&read), "{read:?}");
    let forged = generation::newest(&objects, None).await.expect("read").expect("there");
    commit(&objects, Some(&forged), "and on").await.expect("written");
    let read = generation::newest(&objects, Some(seen)).await;
    assert!(replayed(&read), "{read:?}");
    // Somebody takes everything away.
    for number in 1..=4 {
        objects.delete(&format!("generations/{number:08}.json")).await.expect("deleted");
    }
    let read = generation::newest(&objects, Some(seen)).await;
    assert!(replayed(&read), "{read:?}");
}

#[tokio::test]
async fn a_generation_that_was_changed_is_refused() {
    for number in 1..=3 {
        let objects = Moody::new(Mood::Good);
        chain(&objects, 3).await;
        let key = format!("generations/{number:08}.json");
        let there = objects.get(&key).await.expect("asked").expect("there");
        let text = String::from_utf8(there.bytes).expect("text").replace("ann@laptop", "eve@laptop");
        objects.delete(&key).await.expect("deleted");
        objects.create(&key, text.as_bytes()).await.expect("written");
        let read = generation::newest(&objects, None).await;
        assert!(matches!(&read, Err(Flaw::Damaged { key: which, .. }) if *which == key), "{read:?}");
        assert_eq!(sound(&objects).await, [3, 2, 1].map(|it| (it, it != number)), "the others can be used");
        // Also with a checksum that fits.
        let body = &text[64..];
        objects.delete(&key).await.expect("deleted");
        let fits = format!("{}{body}", crate::digest(body.as_bytes()));
        objects.create(&key, fits.as_bytes()).await.expect("written");
        let read = generation::newest(&objects, None).await;
        assert_eq!(read.is_err(), number < 3, "only the newest has nobody after it: {read:?}");
        let told = sound(&objects).await;
        assert_eq!(told.contains(&(number, false)), number < 3, "{told:?}");
    }
}

/// Returns the numbers of all generations, and whether each is what was written.
async fn sound(objects: &dyn Objects) -> Vec<(u64, bool)> {
    let all = generation::all(objects).await.expect("listed");
    all.into_iter().map(|(number, kept)| (number, kept.is_ok())).collect()
}

#[tokio::test]
async fn of_two_who_write_the_next_generation_one_is_refused() {
    let objects = Moody::new(Mood::Good);
    let made = chain(&objects, 1).await;
    commit(&objects, made.last(), "ann").await.expect("written");
    assert_eq!(commit(&objects, made.last(), "bob").await, Err(Flaw::Overtaken(2)));
}

/// Stops at every act that changes something, and looks what is left.
#[tokio::test]
async fn stopped_at_any_write_there_is_the_old_generation_or_the_new_one() {
    let mut ended = false;
    for acts in 0..40 {
        for done in [false, true] {
            let objects = Moody::new(Mood::Good);
            let made = chain(&objects, 11).await;
            let bucket = objects.inner.clone();
            let stopping = Moody::over(bucket.clone(), Mood::StopsAfter { acts, done });
            let written = commit(&stopping, made.last(), "12").await;
            let left = generation::newest(&bucket, Some(&made[10].here)).await.expect("read").expect("there");
            let text = String::from_utf8_lossy(&left.files["secrets.sops.yaml"]).into_owned();
            assert!(["11", "12"].contains(&text.as_str()), "{text}");
            assert!(written.is_err() || text == "12", "it said that it was written");
            ended |= stopping.mood() != Mood::Away;
        }
    }
    assert!(ended, "the loop did not reach the end");
}

#[tokio::test]
async fn stopped_at_any_act_on_files_there_is_the_old_generation_or_the_new_one() {
    let directory = tempfile::tempdir().expect("directory");
    let mut ended = 0;
    for acts in 0..60 {
        let root = directory.path().join(acts.to_string());
        let made = chain(&Directory::new(&root), 11).await;
        let stopping = Directory::stopping_after(&root, acts);
        let written = commit(&stopping, made.last(), "12").await;
        ended += usize::from(written.is_ok());
        let whole = Directory::new(&root);
        let left = generation::newest(&whole, Some(&made[10].here)).await.expect("read").expect("there");
        let text = String::from_utf8_lossy(&left.files["secrets.sops.yaml"]).into_owned();
        assert!(["11", "12"].contains(&text.as_str()), "{text}");
        assert!(written.is_err() || text == "12", "it said that it was written");
        // The next one goes on from what is left.
        commit(&whole, Some(&left), "after").await.expect("written");
    }
    assert!((1..60).contains(&ended), "{ended}");
}

// ---- the audit trail

fn deed(number: usize) -> Deed {
    Deed {
        at: "2026-01-01T00:00:00Z".into(),
        who: "ann@laptop".into(),
        verb: "up".into(),
        cluster: "prod".into(),
        run: number.to_string(),
        plan: Some("ab".repeat(32)),
        outcome: "done".into(),
        counts: [("done".to_owned(), 3)].into(),
    }
}

async fn trail(objects: &dyn Objects, length: usize) -> Vec<Seen> {
    let mut ends = Vec::new();
    for number in 0..length {
        ends.push(audit::add(objects, None, &deed(number)).await.expect("added"));
    }
    ends
}

#[tokio::test]
async fn a_trail_that_nobody_touched_is_whole() {
    let objects = Moody::new(Mood::Good);
    assert_eq!(audit::read(&objects, None).await, Ok(audit::Trail::default()));
    let ends = trail(&objects, 5).await;
    for anchor in ends.iter().map(Some).chain([None]) {
        let read = audit::read(&objects, anchor).await.expect("read");
        assert_eq!((read.broken, read.entries.len()), (None, 5));
        assert_eq!(read.end.as_ref(), ends.last());
        assert_eq!(read.entries[3].deed, deed(3));
    }
}

#[tokio::test]
async fn the_first_broken_link_is_named() {
    // Which entry is changed, or taken away, which ones are named for it, and up to which one the others vouch.
    let cases = [
        (3, Some("eve"), (3, 4, 2)),
        (2, Some("eve"), (2, 3, 1)),
        (1, Some("eve"), (1, 2, 0)),
        // What comes after the last one is the anchor.
        (5, Some("eve"), (5, 5, 4)),
        // Of the one before a gap nobody says any more what it was.
        (3, None, (3, 3, 1)),
        (1, None, (1, 1, 0)),
        (5, None, (5, 5, 3)),
    ];
    for (number, changed, named) in cases {
        let objects = Moody::new(Mood::Good);
        let ends = trail(&objects, 5).await;
        let key = format!("audit/{number:08}.json");
        let there = objects.get(&key).await.expect("asked").expect("there");
        objects.delete(&key).await.expect("deleted");
        if let Some(who) = changed {
            let text = String::from_utf8(there.bytes).expect("text").replace("ann", who);
            objects.create(&key, text.as_bytes()).await.expect("written");
        }
        let read = audit::read(&objects, ends.last()).await.expect("read");
        let found = read.broken.map(|Break { first, last, sound, .. }| (first, last, sound));
        assert_eq!(found, Some(named), "{number} {changed:?}");
    }
}

#[tokio::test]
async fn a_trail_whose_end_was_cut_off_does_not_lead_to_its_anchor_any_more() {
    let objects = Moody::new(Mood::Good);
    let ends = trail(&objects, 5).await;
    for end in &ends {
        assert_eq!(audit::astray(&objects, end).await, Ok(None));
    }
    for number in [4, 5] {
        objects.delete(&format!("audit/{number:08}.json")).await.expect("deleted");
    }
    let cut = audit::astray(&objects, &ends[4]).await.expect("read").expect("cut");
    assert_eq!((cut.first, cut.last, cut.sound), (4, 5, 2), "{}", cut.why);
    assert_eq!(audit::read(&objects, Some(&ends[4])).await.expect("read").broken, Some(cut));
    // What comes after it does not take its number, and fits once it is back.
    let next = audit::add(&objects, Some(&ends[4]), &deed(5)).await.expect("added");
    let entry = audit::read(&objects, None).await.expect("read").entries.pop().expect("an entry");
    assert_eq!((next.number, entry.before.as_ref()), (6, Some(&ends[4].sha256)));
    objects.delete("audit/00000006.json").await.expect("deleted");
    // Nor does it follow another one of that number.
    trail(&objects, 2).await;
    let next = audit::add(&objects, Some(&ends[4]), &deed(5)).await.expect("added");
    let broken = audit::read(&objects, Some(&next)).await.expect("read").broken.expect("broken");
    assert_eq!((broken.first, broken.last), (5, 6), "{}", broken.why);
    for number in [4, 5, 6] {
        objects.delete(&format!("audit/{number:08}.json")).await.expect("deleted");
    }
    // Others in their place are not the same.
    trail(&objects, 3).await;
    let other = audit::astray(&objects, &ends[4]).await.expect("read").expect("another");
    assert_eq!((other.first, other.last, other.sound), (5, 5, 4), "{}", other.why);
    assert_eq!(audit::read(&objects, Some(&ends[4])).await.expect("read").broken, Some(other));
}

#[tokio::test]
async fn two_who_add_at_once_both_get_an_entry() {
    let objects = Arc::new(Moody::new(Mood::Good));
    let adding = (0..8).map(|number| {
        let objects = objects.clone();
        async move { audit::add(&*objects, None, &deed(number)).await.expect("added") }
    });
    futures_util::future::join_all(adding).await;
    let read = audit::read(&*objects, None).await.expect("read");
    assert_eq!((read.broken, read.entries.len()), (None, 8));
}

// ---- whole runs

/// Takes the lock of a store of any kind.
async fn lock_for(
    objects: &Arc<dyn Objects>,
    run: &str,
    wait: Duration,
    dead: bool,
) -> Result<(Lease, Option<Holder>), NotTaken> {
    let request = Request {
        holder: holder(run),
        terms: TERMS,
        wait,
        uptime: uptime(),
        is_dead: &|_| dead,
        waiting: &|_| {},
    };
    lock::take(objects.clone(), request).await
}

/// Does everything that a run does with a store: it takes the lock, renews it, says what it did, writes the next
/// generation, and gives the lock back.
async fn whole_run(objects: &Arc<dyn Objects>, text: &str, dead: bool) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let (lease, _) = lock_for(objects, text, Duration::ZERO, dead).await.map_err(|it| told(&it))?;
    let newest = generation::newest(&**objects, None).await.map_err(|it| told(&it))?;
    lease.renew().await.map_err(|it| told(&it))?;
    let anchor = newest.as_ref().and_then(|newest| newest.audit.as_ref());
    let end = audit::add(&**objects, anchor, &deed(0)).await.map_err(|it| told(&it))?;
    lease.check().map_err(|it| told(&it))?;
    let files = files(text);
    let draft = Draft { files: &files, audit: Some(&end), at: "now", by: "ann@laptop" };
    generation::commit(&**objects, newest.as_ref(), draft).await.map_err(|it| told(&it))?;
    lease.release().await.map_err(|it| told(&it))
}

/// What must hold in a store whose last run was killed somewhere, and that the next run goes on from there.
async fn goes_on_after_a_kill(objects: &Arc<dyn Objects>, before: &Generation, ended: bool, place: &str) {
    let left = generation::newest(&**objects, Some(&before.here)).await.expect(place).expect(place);
    let text = String::from_utf8_lossy(&left.files["secrets.sops.yaml"]).into_owned();
    assert!(text == "new" || !ended && text == "old 10", "{place}: {text}");
    let trail = audit::read(&**objects, left.audit.as_ref()).await.expect(place);
    assert_eq!(trail.broken, None, "{place}");
    assert!([11, 12].contains(&trail.entries.len()), "{place}: {}", trail.entries.len());
    assert!(text != "new" || trail.entries.len() == 12, "{place}: a generation that nobody wrote");
    let anchor = left.audit.as_ref().expect("each has one");
    assert_eq!(audit::astray(&**objects, anchor).await, Ok(None), "{place}");
    let held = lock::holder(&**objects).await.expect(place);
    assert!(!ended || held.is_none(), "{place}: it was given back");
    if let Some(dead) = held {
        assert_eq!(dead.run, "new", "{place}");
        // Who does not know that it is dead is turned away, and waits long enough to know.
        let refused = lock_for(objects, "bob", Duration::ZERO, false).await.map(drop);
        assert_eq!(refused, Err(NotTaken::Held(Box::new(dead.clone()))), "{place}");
        let (lease, cut) = lock_for(objects, "bob", 2 * TERMS.patience, false).await.expect(place);
        assert_eq!(cut, Some(dead), "{place}");
        lease.release().await.expect(place);
    }
    whole_run(objects, "after", true).await.expect(place);
    let next = generation::newest(&**objects, Some(&left.here)).await.expect(place).expect(place);
    assert_eq!((next.here.number, next.files), (left.here.number + 1, files("after")), "{place}");
    let trail = audit::read(&**objects, next.audit.as_ref()).await.expect(place);
    assert_eq!((trail.broken, trail.end), (None, next.audit), "{place}");
}

/// Makes a store in which eleven runs have ended well, and returns its newest generation.
async fn eleven_runs(objects: &Arc<dyn Objects>) -> Generation {
    for number in 0..=10 {
        whole_run(objects, &format!("old {number}"), false).await.expect("a run");
    }
    generation::newest(&**objects, None).await.expect("read").expect("there")
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_killed_at_any_write_of_a_bucket_leaves_a_whole_store() {
    let mut kills = 0;
    for done in [false, true] {
        for acts in 0.. {
            let place = format!("act {acts}, {}", if done { "done" } else { "not done" });
            let bucket = Bucket::in_memory();
            let whole: Arc<dyn Objects> = Arc::new(bucket.clone());
            let before = eleven_runs(&whole).await;
            let stopping = Arc::new(Moody::over(bucket, Mood::StopsAfter { acts, done }));
            let objects: Arc<dyn Objects> = stopping.clone();
            let ended = whole_run(&objects, "new", false).await;
            let killed = stopping.mood() == Mood::Away;
            assert!(killed || ended.is_ok(), "{place}: {ended:?}");
            goes_on_after_a_kill(&whole, &before, ended.is_ok(), &place).await;
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    // Lock, renewal, entry, generation, what is removed for it, and the lock again.
    assert_eq!(kills, 2 * 6);
}

/// Copies a directory with everything in it.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("a file");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_killed_at_any_act_on_files_leaves_a_whole_store() {
    let directory = tempfile::tempdir().expect("directory");
    let prepared = directory.path().join("prepared");
    let objects: Arc<dyn Objects> = Arc::new(Directory::new(&prepared));
    let before = eleven_runs(&objects).await;
    let mut kills = 0;
    for acts in 0.. {
        let root = directory.path().join(acts.to_string());
        copy(&prepared, &root);
        let whole: Arc<dyn Objects> = Arc::new(Directory::new(&root));
        let stopping: Arc<dyn Objects> = Arc::new(Directory::stopping_after(&root, acts));
        let ended = whole_run(&stopping, "new", false).await;
        goes_on_after_a_kill(&whole, &before, ended.is_ok(), &format!("act {acts}")).await;
        if ended.is_ok() {
            break;
        }
        kills += 1;
    }
    assert!(kills >= 20, "{kills}");
}
