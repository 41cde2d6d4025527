//! Files that are there whole or not at all.
//!
//! Both ways begin with a file of another name in the same directory, which is on disk before it gets the
//! name that counts. So a crash leaves at most a stray file, and never half of one that somebody reads.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::system::System;

/// Writes a file unless there is one of that name, whoever else may be writing it at the same time.
///
/// A hard link, unlike a rename, fails when the name is taken: of two runs at once one loses, and nothing
/// is lost.
pub fn create(system: &dyn System, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let stray = write_stray(system, path, bytes)?;
    let linked = system.link(&stray, path);
    let removed = system.remove(&stray);
    linked?;
    removed?;
    system.sync_directory(directory_of(path))
}

/// Writes a file, over the one of that name if there is one. A link of that name is replaced, not followed.
pub fn replace(system: &dyn System, path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(system, path, bytes)?;
    system.sync_directory(directory_of(path))
}

/// Does the same without waiting for the directory: whoever writes many files waits once, at the end. Until
/// then a crash may leave the old file, and still never half of the new one.
pub fn put(system: &dyn System, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let stray = write_stray(system, path, bytes)?;
    if let Err(error) = system.rename(&stray, path) {
        // The reason why it could not be moved is worth more than the reason why it could not be removed.
        let _ = system.remove(&stray);
        return Err(error);
    }
    Ok(())
}

fn write_stray(system: &dyn System, path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut number = [0; 8];
    system.random(&mut number)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = u64::from_le_bytes(number);
    let stray = directory_of(path).join(format!(".{name}.{number:016x}.tmp"));
    system.write_new(&stray, bytes)?;
    Ok(stray)
}

/// Returns the directory of a file. That of a bare name is the current one.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
