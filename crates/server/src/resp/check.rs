//! `SG.CHECK`, `SG.PEEK` and `SG.REFUND`: what the rules say.

use http::HeaderMap;
use sluicegate::http::Told;
use sluicegate::rules::plan::DomainIs;
use sluicegate::{Checked, Outcome, Snapshot, Timestamp};

use super::ask::Ask;
use super::frame::Args;
use super::refusal::Refusal;
use super::throttle::seconds;
use crate::http::told::{policies, spokesman};
use crate::rls::answer::Code;
use crate::rls::service::Service;
use crate::telemetry::{Door, Happening};

/// What is to be done with what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Check,
    Peek,
    Refund,
}

/// What there is to say of what nothing limits.
const UNTOLD: i64 = -1;

/// Reads what is asked, and has it judged: limited, limit, remaining, retry_after, reset_after.
pub(super) fn judge(
    want: Want,
    args: Args<'_>,
    service: &Service,
    now: Timestamp,
    checked: &mut Checked,
) -> Result<[i64; 5], Refusal> {
    let mut span = service.begin_span(want.name(), &HeaderMap::new());
    let judged = judged(want, args, service, now, checked, span.as_mut());
    if let Some(mut span) = span {
        if let Err(refusal) = &judged {
            span.fail(refusal.to_string());
        }
        span.end(service.engine().now());
    }
    judged
}

fn judged(
    want: Want,
    args: Args<'_>,
    service: &Service,
    now: Timestamp,
    checked: &mut Checked,
    span: Option<&mut crate::traces::Span>,
) -> Result<[i64; 5], Refusal> {
    if !service.health().has_rules() {
        return Err(Refusal::no_rules());
    }
    let ask = Ask::read(args)?;
    let rules = service.engine().snapshot();
    ask.ask(|request| match want {
        Want::Check => rules.check(request, now, checked),
        Want::Peek => rules.peek(request, now, checked),
        Want::Refund => rules.refund(request, now, checked),
    });
    if checked.domain() == DomainIs::Unknown {
        service.telemetry().happened(Happening::UnknownDomain);
    }
    let allowed = match want {
        Want::Check => service.code_of(&rules, checked) == Code::Ok,
        Want::Peek | Want::Refund => service.would_allow(&rules, checked),
    };
    if let Some(span) = span {
        span.set("ratelimit.domain", ask.domain);
        let code = if allowed { Code::Ok } else { Code::OverLimit };
        service.tell_span(span, &rules, checked, code);
    }
    Ok(numbers(allowed, checked, &rules, now))
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
    let policies = policies(status.under, rules);
    let told = Told { verdict: &status.verdict, policies: &policies, now };
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
    const fn name(self) -> &'static str {
        match self {
            Self::Check => "SG.CHECK",
            Self::Peek => "SG.PEEK",
            Self::Refund => "SG.REFUND",
        }
    }

    pub(super) const fn door(self) -> Door {
        match self {
            Self::Check => Door::RespCheck,
            Self::Peek => Door::RespPeek,
            Self::Refund => Door::RespRefund,
        }
    }
}
