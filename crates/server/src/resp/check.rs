//! Rule commands: `SG.CHECK`, `SG.PEEK`, `SG.REFUND`, `SG.RESERVE`, `SG.COMMIT`, `SG.RENEW`,
//! `SG.CANCEL` and `SG.WAIT`.
//!
//! A command with an `ID` can be repeated, as a request with an idempotency key.

use std::net::IpAddr;

use http::HeaderMap;
use sluicegate::backend::Call;
use sluicegate::backend::StoreError;
use sluicegate::http::VerdictResponse;
use sluicegate::{Checked, HoldError, Operation, Outcome, Refusal, Returned, Snapshot, Timestamp};

use super::frame::{Args, OwnedArgs};
use super::reply::{Reply, ReplyExtra, RespError, ReturnedLimit, shown};
use super::request::{CommandOptions, OptionName, RuleRequest, cost, ttl};
use super::throttle::seconds;
use super::{RespServer, operator};
use crate::app::App;
use crate::idempotency::{IdempotencyError, KeyedRequest};
use crate::reservations::{ReservationError, Reservations, Ticket, WAIT_TIMEOUT};
use crate::rls::RefundPolicy;
use crate::rls::response::Code;
use crate::status::{charged_all, deciding_status, policies};
use crate::telemetry::Endpoint;
use crate::traces::Span;
use crate::unmatched::UnmatchedError;

/// A rule command that does not wait for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleCommand {
    Check,
    Peek,
    Refund,
    Reserve,
    Commit,
    Renew,
    Cancel,
    Inspect,
    Explain,
}

/// Number of a reply that has none.
const NONE: i64 = -1;

const WAIT_OPTIONS: &[OptionName] =
    &[OptionName::Cost, OptionName::Hits, OptionName::Timeout, OptionName::Id];

/// Executes a rule command.
pub(super) async fn execute(
    command: RuleCommand,
    args: Args<'_>,
    server: &RespServer,
    peer: Option<IpAddr>,
    now: Timestamp,
    checked: &mut Checked,
) -> Result<Reply, RespError> {
    let app = &server.app;
    let mut span = app.begin_span(command.name(), &HeaderMap::new());
    let result = match command {
        RuleCommand::Inspect | RuleCommand::Explain => operate(command, args, server, peer).await,
        _ => decide(command, args, server, now, checked, span.as_mut()).await,
    };
    end_span(span, &result, app);
    result
}

fn end_span(span: Option<Span>, result: &Result<Reply, RespError>, app: &App) {
    if let Some(mut span) = span {
        if let Err(error) = result {
            span.fail(&error.to_string());
        }
        span.end(app.engine().now());
    }
}

async fn operate(
    command: RuleCommand,
    args: Args<'_>,
    server: &RespServer,
    peer: Option<IpAddr>,
) -> Result<Reply, RespError> {
    require_rules(&server.app)?;
    let request = RuleRequest::parse(args, command.options())?;
    // Rare, and a large future.
    Box::pin(operator::execute(command, &request, server, peer)).await
}

async fn decide(
    command: RuleCommand,
    args: Args<'_>,
    server: &RespServer,
    now: Timestamp,
    checked: &mut Checked,
    span: Option<&mut Span>,
) -> Result<Reply, RespError> {
    let app = &server.app;
    require_rules(app)?;
    let endpoint = command.endpoint();
    if matches!(command, RuleCommand::Commit | RuleCommand::Renew | RuleCommand::Cancel) {
        let positional = if command == RuleCommand::Cancel { 2 } else { 3 };
        let options = CommandOptions::parse(args.skip(positional), command.options())?;
        let settled = settle(command, args, &options, app, now, checked);
        return Ok(app.idempotent(keyed(endpoint, options.id, args), now, settled).await?.0);
    }
    let request = RuleRequest::parse(args, command.options())?;
    let id = request.options.id;
    if command == RuleCommand::Refund && app.engine().snapshot().has_slots() {
        refuse_slots(&request, app)?;
    }
    let decided = apply(command, &request, app, now, checked, span);
    if command == RuleCommand::Refund && !server.may_refund() {
        return refund_proven(&request.options, args, app, now, decided).await;
    }
    Ok(app.idempotent(keyed(endpoint, id, args), now, decided).await?.0)
}

