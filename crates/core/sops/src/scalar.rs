//! What plain YAML text means to sops, whose reader takes more for numbers than YAML 1.2 does.

use crate::tree::Scalar;

/// What text without quotes stands for.
pub enum Meaning {
    Null,
    Scalar(Scalar),
    /// A whole number that sops cannot hold.
    TooLarge,
}

/// Says what text without quotes stands for.
pub fn resolve(text: &str) -> Meaning {
    let scalar = match text {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "true" | "True" | "TRUE" => Scalar::Bool(true),
        "false" | "False" | "FALSE" => Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return number(text),
    };
    Meaning::Scalar(scalar)
}

fn number(text: &str) -> Meaning {
    let word = || Meaning::Scalar(Scalar::text(text));
    match text.as_bytes().first() {
        Some(b'.') => {}
        Some(b'+' | b'-' | b'0'..=b'9') => {
            if let Some(time) = time(text) {
                return Meaning::Scalar(Scalar::Time(time));
            }
        }
        _ => return word(),
    }
    let bare = text.replace('_', "");
    match whole(&bare) {
        Some(Ok(number)) => return Meaning::Scalar(Scalar::Int(number)),
        Some(Err(())) => return Meaning::TooLarge,
        None => {}
    }
    match float(&bare) {
        Some(number) => Meaning::Scalar(Scalar::Float(number)),
        None => word(),
    }
}

/// Reads a whole number in any of the bases; an error if 64 bits hold it only without a sign.
fn whole(text: &str) -> Option<Result<i64, ()>> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    match i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        Ok(number) => Some(Ok(number)),
        Err(_) if sign.is_empty() && u64::from_str_radix(digits, radix).is_ok() => Some(Err(())),
        Err(_) => None,
    }
}

fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_digits = !before.is_empty() || (!after.is_empty() && mantissa.contains('.'));
    if !has_digits || exponent.is_empty() || ![before, after, exponent].into_iter().all(is_number) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Reads a date, or a date and a time, and returns it as sops would write it.
fn time(text: &str) -> Option<String> {
    let (year, rest) = text.split_once('-')?;
    let (month, rest) = rest.split_once('-')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (day, clock) = rest.split_at(end);
    let (year, month, day) = (digits(year, 4, 4)?, digits(month, 1, 2)?, digits(day, 1, 2)?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    if clock.is_empty() {
        return Some(format!("{date}T00:00:00Z"));
    }
    let has_zone = !clock.starts_with(' ');
    let clock = clock.strip_prefix(['T', 't', ' '])?;
    let (clock, zone) = if has_zone { split_zone(clock)? } else { (clock, "Z".to_owned()) };
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (digits(parts.next()?, 1, 2)?, digits(parts.next()?, 1, 2)?);
    let seconds = parts.next()?;
    let (second, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, ""));
    let second = digits(second, 1, 2)?;
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if hour > 23 || minute > 59 || second > 59 || !is_fraction || seconds.ends_with(['.', ',']) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{date}T{hour:02}:{minute:02}:{second:02}{dot}{fraction}{zone}"))
}

fn split_zone(clock: &str) -> Option<(&str, String)> {
    if let Some(clock) = clock.strip_suffix('Z') {
        return Some((clock, "Z".to_owned()));
    }
    let (clock, zone) = clock.split_at_checked(clock.len().checked_sub(6)?)?;
    let (sign, zone) = zone.split_at_checked(1)?;
    let (hours, minutes) = zone.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2, 2)?, digits(minutes, 2, 2)?);
    if !matches!(sign, "+" | "-") || hours > 23 || minutes > 59 {
        return None;
    }
    // No offset at all is written as `Z`.
    let zone =
        if (hours, minutes) == (0, 0) { "Z".to_owned() } else { format!("{sign}{hours:02}:{minutes:02}") };
    Some((clock, zone))
}

fn digits(text: &str, least: usize, most: usize) -> Option<u32> {
    let fits = (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

const fn days_in(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match resolve(text) {
            Meaning::Null => "null".to_owned(),
            Meaning::TooLarge => "too large".to_owned(),
            Meaning::Scalar(Scalar::Int(it)) => format!("int {it}"),
            Meaning::Scalar(Scalar::Float(it)) => format!("float {it}"),
            Meaning::Scalar(Scalar::Bool(it)) => format!("bool {it}"),
            Meaning::Scalar(Scalar::Time(it)) => format!("time {it}"),
            Meaning::Scalar(_) => "text".to_owned(),
        }
    }

    #[test]
    fn text_means_what_it_means_to_sops() {
        for (text, meaning) in [
            ("~", "null"),
            ("", "null"),
            ("yes", "text"),
            ("on", "text"),
            ("True", "bool true"),
            ("tRUE", "text"),
            ("010", "int 8"),
            ("0o10", "int 8"),
            ("-0x1F", "int -31"),
            ("0b101", "int 5"),
            ("+7", "int 7"),
            ("1_000", "int 1000"),
            ("08", "float 8"),
            ("0", "int 0"),
            ("-0", "int 0"),
            ("1.50", "float 1.5"),
            ("1.", "float 1"),
            (".5", "float 0.5"),
            ("1e3", "float 1000"),
            ("1e", "text"),
            (".", "text"),
            ("-", "text"),
            ("1:30", "text"),
            ("1.2.3", "text"),
            ("0x", "text"),
            ("9223372036854775807", "int 9223372036854775807"),
            ("9223372036854775808", "too large"),
            ("18446744073709551616", "float 18446744073709552000"),
            (".inf", "float inf"),
            ("2024-01-01", "time 2024-01-01T00:00:00Z"),
            ("2024-1-2", "time 2024-01-02T00:00:00Z"),
            ("2024-02-30", "text"),
            ("2024-01-01 1:2:3", "time 2024-01-01T01:02:03Z"),
            ("2024-01-01T01:02:03.250+02:00", "time 2024-01-01T01:02:03.25+02:00"),
            ("2024-01-01T01:02:03", "text"),
            ("2024-01", "text"),
        ] {
            assert_eq!(shown(text), meaning, "{text}");
        }
    }
}
