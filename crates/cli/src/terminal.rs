//! The two streams: data to stdout, talk to stderr.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
};

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

    /// Returns stdout as a pipe for data, for as long as a run goes.
    #[expect(clippy::unused_self, reason = "it is this terminal's stdout")]
    pub fn data_pipe(&self) -> Pipe {
        Pipe::new(io::stdout())
    }

    /// Returns stderr as a pipe for text, with its colours if they are wanted.
    pub fn talk_pipe(&self) -> Pipe {
        Pipe::new(AutoStream::new(io::stderr(), self.color))
    }

    /// Returns stderr as a screen that can be drawn on again and again, if it is one.
    #[expect(clippy::disallowed_methods, reason = "what a terminal can do is the environment's to tell")]
    pub fn screen(&self) -> Option<Screen> {
        let dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
        let size =
            || terminal_size::terminal_size_of(io::stderr()).map(|(width, height)| (width.0, height.0));
        if dumb || !self.stderr.is_terminal() || size().is_none() {
            return None;
        }
        let choice = match self.color {
            ColorChoice::Auto => AutoStream::choice(&self.stderr),
            wish => wish,
        };
        Some(Screen {
            pipe: Pipe::new(io::stderr()),
            size: Box::new(move || size().unwrap_or(Screen::USUAL_SIZE)),
            colored: choice != ColorChoice::Never,
        })
    }
}

/// A stream that is written to during a run, from whichever thread has something to say.
pub struct Pipe(Box<dyn Write + Send>);

impl Pipe {
    /// Writes to a stream.
    pub fn new(stream: impl Write + Send + 'static) -> Self {
        Self(Box::new(stream))
    }

    /// Writes text. A run goes on whether or not somebody reads about it.
    pub fn write(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes()).and_then(|()| self.0.flush());
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipe")
    }
}

/// A terminal whose last lines are drawn again and again.
pub struct Screen {
    pipe: Pipe,
    size: Box<dyn Fn() -> (u16, u16) + Send>,
    colored: bool,
}

impl Screen {
    /// Columns and lines of a terminal that does not tell.
    const USUAL_SIZE: (u16, u16) = (80, 24);

    /// A screen of a fixed size.
    #[cfg(test)]
    pub fn fixed(pipe: Pipe, size: (u16, u16), colored: bool) -> Self {
        Self { pipe, size: Box::new(move || size), colored }
    }

    /// Returns how many columns and lines there are at the moment.
    pub fn size(&self) -> (u16, u16) {
        (self.size)()
    }

    /// Draws over the last `above` lines, and leaves the cursor below what is drawn. Nothing else of the terminal is
    /// changed, so that there is nothing to put back, however the program ends.
    pub fn draw(&mut self, above: usize, lines: &[String]) {
        let up = if above > 0 { format!("\x1b[{above}A") } else { String::new() };
        let plain = |line: &String| anstream::adapter::strip_str(line).to_string();
        let shown = |line: &String| if self.colored { line.clone() } else { plain(line) };
        let body: String = lines.iter().map(|line| format!("\x1b[2K{}\n", shown(line))).collect();
        self.pipe.write(&format!("\r{up}{body}\x1b[J"));
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("colored", &self.colored).finish_non_exhaustive()
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