/// Refuses to refund slots: they are released.
fn refuse_slots(rule_request: &RuleRequest<'_>, app: &App) -> Result<(), RespError> {
    let descriptors = rule_request.descriptors();
    let slot = app.engine().snapshot().slot_descriptor(&rule_request.request(&descriptors));
    slot.map_or(Ok(()), |descriptor| Err(RespError::slot_refund(descriptor)))
}

/// Applies a command to the counters.
async fn apply(
    command: RuleCommand,
    rule_request: &RuleRequest<'_>,
    app: &App,
    now: Timestamp,
    checked: &mut Checked,
    span: Option<&mut Span>,
) -> Result<Reply, RespError> {
    let descriptors = rule_request.descriptors();
    let request = rule_request.request(&descriptors);
    let rules = app.engine().snapshot();
    let (engine, call, mut ticket) = (app.engine(), Call::new(&rules, &request, now), None);
    let takes_slot = command == RuleCommand::Check && rules.slot_descriptor(&request).is_some();
    match command {
        RuleCommand::Check if takes_slot => {
            ticket = Reservations::check(engine, call, checked).await?;
        }
        RuleCommand::Check => engine.apply(Operation::Hit, call, checked).await?,
        RuleCommand::Peek => engine.apply(Operation::Peek, call, checked).await?,
        RuleCommand::Reserve => {
            let ttl = rule_request.options.ttl();
            ticket = app.reservations().reserve(engine, call, ttl, checked).await?;
        }
        _ => engine.apply(Operation::Refund, call, checked).await?,
    }
    app.record_unmatched(&rules, &request, checked)?;
    let allowed = match command {
        RuleCommand::Check | RuleCommand::Reserve => {
            app.code_of(&rules, &request, checked) == Code::Ok
        }
        _ => app.would_allow(&rules, checked),
    };
    if let Some(span) = span {
        span.set("ratelimit.domain", rule_request.domain);
        let code = if allowed { Code::Ok } else { Code::OverLimit };
        app.record_in_span(span, &rules, checked, code);
    }
    let extra = match (command, ticket) {
        // Shadow mode: admitted, with nothing to settle.
        (RuleCommand::Reserve, None) if allowed => {
            ReplyExtra::Ticket(Some(Reservations::reserve_nothing(&request)?.to_string()))
        }
        (RuleCommand::Reserve, ticket) => {
            ReplyExtra::Ticket(ticket.map(|ticket| ticket.to_string()))
        }
        (RuleCommand::Refund, _) if rule_request.options.returned => {
            ReplyExtra::Returned(None, returned_limits(checked, &rules))
        }
        // Five numbers as ever, unless there may be something to release.
        (_, ticket) if takes_slot => ReplyExtra::Ticket(ticket.map(|ticket| ticket.to_string())),
        _ => ReplyExtra::None,
    };
    // A refund of the same request goes to the rule itself.
    let is_pooled = checked.statuses.iter().any(|status| rules.pool(status).is_some());
    let is_refundable = command == RuleCommand::Check && charged_all(checked) && !is_pooled;
    Ok(Reply { numbers: numbers(allowed, checked, &rules, now), extra, is_refundable })
}

