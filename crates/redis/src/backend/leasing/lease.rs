//! One identity's lease: what a node holds of it, and what it does next about it. No clock, no store: times are ticks, and calls are
//! made by whoever asks what to call.
//!
//! ```text
//!   bought |================ spent ===============|.......|          a quarter is left: buy again, in the background
//!                                        low water ^      ^ nothing left: the store is asked, as if there were no leases
//! ```
//!
//! How much is bought goes by what was asked for lately: enough for [`HORIZON`], and no more than a few times what was bought before, so that a newcomer begins
//! small. What the store gives goes by what there is, and by what others ask for; near the end of a limit that is nothing, and every hit asks the store.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::demand::Demand;

/// For how long what is bought is to last.
const HORIZON: Span = Span::from_millis(500);
/// How long it may be held without a word.
pub(super) const TTL: Span = Span::from_secs(2);
/// Who was not asked for during this time gives back what it has.
const IDLE: Span = Span::from_millis(500);
/// The first that is bought.
const FIRST: u64 = 8;
/// When so small a part of it is left, it is bought again: an eighth of a second before it is gone.
const LOW_WATER: u64 = 4;
/// How much more than it held before a node may want.
const GROWTH: u64 = 4;
/// No more than this at once, whatever the demand: far above what a node decides in [`HORIZON`].
const WANT_MAX: u64 = 1 << 32;
/// A call that brings so many is worth it: they would take as many calls if the store were asked for each.
const WORTH_IT: u64 = 4;
/// Before the next call, where there was little to be had; then twice as long, up to the second.
const SCARCE: (Span, Span) = (Span::from_millis(2), Span::from_millis(64));
/// Before the next call after one that failed.
const FAILED: (Span, Span) = (Span::from_millis(50), Span::from_secs(1));
/// What the clocks of a node and of the store may differ in pace: one part in so many.
const DRIFT: u64 = 1_000;
/// How long what others give back may go unheard of.
const DENIED: Span = Span::from_millis(100);

/// What is held of one identity.
#[derive(Debug)]
pub(super) struct Lease {
    unspent: u64,
    /// Spent by requests that may yet not happen: until that is known it counts as held.
    pending: u64,
    /// From this tick on nothing of it may be spent.
    ends: Timestamp,
    /// Whether it ends with a window, so that nothing can be done about it.
    is_last: bool,
    /// Whether somebody was denied for want of what is held here, which is too little for a hit.
    is_short: bool,
    /// At or below this it is time to buy.
    low_water: u64,
    view: View,
    denial: Option<Denial>,
    demand: Demand,
    /// The call that is under way, or waits to be retried.
    under_way: Option<Numbers>,
    /// Whether it got no reply: it may have been executed, so the very same call is made again.
    is_unanswered: bool,
    not_before: Timestamp,
    pause: Span,
    /// What ran out unspent, since it was last asked for.
    lapsed: u64,
}

/// The number of the next call of this node: a store that has heard a later one does not listen to an earlier.
#[derive(Debug, Default)]
pub(super) struct Serials(AtomicU64);

/// A call: what to ask the store for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) serial: u64,
    pub(super) give: u64,
    pub(super) hold: u64,
    pub(super) want: u64,
}

/// What a lease says to a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It is covered.
    Covered(Verdict),
    /// The store has just denied the same.
    Denied(Verdict),
    /// Ask the store.
    Uncovered,
}

/// What the store gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bought {
    pub(super) granted: u64,
    /// How long after the call was sent it ends, by the store's clock; at the earliest.
    pub(super) lasts: Span,
    /// Whether what was held before still counts.
    pub(super) kept: bool,
    /// Whether it ends with a window.
    pub(super) is_last: bool,
}

/// How the limit stands for everybody, as of the last call: what an answer says beside yes.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// With everything that this node holds given back.
    pub(super) verdict: Verdict,
    /// By how much later it is full again for each that is spent, in microseconds.
    pub(super) slope: u64,
    /// When that was.
    pub(super) at: Timestamp,
    /// What this node held then.
    pub(super) held: u64,
}

#[derive(Debug)]
struct Denial {
    verdict: Verdict,
    cost: u64,
    at: Timestamp,
    until: Timestamp,
}

// === impl Lease ===

