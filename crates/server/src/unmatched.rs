//! Requests with a descriptor that no rule matches: counted, logged, and allowed, denied or failed
//! as the settings say.

use std::fmt;

use sluicegate::rules::plan::{DomainStatus, NoRule};
use sluicegate::rules::request::Request;
use sluicegate::{Checked, Snapshot};

use crate::app::App;
use crate::logs::events;
use crate::telemetry::Event;

/// Characters of a domain in a message.
const DOMAIN_CHARS_MAX: usize = 100;

/// Treatment of requests that no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnmatchedPolicy {
    /// They pass, as in envoyproxy/ratelimit.
    #[default]
    Allow,
    /// They are denied, and charge nothing.
    Deny,
    /// They get an error, and charge nothing.
    Error,
}

/// Error of an unmatched request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedError {
    domain: String,
    /// Index of the first unmatched descriptor.
    pub descriptor: usize,
    /// Why no rule applies.
    pub reason: NoRule,
}

impl UnmatchedPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Deny, Self::Error];

    /// Its name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}

impl App {
    /// Counts and logs a request that no rule matches.
    ///
    /// # Errors
    /// When the settings say that such requests fail.
    #[inline]
    pub(crate) fn record_unmatched(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &Checked,
    ) -> Result<(), UnmatchedError> {
        if checked.domain() == DomainStatus::Unknown {
            self.telemetry().record(Event::UnknownDomain);
        }
        match checked.unmatched() {
            None => Ok(()),
            Some((descriptor, reason)) => {
                self.record_one(rules, request, checked, (descriptor, reason))
            }
        }
    }

    fn record_one(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &Checked,
        (descriptor, reason): (usize, NoRule),
    ) -> Result<(), UnmatchedError> {
        rules.count_unmatched(checked);
        let entries = request.descriptors.get(descriptor).map_or(&[][..], |one| one.entries);
        events::request_unmatched(request.domain, reason.name(), entries);
        match self.options().unmatched {
            UnmatchedPolicy::Error if checked.denied_unmatched().is_some() => {
                Err(UnmatchedError::new(request, descriptor, reason))
            }
            _ => Ok(()),
        }
    }
}

impl UnmatchedError {
    pub(crate) fn new(request: &Request<'_>, descriptor: usize, reason: NoRule) -> Self {
        let domain = request.domain.chars().take(DOMAIN_CHARS_MAX).collect();
        Self { domain, descriptor, reason }
    }
}

impl fmt::Display for UnmatchedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, descriptor, reason } = self;
        match reason {
            NoRule::UnknownDomain => write!(
                f,
                "there are no rules for domain `{domain}`; correct the domain, or add rules for it"
            ),
            NoRule::Unmatched | NoRule::Exempt => write!(
                f,
                "no rule of domain `{domain}` matches descriptors[{descriptor}]; correct the \
                 descriptor, or add a rule for it; `sluicegate explain` shows the rules that were \
                 tried"
            ),
        }
    }
}

impl std::error::Error for UnmatchedError {}
