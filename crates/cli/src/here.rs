//! Commands that are advised, made to mean what the run that advises them means.
//!
//! A hint with a bare `ichor destroy` would, after a rehearsal with `--lab`, delete the real cluster; and after a run
//! with `-f` it would speak of another one. A command in a hint stands on a line of its own, indented.

use std::borrow::Cow;

use ichor_ops::place::quoted;
use serde_json::Value;

use crate::args::{Global, Place};

const PROGRAM: &str = "ichor ";
/// The key of a document that has a command for its value.
const NEXT: &str = "next";
/// Verbs that speak of no cluster, or only of the one that they make.
const ELSEWHERE: [&str; 6] = ["explain", "lab", "schema", "completions", "man", "init"];

/// Returns the options that say which cluster a run is about, and in which world.
pub fn options(global: &Global) -> String {
    let mut options = String::new();
    match global.world.place() {
        Place::Real => {}
        Place::Lab => options += "--lab ",
        Place::LabIn(file) => options += &format!("--lab --lab-state {} ", quoted(file)),
    }
    if let Some(file) = &global.file {
        options += &format!("-f {} ", quoted(file));
    }
    if let Some(cluster) = &global.cluster {
        options += &format!("--cluster {} ", quoted(cluster.as_ref()));
    }
    options
}

/// Gives the commands in a text some options. Those that have options of their own are left alone.
pub fn complete<'t>(text: &'t str, options: &str) -> Cow<'t, str> {
    if options.is_empty() || !text.contains(PROGRAM) {
        return Cow::Borrowed(text);
    }
    text.split_inclusive('\n').map(|line| complete_line(line, options)).collect::<String>().into()
}

/// Gives the commands in all texts of a document some options.
pub fn complete_in(value: &mut Value, options: &str) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(completed) = complete(text, options) {
                *text = completed;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| complete_in(item, options)),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                match field {
                    // It is a command and nothing else.
                    Value::String(command) if key == NEXT => {
                        let completed = complete_line(&format!("  {command}"), options);
                        completed.trim_start().clone_into(command);
                    }
                    field => complete_in(field, options),
                }
            }
        }
        _ => {}
    }
}

fn complete_line(line: &str, options: &str) -> String {
    let command = line.trim_start_matches(' ');
    let indent = &line[..line.len() - command.len()];
    match command.strip_prefix(PROGRAM) {
        Some(words) if indent.len() >= 2 && is_about_a_cluster(words) => {
            format!("{indent}{PROGRAM}{options}{words}")
        }
        _ => line.to_owned(),
    }
}

fn is_about_a_cluster(words: &str) -> bool {
    let verb = words.split_ascii_whitespace().next().unwrap_or_default();
    !verb.starts_with('-') && !ELSEWHERE.contains(&verb)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn of(words: &[&str]) -> String {
        let words = ["ichor"].iter().chain(words);
        options(&Cli::try_parse_from(words).expect("a command line").global)
    }

    #[test]
    fn advice_after_a_rehearsal_is_about_the_rehearsal() {
        assert_eq!(of(&["up"]), "");
        assert_eq!(of(&["up", "--lab", "--lab-state", "my lab.json"]), "--lab --lab-state 'my lab.json' ");
        let options = of(&["--lab", "-f", "prod", "--cluster", "a", "destroy"]);
        assert_eq!(options, "--lab -f prod --cluster a ");
        let advice = "hint: ichor is able to:\n    ichor destroy --yes\n    ichor explain ICH-1\n    ichor --lab up\nichor x\n    ichor up";
        let completed = "hint: ichor is able to:\n    ichor --lab -f prod --cluster a destroy --yes\n    ichor explain ICH-1\n    ichor --lab up\nichor x\n    ichor --lab -f prod --cluster a up";
        assert_eq!(complete(advice, &options), completed);
        assert_eq!(complete(advice, ""), advice);
        let mut document = serde_json::json!({
            "findings": [{"remedy": "look:\n    ichor up", "message": "ichor up is a verb", "explain": "ichor explain ICH-1"}],
            "next": "ichor up", "count": 1,
        });
        complete_in(&mut document, "--lab ");
        let expected = serde_json::json!({
            "findings": [{"remedy": "look:\n    ichor --lab up", "message": "ichor up is a verb", "explain": "ichor explain ICH-1"}],
            "next": "ichor --lab up", "count": 1,
        });
        assert_eq!(document, expected);
    }
}
