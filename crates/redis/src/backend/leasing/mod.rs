//! Buying ahead: what a node holds of the limits that it is often asked for.
//!
//! Whoever is asked for often (`sketch`) has a seat with a lease (`lease`). A hit that the lease covers costs a look into a table; every other goes to
//! the store. Calls that buy, give back and renew are made in the background (`buying`), many in one.
//!
//! *Never more passes than the limit allows*: what is held was charged before, counts against the limit until it has run out (`core/lease`), and is not spent
//! later than that, even if the call took as long as it can have taken. A node that dies takes with it what it held.

mod buying;
mod demand;
mod lease;
mod sketch;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};
use sluicegate_rules::rule::Consistency;
use sluicegate_rules::set::RuleNo;
use tokio::sync::{Notify, mpsc};

use super::LevelCounters;
use super::levels::{add, take};
use super::local::{Local, LocalStep};
use crate::Store;
use crate::script::{LeaseRequest, ScriptRule};
use lease::{Lease, Numbers, Said, Serials};
use sketch::Sketch;
use sluicegate::backend::Rule;
use sluicegate::clock::TimeSource;
use sluicegate::{Level, Promise};

const SHARDS: usize = 64;
/// How many identities are leased at a time. Others ask the store.
const SEATS_MAX: usize = 65_536;
/// How often an identity was asked for lately, that is within about a second, for it to be leased.
const OFTEN: u32 = 3;
/// The same for one that would rather be strict.
const HOT: u32 = 100;
/// After a denial the store is not asked again for a sixteenth of the time in which the limit fills, and no longer than this.
const GAP_MAX: Span = Span::from_millis(5);

const LEASED: Promise = Promise { level: Level::Leased, over: 0 };

/// What this node holds. Clones are the same.
#[derive(Clone)]
pub(super) struct Leases {
    inner: Arc<Inner>,
}

/// What is held of one identity, for who wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leased {
    /// Under which rule.
    pub rule: RuleNo,
    /// Whose it is: domain and entries, as they were matched.
    pub identity: Box<[u8]>,
    /// Whether the rule is strict, and this identity so hot that it is leased.
    pub is_hot: bool,
    /// What this node holds unspent.
    pub unspent: u64,
    /// How much it is asked for a second.
    pub per_second: u64,
    /// For how long what it holds may be spent.
    pub lasts: Span,
}

struct Inner {
    clock: TimeSource,
    store: Store,
    shards: [Mutex<Shard>; SHARDS],
    seats: AtomicUsize,
    sketch: Sketch,
    serials: Serials,
    due: mpsc::UnboundedSender<Due>,
    is_closing: AtomicBool,
    /// Told whenever a call was answered.
    answered: Notify,
}

/// By hash. Two identities of one hash take turns.
type Shard = HashMap<u64, Seat, BuildHasherDefault<AsIs>>;

/// An identity that is leased.
struct Seat {
    no: RuleNo,
    identity: Box<[u8]>,
    key: Arc<[u8]>,
    rule: Arc<Rule>,
    is_hot: bool,
    gap: Span,
    lease: Lease,
    counters: Arc<LevelCounters>,
    /// Decided here, and not yet counted.
    local: u64,
    /// What the counters say that it holds.
    counted: u64,
}

/// A call to be made.
struct Due {
    hash: u64,
    ask: LeaseRequest,
}

/// A hash is one already.
#[derive(Default)]
struct AsIs(u64);

// === impl Leases ===

