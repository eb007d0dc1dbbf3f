//! A recommendation in plain words, the most important first: for the terminal, the report, and the
//! comments of the rules file.

use sluicegate::explain::rule::text::{counted, grouped, plainly};
use sluicegate_config::units::show_span;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::zone::show_moment;

use super::goal::{TuneGoal, number, percent};
use super::outcome::{LimitOutcome, PartOutcome};
use super::protect::{ProtectingLimit, Protection};
use super::requests::DeniedShare;
use super::resample::{CLIENTS_MIN, Stability};
use super::statistics::share_at_most;
use super::{Basis, Recommendation, Shortage, TuneResult, Tuning};

/// A client with more of all requests is named in the findings.
const BUSIEST_SHARE: f64 = 0.2;
/// More clients with a single request are.
const SINGLE_REQUEST_SHARE: f64 = 0.3;

impl Tuning {
    /// Findings, in which backticks mark values.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        let mut findings = match &self.result {
            TuneResult::Limit(limit) => self.about_limit(limit),
            TuneResult::Protection(protection) => self.about_protection(protection),
            TuneResult::Shortage(shortage) => self.about_shortage(shortage),
        };
        findings.extend(self.about_good());
        findings.extend(self.about_traffic());
        findings
    }

    /// What was examined, in a line.
    #[must_use]
    pub fn subject(&self) -> String {
        let facts = &self.facts;
        format!(
            "{} of {} from {} to {} ({})",
            counted(facts.requests, "request"),
            counted(facts.clients, "client"),
            shown_time(facts.first),
            shown_time(facts.last),
            rounded(facts.last.since(facts.first)),
        )
    }

    fn about_limit(&self, limit: &Recommendation) -> Vec<String> {
        let words = limit.shape.words(limit.size);
        let confidence = percent(self.options.confidence);
        let goal = self.goal;
        let mut findings = Vec::new();
        match limit.basis {
            Basis::Clients { sample, tolerated, interval, estimate, stability, .. } => {
                let share = goal.denied_share().map_or_else(String::new, percent);
                let clients = if self.good.is_some() { "good clients" } else { "clients" };
                findings.push(format!(
                    "`{words}` for each client: with {confidence} confidence it denies at most \
                     {share} of {clients} like these, in a time as long as the {} that it was chosen \
                     from.",
                    rounded(self.facts.split.since(self.facts.first)),
                ));
                let [low, high] = interval;
                findings.push(format!(
                    "It was chosen from {}, of which {} need more. The size that exactly {share} \
                     exceed is estimated as {} (from {} to {}, each bound with {confidence} \
                     confidence); recommended is the upper bound.",
                    counted(sample, "client"),
                    grouped(tolerated as u64),
                    grouped(estimate),
                    grouped(low),
                    grouped(high),
                ));
                findings.extend(self.held_out(limit));
                findings.extend(stability.map(|stability| varies(&stability)));
            }
            Basis::Requests(share) => {
                findings.push(self.about_requests(&words, &share));
                findings.extend(self.held_out(limit));
            }
        }
        let horizon = show_span(self.options.horizon);
        findings.push(format!(
            "A client that uses all of it is admitted at most {} in any `{horizon}`, and {} in any \
             `1day`. No other {} with the same promise admits less in `{horizon}`.",
            grouped(limit.admitted_max),
            grouped(limit.shape.admitted_max(limit.size, Span::from_secs(86_400))),
            match self.curve.first().map(|point| point.shape) {
                Some(super::shape::LimitShape::TokenBucket(_)) => "pair of rate and burst",
                _ => "limit of this window",
            },
        ));
        findings
    }

    fn about_requests(&self, words: &str, share: &DeniedShare) -> String {
        let estimate = percent(share.estimate);
        match share.interval {
            Some([low, high]) => format!(
                "`{words}` for each client denies {estimate} of the requests that it was chosen from; \
                 with other clients of the same kind from {} to {} (bootstrap, each bound with {} \
                 confidence). The upper bound is within the goal.",
                percent(low),
                percent(high),
                percent(self.options.confidence),
            ),
            None => format!(
                "`{words}` for each client denies {estimate} of the requests that it was chosen from. \
                 There is no confidence interval: {} are too few to be resampled, at least \
                 {CLIENTS_MIN} are needed. Only the part held out shows what to expect.",
                counted(self.facts.training_clients, "client"),
            ),
        }
    }

    /// Whether the promise held on the part that was held out.
    fn held_out(&self, limit: &Recommendation) -> Option<String> {
        let LimitOutcome { held_out, .. } = &limit.outcome;
        if held_out.requests == 0 {
            return Some(
                "Nothing was held out: the promise was not checked on requests that it was not \
                 chosen from."
                    .to_owned(),
            );
        }
        let facts = format!(
            "On the last {}, held out, it would have denied {}",
            rounded(self.facts.last.since(self.facts.split)),
            denials(held_out, self.good.is_some()),
        );
        let verdict = match limit.basis {
            Basis::Clients { predicted_held_out, .. } => {
                let share = self.goal.denied_share().unwrap_or(0.0);
                let within = held_out.client_share() <= share;
                match held_out.denied_counted_clients > predicted_held_out {
                    true if within => "The promise holds".to_owned(),
                    true => format!(
                        "That is more than the {} that chance explains: the traffic has changed, and \
                         the promise does not hold for what comes. Tune on newer requests",
                        grouped(predicted_held_out as u64)
                    ),
                    false if within => "The promise holds".to_owned(),
                    false => format!(
                        "That is above the goal, and within the {} that chance explains for so few \
                         clients",
                        grouped(predicted_held_out as u64)
                    ),
                }
            }
            Basis::Requests(_) => match self.goal {
                TuneGoal::DenyAtMost { share, .. } if held_out.request_share() <= share => {
                    "That is within the goal".to_owned()
                }
                _ => "That is above the goal: heavy clients differ from those before, or the \
                      traffic has changed"
                    .to_owned(),
            },
        };
        Some(format!("{facts}. {verdict}."))
    }

    fn about_protection(&self, protection: &Protection) -> Vec<String> {
        let TuneGoal::Protect { capacity, window } = self.goal else { return Vec::new() };
        let window = show_span(window);
        let overall = protection.overall;
        let mut findings = Vec::new();
        let peak = format!(
            "Without limits the peak is {} in `{window}`, from {}, at {}",
            grouped(protection.peak),
            counted(protection.peak_clients, "client"),
            shown_time(protection.peak_at),
        );
        findings.push(match protection.peak > capacity {
            true => format!("{peak}: above the capacity of {}.", grouped(capacity)),
            false => format!(
                "{peak}: the capacity of {} is not reached, and no limit is needed for this traffic.",
                grouped(capacity)
            ),
        });
        match &protection.per_client {
            Some(limit) => {
                findings.push(format!(
                    "`{}` for each client holds the capacity at the least cost: {}. The peak is then \
                     {} in `{window}`.",
                    limit.shape.words(limit.size),
                    cost(limit),
                    grouped(limit.training.peak),
                ));
                let held_out = limit.held_out;
                if held_out.requests > 0 {
                    let holds = if held_out.peak <= capacity { "holds" } else { "does not hold" };
                    findings.push(format!(
                        "On the part held out the limit per client {holds} the capacity: the peak is \
                         {}, and it denies {} of {} requests. The limit of all denies {} beside it.",
                        grouped(held_out.peak),
                        grouped(held_out.denied_requests),
                        grouped(held_out.requests),
                        grouped(protection.overall_denied[1]),
                    ));
                }
            }
            None => findings.push(format!(
                "No limit per client holds the capacity: {} send at once. The limit of all binds.",
                counted(protection.peak_clients, "client")
            )),
        }
        findings.push(format!(
            "`{}` for all clients together guarantees the capacity, whatever comes. Alone {}.",
            overall.shape.words(overall.size),
            cost(&overall),
        ));
        if let Some(limit) = &protection.per_client {
            findings.push(binding(limit, protection));
        }
        findings
    }

    fn about_shortage(&self, shortage: &Shortage) -> Vec<String> {
        let sample = counted(shortage.sample, "client");
        let confidence = percent(self.options.confidence);
        let mut findings = vec![format!(
            "Too few clients: to {} with {confidence} confidence, at least {} are needed, and the \
             log has {sample} in the part that limits are chosen from. No limit is recommended.",
            self.goal,
            grouped(shortage.needed),
        )];
        if shortage.attainable < 0.5 {
            let share = (shortage.attainable * 1e4).ceil() / 1e4;
            let remedy = match self.goal {
                TuneGoal::ServeGood { .. } => {
                    format!("`--keep 'p{} of good clients'`", number((1.0 - share) * 100.0))
                }
                _ => format!("`--deny-at-most '{} of users'`", percent(share)),
            };
            findings.push(format!(
                "If a limit denies none of {sample}, it denies at most {} of all with this \
                 confidence: {remedy} is the strictest goal that this log supports. Take more days, \
                 hold out less (`--hold-out`), or lower `--confidence`.",
                percent(shortage.attainable),
            ));
        } else {
            findings.push(
                "A share of clients cannot be judged from so few: take `--deny-at-most '… of \
                 requests'`, or another part of the request as the client."
                    .to_owned(),
            );
        }
        findings
    }

    fn about_good(&self) -> Option<String> {
        let good = self.good.as_ref()?;
        let horizon = show_span(self.options.horizon);
        Some(format!(
            "Good clients are those with a peak of at most {} in `{horizon}`: {} of {}. The bound is \
             where a tail that continues as it runs from the 75th ({}) to the 95th percentile ({}) has \
             its largest client in 99 of 100 logs. The {} above it may be denied.",
            grouped(good.peak_max),
            grouped(good.good as u64),
            counted(good.good + good.abusers, "client"),
            grouped(good.p75),
            grouped(good.p95),
            grouped(good.abusers as u64),
        ))
    }

    fn about_traffic(&self) -> Vec<String> {
        let facts = &self.facts;
        let mut findings = Vec::new();
        let single = facts.single_request_clients as f64 / facts.clients.max(1) as f64;
        if single > SINGLE_REQUEST_SHARE && self.goal.denied_share().is_some() {
            findings.push(format!(
                "{} of clients sent a single request. They are denied by no limit, and count as \
                 users: the share of regular clients that is denied is larger.",
                percent(single)
            ));
        }
        if facts.clients > 1 && facts.busiest_share > BUSIEST_SHARE {
            findings.push(format!(
                "One client sent {} of all requests: figures about requests are mostly about it (they \
                 weigh as {} equal clients).",
                percent(facts.busiest_share),
                number(facts.effective_clients),
            ));
        }
        if !facts.resolution.is_zero() {
            let unit = show_span(facts.resolution);
            findings.push(format!(
                "Times of the log are multiples of `{unit}`. Sizes are those of the worst case: \
                 requests may have come up to `{unit}` closer to each other."
            ));
        }
        findings
    }
}

