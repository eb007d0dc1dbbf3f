//! Telling and hearing: the task that calls the store.
//!
//! ```text
//!   asked for again  --->  [ every half interval: all that are asked for ]  --\
//!                                                                             +-->  up to 32 to a call, a few calls at a time
//!   not known enough --->  [ at once ]  ------------------------------------- /
//! ```
//!
//! A call that fails is not repeated: what it told is in the next one too. All that is waited for is a timer, an answer or a word from this node, and all lists
//! are in the order in which identities came: so a trial can be made again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use sluicegate_core::time::{Span, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::Eventual;
use super::peaks::{Peaks, TOLD_FOR};
use super::table::{Name, SHARDS};
use crate::CallError;
use crate::backend::levels::add;
use crate::sync::{KEYS_MAX, SyncOp, SyncReply, SyncRequest};

/// How many calls are under way at a time.
const CALLS_MAX: usize = 4;
/// On a Cluster a call holds keys of one slot, so most hold one: there have to be more of them.
const CALLS_OF_SLOTS_MAX: usize = 48;
/// After a failure nothing is told of by itself for so long.
const REST: Duration = Duration::from_millis(50);
/// Timers know nothing shorter.
const PERIOD_MIN: Duration = Duration::from_millis(1);
/// How often a part of the table is looked through for what can be forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEPT: usize = SHARDS / 8;

/// Where it is said whether the others were heard.
pub(super) type Reply = oneshot::Sender<Result<(), CallError>>;

/// What the task is told.
#[derive(Debug)]
pub(super) enum Word {
    /// This one is asked for.
    Sync(Name, Span),
    /// Somebody waits for an answer about this one.
    Ask(Name, Reply),
}

/// What is done next.
struct Syncing {
    /// Who is told of by itself, by how often.
    rounds: BTreeMap<Duration, Round>,
    /// Who waits for what is asked at once.
    asked: BTreeMap<Name, Vec<Reply>>,
    /// Whose turn has come.
    due: BTreeSet<Name>,
    /// Whose turn came last: those behind it are next, so that nobody waits for ever.
    last: Name,
    under_way: FuturesUnordered<BoxFuture<'static, Said>>,
    peaks: Peaks,
    rests_until: Option<Instant>,
    sweeps_at: Instant,
    swept: usize,
    turns_at: Instant,
}

struct Round {
    next: Instant,
    names: Vec<Name>,
}

/// One that is told of.
struct Told {
    name: Name,
    op: SyncOp,
    version: u64,
    replies: Vec<Reply>,
}

/// What became of a call.
struct Said {
    told: Vec<Told>,
    sent: Timestamp,
    heard: Result<Vec<SyncReply>, CallError>,
}

/// Tells and hears until the engine is dropped.
pub(super) async fn serve(eventual: Weak<Eventual>, mut words: mpsc::UnboundedReceiver<Word>) {
    let now = Instant::now();
    let mut syncing = Syncing {
        rounds: BTreeMap::new(),
        asked: BTreeMap::new(),
        due: BTreeSet::new(),
        last: Name::first_of(None),
        under_way: FuturesUnordered::new(),
        peaks: Peaks::default(),
        rests_until: None,
        sweeps_at: now + SWEEP_EVERY,
        swept: 0,
        turns_at: now + TOLD_FOR,
    };
    let mut fresh = Vec::new();
    loop {
        let next = syncing.next();
        tokio::select! {
            biased;
            Some(said) = syncing.under_way.next(), if !syncing.under_way.is_empty() => {
                let Some(eventual) = eventual.upgrade() else { return };
                syncing.hear(&eventual, said);
            }
            came = words.recv_many(&mut fresh, 1_024) => {
                // Nobody can say anything any more.
                if came == 0 {
                    return;
                }
                fresh.drain(..).for_each(|word| syncing.listen(word));
            }
            () = sleep_until(next) => {}
        }
        let Some(eventual) = eventual.upgrade() else { return };
        syncing.look_around(&eventual, Instant::now());
        while let Some(call) = syncing.next_call(&eventual) {
            syncing.under_way.push(call);
        }
    }
}

/// Tells everything again, whenever the store may have forgotten it; until the engine is dropped.
pub(super) async fn tell_again(eventual: Weak<Eventual>) {
    let Some(mut changes) = eventual.upgrade().map(|this| this.store.link().epoch_changes()) else {
        return;
    };
    while changes.changed().await.is_ok() {
        let Some(eventual) = eventual.upgrade() else { return };
        eventual.tell_again();
    }
}

// === impl Syncing ===

impl Syncing {
    fn listen(&mut self, word: Word) {
        match word {
            Word::Sync(name, interval) => {
                let period = period(interval);
                let first = Round { next: Instant::now() + period, names: Vec::new() };
                self.rounds.entry(period).or_insert(first).names.push(name);
            }
            Word::Ask(name, reply) => self.asked.entry(name).or_default().push(reply),
        }
    }

