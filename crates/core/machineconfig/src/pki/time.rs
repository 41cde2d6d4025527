//! Points in time, as certificates write them.

use std::{fmt, time::Duration};

use super::der;

/// A point in time between 1970 and 9999, to the second: what a certificate can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// 9999-12-31T23:59:59Z, the last second that a certificate can name.
const LAST: u64 = 253_402_300_799;
/// 2050-01-01T00:00:00Z: from here on the two-digit years of `UTCTime` no longer serve.
const END_OF_SHORT_YEARS: u64 = 2_524_608_000;

impl Timestamp {
    /// Makes a time from seconds since 1970, not counting leap seconds; the far future is cut off.
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        Self(if seconds > LAST { LAST } else { seconds })
    }

    /// Returns the seconds since 1970.
    pub const fn unix_seconds(self) -> u64 {
        self.0
    }

    /// Returns the time this much later, or the last one there is.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self::from_unix_seconds(self.0.saturating_add(duration.as_secs()))
    }

    /// Returns the time this much earlier, or the first one there is.
    #[must_use]
    pub const fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.as_secs()))
    }

    /// Returns the time as DER: `UTCTime` until 2049 and `GeneralizedTime` after (RFC 5280, 4.1.2.5).
    pub(crate) fn to_der(self) -> Vec<u8> {
        let Civil { year, month, day, hour, minute, second } = self.civil();
        let rest = format!("{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
        if self.0 < END_OF_SHORT_YEARS {
            der::tlv(der::UTC_TIME, format!("{:02}{rest}", year % 100).as_bytes())
        } else {
            der::tlv(der::GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes())
        }
    }

    /// Splits the time by the proleptic Gregorian calendar, in eras of 400 years that begin in March.
    const fn civil(self) -> Civil {
        let (days, seconds) = (self.0 / 86_400, self.0 % 86_400);
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Civil {
            year: year_of_era + era * 400 + if month <= 2 { 1 } else { 0 },
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }
}

struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second } = self.civil();
        f.pad(&format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_by_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_794_783_600, "2026-11-15T23:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_unix_seconds(seconds).to_string(), text);
        }
    }

    #[test]
    fn years_are_short_until_2049() {
        let der = |seconds| Timestamp::from_unix_seconds(seconds).to_der();
        assert_eq!(der(END_OF_SHORT_YEARS - 1), b"\x17\x0d491231235959Z");
        assert_eq!(der(END_OF_SHORT_YEARS), b"\x18\x0f20500101000000Z");
    }

    #[test]
    fn adding_and_taking_away_stay_in_range() {
        let now = Timestamp::from_unix_seconds(5);
        assert_eq!(now.minus(Duration::from_secs(10)).unix_seconds(), 0);
        assert_eq!(now.plus(Duration::MAX).unix_seconds(), LAST);
    }
}
