//! What a limit would have decided, by the core, in the part of the log that it was chosen from and
//! in the part held out.
//!
//! States continue from one part to the other, as they would in service.

use sluicegate_core::limit::{Limit, State};
use sluicegate_core::time::{Span, Timestamp};

use super::shape::{decide, rolling_peak};
use super::usage::UsageByClient;

/// Denials in a part of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartOutcome {
    /// Clients with a request.
    pub clients: usize,
    /// Those with a denied request.
    pub denied_clients: usize,
    /// Clients that the goal counts: those without extreme usage, or all.
    pub counted_clients: usize,
    /// Those with a denied request.
    pub denied_counted_clients: usize,
    /// Requests.
    pub requests: u64,
    /// Denied requests.
    pub denied_requests: u64,
}

/// A client with denied requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeniedClient {
    /// Its number.
    pub client: u32,
    /// Its requests.
    pub requests: u64,
    /// Those that are denied.
    pub denied: u64,
    /// The most requests in any horizon.
    pub peak: u64,
    /// Whether its usage is extreme, where the goal distinguishes.
    pub is_extreme: bool,
}

/// What a limit decides.
#[derive(Debug, Clone, Default)]
pub struct LimitOutcome {
    /// The part that the limit was chosen from.
    pub training: PartOutcome,
    /// The part held out.
    pub held_out: PartOutcome,
    /// The clients with the most denied requests in both parts.
    pub worst: Vec<DeniedClient>,
}

/// How outcomes are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutcomeOptions {
    /// Where the part held out begins.
    pub(super) split: Timestamp,
    /// The span of peaks.
    pub(super) horizon: Span,
    /// The largest peak that is not extreme.
    pub(super) peak_max: u64,
}

/// Clients that are listed.
const WORST_SHOWN: usize = 20;

impl PartOutcome {
    /// Denied requests of all.
    #[must_use]
    pub fn request_share(&self) -> f64 {
        self.denied_requests as f64 / self.requests.max(1) as f64
    }

    /// Denied clients of those that the goal counts.
    #[must_use]
    pub fn client_share(&self) -> f64 {
        self.denied_counted_clients as f64 / self.counted_clients.max(1) as f64
    }

    fn add(&mut self, requests: u64, denied: u64, is_extreme: bool) {
        let (has_any, is_denied) = (usize::from(requests > 0), usize::from(denied > 0));
        self.clients += has_any;
        self.denied_clients += is_denied;
        if !is_extreme {
            self.counted_clients += has_any;
            self.denied_counted_clients += is_denied;
        }
        self.requests += requests;
        self.denied_requests += denied;
    }
}

/// Decides all requests.
pub(super) fn outcome(
    limit: &Limit,
    usage: &UsageByClient,
    options: OutcomeOptions,
) -> LimitOutcome {
    let decided = usage.map_clients(|requests| {
        let mut state = State::New;
        let split = requests.partition_point(|request| request.at < options.split);
        let (training, held_out) = requests.split_at(split);
        [training, held_out].map(|part| {
            let denied = part.iter().filter(|request| !decide(limit, &mut state, request)).count();
            let is_extreme = options.peak_max < u64::MAX
                && rolling_peak(part, options.horizon) > options.peak_max;
            (part.len() as u64, denied as u64, is_extreme)
        })
    });
    let mut outcome = LimitOutcome::default();
    let mut denied = Vec::new();
    for (index, [training, held_out]) in decided.into_iter().enumerate() {
        outcome.training.add(training.0, training.1, training.2);
        outcome.held_out.add(held_out.0, held_out.1, held_out.2);
        if training.1 + held_out.1 > 0 {
            denied.push((training.1 + held_out.1, index, training.2 || held_out.2));
        }
    }
    denied.sort_unstable_by(|one, next| next.0.cmp(&one.0).then(one.1.cmp(&next.1)));
    denied.truncate(WORST_SHOWN);
    let listed = denied.into_iter().map(|(denied, index, is_extreme)| {
        let requests = usage.client(index);
        DeniedClient {
            client: requests.first().map_or(0, |request| request.client),
            requests: requests.len() as u64,
            denied,
            peak: rolling_peak(requests, options.horizon),
            is_extreme,
        }
    });
    outcome.worst = listed.collect();
    outcome
}
