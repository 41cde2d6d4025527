//! Other programs: one that prints a secret, and the user's editor.

use std::{
    io::{self, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use ichor_ops::system::{Limits, NoOutput};
use zeroize::Zeroizing;

/// How often a program that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a program by its words, without a shell, and returns what it prints. What it says on standard error is
/// nobody's: it might be the secret.
pub fn output_of(words: &[String], place: &Path, limits: Limits) -> Result<Zeroizing<Vec<u8>>, NoOutput> {
    let (program, arguments) = words.split_first().ok_or_else(|| not_started("there is no command"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(NoOutput::NotStarted)?;
    let stdout = child.stdout.take().ok_or_else(|| not_started("it has no output"))?;
    let (sender, receiver) = mpsc::channel();
    // The thread ends with the program, or with what the program left behind that holds its output.
    thread::spawn(move || {
        let mut bytes = Zeroizing::new(Vec::with_capacity(limits.bytes + 1));
        let read = stdout.take(limits.bytes as u64 + 1).read_to_end(&mut bytes);
        let _ = sender.send(read.map(|_| bytes));
    });
    let result = match receiver.recv_timeout(limits.deadline) {
        Ok(Ok(bytes)) if bytes.len() > limits.bytes => Err(NoOutput::TooLarge(limits.bytes)),
        Ok(Ok(bytes)) => ended(&mut child, limits.deadline).and_then(|status| match status {
            status if status.success() => Ok(bytes),
            status => Err(NoOutput::Failed(status.code())),
        }),
        Ok(Err(error)) => Err(NoOutput::NotStarted(error)),
        Err(_) => Err(NoOutput::TooLong(limits.deadline)),
    };
    // It may be gone already; then this does nothing.
    let _ = child.kill();
    let _ = child.wait();
    result
}

fn not_started(why: &str) -> NoOutput {
    NoOutput::NotStarted(io::Error::other(why.to_owned()))
}

/// Waits for a program that has closed its output.
fn ended(child: &mut Child, deadline: Duration) -> Result<ExitStatus, NoOutput> {
    let mut left = deadline;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if left.is_zero() => return Err(NoOutput::TooLong(deadline)),
            Ok(None) => {
                thread::sleep(LOOK.min(left));
                left = left.saturating_sub(LOOK);
            }
            Err(error) => return Err(NoOutput::NotStarted(error)),
        }
    }
}

/// Opens a file in an editor and waits until it is closed. Signals that would end this program end the editor, so
/// that the file can be removed after it.
pub fn edit(editor: &str, file: &Path) -> Result<(), String> {
    let mut words = editor.split_ascii_whitespace();
    let program = words.next().ok_or("there is no editor")?;
    let mut command = Command::new(program);
    command.args(words).arg(file);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let _inside = runtime.enter();
    let mut signals = Signals::catch().map_err(|error| error.to_string())?;
    let mut child = command.spawn().map_err(|error| format!("`{program}` could not be started: {error}"))?;
    let status = runtime.block_on(async {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Err(error) => return Err(error.to_string()),
                Ok(None) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = signals.end() => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err("it was ended by a signal".to_owned());
                }
            }
        }
    })?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` failed")) }
}

#[cfg(unix)]
struct Signals {
    /// The editor gets Ctrl-C too, and knows better what it means.
    _interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn catch() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            _interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self)
    }

    async fn end(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { deadline: Duration::from_secs(20), bytes: 1000 };

    fn run(words: &[&str], limits: Limits) -> Result<Zeroizing<Vec<u8>>, NoOutput> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        output_of(&words, Path::new("."), limits)
    }

    #[test]
    fn what_a_program_prints_is_taken_whole_or_not_at_all() {
        assert_eq!(run(&["echo", "a $HOME", "*"], LIMITS).expect("printed").as_slice(), b"a $HOME *\n");
        assert!(matches!(run(&["false"], LIMITS), Err(NoOutput::Failed(Some(1)))));
        assert!(matches!(run(&["no-such-program-at-all"], LIMITS), Err(NoOutput::NotStarted(_))));
        assert!(matches!(run(&[], LIMITS), Err(NoOutput::NotStarted(_))));
        let endless = run(&["yes"], LIMITS);
        assert!(matches!(endless, Err(NoOutput::TooLarge(1000))), "{endless:?}");
        let short = Limits { deadline: Duration::from_millis(50), ..LIMITS };
        assert!(matches!(run(&["sleep", "600"], short), Err(NoOutput::TooLong(_))));
        assert!(matches!(run(&["sh", "-c", "exec >&-; sleep 600"], short), Err(NoOutput::TooLong(_))));
        assert_eq!(run(&["cat"], LIMITS).expect("no input").as_slice(), b"");
    }

    #[test]
    fn an_editor_is_named_with_its_options() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("a file");
        std::fs::write(&file, "x").expect("file");
        assert_eq!(edit("test -s", &file), Ok(()));
        assert!(edit("test -d", &file).is_err());
        assert!(edit("no-such-editor-at-all", &file).expect_err("none").contains("no-such-editor"));
        assert!(edit(" ", &file).is_err());
    }
}
