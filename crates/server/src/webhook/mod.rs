//! Events for operators: a log line and a count for each, and a POST to a webhook if there is one.
//!
//! ```text
//!   engine -> EventReporter -> log line, metric
//!                           -> queue of 1,024 -> Delivery -> POST, up to 6 times
//! ```
//!
//! Requests are those of [Standard Webhooks](https://www.standardwebhooks.com): the body is JSON
//! with `type`, `timestamp` and `data`, and a receiver recognises a repeated one by `webhook-id`.

mod delivery;
mod reload;
mod signature;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::Uri;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluicegate::{ThresholdReached, Timestamp, UsageListener};
use tokio::sync::mpsc;

pub use self::delivery::Delivery;
use self::reload::FailedLoads;
pub use self::signature::{InvalidSecret, SigningSecret};
use crate::logs::{events, rfc3339};
use crate::metrics::{Labels, MetricsSource, Page};
use crate::traffic::events::Events;

/// Events that wait for their delivery; further ones are dropped.
const QUEUE_MAX: usize = 1_024;
/// Rules and thresholds with a count of their own; the others have the rule `other`.
const COUNTED_MAX: usize = 10_000;

/// Where events are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookOptions {
    /// The URL.
    pub url: Uri,
    /// The secret that signs the requests.
    pub secret: Option<SigningSecret>,
}

/// An event, as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct WebhookEvent {
    /// A unique id, the same for each attempt.
    pub(crate) id: String,
    /// Its JSON.
    pub(crate) body: String,
}

/// Reports events.
#[derive(Debug)]
pub struct EventReporter {
    queue: Option<mpsc::Sender<WebhookEvent>>,
    thresholds: Mutex<BTreeMap<(String, u16), u64>>,
    counts: Arc<DeliveryCounts>,
    failed_loads: Mutex<Option<FailedLoads>>,
    /// Open consoles.
    consoles: OnceLock<Events>,
}

/// What became of the events of a webhook.
#[derive(Debug, Default)]
pub(crate) struct DeliveryCounts {
    /// Accepted by the receiver.
    pub(crate) delivered: AtomicU64,
    /// Given up after the last attempt, or refused.
    pub(crate) failed: AtomicU64,
    /// Never sent: the queue was full, or the process ended.
    pub(crate) dropped: AtomicU64,
    /// Further attempts.
    pub(crate) retries: AtomicU64,
}

/// Creates the reporter of a process; and what delivers its events, if there is a webhook.
///
/// # Errors
/// When TLS cannot be configured.
pub fn start(
    options: Option<WebhookOptions>,
) -> Result<(Arc<EventReporter>, Option<Delivery>), String> {
    let counts = Arc::<DeliveryCounts>::default();
    let (queue, delivery) = match options {
        None => (None, None),
        Some(options) => {
            let (sender, receiver) = mpsc::channel(QUEUE_MAX);
            (Some(sender), Some(Delivery::new(options, receiver, counts.clone())?))
        }
    };
    let (thresholds, failed_loads, consoles) = Default::default();
    let reporter = EventReporter { queue, thresholds, counts, failed_loads, consoles };
    Ok((Arc::new(reporter), delivery))
}

impl EventReporter {
    /// Reports events to open consoles too.
    pub(crate) fn report_to(&self, consoles: &Events) {
        // A process has one stream of events.
        let _ = self.consoles.set(consoles.clone());
    }

    /// Sends an event to the webhook, if there is one.
    fn send(&self, kind: &str, at: Timestamp, data: &Value) {
        let Some(queue) = &self.queue else { return };
        let (id, timestamp) = (event_id(), rfc3339(at).to_string());
        let body = json!({ "type": kind, "timestamp": timestamp, "data": data }).to_string();
        if queue.try_send(WebhookEvent { id, body }).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self, rule: &str, threshold: u16) {
        let mut counts = self.thresholds.lock();
        let mut key = (rule.to_owned(), threshold);
        if counts.len() >= COUNTED_MAX && !counts.contains_key(&key) {
            key.0 = "other".to_owned();
        }
        *counts.entry(key).or_default() += 1;
    }
}

impl UsageListener for EventReporter {
    fn threshold_reached(&self, reached: &ThresholdReached<'_>) {
        let (rule, descriptor) = (reached.rule_id(), reached.descriptor());
        self.count(&rule, reached.threshold);
        events::threshold_reached(reached, &rule, &descriptor);
        let ThresholdReached { limit, threshold, used, quota, at, resets_at, .. } = *reached;
        let data = json!({
            "domain": reached.domain(),
            "rule": rule,
            "pool": reached.pool(),
            "limit": limit,
            "descriptor": descriptor,
            "threshold": threshold,
            "used": used,
            "quota": quota,
            "resets_at": rfc3339(resets_at).to_string(),
        });
        self.send("budget.threshold_reached", at, &data);
        if let Some(consoles) = self.consoles.get() {
            consoles.publish("threshold", || data);
        }
    }
}

impl MetricsSource for EventReporter {
    fn put(&self, page: &mut Page) {
        let counts = self.thresholds.lock().clone();
        let help =
            "Thresholds of budgets (`notify`) that identities have reached, by rule and percent.";
        let mut family = page.counter("sluicegate_threshold_reached_total", help);
        for ((rule, threshold), count) in &counts {
            let labels = Labels::new("rule", rule).and("threshold", &threshold.to_string());
            family.labeled(&labels, count);
        }
        if self.queue.is_none() {
            return;
        }
        let DeliveryCounts { delivered, failed, dropped, retries } = &*self.counts;
        let help = "Events by what became of them: accepted by the webhook, failed after the last \
                    attempt, or dropped before the first.";
        let mut family = page.counter("sluicegate_webhook_events_total", help);
        for (outcome, count) in [("delivered", delivered), ("failed", failed), ("dropped", dropped)]
        {
            family.labeled(&Labels::new("outcome", outcome), count.load(Ordering::Relaxed));
        }
        let help = "Repeated requests to the webhook.";
        page.counter("sluicegate_webhook_retries_total", help)
            .value(retries.load(Ordering::Relaxed));
    }
}

impl fmt::Display for WebhookOptions {
    /// The URL without its query, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) = (self.url.scheme_str().unwrap_or(""), self.url.authority());
        let host = host.map_or("", |host| host.as_str());
        write!(f, "{scheme}://{host}{}", self.url.path())
    }
}

/// A random id.
fn event_id() -> String {
    format!("evt_{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..))
}
