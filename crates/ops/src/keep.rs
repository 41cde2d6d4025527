//! What a team shares about a cluster: its store under a lock, in generations, with an audit trail.
//!
//! 1. [`Keep::open`]: the store as objects, in a bucket or in its directory;
//! 2. [`Keep::refresh`]: the mirror of a bucket gets the newest generation, which must not be older than one that was
//!    seen here;
//! 3. [`Keep::take`]: nobody else changes the cluster until the lease is given back;
//! 4. [`Keep::finish`], with [`Keep::record`] and [`Keep::commit`]: what was done goes into the trail, and what has
//!    changed into the next generation. Secrets are there before anything is made with them.
//!
//! A directory is its own mirror: what is in it counts, and its generations are there to go back to. A bundle that is
//! empty or damaged gets into none of them, and one that is gone stays in the newest.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use ichor_machineconfig::secrets::SecretText;
use ichor_model::{Code, Finding};
use ichor_store::{
    Directory, Fault, Objects, Put, Unfit, Version,
    audit::{self, Break, Deed, NotAdded, Trail},
    generation::{self, Draft, Files, Flaw, Generation, Seen},
    lock::{self, Holder, Lease, NotTaken, Request},
    probe,
};
use tokio::time::Instant;

use crate::{
    Halt, HaltKind, Site, System,
    bundle::{self, Worth},
    halt::only,
    past::Past,
    place,
    store::Store,
    system::{Links, is_absence},
    whole,
};

/// The newest generation that was seen here, beside the mirror.
const SEEN: &str = "seen.json";
/// Says that a bucket was found to be fit.
const PROBED: &str = "probed";
/// The journal, in the mirror and in the bucket.
pub const JOURNAL: &str = "journal.jsonl";
/// How a run ended that was not alone any more, in the audit trail.
const LOST_LOCK: &str = "lost-lock";
/// How long is waited between two looks at who writes to the directory.
const LOOK: Duration = Duration::from_millis(200);
/// Largest of our small files.
const MAX_SMALL: usize = 4096;

/// The store of a cluster as it is shared.
pub struct Keep<'s> {
    system: &'s dyn System,
    store: Store,
    cluster: String,
    objects: Arc<dyn Objects>,
    /// The store, as it is shown.
    shown: String,
    newest: Option<Generation>,
    /// What to do with a trail that does not lead any more to where it ended.
    gap: Gap,
}

/// What to do with a trail that does not lead any more to where it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    Refuse,
    Accept,
}

impl<'s> Keep<'s> {
    /// Opens the store of a cluster. Nobody is asked yet.
    pub fn open(system: &'s dyn System, site: Site<'_>) -> Result<Self, Halt> {
        let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
        let objects: Arc<dyn Objects> = match store.shared() {
            None => Arc::new(Directory::new(store.directory())),
            Some(address) => {
                let variable = |name: &str| {
                    system.variable(name).ok().flatten().map(|text: SecretText| text.expose().to_owned())
                };
                let bucket = address.below(site.name()).open(variable).map_err(|why| {
                    let message = format!("the store `{address}` cannot be used");
                    let finding = Finding::error(Code::STORE_KIND, None, message);
                    Halt::invalid(only(finding.because(why.message).remedy(why.remedy)))
                })?;
                Arc::new(bucket)
            }
        };
        Ok(Self::over(system, site.name(), store, objects))
    }

    /// Opens a store that is kept in these objects.
    pub fn over(system: &'s dyn System, cluster: &str, store: Store, objects: Arc<dyn Objects>) -> Self {
        let shown = match store.shared() {
            Some(address) => address.to_string(),
            None => store.directory().display().to_string(),
        };
        Self { system, store, cluster: cluster.to_owned(), objects, shown, newest: None, gap: Gap::Refuse }
    }

    /// Takes the lock also of a store whose trail does not lead any more to where it ended, for [`Keep::accept`].
    #[must_use]
    pub fn accepting(self) -> Self {
        Self { gap: Gap::Accept, ..self }
    }

