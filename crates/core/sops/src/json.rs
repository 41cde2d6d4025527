//! JSON as a tree: in its order, and no key twice.

use std::{collections::BTreeSet, fmt};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::{
    Flaw, MAX_DEPTH,
    tree::{Entry, Item, Map, Scalar, Value},
};

/// Reads an object.
pub fn parse(text: &str) -> Result<Map, Flaw> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Seed { depth: 0 }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match value {
        Ok(Value::Map(map)) => Ok(map),
        Ok(_) => Err(Flaw::syntax("is no map", 1)),
        Err(error) if error.is_data() => {
            Err(Flaw::syntax("has a key twice, or is nested too deeply", error.line()))
        }
        // The reader's own words might repeat what stands there.
        Err(error) => Err(Flaw::syntax("is not valid JSON", error.line().max(1))),
    }
}

#[derive(Clone, Copy)]
struct Seed {
    depth: usize,
}

impl Seed {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth < MAX_DEPTH { Ok(Self { depth: self.depth + 1 }) } else { Err(E::custom("too deep")) }
    }
}

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Int(value)))
    }

    #[expect(clippy::cast_precision_loss, reason = "sops takes numbers beyond 63 bits for floats too")]
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Scalar(i64::try_from(value).map_or(Scalar::Float(value as f64), Scalar::Int)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(value) = access.next_element_seed(inner)? {
            items.push(Item::Value(value));
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let (mut entries, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(key) = access.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(de::Error::custom("twice"));
            }
            entries.push(Entry::Pair(key, access.next_value_seed(inner)?));
        }
        Ok(Value::Map(entries))
    }
}
