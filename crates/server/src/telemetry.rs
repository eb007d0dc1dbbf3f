//! Counters of the service: calls, failures and response times per endpoint, and events. The engine
//! counts hits per rule.
//!
//! The counters are striped by thread, so that threads rarely share a cache line.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::Span;
use sluicegate::striped::Striped;

/// An enum whose variants have label values in metrics.
macro_rules! named {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$of])* $variant,)* }

        impl $name {
            /// All variants, in order.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Label value in metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

pub(crate) use named;

named! {
    /// A gRPC method, HTTP route or RESP command.
    pub enum Endpoint {
        /// `ShouldRateLimit` over gRPC.
        ShouldRateLimit = "ShouldRateLimit",
        /// `/json`.
        Json = "json",
        /// `/v1/check`.
        Check = "check",
        /// `/v1/peek`.
        Peek = "peek",
        /// `/v1/refund`.
        Refund = "refund",
        /// `/v1/reserve`.
        Reserve = "reserve",
        /// `/v1/commit`.
        Commit = "commit",
        /// `/v1/renew`.
        Renew = "renew",
        /// `/v1/cancel`.
        Cancel = "cancel",
        /// `/v1/wait`.
        Wait = "wait",
        /// `/v1/explain`.
        Explain = "explain",
        /// `/v1/keys/…`.
        Keys = "keys",
        /// `/v1/forward-auth`.
        ForwardAuth = "forward_auth",
        /// `CL.THROTTLE`.
        Throttle = "cl.throttle",
        /// `SG.CHECK`.
        RespCheck = "sg.check",
        /// `SG.PEEK`.
        RespPeek = "sg.peek",
        /// `SG.REFUND`.
        RespRefund = "sg.refund",
        /// `SG.RESERVE`.
        RespReserve = "sg.reserve",
        /// `SG.COMMIT`.
        RespCommit = "sg.commit",
        /// `SG.RENEW`.
        RespRenew = "sg.renew",
        /// `SG.CANCEL`.
        RespCancel = "sg.cancel",
        /// `SG.INSPECT`.
        RespInspect = "sg.inspect",
        /// `SG.EXPLAIN`.
        RespExplain = "sg.explain",
        /// `SG.WAIT`.
        RespWait = "sg.wait",
    }
}

named! {
    /// Reason that a call failed.
    pub enum Fault {
        /// The request is malformed.
        Invalid = "invalid",
        /// The request cannot be decided, such as one without a domain.
        Service = "service_error",
        /// Too many calls were in flight.
        Overload = "overload",
        /// The request took too long to arrive.
        Late = "late",
        /// The store failed; the name is that of envoyproxy/ratelimit.
        Store = "redis_error",
    }
}

/// Other counted events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request named a domain without rules.
    UnknownDomain,
    /// A denied request was allowed because the service is in shadow mode.
    GlobalShadow,
    /// Rules were loaded.
    RulesLoaded,
    /// Rules were not loaded because they are invalid or unreadable.
    RulesRefused,
    /// A connection was accepted.
    ConnectionOpened,
    /// A connection was closed.
    ConnectionClosed,
    /// A connection was refused at the connection limit.
    ConnectionRefused,
    /// A client on a deny list was rejected.
    ClientDenied,
    /// A client was rejected at the limit of its open connections.
    ClientOverOpen,
    /// A client was rejected at the limit of its new connections.
    ClientOverRate,
    /// A client was rejected at the limit of its TLS handshakes.
    ClientOverTlsRate,
    /// A proxy sent no valid PROXY header in time.
    ProxyHeaderFailed,
    /// A TLS handshake failed, or took too long.
    TlsHandshakeFailed,
    /// A snapshot was not restored: counters started at zero.
    SnapshotNotRestored,
    /// A snapshot was not saved.
    SnapshotNotSaved,
    /// Failed authentication with the RESP password.
    RespAuthFailed,
    /// Failed authentication with the operator token on the HTTP address.
    HttpAuthFailed,
    /// Failed authentication with the operator token on the admin address.
    AdminAuthFailed,
}

/// Counters of the service.
///
/// ```
/// use sluicegate::Span;
/// use sluicegate_server::telemetry::{Endpoint, Event, Fault, Telemetry};
///
/// let telemetry = Telemetry::default();
/// telemetry.record_response(Endpoint::Json, Span::from_micros(30));
/// telemetry.record_failure(Endpoint::Json, Fault::Invalid);
/// telemetry.record(Event::UnknownDomain);
/// assert_eq!(telemetry.calls(Endpoint::Json), 2);
/// assert_eq!(telemetry.failures(Endpoint::Json, Fault::Invalid), 1);
/// assert_eq!(telemetry.count(Event::UnknownDomain), 1);
/// ```
#[derive(Debug)]
pub struct Telemetry {
    counters: Striped<[AtomicU64; index::COUNT]>,
}

/// Upper bounds of the response time buckets, in microseconds; one more bucket is unbounded.
///
/// From 5 ms on they are those of envoyproxy/ratelimit, so that queries for `le="0.25"` keep
/// working.
pub const BUCKETS_MICROS: [u64; 20] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Histogram of the response times of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseTimes {
    /// Responses in each bucket of [`BUCKETS_MICROS`], and beyond the last.
    pub buckets: [u64; BUCKETS_MICROS.len() + 1],
    /// Sum of all response times, in microseconds.
    pub sum_micros: u64,
}

