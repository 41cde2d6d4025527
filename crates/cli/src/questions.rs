//! Questions to whoever sits at the terminal, each with a suggestion.

use std::{
    fmt::Display,
    io::{self, BufRead, IsTerminal, Read},
};

use anstyle::Style;

use crate::terminal::Terminal;

/// Most characters of an answer.
const MAX_ANSWER: u64 = 1024;
/// How often somebody may give an answer that makes no sense.
const MAX_TRIES: usize = 10;
const BOLD: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// Asks, if there is somebody to ask.
#[derive(Debug, Clone, Copy)]
pub struct Questions<'t> {
    terminal: &'t Terminal,
    asks: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// There is nobody to ask, and nothing to suggest.
    Nobody,
    /// Whoever was asked has gone.
    Gone,
}

impl<'t> Questions<'t> {
    /// Asks at a terminal, unless nothing is to be asked.
    pub fn at(terminal: &'t Terminal, silent: bool) -> Self {
        Self { terminal, asks: !silent && io::stdin().is_terminal() }
    }

    /// Whether there is somebody to ask.
    pub const fn asks(&self) -> bool {
        self.asks
    }

    /// Says something to whoever is asked.
    pub fn say(&self, text: &str) {
        if self.asks {
            self.terminal.tell(text);
        }
    }

    /// Asks until the answer makes sense. No answer is the one that is suggested; where nobody is asked, it is taken.
    pub fn ask<T: Display>(
        &self,
        question: &str,
        suggested: Option<T>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, NoAnswer> {
        if !self.asks {
            return suggested.ok_or(NoAnswer::Nobody);
        }
        let hint = suggested.as_ref().map(|it| format!(" {FAINT}[{it}]{FAINT:#}")).unwrap_or_default();
        let mut suggested = suggested;
        for _ in 0..MAX_TRIES {
            self.terminal.prompt(&format!("{BOLD}{question}{BOLD:#}{hint}: "));
            let typed = read_line()?;
            let answer = match (typed.trim(), suggested.take()) {
                ("", Some(suggested)) => return Ok(suggested),
                ("", None) => Err("please answer, or press Ctrl-C to leave".to_owned()),
                (typed, kept) => {
                    suggested = kept;
                    read(typed)
                }
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(why) => self.terminal.tell(&format!("  {why}")),
            }
        }
        Err(NoAnswer::Gone)
    }

    /// Asks which of some things is meant, by number or by name; the first is suggested.
    pub fn choose(&self, question: &str, choices: &[Choice]) -> Result<String, NoAnswer> {
        let Some(first) = choices.first() else { return Err(NoAnswer::Nobody) };
        if !self.asks || choices.len() == 1 {
            self.say(&format!("{BOLD}{question}{BOLD:#}: {} {FAINT}{}{FAINT:#}", first.name, first.about));
            return Ok(first.name.clone());
        }
        self.say(&format!("{BOLD}{question}{BOLD:#}:"));
        let width = choices.iter().map(|choice| choice.name.chars().count()).max().unwrap_or_default();
        for (index, choice) in choices.iter().enumerate() {
            self.say(&format!("  {}) {:width$}  {FAINT}{}{FAINT:#}", index + 1, choice.name, choice.about));
        }
        self.ask("Which one", Some(first.name.clone()), |typed| {
            let by_number =
                typed.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
            let chosen = by_number.or_else(|| choices.iter().find(|choice| choice.name == typed));
            chosen
                .map(|choice| choice.name.clone())
                .ok_or_else(|| format!("type a number from 1 to {}, or a name", choices.len()))
        })
    }

    /// Asks a question that is answered with yes or no.
    pub fn confirm(&self, question: &str, suggested: bool) -> Result<bool, NoAnswer> {
        let word = |yes| if yes { "yes" } else { "no" };
        let answer =
            self.ask(question, Some(word(suggested)), |typed| match typed.to_ascii_lowercase().as_str() {
                "y" | "yes" => Ok("yes"),
                "n" | "no" => Ok("no"),
                _ => Err("type yes or no".to_owned()),
            })?;
        Ok(answer == "yes")
    }
}

/// One of several things to choose from.
#[derive(Debug, Clone)]
pub struct Choice {
    /// What it is called.
    pub name: String,
    /// A few words about it.
    pub about: String,
}

fn read_line() -> Result<String, NoAnswer> {
    let mut line = String::new();
    match io::stdin().lock().take(MAX_ANSWER).read_line(&mut line) {
        Ok(length) if length > 0 => Ok(line),
        _ => Err(NoAnswer::Gone),
    }
}
