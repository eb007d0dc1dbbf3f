//! OpenTelemetry traces: one span per call, exported to a collector over OTLP in batches.
//!
//! ```text
//!   headers ── context ──> Tracer::begin ── Span ── end ──> queue ──> Exporter ──> collector
//!              (parent)    None: off, or not sampled        bounded: drops and counts overflow
//! ```
//!
//! A request never waits for the collector. The queue is our own because the SDK's batch processor
//! does not report how many spans it dropped, and blocks a thread of its own on the network.
//! A span holds its name, its duration, the domain, the number of descriptors, the decision and
//! the rule that denied; never the descriptor values that identify a client.

mod context;
mod export;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Uri};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use sluicegate::Timestamp;
use tokio::sync::mpsc;

use context::Parent;
pub use export::{Exporter, ExporterError};

/// Attributes of a span; further ones are dropped.
const ATTRIBUTES_MAX: usize = 16;
/// Bytes of a string attribute: clients choose the length of a domain.
const TEXT_BYTES_MAX: usize = 256;

/// Options of the tracer and its exporter.
#[derive(Debug, Clone)]
pub struct Options {
    /// Protocol of the collector.
    pub protocol: Protocol,
    /// URL of the collector, `http` or `https`; by default the protocol's port on localhost.
    pub endpoint: Option<Uri>,
    /// Additional request headers, such as a token.
    pub headers: HeaderMap,
    /// PEM file with the certificates to trust for `https`; by default those of the system.
    pub certificate: Option<PathBuf>,
    /// Whether requests are compressed.
    pub gzip: bool,
    /// Resource attributes: `service.name` and others.
    pub resource: Vec<(String, String)>,
    /// Share of the traces begun here that is sampled, from 0 to 1. The caller decides for its own.
    pub sampling_rate: f64,
    /// Spans in the queue.
    pub queue_max: usize,
    /// Spans per export request.
    pub batch_max: usize,
    /// Maximum time that a span waits for its batch to fill.
    pub delay: Duration,
    /// Timeout of an export request.
    pub timeout: Duration,
    /// Time at shutdown to export the queued spans.
    pub flush: Duration,
}

/// Protocol of a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// OTLP over HTTP/1.1, as protobuf.
    #[default]
    Http,
    /// OTLP over gRPC.
    Grpc,
}

/// Begins spans. Clones share the queue.
///
/// ```
/// use http::HeaderMap;
/// use sluicegate::Timestamp;
/// use sluicegate_server::traces::{Options, Tracer, start};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert!(Tracer::off().begin("ShouldRateLimit", &HeaderMap::new(), Timestamp::EPOCH).is_none());
///
/// let (tracer, _exporter) = start(Options::default()).unwrap();
/// let mut span = tracer.begin("ShouldRateLimit", &HeaderMap::new(), Timestamp::EPOCH).unwrap();
/// span.set("ratelimit.domain", "shop");
/// span.end(Timestamp::from_micros(25));
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tracer {
    inner: Option<Arc<TracerInner>>,
}

#[derive(Debug)]
struct TracerInner {
    queue: mpsc::Sender<SpanData>,
    /// A new trace is sampled if half of its id is below this.
    sampled_below: u64,
    scope: InstrumentationScope,
    counts: Arc<Counts>,
}

/// Spans by outcome.
#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    lost: AtomicU64,
}

/// A span in progress. Dropped without [`end`](Self::end), it is not exported.
#[derive(Debug)]
#[must_use = "a span is exported only when it is ended"]
pub struct Span {
    // Boxed: every call holds an `Option<Span>`, and most calls are not sampled.
    data: Box<SpanData>,
    tracer: Arc<TracerInner>,
}

/// Creates a tracer and the exporter of its spans, to be [run](Exporter::run) beside the service.
/// Must be called within a Tokio runtime.
///
/// # Errors
/// If the trusted certificates cannot be read, or the endpoint is not supported.
pub fn start(options: Options) -> Result<(Tracer, Exporter), ExporterError> {
    let (queue, spans) = mpsc::channel(options.queue_max.max(1));
    let counts = Arc::<Counts>::default();
    let inner = TracerInner {
        queue,
        sampled_below: context::sampled_below(options.sampling_rate),
        scope: InstrumentationScope::builder("sluicegate")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
        counts: Arc::clone(&counts),
    };
    let exporter = Exporter::new(options, spans, counts)?;
    Ok((Tracer { inner: Some(Arc::new(inner)) }, exporter))
}

