//! Lengths of time, as people say them.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// Says how long something took: `0.4s`, `12s`, `1m 05s`, `2h 03m`.
pub fn exact(time: Duration) -> String {
    match time.as_secs() {
        0..10 => {
            let tenths = time.as_millis() / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        seconds => whole(seconds),
    }
}

/// Says how long something has been going on, in whole seconds: a clock that is redrawn must not flicker.
pub fn clock(time: Duration) -> String {
    whole(time.as_secs())
}

/// Says how long something may take, no more exact than it is known: `10s`, `1m`, `2m 30s`, `1h 10m`.
pub fn rough(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let step = match seconds {
        0..10 => 1,
        10..60 => 5,
        60..600 => 30,
        _ => MINUTE,
    };
    let rounded = seconds.div_ceil(step) * step;
    match (rounded / MINUTE, rounded % MINUTE) {
        (1..60, 0) => format!("{}m", rounded / MINUTE),
        _ => whole(rounded),
    }
}

fn whole(seconds: u64) -> String {
    match seconds {
        0..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m {:02}s", seconds / MINUTE, seconds % MINUTE),
        _ => format!("{}h {:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_exactly_as_they_are_useful() {
        let said = |millis| {
            let time = Duration::from_millis(millis);
            [exact(time), clock(time), rough(time)]
        };
        assert_eq!(said(0), ["0.0s", "0s", "0s"]);
        assert_eq!(said(449), ["0.4s", "0s", "1s"]);
        assert_eq!(said(12_900), ["12s", "12s", "15s"]);
        assert_eq!(said(65_000), ["1m 05s", "1m 05s", "1m 30s"]);
        assert_eq!(said(119_000), ["1m 59s", "1m 59s", "2m"]);
        assert_eq!(said(59_500), ["59s", "59s", "1m"]);
        assert_eq!(said(7_390_000), ["2h 03m", "2h 03m", "2h 04m"]);
    }
}
