//! Binary codec of configured limits, for stores and snapshots.

use sluicegate_core::limit::Limit;
use sluicegate_core::quota::Rate;
use sluicegate_core::time::Span;

use crate::calendar::{Calendar, CalendarUnit};
use crate::limit::{Allows, LimitConfig};

const FIXED: u8 = 0;
const CLOSED: u8 = 1;
const CALENDAR: u8 = 2;

/// Algorithms of closed limits, by index.
const ALGORITHMS: [&str; 11] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_log",
    "sliding_window",
    "smooth_bursty",
    "warm_up",
    "cycle",
    "concurrency",
    "unlimited",
    "tally",
];
const UNITS: [CalendarUnit; 4] =
    [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];

impl LimitConfig {
    /// Appends this limit to `out`.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_rules::limit::LimitConfig;
    ///
    /// let limit = LimitConfig::fixed(Some("all".to_owned()), Limit::Unlimited);
    /// let mut bytes = Vec::new();
    /// limit.write(&mut bytes);
    /// assert_eq!(LimitConfig::read(&mut bytes.as_slice()), Some(limit));
    /// assert_eq!(LimitConfig::read(&mut [7, 7, 7].as_slice()), None);
    /// ```
    pub fn write(&self, out: &mut Vec<u8>) {
        match self.name() {
            Some(name) => {
                out.push(1);
                write_text(name, out);
            }
            None => out.push(0),
        }
        match self.allows() {
            Allows::Fixed(Limit::Closed) => {
                out.push(CLOSED);
                let index = ALGORITHMS.iter().position(|name| *name == self.algorithm());
                // A closed limit that will be nothing else is a fixed one.
                out.push(index.map_or(u8::MAX, |index| index as u8));
            }
            Allows::Fixed(limit) => {
                out.push(FIXED);
                limit.write(out);
            }
            Allows::Calendar(rate, calendar) => {
                out.push(CALENDAR);
                out.extend(rate.count().to_le_bytes());
                out.extend(rate.period().as_micros().to_le_bytes());
                let index = UNITS.iter().position(|unit| *unit == calendar.unit());
                out.push(index.unwrap_or(0) as u8);
                write_text(calendar.zone_name(), out);
            }
        }
    }

    /// Decodes the limit at the front of `bytes` and advances them; `None` if they are invalid or
    /// the time zone is unknown on this machine.
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let name = match read_byte(bytes)? {
            0 => None,
            1 => Some(read_text(bytes)?),
            _ => return None,
        };
        Some(match read_byte(bytes)? {
            FIXED => Self::fixed(name, Limit::read(bytes)?),
            CLOSED => match read_byte(bytes)? {
                u8::MAX => Self::fixed(name, Limit::Closed),
                index => Self::closed(name, ALGORITHMS.get(usize::from(index))?),
            },
            CALENDAR => {
                let count = read_number(bytes)?;
                let period = Span::from_micros(read_number(bytes)?);
                let unit = *UNITS.get(usize::from(read_byte(bytes)?))?;
                let calendar = Calendar::new(&read_text(bytes)?, unit).ok()?;
                Self::calendar(name, Rate::new(count, period).ok()?, calendar)
            }
            _ => return None,
        })
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn read_text(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(read_number(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

fn read_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let rate = Rate::new(10, Span::from_secs(86_400)).unwrap();
        let berlin = Calendar::new("Europe/Berlin", CalendarUnit::Month).unwrap();
        let limits = [
            LimitConfig::fixed(None, Limit::Unlimited),
            LimitConfig::fixed(Some(String::new()), Limit::Closed),
            LimitConfig::closed(Some("für immer".to_owned()), "warm_up"),
            LimitConfig::calendar(Some("monthly".to_owned()), rate, berlin),
        ];
        for limit in limits {
            let mut bytes = Vec::new();
            limit.write(&mut bytes);
            assert_eq!(LimitConfig::read(&mut bytes.as_slice()), Some(limit.clone()));
            for cut in 0..bytes.len() {
                assert_eq!(LimitConfig::read(&mut &bytes[..cut]), None, "{limit:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_no_text() {
        let mut bytes = vec![1];
        bytes.extend(u64::MAX.to_le_bytes());
        assert_eq!(LimitConfig::read(&mut bytes.as_slice()), None);
    }
}
