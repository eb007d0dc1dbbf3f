//! The rules that are enforced, a line each, as envoyproxy/ratelimit writes them: those of Envoy's form letter by letter, ours with
//! their limits in place of a unit.
//!
//! ```text
//!   shop.user_id: unit=MINUTE requests_per_unit=20, shadow_mode: false, quota_mode: false
//!   shop.team_blue: limits=[burst: token_bucket 10/s burst 50], shadow_mode: false, quota_mode: false
//! ```
//!
//! Comments above them name the domains whose removal is withheld.

use std::fmt::Write;

use sluicegate::config::units::{show_rate, show_span};
use sluicegate::rules::limit::LimitConfig;
use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Timestamp, WithheldDomain};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::quota::Rate;

/// How many rules are shown; some 10 MB.
const SHOWN_MAX: usize = 100_000;

/// All rules, in the order of their names.
pub(super) fn lines(rules: &RuleSet) -> String {
    let all = rules.rules();
    let more = all.len().saturating_sub(SHOWN_MAX);
    let mut lines: Vec<String> = all.take(SHOWN_MAX).map(|no| line(rules, no)).collect();
    lines.sort_unstable();
    let mut told = lines.concat();
    if more > 0 {
        told.push_str(&format!("# and {more} more, which are not shown\n"));
    }
    told
}

/// A comment for each domain whose removal is withheld.
pub(super) fn withheld(domains: &[WithheldDomain]) -> String {
    let mut page = String::new();
    for domain in domains {
        page.push_str("# withheld: ");
        put_plainly(&domain.to_string(), &mut page);
        page.push('\n');
    }
    page
}

fn line(rules: &RuleSet, no: RuleNo) -> String {
    let mut line = String::new();
    put_plainly(rules.domain_of(no), &mut line);
    for text in rules.metric_path(no) {
        line.push('.');
        put_plainly(text, &mut line);
    }
    let rule = rules.rule(no);
    let allows = match &rule.limits {
        Limits::Unlimited => "unit=UNKNOWN requests_per_unit=0".to_owned(),
        Limits::Envoy { requests_per_unit, unit } => {
            let unit = unit.name().to_ascii_uppercase();
            format!("unit={unit} requests_per_unit={requests_per_unit}")
        }
        Limits::Native(limits) => {
            let limits: Vec<String> = limits.iter().map(named).collect();
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
    // A text takes whatever is written to it.
    let _ = writeln!(
        line,
        ": {allows}, shadow_mode: {shadow_mode}, quota_mode: {quota_mode}{mode}{cost}"
    );
    line
}

fn named(limit: &LimitConfig) -> String {
    let mut told = String::new();
    if let Some(name) = limit.name() {
        put_plainly(name, &mut told);
        told.push_str(": ");
    }
    told.push_str(limit.algorithm());
    told.push_str(&allowed(&limit.at(Timestamp::EPOCH)));
    if let Some(calendar) = limit.followed_calendar() {
        told.push(' ');
        told.push_str(calendar.zone_name());
    }
    told
}

/// The numbers of a limit. `sluicegate check` says more.
fn allowed(limit: &Limit) -> String {
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

/// What is written stays on its line.
fn put_plainly(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter.is_control() {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
}
