//! Whether a rule is effective, in words, by the figures of what was observed.
//!
//! ```text
//!   no hit                                     never matched
//!   fewer than HITS_MIN hits                   too little traffic to judge
//!   no denial, some hits near the limit        near the limit
//!   no denial                                  never fired, or not lately
//!   denials from few identities                abusers
//!   denials from many of all identities        probably too strict
//!   other denials                              limits the heaviest identities
//!   shadow mode                                the same, as what it would do
//! ```

use std::fmt::Write;

use sluicegate::{Span, Timestamp};

use super::rules::RuleHits;

/// Fewer hits than these are too little to judge by.
pub const HITS_MIN: u64 = 100;
/// Denials from at most so many identities are those of abusers, ...
pub const ABUSERS_MAX: u64 = 5;
/// ... or from at most this share of them, in percent, ...
pub const ABUSERS_PERCENT_MAX: u64 = 1;
/// ... if there are at least so many identities.
pub const IDENTITIES_MIN: u64 = 20;
/// Denials from at least this share of the identities, in percent, are too strict.
pub const STRICT_PERCENT_MIN: u64 = 20;
/// Denials of at least this share of the hits, in percent, are too strict where a rule has a single
/// identity or few.
pub const STRICT_HITS_PERCENT_MIN: u64 = 20;
/// A rule with at least this share of hits near the limit, in percent, will deny soon.
pub const NEAR_PERCENT_MIN: u64 = 5;

/// What was observed of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Now.
    pub now: Timestamp,
    /// Since when the rule was observed with these limits.
    pub since: Timestamp,
    /// Whether that is since the node started.
    pub is_since_start: bool,
    /// Whether the rule is of a candidate, and `since` when it began.
    pub is_candidate: bool,
    /// Hits since then.
    pub total: RuleHits,
    /// Start of the window that is judged: an hour ago or later.
    pub window_since: Timestamp,
    /// Hits in the window, if they are known.
    pub window: Option<RuleHits>,
    /// Distinct identities with a hit in the window, if they are known.
    pub identities: Option<u64>,
    /// Distinct identities with a denial, also one in shadow mode, if they are known.
    pub denied_identities: Option<u64>,
    /// The last denial, also one in shadow mode, if there was one.
    pub last_denied: Option<Timestamp>,
    /// Whether the rule is in shadow mode.
    pub is_shadow: bool,
    /// Whether the rule has a single identity, which all requests share.
    pub is_global: bool,
}

/// The judgement of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Its kind.
    pub code: JudgementCode,
    /// One sentence with the figures behind it.
    pub text: String,
}

/// Kinds of judgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgementCode {
    /// No request has matched the rule.
    NeverMatched,
    /// Too few hits.
    TooLittleTraffic,
    /// It has not denied a hit since it was observed.
    NeverFired,
    /// It has denied, and not within the window.
    NotFiredLately,
    /// No denial, and hits near the limit.
    NearLimit,
    /// It denies few of many identities.
    Abusers,
    /// It denies many identities.
    TooStrict,
    /// It denies some identities.
    Limiting,
    /// Figures of the window are not known.
    Unknown,
}

impl JudgementCode {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeverMatched => "never_matched",
            Self::TooLittleTraffic => "too_little_traffic",
            Self::NeverFired => "never_fired",
            Self::NotFiredLately => "not_fired_lately",
            Self::NearLimit => "near_limit",
            Self::Abusers => "abusers",
            Self::TooStrict => "too_strict",
            Self::Limiting => "limiting",
            Self::Unknown => "unknown",
        }
    }
}

/// Judges a rule.
#[must_use]
pub fn judge(evidence: &Evidence) -> Judgement {
    let Evidence { total, .. } = evidence;
    let observed = since_words(evidence);
    if total.hits == 0 {
        let text = format!("never matched {observed}");
        return Judgement { code: JudgementCode::NeverMatched, text };
    }
    if total.hits < HITS_MIN {
        let (hits, denied) = (number(total.hits), number(all_denied(total)));
        let would = if evidence.is_shadow { "that it would deny" } else { "denied" };
        let text = format!(
            "too little traffic to judge: {} {observed}, {denied} {would}",
            count(&hits, "hit", total.hits)
        );
        return Judgement { code: JudgementCode::TooLittleTraffic, text };
    }
    let Some(window) = &evidence.window else {
        let text = format!(
            "too many rules have traffic to judge this one: only totals are known ({} hits, {} denied {observed})",
            number(total.hits),
            number(all_denied(total))
        );
        return Judgement { code: JudgementCode::Unknown, text };
    };
    if all_denied(total) == 0 {
        return without_denial(evidence, window, &observed);
    }
    if all_denied(window) == 0 {
        let last = evidence.last_denied.map(|at| evidence.now.since(at));
        let last =
            last.map_or_else(|| "earlier".to_owned(), |ago| format!("{} ago", span_words(ago)));
        let in_window = span_words(evidence.now.since(evidence.window_since));
        let verb = if evidence.is_shadow { "would not have fired" } else { "has not fired" };
        let text = format!("{verb} in the last {in_window}; its last denial was {last}");
        return Judgement { code: JudgementCode::NotFiredLately, text };
    }
    denying(evidence, window)
}

