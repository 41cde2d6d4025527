//! Text of a tree: YAML as sops lays it out, and JSON.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::{
    scalar::{Meaning, resolve},
    tree::{Comment, Entry, Item, Map, Scalar, Value},
};

const INDENT: usize = 4;

/// Writes documents as YAML.
pub fn yaml(documents: &[Map]) -> String {
    let mut out = String::new();
    for (i, document) in documents.iter().enumerate() {
        if i > 0 {
            out.push_str("---\n");
        }
        map(&mut out, document, 0, "");
    }
    out
}

/// Writes the entries of a map, whose first line may begin behind a dash.
fn map(out: &mut String, entries: &[Entry], indent: usize, first: &str) {
    let mut margin = Margin { indent, first };
    let mut behind: Vec<&Comment> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Comment(it) if it.is_inline => behind.push(it),
            Entry::Comment(it) => margin.comment(out, it),
            Entry::Pair(key, item) => {
                let fits =
                    matches!(item, Value::Null) || matches!(item, Value::Scalar(it) if block(it).is_none());
                let is_behind = fits && behind.len() == 1;
                if !is_behind {
                    margin.comments(out, &mut behind);
                }
                margin.begin(out);
                let _ = write!(out, "{}:", word(key));
                value(out, item, indent, behind.pop());
            }
        }
    }
    margin.comments(out, &mut behind);
    if !entries.iter().any(|entry| matches!(entry, Entry::Pair(..))) {
        margin.line(out, "{}");
    }
}

/// What stands before the next line: spaces, or a dash where the first line of an item is due.
struct Margin<'a> {
    indent: usize,
    first: &'a str,
}

impl Margin<'_> {
    fn begin(&mut self, out: &mut String) {
        if self.first.is_empty() {
            spaces(out, self.indent);
        } else {
            out.push_str(self.first);
            self.first = "";
        }
    }

    fn comment(&mut self, out: &mut String, it: &Comment) {
        self.begin(out);
        let _ = writeln!(out, "#{}", it.text.as_str());
    }

    /// Writes comments over what they were to stand behind.
    fn comments(&mut self, out: &mut String, all: &mut Vec<&Comment>) {
        for it in all.drain(..) {
            self.comment(out, it);
        }
    }

    fn line(&mut self, out: &mut String, text: &str) {
        self.begin(out);
        out.push_str(text);
        out.push('\n');
    }
}

/// Writes what follows a key and its colon.
fn value(out: &mut String, item: &Value, indent: usize, behind: Option<&Comment>) {
    match item {
        Value::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        Value::List(items) if items.is_empty() => out.push_str(" []\n"),
        Value::Map(entries) => {
            out.push('\n');
            map(out, entries, indent + INDENT, "");
        }
        Value::List(items) => {
            out.push('\n');
            list(out, items, indent + INDENT, "");
        }
        Value::Null => single(out, "null", behind),
        Value::Scalar(it) => match block(it) {
            Some((mark, lines)) => literal(out, mark, lines, indent + INDENT),
            None => single(out, &scalar(it), behind),
        },
    }
}

fn single(out: &mut String, text: &str, behind: Option<&Comment>) {
    let _ = match behind {
        Some(comment) => writeln!(out, " {text} #{}", comment.text.as_str()),
        None => writeln!(out, " {text}"),
    };
}

fn list(out: &mut String, items: &[Item], indent: usize, first: &str) {
    let mut margin = Margin { indent, first };
    let mut behind: Vec<&Comment> = Vec::new();
    for item in items {
        let item = match item {
            Item::Comment(it) if it.is_inline => {
                behind.push(it);
                continue;
            }
            Item::Comment(it) => {
                margin.comment(out, it);
                continue;
            }
            Item::Value(item) => item,
        };
        let fits = matches!(item, Value::Null) || matches!(item, Value::Scalar(it) if block(it).is_none());
        if !(fits && behind.len() == 1) {
            margin.comments(out, &mut behind);
        }
        margin.begin(out);
        out.push('-');
        match item {
            // A comment cannot be the first thing behind a dash, which belongs to the first key.
            Value::Map(entries) if matches!(entries.first(), Some(Entry::Pair(..))) => {
                map(out, entries, indent + 2, " ");
            }
            Value::List(items) if matches!(items.first(), Some(Item::Value(_))) => {
                list(out, items, indent + 2, " ");
            }
            Value::Map(entries) if !entries.is_empty() => {
                out.push('\n');
                map(out, entries, indent + 2, "");
            }
            Value::List(items) if !items.is_empty() => {
                out.push('\n');
                list(out, items, indent + 2, "");
            }
            other => value(out, other, indent, behind.pop()),
        }
    }
    margin.comments(out, &mut behind);
    if !items.iter().any(|item| matches!(item, Item::Value(_))) {
        margin.line(out, "[]");
    }
}

fn spaces(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n(' ', count));
}

/// Returns the mark and the lines of a text that is written over several lines.
fn block(it: &Scalar) -> Option<(&'static str, &str)> {
    let Scalar::Text(text) = it else { return None };
    let body = text.strip_suffix('\n').unwrap_or(text);
    let fits = text.contains('\n')
        && !body.is_empty()
        && !body.starts_with([' ', '\t', '\n'])
        && !body.ends_with('\n')
        && body.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
        && body.lines().all(|line| !line.trim().is_empty() || line.is_empty());
    fits.then_some((if text.ends_with('\n') { "|" } else { "|-" }, body))
}

