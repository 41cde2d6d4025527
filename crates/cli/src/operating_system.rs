//! The machine that ichor runs on, as the verbs see it.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use ichor_machineconfig::{pki::Timestamp, secrets::SecretText};
use ichor_net::{Direct, Endpoint, HttpClient, Trust};
use ichor_ops::system::{
    Contents, Entry, Limits, Links, Lock, NoOutput, NotAFile, NotText, Openness, System, Unreadable,
};
use ichor_port::{Http, Request, Response, TransportError};
use zeroize::Zeroizing;

use crate::{files, programs};

/// The operating system itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct OperatingSystem;

impl System for OperatingSystem {
    #[expect(clippy::disallowed_methods, reason = "time enters here")]
    fn now(&self) -> Timestamp {
        let seconds = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Timestamp::from_unix_seconds(seconds)
    }

    fn random(&self, buffer: &mut [u8]) -> io::Result<()> {
        aws_lc_rs::rand::fill(buffer).map_err(|_| io::Error::other("the system gives no random bytes"))
    }

    #[expect(clippy::disallowed_methods, reason = "the environment enters here")]
    fn variable(&self, name: &str) -> Result<Option<SecretText>, NotText> {
        // Names that cannot be in an environment would make the call panic.
        if name.is_empty() || name.contains(['=', '\0']) {
            return Ok(None);
        }
        match std::env::var_os(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(SecretText::new(value))),
            Some(Err(_)) => Err(NotText),
        }
    }

    fn read_stdin(&self, limit: usize) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
        files::read_stream(io::stdin().lock(), limit).map(Zeroizing::new)
    }

    fn read(&self, path: &Path, limit: usize, links: Links) -> Result<Contents, Unreadable> {
        if links == Links::Refuse {
            return read_itself(path, limit);
        }
        let bytes = files::read_bounded(path, limit).map(Zeroizing::new)?;
        let metadata = fs::metadata(path).map_err(Unreadable::Os)?;
        Ok(Contents { bytes, open_to_others: is_open_to_others(&metadata) })
    }

    fn read_given(&self, path: &Path, limit: usize) -> Result<Contents, Unreadable> {
        let bytes = files::read_given(path, limit).map(Zeroizing::new)?;
        // A pipe has ended with its reader, and only files lie open.
        let open_to_others = fs::metadata(path).is_ok_and(|it| it.is_file() && is_open_to_others(&it));
        Ok(Contents { bytes, open_to_others })
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => Ok(Some(Entry::Link)),
            Ok(metadata) if metadata.is_dir() => Ok(Some(Entry::Directory(openness(&metadata)))),
            Ok(_) => Ok(Some(Entry::Other)),
            Err(error) if files::is_absence(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self, path: &Path, limit: usize) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?.take(limit).map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
    }

    #[cfg(unix)]
    fn close(&self, path: &Path) -> io::Result<()> {
        let owner_alone = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(path, owner_alone)
    }

    #[cfg(not(unix))]
    fn close(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    /// The directory itself is locked, so nothing is left behind when the run ends, however it ends.
    #[cfg(unix)]
    fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let directory = File::open(path)?;
        match directory.try_lock() {
            Ok(()) => Ok(Some(Lock::new(directory))),
            Err(TryLockError::WouldBlock) => Ok(None),
            // Some network file systems know no locks; there two runs at once are the user's to avoid.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                Ok(Some(Lock::new(())))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    #[cfg(target_os = "linux")]
    fn occupant(&self, path: &Path) -> Option<String> {
        crate::occupant::of(path)
    }

    #[cfg(not(unix))]
    fn lock(&self, _: &Path) -> io::Result<Option<Lock>> {
        Ok(Some(Lock::new(())))
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            // Half a file is worse than none, and there is nobody to tell if it stays.
            let _ = fs::remove_file(path);
        }
        written
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn output_of(
        &self,
        words: &[String],
        place: &Path,
        limits: Limits,
    ) -> Result<Zeroizing<Vec<u8>>, NoOutput> {
        programs::output_of(words, place, limits)
    }

    /// On a thread of its own: whoever asks may be in the middle of other work that must not wait on itself.
    fn ask(
        &self,
        server: &Endpoint,
        trust: &Trust,
        request: Request,
        within: Duration,
    ) -> Result<Response, TransportError> {
        let not_asked = |error: String| TransportError::NotReached(error);
        let asking = || {
            let client = HttpClient::new(server.clone(), trust.clone(), None, Arc::new(Direct))
                .map_err(|error| TransportError::NotTrusted(error.to_string()))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| not_asked(error.to_string()))?;
            runtime.block_on(client.send(request, within))
        };
        thread::scope(|scope| scope.spawn(asking).join())
            .unwrap_or_else(|_| Err(not_asked("the request could not be made".to_owned())))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }
}