impl Leases {
    /// Nothing is held. To be called where tokio runs.
    pub(super) fn start(clock: &TimeSource, store: &Store) -> Self {
        let (due, called) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            clock: clock.clone(),
            store: store.clone(),
            shards: std::array::from_fn(|_| Mutex::default()),
            seats: AtomicUsize::new(0),
            sketch: Sketch::new(),
            serials: Serials::default(),
            due,
            is_closing: AtomicBool::new(false),
            answered: Notify::new(),
        });
        tokio::spawn(buying::buy(Arc::downgrade(&inner), called));
        tokio::spawn(buying::look_after(Arc::downgrade(&inner)));
        tokio::spawn(buying::say_again(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// A hit, if this node can decide it.
    #[inline]
    pub(super) fn hit(&self, step: &LocalStep<'_>, ticks: Timestamp) -> Local {
        self.inner.with_seat(step, ticks, |seat| {
            let said = seat.lease.hit(step.cost, ticks);
            seat.local += u64::from(said != Said::Uncovered);
            // Rules that are loaded anew may have other numbers.
            seat.no = step.no;
            said
        })
    }

    /// The same for a request that others have a say on: it happens or not.
    pub(super) fn try_hit(&self, step: &LocalStep<'_>, ticks: Timestamp) -> Local {
        self.inner.with_seat(step, ticks, |seat| {
            let said = seat.lease.try_hit(step.cost, ticks);
            seat.local += u64::from(said != Said::Uncovered);
            seat.no = step.no;
            said
        })
    }

    /// A hit that was said to pass happens.
    pub(super) fn happens(&self, step: &LocalStep<'_>) {
        self.inner.of_seat(step, |seat| seat.lease.happens(step.cost));
    }

    /// What a hit would be told, if this node can tell. The store knows better what is denied.
    pub(super) fn peek(&self, step: &LocalStep<'_>, ticks: Timestamp) -> Local {
        let said = self.inner.with_seat(step, ticks, |seat| seat.lease.peek(step.cost, ticks));
        match said {
            Local::Decided(verdict, _) if verdict.is_allowed() => said,
            _ => Local::Unknown,
        }
    }

    /// A hit that was said to pass does not happen.
    pub(super) fn undo(&self, step: &LocalStep<'_>, ticks: Timestamp) {
        self.inner.of_seat(step, |seat| seat.lease.undo(step.cost, ticks));
    }

    /// The store is asked for a hit: if that is often so, it is leased from now on.
    pub(super) fn missed(&self, step: &LocalStep<'_>, ticks: Timestamp) {
        add(&step.counters.asked, 1);
        self.inner.missed(step, ticks);
    }

    /// What the store said of it.
    pub(super) fn answered(&self, step: &LocalStep<'_>, verdict: &Verdict, ticks: Timestamp) {
        self.inner.of_seat(step, |seat| match verdict.outcome {
            Outcome::Deny { .. } => seat.lease.denied(step.cost, *verdict, seat.gap, ticks),
            Outcome::Allow { .. } => seat.lease.admitted(verdict, ticks),
            Outcome::Never { .. } => {}
        });
    }

    /// What this node held of an identity after its last call, spent or not.
    pub(super) fn held(&self, hash: u64) -> u64 {
        self.inner.shard(hash).lock().get(&hash).map_or(0, |seat| seat.lease.held())
    }

    /// Something was given back to it, or changed.
    pub(super) fn forget_denial(&self, hash: u64) {
        if let Some(seat) = self.inner.shard(hash).lock().get_mut(&hash) {
            seat.lease.forget_denial();
        }
    }

    /// Gives everything back. From now on every hit asks the store.
    pub(super) async fn close(&self) {
        buying::close(&self.inner).await;
    }

    /// What is held, the most asked for first.
    pub(super) fn list(&self, most: usize) -> Vec<Leased> {
        let ticks = self.inner.clock.ticks();
        let mut all = Vec::new();
        for shard in &self.inner.shards {
            all.extend(shard.lock().values().map(|seat| seat.told(ticks)));
        }
        all.sort_by(|one, other| {
            other.per_second.cmp(&one.per_second).then_with(|| one.identity.cmp(&other.identity))
        });
        all.truncate(most);
        all
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seats = self.inner.seats.load(Ordering::Relaxed);
        f.debug_struct("Leases").field("seats", &seats).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The map takes the lowest bits and the highest.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    #[inline]
    fn with_seat(
        &self,
        step: &LocalStep<'_>,
        ticks: Timestamp,
        ask: impl FnOnce(&mut Seat) -> Said,
    ) -> Local {
        let mut shard = self.shard(step.hash).lock();
        let Some(seat) = shard.get_mut(&step.hash) else { return Local::Unknown };
        if !seat.is(step) {
            return Local::Unknown;
        }
        let said = ask(seat);
        if !self.is_closing.load(Ordering::Relaxed)
            && let Some(numbers) = seat.lease.buys(&self.serials, ticks)
        {
            self.call(seat, step.hash, numbers);
        }
        match said {
            Said::Covered(verdict) | Said::Denied(verdict) => Local::Decided(verdict, LEASED),
            Said::Uncovered => Local::Unknown,
        }
    }

    fn of_seat(&self, step: &LocalStep<'_>, act: impl FnOnce(&mut Seat)) {
        let mut shard = self.shard(step.hash).lock();
        if let Some(seat) = shard.get_mut(&step.hash).filter(|seat| seat.is(step)) {
            act(seat);
        }
    }

    fn missed(&self, step: &LocalStep<'_>, ticks: Timestamp) {
        if self.is_closing.load(Ordering::Relaxed) {
            return;
        }
        let count = self.sketch.count(step.hash);
        let mut shard = self.shard(step.hash).lock();
        let seat = match shard.entry(step.hash) {
            Entry::Occupied(taken) if taken.get().is(step) => taken.into_mut(),
            Entry::Occupied(taken) if *taken.get().identity == *step.identity => {
                // The limits are others now.
                let seat = taken.into_mut();
                let old = std::mem::replace(seat, self.new_seat(step, count, ticks));
                self.leave(old, step.hash, ticks);
                seat
            }
            // Two identities of one hash: the first has it.
            Entry::Occupied(_) => return,
            Entry::Vacant(free) if self.is_often(step, count) => {
                free.insert(self.new_seat(step, count, ticks))
            }
            Entry::Vacant(_) => return,
        };
        seat.lease.missed(step.cost, ticks);
        if let Some(numbers) = seat.lease.buys(&self.serials, ticks) {
            self.call(seat, step.hash, numbers);
        }
    }

    fn is_often(&self, step: &LocalStep<'_>, count: u32) -> bool {
        let often = if is_hot(step) { HOT } else { OFTEN };
        count >= often && self.seats.load(Ordering::Relaxed) < SEATS_MAX
    }

    fn new_seat(&self, step: &LocalStep<'_>, count: u32, ticks: Timestamp) -> Seat {
        self.seats.fetch_add(1, Ordering::Relaxed);
        add(&step.counters.promoted, 1);
        add(&step.counters.leases, 1);
        let key = self.store.key_of(step.identity, "");
        Seat::new(step, key, u64::from(count), ticks)
    }

    /// Has a call made. There is one for each seat at most, and so there is room for it.
    fn call(&self, seat: &Seat, hash: u64, numbers: Numbers) {
        let ask = self.ask_of(seat, numbers);
        let _ = self.due.send(Due { hash, ask });
    }

    fn ask_of(&self, seat: &Seat, numbers: Numbers) -> LeaseRequest {
        let Numbers { serial, give, hold, want } = numbers;
        LeaseRequest {
            key: seat.key.clone(),
            rule: ScriptRule::at(&seat.rule, self.clock.now()),
            node: self.store.node(),
            serial,
            give,
            hold,
            want,
            ttl: lease::TTL,
        }
    }

    /// A seat is given up, and what it holds given back.
    fn leave(&self, mut seat: Seat, hash: u64, ticks: Timestamp) {
        self.seats.fetch_sub(1, Ordering::Relaxed);
        if let Some(numbers) = seat.lease.gives_all(&self.serials, ticks) {
            self.call(&seat, hash, numbers);
        }
        seat.count();
        add(&seat.counters.demoted, 1);
        take(&seat.counters.leases, 1);
    }
}

// === impl Seat ===

impl Seat {
    fn new(step: &LocalStep<'_>, key: Arc<[u8]>, count: u64, ticks: Timestamp) -> Self {
        let fills_in = step.rule.policies.iter().filter_map(|policy| policy.window).min();
        let gap = Span::from_micros(fills_in.unwrap_or_default().as_micros() / 16).min(GAP_MAX);
        Self {
            no: step.no,
            identity: step.identity.into(),
            key,
            rule: step.rule.clone(),
            is_hot: is_hot(step),
            gap,
            lease: Lease::new(count, ticks),
            counters: step.counters.clone(),
            local: 0,
            counted: 0,
        }
    }

    /// Whether it is that of this step, under the same limits.
    #[inline]
    fn is(&self, step: &LocalStep<'_>) -> bool {
        Arc::ptr_eq(&self.rule, step.rule) && *self.identity == *step.identity
    }

    /// Brings the counters up to date.
    fn count(&mut self) {
        let counters = &*self.counters;
        add(&counters.local, std::mem::replace(&mut self.local, 0));
        add(&counters.short_observed, self.lease.take_lapsed());
        let (held, counted) = (self.lease.unspent(), self.counted);
        match held.checked_sub(counted) {
            Some(more) => add(&counters.short_bound, more),
            None => take(&counters.short_bound, counted - held),
        }
        self.counted = held;
    }

    fn told(&self, ticks: Timestamp) -> Leased {
        Leased {
            rule: self.no,
            identity: self.identity.clone(),
            is_hot: self.is_hot,
            unspent: self.lease.unspent(),
            per_second: self.lease.per_second(),
            lasts: self.lease.lasts(ticks),
        }
    }
}

/// Whether it is leased although its rule is strict.
fn is_hot(step: &LocalStep<'_>) -> bool {
    step.consistency != Consistency::Leased
}

// === impl AsIs ===

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not asked for: keys are 64-bit numbers.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
