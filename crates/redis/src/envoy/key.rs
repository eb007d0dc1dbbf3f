//! The whole key of a counter.

use sluicegate_core::time::Timestamp;
use sluicegate_rules::unit::Unit;

const SECOND_US: u64 = 1_000_000;

/// With the window that `now` is in.
pub(super) fn key(prefix: &str, text: &[u8], unit: Unit, now: Timestamp) -> Vec<u8> {
    let start = start_s(unit, now).to_string();
    [prefix.as_bytes(), text, start.as_bytes()].concat()
}

/// When the window began, in seconds.
pub(super) fn start_s(unit: Unit, now: Timestamp) -> u64 {
    let now_s = now.as_micros() / SECOND_US;
    now_s - now_s % seconds(unit)
}

/// How long a window is.
pub(super) const fn seconds(unit: Unit) -> u64 {
    unit.span().as_micros() / SECOND_US
}
