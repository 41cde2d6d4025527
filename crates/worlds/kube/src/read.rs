//! Reading objects that others wrote: what Go leaves out or writes as null is as good as empty.

use ichor_port::clean;
use serde::{Deserialize, Deserializer};

/// Reads a value, or null as the value that is there by default.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads text that is shown to people.
pub fn cleaned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(clean(&text.unwrap_or_default()))
}

/// Reads text that is shown to people and may be absent; empty text counts as absent.
pub fn cleaned_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    cleaned(deserializer).map(|text| Some(text).filter(|text| !text.is_empty()))
}