impl Lease {
    /// Nothing is held yet; so much a second is wanted, as far as is known.
    pub(super) fn new(per_second: u64, ticks: Timestamp) -> Self {
        let verdict = sluicegate::backend::UNCOUNTED;
        Self {
            unspent: 0,
            pending: 0,
            ends: Timestamp::EPOCH,
            is_last: false,
            is_short: false,
            low_water: 0,
            view: View { verdict, slope: 0, at: ticks, held: 0 },
            denial: None,
            demand: Demand::new(per_second, ticks),
            under_way: None,
            is_unanswered: false,
            not_before: Timestamp::EPOCH,
            pause: SCARCE.0,
            lapsed: 0,
        }
    }

    /// A hit of this cost. One that is not covered is told again when the store is asked ([`Lease::missed`]).
    #[inline]
    pub(super) fn hit(&mut self, cost: u64, ticks: Timestamp) -> Said {
        let said = self.peek(cost, ticks);
        match said {
            Said::Covered(_) => {
                self.demand.count(cost, ticks);
                self.unspent -= cost;
                Said::Covered(self.view.verdict(self.unspent, ticks))
            }
            Said::Denied(_) => {
                self.demand.count(cost, ticks);
                said
            }
            Said::Uncovered => said,
        }
    }

    /// The store is asked for a hit of this cost.
    pub(super) fn missed(&mut self, cost: u64, ticks: Timestamp) {
        self.demand.count(cost, ticks);
    }

    /// What a hit would be told.
    #[inline]
    pub(super) fn peek(&mut self, cost: u64, ticks: Timestamp) -> Said {
        self.settle(ticks);
        if cost <= self.unspent && self.unspent > 0 {
            return Said::Covered(self.view.verdict(self.unspent, ticks));
        }
        match &self.denial {
            // Another cost has another time.
            Some(denial) if denial.cost == cost && ticks < denial.until => {
                Said::Denied(denial.verdict_at(ticks))
            }
            _ => Said::Uncovered,
        }
    }

    /// The same for a request that others have a say on: it happens or not ([`Lease::happens`], [`Lease::undo`]).
    pub(super) fn try_hit(&mut self, cost: u64, ticks: Timestamp) -> Said {
        let said = self.hit(cost, ticks);
        if let Said::Covered(_) = said {
            self.pending = self.pending.saturating_add(cost);
        }
        said
    }

    /// A hit that was covered happens.
    pub(super) fn happens(&mut self, cost: u64) {
        self.pending = self.pending.saturating_sub(cost);
    }

    /// A hit that was covered does not happen.
    pub(super) fn undo(&mut self, cost: u64, ticks: Timestamp) {
        self.settle(ticks);
        // What ran out meanwhile has run out.
        let held = cost.min(self.pending);
        self.pending -= held;
        self.unspent = self.unspent.saturating_add(held);
    }

    /// The store denied what was not covered. Nobody asks it again before its time has come, nor before `gap` has passed.
    pub(super) fn denied(&mut self, cost: u64, mut verdict: Verdict, gap: Span, ticks: Timestamp) {
        let Outcome::Deny { retry_after } = verdict.outcome else { return };
        let retry_after = retry_after.max(gap);
        verdict.outcome = Outcome::Deny { retry_after };
        let until = ticks.after(retry_after.min(DENIED));
        self.denial = Some(Denial { verdict, cost, at: ticks, until });
        self.is_short = self.unspent > 0;
    }

    /// Something was given back, or changed: a denial may be one no longer.
    pub(super) fn forget_denial(&mut self) {
        self.denial = None;
    }

    /// What to call now that it was asked for, if anything. It is taken as called.
    #[inline]
    pub(super) fn buys(&mut self, serials: &Serials, ticks: Timestamp) -> Option<Numbers> {
        if self.is_unanswered {
            return self.retries(ticks);
        }
        // Too little for a hit here, and nobody else can have it.
        if self.is_short && self.unspent > 0 && self.under_way.is_none() {
            self.is_short = false;
            self.wait(ticks, SCARCE);
            return Some(self.call(self.unspent, 0, serials));
        }
        let may = self.under_way.is_none() && self.unspent <= self.low_water;
        if !may || ticks < self.not_before {
            return None;
        }
        let want = self.due();
        Some(self.call(0, want, serials))
    }

