//! Waiting for what a server says of itself.

use std::thread;
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// 40 seconds, and what the looks take: far more than any change of state needs, on any machine.
const LOOKS_MAX: usize = 4000;

/// Looks until there is something to see, and panics with what was waited for if there never is.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(seen) = look() {
            return seen;
        }
        pause();
    }
    panic!("waited in vain until {what}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the state of another process tells nobody that it changed"
)]
fn pause() {
    thread::sleep(PAUSE);
}
