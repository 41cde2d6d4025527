//! Reading files whose names come from outside: regular files only, and never more than a limit.

use std::{
    fs::{File, FileType, Metadata},
    io::Read,
    path::Path,
};

pub use ichor_ops::system::{NotAFile, Unreadable, is_absence};

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

/// Reads a file that a user named in a command, or a pipe such as `<(sops -d FILE)`. Who names a pipe waits
/// for its writer.
pub fn read_given(path: &Path, limit: usize) -> Result<Vec<u8>, Unreadable> {
    let metadata = std::fs::metadata(path).map_err(Unreadable::Os)?;
    if !is_pipe(metadata.file_type()) {
        return read_bounded(path, limit);
    }
    let file = File::open(path).map_err(Unreadable::Os)?;
    // The name may have come to mean something else, which never ends or has another limit.
    match file.metadata().map_err(Unreadable::Os)? {
        opened if is_pipe(opened.file_type()) => read_stream(file, limit),
        opened => check(&opened, limit).and_then(|()| read_stream(file, limit)),
    }
}

#[cfg(unix)]
fn is_pipe(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(not(unix))]
const fn is_pipe(_: FileType) -> bool {
    false
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
pub fn kind_of(kind: FileType) -> NotAFile {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return NotAFile::Pipe;
        }
        if kind.is_socket() {
            return NotAFile::Socket;
        }
        if kind.is_char_device() || kind.is_block_device() {
            return NotAFile::Device;
        }
    }
    match kind {
        kind if kind.is_dir() => NotAFile::Directory,
        kind if kind.is_symlink() => NotAFile::Link,
        _ => NotAFile::Other,
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
        assert!(matches!(read_bounded(directory.path(), 5), Err(Unreadable::NotAFile(NotAFile::Directory))));
        assert!(read_bounded(&directory.path().join("nothing"), 5).expect_err("missing").is_missing());
    }

    #[cfg(unix)]
    #[test]
    fn only_a_pipe_that_a_user_names_is_read() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        std::io::Write::write_all(&mut writer, b"12345").expect("written");
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert!(matches!(read_bounded(Path::new(&path), 5), Err(Unreadable::NotAFile(NotAFile::Pipe))));
        assert_eq!(read_given(Path::new(&path), 5).expect("five bytes"), b"12345");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_without_a_size_are_bounded_all_the_same() {
        assert!(matches!(read_bounded(Path::new("/proc/self/maps"), 16), Err(Unreadable::TooLarge(17))));
        assert!(matches!(
            read_bounded(Path::new("/dev/zero"), 16),
            Err(Unreadable::NotAFile(NotAFile::Device))
        ));
    }
}
