//! How long something is valid: `12h`, `30m`, `365d`.

use std::time::Duration;

/// Longest lifetime: certificates end with their authority anyway.
const MOST_HOURS: u64 = 100 * 366 * 24;

/// Reads a number with its unit: seconds, minutes, hours or days. Several may follow each other, as in
/// `1h30m`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number with its unit, as in `12h`, `90m` or `365d`".to_owned();
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..].chars().next().ok_or_else(wrong)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    if total.is_zero() {
        return Err(wrong());
    }
    if total > Duration::from_hours(MOST_HOURS) {
        return Err("more than a hundred years is too long".to_owned());
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_units() {
        for (text, seconds) in
            [("8760h", 31_536_000), ("12h", 43_200), ("1h30m", 5400), ("90s", 90), ("365d", 31_536_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["", "12", "h", "0h", "-1h", "1.5h", "12 h", "1y", "1ü", "999999999999999999999h", "9999999d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
