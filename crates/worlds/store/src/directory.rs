//! Objects as files of a directory, for the owner alone.
//!
//! What is written gets another name first and is on disk before it gets its own, so that a crash leaves the old
//! object or the new one. A hard link fails when the name is taken; a rename does not, so whoever replaces holds a
//! lock of the operating system between looking and renaming, which ends with its process.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::FutureExt;

use crate::objects::{Answer, Fault, MAX_BYTES, Object, Objects, Put, Version, digest};

/// The file that whoever replaces an object holds for a moment.
const GUARD: &str = ".guard";
/// How often the guard is tried, and how long is waited in between. Nobody holds it for longer than a file takes.
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(50);
/// Tells the files of one process apart that are about to get a name.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Objects in a directory.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// How many acts are left before it fails for good: how tests stop it anywhere.
    #[cfg(test)]
    left: Option<AtomicUsize>,
}

impl Directory {
    /// Keeps objects in a directory, which is made when it is needed.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            #[cfg(test)]
            left: None,
        }
    }

    /// Fails after so many acts, as if the machine had stopped there.
    #[cfg(test)]
    pub fn stopping_after(root: impl Into<PathBuf>, acts: usize) -> Self {
        Self { root: root.into(), left: Some(AtomicUsize::new(acts)) }
    }

    #[cfg(test)]
    fn act(&self) -> io::Result<()> {
        let Some(left) = &self.left else { return Ok(()) };
        let took = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map(drop).map_err(|_| io::Error::other("stopped here"))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests stop here")]
    const fn act(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    fn read(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(key);
        match fs::symlink_metadata(&path) {
            Ok(named) if named.is_file() => {}
            Ok(_) => return Err(io::Error::other(format!("`{}` is not a file", path.display()))),
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        let file = match File::open(&path) {
            Err(error) if is_absence(&error) => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Writes a file of another name beside the one that it is to be.
    fn write_stray(&self, path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        let directory = path.parent().unwrap_or(&self.root);
        make_directory(directory)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stray = directory.join(format!(".{name}.{}-{number}.tmp", std::process::id()));
        self.act()?;
        // One that a killed process of this number left is in the way.
        let _ = fs::remove_file(&stray);
        let mut file = private().write(true).create_new(true).open(&stray)?;
        file.write_all(bytes)?;
        self.act()?;
        file.sync_all()?;
        Ok(stray)
    }

    fn create_now(&self, key: &str, bytes: &[u8]) -> io::Result<Put> {
        let path = self.path(key);
        let stray = self.write_stray(&path, bytes)?;
        self.act()?;
        let linked = fs::hard_link(&stray, &path);
        self.act()?;
        fs::remove_file(&stray)?;
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Put::Beaten),
            Err(error) => return Err(error),
        }
        self.act()?;
        sync(&path)?;
        Ok(Put::Done(version(bytes)))
    }

    async fn replace_now(&self, key: &str, bytes: &[u8], unchanged: &Version) -> io::Result<Put> {
        let path = self.path(key);
        make_directory(&self.root)?;
        let guard = private().write(true).create(true).truncate(false).open(self.root.join(GUARD))?;
        take(&guard).await?;
        if self.read(key)?.is_none_or(|now| version(&now) != *unchanged) {
            return Ok(Put::Beaten);
        }
        let stray = self.write_stray(&path, bytes)?;
        self.act()?;
        fs::rename(&stray, &path)?;
        self.act()?;
        sync(&path)?;
        Ok(Put::Done(version(bytes)))
    }

    fn names(&self, prefix: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(prefix)) {
            Err(error) if is_absence(&error) => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() && !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn fault(&self, error: &io::Error) -> Fault {
        let text = format!("`{}`: {error}", self.root.display());
        match error.kind() {
            ErrorKind::PermissionDenied => Fault::Denied(text),
            _ => Fault::Refused(text),
        }
    }
}

impl Objects for Directory {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Object>> {
        async move {
            match self.read(key).map_err(|error| self.fault(&error))? {
                Some(bytes) if bytes.len() > MAX_BYTES => Err(Fault::TooLarge(key.to_owned())),
                read => Ok(read.map(|bytes| Object { version: version(&bytes), bytes })),
            }
        }
        .boxed()
    }

    fn create<'a>(&'a self, key: &'a str, bytes: &'a [u8]) -> Answer<'a, Put> {
        async move { self.create_now(key, bytes).map_err(|error| self.fault(&error)) }.boxed()
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: &'a [u8], unchanged: &'a Version) -> Answer<'a, Put> {
        async move { self.replace_now(key, bytes, unchanged).await.map_err(|error| self.fault(&error)) }
            .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        async move { self.names(prefix).map_err(|error| self.fault(&error)) }.boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        async move {
            let removed = self.act().and_then(|()| fs::remove_file(self.path(key)));
            match removed {
                Err(error) if !is_absence(&error) => Err(self.fault(&error)),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// The bytes are the version: two objects with the same bytes are the same, and ours never come twice.
fn version(bytes: &[u8]) -> Version {
    Version { tag: Some(digest(bytes)), number: None }
}

async fn take(guard: &File) -> io::Result<()> {
    for _ in 0..TRIES {
        match guard.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PAUSE).await,
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, "another process is writing, and does not end"))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Waits until a name is on disk.
fn sync(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
