//! What is held for later: settling a reservation, and waiting for a turn.

use http::HeaderMap;
use sluicegate::rules::plan::DomainStatus;
use sluicegate::{Checked, HoldError, Refusal as CoreRefusal, Timestamp};
use sluicegate_redis::StoreError;

use super::answer::{Answer, Sixth};
use super::check::{Want, numbers};
use super::frame::{Args, Owned};
use super::once::{before, begin, keep};
use super::refusal::{Refusal, shown};
use super::request::{Ask, Word, cost};
use crate::reservations::{NotHeld, Ticket};
use crate::rls::handler::Service;
use crate::rls::response::Code;
use crate::telemetry::{Door, Happening};

const WAIT_OPTIONS: &[Word] = &[Word::Cost, Word::Timeout, Word::Id];

/// `SG.COMMIT token n` and `SG.CANCEL token`.
pub(super) async fn settle(
    want: Want,
    args: Args<'_>,
    service: &Service,
    now: Timestamp,
    checked: &mut Checked,
) -> Result<Answer, Refusal> {
    let word = args.get(1).unwrap_or_default();
    let ticket = str::from_utf8(word).ok().and_then(|word| Ticket::read(word).ok());
    let ticket = ticket.ok_or_else(|| {
        let got = shown(word);
        Refusal::invalid(format_args!(
            "`{got}` is no token; send what SG.RESERVE or SG.WAIT answered, all of it"
        ))
    })?;
    let rules = service.engine().snapshot();
    let (holds, counters) = (service.holds(), service.counters());
    let returned = match want {
        Want::Commit => {
            let used = cost("what was used", args.get(2).unwrap_or_default())?;
            holds.commit(counters, &rules, &ticket, used, now, checked).await?
        }
        _ => holds.cancel(counters, &rules, &ticket, now, checked).await?,
    };
    let numbers = numbers(true, checked, &rules, now);
    Ok(Answer { numbers, sixth: Sixth::Returned(returned), is_refundable: false })
}

/// `SG.WAIT`: the answer comes with the turn, or at once if that would take too long. Whoever drops it gives the turn back.
pub(super) async fn wait(command: Owned, service: Service) -> Result<Answer, Refusal> {
    let begun = service.engine().now();
    let span = service.begin_span("SG.WAIT", &HeaderMap::new());
    let waited = waited(command.args(), &service, begun).await;
    let now = service.engine().now();
    if let Some(mut span) = span {
        if let Err(refusal) = &waited {
            span.fail(&refusal.to_string());
        }
        span.end(now);
    }
    match &waited {
        Ok(_) => service.telemetry().record_response(Endpoint::RespWait, now.since(begun)),
        Err(refusal) => service.telemetry().record_failure(Endpoint::RespWait, refusal.fault),
    }
    waited
}

async fn waited(args: Args<'_>, service: &Service, begun: Timestamp) -> Result<Answer, Refusal> {
    if !service.health().has_rules() {
        return Err(Refusal::no_rules());
    }
    let ask = Ask::read(args, WAIT_OPTIONS)?;
    let _under_way = begin(Endpoint::RespWait, ask.said.id, service)?;
    if let Some(answer) = before(Endpoint::RespWait, ask.said.id, args, service, begun)? {
        return Ok(answer);
    }
    let (engine, mut health) = (service.engine(), service.health().changes());
    let descriptors = ask.descriptors();
    let request = ask.request(&descriptors);
    let waiting = service.holds().wait(service.counters(), &request, ask.said.timeout());
    let (waited, ticket) = tokio::select! {
        waited = waiting => waited?,
        // Another may have the time that we have not.
        _ = health.wait_for(|state| state.draining) => return Err(Refusal::draining()),
    };
    let (rules, now) = (engine.snapshot(), engine.now());
    let checked = &waited.checked;
    if checked.domain() == DomainStatus::Unknown {
        service.telemetry().record(Event::UnknownDomain);
    }
    let allowed = service.code_of(&rules, checked) == Code::Ok;
    let sixth = Sixth::Ticket(ticket.map(|ticket| ticket.to_string()));
    let numbers = numbers(allowed, checked, &rules, now);
    let answer = Answer { numbers, sixth, is_refundable: false };
    keep(Endpoint::RespWait, ask.said.id, args, service, now, &answer);
    Ok(answer)
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::store(error)
    }
}

impl From<NotHeld> for Refusal {
    fn from(not: NotHeld) -> Self {
        match &not {
            NotHeld::Hold(HoldError::Store(_)) => Self::store(not),
            NotHeld::Hold(HoldError::Unknown) => Self::service(format!("NORESERVATION {not}")),
            NotHeld::TooManyReservations { .. }
            | NotHeld::TooManyWait { .. }
            | NotHeld::Hold(HoldError::Refused(CoreRefusal::TooManyHolds { .. })) => {
                Self::overload(format!("TRYAGAIN {not}"))
            }
            _ => Self::invalid(not),
        }
    }
}