fn without_denial(evidence: &Evidence, window: &RuleHits, observed: &str) -> Judgement {
    let fired = if evidence.is_shadow { "would never have fired" } else { "never fired" };
    if window.near_limit * 100 >= window.hits.max(1) * NEAR_PERCENT_MIN {
        let near = percent(window.near_limit, window.hits);
        let text = format!(
            "{fired} {observed}, and {near} of its hits are near the limit: more traffic will be denied"
        );
        return Judgement { code: JudgementCode::NearLimit, text };
    }
    let text = format!("{fired} {observed}, in {} hits", number(evidence.total.hits));
    Judgement { code: JudgementCode::NeverFired, text }
}

fn denying(evidence: &Evidence, window: &RuleHits) -> Judgement {
    let verb = if evidence.is_shadow { "would deny" } else { "denies" };
    let denied = percent(all_denied(window), window.hits);
    let mut text = format!("{verb} {denied} of hits");
    let is_many_hits = all_denied(window) * 100 >= window.hits * STRICT_HITS_PERCENT_MIN;
    let too_strict_for_all = |text: String| match is_many_hits {
        true => Judgement {
            code: JudgementCode::TooStrict,
            text: format!("{text}: probably too strict"),
        },
        false => Judgement { code: JudgementCode::Limiting, text },
    };
    if evidence.is_global {
        text.push_str(", of a limit that all requests share");
        return too_strict_for_all(text);
    }
    let (Some(identities), Some(limited)) = (evidence.identities, evidence.denied_identities)
    else {
        return Judgement { code: JudgementCode::Limiting, text };
    };
    let limited = limited.clamp(1, identities.max(1));
    // Writing to a string does not fail.
    let _ = write!(
        text,
        ", from {} of {}",
        number(limited),
        count(&number(identities), "identity", identities)
    );
    let is_few = limited <= ABUSERS_MAX || limited * 100 <= identities * ABUSERS_PERCENT_MAX;
    if identities < IDENTITIES_MIN {
        return too_strict_for_all(text);
    }
    if is_few && limited * 100 < identities * STRICT_PERCENT_MIN {
        let source = if limited == 1 { "an abuser" } else { "abusers" };
        return Judgement {
            code: JudgementCode::Abusers,
            text: format!("{text}: probably {source}"),
        };
    }
    let share = percent(limited, identities);
    if limited * 100 >= identities * STRICT_PERCENT_MIN {
        let text = format!("{text} ({share}): probably too strict");
        return Judgement { code: JudgementCode::TooStrict, text };
    }
    let text = format!("{text} ({share}): it limits the heaviest identities");
    Judgement { code: JudgementCode::Limiting, text }
}

const fn all_denied(hits: &RuleHits) -> u64 {
    hits.denied.saturating_add(hits.shadow_denied)
}

/// `since the node started 3 h ago`.
fn since_words(evidence: &Evidence) -> String {
    let ago = span_words(evidence.now.since(evidence.since));
    match evidence.is_since_start {
        _ if evidence.is_candidate => format!("since the candidate began {ago} ago"),
        true => format!("since the node started {ago} ago"),
        false => format!("since the rule has these limits, {ago} ago"),
    }
}

/// A time in its largest unit, rounded down.
fn span_words(span: Span) -> String {
    let seconds = span.as_micros() / 1_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A share in percent, with one digit behind the point below ten; never 0 % of something.
fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1_000 + u128::from(whole) / 2) / u128::from(whole.max(1));
    match tenths {
        0 if part > 0 => "less than 0.1 %".to_owned(),
        0..100 => format!("{}.{} %", tenths / 10, tenths % 10),
        _ => format!("{} %", (tenths + 5) / 10),
    }
}

