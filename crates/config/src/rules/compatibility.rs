//! Checks that the settings of a rule are compatible with its limits and each other.

use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::OpKind;
use sluicegate_core::quota::QuotaError;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::{LimitConfig, names};
use sluicegate_rules::rule::{Consistency, Limits, OnLimit, RuleConfig};

use super::keys::{Form, Key};
use super::reader::{Found, Reader};
use crate::fields::Value;
use crate::problem::Reported;
use crate::quota::explain;
use crate::units::show_span;

/// A limit of a rule, configured and as core holds it.
pub(super) struct CheckedLimit<'a> {
    /// All limits of the rule, and the index of this one: its name depends on the others.
    limits: &'a [LimitConfig],
    index: usize,
    algorithm: &'static str,
    limit: Limit,
}

impl CheckedLimit<'_> {
    fn called(&self) -> String {
        if self.limits.is_empty() {
            return "rate_limit".to_owned();
        }
        called(self.limits, self.index)
    }
}

fn called(limits: &[LimitConfig], index: usize) -> String {
    names(limits).into_iter().nth(index).unwrap_or_default()
}

impl Reader<'_> {
    /// Reports incompatible settings of a rule.
    pub(super) fn fit<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rule: &RuleConfig,
    ) -> Result<(), Reported> {
        if let Limits::Native(limits) = &rule.limits {
            self.closed(input, found, limits);
        }
        // Envoy's form has no incompatible settings.
        if self.form == Form::Envoy {
            return Ok(());
        }
        let checked = checked(&rule.limits);
        let mut fits = self.modes(input, found, rule, &checked);
        let mut refuse = |reader: &mut Self, key: Key, problem: Option<String>| {
            if let Some(message) = problem {
                fits = Err(reader.refuse_key(input, found, key, &message));
            }
        };
        refuse(
            self,
            Key::Consistency,
            checked.iter().find_map(|one| unshared(rule.consistency, one)),
        );
        let waiting = checked.iter().find_map(|one| unwaiting(rule.on_limit, one));
        refuse(self, Key::OnLimit, waiting.or_else(|| shadowed(rule)));
        fits = fits.and(self.fit_pools(input, found, rule));
        fits = fits.and(self.fit_notify(input, found, rule));
        if fits.is_ok() {
            self.warn_overridden_consistency(input, found, rule);
            self.warn_long_sync_interval(input, found, rule, &checked);
        }
        fits
    }

    /// Warns of a sync interval that is too long for a window to be shared.
    fn warn_long_sync_interval<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rule: &RuleConfig,
        checked: &[CheckedLimit<'_>],
    ) {
        let Consistency::Eventual { sync_interval } = rule.effective_consistency() else { return };
        let window = |one: &CheckedLimit<'_>| match one.limit {
            Limit::FixedWindow(window) => Some(window.rate().period()),
            Limit::SlidingWindow(window) => Some(window.rate().period()),
            _ => None,
        };
        let Some(shortest) = checked.iter().filter_map(window).min() else { return };
        let Some(pair) = found.get(Key::Consistency) else { return };
        if shortest.as_micros() / 2 >= sync_interval.as_micros() {
            return;
        }
        let (interval, window) = (show_span(sync_interval), show_span(shortest));
        let message = format!(
            "nodes hear of each other every `{interval}`, which is more than half of a window of \
             `{window}`, so each may admit all of it; write a shorter `sync_interval`, or `leased`"
        );
        self.report.warn(pair.value.at, input.field(pair).path, message);
    }

    /// Warns of a consistency that another setting makes strict.
    fn warn_overridden_consistency<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rule: &RuleConfig,
    ) {
        if rule.effective_consistency() == rule.consistency {
            return;
        }
        let Some(pair) = found.get(Key::Consistency) else { return };
        let (with, remedy) = match rule.mode {
            Mode::Hard => ("in `quota_mode`", "`quota_mode`"),
            Mode::Shadow => ("in the mode `shadow`", "the mode"),
            Mode::Soft { .. } => ("in the mode `soft`", "the mode"),
            Mode::Elastic { .. } => ("in the mode `elastic`", "the mode"),
        };
        let message = format!(
            "counts as `strict` {with}, so every decision asks the store; write `strict`, or remove \
             {remedy}"
        );
        self.report.warn(pair.value.at, input.field(pair).path, message);
    }

    /// Warns of limits that admit nothing.
    fn closed<'t>(&mut self, input: &Value<'t, '_>, found: &Found<'t>, limits: &[LimitConfig]) {
        for (index, limit) in limits.iter().enumerate() {
            let open = match limit.at(Timestamp::EPOCH) {
                Limit::Closed => false,
                Limit::Tally(tally) => tally.limit() > 0,
                _ => true,
            };
            if open {
                continue;
            }
            let Some(pair) = found.get(Key::Limits) else { continue };
            let called = called(limits, index);
            let message = format!(
                "`{called}` lets nothing pass, so every request is denied; write a number above 0, or \
                 a `deny` list"
            );
            self.report.warn(pair.value.at, input.field(pair).path, message);
        }
    }

    /// Checks each limit against its mode, and the cost of a hit against the capacity.
    pub(super) fn modes<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rule: &RuleConfig,
        checked: &[CheckedLimit<'_>],
    ) -> Result<(), Reported> {
        let mut fits = Ok(());
        for one in checked {
            let step = match EnforcedLimit::new(one.limit, rule.mode) {
                Ok(step) => step,
                Err(error) => {
                    let message = explain(&as_written(error, one.algorithm));
                    fits = Err(self.refuse_key(input, found, Key::Mode, &message));
                    continue;
                }
            };
            let max = holds(step.limit()).max(step.boost().and_then(holds));
            // A closed limit has no capacity, which is reported elsewhere.
            let Some(max) = max.filter(|max| (1..rule.cost).contains(max)) else { continue };
            let (cost, called) = (rule.cost, one.called());
            let message = format!(
                "`{called}` can never admit a hit, since it holds at most `{max}`, got `{cost}`; \
                 lower the cost, or raise the limit"
            );
            fits = Err(self.refuse_key(input, found, Key::Cost, &message));
        }
        fits
    }
}