    /// What to call where nobody asks, if anything: what is not needed is given back, and what is about to run out is renewed.
    pub(super) fn looks_after(&mut self, serials: &Serials, ticks: Timestamp) -> Option<Numbers> {
        self.settle(ticks);
        self.demand.measure(ticks);
        if self.is_unanswered {
            return self.retries(ticks);
        }
        if self.under_way.is_some() || self.unspent == 0 || ticks < self.not_before {
            return None;
        }
        let (needed, left) = (self.demand.during(HORIZON), self.ends.since(ticks));
        if self.is_idle(ticks) {
            return Some(self.call(self.unspent, 0, serials));
        }
        if self.unspent > needed.saturating_mul(2).saturating_add(FIRST) {
            return Some(self.call(self.unspent - needed, 0, serials));
        }
        if !self.is_last && left.as_micros() < TTL.as_micros() / 2 {
            return Some(self.call(0, 0, serials));
        }
        None
    }

    /// The call that gives back some of what is held.
    pub(super) fn returns(&mut self, amount: u64, serials: &Serials) -> Numbers {
        self.call(amount.min(self.unspent), 0, serials)
    }

    /// What to call when the node stops, or the limits are others. What a call that is under way brings is lost.
    pub(super) fn gives_all(&mut self, serials: &Serials, ticks: Timestamp) -> Option<Numbers> {
        self.settle(ticks);
        (self.unspent > 0).then(|| self.call(self.unspent, 0, serials))
    }

    /// What to call when the store may have forgotten what is held.
    pub(super) fn says_again(&mut self, serials: &Serials, ticks: Timestamp) -> Option<Numbers> {
        self.settle(ticks);
        (self.unspent > 0 && self.under_way.is_none()).then(|| self.call(0, 0, serials))
    }

    /// The call of this number is no longer under way. What it asked for, if it was the last.
    pub(super) fn answers(&mut self, serial: u64) -> Option<Numbers> {
        self.is_unanswered = false;
        self.under_way.take_if(|numbers| numbers.serial == serial)
    }

    /// The call of this number got no reply, and may have been executed.
    pub(super) fn unanswered(&mut self, serial: u64, ticks: Timestamp) {
        if self.under_way.is_some_and(|numbers| numbers.serial == serial) {
            self.is_unanswered = true;
            self.wait(ticks, FAILED);
        }
    }

    /// The call that got no reply, if it is time to retry it. What it bought is claimed, or bought
    /// now.
    fn retries(&mut self, ticks: Timestamp) -> Option<Numbers> {
        if ticks < self.not_before {
            return None;
        }
        self.is_unanswered = false;
        self.under_way
    }

    /// What a call brought.
    pub(super) fn bought(
        &mut self,
        asked: Numbers,
        bought: Bought,
        sent: Timestamp,
        heard: Timestamp,
    ) {
        self.settle(heard);
        if !bought.kept {
            self.lapse();
        }
        self.unspent = self.unspent.saturating_add(bought.granted);
        let lasts = bought.lasts.as_micros();
        self.ends = sent.after(Span::from_micros(lasts - lasts / DRIFT));
        self.is_last = bought.is_last;
        self.low_water = self.unspent / LOW_WATER;
        // Heard too late.
        self.settle(heard);
        if asked.give > 0 {
            self.denial = None;
        }
        if asked.want == 0 {
            return;
        }
        if bought.granted >= WORTH_IT || bought.granted >= asked.want / 2 {
            self.pause = SCARCE.0;
            self.not_before = Timestamp::EPOCH;
        } else {
            self.wait(heard, SCARCE);
        }
        if bought.granted > 0 {
            self.denial = None;
        }
    }

    /// How the limit stands for everybody.
    pub(super) fn sees(&mut self, view: View) {
        self.view = view;
    }

    /// The store admitted what was not covered, and said how the limit stands without what is held here.
    pub(super) fn admitted(&mut self, verdict: &Verdict, ticks: Timestamp) {
        let held = self.unspent;
        let remaining = verdict.remaining.map(|left| left.saturating_add_unsigned(held));
        let given = Span::from_micros(self.view.slope.saturating_mul(held));
        let reset_after = verdict.reset_after.less(given);
        let verdict = Verdict { remaining, reset_after, ..*verdict };
        self.view = View { verdict, slope: self.view.slope, at: ticks, held };
    }