/// `SG.COMMIT token n [PARTIAL]`, `SG.RENEW token ms` and `SG.CANCEL token`.
async fn settle(
    command: RuleCommand,
    args: Args<'_>,
    options: &CommandOptions<'_>,
    app: &App,
    now: Timestamp,
    checked: &mut Checked,
) -> Result<Reply, RespError> {
    let token = args.get(1).unwrap_or_default();
    let ticket = str::from_utf8(token).ok().and_then(|token| Ticket::decode(token).ok());
    let ticket = ticket.ok_or_else(|| {
        let got = shown(token);
        RespError::service(format!(
            "NORESERVATION `{got}` is not a token; send the whole token that SG.RESERVE or SG.WAIT returned"
        ))
    })?;
    let rules = app.engine().snapshot();
    let (reservations, engine) = (app.reservations(), app.engine());
    let (amount, rules, ticket) = (args.get(2).unwrap_or_default(), &rules, &ticket);
    let hits = match command {
        RuleCommand::Renew => {
            let ttl = ttl(amount)?;
            let left = reservations.renew(engine, rules, ticket, ttl, now, checked).await?;
            let extra = ReplyExtra::Millis(left.as_micros() / 1_000);
            return Ok(Reply { extra, ..Reply::from([0; 5]) });
        }
        RuleCommand::Commit => {
            let used = cost("what was used", amount)?;
            match options.partial {
                true => reservations.commit_part(engine, rules, ticket, used, now, checked).await?,
                false => {
                    reservations.settle(engine, rules, ticket, Some(used), now, checked).await?
                }
            }
        }
        _ => reservations.settle(engine, rules, ticket, None, now, checked).await?,
    };
    let numbers = numbers(true, checked, rules, now);
    let extra = match options.returned {
        true => ReplyExtra::Returned(Some(hits), returned_limits(checked, rules)),
        false => ReplyExtra::Hits(hits),
    };
    Ok(Reply { numbers, extra, is_refundable: false })
}

/// What each limit got back.
fn returned_limits(checked: &Checked, rules: &Snapshot<'_>) -> Vec<ReturnedLimit> {
    let named = |one: &Returned| {
        let status = checked.statuses.get(one.descriptor)?;
        let limit = policies(status.target, rules).get(one.limit)?.name.clone();
        let rule = status.rule().map(|no| rules.rules().id(no));
        Some(ReturnedLimit { descriptor: one.descriptor + 1, rule, limit, hits: one.hits })
    };
    checked.returned.iter().filter_map(named).collect()
}

/// Whether an `SG.RESERVE` may wait for its turn.
pub(super) fn may_wait(args: Args<'_>) -> bool {
    args.skip(2).iter().any(|word| word.eq_ignore_ascii_case(b"TIMEOUT"))
}

/// `SG.WAIT`, and `SG.RESERVE` with a `TIMEOUT`: replies when the request is admitted, or at once
/// if that takes too long. Dropping the future gives the turn up.
pub(super) async fn wait(command: OwnedArgs, app: App, reserves: bool) -> Result<Reply, RespError> {
    let begun = app.engine().now();
    let (name, endpoint) = match reserves {
        true => (RuleCommand::Reserve.name(), Endpoint::RespReserve),
        false => ("SG.WAIT", Endpoint::RespWait),
    };
    let span = app.begin_span(name, &HeaderMap::new());
    let result = wait_for_turn(command.args(), &app, begun, reserves).await;
    end_span(span, &result, &app);
    app.record_call(endpoint, begun, result.as_ref().err().map(|error| error.fault));
    result
}

