//! `/rlconfig`: the rules in force, one per line, in the format of envoyproxy/ratelimit; rules of
//! our own form have their limits in place of a unit.
//!
//! ```text
//!   shop.user_id: unit=MINUTE requests_per_unit=20, shadow_mode: false, quota_mode: false
//!   shop.team_blue: limits=[burst: token_bucket 10/s burst 50], shadow_mode: false, quota_mode: …
//! ```
//!
//! Comments above name a rejected load, the domains whose removal is withheld, and the shadow mode
//! of the service.

use std::fmt::Write;

use sluicegate::config::units::{show_rate, show_span};
use sluicegate::rules::limit::LimitConfig;
use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Timestamp, WithheldDomain};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::quota::Rate;

use crate::health::RejectedLoad;
use crate::logs::rfc3339;

/// Limit of listed rules; some 10 MB.
const RULES_LISTED_MAX: usize = 100_000;

/// All rules, sorted.
pub(super) fn lines(rules: &RuleSet) -> String {
    let all = rules.rules();
    let more = all.len().saturating_sub(RULES_LISTED_MAX);
    let mut lines: Vec<String> = all.take(RULES_LISTED_MAX).map(|no| line(rules, no)).collect();
    lines.sort_unstable();
    let mut page = lines.concat();
    if more > 0 {
        page.push_str(&format!("# and {more} more, which are not shown\n"));
    }
    page
}

/// Comment of a service that enforces nothing.
pub(super) const SHADOW: &str = "# shadow mode: nothing is enforced, every request is allowed; remove `--shadow` \
                                 (SLUICEGATE_SHADOW, SHADOW_MODE) to enforce these limits\n";

/// A comment about a load that was rejected.
pub(super) fn rejected(load: Option<&RejectedLoad>) -> String {
    let Some(RejectedLoad { at, error }) = load else { return String::new() };
    let mut page = format!("# rejected at {}: ", rfc3339(*at));
    put_escaped(error, &mut page);
    page.push_str("; the rules below are still in force, the log has all errors\n");
    page
}

/// A comment for each domain whose removal is withheld.
pub(super) fn withheld(domains: &[WithheldDomain]) -> String {
    let mut page = String::new();
    for domain in domains {
        page.push_str("# withheld: ");
        put_escaped(&domain.to_string(), &mut page);
        page.push('\n');
    }
    page
}

fn line(rules: &RuleSet, no: RuleNo) -> String {
    let mut line = String::new();
    put_escaped(rules.domain_of(no), &mut line);
    for text in rules.metric_path(no) {
        line.push('.');
        put_escaped(text, &mut line);
    }
    if let Some(pool) = rules.pool_of(no) {
        line.push_str(" pool ");
        put_escaped(pool, &mut line);
    }
    let rule = rules.rule(no);
    let limits = match &rule.limits {
        Limits::Unlimited => "unit=UNKNOWN requests_per_unit=0".to_owned(),
        Limits::Envoy { requests_per_unit, unit } => {
            let unit = unit.name().to_ascii_uppercase();
            format!("unit={unit} requests_per_unit={requests_per_unit}")
        }
        Limits::Native(limits) => {
            let limits: Vec<String> = limits.iter().map(limit_text).collect();
            format!("limits=[{}]", limits.join(", "))
        }
    };
    let shadow_mode = rule.mode == Mode::Shadow;
    let quota_mode = rule.quota_mode;
    let mode = match rule.mode {
        Mode::Hard | Mode::Shadow => "",
        Mode::Soft { .. } => ", mode: soft",
        Mode::Elastic { .. } => ", mode: elastic",
    };
    let cost = if rule.cost == 1 { String::new() } else { format!(", cost: {}", rule.cost) };
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        line,
        ": {limits}, shadow_mode: {shadow_mode}, quota_mode: {quota_mode}{mode}{cost}"
    );
    line
}

fn limit_text(limit: &LimitConfig) -> String {
    let mut text = String::new();
    if let Some(name) = limit.name() {
        put_escaped(name, &mut text);
        text.push_str(": ");
    }
    text.push_str(limit.algorithm());
    text.push_str(&numbers(&limit.at(Timestamp::EPOCH)));
    if let Some(calendar) = limit.followed_calendar() {
        text.push(' ');
        text.push_str(calendar.zone_name());
    }
    text
}

/// Numbers of a limit. `sluicegate check` shows more.
fn numbers(limit: &Limit) -> String {
    let per = |rate: Rate| show_rate(rate.count(), rate.period());
    match limit {
        Limit::Unlimited => String::new(),
        Limit::Closed => " closed".to_owned(),
        Limit::TokenBucket(bucket) => {
            format!(" {} burst {}", per(bucket.rate()), bucket.burst())
        }
        Limit::LeakyBucket(bucket) => {
            format!(" {} queue {}", per(bucket.rate()), bucket.queue())
        }
        Limit::FixedWindow(window) => format!(" {}", per(window.rate())),
        Limit::SlidingWindow(window) => format!(" {}", per(window.rate())),
        Limit::SlidingSlices(window) => format!(" {}", per(window.rate())),
        Limit::SlidingLog(log) => {
            log.rates().map(|(count, period)| format!(" {}", show_rate(count, period))).collect()
        }
        Limit::SmoothBursty(smooth) => format!(" {}", per(smooth.rate())),
        Limit::WarmUp(warm) => {
            format!(" {} within {}", per(warm.rate()), show_span(warm.warm_up()))
        }
        Limit::Cycle(cycle) => {
            format!(" {} every {}", cycle.permits(), show_span(cycle.period()))
        }
        Limit::Concurrency(slots) => format!(" {} at a time", slots.max()),
        Limit::Tally(tally) => format!(" {}", show_rate(tally.limit(), tally.period())),
    }
}

/// Escapes control characters, so that a string stays on its line.
fn put_escaped(text: &str, out: &mut String) {
    for character in text.chars() {
        match character.is_control() {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
}
