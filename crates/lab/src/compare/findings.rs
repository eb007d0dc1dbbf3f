//! The findings of a comparison in plain words, the most important first.

use sluicegate_config::suggest::all_of;
use sluicegate_config::units::show_span;
use sluicegate_core::time::Span;

use super::contender::EXACT;
use super::figures::{AlgorithmComparison, AlgorithmFigures};

/// Denials without need below this part of all denials are not a finding.
const REFUSED_MIN: f64 = 0.01;
/// Fairness below this is a finding.
const FAIRNESS_MIN: f64 = 0.95;

/// What a reader who has to choose should know.
#[must_use]
pub fn findings(comparison: &AlgorithmComparison) -> Vec<String> {
    let mut found = vec![demand(comparison)];
    let distinct: Vec<&AlgorithmFigures> = comparison
        .algorithms
        .iter()
        .filter(|figures| figures.same_decisions_as.is_none())
        .collect();
    let mut above: Vec<&AlgorithmFigures> =
        distinct.iter().copied().filter(|figures| figures.excess_worst > 0).collect();
    above.sort_by_key(|figures| std::cmp::Reverse(figures.excess_worst));
    found.extend(above.iter().map(|figures| over(comparison, figures)));
    found.extend(never_above(comparison, &distinct));
    let mut strict: Vec<&AlgorithmFigures> = distinct
        .iter()
        .copied()
        .filter(|figures| figures.refused_share() >= REFUSED_MIN && is_policing(figures))
        .collect();
    strict.sort_by_key(|figures| std::cmp::Reverse(figures.refused_without_need));
    found.extend(strict.iter().map(|figures| refused(comparison, figures)));
    found.extend(bursts(comparison, &distinct));
    found.extend(waits(comparison));
    found.extend(abusers(comparison, &distinct));
    found.extend(unfair(&distinct));
    found.extend(same(comparison));
    found.extend(memory(&distinct));
    found.extend(comparison.left_out.iter().map(|problem| format!("Left out: {problem}.")));
    found
}

fn is_policing(figures: &AlgorithmFigures) -> bool {
    figures.mean_wait_us == 0.0
}

fn demand(comparison: &AlgorithmComparison) -> String {
    let (limit, window) = (amount(comparison.limit), window(comparison));
    let sent = format!(
        "{} sent {} in {}",
        plural(comparison.clients as u64, "client"),
        plural(comparison.requests, "request"),
        duration(comparison.last_us - comparison.first_us)
    );
    let above = comparison.clients_above_limit;
    let (Some(above), Some(exact)) = (above, comparison.algorithm(EXACT)) else {
        return format!("{sent}.");
    };
    if above == 0 {
        return format!(
            "{sent}. None sent more than {limit} in any {window}: on this traffic a limit of `{}` \
             needs to deny nothing.",
            comparison.rate
        );
    }
    let above = match above {
        all if all == comparison.clients => "all".to_owned(),
        some => amount(some as u64),
    };
    let part = share(exact.admitted, comparison.demand);
    format!(
        "{sent}; {above} of them sent more than {limit} in some {window}. The exact limit, `{EXACT}`, \
         admitted {part} of it."
    )
}

fn over(comparison: &AlgorithmComparison, figures: &AlgorithmFigures) -> String {
    let admitted = share(figures.over_admitted, figures.admitted);
    format!(
        "`{}` let {} of `{}` pass in {}: {} times the limit. {admitted} of what it admitted was above \
         the limit at that moment.",
        figures.algorithm,
        plural(figures.peak.amount, "request"),
        figures.peak.client.replace('`', "'"),
        window(comparison),
        decimal(figures.peak.times_limit),
    )
}

fn never_above(comparison: &AlgorithmComparison, distinct: &[&AlgorithmFigures]) -> Option<String> {
    let within = distinct.iter().filter(|figures| figures.excess_worst == 0);
    let names: Vec<&str> = within.map(|figures| figures.algorithm.as_str()).collect();
    let (limit, window) = (amount(comparison.limit), window(comparison));
    (!names.is_empty()).then(|| {
        format!("{} never let more than {limit} of a client pass in any {window}.", all_of(&names))
    })
}

fn refused(comparison: &AlgorithmComparison, figures: &AlgorithmFigures) -> String {
    format!(
        "`{}` denied {} without need, {} of its denials: fewer than {} of the client had passed in \
         the last {}.",
        figures.algorithm,
        plural(figures.refused_without_need, "request"),
        percent(figures.refused_share()),
        amount(comparison.limit),
        window(comparison),
    )
}

fn bursts(comparison: &AlgorithmComparison, distinct: &[&AlgorithmFigures]) -> Option<String> {
    let of = |figures: &AlgorithmFigures| figures.burst_shape.hundredth;
    let most = distinct.iter().copied().max_by_key(|figures| of(figures))?;
    let least = distinct.iter().copied().min_by_key(|figures| of(figures))?;
    let hundredth = duration((comparison.window_us / 100).max(1));
    (of(most) > of(least)).then(|| {
        format!(
            "Bursts: within {hundredth} `{}` let up to {} of a client pass, `{}` at most {}.",
            most.algorithm,
            amount(of(most)),
            least.algorithm,
            amount(of(least))
        )
    })
}

