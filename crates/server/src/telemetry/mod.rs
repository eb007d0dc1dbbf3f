//! What the service counts about itself. What became of hits under each rule, the engine counts.
//!
//! Counting must not make threads wait for each other: each has a stripe of its own, as far as there are enough of them, and
//! whoever wants a number adds them up.

mod stripes;

use sluicegate::Span;

use stripes::Stripes;

/// Where a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// `ShouldRateLimit` over gRPC.
    ShouldRateLimit,
    /// `/json`.
    Json,
    /// `/v1/check`.
    Check,
    /// `/v1/peek`.
    Peek,
    /// `/v1/refund`.
    Refund,
    /// `/v1/reserve`.
    Reserve,
    /// `/v1/commit`.
    Commit,
    /// `/v1/cancel`.
    Cancel,
    /// `/v1/wait`.
    Wait,
    /// `/v1/explain`.
    Explain,
    /// `/v1/keys/…`.
    Keys,
    /// `/v1/forward-auth`.
    ForwardAuth,
    /// `CL.THROTTLE`.
    Throttle,
    /// `SG.CHECK`.
    RespCheck,
    /// `SG.PEEK`.
    RespPeek,
    /// `SG.REFUND`.
    RespRefund,
    /// `SG.RESERVE`.
    RespReserve,
    /// `SG.COMMIT`.
    RespCommit,
    /// `SG.CANCEL`.
    RespCancel,
    /// `SG.WAIT`.
    RespWait,
}

/// Why a call got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What came was no request.
    Invalid,
    /// It was a request, and there is no answer to it, such as one without a domain.
    Service,
    /// There were too many at once.
    Overload,
    /// It took too long to come.
    Late,
    /// The store did not answer.
    Store,
}

/// What else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// A request named a domain that nobody has rules for.
    UnknownDomain,
    /// A denial was turned into an admission, since the whole service only watches.
    GlobalShadow,
    /// Rules were loaded.
    RulesLoaded,
    /// Rules were not loaded, since they are invalid or unreadable.
    RulesRefused,
    /// A connection was accepted.
    ConnectionOpened,
    /// A connection has ended.
    ConnectionClosed,
    /// A connection was refused, since there are as many as there may be.
    ConnectionRefused,
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

/// What the service counts about itself.
///
/// ```
/// use sluicegate::Span;
/// use sluicegate_server::telemetry::{Door, Fault, Happening, Telemetry};
///
/// let telemetry = Telemetry::default();
/// telemetry.answered(Door::Json, Span::from_micros(30));
/// telemetry.failed(Door::Json, Fault::Invalid);
/// telemetry.happened(Happening::UnknownDomain);
/// assert_eq!(telemetry.calls(Door::Json), 2);
/// assert_eq!(telemetry.failures(Door::Json, Fault::Invalid), 1);
/// assert_eq!(telemetry.times(Happening::UnknownDomain), 1);
/// ```
#[derive(Debug, Default)]
pub struct Telemetry {
    stripes: Stripes,
}

/// The upper ends of the classes of response times, in microseconds; one more class is beyond the last.
///
/// From 5 ms on they are those of envoyproxy/ratelimit, so that what asks for `le="0.25"` there finds it here.
pub const TOOK_MICROS: [u64; 20] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// How long the answers of a door took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// How many there were in each class of [`TOOK_MICROS`], and beyond.
    pub classes: [u64; TOOK_MICROS.len() + 1],
    /// All together, in microseconds.
    pub sum_micros: u64,
}

// === impl Telemetry ===

impl Telemetry {
    /// A call was answered, whatever the answer.
    #[inline]
    pub fn answered(&self, door: Door, took: Span) {
        self.answered_together(door, took, 1);
    }

    /// So many calls were answered, each of which took so long.
    #[inline]
    pub fn answered_together(&self, door: Door, took: Span, calls: u64) {
        let micros = took.as_micros();
        let class = TOOK_MICROS.partition_point(|most| *most < micros);
        self.stripes.add_three([
            (Place::class(door, class), calls),
            (Place::sum(door), micros.saturating_mul(calls)),
            (Place::calls(door), calls),
        ]);
    }

    /// A call got no answer.
    pub fn failed(&self, door: Door, fault: Fault) {
        self.stripes.add(Place::calls(door), 1);
        self.stripes.add(Place::fault(door, fault), 1);
    }

