//! Amounts of memory and disk.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Problem;

const UNITS: &str = "MiB, GiB or TiB";

/// An amount of memory or disk, in whole MiB: the smallest unit Proxmox takes for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size {
    mib: u64,
}

impl Size {
    /// Largest amount that is taken for a slip of the pen when exceeded: 1 PiB.
    const MAX_MIB: u64 = 1 << 30;

    /// Makes a size from MiB.
    pub const fn from_mib(mib: u64) -> Self {
        Self { mib }
    }

    /// Makes a size from GiB.
    pub const fn from_gib(gib: u64) -> Self {
        Self { mib: gib * 1024 }
    }

    /// Returns the amount in MiB.
    pub const fn mib(self) -> u64 {
        self.mib
    }

    /// Returns the next whole amount, unless that is more than anyone means.
    fn rounded_up(mib: f64) -> Option<Self> {
        #[allow(clippy::cast_precision_loss)] // a power of two, exact in f64
        let most = Self::MAX_MIB as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked beside it
        (0.0..=most).contains(&mib).then(|| Self { mib: mib.ceil() as u64 })
    }

    /// Returns the amount in GiB when it is whole.
    pub const fn whole_gib(self) -> Option<u64> {
        if self.mib.is_multiple_of(1024) { Some(self.mib / 1024) } else { None }
    }
}

impl FromStr for Size {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            return Err(Problem::new("is negative", "write a size above zero"));
        }
        let digits_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        if number.is_empty() {
            return Err(Problem::new(
                "is not a size",
                format!("write a number and a unit ({UNITS}), as in `8GiB`"),
            ));
        }
        if is_exponent(unit) {
            let remedy = format!("write it with digits alone and a unit ({UNITS}), as in `8GiB`");
            return Err(Problem::new("is not a plain number", remedy));
        }
        let amount: f64 = number.parse().map_err(|_| {
            Problem::new("is not a size", format!("write one number and a unit, as in `8GiB` ({UNITS})"))
        })?;
        let mib = amount * unit_in_mib(number, amount, unit.trim_start())?;
        if mib <= 0.0 {
            return Err(Problem::new("is zero", "write a size above zero"));
        }
        let size = Self::rounded_up(mib)
            .ok_or_else(|| Problem::new("is more than 1 PiB", "write a smaller size"))?;
        if mib.fract() != 0.0 {
            let remedy = format!("write `{size}`, the next whole size");
            return Err(Problem::new("is not a whole number of MiB", remedy));
        }
        Ok(size)
    }
}

/// Whether what follows a number is an exponent, as in `1e9`.
fn is_exponent(text: &str) -> bool {
    let rest = text.strip_prefix(['e', 'E']).map(|rest| rest.trim_start_matches(['+', '-']));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Proxmox counts in powers of two and calls them K, M, G and T; decimal units would silently
/// give less than Proxmox shows, so they are refused instead of converted.
fn unit_in_mib(number: &str, amount: f64, unit: &str) -> Result<f64, Problem> {
    match unit {
        "MiB" | "Mi" | "M" => Ok(1.0),
        "GiB" | "Gi" | "G" => Ok(1024.0),
        "TiB" | "Ti" | "T" => Ok(1024.0 * 1024.0),
        "KiB" | "Ki" | "K" => Err(Problem::new(
            format!("is in {unit}; the smallest unit is MiB"),
            match Size::rounded_up(amount / 1024.0) {
                Some(size) if size.mib == 0 => "write a size above zero".to_owned(),
                Some(size) if amount % 1024.0 == 0.0 => format!("write `{size}`"),
                Some(size) => format!("write `{size}`, the next whole size"),
                None => format!("use {UNITS}"),
            },
        )),
        "" => Err(Problem::new(
            "has no unit",
            format!("write `{number}MiB` or `{number}GiB`, whichever is meant"),
        )),
        "MB" | "GB" | "TB" => Err(Problem::new(
            format!("is in {unit}, a decimal unit; Proxmox counts in powers of two"),
            format!("write `{number}{}iB`", &unit[..1]),
        )),
        other => Err(Problem::new(
            format!("has the unit `{}`", other.escape_debug()),
            format!("use {UNITS}, as in `{number}GiB`"),
        )),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.mib {
            mib if mib > 0 && mib.is_multiple_of(1024 * 1024) => format!("{}TiB", mib / (1024 * 1024)),
            mib if mib > 0 && mib.is_multiple_of(1024) => format!("{}GiB", mib / 1024),
            mib => format!("{mib}MiB"),
        };
        f.pad(&text)
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "0MiB" {
            return Ok(Self::default());
        }
        text.parse().map_err(|problem: Problem| format!("`{text}` {}", problem.message))
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount of memory or disk with its unit: MiB, GiB or TiB (also Mi, Gi, Ti, M, G, T; always powers of two, as Proxmox counts).",
            "type": "string",
            "pattern": r"^[0-9]+(\.[0-9]+)? ?[MGT](i|iB)?$",
            "examples": ["8GiB", "512MiB"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print() {
        for (text, mib, shown) in [
            ("8GiB", 8192, "8GiB"),
            ("8192MiB", 8192, "8GiB"),
            ("0.5Gi", 512, "512MiB"),
            ("1T", 1 << 20, "1TiB"),
            ("1.5 TiB", 3 << 19, "1536GiB"),
        ] {
            let size: Size = text.parse().expect(text);
            assert_eq!((size.mib(), size.to_string().as_str()), (mib, shown));
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "8",
            "0GiB",
            "-1GiB",
            "NaN",
            "NaNGiB",
            "1e309",
            "1e309GiB",
            "GiB",
            "8GB",
            "8 giga",
            "1.2.3GiB",
            "1.0001MiB",
            "2000000TiB",
            "",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bad_size_comes_with_a_good_one_where_one_is_meant() {
        for (text, message, remedy) in [
            ("4194304KiB", "is in KiB; the smallest unit is MiB", "write `4GiB`"),
            ("1000Ki", "is in Ki; the smallest unit is MiB", "write `1MiB`, the next whole size"),
            ("0K", "is in K; the smallest unit is MiB", "write a size above zero"),
            ("0.3MiB", "is not a whole number of MiB", "write `1MiB`, the next whole size"),
            ("0.3GiB", "is not a whole number of MiB", "write `308MiB`, the next whole size"),
            ("-4GiB", "is negative", "write a size above zero"),
            ("8", "has no unit", "write `8MiB` or `8GiB`, whichever is meant"),
            ("8GB", "is in GB, a decimal unit; Proxmox counts in powers of two", "write `8GiB`"),
        ] {
            let problem = text.parse::<Size>().expect_err(text);
            assert_eq!((problem.message.as_str(), problem.remedy.as_str()), (message, remedy), "{text}");
        }
        for text in ["1e309", "1e309GiB", "1E+3MiB"] {
            assert_eq!(text.parse::<Size>().expect_err(text).message, "is not a plain number");
        }
    }
}