fn waits(comparison: &AlgorithmComparison) -> Option<String> {
    let waiting = comparison.algorithms.iter().find(|figures| !is_policing(figures))?;
    Some(format!(
        "`{}` makes requests wait for their slot instead: {} on average.",
        waiting.algorithm,
        duration(waiting.mean_wait_us as u64)
    ))
}

fn abusers(comparison: &AlgorithmComparison, distinct: &[&AlgorithmFigures]) -> Option<String> {
    let sent = comparison.demand_abuser_share?;
    let of = |figures: &AlgorithmFigures| figures.abuser_share.unwrap_or(0.0);
    let most = distinct.iter().copied().max_by(|a, b| of(a).total_cmp(&of(b)))?;
    let least = distinct.iter().copied().min_by(|a, b| of(a).total_cmp(&of(b)))?;
    Some(format!(
        "Abusers sent {} of the requests. They got {} of what `{}` admitted, and {} with `{}`.",
        percent(sent),
        percent(of(most)),
        most.algorithm,
        percent(of(least)),
        least.algorithm
    ))
}

fn unfair(distinct: &[&AlgorithmFigures]) -> Option<String> {
    let least = distinct
        .iter()
        .filter_map(|figures| Some((figures, figures.fairness?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    (least.1 < FAIRNESS_MIN).then(|| {
        format!(
            "`{}` serves clients least evenly: Jain's index of what they got of their quota is {}.",
            least.0.algorithm,
            decimal(least.1)
        )
    })
}

fn same(comparison: &AlgorithmComparison) -> Vec<String> {
    let mut found = Vec::new();
    for first in &comparison.algorithms {
        let is_same = |figures: &&AlgorithmFigures| {
            figures.same_decisions_as.as_ref() == Some(&first.algorithm)
        };
        let names: Vec<&str> = comparison
            .algorithms
            .iter()
            .filter(is_same)
            .map(|figures| figures.algorithm.as_str())
            .collect();
        if !names.is_empty() {
            let (names, first) = (all_of(&names), &first.algorithm);
            found.push(format!("{names} decided every request as `{first}` did."));
        }
    }
    found
}

fn memory(distinct: &[&AlgorithmFigures]) -> Option<String> {
    let of = |figures: &AlgorithmFigures| figures.state_bytes[1];
    let most = distinct.iter().copied().max_by_key(|figures| of(figures))?;
    let least = distinct.iter().copied().min_by_key(|figures| of(figures))?;
    (of(most) > of(least)).then(|| {
        format!(
            "Memory of a client: `{}` takes at most {} bytes, `{}` {}.",
            most.algorithm,
            amount(of(most)),
            least.algorithm,
            amount(of(least))
        )
    })
}

// === numbers for people ===

fn window(comparison: &AlgorithmComparison) -> String {
    show_span(Span::from_micros(comparison.window_us))
}

/// A number with separators: `12,345`.
pub(super) fn amount(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn plural(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", amount(number))
}

/// A part as a percentage with two digits that matter.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size >= 10.0 => format!("{percent:.0} %"),
        size if size >= 1.0 => format!("{percent:.1} %"),
        size if size >= 0.1 => format!("{percent:.2} %"),
        size if size >= 0.001 => format!("{percent:.3} %"),
        _ if percent > 0.0 => "under 0.001 %".to_owned(),
        _ => "0 %".to_owned(),
    }
}

fn share(part: u64, whole: u64) -> String {
    percent(part as f64 / whole.max(1) as f64)
}

/// A number with at most two decimals.
pub(super) fn decimal(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A duration for people: `1.5 s`, `20 min`, `3 days`.
pub(super) fn duration(us: u64) -> String {
    let us = us as f64;
    let (number, unit) = match us {
        _ if us < 1e3 => (us, "µs"),
        _ if us < 1e6 => (us / 1e3, "ms"),
        _ if us < 120e6 => (us / 1e6, "s"),
        _ if us < 7_200e6 => (us / 60e6, "min"),
        _ if us < 172_800e6 => (us / 3_600e6, "h"),
        _ => (us / 86_400e6, "days"),
    };
    format!("{} {unit}", decimal((number * 10.0).round() / 10.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(amount), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.000_03, 0.004_2, 0.042, 0.42, 1.0, 1e-9].map(percent),
            ["0 %", "0.003 %", "0.42 %", "4.2 %", "42 %", "100 %", "under 0.001 %"]
        );
        assert_eq!([1.0, 1.5, 1.899].map(decimal), ["1", "1.5", "1.9"]);
        assert_eq!(
            [5, 1_500, 600_000, 60_000_000, 1_199_960_000, 86_400_000_000].map(duration),
            ["5 µs", "1.5 ms", "600 ms", "60 s", "20 min", "24 h"]
        );
    }
}