    /// Something else happened.
    pub fn happened(&self, what: Happening) {
        self.stripes.add(Place::happening(what), 1);
    }

    /// How many calls came in, answered or not.
    #[must_use]
    pub fn calls(&self, door: Door) -> u64 {
        self.stripes.sum(Place::calls(door))
    }

    /// How many got no answer for this reason.
    #[must_use]
    pub fn failures(&self, door: Door, fault: Fault) -> u64 {
        self.stripes.sum(Place::fault(door, fault))
    }

    /// How long answers took.
    #[must_use]
    pub fn took(&self, door: Door) -> Took {
        let classes = std::array::from_fn(|class| self.stripes.sum(Place::class(door, class)));
        Took { classes, sum_micros: self.stripes.sum(Place::sum(door)) }
    }

    /// How often something happened.
    #[must_use]
    pub fn times(&self, what: Happening) -> u64 {
        self.stripes.sum(Place::happening(what))
    }
}

// === impl Took ===

impl Took {
    /// How many there were.
    ///
    /// ```
    /// use sluicegate::Span;
    /// use sluicegate_server::telemetry::{Door, Telemetry};
    ///
    /// let telemetry = Telemetry::default();
    /// telemetry.answered(Door::Check, Span::from_secs(60));
    /// assert_eq!(telemetry.took(Door::Check).count(), 1);
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

// === places ===

/// Where in a stripe a number is.
struct Place;

impl Place {
    const CLASSES: usize = TOOK_MICROS.len() + 1;
    const OF_A_DOOR: usize = 2 + Fault::ALL.len() + Self::CLASSES;
    const ALL: usize = Door::ALL.len() * Self::OF_A_DOOR + Happening::ALL.len();

    const fn calls(door: Door) -> usize {
        door as usize * Self::OF_A_DOOR
    }

    const fn sum(door: Door) -> usize {
        Self::calls(door) + 1
    }

    const fn fault(door: Door, fault: Fault) -> usize {
        Self::calls(door) + 2 + fault as usize
    }

    const fn class(door: Door, class: usize) -> usize {
        Self::calls(door) + 2 + Fault::ALL.len() + class
    }

    const fn happening(what: Happening) -> usize {
        Door::ALL.len() * Self::OF_A_DOOR + what as usize
    }
}

impl Door {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::ShouldRateLimit,
        Self::Json,
        Self::Check,
        Self::Peek,
        Self::Refund,
        Self::Reserve,
        Self::Commit,
        Self::Cancel,
        Self::Wait,
        Self::Explain,
        Self::Keys,
        Self::ForwardAuth,
        Self::Throttle,
        Self::RespCheck,
        Self::RespPeek,
        Self::RespRefund,
        Self::RespReserve,
        Self::RespCommit,
        Self::RespCancel,
        Self::RespWait,
    ];

    /// As metrics call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "ShouldRateLimit",
            Self::Json => "json",
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reserve => "reserve",
            Self::Commit => "commit",
            Self::Cancel => "cancel",
            Self::Wait => "wait",
            Self::Explain => "explain",
            Self::Keys => "keys",
            Self::ForwardAuth => "forward_auth",
            Self::Throttle => "cl.throttle",
            Self::RespCheck => "sg.check",
            Self::RespPeek => "sg.peek",
            Self::RespRefund => "sg.refund",
            Self::RespReserve => "sg.reserve",
            Self::RespCommit => "sg.commit",
            Self::RespCancel => "sg.cancel",
            Self::RespWait => "sg.wait",
        }
    }
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Invalid, Self::Service, Self::Overload, Self::Late, Self::Store];

    /// As metrics call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Service => "service_error",
            Self::Overload => "overload",
            Self::Late => "late",
            // As envoyproxy/ratelimit calls it.
            Self::Store => "redis_error",
        }
    }
}

impl Happening {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::UnknownDomain,
        Self::GlobalShadow,
        Self::RulesLoaded,
        Self::RulesRefused,
        Self::ConnectionOpened,
        Self::ConnectionClosed,
        Self::ConnectionRefused,
        Self::SnapshotNotRestored,
        Self::SnapshotNotSaved,
        Self::RespAuthFailed,
        Self::HttpAuthFailed,
        Self::AdminAuthFailed,
    ];
}
