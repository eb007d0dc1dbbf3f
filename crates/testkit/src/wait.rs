//! Polls the state of servers.

use std::thread;
use std::time::Duration;

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(10);
/// 40 seconds plus the time of the polls: far more than any state change takes.
const LOOKS_MAX: usize = 4000;

/// Polls until a value is available; panics with the description if it never is.
pub fn until<T>(condition: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_or(condition, probe, String::new)
}

/// Polls as above; the panic also describes the last state.
pub(crate) fn until_or<T>(
    condition: &str,
    mut probe: impl FnMut() -> Option<T>,
    instead: impl FnOnce() -> String,
) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(value) = probe() {
            return value;
        }
        pause();
    }
    panic!("waited in vain until {condition}\n{}", instead());
}

#[expect(clippy::disallowed_methods, reason = "the state of another process has no notification")]
fn pause() {
    thread::sleep(PAUSE);
}
