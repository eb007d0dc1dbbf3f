//! `CL.THROTTLE key max_burst count period [quantity]`: a token bucket whose limit is in the
//! command.
//!
//! With counters in memory a pipeline is decided in batches that borrow from it, at once. With a
//! store, the hits of a batch are copied, and sent to the store together.

use sluicegate::throttle::{NoRoom, Throttle, ThrottleParams};
use sluicegate::{Outcome, Span, Timestamp, Verdict};
use sluicegate_redis::ThrottleHit;
use smallvec::SmallVec;

use super::RespServer;
use super::frame::Args;
use super::reply::{Reply, ReplyExtra, RespError, parse_int, shown};
use crate::app::App;
use crate::logs::events;
use crate::telemetry::{Endpoint, Event};

/// Hits on buckets, decided together; the keys borrow from the commands.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    hits: SmallVec<[Hit<'a>; BATCH]>,
}

#[derive(Debug, Clone, Copy)]
struct Hit<'a> {
    key: &'a [u8],
    /// Index of its terms in the cache.
    terms: usize,
    quantity: u64,
}

/// Recent terms: clients use few, and lookup is cheaper than validation.
#[derive(Debug, Default)]
pub(super) struct TermsCache {
    all: SmallVec<[(RawTerms, ThrottleParams); TERMS_MAX]>,
}

/// `max_burst`, `count` and `period`, as sent.
type RawTerms = [i64; 3];

/// Parsed arguments of `CL.THROTTLE`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThrottleArgs {
    raw: RawTerms,
    quantity: u64,
}

/// Commands whose hits are decided by the store together. Invalid ones have their error.
#[derive(Debug, Default)]
pub(super) struct StoreBatch {
    hits: Vec<Result<ThrottleHit, RespError>>,
}

const BATCH: usize = 32;
const TERMS_MAX: usize = 4;

/// Parses the arguments.
pub(super) fn parse(args: Args<'_>) -> Result<ThrottleArgs, RespError> {
    if !(5..=6).contains(&args.len()) {
        return Err(RespError::arity("cl.throttle"));
    }
    let raw = [number(args, 2)?, number(args, 3)?, number(args, 4)?];
    let quantity = if args.len() == 6 { number(args, 5)? } else { 1 };
    let quantity = u64::try_from(quantity).map_err(|_| {
        RespError::invalid(format_args!("`quantity` must be 0 or more, got `{quantity}`"))
    })?;
    Ok(ThrottleArgs { raw, quantity })
}

fn number(args: Args<'_>, index: usize) -> Result<i64, RespError> {
    const NAMES: [&str; 6] = ["", "key", "max_burst", "count", "period", "quantity"];

    let text = args.get(index).unwrap_or_default();
    small(text).or_else(|| parse_int(text)).ok_or_else(|| {
        let (name, got) = (NAMES[index], shown(text));
        RespError::invalid(format_args!(
            "value is not an integer or out of range: `{name}` must be a 64-bit integer, got `{got}`"
        ))
    })
}

/// Fast path: most numbers have a few digits.
#[inline]
fn small(text: &[u8]) -> Option<i64> {
    const DIGITS: usize = 9;

    if text.is_empty() || text.len() > DIGITS {
        return None;
    }
    text.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + i64::from(byte & 15))
    })
}

/// The reply: limited, limit, remaining, retry_after, reset_after.
#[inline]
pub(super) fn numbers(terms: &ThrottleParams, verdict: &Verdict, is_enforced: bool) -> [i64; 5] {
    let denied = !verdict.is_allowed() && is_enforced;
    let retry_after = match verdict.outcome {
        Outcome::Deny { retry_after } if denied => seconds(retry_after),
        _ => -1,
    };
    let limit = i64::try_from(terms.limit()).unwrap_or(i64::MAX);
    let remaining = verdict.remaining.unwrap_or(limit).max(0);
    [denied.into(), limit, remaining, retry_after, seconds(verdict.reset_after)]
}

/// Reports a denial to the log, or counts it if the service is in shadow mode.
pub(super) fn report_denial(app: &App) {
    match app.options().shadow_mode {
        true => app.telemetry().record(Event::GlobalShadow),
        false => events::throttle_denied(),
    }
}

/// The memory store is full; OOM is an error code of Redis.
pub(super) fn no_room(no_room: NoRoom) -> RespError {
    RespError::service(format!("OOM {no_room} (SLUICEGATE_MAX_IDENTITIES)"))
}

