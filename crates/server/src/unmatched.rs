//! Requests with a descriptor that no rule matches: counted, logged, and allowed, denied or failed
//! as the settings say.

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;

use sluicegate::config::suggest::nearest;
use sluicegate::explain::similar_key;
use sluicegate::rules::plan::{DomainStatus, NoRule, Target};
use sluicegate::rules::request::Request;
use sluicegate::rules::set::RuleSet;
use sluicegate::{Checked, Inspected, Snapshot, Span, Timestamp};

use crate::app::App;
use crate::logs::events;
use crate::telemetry::Event;

/// Characters of a domain or key in a message.
const CHARS_MAX: usize = 100;

/// Unknown domains that are logged in one period.
const UNKNOWN_LOGGED_MAX: usize = 32;

/// Period after which an unknown domain is logged again.
const UNKNOWN_LOGGED_EVERY: Span = Span::from_secs(10 * 60);

/// Known domains in the log line of an unknown one.
const KNOWN_LISTED_MAX: usize = 8;

/// Known domains that an unknown one is compared with.
const DOMAINS_COMPARED_MAX: usize = 1_000;

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
    /// Entries of the descriptor, such as `user=42/path=/login`.
    key: String,
    /// Index of the first unmatched descriptor.
    pub descriptor: usize,
    /// Why no rule applies.
    pub reason: NoRule,
    /// A similar name, and the beginning of the remedy.
    hint: String,
}

/// Unknown domains that were logged in this period. A client chooses them: their number is
/// bounded, and so is the log.
#[derive(Debug, Default)]
pub(crate) struct UnknownDomains(Mutex<LoggedDomains>);

#[derive(Debug, Default)]
struct LoggedDomains {
    since: Timestamp,
    domains: HashSet<Box<str>>,
}

/// Whether an unknown domain is logged.
#[derive(Debug, PartialEq, Eq)]
enum UnknownDomain {
    /// The first time in this period.
    New,
    /// There were too many before; reported once.
    TooMany,
    Logged,
}

impl UnknownDomains {
    fn record(&self, domain: &str, now: Timestamp) -> UnknownDomain {
        // A misconfigured client sends the same domain again and again: requests never wait here.
        let Ok(mut logged) = self.0.try_lock() else { return UnknownDomain::Logged };
        if now.since(logged.since) >= UNKNOWN_LOGGED_EVERY {
            *logged = LoggedDomains { since: now, domains: HashSet::new() };
        }
        let count = logged.domains.len();
        if count > UNKNOWN_LOGGED_MAX || logged.domains.contains(domain) {
            return UnknownDomain::Logged;
        }
        logged.domains.insert(domain.into());
        if count < UNKNOWN_LOGGED_MAX { UnknownDomain::New } else { UnknownDomain::TooMany }
    }
}

/// The beginning of a domain that a client sent.
fn truncated(domain: &str) -> &str {
    let end = domain.char_indices().nth(CHARS_MAX).map_or(domain.len(), |(end, _)| end);
    &domain[..end]
}

/// The domain with the most similar name.
fn similar_domain<'a>(domain: &str, rules: &'a RuleSet) -> Option<&'a str> {
    let lower: Vec<String> =
        rules.domains().take(DOMAINS_COMPARED_MAX).map(str::to_lowercase).collect();
    let near = nearest(domain, lower.iter().map(String::as_str))?;
    rules.domains().nth(lower.iter().position(|one| one == near)?)
}

/// The domains that there are, for the log line of an unknown one.
fn known_domains(domain: &str, rules: &RuleSet) -> String {
    if let Some(near) = similar_domain(domain, rules) {
        return format!("did you mean `{near}`?");
    }
    let names: Vec<&str> = rules.domains().take(KNOWN_LISTED_MAX).collect();
    match rules.domains().len() - names.len() {
        _ if names.is_empty() => "no domain has rules".to_owned(),
        0 => format!("there are rules for `{}`", names.join("`, `")),
        more => format!("there are rules for `{}` and {more} more", names.join("`, `")),
    }
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
    pub fn record_unmatched(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &Checked,
    ) -> Result<(), UnmatchedError> {
        if checked.domain() == DomainStatus::Unknown {
            self.telemetry().record(Event::UnknownDomain);
            self.log_unknown_domain(rules, request.domain);
        }
        match checked.unmatched() {
            None => Ok(()),
            Some((descriptor, reason)) => {
                self.record_one(rules, request, checked, (descriptor, reason))
            }
        }
    }

    #[cold]
    fn log_unknown_domain(&self, rules: &Snapshot<'_>, domain: &str) {
        let domain = truncated(domain);
        match self.unknown_domains().record(domain, self.engine().now()) {
            UnknownDomain::New => {
                let hint = known_domains(domain, rules.rules());
                events::unknown_domain(domain, self.options().unmatched.name(), &hint);
            }
            UnknownDomain::TooMany => events::more_unknown_domains(UNKNOWN_LOGGED_MAX),
            UnknownDomain::Logged => {}
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
                Err(UnmatchedError::new(rules, request, descriptor, reason))
            }
            _ => Ok(()),
        }
    }

    /// Rejects the inspection of an unmatched request where the settings say that such requests
    /// fail.
    pub(crate) fn reject_unmatched(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        inspected: &[Inspected],
    ) -> Result<(), UnmatchedError> {
        let unmatched = inspected.iter().enumerate().find_map(|(index, one)| match one.target {
            Target::None(reason) if reason != NoRule::Exempt => Some((index, reason)),
            _ => None,
        });
        match unmatched.filter(|_| self.options().unmatched == UnmatchedPolicy::Error) {
            Some((index, reason)) => Err(UnmatchedError::new(rules, request, index, reason)),
            None => Ok(()),
        }
    }
}

impl UnmatchedError {
    pub(crate) fn new(
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        descriptor: usize,
        reason: NoRule,
    ) -> Self {
        let hint = match reason {
            NoRule::UnknownDomain => {
                match similar_domain(truncated(request.domain), rules.rules()) {
                    Some(near) => format!(", did you mean `{near}`? Correct"),
                    None => "; correct".to_owned(),
                }
            }
            NoRule::Unmatched => match similar_key(rules.rules(), request, descriptor) {
                Some(near) => format!(", did you mean the key `{near}`? Correct"),
                None => "; correct".to_owned(),
            },
            NoRule::Exempt => String::new(),
        };
        let mut key = String::new();
        for entry in request.descriptors.get(descriptor).map_or(&[][..], |one| one.entries) {
            let separator = if key.is_empty() { "" } else { "/" };
            key.extend([separator, entry.key, "=", entry.value]);
        }
        let (domain, key) = (truncated(request.domain).to_owned(), truncated(&key).to_owned());
        Self { domain, key, descriptor, reason, hint }
    }
}

impl fmt::Display for UnmatchedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, key, descriptor, reason, hint } = self;
        match reason {
            NoRule::UnknownDomain => write!(
                f,
                "there are no rules for domain `{domain}`{hint} the domain, or add rules for it"
            ),
            NoRule::Unmatched => write!(
                f,
                "no rule of domain `{domain}` matches descriptors[{descriptor}] (`{key}`){hint} the \
                 descriptor, or add a rule for it; `sluicegate explain` shows the rules that were \
                 tried"
            ),
            NoRule::Exempt => write!(
                f,
                "the rules of domain `{domain}` name descriptors[{descriptor}] (`{key}`) without a \
                 limit; correct the descriptor, or add a limit"
            ),
        }
    }
}

impl std::error::Error for UnmatchedError {}
