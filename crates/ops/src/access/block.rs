//! A YAML tree as text again, each value as it was: what stood without quotes stays so, and what stood in quotes
//! stays text.

use ichor_spec::yaml::{Key, Kind, Node};
use zeroize::Zeroizing;

/// Writes a map in block style, as kubectl does. Comments are not in a tree.
pub fn write(root: &Node) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(16 * 1024));
    match &root.kind {
        Kind::Map(entries) if !entries.is_empty() => put_map(&mut out, entries, 0, true),
        _ => {
            put_single(&mut out, root);
            out.push('\n');
        }
    }
    out
}

fn put_map(out: &mut String, entries: &[(Key, Node)], indent: usize, indent_first: bool) {
    for (at, (key, value)) in entries.iter().enumerate() {
        if at > 0 || indent_first {
            put_spaces(out, indent);
        }
        put_text(out, &key.text, key.plain);
        out.push(':');
        match &value.kind {
            Kind::Map(entries) if !entries.is_empty() => {
                out.push('\n');
                put_map(out, entries, indent + 2, true);
            }
            Kind::List(items) if !items.is_empty() => {
                out.push('\n');
                put_list(out, items, indent, true);
            }
            _ => {
                out.push(' ');
                put_single(out, value);
                out.push('\n');
            }
        }
    }
}

fn put_list(out: &mut String, items: &[Node], indent: usize, indent_first: bool) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 || indent_first {
            put_spaces(out, indent);
        }
        out.push_str("- ");
        match &item.kind {
            Kind::Map(entries) if !entries.is_empty() => put_map(out, entries, indent + 2, false),
            Kind::List(items) if !items.is_empty() => put_list(out, items, indent + 2, false),
            _ => {
                put_single(out, item);
                out.push('\n');
            }
        }
    }
}

/// Writes what stands on one line: anything but a map or a list with something in it.
fn put_single(out: &mut String, node: &Node) {
    match &node.kind {
        Kind::Null => out.push_str("null"),
        Kind::Scalar { text, plain } => put_text(out, text, *plain),
        Kind::List(_) => out.push_str("[]"),
        Kind::Map(_) => out.push_str("{}"),
    }
}

fn put_text(out: &mut String, text: &str, plain: bool) {
    // Text without quotes over several lines has its breaks no more; only a number of lines that stays needs quotes.
    if plain && !text.is_empty() && !text.contains(is_special) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_special(c) => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Whether a reader might take a character for the end of a line, or not take it at all.
pub fn is_special(c: char) -> bool {
    c.is_control() || matches!(c, '\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn put_spaces(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n(' ', count));
}