/// A number with separators: `14,000`.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn count(number: &str, noun: &str, of: u64) -> String {
    match (of, noun) {
        (1, _) => format!("{number} {noun}"),
        (_, "identity") => format!("{number} identities"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_794_744_000_000_000);

    /// An hour's hits, denied hits, identities and denied identities of a rule that was observed
    /// for three hours.
    fn evidence(hits: u64, denied: u64, identities: u64, limited: u64) -> Evidence {
        let hits = RuleHits { hits, denied, ..RuleHits::default() };
        Evidence {
            now: NOW,
            since: NOW.before(Span::from_secs(3 * 3_600)),
            is_since_start: true,
            total: hits,
            window_since: NOW.before(Span::from_secs(3_600)),
            window: Some(hits),
            identities: Some(identities),
            denied_identities: Some(limited),
            ..Evidence::default()
        }
    }

    fn near(mut evidence: Evidence, near_limit: u64) -> Evidence {
        evidence.window = evidence.window.map(|window| RuleHits { near_limit, ..window });
        evidence
    }

    fn shadow(mut evidence: Evidence) -> Evidence {
        let shadow = |hits: RuleHits| RuleHits { shadow_denied: hits.denied, denied: 0, ..hits };
        (evidence.total, evidence.window) = (shadow(evidence.total), evidence.window.map(shadow));
        Evidence { is_shadow: true, ..evidence }
    }

    #[test]
    fn judgements_have_the_figures_behind_them() {
        use JudgementCode as Code;
        let minutes = |evidence: Evidence, count: u32| Evidence {
            since: NOW.before(Span::from_secs(60 * u64::from(count))),
            ..evidence
        };
        let changed = |evidence: Evidence| Evidence { is_since_start: false, ..evidence };
        let last_denied = Some(NOW.before(Span::from_secs(3 * 86_400)));
        let quiet = Evidence {
            total: evidence(900, 7, 0, 0).total,
            last_denied,
            ..evidence(800, 0, 80, 0)
        };
        let table = [
            (
                evidence(0, 0, 0, 0),
                Code::NeverMatched,
                "never matched since the node started 3 h ago",
            ),
            (
                changed(minutes(evidence(0, 0, 0, 0), 1)),
                Code::NeverMatched,
                "never matched since the rule has these limits, 60 s ago",
            ),
            (
                minutes(evidence(99, 40, 5, 1), 10),
                Code::TooLittleTraffic,
                "too little traffic to judge: 99 hits since the node started 10 min ago, 40 denied",
            ),
            (
                evidence(1_234_567, 0, 500, 0),
                Code::NeverFired,
                "never fired since the node started 3 h ago, in 1,234,567 hits",
            ),
            (
                near(evidence(1_000, 0, 50, 0), 140),
                Code::NearLimit,
                "never fired since the node started 3 h ago, and 14 % of its hits are near the limit: more \
                 traffic will be denied",
            ),
            (
                near(evidence(1_000, 0, 50, 0), 49),
                Code::NeverFired,
                "never fired since the node started 3 h ago, in 1,000 hits",
            ),
            (
                quiet,
                Code::NotFiredLately,
                "has not fired in the last 60 min; its last denial was 3 days ago",
            ),
            (
                evidence(100_000, 38_000, 14_000, 2),
                Code::Abusers,
                "denies 38 % of hits, from 2 of 14,000 identities: probably abusers",
            ),
            (
                evidence(900, 30, 40, 1),
                Code::Abusers,
                "denies 3.3 % of hits, from 1 of 40 identities: probably an abuser",
            ),
            (
                evidence(10_000, 1_200, 300, 180),
                Code::TooStrict,
                "denies 12 % of hits, from 180 of 300 identities (60 %): probably too strict",
            ),
            (
                evidence(10_000, 3, 900, 40),
                Code::Limiting,
                "denies less than 0.1 % of hits, from 40 of 900 identities (4.4 %): it limits the heaviest identities",
            ),
            (
                evidence(1_000, 600, 3, 2),
                Code::TooStrict,
                "denies 60 % of hits, from 2 of 3 identities: probably too strict",
            ),
            (
                evidence(1_000, 50, 3, 1),
                Code::Limiting,
                "denies 5.0 % of hits, from 1 of 3 identities",
            ),
            (
                Evidence { is_global: true, ..evidence(1_000, 300, 1, 1) },
                Code::TooStrict,
                "denies 30 % of hits, of a limit that all requests share: probably too strict",
            ),
            (
                Evidence { identities: None, ..evidence(1_000, 300, 0, 0) },
                Code::Limiting,
                "denies 30 % of hits",
            ),
            (
                shadow(evidence(10_000, 1_200, 300, 180)),
                Code::TooStrict,
                "would deny 12 % of hits, from 180 of 300 identities (60 %): probably too strict",
            ),
            (
                shadow(evidence(10_000, 0, 300, 0)),
                Code::NeverFired,
                "would never have fired since the node started 3 h ago, in 10,000 hits",
            ),
            (
                Evidence { window: None, ..evidence(1_000, 300, 1, 1) },
                Code::Unknown,
                "too many rules have traffic to judge this one: only totals are known (1,000 hits, 300 denied since \
                 the node started 3 h ago)",
            ),
        ];
        for (evidence, code, text) in table {
            let judgement = judge(&evidence);
            assert_eq!((judgement.code, &*judgement.text), (code, text), "{evidence:?}");
        }
    }
}