fn varies(stability: &Stability) -> String {
    let [slow, fast] = stability.rates.map(|(shape, size)| shape.words(size));
    let [low, high] = stability.admitted;
    match slow == fast {
        true => "With other clients of the same kind the recommended pair is the same \
                 (bootstrap, 90 % of the resamples)."
            .to_owned(),
        false => format!(
            "With other clients of the same kind it would be from `{slow}` to `{fast}`, which admit \
             {} to {} (bootstrap, 90 % of the resamples).",
            grouped(low),
            grouped(high),
        ),
    }
}

/// Denied clients and requests of a part.
fn denials(part: &PartOutcome, counts_good: bool) -> String {
    let clients = if counts_good { "good clients" } else { "clients" };
    let upper = share_at_most(part.denied_counted_clients, part.counted_clients, 0.95);
    format!(
        "{} of {} {clients} ({}, at most {} with 95 % confidence) and {} of {} requests ({})",
        grouped(part.denied_counted_clients as u64),
        grouped(part.counted_clients as u64),
        percent(part.client_share()),
        percent(upper),
        grouped(part.denied_requests),
        grouped(part.requests),
        percent(part.request_share()),
    )
}

/// Which of two limits denies requests.
fn binding(limit: &ProtectingLimit, protection: &Protection) -> String {
    let (own, alone) = (limit.training, protection.overall.training);
    match (own.denied_requests, protection.overall_denied[0]) {
        (0, 0) => "Neither limit denies a request of the part they were chosen from.".to_owned(),
        (_, 0) => format!(
            "With both, the limit per client binds: the limit of all denies nothing beside it, and is \
             for what has not been recorded. The limit per client denies {}, the limit of all alone \
             would have denied {}.",
            counted(own.denied_clients, "client"),
            counted(alone.denied_clients, "client"),
        ),
        (_, denied) => format!(
            "With both, both bind: the limit of all denies {} beside the limit per client, because a \
             bucket denies what comes unevenly.",
            counted(denied as usize, "request")
        ),
    }
}

fn cost(limit: &ProtectingLimit) -> String {
    let training = limit.training;
    format!(
        "it denies {} of {} requests ({}), of {}",
        grouped(training.denied_requests),
        grouped(training.requests),
        percent(training.denied_requests as f64 / training.requests.max(1) as f64),
        counted(training.denied_clients, "client"),
    )
}

/// A duration with two or three digits.
pub(super) fn rounded(span: Span) -> String {
    let seconds = span.as_micros() as f64 / 1e6;
    let (value, unit) = match seconds {
        s if s < 1.0 => (s * 1e3, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    format!("{} {unit}", number((value * 10.0).round() / 10.0))
}

/// A time in UTC, without a fraction.
pub(super) fn shown_time(at: Timestamp) -> String {
    plainly(&show_moment(Timestamp::from_micros(at.as_micros() / 1_000_000 * 1_000_000)))
}