    /// Returns the objects.
    pub fn objects(&self) -> &Arc<dyn Objects> {
        &self.objects
    }

    /// Returns the store as it is shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether the store is in a bucket.
    pub fn is_shared(&self) -> bool {
        self.store.shared().is_some()
    }

    /// Makes the mirror of a bucket equal to the newest generation. A run of this machine that is at work in the
    /// mirror keeps it as it is.
    pub async fn refresh(&mut self) -> Result<(), Halt> {
        if self.is_shared() { self.newest().await.map(drop) } else { Ok(()) }
    }

    fn mirror(&self) -> Result<(), Halt> {
        let lock = match self.store.hold(self.system) {
            Err(Halt { kind: HaltKind::Busy, .. }) => return Ok(()),
            lock => lock?,
        };
        self.lay_out()?;
        drop(lock);
        Ok(())
    }

    /// Reads the newest generation.
    async fn look(&mut self) -> Result<(), Halt> {
        let seen = if self.is_shared() { self.seen()? } else { None };
        match generation::newest(&*self.objects, seen.as_ref()).await {
            Ok(newest) => self.newest = newest,
            Err(Flaw::Damaged { key, why }) => {
                let sound = generation::newest_but(&*self.objects, &key).await;
                return Err(Halt::preflight(only(self.damage(&key, &why, sound.as_ref()))));
            }
            Err(flaw) => return Err(Halt::preflight(only(self.flaw(&flaw)))),
        }
        Ok(())
    }

    /// Says what is damaged, what is not, and how to go back to that.
    fn damage(&self, key: &str, why: &str, sound: Option<&Generation>) -> Finding {
        let shown = &self.shown;
        let message = format!("the store `{shown}` was changed by somebody else, or its disk is failing");
        let finding = Finding::error(Code::STORE_DAMAGED, None, message).because(format!("`{key}` {why}"));
        let finding = match sound {
            Some(sound) => finding.because(format!(
                "generation {}, which `{}` wrote at {}, is whole",
                sound.here.number, sound.by, sound.at
            )),
            None => finding.because("no other generation can be read"),
        };
        if self.is_shared() {
            return finding.remedy(format!(
                "bring `{key}` back from a version or a backup of the bucket; if that is lost, delete the object and forget that it was seen, which goes back to the generation before it:\n    rm {}",
                place::quoted(&self.store.file(SEEN))
            ));
        }
        let path = self.store.file(key);
        let mut aside = path.clone().into_os_string();
        aside.push(".damaged");
        finding
            .because(
                "of a store in a directory the files themselves count; generations are there to go back to",
            )
            .remedy(format!(
                "bring it back from a backup; or go on without it, with the files as they are:\n    mv {} {}",
                place::quoted(&path),
                place::quoted(Path::new(&aside))
            ))
    }

    fn seen(&self) -> Result<Option<Seen>, Halt> {
        let path = self.store.file(SEEN);
        let contents = match self.system.read(&path, MAX_SMALL, Links::Refuse) {
            Err(why) if why.is_missing() => return Ok(None),
            contents => contents.ok(),
        };
        let seen = contents.and_then(|contents| serde_json::from_slice(&contents.bytes).ok());
        seen.map(Some).ok_or_else(|| Halt::preflight(only(illegible(&path))))
    }

    /// Writes the files of the newest generation into the mirror, and remembers that it was seen.
    fn lay_out(&self) -> Result<(), Halt> {
        let none = Files::new();
        let files = self.newest.as_ref().map_or(&none, |newest| &newest.files);
        for name in self.store.lasting() {
            let path = self.store.file(&name);
            let done = match files.get(&name) {
                Some(bytes) if self.holds(&path, bytes) => Ok(()),
                Some(bytes) => whole::replace(self.system, &path, bytes),
                None => match self.system.remove(&path) {
                    Err(error) if !is_absence(&error) => Err(error),
                    _ => Ok(()),
                },
            };
            done.map_err(|error| Halt::unwritable(&path, &error))?;
        }
        self.newest.as_ref().map_or(Ok(()), |newest| self.remember(&newest.here))
    }

