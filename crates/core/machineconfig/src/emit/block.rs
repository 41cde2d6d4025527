//! Maps and lists in block style.

use crate::document::{Map, Node, Value, scalar::float_text};

use super::scalar::{Place, key as key_text, text as write_text};

/// Writes a document.
pub fn document(map: &Map) -> String {
    let mut out = String::new();
    if map.is_empty() {
        out.push_str("{}\n");
    } else {
        entries(&mut out, map, 0, false);
    }
    out
}

/// Returns where the content of a value begins: inside a list item just past its dash, elsewhere
/// at the next multiple of four.
const fn inner(indent: usize, in_list: bool) -> usize {
    if in_list { indent + 2 } else { (indent + 4) / 4 * 4 }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Writes the entries of a map; the first one may continue the line of a list item's dash.
fn entries(out: &mut String, map: &Map, indent: usize, continues: bool) {
    for (i, (key, node)) in map.iter().enumerate() {
        if i > 0 || !continues {
            pad(out, indent);
        }
        match key_text(&key.text) {
            Some(key) => {
                out.push_str(&key);
                out.push(':');
            }
            None => {
                out.push_str("? ");
                let place = Place { indent, content: inner(indent, false) };
                write_text(out, &key.text, place);
                pad(out, indent);
                out.push(':');
            }
        }
        value(out, node, indent, false);
    }
}

fn items(out: &mut String, list: &[Node], indent: usize, continues: bool) {
    for (i, node) in list.iter().enumerate() {
        if i > 0 || !continues {
            pad(out, indent);
        }
        out.push('-');
        value(out, node, indent, true);
    }
}

/// Writes what comes after a key's colon or an item's dash, to the end of its last line.
fn value(out: &mut String, node: &Node, indent: usize, in_list: bool) {
    let content = inner(indent, in_list);
    match &node.value {
        Value::Map(map) if !map.is_empty() => {
            out.push_str(if in_list { " " } else { "\n" });
            entries(out, map, content, in_list);
        }
        Value::List(list) if !list.is_empty() => {
            out.push_str(if in_list { " " } else { "\n" });
            items(out, list, content, in_list);
        }
        Value::Text(text) => {
            out.push(' ');
            write_text(out, text, Place { indent, content });
        }
        other => {
            out.push(' ');
            out.push_str(&plain(other));
            out.push('\n');
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(switch) => switch.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Octal(mode) => format!("0o{mode:o}"),
        Value::Float(float) => float_text(*float),
        Value::Text(text) => text.clone(),
        Value::List(_) => "[]".to_owned(),
        Value::Map(_) => "{}".to_owned(),
    }
}
