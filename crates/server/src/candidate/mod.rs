//! A candidate: rules that are tried on live traffic beside the enforced ones, and change no
//! answer.
//!
//! ```text
//!   rule store     which revision is the candidate, and its files
//!   follow         begins a run of it; ends it when it is activated, withdrawn or superseded
//!   App::code_of   after the enforced decision, the run checks the same request
//!   run            outcomes by pair, its rules, identities of requests with another outcome
//! ```
//!
//! A run counts in memory of its own, for this node alone and from its beginning: nothing is read
//! from or written to Redis. Only checks and the estimates of reservations are counted: refunds,
//! settlements and resets are not repeated, and concurrency limits, whose slots a run could not
//! release, are left out. Without a candidate, a request costs one load of a flag.

mod differences;
mod follow;
mod run;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Snapshot};
use sluicegate_rulestore::Revision;

pub(crate) use self::follow::follow;
pub use self::run::{CandidateRun, IDENTITIES_MAX, RequestPairs, RunOptions};
use crate::app::App;
use crate::metrics::{MetricsSource, Page};

/// The candidate of this node, if there is one.
#[derive(Debug, Default)]
pub struct Candidate {
    is_running: AtomicBool,
    run: ArcSwapOption<CandidateRun>,
    failure: Mutex<Option<CandidateFailure>>,
}

/// A candidate that does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateFailure {
    /// The revision.
    pub revision: Revision,
    /// Why.
    pub error: String,
}

impl Candidate {
    /// The run, if there is one.
    #[inline]
    #[must_use]
    pub fn running(&self) -> Option<Arc<CandidateRun>> {
        if !self.is_running.load(Ordering::Relaxed) {
            return None;
        }
        self.run.load_full()
    }

    /// Has the candidate, if one runs, check a request that the enforced rules have decided.
    #[inline]
    pub(crate) fn observe(
        &self,
        app: &App,
        enforced: &Snapshot<'_>,
        request: &Request<'_>,
        decided: &Checked,
    ) {
        if !self.is_running.load(Ordering::Relaxed) {
            return;
        }
        // No count of references, which all threads would share.
        if let Some(run) = &*self.run.load() {
            run.observe(app, enforced, request, decided);
        }
    }

    /// Why the candidate does not run, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<CandidateFailure> {
        self.failure.lock().clone()
    }

    /// Begins a run, in place of another.
    pub fn begin(&self, run: CandidateRun) {
        *self.failure.lock() = None;
        self.run.store(Some(Arc::new(run)));
        self.is_running.store(true, Ordering::Relaxed);
    }

    /// Ends the run, if there is one.
    pub fn end(&self, failure: Option<CandidateFailure>) {
        self.is_running.store(false, Ordering::Relaxed);
        self.run.store(None);
        *self.failure.lock() = failure;
    }

    /// The candidate that runs or has failed.
    fn revision(&self) -> Option<Revision> {
        let run = self.running().map(|run| run.revision().clone());
        run.or_else(|| self.failure().map(|failure| failure.revision))
    }
}

impl MetricsSource for Candidate {
    fn put(&self, page: &mut Page) {
        let run = self.running();
        let help = "Revision of the candidate that runs beside the enforced rules; 0 for none.";
        let number = run.as_ref().map_or(0, |run| run.revision().number);
        page.gauge("sluicegate_candidate_revision", help).value(number);
        let help = "1 if there is a candidate that cannot run, else 0.";
        let failed = self.failure.lock().is_some();
        page.gauge("sluicegate_candidate_failed", help).value(u8::from(failed));
        let help = "Requests that the candidate has checked, by outcome under both sets of rules.";
        let pairs = run.map_or_else(RequestPairs::default, |run| run.requests());
        page.counter("sluicegate_candidate_requests_total", help).each("outcome", pairs.named());
    }
}
