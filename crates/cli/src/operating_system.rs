//! The machine that ichor runs on, as the verbs see it.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use ichor_machineconfig::{pki::Timestamp, secrets::SecretText};
use ichor_ops::system::{Contents, Links, NotText, System, Unreadable};
use zeroize::Zeroizing;

use crate::files;

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
        match std::env::var_os(name).map(std::ffi::OsString::into_string) {
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

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if files::is_absence(&error) => Ok(false),
            Err(error) => Err(error),
        }
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
        return Err(Unreadable::NotAFile("a symbolic link"));
    }
    if opened.len() > limit as u64 {
        return Err(Unreadable::TooLarge(opened.len()));
    }
    let bytes = files::read_stream(file, limit).map(Zeroizing::new)?;
    Ok(Contents { bytes, open_to_others: is_open_to_others(&opened) })
}

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    a.file_type() == b.file_type()
}

#[cfg(unix)]
fn is_open_to_others(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
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
        assert!(matches!(refused, Err(Unreadable::NotAFile("a symbolic link"))), "{refused:?}");
        assert!(matches!(OperatingSystem.read(&file, 0, Links::Refuse), Err(Unreadable::TooLarge(1))));
        symlink("loop", root.path().join("loop")).expect("link");
        assert!(OperatingSystem.read(&root.path().join("loop"), 10, Links::Follow).is_err());
        assert!(OperatingSystem.exists(&root.path().join("loop")).expect("asked"));
    }

    #[test]
    fn names_that_no_environment_has_are_not_asked_for() {
        for name in ["", "a=b", "a\0b"] {
            assert!(matches!(OperatingSystem.variable(name), Ok(None)));
        }
    }
}
