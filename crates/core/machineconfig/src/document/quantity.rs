//! Durations and sizes, read and written as Go and its `humanize` library do.

/// Reads a duration such as `1h30m` into nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        total = total.checked_add(scaled(number, unit_nanoseconds(unit)?)?)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Multiplies a decimal number by a unit, without rounding errors.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 30 {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = digits(fraction)?.checked_mul(unit)? / scale;
    digits(whole)?.checked_mul(unit)?.checked_add(part)
}

fn unit_nanoseconds(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Writes nanoseconds as Go does: `168h0m0s`, `1.5s`, `100ms`.
pub fn duration_text(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    if total == 0 {
        return "0s".to_owned();
    }
    if total < 1_000_000_000 {
        let (unit, name) = match total {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        return format!("{sign}{}{name}", decimal(total, unit));
    }
    let seconds = decimal(total % 60_000_000_000, 1_000_000_000);
    let minutes = total / 60_000_000_000;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Writes `value / unit` with as many decimals as it needs; units are powers of ten.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{fraction:0width$}").trim_end_matches('0').to_owned()
}

const DECIMAL_UNITS: [&str; 7] = ["b", "kb", "mb", "gb", "tb", "pb", "eb"];
const BINARY_UNITS: [&str; 7] = ["b", "kib", "mib", "gib", "tib", "pib", "eib"];

/// Reads a size such as `100GB`, `1.5 GiB` or `1024` into bytes.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(text.len());
    let number: f64 = text[..end].replace(',', "").parse().ok()?;
    let unit = text[end..].trim().to_lowercase();
    let factor = unit_factor(&unit)?;
    let bytes = number * factor;
    // The same loss of precision as in Talos, and the same bound.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

fn unit_factor(unit: &str) -> Option<f64> {
    let position =
        |units: &[&str], with: &str| units.iter().position(|u| *u == unit || format!("{unit}{with}") == **u);
    let power = |base: f64, n: usize| base.powi(i32::try_from(n).unwrap_or(0));
    if unit.is_empty() {
        return Some(1.0);
    }
    position(&DECIMAL_UNITS, "b")
        .map(|n| power(1000.0, n))
        .or_else(|| position(&BINARY_UNITS, "b").map(|n| power(1024.0, n)))
}

/// Writes bytes as a short decimal size (`100 GB`) if that loses nothing.
pub fn bytes_text(bytes: u64) -> Option<String> {
    if !bytes.is_multiple_of(1000) {
        return None;
    }
    let text = short_bytes(bytes);
    (parse_bytes(&text) == Some(bytes)).then_some(text)
}

fn short_bytes(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let exponent = (bytes.ilog10() / 3) as usize;
    let unit = 1000_u128.pow(u32::try_from(exponent).unwrap_or(0));
    let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
    let number = if tenths < 100 {
        format!("{}.{}", tenths / 10, tenths % 10)
    } else {
        ((tenths + 5) / 10).to_string()
    };
    format!("{number} {}", NAMES[exponent])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_go_s_form() {
        for (text, written) in [
            ("168h", "168h0m0s"),
            ("1.5h30s", "1h30m30s"),
            ("90s", "1m30s"),
            ("100ms", "100ms"),
            ("1.5s", "1.5s"),
            ("0", "0s"),
            ("1h0m0.25s", "1h0m0.25s"),
            ("-2m", "-2m0s"),
            ("15us", "15µs"),
        ] {
            assert_eq!(parse_duration(text).map(duration_text).as_deref(), Some(written), "{text}");
        }
        for text in ["", "5", "5 m", "m", "1d", "1..5s", "1h-2m", "99999999999999999h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("100GB", 100_000_000_000),
            ("100 gb", 100_000_000_000),
            ("1GiB", 1 << 30),
            ("1.5Ki", 1536),
            ("1,024", 1024),
            ("10M", 10_000_000),
            ("7", 7),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "GB", "1 parsec", "-1GB", "1.2.3", "99999999EB"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        for (bytes, text) in [
            (100_000_000_000, Some("100 GB")),
            (1_500_000, Some("1.5 MB")),
            (1 << 30, None),
            (123_456_000, None),
            (0, Some("0 B")),
        ] {
            assert_eq!(bytes_text(bytes).as_deref(), text, "{bytes}");
        }
    }
}
