//! What is told about a request.

use std::sync::Arc;

use ::http::{HeaderMap, Response};
use bytes::Bytes;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict, judge};

use crate::http::{Style, Told};
use crate::{Denied, Policy};

/// A verdict with all it takes to tell it.
pub(in crate::tower) struct Said {
    pub(super) verdict: Verdict,
    pub(super) policies: Arc<[Policy]>,
    pub(super) now: Timestamp,
}

/// What a group of limiters said.
pub(super) struct Heard {
    pub(super) verdict: Verdict,
    /// Where their limits begin among all.
    pub(super) place: usize,
    /// Whether any of them is obeyed.
    pub(super) enforced: bool,
}

/// What is asked to wait who was not even heard because too many are waiting already: nobody knows how long that will be.
const REFUSED_RETRY_AFTER: Span = Span::from_secs(1);

// === impl Said ===

impl Said {
    pub(super) const fn is_allowed(&self) -> bool {
        self.verdict.is_allowed()
    }

    /// The answer to a denied request.
    pub(in crate::tower) fn denial(&self, style: &Style, grpc: bool) -> Response<Bytes> {
        let told = self.told();
        let denial = if grpc {
            told.grpc_denial(style).map(|response| response.map(|()| Bytes::new()))
        } else {
            told.denial(style).map(|response| response.map(Bytes::from))
        };
        // There is always one: nobody asks about what was allowed.
        denial.unwrap_or_default()
    }

    /// Writes on the response to an admitted request.
    pub(in crate::tower) fn write_headers(&self, style: &Style, headers: &mut HeaderMap) {
        self.told().write_headers(style, headers);
    }

    fn told(&self) -> Told<'_> {
        Told { verdict: &self.verdict, policies: &self.policies, now: self.now }
    }
}

/// The verdict of a denial by limits that stand from `place` on among all.
pub(super) fn denial(denied: Denied, place: usize) -> Verdict {
    match denied {
        Denied::NotNow(verdict) => {
            Verdict { decided_by: verdict.decided_by.map(|by| by + place), ..verdict }
        }
        Denied::Refused(_) => {
            Verdict { outcome: Outcome::Deny { retry_after: REFUSED_RETRY_AFTER }, ..judge(&[]) }
        }
    }
}

/// What limiters say together that have agreed one after the other.
pub(super) fn all_agreed(heard: &[Heard]) -> Verdict {
    let speaks = |Heard { verdict, enforced, .. }: &Heard| Decision {
        outcome: verdict.outcome,
        enforced: true,
        // Of limits in the shadow nobody is told while there are others.
        remaining: verdict.remaining.filter(|_| *enforced),
        reset_after: if *enforced { verdict.reset_after } else { Span::ZERO },
        beyond: verdict.beyond,
        soft: verdict.soft,
        elastic: verdict.elastic,
    };
    let shadow = |Heard { verdict, .. }: &Heard| {
        Some(Decision {
            outcome: verdict.shadow?,
            enforced: false,
            remaining: None,
            reset_after: Span::ZERO,
            beyond: 0,
            soft: false,
            elastic: false,
        })
    };
    let decisions: Vec<Decision> =
        heard.iter().map(speaks).chain(heard.iter().filter_map(shadow)).collect();
    let all = judge(&decisions);
    let decider = all.decided_by.and_then(|group| heard.get(group));
    let decided_by =
        decider.and_then(|Heard { verdict, place, .. }| verdict.decided_by.map(|by| by + place));
    Verdict { decided_by, ..all }
}
