//! Temporary overrides: other limits, none, or a block for some identities until a time.
//!
//! A block or an exemption is an entry of the `deny` or `allow` list. Other limits are nodes of
//! their own: the node that the values match today is copied for them, with everything below it,
//! and the limits of the copied rules are changed. Matching stays as it is: an exact value wins,
//! then the longest network, then the first pattern.
//!
//! ```text
//!   user_id            10/s           user_id=acme*        20/s   a copy
//!     path=/search      1/s    ->       path=/search        2/s
//!                                     user_id              10/s
//!                                       path=/search        1/s
//! ```
//!
//! Values are one text, a prefix (`acme*`) or a network: of two that overlap one contains the
//! other, and is applied first, so that the narrower one wins. Of overrides by different keys the
//! later wins.

mod matching;
mod specialize;

use std::fmt::{self, Display};

use sluicegate_core::time::Timestamp;

use crate::domain::{Domain, ListEntry, Pattern};
use crate::rule::Limits;

pub(crate) use specialize::apply;
pub use specialize::{affected, extend_replaces, set_limits};

/// Maximum number of overrides of a domain.
pub const OVERRIDES_MAX: usize = 1_000;

/// Another decision for some identities until a time.
#[derive(Debug, Clone)]
pub struct TemporaryOverride {
    /// What the entries of a descriptor must be. A block, or an exemption from all rules, has one.
    pub matches: Vec<ListEntry>,
    /// The rule that is changed, by its name or its path, with those below it; `None` for all.
    pub rule: Option<Box<str>>,
    /// The change.
    pub change: OverrideChange,
    /// The first moment at which it does not apply any more.
    pub until: Timestamp,
    /// Why it was made.
    pub note: Box<str>,
}

/// What an override changes.
#[derive(Debug, Clone, PartialEq)]
pub enum OverrideChange {
    /// Requests are denied.
    Block,
    /// Requests are not limited.
    Unlimited,
    /// Other limits.
    Limits(Limits),
    /// The same limits with rate and size times thousandths.
    Factor(u64),
}

/// The override that the limits of a rule are of.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedOverride {
    /// Why it was made.
    pub note: Box<str>,
    /// When it ends.
    pub until: Timestamp,
    /// The limits without it.
    pub before: Limits,
}

/// Why an override cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverrideError {
    /// Its values are neither one text, nor a prefix, nor a network.
    Values {
        /// The entry.
        entry: String,
    },
    /// Some of its values match another node of the rules, and others do not.
    Overlap {
        /// The entry.
        entry: String,
        /// The node.
        node: String,
    },
    /// The node that it changes counts all values together.
    Shared {
        /// The node.
        node: String,
    },
    /// The rule cannot have such limits.
    Unfit {
        /// The path of the rule.
        rule: String,
        /// Why.
        reason: String,
    },
}

impl TemporaryOverride {
    /// Whether it is an entry of the `deny` or `allow` list.
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        match self.change {
            OverrideChange::Block => true,
            OverrideChange::Unlimited => self.rule.is_none(),
            OverrideChange::Limits(_) | OverrideChange::Factor(_) => false,
        }
    }

    /// Whether an entry of a request matches one of its entries.
    #[must_use]
    pub fn matches_entry(&self, key: &str, value: &str) -> bool {
        self.matches.iter().any(|entry| entry.key == key && holds(&entry.value, value))
    }

    /// Wider ones first: fewer entries, then fewer fixed letters or bits.
    fn specificity(&self) -> (usize, u32) {
        let fixed = |pattern: &Pattern| match pattern {
            Pattern::Text(text) if text.contains('*') => {
                u32::try_from(text.len()).unwrap_or(u32::MAX - 1)
            }
            Pattern::Text(_) => u32::MAX,
            Pattern::Networks(networks) => {
                networks.iter().map(|one| u32::from(one.length())).min().unwrap_or(0)
            }
            Pattern::Any | Pattern::Regex(_) => 0,
        };
        (self.matches.len(), self.matches.iter().map(|one| fixed(&one.value)).min().unwrap_or(0))
    }
}

/// Whether a pattern matches a value.
fn holds(pattern: &Pattern, value: &str) -> bool {
    match pattern {
        Pattern::Any => true,
        Pattern::Text(text) => matches_glob(text, value),
        Pattern::Regex(regex) => regex.is_match(value),
        Pattern::Networks(networks) => value
            .parse()
            .is_ok_and(|address| networks.iter().any(|network| network.contains(address))),
    }
}

/// Whether a text with `*` matches another.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = tail.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The overrides of a domain that are in force, wider ones first; those that have ended are
/// removed.
pub(crate) fn in_force(domain: &mut Domain, now: Timestamp) -> Vec<TemporaryOverride> {
    domain.overrides.retain(|one| now < one.until);
    let mut sorted = domain.overrides.clone();
    // Stable: of equal ones the later in the list is applied last, and wins.
    sorted.sort_by_key(TemporaryOverride::specificity);
    sorted
}

impl Display for OverrideChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("blocked"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Limits(_) => f.write_str("other limits"),
            Self::Factor(factor) => {
                let (whole, rest) = (factor / 1_000, factor % 1_000);
                let rest = format!(".{rest:03}");
                write!(
                    f,
                    "{whole}{} times the limits",
                    rest.trim_end_matches('0').trim_end_matches('.')
                )
            }
        }
    }
}

impl Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values { entry } => write!(
                f,
                "limits can be changed for one value, a prefix such as `acme*` or a network, got \
                 `{entry}`; write an override for each"
            ),
            Self::Overlap { entry, node } => write!(
                f,
                "only some values of `{entry}` match `{node}` of the rules; write single values, or \
                 exactly `{node}`"
            ),
            Self::Shared { node } => write!(
                f,
                "`{node}` counts all its values together, so that the limits cannot be changed for \
                 some of them; change the rule itself"
            ),
            Self::Unfit { rule, reason } => write!(f, "does not fit the rule `{rule}`: {reason}"),
        }
    }
}

impl std::error::Error for OverrideError {}

#[cfg(test)]
mod tests;