    fn holds(&self, path: &Path, bytes: &[u8]) -> bool {
        let read = self.system.read(path, bytes.len(), Links::Refuse);
        read.is_ok_and(|contents| contents.bytes.as_slice() == bytes)
    }

    /// Whether a file begins with these bytes. The journal here may know more than its copy, which comes later.
    fn goes_on(&self, path: &Path, bytes: &[u8]) -> bool {
        let read = self.system.read(path, ichor_store::MAX_BYTES, Links::Refuse);
        read.is_ok_and(|contents| contents.bytes.starts_with(bytes))
    }

    fn remember(&self, seen: &Seen) -> Result<(), Halt> {
        let path = self.store.file(SEEN);
        let text = serde_json::to_vec(seen).unwrap_or_default();
        if self.holds(&path, &text) {
            return Ok(());
        }
        whole::replace(self.system, &path, &text).map_err(|error| Halt::unwritable(&path, &error))
    }

    /// Keeps everybody else from changing the cluster, and brings the mirror up to date.
    ///
    /// Returns the lease with whoever held the lock before and was cut short.
    pub async fn take(&mut self, request: Request<'_>) -> Result<(Lease, Option<Holder>), Halt> {
        // What is to be said about the directory is said by whoever writes secrets into it.
        self.store.prepare(self.system)?;
        self.prove_fit(&request.holder.run).await?;
        let (wait, renew, begun) = (request.wait, request.terms.renew, Instant::now());
        let taken = lock::take(self.objects.clone(), request).await;
        let (lease, cut) = taken.map_err(|why| self.not_taken(&why))?;
        let quiet = self.wait_for_quiet(&lease, renew, wait.saturating_sub(begun.elapsed())).await;
        let prepared = match quiet {
            Ok(()) => self.prepare().await,
            Err(halt) => Err(halt),
        };
        if let Err(halt) = prepared {
            // What stands in the way is worth more than why the lock could not be given back.
            let _ = lease.release().await;
            return Err(halt);
        }
        Ok((lease, cut))
    }

    /// Waits until no other run of this computer writes to the directory. That may be one that lost its lock, or one that
    /// needs none because it writes but a moment.
    async fn wait_for_quiet(&self, lease: &Lease, renew: Duration, wait: Duration) -> Result<(), Halt> {
        let begun = Instant::now();
        let mut renewed = begun;
        loop {
            let mut halt = match self.store.hold(self.system) {
                Err(halt) if halt.kind == HaltKind::Busy => halt,
                held => return held.map(drop),
            };
            let left = wait.saturating_sub(begun.elapsed());
            if left.is_zero() {
                let remedy =
                    "wait for it with `--lock-timeout 5m`, or run the same command again when it has ended";
                halt.findings = halt.findings.iter().map(|finding| finding.clone().remedy(remedy)).collect();
                return Err(halt);
            }
            tokio::time::sleep(LOOK.min(left)).await;
            if renewed.elapsed() >= renew {
                // Whether that worked the lease itself says, before anything is done with it.
                let _ = lease.renew().await;
                renewed = Instant::now();
            }
        }
    }

