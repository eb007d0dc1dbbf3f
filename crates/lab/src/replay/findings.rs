//! What a replay shows, in plain language, the most important first. Values are in backticks.

use std::path::PathBuf;

use sluicegate::descriptor_text;
use sluicegate_config::units::show_span;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::zone::show_moment;

use super::comparison::{Comparison, DifferenceTally};
use super::json::log_name;
use super::run::{ReplayResult, SideResult};
use super::tally::{Place, RuleTally, Tally};
use crate::log_input::counts::LineCounts;

/// Rules that have a finding of their own.
const RULES_MAX: usize = 5;

/// The findings of a replay.
#[must_use]
pub fn findings(result: &ReplayResult, logs: &[PathBuf]) -> Vec<String> {
    let mut all = Vec::new();
    let tally = &result.rules.tally;
    all.extend(late(&result.lines));
    if tally.requests.requests == 0 {
        all.push("The logs have no request.".to_owned());
    } else {
        all.push(overall(tally));
        match &result.comparison {
            Some(comparison) => all.extend(differences(comparison)),
            None => all.extend(tally.ranked().into_iter().take(RULES_MAX).map(rule)),
        }
    }
    all.extend(caveats(result, logs));
    all
}

/// Lines out of order distort everything else.
fn late(lines: &LineCounts) -> Option<String> {
    let needed = lines.tolerance.as_micros() + lines.late_max.as_micros();
    let needed = Span::from_secs(needed.div_ceil(1_000_000));
    (lines.late > 0).then(|| {
        format!(
            "{} of {} ({}) came later than the tolerance of {} allows, and were decided at the time that was \
             reached, so that they look like bursts; `--reorder {}` sorts all.",
            grouped(lines.late),
            counted(lines.requests, "request"),
            percent(lines.late, lines.requests),
            show_span(lines.tolerance),
            show_span(needed)
        )
    })
}

fn overall(tally: &Tally) -> String {
    let counts = &tally.requests;
    let mut text = format!(
        "Of {}, the rules deny {} ({})",
        counted(counts.requests, "request"),
        grouped(counts.denied),
        percent(counts.denied, counts.requests)
    );
    if counts.delayed > 0 {
        text += &format!(", {} wait", grouped(counts.delayed));
    }
    if counts.shadow_denied > 0 {
        text += &format!(
            ", and rules in shadow mode would deny {} more ({})",
            grouped(counts.shadow_denied),
            percent(counts.shadow_denied, counts.requests)
        );
    }
    text + "."
}

fn rule(rule: &RuleTally) -> String {
    let (counts, identities) = (&rule.requests, &rule.identities);
    let verb = match (counts.denied, counts.shadow_denied) {
        (0, 0) => "denies none",
        (0, _) => "would deny",
        _ => "denies",
    };
    let denied = counts.all_denied();
    if denied == 0 {
        let mut text = format!(
            "`{}` {verb} of {} of {}",
            rule.id,
            counted(counts.requests, "request"),
            counted(identities.len() as u64, "identity")
        );
        if counts.delayed > 0 {
            text += &delays(rule);
        }
        return text + ".";
    }
    let mut text = format!(
        "`{}` {verb} {} of {} ({}), of {} of {}",
        rule.id,
        grouped(denied),
        counted(counts.requests, "request"),
        percent(denied, counts.requests),
        grouped(identities.denied()),
        counted(identities.len() as u64, "identity"),
    );
    if counts.delayed > 0 {
        text += &delays(rule);
    }
    if let [(worst, tally), ..] = identities.worst(1)[..] {
        text += &format!(
            "; most of all `{}`: {} of its {}, {}",
            descriptor_text(worst),
            grouped(tally.all_denied()),
            counted(tally.requests, "request"),
            share_of_denied(tally.all_denied(), denied)
        );
    }
    if let Some((from, bucket)) = rule.series.worst(1).first() {
        text += &format!(
            ". The worst {} began at {}: {} of {} did not pass at once",
            show_span(rule.series.width()),
            show_moment(*from),
            grouped(bucket.restricted()),
            counted(bucket.requests, "request")
        );
    }
    text + "."
}

fn delays(rule: &RuleTally) -> String {
    format!(
        "; {} wait {} in the mean, {} at most",
        grouped(rule.requests.delayed),
        rounded(rule.mean_delay()),
        rounded(rule.delay_max)
    )
}

fn share_of_denied(part: u64, whole: u64) -> String {
    format!("{} of all that it denies", percent(part, whole))
}

fn differences(comparison: &Comparison) -> Vec<String> {
    let all = comparison.requests();
    let different = comparison.newly_denied.requests + comparison.newly_allowed.requests;
    if different == 0 {
        return vec![format!("Both sets of rules decide all {} alike.", counted(all, "request"))];
    }
    let mut findings = vec![format!(
        "The other rules decide {} differently ({}): they deny {} that pass now, and allow {} that are denied now.",
        counted(different, "request"),
        percent(different, all),
        grouped(comparison.newly_denied.requests),
        grouped(comparison.newly_allowed.requests)
    )];
    let sides =
        [("Newly denied", &comparison.newly_denied), ("Newly allowed", &comparison.newly_allowed)];
    findings.extend(sides.into_iter().filter_map(|(name, side)| difference(name, side)));
    findings
}

