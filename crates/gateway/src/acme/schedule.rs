//! When a certificate is renewed, and when a failed attempt is repeated.

use std::time::{Duration, SystemTime};

/// Longest back-off without a wish of the authority.
const BACKOFF_MAX: Duration = Duration::from_secs(3_600);
/// Longest wait that an authority can demand: a wrong header must not stop renewals.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Part of the lifetime over which renewals are spread, in percent.
const SPREAD_PERCENT: i64 = 5;
/// Part of the lifetime after which no suggestion of the authority delays a renewal, in percent.
const LATEST_PERCENT: i64 = 90;

/// A span of time in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeWindow {
    pub(super) start: i64,
    pub(super) end: i64,
}

impl TimeWindow {
    const fn length(self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    const fn at_percent(self, percent: i64) -> i64 {
        self.start.saturating_add((self.length() / 100).saturating_mul(percent))
    }

    fn at_fraction(self, fraction: f64) -> i64 {
        self.start.saturating_add((self.length().max(0) as f64 * fraction) as i64)
    }
}

/// The time of the system.
#[expect(clippy::disallowed_methods, reason = "certificates expire by the system's clock")]
pub(super) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Milliseconds since the Unix epoch.
pub(super) fn now() -> i64 {
    let elapsed = wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// When a certificate is renewed: at the same `fraction` (0 to 1) of the window that the authority
/// suggests, or somewhat before `percent` of its validity.
pub(super) fn renewal_time(
    validity: TimeWindow,
    suggested: Option<TimeWindow>,
    percent: u8,
    fraction: f64,
) -> i64 {
    match suggested {
        Some(window) => window.at_fraction(fraction).min(validity.at_percent(LATEST_PERCENT)),
        None => {
            let spread = validity.length() / 100 * SPREAD_PERCENT;
            validity.at_percent(percent.into()) - (spread as f64 * fraction) as i64
        }
    }
}

/// The pause after so many failures in a row.
pub(super) fn backoff(
    failures: u32,
    first: Duration,
    retry_after: Option<Duration>,
    fraction: f64,
) -> Duration {
    let doubled = first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(30)));
    let spread = doubled.min(BACKOFF_MAX.max(first)).mul_f64(1.0 + fraction / 4.0);
    spread.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

/// Whether half of the time for renewals has passed without one.
pub(super) const fn is_urgent(validity: TimeWindow, percent: u8, now: i64) -> bool {
    now >= validity.at_percent(50 + percent as i64 / 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;

    fn days(days: i64) -> TimeWindow {
        TimeWindow { start: 0, end: days * DAY }
    }

    #[test]
    fn a_certificate_is_renewed_at_a_share_of_its_lifetime() {
        for (lifetime, earliest, latest) in [(90, 55, 61), (47, 29, 32), (6, 3, 5)] {
            for fraction in [0.0, 0.5, 0.99] {
                let at = renewal_time(days(lifetime), None, 67, fraction);
                assert!((earliest * DAY..latest * DAY).contains(&at), "{lifetime}: {at}");
            }
        }
        assert!(!is_urgent(days(6), 67, 4 * DAY) && is_urgent(days(6), 67, 5 * DAY));
    }

    #[test]
    fn the_window_of_the_authority_has_precedence() {
        let window = TimeWindow { start: 10 * DAY, end: 12 * DAY };
        assert_eq!(renewal_time(days(90), Some(window), 67, 0.5), 11 * DAY);
        // One in the past asks for a renewal at once.
        let past = TimeWindow { start: -2 * DAY, end: -DAY };
        assert!(renewal_time(days(90), Some(past), 67, 0.9) < 0);
        // One after the end of the certificate would interrupt service.
        let late = TimeWindow { start: 100 * DAY, end: 101 * DAY };
        assert_eq!(renewal_time(days(90), Some(late), 67, 0.5), 81 * DAY);
    }

    #[test]
    fn failures_back_off_and_the_authority_can_demand_more() {
        let minute = Duration::from_secs(60);
        let pauses: Vec<_> =
            [1, 2, 3, 7, 100].map(|failures| backoff(failures, minute, None, 0.0).as_secs()).into();
        assert_eq!(pauses, [60, 120, 240, 3_600, 3_600]);
        assert_eq!(backoff(1, minute, None, 1.0).as_secs(), 75);
        assert_eq!(backoff(1, minute, Some(2 * minute), 0.5), 2 * minute);
        assert_eq!(backoff(9, minute, Some(minute), 0.0), BACKOFF_MAX);
        assert_eq!(backoff(1, minute, Some(Duration::MAX), 0.0), RETRY_AFTER_MAX);
        assert_eq!(backoff(5, 2 * BACKOFF_MAX, None, 0.0), 2 * BACKOFF_MAX);
    }

    proptest! {
        #[test]
        fn a_renewal_is_within_the_validity(
            start in 0..i64::MAX / 4,
            length in 100..i64::MAX / 4,
            window in any::<Option<(i64, i64)>>(),
            percent in 1..100_u8,
            fraction in 0.0..1.0,
        ) {
            let validity = TimeWindow { start, end: start + length };
            let window = window.map(|(start, end)| TimeWindow { start, end });
            let at = renewal_time(validity, window, percent, fraction);
            prop_assert!(at < validity.end);
            prop_assert!(window.is_some() || at >= start - length / 20);
        }
    }
}
