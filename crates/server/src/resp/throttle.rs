//! `CL.THROTTLE key max_burst count period [quantity]`: a bucket whose limit comes with the command.

use sluicegate::throttle::{NoRoom, Throttle, ThrottleParams};
use sluicegate::{Outcome, Span, Timestamp, Verdict};
use smallvec::SmallVec;

use super::frame::Args;
use super::refusal::{Refusal, shown, whole};

/// What is asked of buckets, one behind the other; the keys are those of the commands.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    hits: SmallVec<[Hit<'a>; BATCH]>,
}

#[derive(Debug, Clone, Copy)]
struct Hit<'a> {
    key: &'a [u8],
    /// The place of its terms among those that are known.
    terms: usize,
    quantity: u64,
}

/// Terms that were asked for lately: clients have few, and to make them takes longer than to find them.
#[derive(Debug, Default)]
pub(super) struct Lately {
    all: SmallVec<[(Written, ThrottleParams); LATELY]>,
}

/// `max_burst`, `count` and `period`.
type Written = [i64; 3];

/// What is asked of one bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    written: Written,
    quantity: u64,
}

const BATCH: usize = 32;
const LATELY: usize = 4;

/// Reads what is asked.
pub(super) fn read(args: Args<'_>) -> Result<Asked, Refusal> {
    if !(5..=6).contains(&args.len()) {
        return Err(Refusal::arity("cl.throttle"));
    }
    let written = [number(args, 2)?, number(args, 3)?, number(args, 4)?];
    let quantity = if args.len() == 6 { number(args, 5)? } else { 1 };
    let quantity = u64::try_from(quantity).map_err(|_| {
        Refusal::invalid(format_args!("`quantity` must be 0 or more, got `{quantity}`"))
    })?;
    Ok(Asked { written, quantity })
}

fn number(args: Args<'_>, place: usize) -> Result<i64, Refusal> {
    const NAMES: [&str; 6] = ["", "key", "max_burst", "count", "period", "quantity"];

    let text = args.get(place).unwrap_or_default();
    small(text).or_else(|| whole(text)).ok_or_else(|| {
        let (name, got) = (NAMES[place], shown(text));
        Refusal::invalid(format_args!(
            "value is not an integer or out of range: `{name}` must be a whole number of 64 bits, got `{got}`"
        ))
    })
}

/// Most numbers are a few digits.
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

/// What is answered: limited, limit, remaining, retry_after, reset_after.
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

/// There is no room for another key. Clients of Redis know the word.
pub(super) fn no_room(no_room: NoRoom) -> Refusal {
    Refusal::service(format!("OOM {no_room} (SLUICEGATE_MAX_IDENTITIES)"))
}

/// Whole seconds, rounded up.
pub(super) fn seconds(span: Span) -> i64 {
    i64::try_from(span.as_micros().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

// === impl Batch ===

impl<'a> Batch<'a> {
    /// One of them.
    pub(super) fn one(key: &'a [u8], asked: Asked, terms: usize) -> Self {
        let mut batch = Self::default();
        batch.push(key, asked, terms);
        batch
    }

    #[inline]
    pub(super) fn push(&mut self, key: &'a [u8], asked: Asked, terms: usize) {
        self.hits.push(Hit { key, terms, quantity: asked.quantity });
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

    /// Takes from all buckets; `each` is told the place and the verdict.
    pub(super) fn decide(
        &self,
        throttle: &Throttle,
        lately: &Lately,
        now: Timestamp,
        mut each: impl FnMut(usize, Result<Verdict, NoRoom>),
    ) {
        let with_terms = |hit: &Hit<'a>| Some((hit.key, lately.get(hit)?, hit.quantity));
        let mut hits = self.hits.iter().filter_map(with_terms);
        // With one of them there is nothing to fetch ahead.
        if self.hits.len() == 1
            && let Some((key, terms, quantity)) = hits.next()
        {
            return each(0, throttle.hit(key, terms, quantity, now));
        }
        throttle.hit_batch(hits, now, each);
    }

    /// The terms of one of them.
    pub(super) fn terms<'b>(&self, place: usize, lately: &'b Lately) -> Option<&'b ThrottleParams> {
        lately.get(self.hits.get(place)?)
    }
}

// === impl Lately ===

impl Lately {
    /// The place of these terms, if they were asked for lately.
    #[inline]
    pub(super) fn place(&self, asked: &Asked) -> Option<usize> {
        self.all.iter().position(|(written, _)| *written == asked.written)
    }

    /// Makes terms, and keeps them; the others are forgotten when there is no room. Their place.
    pub(super) fn make(&mut self, asked: &Asked) -> Result<usize, Refusal> {
        let [max_burst, count, period] = asked.written;
        let terms = ThrottleParams::new(max_burst, count, period).map_err(Refusal::invalid)?;
        if self.all.len() == LATELY {
            self.all.clear();
        }
        self.all.push((asked.written, terms));
        Ok(self.all.len() - 1)
    }

    fn get(&self, hit: &Hit<'_>) -> Option<&ThrottleParams> {
        self.all.get(hit.terms).map(|(_, terms)| terms)
    }
}