async fn wait_for_turn(
    args: Args<'_>,
    app: &App,
    begun: Timestamp,
    reserves: bool,
) -> Result<Reply, RespError> {
    require_rules(app)?;
    let (options, endpoint) = match reserves {
        true => (RuleCommand::Reserve.options(), Endpoint::RespReserve),
        false => (WAIT_OPTIONS, Endpoint::RespWait),
    };
    let rule_request = RuleRequest::parse(args, options)?;
    let ttl = reserves.then(|| rule_request.options.ttl());
    let admitted = async {
        let (engine, mut health) = (app.engine(), app.health().changes());
        let descriptors = rule_request.descriptors();
        let request = rule_request.request(&descriptors);
        // `ID timeout` is no timeout.
        let default = if reserves { sluicegate::Span::ZERO } else { WAIT_TIMEOUT };
        let timeout = rule_request.options.timeout().unwrap_or(default);
        let reservations = app.reservations();
        let turn = async {
            match ttl {
                None => reservations.wait(engine, &request, timeout).await,
                Some(ttl) => reservations.reserve_waiting(engine, &request, ttl, timeout).await,
            }
        };
        let (waited, ticket) = tokio::select! {
            waited = turn => waited?,
            // Another node may have the time.
            _ = health.wait_for(|state| state.draining) => return Err(RespError::draining()),
        };
        let (rules, now) = (waited.rules, waited.decided_at);
        let checked = &waited.checked;
        app.record_unmatched(&rules, &request, checked)?;
        let allowed = app.code_of(&rules, &request, checked) == Code::Ok;
        let ticket = match ticket {
            // Shadow mode: admitted, with nothing to settle.
            None if allowed && reserves => Some(Reservations::reserve_nothing(&request)?),
            ticket => ticket,
        };
        let extra = ReplyExtra::Ticket(ticket.map(|ticket| ticket.to_string()));
        let numbers = numbers(allowed, checked, &rules, now);
        Ok(Reply { numbers, extra, is_refundable: false })
    };
    let keyed = keyed(endpoint, rule_request.options.id, args);
    Ok(app.idempotent_later(keyed, begun, admitted).await?.0)
}

/// Refunds a charged check with the same `ID` and arguments (beside `RETURNED`), once; see
/// `http/operator.rs`.
async fn refund_proven(
    options: &CommandOptions<'_>,
    args: Args<'_>,
    app: &App,
    now: Timestamp,
    refunded: impl Future<Output = Result<Reply, RespError>>,
) -> Result<Reply, RespError> {
    let id = options.id.filter(|_| app.options().refunds == RefundPolicy::Proven);
    let is_of_check = |arg: &&[u8]| !(options.returned && OptionName::Returned.is(arg));
    let of_check: Vec<&[u8]> = args.skip(1).iter().filter(is_of_check).collect();
    let check = keyed_by(Endpoint::RespCheck, id, of_check.into_iter());
    let check = check.ok_or_else(RespError::unproven)?;
    let refund = async {
        if app.take_charge(&check, now).is_none() {
            return Err(RespError::unproven());
        }
        refunded.await
    };
    let keyed = keyed(Endpoint::RespRefund, id, args);
    Ok(app.idempotent_later(keyed, now, refund).await?.0)
}

/// A command under its `ID`. The request is all arguments, each with its length, but not the name,
/// which may be in any case.
fn keyed(endpoint: Endpoint, id: Option<&[u8]>, args: Args<'_>) -> Option<KeyedRequest<'static>> {
    keyed_by(endpoint, id, args.skip(1).iter())
}

fn keyed_by<'a>(
    endpoint: Endpoint,
    id: Option<&[u8]>,
    args: impl Iterator<Item = &'a [u8]>,
) -> Option<KeyedRequest<'static>> {
    let with_length = |arg: &[u8]| [&arg.len().to_le_bytes(), arg].concat();
    id.map(|id| KeyedRequest::new(endpoint, id, args.flat_map(with_length).collect::<Vec<u8>>()))
}

fn require_rules(app: &App) -> Result<(), RespError> {
    if app.health().has_rules() { Ok(()) } else { Err(RespError::no_rules()) }
}

/// The numbers of the deciding limit, as in the headers of HTTP; −1 for none.
fn numbers(allowed: bool, checked: &Checked, rules: &Snapshot<'_>, now: Timestamp) -> [i64; 5] {
    let limited = i64::from(!allowed);
    let Some(status) = deciding_status(!allowed, checked) else {
        return [limited, NONE, NONE, NONE, 0];
    };
    let retry_after = match status.verdict.outcome {
        // A denied request cannot pass within the same second.
        Outcome::Deny { retry_after } if !allowed => seconds(retry_after).max(1),
        _ => NONE,
    };
    let policies = policies(status.target, rules);
    let limits = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
    match limits.figures() {
        None => [limited, NONE, NONE, retry_after, 0],
        Some(figures) => {
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let reset_after = figures.reset_after.map_or(NONE, seconds);
            let (limit, remaining) = (number(figures.limit), number(figures.remaining));
            [limited, limit, remaining, retry_after, reset_after]
        }
    }
}