impl Telemetry {
    /// Counts a call that was answered, allowed or denied.
    #[inline]
    pub fn record_response(&self, endpoint: Endpoint, elapsed: Span) {
        self.record_responses(endpoint, elapsed, 1);
    }

    /// Counts calls that were answered together.
    #[inline]
    pub fn record_responses(&self, endpoint: Endpoint, elapsed: Span, calls: u64) {
        let micros = elapsed.as_micros();
        let bucket = BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        let counters = self.counters.mine();
        add(&counters[index::bucket(endpoint, bucket)], calls);
        add(&counters[index::sum(endpoint)], micros.saturating_mul(calls));
        add(&counters[index::calls(endpoint)], calls);
    }

    /// Counts a call that failed.
    pub fn record_failure(&self, endpoint: Endpoint, fault: Fault) {
        let counters = self.counters.mine();
        add(&counters[index::calls(endpoint)], 1);
        add(&counters[index::fault(endpoint, fault)], 1);
    }

    /// Counts an event.
    pub fn record(&self, event: Event) {
        add(&self.counters.mine()[index::event(event)], 1);
    }

    /// Calls, answered or failed.
    #[must_use]
    pub fn calls(&self, endpoint: Endpoint) -> u64 {
        self.sum(index::calls(endpoint))
    }

    /// Failed calls.
    #[must_use]
    pub fn failures(&self, endpoint: Endpoint, fault: Fault) -> u64 {
        self.sum(index::fault(endpoint, fault))
    }

    /// Response times of the answered calls.
    #[must_use]
    pub fn response_times(&self, endpoint: Endpoint) -> ResponseTimes {
        let buckets = std::array::from_fn(|bucket| self.sum(index::bucket(endpoint, bucket)));
        ResponseTimes { buckets, sum_micros: self.sum(index::sum(endpoint)) }
    }

    /// Occurrences of an event.
    #[must_use]
    pub fn count(&self, event: Event) -> u64 {
        self.sum(index::event(event))
    }

    fn sum(&self, index: usize) -> u64 {
        self.counters.sum(|counters| &counters[index])
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { counters: Striped::new(|| std::array::from_fn(|_| AtomicU64::new(0))) }
    }
}

#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl ResponseTimes {
    /// Number of responses.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Indices of the counters of a stripe.
mod index {
    use super::{BUCKETS_MICROS, Endpoint, Event, Fault};

    const PER_ENDPOINT: usize = 2 + Fault::ALL.len() + BUCKETS_MICROS.len() + 1;
    pub(super) const COUNT: usize = Endpoint::ALL.len() * PER_ENDPOINT + Event::ALL.len();

    pub(super) const fn calls(endpoint: Endpoint) -> usize {
        endpoint as usize * PER_ENDPOINT
    }

    pub(super) const fn sum(endpoint: Endpoint) -> usize {
        calls(endpoint) + 1
    }

    pub(super) const fn fault(endpoint: Endpoint, fault: Fault) -> usize {
        calls(endpoint) + 2 + fault as usize
    }

    pub(super) const fn bucket(endpoint: Endpoint, bucket: usize) -> usize {
        calls(endpoint) + 2 + Fault::ALL.len() + bucket
    }

    pub(super) const fn event(event: Event) -> usize {
        Endpoint::ALL.len() * PER_ENDPOINT + event as usize
    }
}

impl Event {
    /// All variants, in order.
    pub const ALL: [Self; 18] = [
        Self::UnknownDomain,
        Self::GlobalShadow,
        Self::RulesLoaded,
        Self::RulesRefused,
        Self::ConnectionOpened,
        Self::ConnectionClosed,
        Self::ConnectionRefused,
        Self::ClientDenied,
        Self::ClientOverOpen,
        Self::ClientOverRate,
        Self::ClientOverTlsRate,
        Self::ProxyHeaderFailed,
        Self::TlsHandshakeFailed,
        Self::SnapshotNotRestored,
        Self::SnapshotNotSaved,
        Self::RespAuthFailed,
        Self::HttpAuthFailed,
        Self::AdminAuthFailed,
    ];

    /// Connections that the gateway closes before a request.
    pub const REJECTIONS: [Self; 6] = [
        Self::ClientDenied,
        Self::ClientOverOpen,
        Self::ClientOverRate,
        Self::ClientOverTlsRate,
        Self::ProxyHeaderFailed,
        Self::TlsHandshakeFailed,
    ];

    /// Reason of a rejection, in metrics and logs; empty for other events.
    #[must_use]
    pub const fn rejection(self) -> &'static str {
        match self {
            Self::ClientDenied => "denied",
            Self::ClientOverOpen => "open",
            Self::ClientOverRate => "rate",
            Self::ClientOverTlsRate => "tls_rate",
            Self::ProxyHeaderFailed => "proxy_header",
            Self::TlsHandshakeFailed => "tls_handshake",
            _ => "",
        }
    }
}
