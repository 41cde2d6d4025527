//! What a YAML reader would take plain text for, by the rules of Go's YAML library.

use zeroize::Zeroizing;

/// The words that YAML 1.1 took for switches beside `true` and `false`.
pub fn is_old_switch(text: &str) -> bool {
    const WORDS: [&str; 16] =
        ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF"];
    WORDS.contains(&text)
}

/// Whether YAML 1.1 would take the text for a number in base 60, such as `12:30`.
pub fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let minute = |part: &str| match part.as_bytes() {
        [unit] => unit.is_ascii_digit(),
        [ten, unit] => (b'0'..=b'5').contains(ten) && unit.is_ascii_digit(),
        _ => false,
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && digits(first)
        && digits(fraction)
        && whole.contains(':')
        && parts.all(minute)
}

/// Whether the text, written plainly, would be read as something other than text.
pub fn is_other_type(text: &str) -> bool {
    const WORDS: [&str; 23] = [
        "", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", ".nan", ".NaN",
        ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF",
    ];
    if WORDS.contains(&text) {
        return true;
    }
    match text.as_bytes().first() {
        Some(b'.') => separates_digits(text) && is_float(&plain_digits(text)),
        Some(b'0'..=b'9' | b'-' | b'+') => is_number(&plain_digits(text)) || is_timestamp(text),
        _ => false,
    }
}

/// Takes underscores out. The text may be a token, so the copy is wiped.
fn plain_digits(text: &str) -> Zeroizing<String> {
    Zeroizing::new(text.replace('_', ""))
}

/// Whether every underscore stands between two digits.
fn separates_digits(text: &str) -> bool {
    let digit = |i: usize| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
    text.match_indices('_').all(|(i, _)| i > 0 && digit(i - 1) && digit(i + 1))
}

fn is_number(text: &str) -> bool {
    is_integer(text) || is_float(text)
}

/// Integers in any base that fit in 64 bits.
fn is_integer(text: &str) -> bool {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let lower = Zeroizing::new(digits.to_ascii_lowercase());
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    if digits.starts_with(['-', '+']) {
        return false;
    }
    let signed = text.starts_with(['-', '+']);
    u64::from_str_radix(digits, radix)
        .is_ok_and(|value| if negative { value <= 1 << 63 } else { !signed || value < 1 << 63 })
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa_fits = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let exponent_fits = exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    // What overflows is text again.
    mantissa_fits && exponent_fits && unsigned.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Dates and times as YAML 1.1 knew them: `2026-01-02`, `2026-1-2 3:04:05.6`, `2026-01-02T03:04:05Z`.
fn is_timestamp(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let day_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (day, time) = rest.split_at(day_end);
    let (Some(month), Some(day)) = (small_number(month), small_number(day)) else { return false };
    year.len() == 4 && digits_only(year) && is_day(year, month, day) && is_time_part(time)
}

fn digits_only(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn small_number(text: &str) -> Option<u32> {
    (text.len() <= 2 && digits_only(text)).then(|| text.parse().ok()).flatten()
}

fn is_day(year: &str, month: u32, day: u32) -> bool {
    let year: u32 = year.parse().unwrap_or(0);
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_time_part(text: &str) -> bool {
    match text.chars().next() {
        None => true,
        Some(' ') => is_clock(text.trim_start_matches(' ')),
        Some('T' | 't') => {
            let rest = &text[1..];
            let zone = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
            let (clock, zone) = rest.split_at(zone);
            is_clock(clock) && is_zone(zone)
        }
        Some(_) => false,
    }
}

fn is_clock(text: &str) -> bool {
    let mut parts = text.splitn(3, ':');
    let (Some(hour), Some(minute), Some(second)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let (second, fraction) = second.split_once(['.', ',']).unwrap_or((second, "0"));
    let below = |text: &str, limit| small_number(text).is_some_and(|number| number < limit);
    below(hour, 24) && below(minute, 60) && below(second, 60) && digits_only(fraction)
}

fn is_zone(text: &str) -> bool {
    text == "Z"
        || text.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':')).is_some_and(
            |(hour, minute)| {
                let two = |text: &str| (text.len() == 2).then(|| small_number(text)).flatten();
                two(hour).is_some_and(|hour| hour <= 24) && two(minute).is_some_and(|minute| minute <= 60)
            },
        )
}
