//! The two streams: data to stdout, talk to stderr.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};

use crate::args::Color;

/// Where output goes, and whether it may be coloured.
#[derive(Debug)]
pub struct Terminal {
    stdout: io::Stdout,
    stderr: io::Stderr,
    color: ColorChoice,
}

impl Terminal {
    /// Opens the streams. With [`Color::Auto`], `NO_COLOR`, `CLICOLOR_FORCE` and the kind of each
    /// stream decide.
    pub fn new(color: Color) -> Self {
        let color = match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        Self { stdout: io::stdout(), stderr: io::stderr(), color }
    }

    /// Writes data to stdout, byte for byte.
    pub fn data(&self, text: impl AsRef<[u8]>) -> io::Result<()> {
        write_whole(&mut self.stdout.lock(), text.as_ref())
    }

    /// Writes text for people to stdout, with its colours if they are wanted.
    pub fn show(&self, text: &str) -> io::Result<()> {
        write_whole(&mut AutoStream::new(self.stdout.lock(), self.color), text.as_bytes())
    }

    /// Writes a line to stderr. There is nobody left to tell if that fails.
    pub fn tell(&self, text: &str) {
        let mut stream = AutoStream::new(self.stderr.lock(), self.color);
        let _ = writeln!(stream, "{text}");
    }

    /// Returns the width of the terminal behind stdout. When stdout is something else it is as wide
    /// as `COLUMNS` says, and unlimited (`None`) without that.
    #[expect(clippy::disallowed_methods, reason = "the width of a terminal is the environment's to tell")]
    pub fn width(&self) -> Option<u16> {
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
        terminal_size::terminal_size_of(&self.stdout).map(|(width, _)| width.0).or_else(columns)
    }
}

/// Writes everything. A reader that has gone (`ichor plan | head -1`) has seen what it wanted, so
/// that is no failure.
fn write_whole(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    match stream.write_all(bytes).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
