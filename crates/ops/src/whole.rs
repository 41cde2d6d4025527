//! Files that are there whole or not at all.
//!
//! Both ways begin with a file of another name in the same directory, which is on disk before it gets the
//! name that counts. So a crash leaves at most a stray file, and never half of one that somebody reads.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{Halt, place::directory_of, system::System};

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

/// Most names that are looked at in one directory.
const MAX_NAMES: usize = 100_000;

/// Removes what runs that were killed left behind of files of these names. Nobody else may be writing them.
pub fn sweep(system: &dyn System, directory: &Path, is_ours: impl Fn(&str) -> bool) -> Result<(), Halt> {
    // A directory that cannot be read is somebody else's to complain about.
    for name in system.names(directory, MAX_NAMES).unwrap_or_default() {
        if name.to_str().and_then(file_of_stray).is_some_and(&is_ours) {
            let stray = directory.join(name);
            system.remove(&stray).map_err(|error| Halt::unwritable(&stray, &error))?;
        }
    }
    Ok(())
}

/// Returns the name of the file that a stray was to become, if it is one.
fn file_of_stray(name: &str) -> Option<&str> {
    let (file, number) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    let is_number = number.len() == 16 && number.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (is_number && !file.is_empty()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::file_of_stray;

    #[test]
    fn strays_are_told_by_their_names() {
        assert_eq!(file_of_stray(".secrets.yaml.0123456789abcdef.tmp"), Some("secrets.yaml"));
        assert_eq!(file_of_stray("..gitignore.0123456789abcdef.tmp"), Some(".gitignore"));
        for name in ["secrets.yaml", ".secrets.yaml.tmp", ".a.0123456789ABCDEF.tmp", "..0123456789abcdef.tmp"]
        {
            assert_eq!(file_of_stray(name), None, "{name}");
        }
    }
}
