//! Writer of JSON results, straight into the response body.
//!
//! ```text
//!   result   {"allowed": true, "statuses": [status, …]}
//!            {"error": {…}, "allowed": false, "statuses": [status, …]}
//!   status   {"allowed": true, "rule": "shop/user", "pool": "credits", "limit": "burst",
//!             "quota": 9, "remaining": 8, "reset_after_ms": 200}
//! ```
//!
//! Fields without a value are omitted: `pool` unless it is a further one, `limit` and numbers
//! without a limit, `retry_after_ms` unless denied, `estimated` except beside the wait for a slot,
//! `level` and `over` where the shared store decided. A descriptor without a rule has the rule
//! `null` and a reason.

use sluicegate::rules::plan::{List, Target};
use sluicegate::rules::set::RuleNo;
use sluicegate::{
    Checked, Inspected, LimitState, Outcome, Policy, Promise, Snapshot, Span, Status, Verdict,
};

use crate::status::policies;

/// Follows the wait for a slot of a concurrency limit.
const ESTIMATED: &str = r#","estimated":true"#;

/// Appends `"allowed":…,"statuses":[…]`.
pub(super) fn write_checked(
    allowed: bool,
    checked: &Checked,
    limits: &[Inspected],
    rules: &Snapshot<'_>,
    out: &mut Vec<u8>,
) {
    put(out, if allowed { r#""allowed":true,"# } else { r#""allowed":false,"# });
    write_statuses(checked, limits, rules, out);
}

/// Appends `"statuses":[…]`, with the state of every limit where that was requested.
pub(super) fn write_statuses(
    checked: &Checked,
    limits: &[Inspected],
    rules: &Snapshot<'_>,
    out: &mut Vec<u8>,
) {
    put(out, r#""statuses":["#);
    let (listed, has_returned) = (checked.listed(), !checked.returned.is_empty());
    for (index, status) in checked.statuses.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let list = listed.filter(|listed| listed.at.0 == index).map(|listed| listed.list);
        write_status(status, list, rules, out);
        if let Some(inspected) = limits.get(index) {
            put(out, ",");
            write_limits(inspected, false, out);
        }
        if has_returned {
            write_returned(index, checked, rules, out);
        }
        out.push(b'}');
    }
    out.push(b']');
}

/// Appends what each limit of a descriptor got back.
fn write_returned(descriptor: usize, checked: &Checked, rules: &Snapshot<'_>, out: &mut Vec<u8>) {
    let Some(status) = checked.statuses.get(descriptor) else { return };
    let policies = policies(status.target, rules);
    put(out, r#","returned":["#);
    let of_descriptor = checked.returned.iter().filter(|one| one.descriptor == descriptor);
    let limits = of_descriptor.filter_map(|one| Some((policies.get(one.limit)?, one.hits)));
    for (index, (policy, hits)) in limits.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text(out, r#"{"limit":"#, &policy.name);
        number(out, r#","hits":"#, hits);
        out.push(b'}');
    }
    out.push(b']');
}

/// Appends a status, except its closing brace.
fn write_status(status: &Status, list: Option<List>, rules: &Snapshot<'_>, out: &mut Vec<u8>) {
    let verdict = &status.verdict;
    put(out, if verdict.is_allowed() { r#"{"allowed":true"# } else { r#"{"allowed":false"# });
    match list {
        Some(List::Allow) => put(out, r#","listed":"allow""#),
        Some(List::Deny) => put(out, r#","listed":"deny""#),
        None => {}
    }
    write_target(status.target, rules, out);
    write_pool(status.target, rules, out);
    let policies = policies(status.target, rules);
    let decider = verdict.decided_by.and_then(|index| policies.get(index));
    if let Some(policy) = decider {
        text(out, r#","limit":"#, &policy.name);
        write_quota(policy, out);
    }
    if let Some(left) = verdict.remaining {
        signed(out, r#","remaining":"#, left);
        millis(out, r#","reset_after_ms":"#, verdict.reset_after);
    }
    write_outcome(verdict.outcome, out);
    if verdict.retry_after().is_some() && decider.is_some_and(Policy::has_slots) {
        put(out, ESTIMATED);
    }
    write_flags(verdict, out);
    write_promise(status.promise, out);
}

/// The consistency level, unless it is strict, and the hits by which the limit may be exceeded.
fn write_promise(promise: Promise, out: &mut Vec<u8>) {
    if promise != Promise::default() {
        text(out, r#","level":"#, promise.level.name());
        number(out, r#","over":"#, promise.over);
    }
}

/// The id of the rule, or why there is none.
fn write_target(target: Target, rules: &Snapshot<'_>, out: &mut Vec<u8>) {
    match target {
        Target::Rule(no) => write_id(no, rules, out),
        Target::Replaced(no) => {
            write_id(no, rules, out);
            put(out, r#","replaced":true"#);
        }
        Target::None(reason) => {
            for piece in [r#","rule":null,"reason":""#, reason.name(), "\""] {
                put(out, piece);
            }
        }
        Target::Override(_) => {}
    }
}

/// As [`id`](sluicegate::rules::set::RuleSet::id), nearly always without an allocation.
fn write_id(no: RuleNo, rules: &Snapshot<'_>, out: &mut Vec<u8>) {
    let rules = rules.rules();
    let domain = rules.domain_of(no);
    match &rules.rule(no).name {
        Some(name) if is_plain(name) && is_plain(domain) => {
            for piece in [r#","rule":""#, domain, "/", name, "\""] {
                put(out, piece);
            }
        }
        _ => text(out, r#","rule":"#, &rules.id(no)),
    }
}

/// The further pool of the rule that decided.
fn write_pool(target: Target, rules: &Snapshot<'_>, out: &mut Vec<u8>) {
    let rules = rules.rules();
    if let (Target::Rule(no), true) = (target, rules.has_pools())
        && let Some(pool) = rules.pool_of(no)
    {
        text(out, r#","pool":"#, pool);
    }
}

fn write_quota(policy: &Policy, out: &mut Vec<u8>) {
    if let Some(quota) = policy.quota {
        number(out, r#","quota":"#, quota);
    }
}

fn write_outcome(outcome: Outcome, out: &mut Vec<u8>) {
    match outcome {
        Outcome::Allow { wait } if wait.is_zero() => {}
        Outcome::Allow { wait } => millis(out, r#","wait_ms":"#, wait),
        Outcome::Deny { retry_after } => millis(out, r#","retry_after_ms":"#, retry_after),
        Outcome::Never { max_cost } => number(out, r#","max_cost":"#, max_cost),
    }
}

fn write_flags(verdict: &Verdict, out: &mut Vec<u8>) {
    if verdict.soft {
        put(out, r#","soft":true"#);
    }
    if verdict.elastic {
        put(out, r#","elastic":true"#);
    }
    if let Some(outcome) = verdict.shadow {
        let allowed = outcome.is_allowed();
        put(
            out,
            if allowed { r#","shadow":{"allowed":true"# } else { r#","shadow":{"allowed":false"# },
        );
        write_outcome(outcome, out);
        out.push(b'}');
    }
}

/// Appends `"keys":[…]`, one for each descriptor.
pub(crate) fn write_inspected(all: &[Inspected], rules: &Snapshot<'_>, out: &mut Vec<u8>) {
    put(out, r#""keys":["#);
    for (index, inspected) in all.iter().enumerate() {
        put(out, if index > 0 { ",{" } else { "{" });
        write_key(inspected, rules, out);
        if !inspected.pools.is_empty() {
            put(out, r#","pools":["#);
            for (index, pool) in inspected.pools.iter().enumerate() {
                put(out, if index > 0 { ",{" } else { "{" });
                write_key(pool, rules, out);
                out.push(b'}');
            }
            out.push(b']');
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_key(inspected: &Inspected, rules: &Snapshot<'_>, out: &mut Vec<u8>) {
    write_limits(inspected, true, out);
    write_target(inspected.target, rules, out);
    write_pool(inspected.target, rules, out);
}

/// Appends `"limits":[…]`. Whether they admit a cost of 1 is said where nothing else was decided.
fn write_limits(inspected: &Inspected, has_admission: bool, out: &mut Vec<u8>) {
    put(out, r#""limits":["#);
    for (index, state) in inspected.limits.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_limit_state(state, has_admission, out);
    }
    out.push(b']');
}

fn write_limit_state(state: &LimitState, has_admission: bool, out: &mut Vec<u8>) {
    put(
        out,
        match (has_admission, state.allowed) {
            (false, _) => "{",
            (true, true) => r#"{"allowed":true,"#,
            (true, false) => r#"{"allowed":false,"#,
        },
    );
    text(out, r#""limit":"#, &state.policy.name);
    text(out, r#","algorithm":"#, state.policy.algorithm);
    write_quota(&state.policy, out);
    if let Some(window) = state.policy.window {
        millis(out, r#","window_ms":"#, window);
    }
    if let Some(left) = state.remaining {
        signed(out, r#","remaining":"#, left);
    }
    millis(out, r#","reset_after_ms":"#, state.reset_after);
    if let Some(wait) = state.retry_after.filter(|_| has_admission) {
        millis(out, r#","retry_after_ms":"#, wait);
        if state.policy.has_slots() {
            put(out, ESTIMATED);
        }
    }
    if !state.policy.enforced {
        put(out, r#","enforced":false"#);
    }
    out.push(b'}');
}

// === parts ===

fn put(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

pub(super) fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    put(out, name);
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// Whether JSON needs no escapes for a string.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

pub(super) fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    put(out, name);
    let _ = serde_json::to_writer(out, &value);
}

fn signed(out: &mut Vec<u8>, name: &str, value: i64) {
    put(out, name);
    let _ = serde_json::to_writer(out, &value);
}

/// Whole milliseconds, rounded up, so that a client that waits as long is not early.
fn millis(out: &mut Vec<u8>, name: &str, span: Span) {
    number(out, name, span.as_micros().div_ceil(1_000));
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate::Level;

    #[test]
    fn a_result_has_a_level_where_the_store_did_not_decide() {
        let written = |level, over| {
            let mut out = Vec::new();
            write_promise(Promise { level, over }, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Level::Strict, 0), "");
        assert_eq!(written(Level::Leased, 0), r#","level":"leased","over":0"#);
        assert_eq!(written(Level::Eventual, 7), r#","level":"eventual","over":7"#);
    }
}