fn literal(out: &mut String, mark: &str, lines: &str, indent: usize) {
    let _ = writeln!(out, " {mark}");
    for line in lines.split('\n') {
        if !line.is_empty() {
            spaces(out, indent);
            out.push_str(line);
        }
        out.push('\n');
    }
}

fn scalar(it: &Scalar) -> Zeroizing<String> {
    match it {
        Scalar::Text(text) => Zeroizing::new(word(text)),
        Scalar::Float(number) => Zeroizing::new(float(*number)),
        Scalar::Bool(value) => Zeroizing::new(value.to_string()),
        // sops writes such values as text, and reads them back as such.
        Scalar::Bytes(bytes) => Zeroizing::new(word(&STANDARD.encode(bytes.as_slice()))),
        other => bare(other),
    }
}

/// Writes a number so that it is read as the same number.
fn float(number: f64) -> String {
    match number {
        _ if number.is_nan() => ".nan".to_owned(),
        f64::INFINITY => ".inf".to_owned(),
        f64::NEG_INFINITY => "-.inf".to_owned(),
        _ => format!("{number:?}"),
    }
}

/// Returns a value without any quotes, as it counts for the checksum over all of them.
pub fn bare(it: &Scalar) -> Zeroizing<String> {
    Zeroizing::new(match it {
        Scalar::Text(text) => return text.clone(),
        Scalar::Int(number) => number.to_string(),
        Scalar::Float(number) if number.is_nan() => "NaN".to_owned(),
        Scalar::Float(f64::INFINITY) => "+Inf".to_owned(),
        Scalar::Float(f64::NEG_INFINITY) => "-Inf".to_owned(),
        Scalar::Float(number) => number.to_string(),
        Scalar::Bool(true) => "True".to_owned(),
        Scalar::Bool(false) => "False".to_owned(),
        Scalar::Time(text) => text.clone(),
        Scalar::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    })
}

/// Writes text in one line, with quotes where a reader could take it for something else.
fn word(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

fn is_plain(text: &str) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || " _./+=@:,-[]()".contains(c);
    let starts = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || "_/".contains(c));
    starts
        && text.chars().all(is_safe)
        && !text.contains(": ")
        && !text.ends_with([' ', ':'])
        && matches!(resolve(text), Meaning::Scalar(Scalar::Text(_)))
        && !is_word_of_others(text)
}

/// Text that some readers of YAML take for a number or a switch.
fn is_word_of_others(text: &str) -> bool {
    let starts_like_number = text.starts_with(|c: char| c.is_ascii_digit());
    let switches = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let looks_like_number = text.contains([':', '.', 'e', 'E', '-', '_', 'o', 'x', 'b']) || is_all_digits;
    starts_like_number && looks_like_number || switches.contains(&text.to_ascii_lowercase().as_str())
}

fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) < 0x100 => {
                let _ = write!(out, "\\x{:02X}", u32::from(c));
            }
            c if u32::from(c) < 0x1_0000 => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

/// Writes an object as JSON.
pub fn json(entries: &[Entry]) -> String {
    let mut out = String::new();
    object(&mut out, entries, 0);
    out.push('\n');
    out
}

fn object(out: &mut String, entries: &[Entry], depth: usize) {
    let pairs = entries.iter().filter_map(|entry| match entry {
        Entry::Pair(key, value) => Some((Some(key.as_str()), value)),
        Entry::Comment(_) => None,
    });
    enclosed(out, "{}", &pairs.collect::<Vec<_>>(), depth);
}

fn enclosed(out: &mut String, ends: &str, values: &[(Option<&str>, &Value)], depth: usize) {
    out.push_str(&ends[..1]);
    let mut is_empty = true;
    for (key, value) in values {
        out.push_str(if is_empty { "\n" } else { ",\n" });
        is_empty = false;
        out.extend(std::iter::repeat_n('\t', depth + 1));
        if let Some(key) = key {
            let _ = write!(out, "{}: ", json_text(key));
        }
        match value {
            Value::Null => out.push_str("null"),
            Value::Map(entries) => object(out, entries, depth + 1),
            Value::List(items) => {
                let values = items.iter().filter_map(|item| match item {
                    Item::Value(value) => Some((None, value)),
                    Item::Comment(_) => None,
                });
                enclosed(out, "[]", &values.collect::<Vec<_>>(), depth + 1);
            }
            Value::Scalar(it) => out.push_str(&json_scalar(it)),
        }
    }
    if !is_empty {
        out.push('\n');
        out.extend(std::iter::repeat_n('\t', depth));
    }
    out.push_str(&ends[1..]);
}

fn json_scalar(it: &Scalar) -> Zeroizing<String> {
    Zeroizing::new(match it {
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(_) => return bare(it),
        Scalar::Float(number) if number.is_finite() => format!("{number:?}"),
        Scalar::Bytes(bytes) => json_text(&STANDARD.encode(bytes.as_slice())),
        other => json_text(&bare(other)),
    })
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
