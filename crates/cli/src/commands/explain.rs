//! `ichor explain`: what a code or a topic is about.

use ichor_model::{
    Code,
    code::{CATALOGUE, Entry},
};
use ichor_plan::support;
use ichor_spec::yaml;
use serde_json::{Value, json};

use crate::{
    args::{Explain, Output},
    exit::Exit,
    failure::Failure,
    render::{document, table::Table, text},
    terminal::Terminal,
};

/// Widest text that reads well.
const TEXT_WIDTH: u16 = 100;
/// How many codes are offered in place of one that does not exist.
const OFFERED: usize = 3;

/// Explains a code or a topic, or lists all codes.
pub fn run(args: &Explain, output: Output, terminal: &Terminal) -> Result<Exit, Failure> {
    let (text, value) = match args.topic.as_deref() {
        None => (list_codes(terminal), CATALOGUE.iter().map(entry_value).collect()),
        Some("versions") => (list_versions(terminal), json!(support::TABLE)),
        Some("exit-codes") => {
            (list_exits(terminal), Exit::ALL.iter().map(|exit| exit_value(*exit)).collect())
        }
        Some(topic) => {
            let entry = topic.parse::<Code>().map_err(|()| unknown(topic))?.entry();
            (explain_entry(entry, terminal), entry_value(entry))
        }
    };
    match output {
        Output::Table => terminal.show(&text)?,
        Output::Json => terminal.data(document::json(&value))?,
        Output::Yaml => terminal.data(document::yaml(&value))?,
    }
    Ok(Exit::Done)
}

fn explain_entry(entry: &Entry, terminal: &Terminal) -> String {
    let width = terminal.width().map_or(TEXT_WIDTH, |width| width.min(TEXT_WIDTH));
    let head = text::bold(&format!("{}: {}", entry.code, entry.title));
    format!("{head}\n\n{}\n", text::wrap(entry.text, usize::from(width)))
}

fn list_codes(terminal: &Terminal) -> String {
    let mut table = Table::new(["CODE", "ABOUT"]);
    for entry in CATALOGUE {
        table.row([entry.code.to_string(), entry.title.to_owned()]);
    }
    table.render(terminal.width())
}

fn list_versions(terminal: &Terminal) -> String {
    let mut table = Table::new(["TALOS", "KUBERNETES", "BY DEFAULT"]);
    for row in support::TABLE {
        table.row([
            row.talos.to_string(),
            format!("{} to {}", row.oldest, row.newest),
            row.default.to_string(),
        ]);
    }
    table.render(terminal.width())
}

fn list_exits(terminal: &Terminal) -> String {
    let mut table = Table::new(["CODE", "MEANING"]);
    for exit in Exit::ALL {
        table.row([exit.code().to_string(), exit.meaning().to_owned()]);
    }
    table.numbers([0]).render(terminal.width())
}

fn entry_value(entry: &Entry) -> Value {
    json!({ "code": entry.code.to_string(), "title": entry.title, "text": entry.text })
}

fn exit_value(exit: Exit) -> Value {
    json!({ "code": exit.code(), "meaning": exit.meaning() })
}

fn unknown(topic: &str) -> Failure {
    let failure = Failure::new(Exit::InvalidInput, format!("nothing is known about `{}`", yaml::show(topic)));
    let near: Vec<String> =
        nearest(topic).iter().map(|e| format!("    ichor explain {}  # {}", e.code, e.title)).collect();
    match near.as_slice() {
        [] => failure.hint("list all codes:\n    ichor explain"),
        near => failure.hint(format!("perhaps one of these:\n{}", near.join("\n"))),
    }
}

/// Returns the codes with the nearest numbers; for a word, those whose titles have it.
fn nearest(topic: &str) -> Vec<&'static Entry> {
    let word = topic.to_lowercase();
    let digits: String = word.chars().filter(char::is_ascii_digit).take(4).collect();
    let mut entries: Vec<&Entry> = match digits.parse::<u16>() {
        Ok(number) => {
            let mut all: Vec<&Entry> = CATALOGUE.iter().collect();
            all.sort_by_key(|entry| entry.code.number().abs_diff(number));
            all
        }
        Err(_) => CATALOGUE.iter().filter(|entry| entry.title.to_lowercase().contains(&word)).collect(),
    };
    entries.truncate(OFFERED);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(topic: &str) -> Vec<String> {
        nearest(topic).iter().map(|entry| entry.code.to_string()).collect()
    }

    #[test]
    fn a_code_that_does_not_exist_has_neighbours() {
        assert_eq!(offered("ICH-1122"), ["ICH-1121", "ICH-1120", "ICH-1119"]);
        let last = CATALOGUE.last().expect("codes").code.to_string();
        assert_eq!(offered("ICH-99999999")[0], last);
    }

    #[test]
    fn a_word_finds_the_titles_that_have_it() {
        assert_eq!(offered("VLAN"), ["ICH-1512"]);
        assert_eq!(offered("gibberish"), [""; 0]);
    }
}
