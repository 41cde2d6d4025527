//! Who holds a lock of the operating system: Linux lists all of them in `/proc/locks`.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// Most of the words of a command that are shown.
const MAX_WORDS: usize = 4;

/// Says which process keeps others, and so this one, out of a directory.
pub fn of(path: &Path) -> Option<String> {
    found(path).filter(|(process, _)| *process != std::process::id()).map(|(_, words)| words)
}

fn found(path: &Path) -> Option<(u32, String)> {
    let inode = fs::metadata(path).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let process = holder(&locks, inode)?;
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = match shown(&command) {
        Some(words) => format!("process {process}, `{words}`"),
        None => format!("process {process}"),
    };
    Some((process, words))
}

/// Finds the process that holds a lock on a file: `1: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF` (`proc_locks(5)`). Which
/// device a file is on is not the same here and there on some file systems, so its number alone has to do; another
/// file of that number that is locked too would be a strange chance.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // `->` before the kind marks one who waits.
        let [_, "FLOCK", _, "WRITE", process, file, ..] = words[..] else { return None };
        let number: u64 = file.rsplit(':').next()?.parse().ok()?;
        (number == inode).then(|| process.parse().ok())?
    })
}

/// Returns the name of a program and the words before its first option: an option may have anything for its value.
fn shown(command: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(command);
    let mut words = text.split('\0').filter(|word| !word.is_empty());
    let program = Path::new(words.next()?).file_name()?.to_str()?.to_owned();
    let verbs = words.filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
    let verbs = verbs.take_while(|word| !word.starts_with('-')).take(MAX_WORDS);
    Some(std::iter::once(program.as_str()).chain(verbs).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_a_directory_is_found() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(found(directory.path()), None);
        let held = fs::File::open(directory.path()).expect("a directory");
        held.lock().expect("held");
        let (process, words) = found(directory.path()).expect("somebody");
        assert_eq!(process, std::process::id());
        assert!(words.starts_with(&format!("process {process}, `")), "{words}");
        assert_eq!(of(directory.path()), None, "nobody is in their own way");
    }

    #[test]
    fn lists_of_locks_and_commands_are_read() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fd:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 42 00:2d:7 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 43 00:2d:7 0 EOF\n";
        assert_eq!(holder(locks, 7), Some(42));
        assert_eq!(holder(locks, 8), None);
        assert_eq!(holder("nonsense\n\n3: FLOCK", 7), None);
        let shown = |words: &[&str]| shown(words.join("\0").as_bytes());
        assert_eq!(shown(&["/usr/bin/ichor", "secrets", "edit"]).as_deref(), Some("ichor secrets edit"));
        assert_eq!(shown(&["ichor", "--cluster", "Prod", "up"]).as_deref(), Some("ichor"));
        assert_eq!(shown(&["ichor", "a\u{1b}[2J", "up"]).as_deref(), Some("ichor up"));
        assert_eq!(shown(&[]), None);
    }
}
