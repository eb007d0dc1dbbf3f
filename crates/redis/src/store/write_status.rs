//! Whether the store refuses what it is asked.
//!
//! It answers, so it can be reached; and yet nothing is counted: it is full, or has become a replica. Operators want to know.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::call::CallError;

/// What it said last, and whether it still does.
#[derive(Debug, Default)]
pub(super) struct Refusing {
    is_now: AtomicBool,
    words: Mutex<Option<Box<str>>>,
}

impl Refusing {
    pub(super) fn heard(&self, error: &CallError) {
        if let CallError::Refused(words) = error {
            *self.words.lock() = Some(words.clone());
            self.is_now.store(true, Ordering::Release);
        }
    }

    /// It did what it was asked.
    #[inline]
    pub(super) fn is_over(&self) {
        if self.is_now.load(Ordering::Relaxed) {
            self.is_now.store(false, Ordering::Release);
        }
    }

    pub(super) fn now(&self) -> Option<Box<str>> {
        if self.is_now.load(Ordering::Acquire) { self.words.lock().clone() } else { None }
    }
}
