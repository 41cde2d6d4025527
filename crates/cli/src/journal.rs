//! The journal of runs, as a file beside the secrets.
//!
//! It is itself and no link: the journal of one cluster is emptied again and again, and what a link leads to would
//! be. Of one that has grown too long the newest end counts.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use ichor_engine::{
    Past,
    journal::{Entry, Line, Sink},
};
use ichor_store::lock::Lease;

use crate::{
    files::{self, NotAFile, Unreadable},
    operating_system::is_same,
};

/// Most bytes that are looked through for what was in flight. A longer journal is put aside.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Reads what earlier runs left in flight. A journal that cannot be read costs speed, and nothing else.
pub fn read_past(path: &Path) -> Past {
    read_newest(path, MAX_BYTES).unwrap_or_default()
}

fn read_newest(path: &Path, limit: u64) -> io::Result<Past> {
    let file = open_itself(path, OpenOptions::new().read(true))?;
    let length = file.metadata()?.len();
    let mut lines = BufReader::new(file);
    if let Some(older) = length.checked_sub(limit).filter(|older| *older > 0) {
        lines.seek(SeekFrom::Start(older))?;
        // The rest of a line says nothing.
        lines.skip_until(b'\n')?;
    }
    Past::read(lines.take(limit))
}

/// Opens the journal: behind what an interrupted run wrote, or anew when everything is known.
pub fn open(path: &Path, past: &Past) -> io::Result<JournalFile> {
    open_within(path, past, MAX_BYTES)
}

fn open_within(path: &Path, past: &Past, limit: u64) -> io::Result<JournalFile> {
    let unfinished = past.in_flight().next().is_some();
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    let mut file = match open_itself(path, &options) {
        Err(error) if error.kind() == ErrorKind::NotFound => return create(path),
        opened => opened?,
    };
    match file.metadata()?.len() {
        _ if !unfinished => file.set_len(0)?,
        // Losing sight of what was in flight costs speed, so that a journal need not grow for ever.
        length if length > limit => {
            fs::rename(path, aside(path))?;
            return create(path);
        }
        0 => {}
        _ => end_line(&mut file)?,
    }
    Ok(JournalFile(file))
}

/// Makes a new file. A link of that name, even one that leads nowhere, is in the way and not followed.
fn create(path: &Path) -> io::Result<JournalFile> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(JournalFile)
}

/// Opens a file that is there and is no link, also when somebody puts a link there at this moment: what was looked
/// at by name must be what was opened.
fn open_itself(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let named = fs::symlink_metadata(path)?;
    if !named.is_file() {
        return Err(refused(files::kind_of(named.file_type())));
    }
    let file = options.open(path)?;
    if !is_same(&named, &file.metadata()?) {
        return Err(refused(NotAFile::Link));
    }
    Ok(file)
}

fn refused(kind: NotAFile) -> io::Error {
    io::Error::other(Unreadable::NotAFile(kind).to_string())
}

/// A run that was killed may have left half a line; the next one must not become its end.
fn end_line(file: &mut File) -> io::Result<()> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("old.jsonl")
}

/// A journal that is open.
#[derive(Debug)]
pub struct JournalFile(File);

impl Sink for JournalFile {
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())?;
        self.0.sync_data()
    }

    fn is_slow(&self) -> bool {
        true
    }
}

/// A journal that nothing is begun in once the lock is lost. Every step is written down before it is begun, so this
/// is the last moment to stop.
pub struct Guarded {
    journal: JournalFile,
    lease: Option<Arc<Lease>>,
}

impl Guarded {
    /// Guards a journal by a lock, if there is one.
    pub const fn new(journal: JournalFile, lease: Option<Arc<Lease>>) -> Self {
        Self { journal, lease }
    }
}

impl Sink for Guarded {
    fn append(&mut self, line: &str) -> io::Result<()> {
        let begins =
            serde_json::from_str::<Line>(line).is_ok_and(|it| matches!(it.entry, Entry::Started { .. }));
        if let Some(lease) = self.lease.as_ref().filter(|_| begins) {
            lease.check().map_err(io::Error::other)?;
        }
        self.journal.append(line)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        time::Duration,
    };