/// Reads a file that is no symbolic link, also when somebody puts a link there at this moment: what was
/// looked at by name must be what was opened.
fn read_itself(path: &Path, limit: usize) -> Result<Contents, Unreadable> {
    let named = fs::symlink_metadata(path).map_err(Unreadable::Os)?;
    if !named.is_file() {
        return Err(Unreadable::NotAFile(files::kind_of(named.file_type())));
    }
    let file = File::open(path).map_err(Unreadable::Os)?;
    let opened = file.metadata().map_err(Unreadable::Os)?;
    if !is_same(&named, &opened) {
        return Err(Unreadable::NotAFile(NotAFile::Link));
    }
    if opened.len() > limit as u64 {
        return Err(Unreadable::TooLarge(opened.len()));
    }
    let bytes = files::read_stream(file, limit).map(Zeroizing::new)?;
    Ok(Contents { bytes, open_to_others: is_open_to_others(&opened) })
}

/// Whether two looks were at the same file.
#[cfg(unix)]
pub fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whether two looks may have been at the same file.
#[cfg(not(unix))]
pub fn is_same(a: &Metadata, b: &Metadata) -> bool {
    a.file_type() == b.file_type()
}

#[cfg(unix)]
fn is_open_to_others(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(unix)]
fn openness(metadata: &Metadata) -> Openness {
    use std::os::unix::fs::PermissionsExt;
    match metadata.permissions().mode() {
        mode if mode & 0o022 != 0 => Openness::Writable,
        mode if mode & 0o077 != 0 => Openness::Readable,
        _ => Openness::Closed,
    }
}

#[cfg(not(unix))]
const fn openness(_: &Metadata) -> Openness {
    Openness::Closed
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Metadata) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("metadata").permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_is_for_its_owner_alone() {
        let root = tempfile::tempdir().expect("directory");
        let directory = root.path().join("a/b");
        OperatingSystem.make_directory(&directory).expect("made");
        OperatingSystem.make_directory(&directory).expect("made again");
        let file = directory.join("file");
        OperatingSystem.write_new(&file, b"x").expect("written");
        assert_eq!((mode(&root.path().join("a")), mode(&directory), mode(&file)), (0o700, 0o700, 0o600));
        assert!(OperatingSystem.write_new(&file, b"y").is_err());
        OperatingSystem.sync_directory(&directory).expect("synced");
    }

    #[test]
    fn links_are_followed_only_where_that_is_wanted() {
        let root = tempfile::tempdir().expect("directory");
        let (file, link) = (root.path().join("file"), root.path().join("link"));
        fs::write(&file, "x").expect("file");
        symlink(&file, &link).expect("link");
        assert!(OperatingSystem.read(&link, 10, Links::Follow).is_ok());
        let refused = OperatingSystem.read(&link, 10, Links::Refuse);
        assert!(matches!(refused, Err(Unreadable::NotAFile(NotAFile::Link))), "{refused:?}");
        assert!(matches!(OperatingSystem.read(&file, 0, Links::Refuse), Err(Unreadable::TooLarge(1))));
        symlink("loop", root.path().join("loop")).expect("link");
        assert!(OperatingSystem.read(&root.path().join("loop"), 10, Links::Follow).is_err());
        assert!(OperatingSystem.exists(&root.path().join("loop")).expect("asked"));
    }

    #[test]
    fn directories_are_told_apart_by_who_may_enter_and_closed() {
        let root = tempfile::tempdir().expect("directory");
        for (mode, open) in
            [(0o700, Openness::Closed), (0o755, Openness::Readable), (0o770, Openness::Writable)]
        {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).expect("mode");
            let entry = OperatingSystem.entry(root.path()).expect("asked");
            assert_eq!(entry, Some(Entry::Directory(open)), "{mode:o}");
        }
        OperatingSystem.close(root.path()).expect("closed");
        assert_eq!(mode(root.path()), 0o700);
    }

    #[test]
    fn one_run_at_a_time_is_in_a_directory() {
        let root = tempfile::tempdir().expect("directory");
        let lock = OperatingSystem.lock(root.path()).expect("asked");
        assert!(lock.is_some());
        assert!(OperatingSystem.lock(root.path()).expect("asked").is_none());
        drop(lock);
        assert!(OperatingSystem.lock(root.path()).expect("asked").is_some());
    }

    #[test]
    fn names_that_no_environment_has_are_not_asked_for() {
        for name in ["", "a=b", "a\0b"] {
            assert!(matches!(OperatingSystem.variable(name), Ok(None)));
        }
    }

    #[test]
    fn servers_are_asked_also_in_the_middle_of_other_work() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut asked = [0; 1024];
            let length = io::Read::read(&mut stream, &mut asked).expect("a request");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").expect("an answer");
            String::from_utf8_lossy(&asked[..length]).into_owned()
        });
        let request = || Request {
            method: ichor_port::Method::Get,
            target: "/v1/a".into(),
            headers: Vec::new(),
            authorization: None,
            body: Vec::new(),
        };
        let server = Endpoint { host: "127.0.0.1".into(), port, tls: false };
        let ask = || OperatingSystem.ask(&server, &Trust::System, request(), Duration::from_secs(10));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let answer = runtime.block_on(async { ask() }).expect("an answer");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{}"[..]));
        assert!(serving.join().expect("served").starts_with("GET /v1/a HTTP/1.1"));
        assert!(matches!(ask(), Err(TransportError::NotReached(_))));
    }
}
