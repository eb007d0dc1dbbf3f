//! Log lines of one test.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Subscriber};

/// The writer of a subscriber; its clones share the text.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Everything written until now.
    #[must_use]
    pub fn text(&self) -> String {
        self.bytes(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Everything written since the last call.
    #[must_use]
    pub fn take(&self) -> String {
        self.bytes(|bytes| String::from_utf8_lossy(&std::mem::take(bytes)).into_owned())
    }

    fn bytes<T>(&self, read: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A line is one write: lines of several threads are not mixed.
        assert_eq!(bytes.last(), Some(&b'\n'), "a part of a line");
        self.bytes(|text| text.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends the events of this thread to a subscriber until the guard is dropped.
///
/// With a single subscriber in the process, `tracing` caches for each place of the code whether
/// the *thread that gets there first* has a subscriber: a test without one can switch off the
/// events of a test with one. Two subscribers that live as long as the process turn this off.
pub fn subscribe(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static OTHERS: OnceLock<[Dispatch; 2]> = OnceLock::new();
    OTHERS.get_or_init(|| [(); 2].map(|()| Dispatch::new(tracing_subscriber::registry())));
    set_default(subscriber)
}
