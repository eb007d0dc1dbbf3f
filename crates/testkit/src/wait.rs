//! Waiting for what a server says of itself.

use std::thread;
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// 40 seconds, and what the looks take: far more than any change of state needs, on any machine.
const LOOKS_MAX: usize = 4000;

/// Looks until there is something to see, and panics with what was waited for if there never is.
pub fn until<T>(condition: &str, look: impl FnMut() -> Option<T>) -> T {
    until_or(condition, look, String::new)
}

/// The same, with something to say about what was there instead.
pub(crate) fn until_or<T>(
    condition: &str,
    mut look: impl FnMut() -> Option<T>,
    instead: impl FnOnce() -> String,
) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(seen) = look() {
            return seen;
        }
        pause();
    }
    panic!("waited in vain until {condition}\n{}", instead());
}

#[expect(
    clippy::disallowed_methods,
    reason = "the state of another process tells nobody that it changed"
)]
fn pause() {
    thread::sleep(PAUSE);
}
