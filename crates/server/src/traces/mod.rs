//! Spans for OpenTelemetry: one for each call, sent to a collector in batches.
//!
//! ```text
//!   headers ── context ──> Tracer::begin ── Span ── end ──> queue ──> export ──> collector
//!              (parent)    None: off, or not sampled        bounded: what does not fit is counted and lost
//! ```
//!
//! A request never waits for any of it. The protocol (OTLP over HTTP or gRPC, as protobuf) is written by hand: it takes four small messages, and
//! the official packages would bring some twenty others, threads of their own and no way to see what was lost. `tests/traces.rs` reads what is sent with
//! generated code.
//!
//! What a span tells: its name, how long it took, and what is [`set`](Span::set) — the domain, the number of descriptors, the answer and the
//! rule that denied. Never whose request it was.

mod context;
mod env;
mod export;
mod options;
mod otlp;
mod post;
mod span;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use sluicegate::Timestamp;
use tokio::sync::mpsc;

use context::Parent;
pub use env::BadVariable;
pub use export::{Exporter, export};
pub use options::{BadEndpoint, Endpoint, Options, Protocol};
pub use span::{Span, Value};

use span::Ended;

/// What the attributes of a call's span are called.
pub mod attribute {
    /// Whose rules.
    pub const DOMAIN: &str = "ratelimit.domain";
    /// How many descriptors were asked about.
    pub const DESCRIPTORS: &str = "ratelimit.descriptors";
    /// The answer: `OK` or `OVER_LIMIT`.
    pub const CODE: &str = "ratelimit.code";
    /// The rule that denied.
    pub const RULE: &str = "ratelimit.rule";
}

/// Begins spans. Clones are the same.
///
/// ```
/// use http::HeaderMap;
/// use sluicegate::Timestamp;
/// use sluicegate_server::traces::{Options, Tracer, attribute, start};
///
/// assert!(Tracer::off().begin("ShouldRateLimit", &HeaderMap::new(), Timestamp::EPOCH).is_none());
///
/// let (tracer, _exporter) = start(Options::default());
/// let mut span = tracer.begin("ShouldRateLimit", &HeaderMap::new(), Timestamp::EPOCH).unwrap();
/// span.set(attribute::DOMAIN, "shop");
/// span.end(Timestamp::from_micros(25));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tracer {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    queue: mpsc::Sender<Ended>,
    /// A new trace is kept if its number is below this.
    keep_below: u64,
    counts: Arc<Counts>,
    /// Numbers of spans are those of a counter, made unpredictable.
    next: AtomicU64,
    hasher: RandomState,
}

/// What became of spans.
#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    lost: AtomicU64,
}

/// A tracer, and what sends its spans away: give it to [`export`].
#[must_use]
pub fn start(options: Options) -> (Tracer, Exporter) {
    let (queue, spans) = mpsc::channel(options.queue_max.max(1));
    let counts = Arc::<Counts>::default();
    let inner = Inner {
        queue,
        keep_below: context::keep_below(options.sampling_rate),
        counts: Arc::clone(&counts),
        next: AtomicU64::new(0),
        hasher: RandomState::new(),
    };
    (Tracer { inner: Some(Arc::new(inner)) }, Exporter::new(options, spans, counts))
}

// === impl Tracer ===

impl Tracer {
    /// A tracer that begins nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self { inner: None }
    }

    /// Whether it begins nothing, ever.
    #[inline]
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.inner.is_none()
    }

    /// Begins the span of a call, below the span that its headers name (`traceparent`, or one of the forms of B3).
    ///
    /// Nothing when it is off, or when this trace is not to be kept: whoever began it decides, and if we did, the sampling rate.
    #[inline]
    #[must_use]
    pub fn begin(&self, name: &'static str, headers: &HeaderMap, now: Timestamp) -> Option<Span> {
        // Where nobody wants traces this is all that it costs.
        let inner = self.inner.as_ref()?;
        inner.begin(name, headers, now)
    }

    /// How many spans have reached the collector.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.counts.exported.load(Ordering::Relaxed))
    }

    /// How many were lost: the queue was full, or the collector did not take them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.counts.lost.load(Ordering::Relaxed))
    }
}

// === impl Inner ===

impl Inner {
    fn begin(
        self: &Arc<Self>,
        name: &'static str,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Option<Span> {
        let Parent { trace, span: parent, sampled } = context::parent(headers);
        let trace = trace.unwrap_or_else(|| self.new_trace());
        if !sampled.unwrap_or_else(|| context::keeps(trace, self.keep_below)) {
            return None;
        }
        let span = Ended::begin(name, trace, self.new_number(), parent, now);
        Some(Span::new(span, Arc::clone(self)))
    }

    fn end(&self, span: Ended) {
        if self.queue.try_send(span).is_err() {
            self.counts.lose(1);
        }
    }

    fn new_trace(&self) -> u128 {
        u128::from(self.new_number()) << 64 | u128::from(self.new_number())
    }

    /// Never 0, which means none.
    fn new_number(&self) -> u64 {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        self.hasher.hash_one(count).max(1)
    }
}

// === impl Counts ===

impl Counts {
    fn lose(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
    }

    fn export(&self, spans: u64) {
        self.exported.fetch_add(spans, Ordering::Relaxed);
    }
}