/// The most that a limit can admit at once; `None` if later requests pay the excess.
fn holds(limit: &Limit) -> Option<u64> {
    match limit {
        Limit::SmoothBursty(_) | Limit::WarmUp(_) | Limit::Cycle(_) => None,
        limit => limit.capacity(),
    }
}

pub(super) fn checked(limits: &Limits) -> Vec<CheckedLimit<'_>> {
    let one = |algorithm: &'static str, limit| {
        vec![CheckedLimit { limits: &[], index: 0, algorithm, limit }]
    };
    match limits {
        Limits::Unlimited => one("unlimited", Limit::Unlimited),
        Limits::Envoy { requests_per_unit, unit } => {
            let tally = Tally::new(u64::from(*requests_per_unit), unit.span());
            tally.map_or_else(|_| Vec::new(), |tally| one("rate_limit", Limit::Tally(tally)))
        }
        Limits::Native(limits) => limits
            .iter()
            .enumerate()
            .map(|(index, limit)| CheckedLimit {
                limits,
                index,
                algorithm: limit.algorithm(),
                limit: limit.at(Timestamp::EPOCH),
            })
            .collect(),
    }
}

/// Replaces core's name for the algorithm of `rate_limit` by the configured one.
fn as_written(error: QuotaError, algorithm: &'static str) -> QuotaError {
    match error {
        QuotaError::Unfit { mode, remedy, .. } => QuotaError::Unfit { mode, algorithm, remedy },
        other => other,
    }
}

/// Why the consistency mode does not support a limit.
pub(super) fn unshared(consistency: Consistency, one: &CheckedLimit<'_>) -> Option<String> {
    let needs = consistency.unsupported(&one.limit, one.algorithm)?;
    let word = consistency.name();
    let (called, algorithm) = (one.called(), one.algorithm);
    let which = if called == algorithm { String::new() } else { format!(" (`{called}`)") };
    Some(format!(
        "`{word}` needs {needs}, got `{algorithm}`{which}; write `strict`, or another algorithm"
    ))
}

/// Why requests cannot wait for a limit.
fn unwaiting(on_limit: OnLimit, one: &CheckedLimit<'_>) -> Option<String> {
    let (word, reason) = match (on_limit, one.limit) {
        (OnLimit::Deny, _) => return None,
        (OnLimit::Shape, Limit::Unlimited) => ("shape", "it denies nobody"),
        (OnLimit::Queue, Limit::Unlimited) => ("queue", "it denies nobody"),
        (OnLimit::Shape, Limit::Concurrency(_)) => return None,
        (OnLimit::Shape, Limit::SlidingLog(log)) if log.counts_denied() => {
            ("shape", "with `count_denied` every attempt to get a turn counts")
        }
        (OnLimit::Shape, limit) if limit.refuses(OpKind::Acquire).is_some() => {
            ("shape", "it counts what comes when it comes, so that nobody can wait for a turn")
        }
        _ => return None,
    };
    let algorithm = one.algorithm;
    let instead = match algorithm {
        "rate_limit" => "write `limits` in its index",
        _ => "write `deny`, or another limit",
    };
    Some(format!("`{word}` has no meaning for `{algorithm}`: {reason}; {instead}"))
}

/// A shadow rule denies no request, so no request waits.
fn shadowed(rule: &RuleConfig) -> Option<String> {
    let shaped = rule.on_limit == OnLimit::Shape && rule.mode == Mode::Shadow;
    let message = "`shape` has no meaning in the mode `shadow`, which denies nobody; remove one of \
                   them";
    shaped.then(|| message.to_owned())
}