impl RuleCommand {
    /// All commands, by their discriminant.
    pub(super) const ALL: [Self; 9] = [
        Self::Check,
        Self::Peek,
        Self::Refund,
        Self::Reserve,
        Self::Commit,
        Self::Renew,
        Self::Cancel,
        Self::Inspect,
        Self::Explain,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Check => "SG.CHECK",
            Self::Peek => "SG.PEEK",
            Self::Refund => "SG.REFUND",
            Self::Reserve => "SG.RESERVE",
            Self::Commit => "SG.COMMIT",
            Self::Renew => "SG.RENEW",
            Self::Cancel => "SG.CANCEL",
            Self::Inspect => "SG.INSPECT",
            Self::Explain => "SG.EXPLAIN",
        }
    }

    pub(super) const fn endpoint(self) -> Endpoint {
        match self {
            Self::Check => Endpoint::RespCheck,
            Self::Peek => Endpoint::RespPeek,
            Self::Refund => Endpoint::RespRefund,
            Self::Reserve => Endpoint::RespReserve,
            Self::Commit => Endpoint::RespCommit,
            Self::Renew => Endpoint::RespRenew,
            Self::Cancel => Endpoint::RespCancel,
            Self::Inspect => Endpoint::RespInspect,
            Self::Explain => Endpoint::RespExplain,
        }
    }

    const fn options(self) -> &'static [OptionName] {
        match self {
            Self::Check => &[OptionName::Cost, OptionName::Hits, OptionName::Id],
            Self::Refund => {
                &[OptionName::Cost, OptionName::Hits, OptionName::Returned, OptionName::Id]
            }
            Self::Peek => &[OptionName::Cost, OptionName::Hits],
            Self::Reserve => &[
                OptionName::Cost,
                OptionName::Hits,
                OptionName::Ttl,
                OptionName::Timeout,
                OptionName::Id,
            ],
            Self::Commit => &[OptionName::Partial, OptionName::Returned, OptionName::Id],
            Self::Renew => &[],
            Self::Cancel => &[OptionName::Returned, OptionName::Id],
            Self::Inspect | Self::Explain => {
                &[OptionName::Cost, OptionName::Hits, OptionName::Token]
            }
        }
    }
}

// === errors ===

impl From<StoreError> for RespError {
    fn from(error: StoreError) -> Self {
        Self::store(error)
    }
}

impl From<UnmatchedError> for RespError {
    fn from(error: UnmatchedError) -> Self {
        Self::invalid(error)
    }
}

impl From<ReservationError> for RespError {
    fn from(error: ReservationError) -> Self {
        match &error {
            ReservationError::Hold(HoldError::Store(_)) => Self::store(error),
            _ if error.gone_reason().is_some() => Self::service(format!("SETTLED {error}")),
            ReservationError::TooManyReservations { .. }
            | ReservationError::TooManyWaiting { .. }
            | ReservationError::Hold(HoldError::Refused(Refusal::TooManyHolds { .. })) => {
                Self::overload(format!("TRYAGAIN {error}"))
            }
            _ => Self::invalid(error),
        }
    }
}

impl From<IdempotencyError> for RespError {
    fn from(error: IdempotencyError) -> Self {
        Self::invalid(match error {
            IdempotencyError::KeyReused => "this ID was used for another command; use a new one",
            IdempotencyError::InProgress => {
                "a command with this ID is in progress; retry when it is answered, or close its connection"
            }
        })
    }
}
