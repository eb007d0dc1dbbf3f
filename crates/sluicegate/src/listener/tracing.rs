//! Denials as events of `tracing`.

use sluicegate_core::verdict::Outcome;
use tracing::debug;

use super::{Event, Listener};

/// Longest part of a key in an event.
const KEY_BYTES_MAX: usize = 100;

/// Reports every denial as a DEBUG event of the target `sluicegate`, with the fields `limiter`,
/// `limit` (the name of the limit that denied), `operation`, `cost` and `retry_after_us`. A request
/// to several limiters is reported by the one that denied it.
///
/// ```
/// use sluicegate::limit::TokenBucket;
/// use sluicegate::{Limiter, TracingListener};
///
/// let limiter = Limiter::builder()
///     .name("logins")
///     .limit(TokenBucket::per_minute(5))
///     .listener(TracingListener::new().with_keys())
///     .build()?;
/// limiter.hit("alice");
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingListener {
    has_keys: bool,
}

impl TracingListener {
    /// Reports denials without their keys, which may be secret.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the field `key`, cut at 100 bytes.
    #[must_use]
    pub fn with_keys(self) -> Self {
        Self { has_keys: true }
    }
}

impl Listener for TracingListener {
    fn decided(&self, event: &Event<'_>) {
        let retry_after_us = match event.verdict.outcome {
            Outcome::Allow { .. } => return,
            Outcome::Deny { retry_after } => Some(retry_after.as_micros()),
            Outcome::Never { .. } => None,
        };
        let key = event.key.filter(|_| self.has_keys);
        let key = key.map(|key| String::from_utf8_lossy(&key[..key.len().min(KEY_BYTES_MAX)]));
        debug!(
            target: "sluicegate",
            limiter = event.limiter,
            limit = event.limit,
            operation = ?event.op,
            cost = event.cost,
            retry_after_us,
            key = key.as_deref(),
            "request denied"
        );
    }
}
