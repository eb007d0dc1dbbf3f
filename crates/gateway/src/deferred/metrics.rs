//! Metrics of deferred requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sluicegate_server::metrics::{MetricsSource, Page};

use super::request::Millis;
use super::store::{DeferredStats, Exceeded};

/// Why a request over its limit was denied in place of being deferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many requests of the route wait.
    QueueFull,
    /// Too many requests of the identity wait.
    IdentityCount,
    /// They are too large.
    IdentityBytes,
    /// Too much is stored.
    StoreFull,
    /// The body of the request is too large.
    BodyTooLarge,
    /// It cannot be processed later: an upgrade, or gRPC.
    NotDeferrable,
    /// Its callback is not on the list.
    CallbackNotAllowed,
    /// Too many bodies are being read.
    Busy,
    /// The store cannot be used.
    StoreUnavailable,
}

/// Counters of deferred requests, and the last figures of the store.
#[derive(Debug, Default)]
pub(crate) struct DeferredMetrics {
    pub(super) accepted: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) callbacks_failed: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    stats: Mutex<(DeferredStats, Millis)>,
}

impl Refusal {
    const ALL: [Self; 9] = [
        Self::QueueFull,
        Self::IdentityCount,
        Self::IdentityBytes,
        Self::StoreFull,
        Self::BodyTooLarge,
        Self::NotDeferrable,
        Self::CallbackNotAllowed,
        Self::Busy,
        Self::StoreUnavailable,
    ];

    /// Its name, in responses and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::IdentityCount => "identity_count",
            Self::IdentityBytes => "identity_bytes",
            Self::StoreFull => "store_full",
            Self::BodyTooLarge => "body_too_large",
            Self::NotDeferrable => "not_deferrable",
            Self::CallbackNotAllowed => "callback_not_allowed",
            Self::Busy => "busy",
            Self::StoreUnavailable => "store_unavailable",
        }
    }
}

impl From<Exceeded> for Refusal {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Count => Self::QueueFull,
            Exceeded::QueueCount => Self::IdentityCount,
            Exceeded::QueueBytes => Self::IdentityBytes,
            Exceeded::Bytes => Self::StoreFull,
        }
    }
}

impl DeferredMetrics {
    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }

    /// Figures of the store at a time.
    pub(super) fn set_stats(&self, stats: DeferredStats, now: Millis) {
        *self.stats.lock() = (stats, now);
    }

    fn put_on(&self, page: &mut Page) {
        let (stats, now) = *self.stats.lock();
        let help = "Deferred requests that wait or are being sent.";
        page.gauge("sluicegate_gateway_deferred_waiting", help).value(stats.waiting);
        let help = "Age of the oldest deferred request that waits.";
        let age = stats.oldest_at.map_or(0, |at| now.saturating_sub(at));
        page.gauge("sluicegate_gateway_deferred_oldest_seconds", help).value(age as f64 / 1_000.0);
        let help = "Dead letters: deferred requests that could not be processed.";
        page.gauge("sluicegate_gateway_deferred_dead_letters", help).value(stats.dead);
        let help = "Bytes of deferred requests and their responses.";
        page.gauge("sluicegate_gateway_deferred_bytes", help).value(stats.bytes);
        let counters = [
            (
                "sluicegate_gateway_deferred_accepted_total",
                "Requests that were stored and answered with 202.",
                &self.accepted,
            ),
            (
                "sluicegate_gateway_deferred_delivered_total",
                "Deferred requests that the upstream has answered.",
                &self.delivered,
            ),
            (
                "sluicegate_gateway_deferred_retried_total",
                "Attempts to send a deferred request that failed and are repeated.",
                &self.retried,
            ),
            (
                "sluicegate_gateway_deferred_dead_total",
                "Deferred requests that became dead letters.",
                &self.dead,
            ),
            (
                "sluicegate_gateway_deferred_cancelled_total",
                "Deferred requests that their clients have cancelled.",
                &self.cancelled,
            ),
            (
                "sluicegate_gateway_deferred_callbacks_failed_total",
                "Results that no attempt could send to their callback.",
                &self.callbacks_failed,
            ),
        ];
        for (name, help, counter) in counters {
            page.counter(name, help).value(counter.load(Relaxed));
        }
        let help = "Requests that were denied in place of being deferred, by reason.";
        let refused = Refusal::ALL.iter().zip(&self.refused);
        page.counter("sluicegate_gateway_deferred_refused_total", help)
            .each("reason", refused.map(|(reason, count)| (reason.name(), count.load(Relaxed))));
    }
}

impl MetricsSource for super::Deferrals {
    fn put(&self, page: &mut Page) {
        self.metrics.put_on(page);
    }
}
