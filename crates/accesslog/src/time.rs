//! Times of access logs: `17/May/2015:10:05:03 +0000`, RFC 3339 and its relatives, and numbers
//! since the UNIX epoch.
//!
//! Neighbouring lines share the minute, so that the date is computed once for each minute.
//! Microseconds are the resolution; what is finer is cut off.

use jiff::SignedDuration;
use jiff::civil::Date;
use jiff::fmt::{friendly, temporal};
use jiff::tz::TimeZone;
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};

/// Length of `17/May/2015:10:05:03 +0000`.
pub(crate) const COMMON_BYTES: usize = 26;

const UNIX_EPOCH: Date = jiff::civil::date(1970, 1, 1);
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Unit of a number that is a time or a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

/// The last minute of the common format, and the last day of RFC 3339.
#[derive(Debug, Default)]
pub(crate) struct DateCache {
    /// `17/May/2015:10:05`
    minute: [u8; 17],
    /// ` +0000`
    zone: [u8; 6],
    minute_secs: i64,
    /// `2015-05-17`
    day: [u8; 10],
    day_secs: i64,
}

impl TimeUnit {
    const fn nanos(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }

    /// The unit of a time without one: its magnitude is unambiguous from 1973 to 5138.
    const fn of_magnitude(number: u64) -> Self {
        match number {
            0..100_000_000_000 => Self::Seconds,
            100_000_000_000..100_000_000_000_000 => Self::Millis,
            100_000_000_000_000..100_000_000_000_000_000 => Self::Micros,
            _ => Self::Nanos,
        }
    }
}

impl DateCache {
    /// `17/May/2015:10:05:03 +0000`
    #[inline]
    pub(crate) fn common(&mut self, text: &[u8; COMMON_BYTES]) -> Option<Timestamp> {
        let (minute, rest) = text.split_first_chunk::<17>()?;
        let (seconds, zone) = rest.split_first_chunk::<3>()?;
        let zone: &[u8; 6] = zone.try_into().ok()?;
        if (minute, zone) != (&self.minute, &self.zone) {
            self.minute_secs = minute_secs(minute)? - zone_secs(zone)?;
            (self.minute, self.zone) = (*minute, *zone);
        }
        let [b':', tens, ones] = seconds else { return None };
        timestamp(self.minute_secs + two_digits(*tens, *ones).filter(|&s| s <= 60)?, 0)
    }

    /// RFC 3339, also with a space for the `T` and without a zone, which is UTC.
    pub(crate) fn rfc3339(&mut self, text: &[u8]) -> Option<Timestamp> {
        self.utc_or_local(text).or_else(|| any_rfc3339(text))
    }

    /// `2015-05-17T10:05:03.25Z`, `2015-05-17 10:05:03`: what nearly all logs have.
    fn utc_or_local(&mut self, text: &[u8]) -> Option<Timestamp> {
        let (day, rest) = text.split_first_chunk::<10>()?;
        let (clock, rest) = rest.split_first_chunk::<9>()?;
        let ([b'T' | b' ', clock @ ..], rest) = (clock, rest.strip_suffix(b"Z").unwrap_or(rest))
        else {
            return None;
        };
        let micros = match rest {
            [] => 0,
            [b'.', digits @ ..] => fraction_nanos(digits)? / 1_000,
            _ => return None,
        };
        timestamp(self.day_secs(day)? + clock_secs(clock)?, micros)
    }

    /// A date such as `2015-05-17` and a time of day such as `10:05:03`, in UTC.
    pub(crate) fn date_and_clock(&mut self, date: &[u8], clock: &[u8]) -> Option<Timestamp> {
        timestamp(self.day_secs(date.try_into().ok()?)? + clock_secs(clock)?, 0)
    }

    fn day_secs(&mut self, day: &[u8; 10]) -> Option<i64> {
        if *day != self.day {
            let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *day else { return None };
            let year = two_digits(y1, y2)? * 100 + two_digits(y3, y4)?;
            self.day_secs = date_secs(year, two_digits(m1, m2)?, two_digits(d1, d2)?)?;
            self.day = *day;
        }
        Some(self.day_secs)
    }
}

fn minute_secs(minute: &[u8; 17]) -> Option<i64> {
    let [d1, d2, b'/', n1, n2, n3, b'/', y1, y2, y3, y4, b':', h1, h2, b':', m1, m2] = *minute
    else {
        return None;
    };
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(&[n1, n2, n3]))?;
    let year = two_digits(y1, y2)? * 100 + two_digits(y3, y4)?;
    let day = date_secs(year, i64::try_from(month).ok()? + 1, two_digits(d1, d2)?)?;
    let (hours, minutes) = (two_digits(h1, h2)?, two_digits(m1, m2)?);
    (hours < 24 && minutes < 60).then_some(day + hours * 3600 + minutes * 60)
}