fn difference(name: &str, side: &DifferenceTally) -> Option<String> {
    let (rule, requests) = side.rules.iter().max_by_key(|(_, requests)| **requests)?;
    let rule = rule.as_deref().map_or("a list".to_owned(), |rule| format!("`{rule}`"));
    let mut text = format!(
        "{name} are requests of {}; {} of them by {rule}",
        counted(side.identities.len() as u64, "identity"),
        grouped(*requests)
    );
    if let [(worst, tally), ..] = side.identities.worst(1)[..] {
        text += &format!("; {} of `{}`", grouped(tally.requests), descriptor_text(worst));
    }
    if let Some(first) = side.first() {
        text += &format!(". The first one is at {}", show_moment(first));
    }
    Some(text + ".")
}

/// What the figures do not show, and lines that were not used.
fn caveats(result: &ReplayResult, logs: &[PathBuf]) -> Vec<String> {
    let (lines, mut all) = (&result.lines, Vec::new());
    if lines.malformed.count > 0 {
        let mut text = format!("Left out as malformed: {}", counted(lines.malformed.count, "line"));
        if let Some(example) = lines.malformed.examples.first() {
            let place = format!("{}:{}", log_name(logs, example.log), example.line);
            text += &format!(", first `{place}`: {}", example.reason);
        }
        all.push(text + ".");
    }
    if lines.invalid.count > 0 {
        all.push(format!(
            "{} have a part that the service would refuse, and are left out.",
            counted(lines.invalid.count, "request")
        ));
    }
    if lines.missing_part > 0 {
        all.push(format!(
            "{} of {} lack a part that a descriptor needs, which is left out of them; the log may not have it.",
            grouped(lines.missing_part),
            counted(lines.requests, "request")
        ));
    }
    all.extend(side_caveats(&result.rules, "", lines.span()));
    if let Some(against) = &result.against {
        all.extend(side_caveats(against, "Of the other rules: ", lines.span()));
    }
    all
}

fn side_caveats(side: &SideResult, prefix: &str, span: Span) -> Vec<String> {
    let mut all = Vec::new();
    let unmatched = side.tally.requests.unmatched;
    if unmatched > 0 {
        all.push(format!(
            "{prefix}no rule applies to {} ({}).",
            counted(unmatched, "request"),
            percent(unmatched, side.tally.requests.requests)
        ));
    }
    if let Some(longest) = side.long_windows.iter().max_by_key(|one| one.window) {
        let others = match side.long_windows.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        all.push(format!(
            "{prefix}the logs span {}, and the window of `{}`{others} is longer ({}): later denials are not seen.",
            rounded(span),
            longest.rule,
            show_span(longest.window)
        ));
    }
    if side.slots_omitted > 0 {
        all.push(format!(
            "{prefix}{} left out: logs do not have the end of each request.",
            match side.slots_omitted {
                1 => "one concurrency limit is".to_owned(),
                count => format!("{count} concurrency limits are"),
            }
        ));
    }
    if side.is_full {
        all.push(format!(
            "{prefix}memory was full: further identities shared counters, as `overflow` of the rules has it."
        ));
    }
    let others = side.tally.rules.iter().map(|rule| rule.identities.others().requests).sum();
    if others > 0u64 {
        all.push(format!(
            "{prefix}{} are of identities beyond the number that is counted exactly; see `--identities`.",
            counted(others, "request")
        ));
    }
    all
}

/// A place in the logs: `access.log:12 at 2026-11-16T12:00:00Z`.
pub(super) fn place_text(place: &Place, logs: &[PathBuf]) -> String {
    format!("{} ({}:{})", show_moment(place.at), log_name(logs, place.log), place.line)
}

/// A number with a separator between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let noun = match (number, noun.strip_suffix('y')) {
        (1, _) => noun.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        _ => format!("{noun}s"),
    };
    format!("{} {noun}", grouped(number))
}

/// A share in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let share = part as f64 * 100.0 / whole as f64;
    match share {
        _ if part == 0 => "0 %".to_owned(),
        _ if share < 0.01 => "under 0.01 %".to_owned(),
        _ if share < 1.0 => format!("{share:.2} %"),
        _ if share < 99.95 || part == whole => format!("{share:.1} %").replace(".0 %", " %"),
        _ => "over 99.9 %".to_owned(),
    }
}

/// A span to about three digits.
pub(super) fn rounded(span: Span) -> String {
    let micros = span.as_micros();
    let unit = match micros {
        0..10_000 => 1,
        10_000..10_000_000 => 1_000,
        10_000_000..600_000_000 => 1_000_000,
        600_000_000..36_000_000_000 => 60_000_000,
        36_000_000_000..864_000_000_000 => 3_600_000_000,
        _ => 86_400_000_000,
    };
    show_span(Span::from_micros((micros + unit / 2) / unit * unit))
}

/// A time as people read it, in UTC.
pub(super) fn shown_time(at: Timestamp) -> String {
    show_moment(Timestamp::from_micros(at.as_micros() / 1_000_000 * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let all = [0, 7, 999, 1_000, 12_345, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "7", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(counted(1, "identity"), "1 identity");
        assert_eq!(counted(2_000, "identity"), "2,000 identities");
        let shares = [(0, 10), (1, 1_000_000), (1, 300), (1, 3), (9_999, 10_000), (3, 3), (1, 0)];
        let shares = shares.map(|(part, whole)| percent(part, whole));
        let due = ["0 %", "under 0.01 %", "0.33 %", "33.3 %", "over 99.9 %", "100 %", "–"];
        assert_eq!(shares, due);
        let spans = [1_500, 1_234_567, 61_400_000, 4_000_000_000, 90_000_000_000_000];
        let spans = spans.map(|us| rounded(Span::from_micros(us)));
        assert_eq!(spans, ["1500us", "1235ms", "61s", "67m", "1042days"]);
    }
}
