//! What a plain scalar is, by the rules of the YAML reader inside Talos (go-yaml).
//!
//! They are YAML 1.2 with remnants of 1.1: `0644` is octal, `1_000` a number, `2001-01-01` a
//! time, while `yes` and `off` are text unless a field wants a switch.

/// The meaning of a plain scalar without a field to ask.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolved {
    /// Nothing.
    Null,
    /// A switch.
    Bool(bool),
    /// A whole number, within 64 bits with or without sign.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A time, which no field of Talos takes.
    Time,
    /// Text.
    Text,
}

/// Returns what plain text means.
pub fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "true" | "True" | "TRUE" => return Resolved::Bool(true),
        "false" | "False" | "FALSE" => return Resolved::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        "-0" | "-0.0" => return Resolved::Float(-0.0),
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'.') => float(text).map_or(Resolved::Text, Resolved::Float),
        Some(b'0'..=b'9' | b'+' | b'-') if is_time(text) => Resolved::Time,
        Some(b'0'..=b'9' | b'+' | b'-') => number(&text.replace('_', "")),
        _ => Resolved::Text,
    }
}

/// Returns the switch that a word is to a field that wants one; quotes do not matter for these.
pub fn old_bool(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn number(plain: &str) -> Resolved {
    if let Some(int) = integer(plain) {
        return Resolved::Int(int);
    }
    float(plain).map_or(Resolved::Text, Resolved::Float)
}

/// Reads an integer with an optional sign and base: `0x`, `0b`, `0o`, or octal by a leading zero.
fn integer(plain: &str) -> Option<i128> {
    let (negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (lower.as_str(), 10),
    };
    // `from_str_radix` would take a second sign.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// Reads `[+-] digits [. digits] [e [+-] digits]`, with digits on at least one side of the point.
fn float(plain: &str) -> Option<f64> {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let exponent_ok = exponent.is_none_or(|text| {
        let text = text.strip_prefix(['+', '-']).unwrap_or(text);
        !text.is_empty() && digits(text)
    });
    let mantissa_ok = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    (mantissa_ok && exponent_ok).then(|| plain.parse().ok()).flatten().filter(|value: &f64| value.is_finite())
}

/// Whether text is a date, or a date and a time.
fn is_time(text: &str) -> bool {
    let Some((date, time)) = split_date(text) else { return false };
    match time.as_bytes().first() {
        None => date,
        Some(b'T' | b't') => date && clock(&time[1..]).is_some_and(is_zone),
        Some(b' ') => date && clock(&time[1..]).is_some_and(str::is_empty),
        Some(_) => false,
    }
}

/// Splits `2001-1-31` off, and says whether it is a day of the calendar.
fn split_date(text: &str) -> Option<(bool, &str)> {
    let (year, rest) = text.split_once('-').filter(|(year, _)| year.len() == 4)?;
    let (month, rest) = short_number(rest)?;
    let (day, rest) = short_number(rest.strip_prefix('-')?)?;
    let year: u32 = year.bytes().all(|b| b.is_ascii_digit()).then(|| year.parse().ok()).flatten()?;
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    Some(((1..=last).contains(&day), rest))
}

/// Takes `15:4:5.999` off and returns the rest.
fn clock(text: &str) -> Option<&str> {
    let (hour, rest) = short_number(text)?;
    let (minute, rest) = short_number(rest.strip_prefix(':')?)?;
    let (second, rest) = short_number(rest.strip_prefix(':')?)?;
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    (hour < 24 && minute < 60 && second < 60).then_some(rest)
}

fn is_zone(text: &str) -> bool {
    let bytes = text.as_bytes();
    text == "Z"
        || bytes.len() == 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|i| bytes[*i].is_ascii_digit())
}

/// Takes a number of one or two digits off.
fn short_number(text: &str) -> Option<(u32, &str)> {
    let length = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    Some((text[..length].parse().ok()?, &text[length..]))
}

/// Writes a number with a fraction as Go's shortest form does.
pub fn float_text(value: f64) -> String {
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go's shortest form decides with a precision of 6, however many digits there are.
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_they_mean_to_talos() {
        use Resolved::{Bool, Float, Int, Null, Text, Time};
        for (text, meaning) in [
            ("", Null),
            ("~", Null),
            ("true", Bool(true)),
            ("TRUE", Bool(true)),
            ("yes", Text),
            ("off", Text),
            ("0", Int(0)),
            ("0644", Int(0o644)),
            ("0o644", Int(0o644)),
            ("0x1F", Int(31)),
            ("0b101", Int(5)),
            ("0b2", Text),
            ("08", Float(8.0)),
            ("-12", Int(-12)),
            ("+12", Int(12)),
            ("1_000", Int(1000)),
            ("18446744073709551615", Int(i128::from(u64::MAX))),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("1.5", Float(1.5)),
            (".5", Float(0.5)),
            ("1e3", Float(1000.0)),
            ("-0", Float(-0.0)),
            (".", Text),
            ("1.2.3", Text),
            ("1:30", Text),
            ("v1.2", Text),
            ("2001-01-01", Time),
            ("2001-1-1", Time),
            ("2001-02-30", Text),
            ("2001-01-01T10:00:00Z", Time),
            ("2001-01-01 10:00:00", Time),
            ("2001-01-01 10:00:00 +1", Text),
            ("--1", Text),
            ("0x", Text),
        ] {
            assert_eq!(resolve(text), meaning, "{text}");
        }
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (value, text) in
            [(1.5, "1.5"), (1.0, "1"), (1e5, "100000"), (1e6, "1e+06"), (1e-5, "1e-05"), (0.0001, "0.0001")]
        {
            assert_eq!(float_text(value), text);
        }
    }
}