fn zone_secs(zone: &[u8; 6]) -> Option<i64> {
    let [b' ', sign, h1, h2, m1, m2] = *zone else { return None };
    let (hours, minutes) = (two_digits(h1, h2)?, two_digits(m1, m2)?);
    let secs = (hours < 24 && minutes < 60).then_some(hours * 3600 + minutes * 60)?;
    match sign {
        b'+' => Some(secs),
        b'-' => Some(-secs),
        _ => None,
    }
}

/// `10:05:03`; a leap second counts as the next second.
fn clock_secs(clock: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *clock else { return None };
    let (hours, minutes) = (two_digits(h1, h2)?, two_digits(m1, m2)?);
    let seconds = two_digits(s1, s2)?;
    let is_valid = hours < 24 && minutes < 60 && seconds <= 60;
    is_valid.then_some(hours * 3600 + minutes * 60 + seconds)
}

fn date_secs(year: i64, month: i64, day: i64) -> Option<i64> {
    let number = |n: i64| i8::try_from(n).ok();
    let date = Date::new(i16::try_from(year).ok()?, number(month)?, number(day)?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).as_secs())
}

fn two_digits(tens: u8, ones: u8) -> Option<i64> {
    let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
    is_number.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

fn timestamp(secs: i64, micros: u64) -> Option<Timestamp> {
    in_range(u64::try_from(secs).ok()?.checked_mul(1_000_000)?.checked_add(micros)?)
}

/// Times that the core can decide at.
fn in_range(micros: u64) -> Option<Timestamp> {
    (micros <= NOW_MAX.as_micros()).then(|| Timestamp::from_micros(micros))
}

/// Offsets, and the other forms of ISO 8601 that jiff reads.
fn any_rfc3339(text: &[u8]) -> Option<Timestamp> {
    const PARSER: temporal::DateTimeParser = temporal::DateTimeParser::new();
    let at = match PARSER.parse_timestamp(text) {
        Ok(at) => at,
        Err(_) => PARSER.parse_datetime(text).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp(),
    };
    in_range(u64::try_from(at.as_microsecond()).ok()?)
}

/// A number since the epoch, such as `1447000000.25`. Without a unit, its magnitude decides.
pub(crate) fn unix(text: &[u8], unit: Option<TimeUnit>) -> Option<Timestamp> {
    let (whole, nanos) = decimal(text)?;
    in_range(micros(whole, nanos, unit.unwrap_or(TimeUnit::of_magnitude(whole)))?)
}

/// As [`unix`], of a whole number.
pub(crate) fn unix_whole(number: u64, unit: Option<TimeUnit>) -> Option<Timestamp> {
    in_range(micros(number, 0, unit.unwrap_or(TimeUnit::of_magnitude(number)))?)
}

/// As [`unix`], of a floating point number.
pub(crate) fn unix_float(number: f64, unit: Option<TimeUnit>) -> Option<Timestamp> {
    let unit = unit.unwrap_or(TimeUnit::of_magnitude(number.max(0.0) as u64));
    in_range(float_micros(number, unit)?)
}

/// A duration: a number of units, or with units of its own such as `1.5ms` and `1m2s`.
pub(crate) fn duration(text: &[u8], unit: TimeUnit) -> Option<Span> {
    const PARSER: friendly::SpanParser = friendly::SpanParser::new();
    if let Some((whole, nanos)) = decimal(text) {
        return Some(Span::from_micros(micros(whole, nanos, unit)?));
    }
    let found: SignedDuration = PARSER.parse_duration(text).ok()?;
    Some(Span::from_micros(u64::try_from(found.as_micros()).ok()?))
}

/// As [`duration`], of a whole number.
pub(crate) fn duration_whole(number: u64, unit: TimeUnit) -> Option<Span> {
    micros(number, 0, unit).map(Span::from_micros)
}

/// As [`duration`], of a floating point number.
pub(crate) fn duration_float(number: f64, unit: TimeUnit) -> Option<Span> {
    float_micros(number, unit).map(Span::from_micros)
}

fn micros(whole: u64, nanos: u64, unit: TimeUnit) -> Option<u64> {
    let unit = u128::from(unit.nanos());
    let total = u128::from(whole) * unit + u128::from(nanos) * unit / 1_000_000_000;
    u64::try_from(total / 1_000).ok()
}

/// Rounded, since a floating point number is a little below or above what was written. The fraction
/// is scaled alone: the whole product has no bits left for it.
fn float_micros(number: f64, unit: TimeUnit) -> Option<u64> {
    let scale = unit.nanos() as f64 / 1e3;
    let whole = (0.0..=1.0e19).contains(&number).then_some(number.trunc())?;
    let micros = micros(whole as u64, 0, unit)?;
    micros.checked_add(((number - whole) * scale).round() as u64)
}

/// A decimal number: its whole part and billionths.
fn decimal(text: &[u8]) -> Option<(u64, u64)> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b""[..]),
    };
    Some((crate::text::whole_number(whole)?, fraction_nanos(fraction)?))
}

/// The digits behind a point as billionths; further digits are cut off.
fn fraction_nanos(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |index: usize| digits.get(index).map_or(0, |digit| u64::from(digit - b'0'));
    Some((0..9).fold(0, |sum, index| sum * 10 + digit(index)))
}
