//! Reading files whose names come from outside: regular files only, and never more than a limit.

use std::{
    fs::{File, FileType, Metadata},
    io::Read,
    path::Path,
};

pub use ichor_ops::system::{Unreadable, is_absence};

/// Reads a regular file of at most `limit` bytes.
pub fn read_bounded(path: &Path, limit: usize) -> Result<Vec<u8>, Unreadable> {
    // Opening a named pipe waits for its writer, so the kind is asked by name first. It is asked
    // again of the open file, in case the name has come to mean something else in between.
    check(&std::fs::metadata(path).map_err(Unreadable::Os)?, limit)?;
    let file = File::open(path).map_err(Unreadable::Os)?;
    check(&file.metadata().map_err(Unreadable::Os)?, limit)?;
    // The size is not to be trusted either: files under /proc have none, and others grow.
    read_stream(file, limit)
}

/// Reads a stream of at most `limit` bytes to its end.
pub fn read_stream(stream: impl Read, limit: usize) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    stream.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(Unreadable::Os)?;
    match bytes.len() {
        len if len > limit => Err(Unreadable::TooLarge(len as u64)),
        _ => Ok(bytes),
    }
}

fn check(metadata: &Metadata, limit: usize) -> Result<(), Unreadable> {
    if !metadata.is_file() {
        return Err(Unreadable::NotAFile(kind_of(metadata.file_type())));
    }
    match metadata.len() {
        len if len > limit as u64 => Err(Unreadable::TooLarge(len)),
        _ => Ok(()),
    }
}

/// Says what something is that is no file.
pub fn kind_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").expect("file");
        assert_eq!(read_bounded(&path, 5).expect("five bytes"), b"12345");
        assert!(matches!(read_bounded(&path, 4), Err(Unreadable::TooLarge(5))));
    }

    #[test]
    fn what_is_missing_or_no_file_is_not_read() {
        let directory = tempfile::tempdir().expect("directory");
        assert!(matches!(read_bounded(directory.path(), 5), Err(Unreadable::NotAFile("a directory"))));
        assert!(read_bounded(&directory.path().join("nothing"), 5).expect_err("missing").is_missing());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_without_a_size_are_bounded_all_the_same() {
        assert!(matches!(read_bounded(Path::new("/proc/self/maps"), 16), Err(Unreadable::TooLarge(17))));
        assert!(matches!(read_bounded(Path::new("/dev/zero"), 16), Err(Unreadable::NotAFile("a device"))));
    }
}