    async fn prepare(&mut self) -> Result<(), Halt> {
        self.look().await?;
        self.prove_whole().await?;
        if !self.is_shared() {
            return Ok(());
        }
        self.mirror()?;
        let path = self.store.file(JOURNAL);
        match self.objects.get(JOURNAL).await.map_err(|fault| self.stopped(&fault))? {
            Some(journal) if !self.goes_on(&path, &journal.bytes) => {
                whole::replace(self.system, &path, &journal.bytes)
                    .map_err(|error| Halt::unwritable(&path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a trail that does not lead any more to where it ended: an entry more would hide that.
    pub(crate) async fn prove_whole(&self) -> Result<(), Halt> {
        let Some(anchor) = self.anchor().filter(|_| self.gap == Gap::Refuse) else { return Ok(()) };
        let astray = audit::astray(&*self.objects, anchor).await.map_err(|fault| self.stopped(&fault))?;
        astray.map_or(Ok(()), |broken| Err(Halt::refused(only(self.cut_off(&broken, anchor)))))
    }

    /// Goes on with a trail whose end is gone for good: an entry after the gap says who accepted that. Returns what was
    /// wrong, if anything was.
    pub async fn accept(&mut self, lease: &Lease, deed: Deed) -> Result<Option<Break>, Halt> {
        lease.check().map_err(|_| self.lost())?;
        let Some(anchor) = self.anchor() else { return Ok(None) };
        let astray = audit::astray(&*self.objects, anchor).await.map_err(|fault| self.stopped(&fault))?;
        let Some(broken) = astray else { return Ok(None) };
        let deed = Deed { outcome: format!("accepted: {}", broken.why), ..deed };
        let end = self.record(&deed).await?;
        self.write(lease, Some(end), &deed.at, &deed.who).await?;
        Ok(Some(broken))
    }

    /// Returns where the trail ended when the newest generation was written.
    fn anchor(&self) -> Option<&Seen> {
        self.newest.as_ref().and_then(|newest| newest.audit.as_ref())
    }

    /// Asks a bucket once whether it keeps two runs apart.
    async fn prove_fit(&self, nonce: &str) -> Result<(), Halt> {
        let marker = self.store.file(PROBED);
        if !self.is_shared() || matches!(self.system.exists(&marker), Ok(true)) {
            return Ok(());
        }
        self.ask_fit(nonce).await?;
        whole::replace(self.system, &marker, b"").map_err(|error| Halt::unwritable(&marker, &error))
    }

    /// Asks a bucket whether it keeps two runs apart, whatever it said before. For that an object of our own is written
    /// and removed again; a directory needs no asking.
    pub(crate) async fn ask_fit(&self, nonce: &str) -> Result<(), Halt> {
        if !self.is_shared() {
            return Ok(());
        }
        probe(&*self.objects, nonce).await.map_err(|why| match why {
            Unfit::Fault(fault) => self.stopped(&fault),
            why => Halt::refused(only(self.unfit(&why))),
        })
    }

    /// Reads what is kept, and returns its newest generation. The mirror of a bucket is brought up to date.
    pub(crate) async fn newest(&mut self) -> Result<Option<&Generation>, Halt> {
        self.look().await?;
        if self.is_shared() {
            self.mirror()?;
        }
        Ok(self.newest.as_ref())
    }

    /// Says that the store gave no answer in time.
    pub(crate) fn late(&self, within: Duration) -> Halt {
        let said = format!("it gave no answer within {} seconds", within.as_secs());
        self.stopped(&Fault::NotReached(said))
    }

    /// Adds what a run did to the audit trail.
    pub async fn record(&self, deed: &Deed) -> Result<Seen, Halt> {
        audit::add(&*self.objects, self.anchor(), deed).await.map_err(|why| match why {
            NotAdded::Fault(fault) => self.failed(&fault),
            why => {
                let message = format!("the audit trail of `{}` takes no entry", self.shown);
                let finding = Finding::error(Code::AUDIT_BROKEN, None, message).because(why.to_string());
                Halt::failed(only(finding.remedy("look where it is broken:\n    ichor log verify")))
            }
        })
    }

    /// Adds what a run did to the audit trail, and writes what has changed. Of a run that lost its lock only the entry
    /// is left.
    pub async fn finish(&mut self, lease: &Lease, deed: Deed) -> Result<(), Halt> {
        if lease.check().is_err() {
            // An entry is created and replaces nothing, so whoever is at work now loses nothing by it. That the lock is
            // lost is worth more than that the store could not be told.
            let _ = self.record(&Deed { outcome: LOST_LOCK.to_owned(), ..deed }).await;
            return Err(self.lost());
        }
        self.record(&deed).await?;
        self.commit(lease, &deed.at, &deed.who).await
    }

    /// Writes the next generation, if anything has changed since the newest one.
    pub async fn commit(&mut self, lease: &Lease, at: &str, by: &str) -> Result<(), Halt> {
        let audit = self.end().await.map_err(|fault| self.failed(&fault))?;
        self.write(lease, audit, at, by).await
    }

    async fn write(&mut self, lease: &Lease, audit: Option<Seen>, at: &str, by: &str) -> Result<(), Halt> {
        lease.check().map_err(|_| self.lost())?;
        let files = self.gather()?;
        let newest = self.newest.as_ref();
        if newest
            .map_or_else(|| files.is_empty() && audit.is_none(), |it| it.files == files && it.audit == audit)
        {
            return Ok(());
        }
        let draft = Draft { files: &files, audit: audit.as_ref(), at, by };
        let written = generation::commit(&*self.objects, newest, draft).await;
        let written = written.map_err(|flaw| Halt::failed(only(self.flaw(&flaw))))?;
        if self.is_shared() {
            self.remember(&written.here)?;
        }
        self.newest = Some(written);
        Ok(())
    }

    /// Returns where the trail ends. If it was cut off during this run it is where it ended before, so that the next run
    /// finds that out.
    async fn end(&self) -> Result<Option<Seen>, Fault> {
        match self.anchor() {
            Some(anchor) if audit::astray(&*self.objects, anchor).await?.is_some() => {
                Ok(Some(anchor.clone()))
            }
            _ => audit::end(&*self.objects).await,
        }
    }

    fn gather(&self) -> Result<Files, Halt> {
        let mut files = Files::new();
        for name in self.store.lasting() {
            let path = self.store.file(&name);
            match self.system.read(&path, generation::MAX_BYTES, Links::Refuse) {
                Ok(contents) if self.is_worth_keeping(&name, &contents.bytes) => {
                    files.insert(name, contents.bytes.to_vec());
                }
                // Secrets that got lost stay in the newest generation, or ten runs later no generation had them.
                Ok(_) => self.carry(name, &mut files),
                Err(why) if why.is_missing() && name == self.store.own_name() => self.carry(name, &mut files),
                Err(why) if why.is_missing() => {}
                Err(why) => {
                    let shown = path.display().to_string();
                    return Err(Halt::failed(only(crate::store::unreadable(
                        &shown,
                        &why,
                        generation::MAX_BYTES,
                    ))));
                }
            }
        }
        Ok(files)
    }

    /// Whether a file goes into a generation: a bundle that is none, or a piece of one, does not.
    fn is_worth_keeping(&self, name: &str, bytes: &[u8]) -> bool {
        name != self.store.own_name()
            || self.kept(name).is_some_and(|kept| kept == bytes)
            || !matches!(bundle::judge(self.system, bytes, name), Worth::Damaged)
    }

    fn kept(&self, name: &str) -> Option<&Vec<u8>> {
        self.newest.as_ref().and_then(|newest| newest.files.get(name))
    }

    fn carry(&self, name: String, files: &mut Files) {
        if let Some(kept) = self.kept(&name) {
            files.insert(name, kept.clone());
        }
    }

    /// Returns all generations that are there, the newest first, with what they have of the cluster's secrets.
    pub async fn past(&self) -> Result<Vec<Past>, Halt> {
        let all = generation::all(&*self.objects).await.map_err(|fault| self.stopped(&fault))?;
        Ok(all.into_iter().map(|kept| Past::of(self.system, &self.store, kept)).collect())
    }

    /// Reads the audit trail and judges it.
    pub async fn trail(&mut self) -> Result<Trail, Halt> {
        self.look().await?;
        self.read_trail().await
    }

    /// Reads the audit trail, and judges it by the newest generation that was read.
    pub(crate) async fn read_trail(&self) -> Result<Trail, Halt> {
        audit::read(&*self.objects, self.anchor()).await.map_err(|fault| self.stopped(&fault))
    }

    /// Returns who holds the lock.
    pub async fn holder(&self) -> Result<Option<Holder>, Halt> {
        lock::holder(&*self.objects).await.map_err(|why| self.not_taken(&why))
    }

    /// Takes the lock away from whoever holds it.
    pub async fn break_lock(&self) -> Result<Option<Holder>, Halt> {
        lock::break_now(&*self.objects).await.map_err(|why| self.not_taken(&why))
    }

    /// Returns an entry about a run of this cluster.
    pub fn deed(&self, holder: &Holder, at: String, outcome: &str) -> Deed {
        Deed {
            at,
            who: holder.who.clone(),
            verb: holder.verb.clone(),
            cluster: self.cluster.clone(),
            run: holder.run.clone(),
            plan: None,
            outcome: outcome.to_owned(),
            counts: BTreeMap::new(),
        }
    }

    /// Says where the audit trail is broken.
    pub fn broken(&self, broken: &Break) -> Finding {
        let Break { first, last, sound, why } = broken;
        let place =
            if first == last { format!("entry {first}") } else { format!("entries {first} to {last}") };
        let message = format!("the audit trail of `{}` is broken at {place}", self.shown);
        let finding = Finding::error(Code::AUDIT_BROKEN, None, message).because(why);
        let sound = match sound {
            0 => return finding,
            1 => "entry 1 is as it was written, unless whoever did this wrote it anew, too".to_owned(),
            sound => format!(
                "entries up to {sound} are as they were written, unless whoever did this wrote them anew, too"
            ),
        };
        finding.because(sound)
    }

    /// Says that nothing is done while the trail does not lead to where it ended.
    fn cut_off(&self, broken: &Break, anchor: &Seen) -> Finding {
        self.broken(broken)
            .because(format!("the newest generation says that it ended with entry {}", anchor.number))
            .because("nothing was changed: the entry of this run would hide what is missing")
            .remedy(format!(
                "ask who has access to the store, and bring `{}` back from a version or a backup of it; if that is lost \
                 for good, say so in the trail and go on:\n    ichor log accept",
                audit::keys(broken.first, broken.last)
            ))
    }

    /// Says that the lock is not held any more.
    pub fn lost(&self) -> Halt {
        Halt { kind: HaltKind::PartWay, findings: only(lost(&self.shown)) }
    }

    fn not_taken(&self, why: &NotTaken) -> Halt {
        match why {
            NotTaken::Held(holder) => {
                Halt { kind: HaltKind::Busy, findings: only(busy(holder, &self.shown)) }
            }
            NotTaken::Fault(fault) => self.stopped(fault),
            NotTaken::Illegible => {
                let message = format!("the lock of `{}` cannot be read", self.shown);
                let finding = Finding::error(Code::LOCK_ILLEGIBLE, None, message).because(why.to_string());
                let remedy = "if nobody is at work on the cluster, take it away:\n    ichor lock break";
                Halt::preflight(only(finding.remedy(remedy)))
            }
        }
    }

    /// Stops before anything was changed.
    fn stopped(&self, fault: &Fault) -> Halt {
        Halt::preflight(only(self.fault(fault)))
    }

    /// Stops with something changed that the store does not know of.
    fn failed(&self, fault: &Fault) -> Halt {
        Halt::failed(only(self.fault(fault)))
    }

    fn fault(&self, fault: &Fault) -> Finding {
        let (what, remedy) = match fault {
            Fault::NotReached(_) => {
                ("is not reached", "check the endpoint and the network, then run the same command again")
            }
            Fault::Denied(_) if self.is_shared() => (
                "does not let you in",
                "check what the environment says about who asks, and what they may do there: read, write, list and \
                 delete objects below the prefix",
            ),
            Fault::Denied(_) => ("does not let you in", "give yourself access to the directory"),
            Fault::Refused(_) | Fault::TooLarge(_) => {
                ("does not do what is asked", "see to the store, then run the same command again")
            }
        };
        Finding::error(Code::STORE_FAILED, None, format!("the store `{}` {what}", self.shown))
            .because(fault.to_string())
            .remedy(remedy)
    }

    fn flaw(&self, flaw: &Flaw) -> Finding {
        let shown = &self.shown;
        match flaw {
            Flaw::Fault(fault) => self.fault(fault),
            Flaw::Replayed(why) => {
                let seen = self.store.file(SEEN);
                Finding::error(Code::STORE_REPLAY, None, format!("the store `{shown}` shows less than was seen before"))
                    .because(why)
                    .because("it was restored from a backup, or somebody puts old secrets in place of new ones")
                    .remedy(format!(
                        "bring the newest generation back; if you know why it is gone, forget what was seen:\n    rm {}",
                        place::quoted(&seen)
                    ))
            }
            Flaw::Damaged { key, why } => self.damage(key, why, None),
            Flaw::Overtaken(_) => Finding::error(
                Code::LOCK_LOST,
                None,
                format!("somebody else has changed the store `{shown}`"),
            )
            .because(flaw.to_string())
            .because("theirs is kept, and what this run changed in the store is not")
            .remedy("run the same command again"),
            Flaw::TooLarge => {
                Finding::error(Code::STORE_FAILED, None, format!("too much is to go into `{shown}`"))
                    .because(flaw.to_string())
                    .remedy("make the secrets smaller: a bundle has about 12 KiB")
            }
        }
    }

    fn unfit(&self, why: &Unfit) -> Finding {
        let message = format!("the bucket of `{}` cannot keep two runs apart", self.shown);
        Finding::error(Code::STORE_UNFIT, None, message)
            .because(why.to_string())
            .remedy("use a server that honours `If-None-Match` and `If-Match` when it writes, or a newer release of this one")
    }
}

fn illegible(seen: &Path) -> Finding {
    Finding::error(Code::STORE_DAMAGED, None, format!("`{}` cannot be read", seen.display()))
        .because("it says which generation of the store was seen last")
        .remedy(format!("if you trust what is in the store now, remove it:\n    rm {}", place::quoted(seen)))
}

fn lost(shown: &str) -> Finding {
    Finding::error(Code::LOCK_LOST, None, format!("the lock of `{shown}` was lost"))
        .because("it was not renewed in time, or somebody took it away; another run may be at work")
        .remedy("see who holds it, and run the same command again when they are done:\n    ichor lock show")
}

fn busy(holder: &Holder, shown: &str) -> Finding {
    let message = format!("`{}` is at work on this cluster, with `ichor {}`", holder.who, holder.verb);
    Finding::error(Code::BUSY, None, message)
        .because(format!("it holds the lock of `{shown}` since {}", holder.since))
        .because(format!("its process is {}, its run {}", holder.process.id, holder.run))
        .remedy(
            "wait for it with `--lock-timeout 5m`; if it is dead for certain, and runs on another machine, take the \
             lock away:\n    ichor lock break",
        )
}

/// A journal as it is in a bucket.
#[derive(Debug)]
pub struct JournalCopy {
    objects: Arc<dyn Objects>,
    last: Option<(Version, Vec<u8>)>,
}

impl JournalCopy {
    /// Begins to copy.
    pub const fn new(objects: Arc<dyn Objects>) -> Self {
        Self { objects, last: None }
    }

    /// Copies the journal, if it has changed. That it fails costs speed after a crash, and nothing else.
    pub async fn send(&mut self, bytes: Vec<u8>) {
        if self.last.as_ref().is_some_and(|(_, last)| *last == bytes) {
            return;
        }
        let version = match self.last.take() {
            Some((version, _)) => Some(version),
            None => match self.objects.get(JOURNAL).await {
                Ok(there) => there.map(|there| there.version),
                Err(_) => return,
            },
        };
        let put = match &version {
            None => self.objects.create(JOURNAL, &bytes).await,
            Some(version) => self.objects.replace(JOURNAL, &bytes, version).await,
        };
        if let Ok(Put::Done(version)) = put {
            self.last = Some((version, bytes));
        }
    }
}