/// Whole seconds, rounded up.
pub(super) fn seconds(span: Span) -> i64 {
    i64::try_from(span.as_micros().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

impl<'a> Batch<'a> {
    /// A batch of one hit.
    pub(super) fn one(key: &'a [u8], args: ThrottleArgs, terms: usize) -> Self {
        let mut batch = Self::default();
        batch.push(key, args, terms);
        batch
    }

    #[inline]
    pub(super) fn push(&mut self, key: &'a [u8], args: ThrottleArgs, terms: usize) {
        self.hits.push(Hit { key, terms, quantity: args.quantity });
    }

    pub(super) fn len(&self) -> usize {
        self.hits.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hits.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.hits.len() == BATCH
    }

    pub(super) fn clear(&mut self) {
        self.hits.clear();
    }

    /// Charges all buckets; `each` gets index and verdict.
    pub(super) fn decide(
        &self,
        throttle: &Throttle,
        terms_cache: &TermsCache,
        now: Timestamp,
        mut each: impl FnMut(usize, Result<Verdict, NoRoom>),
    ) {
        let with_terms = |hit: &Hit<'a>| Some((hit.key, terms_cache.get(hit)?, hit.quantity));
        let mut hits = self.hits.iter().filter_map(with_terms);
        // A single hit needs no prefetch.
        if self.hits.len() == 1
            && let Some((key, terms, quantity)) = hits.next()
        {
            return each(0, throttle.hit(key, terms, quantity, now));
        }
        throttle.hit_batch(hits, now, each);
    }

    /// The terms of a hit.
    pub(super) fn terms<'b>(
        &self,
        index: usize,
        terms_cache: &'b TermsCache,
    ) -> Option<&'b ThrottleParams> {
        terms_cache.get(self.hits.get(index)?)
    }
}

impl StoreBatch {
    pub(super) fn push(&mut self, args: Args<'_>) {
        let hit =
            parse(args).and_then(|ThrottleArgs { raw: [max_burst, count, period], quantity }| {
                let params = ThrottleParams::new(max_burst, count, period);
                let key = args.get(1).unwrap_or_default().into();
                Ok(ThrottleHit { key, params: params.map_err(RespError::invalid)?, quantity })
            });
        self.hits.push(hit);
    }

    pub(super) fn len(&self) -> usize {
        self.hits.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hits.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.hits.len() >= BATCH
    }

    /// The replies, in the order of the commands.
    pub(super) async fn decide(self, server: &RespServer) -> Vec<Result<Reply, RespError>> {
        let RespServer { app, throttle, .. } = server;
        let (begun, is_enforced) = (app.engine().now(), !app.options().shadow_mode);
        let valid: Vec<_> = self.hits.iter().flatten().cloned().collect();
        let verdicts = match app.redis() {
            Some(engine) => engine.backend().throttle(throttle, &valid).await,
            None => Vec::new(),
        };
        let mut verdicts = verdicts.into_iter();
        let mut decide = |hit: ThrottleHit| {
            let verdict = verdicts.next().ok_or_else(RespError::draining)?.map_err(no_room)?;
            if !verdict.is_allowed() {
                report_denial(app);
            }
            let numbers = numbers(&hit.params, &verdict, is_enforced);
            Ok(Reply { numbers, extra: ReplyExtra::None, is_refundable: false })
        };
        let replies: Vec<_> = self.hits.into_iter().map(|hit| hit.and_then(&mut decide)).collect();
        for reply in &replies {
            app.record_call(Endpoint::Throttle, begun, reply.as_ref().err().map(|e| e.fault));
        }
        replies
    }
}

impl TermsCache {
    /// Index of these terms, if cached.
    #[inline]
    pub(super) fn find(&self, args: &ThrottleArgs) -> Option<usize> {
        self.all.iter().position(|(raw, _)| *raw == args.raw)
    }

    /// Validates and caches terms; returns their index. A full cache is cleared.
    pub(super) fn insert(&mut self, args: &ThrottleArgs) -> Result<usize, RespError> {
        let [max_burst, count, period] = args.raw;
        let terms = ThrottleParams::new(max_burst, count, period).map_err(RespError::invalid)?;
        if self.all.len() == TERMS_MAX {
            self.all.clear();
        }
        self.all.push((args.raw, terms));
        Ok(self.all.len() - 1)
    }

    fn get(&self, hit: &Hit<'_>) -> Option<&ThrottleParams> {
        self.all.get(hit.terms).map(|(_, terms)| terms)
    }
}
