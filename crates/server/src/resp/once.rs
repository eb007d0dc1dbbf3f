//! Whoever asks again with the same `ID` gets the answer that was given before.
//!
//! What was asked is all words of the command. Only what changed something is kept: who is limited may ask again.

use sluicegate::Timestamp;

use super::answer::Answer;
use super::frame::Args;
use super::refusal::Refusal;
use crate::counters::at_once;
use crate::reservations::{Before, Kept, UnderWay};
use crate::rls::handler::Service;
use crate::rls::options::RefundPolicy;
use crate::telemetry::Door;

/// The answer that was given before under this id; or else this one.
#[inline]
pub(super) async fn once(
    endpoint: Endpoint,
    id: Option<&[u8]>,
    args: Args<'_>,
    service: &Service,
    now: Timestamp,
    answer: impl Future<Output = Result<Answer, Refusal>>,
) -> Result<Answer, Refusal> {
    let Some(id) = id else { return answer.await };
    if !service.is_alone() {
        let _under_way = begin(endpoint, Some(id), service)?;
        if let Some(answer) = before(endpoint, Some(id), args, service, now)? {
            return Ok(answer);
        }
        let answer = answer.await?;
        keep(endpoint, Some(id), args, service, now, &answer);
        return Ok(answer);
    }
    // It waits for nothing, so whoever else has the same id can wait for it.
    let answer = || at_once(answer).unwrap_or_else(|| Err(still_waits()));
    let mut refused = None;
    let (key, asked) = (key(endpoint, id), asked(args));
    let (kept, _) = service.holds().answers().answer(&key, &asked, now, || match answer() {
        Ok(answer) => {
            let kept = answer.to_kept();
            let bytes = (!answer.is_limited()).then(|| kept.bytes());
            (kept, bytes)
        }
        Err(refusal) => {
            refused = Some(refusal);
            (Kept::default(), None)
        }
    });
    match (kept, refused) {
        (_, Some(refusal)) => Err(refusal),
        (Ok(kept), None) => Answer::of_kept(&kept).ok_or_else(other),
        (Err(Before::Other), None) => Err(other()),
    }
}

/// Refunds a charged check with the same `ID` and arguments, once; see `http/refund.rs`.
pub(super) async fn refund_proven(
    id: Option<&[u8]>,
    args: Args<'_>,
    service: &Service,
    now: Timestamp,
    answer: impl Future<Output = Result<Answer, Refusal>>,
) -> Result<Answer, Refusal> {
    let endpoint = Endpoint::RespRefund;
    let proven = id.filter(|_| service.options().refunds == RefundPolicy::Proven);
    let check = proven.ok_or_else(Refusal::unproven)?;
    let _under_way = begin(endpoint, id, service)?;
    if let Some(answer) = before(endpoint, id, args, service, now)? {
        return Ok(answer);
    }
    let key = key(Endpoint::RespCheck, check);
    let is_refundable = |kept: &Kept| kept.is_refundable;
    let charged = service.holds().answers().take(&key, &asked(args), now, is_refundable);
    charged.ok_or_else(Refusal::unproven)?;
    let answer = answer.await?;
    keep(endpoint, id, args, service, now, &answer);
    Ok(answer)
}

/// The same for whoever cannot answer at once: nobody else asks under this id meanwhile.
pub(super) fn begin<'a>(
    endpoint: Endpoint,
    id: Option<&[u8]>,
    service: &'a Service,
) -> Result<Option<UnderWay<'a, Kept>>, Refusal> {
    let Some(id) = id else { return Ok(None) };
    service.holds().answers().begin(&key(endpoint, id)).map(Some).ok_or_else(still_waits)
}

/// What was answered before.
pub(super) fn before(
    endpoint: Endpoint,
    id: Option<&[u8]>,
    args: Args<'_>,
    service: &Service,
    now: Timestamp,
) -> Result<Option<Answer>, Refusal> {
    let Some(id) = id else { return Ok(None) };
    match service.holds().answers().before(&key(endpoint, id), &asked(args), now) {
        Ok(kept) => Ok(kept.as_ref().and_then(Answer::of_kept)),
        Err(Before::Other) => Err(other()),
    }
}

/// And what it is answered now.
pub(super) fn keep(
    endpoint: Endpoint,
    id: Option<&[u8]>,
    args: Args<'_>,
    service: &Service,
    now: Timestamp,
    answer: &Answer,
) {
    if let Some(id) = id.filter(|_| !answer.is_limited()) {
        let kept = answer.to_kept();
        let bytes = kept.bytes();
        service.holds().answers().put(&key(endpoint, id), &asked(args), kept, bytes, now);
    }
}

/// The id, apart from the same one at another endpoint.
fn key(endpoint: Endpoint, id: &[u8]) -> Vec<u8> {
    [&[endpoint as u8], id].concat()
}

/// All words but the first, which may be written in letters of any size; each with its length, so that none is taken for two.
fn asked(args: Args<'_>) -> Vec<u8> {
    let words = args.behind(1).iter();
    words
        .flat_map(|word| word.len().to_le_bytes().into_iter().chain(word.iter().copied()))
        .collect()
}

fn still_waits() -> Refusal {
    Refusal::invalid(
        "a command with this ID is still waiting; ask again when it is answered, or close its connection",
    )
}

fn other() -> Refusal {
    Refusal::invalid("something else was asked under this ID; use another one for another command")
}