impl Default for Options {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            endpoint: None,
            headers: HeaderMap::new(),
            certificate: None,
            gzip: false,
            resource: vec![("service.name".to_owned(), "RateLimit".to_owned())],
            sampling_rate: 1.0,
            queue_max: 2_048,
            batch_max: 512,
            delay: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            flush: Duration::from_secs(3),
        }
    }
}

impl Tracer {
    /// A tracer that never begins a span.
    #[must_use]
    pub const fn off() -> Self {
        Self { inner: None }
    }

    /// Whether it never begins a span.
    #[inline]
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.inner.is_none()
    }

    /// Begins the span of a call as a child of the span in its `traceparent` or B3 headers.
    ///
    /// `None` if the tracer is off or the trace is not sampled. The caller's decision stands;
    /// without one the sampling rate decides.
    #[inline]
    #[must_use]
    pub fn begin(&self, name: &'static str, headers: &HeaderMap, now: Timestamp) -> Option<Span> {
        // This branch is the whole cost while tracing is off.
        let inner = self.inner.as_ref()?;
        inner.begin(name, headers, now)
    }

    /// Spans accepted by the collector.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.counts.exported.load(Ordering::Relaxed))
    }

    /// Spans lost: the queue was full, or the collector did not accept them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.counts.lost.load(Ordering::Relaxed))
    }
}

impl TracerInner {
    fn begin(
        self: &Arc<Self>,
        name: &'static str,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Option<Span> {
        let Parent { trace, span: parent, sampled } = context::extract(headers);
        // An id of 0 is invalid.
        let trace = trace.unwrap_or_else(|| fastrand::u128(1..));
        if !sampled.unwrap_or_else(|| context::is_sampled(trace, self.sampled_below)) {
            return None;
        }
        let data = SpanData {
            span_context: SpanContext::new(
                TraceId::from(trace),
                SpanId::from(fastrand::u64(1..)),
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: SpanId::from(parent.unwrap_or_default()),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Server,
            name: Cow::Borrowed(name),
            start_time: system_time(now),
            end_time: system_time(now),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        };
        Some(Span { data: Box::new(data), tracer: Arc::clone(self) })
    }
}

impl Span {
    /// The id of its trace, in hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        self.data.span_context.trace_id().to_string()
    }

    /// The `traceparent` header that makes further spans its children.
    ///
    /// ```
    /// # use http::HeaderMap;
    /// # use sluicegate::Timestamp;
    /// # use sluicegate_server::traces::{Options, start};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let (tracer, _exporter) = start(Options::default()).unwrap();
    /// let span = tracer.begin("gateway", &HeaderMap::new(), Timestamp::EPOCH).unwrap();
    /// let header = span.traceparent();
    /// assert!(header.starts_with(&format!("00-{}-", span.trace_id())) && header.ends_with("-01"));
    /// # }
    /// ```
    #[must_use]
    pub fn traceparent(&self) -> String {
        let context = &self.data.span_context;
        format!("00-{}-{}-01", context.trace_id(), context.span_id())
    }

    /// Adds a string attribute, truncated to 256 bytes.
    pub fn set(&mut self, key: &'static str, value: &str) {
        self.push(key, truncated(value).to_owned().into());
    }

    /// Adds an integer attribute.
    pub fn set_int(&mut self, key: &'static str, value: i64) {
        self.push(key, value.into());
    }

    fn push(&mut self, key: &'static str, value: Value) {
        if self.data.attributes.len() < ATTRIBUTES_MAX {
            self.data.attributes.push(KeyValue::new(key, value));
        } else {
            self.data.dropped_attributes_count += 1;
        }
    }

    /// Marks the call as failed. A denial is not a failure.
    pub fn fail(&mut self, error: &str) {
        self.data.status = Status::error(truncated(error).to_owned());
    }

    /// Ends the span and queues it for export, without waiting.
    pub fn end(mut self, now: Timestamp) {
        // The clock may have gone back.
        self.data.end_time = system_time(now).max(self.data.start_time);
        if self.tracer.queue.try_send(*self.data).is_err() {
            self.tracer.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(time.as_micros())
}

fn truncated(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
