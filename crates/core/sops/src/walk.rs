//! A walk over all values and comments of a file, in its order.

use crate::{
    Flaw,
    tree::{Comment, Entry, Item, Map, Scalar, Value},
};

/// Something at the end of a branch.
pub enum Leaf {
    Scalar(Scalar),
    Comment(Comment),
}

/// Turns a leaf into another one; the keys are those that lead to it.
pub type Turn<'a> = &'a mut dyn FnMut(Leaf, &[String]) -> Result<Leaf, Flaw>;

/// Walks over documents, and returns them with every leaf turned.
pub fn documents(documents: Vec<Map>, turn: Turn<'_>) -> Result<Vec<Map>, Flaw> {
    documents.into_iter().map(|document| map(document, &mut Vec::new(), turn)).collect()
}

fn map(entries: Map, keys: &mut Vec<String>, turn: Turn<'_>) -> Result<Map, Flaw> {
    let mut turned = Vec::with_capacity(entries.len());
    for entry in entries {
        turned.push(match entry {
            Entry::Comment(it) => Entry::Comment(comment(it, keys, turn)?),
            Entry::Pair(key, value) => {
                keys.push(key);
                let value = one(value, keys, turn)?;
                Entry::Pair(keys.pop().unwrap_or_default(), value)
            }
        });
    }
    Ok(turned)
}

fn one(value: Value, keys: &mut Vec<String>, turn: Turn<'_>) -> Result<Value, Flaw> {
    Ok(match value {
        // Nothing is neither encrypted nor counted.
        Value::Null => Value::Null,
        Value::Map(entries) => Value::Map(map(entries, keys, turn)?),
        Value::List(items) => Value::List(list(items, keys, turn)?),
        Value::Scalar(scalar) => match turn(Leaf::Scalar(scalar), keys)? {
            Leaf::Scalar(scalar) => Value::Scalar(scalar),
            Leaf::Comment(_) => {
                return Err(Flaw::tampered(format!("has a comment in place of `{}`", shown(keys))));
            }
        },
    })
}

/// In a list, an encrypted comment is an item like the others.
fn list(items: Vec<Item>, keys: &mut Vec<String>, turn: Turn<'_>) -> Result<Vec<Item>, Flaw> {
    let mut turned = Vec::with_capacity(items.len());
    for item in items {
        let leaf = match item {
            Item::Comment(comment) => Leaf::Comment(comment),
            Item::Value(Value::Scalar(scalar)) => Leaf::Scalar(scalar),
            Item::Value(value) => {
                turned.push(Item::Value(one(value, keys, turn)?));
                continue;
            }
        };
        turned.push(match turn(leaf, keys)? {
            Leaf::Comment(comment) => Item::Comment(comment),
            Leaf::Scalar(scalar) => Item::Value(Value::Scalar(scalar)),
        });
    }
    Ok(turned)
}

/// Turns a comment of a map, which stays one.
fn comment(comment: Comment, keys: &[String], turn: Turn<'_>) -> Result<Comment, Flaw> {
    let is_inline = comment.is_inline;
    match turn(Leaf::Comment(comment), keys)? {
        Leaf::Comment(comment) => Ok(Comment { is_inline, ..comment }),
        Leaf::Scalar(Scalar::Text(text)) => Ok(Comment { text, is_inline }),
        Leaf::Scalar(_) => {
            Err(Flaw::tampered(format!("has a value in place of a comment in `{}`", shown(keys))))
        }
    }
}

/// Returns keys as people write them.
pub fn shown(keys: &[String]) -> String {
    const MAX: usize = 200;
    let text = keys.join(".");
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns what binds an encrypted value to its place.
pub fn place(keys: &[String]) -> String {
    format!("{}:", keys.join(":"))
}
