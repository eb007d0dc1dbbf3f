//! Why rules cannot be compiled.

use std::fmt::{self, Display};

use super::DEPTH_MAX;

/// Why rules cannot be compiled.
///
/// ```
/// use sluicegate_rules::domain::Domain;
/// use sluicegate_rules::set::RuleSet;
///
/// let error = RuleSet::new(vec![Domain::new("shop"), Domain::new("shop")]).unwrap_err();
/// assert_eq!(error.to_string(), "duplicate domain `shop`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleSetError {
    /// Two domains of one name.
    DuplicateDomain {
        /// The name.
        name: String,
    },
    /// Two descriptors with one key and value at one level.
    DuplicateDescriptor {
        /// The path to them.
        path: String,
    },
    /// Two rules of one domain with one name. (Rules of Envoy's form may share a name: their path
    /// identifies them.)
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Descriptors nested deeper than [`DEPTH_MAX`].
    TooDeep {
        /// The path to them.
        path: String,
    },
    /// More text or more descriptors than can be counted with 32 bits.
    TooMany,
    /// Schedules or overrides that were not resolved for a moment.
    TimeDependent {
        /// The domain.
        domain: String,
    },
}

impl Display for RuleSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateDomain { name } => write!(f, "duplicate domain `{name}`"),
            Self::DuplicateDescriptor { path } => write!(f, "duplicate descriptor `{path}`"),
            Self::DuplicateName { name } => write!(f, "two rules are called `{name}`"),
            Self::TooDeep { path } => {
                write!(f, "more than {DEPTH_MAX} descriptors inside each other in `{path}`")
            }
            Self::TimeDependent { domain } => write!(
                f,
                "the rules of domain `{domain}` change by themselves (`schedule`, `overrides`), and \
                 nothing would change them; load them from files that are followed, or resolve them \
                 for a moment"
            ),
            Self::TooMany => f.write_str("more descriptors than can be counted with 32 bits"),
        }
    }
}

impl std::error::Error for RuleSetError {}
