//! Metrics of the stream.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::{MetricsSource, Page};

/// State of the stream, and what came of the sets.
#[derive(Debug)]
pub(crate) struct XdsStatus {
    /// Since when there is no stream; none while there is one.
    lost_at: Mutex<Option<Instant>>,
    accepted: AtomicU64,
    rejected: AtomicU64,
    failures: AtomicU64,
}

impl XdsStatus {
    pub(super) fn connected(&self) {
        *self.lost_at.lock() = None;
    }

    pub(super) fn failed(&self) {
        self.lost_at.lock().get_or_insert_with(Instant::now);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answered(&self, is_accepted: bool) {
        let counter = if is_accepted { &self.accepted } else { &self.rejected };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for XdsStatus {
    fn default() -> Self {
        Self {
            lost_at: Mutex::new(Some(Instant::now())),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }
}

impl MetricsSource for XdsStatus {
    fn put(&self, page: &mut Page) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let away = self.lost_at.lock().map_or(0.0, |at| at.elapsed().as_secs_f64());
        let help = "Seconds since the stream of the control plane was lost; 0 while there is one.";
        page.gauge("sluicegate_xds_disconnected_seconds", help).value(format_args!("{away:.3}"));
        let help = "Sets of rules from the control plane: accepted (ACK), or rejected (NACK).";
        let outcomes = [("accepted", count(&self.accepted)), ("rejected", count(&self.rejected))];
        page.counter("sluicegate_xds_updates_total", help).each("outcome", outcomes);
        let help = "Failed connections and streams of the control plane.";
        page.counter("sluicegate_xds_failures_total", help).value(count(&self.failures));
    }
}
