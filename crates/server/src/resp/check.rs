//! What is asked of the rules and answered at once: `SG.CHECK`, `SG.PEEK`, `SG.REFUND`, `SG.RESERVE`, `SG.COMMIT` and `SG.CANCEL`.

use http::HeaderMap;
use sluicegate::http::VerdictResponse;
use sluicegate::rules::plan::DomainStatus;
use sluicegate::{Checked, Outcome, Snapshot, Timestamp};

use super::answer::{Answer, Sixth};
use super::frame::Args;
use super::holding;
use super::once::{once, refund_proven};
use super::refusal::Refusal;
use super::request::{Ask, Said, Word};
use super::shared::Shared;
use super::throttle::seconds;
use crate::http::charged_all;
use crate::reservations::Holds;
use crate::rls::handler::Service;
use crate::rls::response::Code;
use crate::status::{policies, spokesman};
use crate::telemetry::{Door, Happening};
use crate::traces;

/// What is to be done with what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Check,
    Peek,
    Refund,
    Reserve,
    Commit,
    Cancel,
}

/// What there is to say of what nothing limits.
const UNTOLD: i64 = -1;

/// Reads what is asked, and has it judged.
pub(super) async fn judge(
    want: Want,
    args: Args<'_>,
    shared: &Shared,
    now: Timestamp,
    checked: &mut Checked,
) -> Result<Answer, Refusal> {
    let service = &shared.service;
    let mut span = service.begin_span(want.name(), &HeaderMap::new());
    let judged = judged(want, args, shared, now, checked, span.as_mut()).await;
    if let Some(mut span) = span {
        if let Err(refusal) = &judged {
            span.fail(&refusal.to_string());
        }
        span.end(service.engine().now());
    }
    judged
}

async fn judged(
    want: Want,
    args: Args<'_>,
    shared: &Shared,
    now: Timestamp,
    checked: &mut Checked,
    span: Option<&mut traces::Span>,
) -> Result<Answer, Refusal> {
    let service = &shared.service;
    if !service.health().has_rules() {
        return Err(Refusal::no_rules());
    }
    let endpoint = want.endpoint();
    if matches!(want, Want::Commit | Want::Cancel) {
        let words = if want == Want::Commit { 3 } else { 2 };
        let id = Said::read(args.behind(words), want.options())?.id;
        let settled = holding::settle(want, args, service, now, checked);
        return once(endpoint, id, args, service, now, settled).await;
    }
    let ask = Ask::read(args, want.options())?;
    let answer = asked(want, &ask, service, now, checked, span);
    if want == Want::Refund && !shared.may_refund() {
        return refund_proven(ask.said.id, args, service, now, answer).await;
    }
    once(endpoint, ask.said.id, args, service, now, answer).await
}

async fn asked(
    want: Want,
    ask: &Ask<'_>,
    service: &Service,
    now: Timestamp,
    checked: &mut Checked,
    span: Option<&mut traces::Span>,
) -> Result<Answer, Refusal> {
    let descriptors = ask.descriptors();
    let request = ask.request(&descriptors);
    let rules = service.engine().snapshot();
    let (counters, mut ticket) = (service.counters(), None);
    match want {
        Want::Check => counters.check(&rules, &request, now, checked).await?,
        Want::Peek => counters.peek(&rules, &request, now, checked).await?,
        Want::Reserve => {
            let (holds, ttl) = (service.holds(), ask.said.ttl());
            ticket = holds.reserve(counters, &rules, &request, ttl, now, checked).await?;
        }
        Want::Refund | Want::Commit | Want::Cancel => {
            counters.refund(&rules, &request, now, checked).await?;
        }
    }
    if checked.domain() == DomainStatus::Unknown {
        service.telemetry().record(Event::UnknownDomain);
    }
    let allowed = match want {
        Want::Check | Want::Reserve => service.code_of(&rules, checked) == Code::Ok,
        _ => service.would_allow(&rules, checked),
    };
    if let Some(span) = span {
        span.set("ratelimit.domain", ask.domain);
        let code = if allowed { Code::Ok } else { Code::OverLimit };
        service.tell_span(span, &rules, checked, code);
    }
    let sixth = match (want, ticket) {
        // Nothing is enforced, so that it goes; and nothing is held of it.
        (Want::Reserve, None) if allowed => {
            Sixth::Ticket(Some(Holds::reserve_nothing(&request)?.to_string()))
        }
        (Want::Reserve, ticket) => Sixth::Ticket(ticket.map(|ticket| ticket.to_string())),
        _ => Sixth::Nothing,
    };
    let is_refundable = want == Want::Check && charged_all(checked);
    Ok(Answer { numbers: numbers(allowed, checked, &rules, now), sixth, is_refundable })
}

/// The numbers of the limit that decided, as the headers of HTTP have them; −1 for what there is nothing to say of.
pub(super) fn numbers(
    allowed: bool,
    checked: &Checked,
    rules: &Snapshot<'_>,
    now: Timestamp,
) -> [i64; 5] {
    let limited = i64::from(!allowed);
    // Where nothing is enforced, whoever would have been denied speaks for the others.
    let would_deny = spokesman(false, &checked.statuses).filter(|_| !allowed || !checked.allowed);
    let Some(status) = would_deny.or_else(|| spokesman(true, &checked.statuses)) else {
        return [limited, UNTOLD, UNTOLD, UNTOLD, 0];
    };
    let retry_after = match status.verdict.outcome {
        // It was not now, so it is not in no time.
        Outcome::Deny { retry_after } if !allowed => seconds(retry_after).max(1),
        _ => UNTOLD,
    };
    let policies = policies(status.target, rules);
    let told = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
    match told.figures() {
        None => [limited, UNTOLD, UNTOLD, retry_after, 0],
        Some(figures) => {
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let reset_after = figures.reset_after.map_or(UNTOLD, seconds);
            let (limit, remaining) = (number(figures.limit), number(figures.remaining));
            [limited, limit, remaining, retry_after, reset_after]
        }
    }
}

impl Want {
    /// All of them, each at its place.
    pub(super) const ALL: [Self; 6] =
        [Self::Check, Self::Peek, Self::Refund, Self::Reserve, Self::Commit, Self::Cancel];

    const fn name(self) -> &'static str {
        match self {
            Self::Check => "SG.CHECK",
            Self::Peek => "SG.PEEK",
            Self::Refund => "SG.REFUND",
            Self::Reserve => "SG.RESERVE",
            Self::Commit => "SG.COMMIT",
            Self::Cancel => "SG.CANCEL",
        }
    }

    pub(super) const fn endpoint(self) -> Endpoint {
        match self {
            Self::Check => Endpoint::RespCheck,
            Self::Peek => Endpoint::RespPeek,
            Self::Refund => Endpoint::RespRefund,
            Self::Reserve => Endpoint::RespReserve,
            Self::Commit => Endpoint::RespCommit,
            Self::Cancel => Endpoint::RespCancel,
        }
    }

    const fn options(self) -> &'static [Word] {
        match self {
            Self::Check | Self::Refund => &[Word::Cost, Word::Id],
            Self::Peek => &[Word::Cost],
            Self::Reserve => &[Word::Cost, Word::Ttl, Word::Id],
            Self::Commit | Self::Cancel => &[Word::Id],
        }
    }
}