    /// A call was not executed: what it would have given back is still held.
    pub(super) fn failed(&mut self, asked: Numbers, ticks: Timestamp) {
        self.settle(ticks);
        if ticks < self.ends {
            self.unspent = self.unspent.saturating_add(asked.give);
        }
        self.wait(ticks, FAILED);
    }

    /// What a call had bought ran out before it was claimed.
    pub(super) fn lapsed(&mut self, amount: u64) {
        self.lapsed = self.lapsed.saturating_add(amount);
    }

    /// What is held.
    pub(super) const fn unspent(&self) -> u64 {
        self.unspent
    }

    /// What was held after the last call.
    pub(super) const fn held(&self) -> u64 {
        self.view.held
    }

    /// How much is asked for a second, as far as it was measured.
    pub(super) const fn per_second(&self) -> u64 {
        self.demand.per_second()
    }

    /// For how long it is still held.
    pub(super) fn lasts(&self, ticks: Timestamp) -> Span {
        self.ends.since(ticks)
    }

    /// Whether a call is under way.
    pub(super) const fn is_called(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether nobody has asked for it lately.
    pub(super) fn is_idle(&self, ticks: Timestamp) -> bool {
        ticks.since(self.demand.last()) > IDLE
    }

    /// Whether it can be forgotten: nobody asks for it, and nothing is held.
    pub(super) fn is_over(&self, ticks: Timestamp) -> bool {
        self.is_idle(ticks) && self.unspent == 0 && self.under_way.is_none()
    }

    /// What ran out unspent since this was last asked.
    pub(super) const fn take_lapsed(&mut self) -> u64 {
        std::mem::replace(&mut self.lapsed, 0)
    }

    #[inline]
    fn settle(&mut self, ticks: Timestamp) {
        if ticks >= self.ends && (self.unspent > 0 || self.pending > 0) {
            self.lapse();
        }
    }

    fn lapse(&mut self) {
        self.lapsed = self.lapsed.saturating_add(self.unspent);
        (self.unspent, self.pending, self.low_water) = (0, 0, 0);
    }

    /// How much is to be bought.
    fn due(&self) -> u64 {
        let most = (self.view.held.max(self.unspent).saturating_mul(GROWTH)).max(FIRST);
        let due = self.demand.during(HORIZON).saturating_sub(self.unspent);
        due.clamp(1, most.min(WANT_MAX))
    }

    fn call(&mut self, give: u64, want: u64, serials: &Serials) -> Numbers {
        self.unspent = self.unspent.saturating_sub(give);
        let numbers =
            Numbers { serial: serials.next(), give, hold: self.unspent + self.pending, want };
        (self.under_way, self.is_unanswered) = (Some(numbers), false);
        numbers
    }

    fn wait(&mut self, ticks: Timestamp, (least, most): (Span, Span)) {
        self.pause = self.pause.clamp(least, most);
        self.not_before = ticks.after(self.pause);
        self.pause = Span::from_micros(self.pause.as_micros() * 2).min(most);
    }
}

// === impl Serials ===

impl Serials {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

// === impl View ===

impl View {
    /// An admission with so much unspent after it.
    #[inline]
    fn verdict(&self, unspent: u64, ticks: Timestamp) -> Verdict {
        let spent = self.held.saturating_sub(unspent);
        let later = self.slope.saturating_mul(spent);
        let full_in = self.verdict.reset_after.as_micros().saturating_add(later);
        let reset_after = Span::from_micros(full_in).less(ticks.since(self.at));
        let spent = i64::try_from(spent).unwrap_or(i64::MAX);
        let remaining = self.verdict.remaining.map(|left| left.saturating_sub(spent).max(0));
        let outcome = Outcome::Allow { wait: Span::ZERO };
        Verdict { outcome, remaining, reset_after, ..self.verdict }
    }
}

// === impl Denial ===

impl Denial {
    fn verdict_at(&self, ticks: Timestamp) -> Verdict {
        self.verdict.later(ticks.since(self.at))
    }
}
