//! The two streams: data to stdout, talk to stderr.

use std::{
    fmt,
    io::{self, IsTerminal, Read, Write},
};

use anstream::{AutoStream, ColorChoice};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    args::Color,
    here,
    render::{document, progress::aside},
};

/// Where output goes, and whether it may be coloured.
#[derive(Debug)]
pub struct Terminal {
    stdout: io::Stdout,
    stderr: io::Stderr,
    color: ColorChoice,
    /// The options that commands in a text need to mean what this run means.
    options: String,
    /// Whether what is written to stdout is a stream of events.
    events: bool,
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
        Self { stdout: io::stdout(), stderr: io::stderr(), color, options: String::new(), events: false }
    }

    /// Says which cluster and world commands in texts are about.
    #[must_use]
    pub fn about(mut self, options: String) -> Self {
        self.options = options;
        self
    }

    /// Says whether a program reads what happens as it happens, one JSON object a line, in place of one result.
    #[must_use]
    pub fn in_events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// Whether results are events of a stream.
    pub const fn is_in_events(&self) -> bool {
        self.events
    }

    /// Returns another handle of the same streams.
    pub fn another(&self) -> Self {
        let options = self.options.clone();
        Self { stdout: io::stdout(), stderr: io::stderr(), color: self.color, options, events: self.events }
    }

    /// Writes data to stdout, byte for byte.
    pub fn data(&self, text: impl AsRef<[u8]>) -> io::Result<()> {
        write_whole(&mut self.stdout.lock(), text.as_ref())
    }

    /// Writes a document to stdout as JSON. Commands in it mean what this run means, as those in texts do.
    pub fn json(&self, value: &impl Serialize) -> io::Result<()> {
        self.data(document::json(&self.completed(value)))
    }

    /// Writes a document to stdout as YAML.
    pub fn yaml(&self, value: &impl Serialize) -> io::Result<()> {
        self.data(document::yaml(&self.completed(value)))
    }

    /// Writes an event to stdout that is told before or after a run.
    pub fn event(&self, event: &str, object: Value) -> io::Result<()> {
        self.data(aside(event, object, &self.options))
    }

    fn completed(&self, value: &impl Serialize) -> Value {
        let mut value = document::value(value);
        here::complete_in(&mut value, &self.options);
        value
    }

    /// Returns the options that commands in a text need to mean what this run means.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Writes text for people to stdout, with its colours if they are wanted.
    pub fn show(&self, text: &str) -> io::Result<()> {
        let text = here::complete(text, &self.options);
        write_whole(&mut AutoStream::new(self.stdout.lock(), self.color), text.as_bytes())
    }

    /// Writes a line to stderr. There is nobody left to tell if that fails.
    pub fn tell(&self, text: &str) {
        let mut stream = AutoStream::new(self.stderr.lock(), self.color);
        let _ = writeln!(stream, "{}", here::complete(text, &self.options));
    }

    /// Writes the beginning of a line that somebody is to end.
    pub fn prompt(&self, text: &str) {
        let mut stream = AutoStream::new(self.stderr.lock(), self.color);
        let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
    }

    /// Asks for something that is not shown while it is typed; nothing, if nobody can or wants to answer.
    pub fn ask_secretly(&self, question: &str) -> Option<Zeroizing<String>> {
        if !io::stdin().is_terminal() {
            return None;
        }
        // Silent before the question is seen: whoever answers at once, such as a program, must not be echoed.
        let silent = Silent::begin()?;
        let mut stderr = self.stderr.lock();
        let _ = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
        let typed = read_typed(&mut io::stdin().lock());
        drop(silent);
        let _ = writeln!(stderr);
        typed
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

/// Most characters of an answer.
const MAX_TYPED: usize = 1024;

/// A terminal that shows nothing of what is typed, and hands over every key. It is put back when this is dropped: keys
/// such as Ctrl-C come as characters meanwhile, so that nothing ends the program before.
struct Silent(Termios);

impl Silent {
    fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Reads a line key by key. Ctrl-C and Ctrl-D give up, Ctrl-U begins again.
fn read_typed(keys: &mut impl Read) -> Option<Zeroizing<String>> {
    let mut typed = Zeroizing::new(Vec::with_capacity(MAX_TYPED));
    let mut key = [0];
    while keys.read_exact(&mut key).is_ok() && typed.len() < MAX_TYPED {
        match key[0] {
            b'\r' | b'\n' => {
                return std::str::from_utf8(&typed).ok().map(|text| Zeroizing::new(text.to_owned()));
            }
            0x03 | 0x04 => return None,
            0x08 | 0x7f => {
                // A letter may have several bytes, of which only the first begins it.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            0x15 => typed.clear(),
            byte => typed.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_can_be_corrected_and_given_up() {
        let typed = |keys: &[u8]| read_typed(&mut &keys[..]).map(|text| text.to_string());
        assert_eq!(typed(b"secret\n"), Some("secret".into()));
        assert_eq!(typed(b"sek\x7fcret\r"), Some("secret".into()));
        assert_eq!(typed("e\u{e9}\u{7f}x\n".as_bytes()), Some("ex".into()));
        assert_eq!(typed(b"wrong\x15right\n"), Some("right".into()));
        assert_eq!(typed(b"se\x03cret\n"), None);
        assert_eq!(typed(b"without an end"), None);
        assert_eq!(typed(&[b'x'; 2 * MAX_TYPED]), None);
    }
}
