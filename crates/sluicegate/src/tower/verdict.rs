//! The verdict on a request, with the data for the response.

use std::sync::Arc;

use ::http::{HeaderMap, Response};
use bytes::Bytes;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict, judge};

use crate::http::{Style, VerdictResponse};
use crate::{Denied, Policy};

/// A verdict with its policies and time, from which the response is written.
pub(super) struct OwnedVerdict {
    pub(super) verdict: Verdict,
    pub(super) policies: Arc<[Policy]>,
    pub(super) now: Timestamp,
}

/// The verdict of a group of limiters.
pub(super) struct GroupVerdict {
    pub(super) verdict: Verdict,
    /// Index of their first limit among all.
    pub(super) index: usize,
    /// Whether any of them is enforced.
    pub(super) enforced: bool,
}

/// Wait of a request denied by a full queue: the actual time is unknown.
const REFUSED_RETRY_AFTER: Span = Span::from_secs(1);

impl OwnedVerdict {
    pub(super) const fn is_allowed(&self) -> bool {
        self.verdict.is_allowed()
    }

    /// The response to a denied request.
    pub(super) fn denial(&self, style: &Style, grpc: bool) -> Response<Bytes> {
        let response = self.response();
        let denial = if grpc {
            response.grpc_denial(style).map(|response| response.map(|()| Bytes::new()))
        } else {
            response.denial(style).map(|response| response.map(Bytes::from))
        };
        // Only called for denials, which always have a response.
        denial.unwrap_or_default()
    }

    /// Writes the headers of the response to an admitted request.
    pub(super) fn write_headers(&self, style: &Style, headers: &mut HeaderMap) {
        self.response().write_headers(style, headers);
    }

    fn response(&self) -> VerdictResponse<'_> {
        VerdictResponse { verdict: &self.verdict, policies: &self.policies, now: self.now }
    }
}

/// The verdict of a denial.
pub(super) fn denial(denied: Denied) -> Verdict {
    match denied {
        Denied::NotNow(verdict) => verdict,
        Denied::Refused(_) | Denied::Store(_) => {
            Verdict { outcome: Outcome::Deny { retry_after: REFUSED_RETRY_AFTER }, ..judge(&[]) }
        }
    }
}

/// The verdict of limits whose indices start at `index`.
pub(super) fn shifted(verdict: Verdict, index: usize) -> Verdict {
    Verdict { decided_by: verdict.decided_by.map(|by| by + index), ..verdict }
}

/// Joins the verdicts of groups that all admitted the request.
pub(super) fn all_agreed(groups: &[GroupVerdict]) -> Verdict {
    let decision = |GroupVerdict { verdict, enforced, .. }: &GroupVerdict| Decision {
        outcome: verdict.outcome,
        enforced: true,
        // Shadow limits are not shown beside enforced ones.
        remaining: verdict.remaining.filter(|_| *enforced),
        reset_after: if *enforced { verdict.reset_after } else { Span::ZERO },
        beyond: verdict.beyond,
        soft: verdict.soft,
        elastic: verdict.elastic,
    };
    let shadow = |GroupVerdict { verdict, .. }: &GroupVerdict| {
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
        groups.iter().map(decision).chain(groups.iter().filter_map(shadow)).collect();
    let all = judge(&decisions);
    let decider = all.decided_by.and_then(|group| groups.get(group));
    let decided_by = decider
        .and_then(|GroupVerdict { verdict, index, .. }| verdict.decided_by.map(|by| by + index));
    Verdict { decided_by, ..all }
}
