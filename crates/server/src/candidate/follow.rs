//! Begins and ends runs as the rule store says.

use std::time::Duration;

use sluicegate_rulestore::{Revision, RuleStore};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::run::{CandidateRun, RunOptions};
use super::{Candidate, CandidateFailure};
use crate::app::App;
use crate::logs::events;

/// How often the store's candidate is compared with the one that runs.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Pause after a candidate that could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Follows the candidate of the store, for ever; returns at once without a store.
pub(crate) async fn follow(app: &App, options: &RunOptions) {
    let Some(store) = app.rule_store() else { return };
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut retry_at = Instant::now();
    loop {
        ticks.tick().await;
        let candidate = app.candidate();
        let wanted = store.overview().candidate;
        let is_same = is_same(wanted.as_ref(), candidate.revision().as_ref());
        if !is_same || candidate.failure().is_some() && Instant::now() >= retry_at {
            retry_at = Instant::now() + RETRY_AFTER;
            change(app, store, wanted, options).await;
        }
        if let Some(run) = candidate.running()
            && let Err(error) = run.tick(app, app.engine().now())
        {
            fail(candidate, run.revision().clone(), error);
        }
    }
}

fn is_same(one: Option<&Revision>, other: Option<&Revision>) -> bool {
    let id = |revision: &Revision| (revision.number, revision.at, revision.digest.clone());
    one.map(id) == other.map(id)
}

/// Begins the run of another candidate, or ends the last.
async fn change(app: &App, store: &RuleStore, wanted: Option<Revision>, options: &RunOptions) {
    let candidate = app.candidate();
    let Some(wanted) = wanted else {
        if let Some(ended) = candidate.revision() {
            candidate.end(None);
            events::candidate_ended(ended.number);
        }
        return;
    };
    let stored = match store.revision(wanted.number).await {
        Ok(stored) => stored,
        Err(error) => return fail(candidate, wanted, error.to_string()),
    };
    let (starting, options) = (app.clone(), options.clone());
    let start = move || CandidateRun::start(&starting, stored, &options);
    let started = tokio::task::spawn_blocking(start).await;
    match started.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(run) => {
            candidate.begin(run);
            events::candidate_began(wanted.number, &wanted.note);
        }
        Err(error) => fail(candidate, wanted, error),
    }
}

/// The candidate is off.
fn fail(candidate: &Candidate, revision: Revision, error: String) {
    let failure = CandidateFailure { revision, error };
    // Reported once, however often it is retried.
    if candidate.failure().as_ref() != Some(&failure) {
        events::candidate_failed(failure.revision.number, &failure.error);
    }
    candidate.end(Some(failure));
}