    /// When there is something to do, if nobody says anything.
    fn next(&self) -> Instant {
        let rounds = self.rounds.values().map(|round| round.next).min();
        let next = self.sweeps_at.min(self.turns_at);
        rounds.map_or(next, |round| round.min(next))
    }

    fn look_around(&mut self, eventual: &Eventual, now: Instant) {
        let tick = eventual.tick();
        for (period, round) in &mut self.rounds {
            if round.next > now {
                continue;
            }
            // One that is late does not make the next one early.
            round.next = now + *period;
            let rests = self.rests_until.is_some_and(|until| now < until);
            let due = &mut self.due;
            round.names.retain(|name| match eventual.table.stays(*name, tick) {
                Some(stays) if self::period(stays.interval) == *period => {
                    if !stays.is_under_way && !rests {
                        due.insert(*name);
                    }
                    true
                }
                Some(stays) => {
                    eventual.say(Word::Sync(*name, stays.interval));
                    false
                }
                None => false,
            });
        }
        self.rounds.retain(|_, round| !round.names.is_empty());
        if self.sweeps_at <= now {
            self.sweeps_at = now + SWEEP_EVERY;
            for _ in 0..SWEPT {
                self.swept = (self.swept + 1) % SHARDS;
                eventual.table.sweep(self.swept, tick);
            }
        }
        if self.turns_at <= now {
            self.turns_at = now + TOLD_FOR;
            self.peaks.turn();
        }
    }

    /// The next call, if there is one to make and it may be made.
    fn next_call(&mut self, eventual: &Eventual) -> Option<BoxFuture<'static, Said>> {
        let (slot, from) = match self.asked.keys().next() {
            Some(name) => (name.slot, Name::first_of(name.slot)),
            None => {
                let behind = (Bound::Excluded(self.last), Bound::Unbounded);
                let next = *self.due.range(behind).next().or_else(|| self.due.first())?;
                (next.slot, next)
            }
        };
        let most = if slot.is_some() { CALLS_OF_SLOTS_MAX } else { CALLS_MAX };
        if self.under_way.len() >= most {
            return None;
        }
        let sent = eventual.tick();
        let mut told = Vec::new();
        let mut pushes = Vec::new();
        while told.len() < KEYS_MAX {
            let Some((name, replies)) = self.next_of(slot, from) else { break };
            let telling = eventual.table.with(name, |entry| {
                entry.is_under_way = true;
                let telling = entry.book.tells(sent);
                if telling.op == SyncOp::Push {
                    add(&entry.counters.pushes, 1);
                }
                (entry.key.clone(), telling)
            });
            // Who is gone is asked for anew, by whoever wants it.
            let Some((key, telling)) = telling else { continue };
            told.push(Told { name, op: telling.op, version: telling.version, replies });
            let (op, epoch, counted) = (telling.op, telling.epoch, telling.counted);
            pushes.push(SyncRequest { key, op, epoch, counted });
        }
        let store = eventual.store.clone();
        Some(Box::pin(async move {
            let heard = if pushes.is_empty() { Ok(Vec::new()) } else { store.sync(&pushes).await };
            Said { told, sent, heard }
        }))
    }

    /// The next of a slot: first those that somebody waits for, then those from a name on.
    fn next_of(&mut self, slot: Option<u16>, from: Name) -> Option<(Name, Vec<Reply>)> {
        let is_next = |name: &&Name| name.slot == slot;
        let asked = self.asked.range(Name::first_of(slot)..).next().map(|(name, _)| name);
        if let Some(name) = asked.filter(is_next).copied() {
            self.due.remove(&name);
            return self.asked.remove(&name).map(|replies| (name, replies));
        }
        let name = *self.due.range(from..).next().filter(is_next)?;
        self.due.remove(&name);
        self.last = name;
        Some((name, Vec::new()))
    }

    fn hear(&mut self, eventual: &Eventual, said: Said) {
        let tick = eventual.tick();
        let Said { told, sent, heard } = said;
        let heard = match heard {
            Ok(heard) => heard,
            Err(error) => return self.fail(eventual, told, &error),
        };
        for (told, heard) in told.into_iter().zip(heard) {
            eventual.table.with(told.name, |entry| {
                entry.is_under_way = false;
                let seen = entry.book.hears(&heard, told.version, (sent, tick));
                self.peaks.note(&entry.counters, seen);
            });
            // Whoever has gone does not mind.
            told.replies.into_iter().for_each(|reply| drop(reply.send(Ok(()))));
        }
    }

    fn fail(&mut self, eventual: &Eventual, told: Vec<Told>, error: &CallError) {
        if told.first().is_some_and(|told| told.name.slot.is_none()) {
            self.rests_until = Some(Instant::now() + REST);
        }
        for told in told {
            eventual.table.with(told.name, |entry| {
                entry.is_under_way = false;
                if told.op == SyncOp::Push {
                    add(&entry.counters.pushes_failed, 1);
                }
            });
            told.replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone()))));
        }
    }
}

/// How often is told and heard: twice an interval, so that what is counted somewhere is known everywhere within one.
fn period(interval: Span) -> Duration {
    (interval.to_duration() / 2).max(PERIOD_MIN)
}