    use ichor_store::{
        Bucket,
        lock::{Request, Terms},
    };

    use super::*;

    fn started(step: &str) -> String {
        format!(r#"{{"schema":1,"run":"r","step":"{step}","what":"started","attempt":1}}"#)
    }

    fn in_flight(past: &Past) -> Vec<&str> {
        past.in_flight().map(ichor_engine::StepId::as_str).collect()
    }

    #[test]
    fn a_line_that_was_cut_does_not_swallow_the_next_one() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("journal.jsonl");
        let torn = format!("{}\n{}", started("a"), &started("b")[..20]);
        fs::write(&path, torn).expect("a journal");
        let past = read_past(&path);
        assert_eq!((in_flight(&past), past.damaged), (vec!["a"], 1));
        open(&path, &past).expect("open").append(&started("c")).expect("written");
        let past = read_past(&path);
        assert_eq!((in_flight(&past), past.damaged), (vec!["a", "c"], 1));
        // One that is whole is not touched.
        let before = fs::read(&path).expect("a journal");
        open(&path, &past).expect("open");
        assert_eq!(fs::read(&path).expect("a journal"), before);
    }

    #[test]
    fn a_journal_begins_anew_when_everything_is_known() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("journal.jsonl");
        open(&path, &Past::default()).expect("open").append("old").expect("written");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        open(&path, &Past::default()).expect("open").append("new").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("a journal"), "new\n");
    }

    #[test]
    fn of_a_long_journal_the_newest_end_counts_and_it_is_put_aside() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("journal.jsonl");
        let lines: String = (10..30).map(|step| started(&step.to_string()) + "\n").collect();
        fs::write(&path, &lines).expect("a journal");
        let limit = 3 * (started("10").len() as u64 + 1) + 5;
        let past = read_newest(&path, limit).expect("past");
        assert_eq!((in_flight(&past), past.damaged), (vec!["27", "28", "29"], 0));
        open_within(&path, &past, limit).expect("open").append("new").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("a journal"), "new\n");
        assert_eq!(fs::read_to_string(aside(&path)).expect("the old one"), lines);
    }

    #[test]
    fn a_link_is_neither_read_nor_followed() {
        let directory = tempfile::tempdir().expect("directory");
        let (path, precious) = (directory.path().join("journal.jsonl"), directory.path().join("precious"));
        symlink(&precious, &path).expect("a link");
        open(&path, &Past::default()).expect_err("a link that leads nowhere");
        assert!(!precious.exists());
        fs::write(&precious, started("a")).expect("a file");
        assert_eq!(read_past(&path), Past::default());
        let refused = open(&path, &Past::default()).expect_err("a link");
        assert!(refused.to_string().contains("link"), "{refused}");
        assert_eq!(fs::read_to_string(&precious).expect("a file"), started("a"));
    }

    #[test]
    fn nothing_is_begun_once_the_lock_is_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let now = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let clock = Arc::clone(&now);
        let terms = Terms::default();
        let request = Request {
            holder: crate::keeping::this_run("up").expect("a name"),
            terms,
            wait: Duration::ZERO,
            uptime: Arc::new(move || Duration::from_secs(clock.load(std::sync::atomic::Ordering::SeqCst))),
            is_dead: &|_| false,
            waiting: &|_| {},
        };
        let taken = runtime.block_on(ichor_store::lock::take(Arc::new(Bucket::in_memory()), request));
        let lease = Arc::new(taken.expect("taken").0);
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("journal.jsonl");
        let journal = open(&path, &Past::default()).expect("open");
        let mut guarded = Guarded::new(journal, Some(lease));
        guarded.append(&started("a")).expect("held");
        now.store(terms.lease.as_secs(), std::sync::atomic::Ordering::SeqCst);
        let refused = guarded.append(&started("b")).expect_err("lost");
        assert!(refused.to_string().contains("lock"), "{refused}");
        // What was in flight is still told.
        let ended = r#"{"schema":1,"run":"r","step":"a","what":"ended","known":true,"outcome":"done"}"#;
        guarded.append(ended).expect("told");
        assert_eq!(in_flight(&read_past(&path)), Vec::<&str>::new());
    }
}
