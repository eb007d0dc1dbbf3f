//! The configured rules of a domain: a tree of descriptors, which [`crate::set::RuleSet`] compiles.

use std::fmt::{self, Display};

use regex::Regex;

use crate::mapping::{Mapping, Proxies};
use crate::network::{Network, Prefix};
use crate::overrides::TemporaryOverride;
use crate::rule::RuleConfig;

/// The domain of the library's limiters on a store: rule files and engines cannot use it, since
/// their rules would share the counters of limiters.
pub const LIMITER_DOMAIN: &str = "@limiter";

/// The rules of one domain.
///
/// ```
/// use sluicegate_rules::domain::{Domain, DescriptorConfig};
/// use sluicegate_rules::request::Entry;
/// use sluicegate_rules::rule::{Limits, RuleConfig};
/// use sluicegate_rules::set::RuleSet;
/// use sluicegate_rules::unit::Unit;
///
/// let mut users = DescriptorConfig::any("user_id");
/// users.rule = Some(RuleConfig::new(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute }));
/// let domain = Domain { descriptors: vec![users], ..Domain::new("shop") };
/// let rules = RuleSet::new(vec![domain])?;
/// assert!(rules.find("shop", &[Entry::new("user_id", "42")]).is_some());
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Where a key ends and a value begins.
    pub joint: Joint,
    /// Requests that match one of these pass uncounted.
    pub allow: Vec<ListEntry>,
    /// Requests that match one of these are denied; wins over `allow`.
    pub deny: Vec<ListEntry>,
    /// The first entries of descriptors, in the order of the file.
    pub descriptors: Vec<DescriptorConfig>,
    /// Settings for proxies that check their requests (forward auth).
    pub forward_auth: Option<ForwardAuth>,
    /// Changes for some identities until a time, in the order of the file; once the domain is
    /// resolved, those in force.
    pub overrides: Vec<TemporaryOverride>,
    /// Whether schedules and overrides are those of a moment: see
    /// [`resolve`](crate::resolve::resolve).
    pub is_resolved: bool,
}

/// Where a key ends and a value begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Joint {
    /// A key is one text and a value another.
    #[default]
    Apart,
    /// Compared as one text, `key_value`, as in envoyproxy/ratelimit: a rule for key `a` and value
    /// `b_c` matches key `a_b` and value `c` too, and a `*` in a key is a wildcard. Their counters
    /// remain separate.
    Joined,
}

/// One entry of a descriptor in the tree.
#[derive(Debug, Clone)]
pub struct DescriptorConfig {
    /// The key that an entry must have.
    pub key: String,
    /// The value that it must have.
    pub value: Pattern,
    /// Which values share a counter.
    pub counter: Counter,
    /// Whether the rule's metrics are split by the value of this entry.
    pub value_to_metric: bool,
    /// The rule enforced when this is the last entry.
    pub rule: Option<RuleConfig>,
    /// The entries that may come next, in the order of the file.
    pub descriptors: Vec<Self>,
}

/// The values that a node matches.
///
/// Of several nodes that match an entry, an exact text wins, then the longest network, then the
/// first glob or regular expression in file order, then the node for any value.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// Any.
    Any,
    /// This text; each `*` matches any number of characters.
    Text(String),
    /// Values that the expression finds a match in.
    Regex(Regex),
    /// Addresses in one of these networks.
    Networks(Vec<Network>),
}

/// Which values of a node share a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counter {
    /// Each value has its own.
    #[default]
    PerValue,
    /// All values that the node matches share one.
    Shared,
    /// Addresses of one network share one.
    PerNetwork(Prefix),
}

/// An entry of an `allow` or `deny` list.
#[derive(Debug, Clone)]
pub struct ListEntry {
    /// The key that an entry must have.
    pub key: String,
    /// The value that it must have.
    pub value: Pattern,
}

impl Domain {
    /// A domain without rules.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            joint: Joint::Apart,
            allow: Vec::new(),
            deny: Vec::new(),
            descriptors: Vec::new(),
            forward_auth: None,
            overrides: Vec::new(),
            is_resolved: false,
        }
    }

    /// Whether its rules depend on the time.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        fn any_schedule(nodes: &[DescriptorConfig]) -> bool {
            let is_scheduled = |node: &DescriptorConfig| {
                node.rule.as_ref().is_some_and(|r| r.schedule().is_some())
            };
            nodes.iter().any(|node| is_scheduled(node) || any_schedule(&node.descriptors))
        }
        !self.overrides.is_empty() || any_schedule(&self.descriptors)
    }
}

impl DescriptorConfig {
    /// A node that matches any value of a key, without a rule.
    #[must_use]
    pub fn any(key: impl Into<String>) -> Self {
        Self::new(key, Pattern::Any)
    }

    /// Creates a node without a rule that matches a text; each `*` matches any number of
    /// characters.
    #[must_use]
    pub fn text(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(key, Pattern::Text(value.into()))
    }

    /// A node without a rule.
    #[must_use]
    pub fn new(key: impl Into<String>, value: Pattern) -> Self {
        Self {
            key: key.into(),
            value,
            counter: Counter::PerValue,
            value_to_metric: false,
            rule: None,
            descriptors: Vec::new(),
        }
    }
}

impl Pattern {
    /// Whether it is a text with a `*` in it.
    ///
    /// ```
    /// use sluicegate_rules::domain::{DescriptorConfig, Pattern};
    ///
    /// assert!(DescriptorConfig::text("path", "/login*").value.is_glob());
    /// assert!(!DescriptorConfig::any("user_id").value.is_glob());
    /// let private = Pattern::Networks(vec!["10.0.0.0/8".parse().unwrap()]);
    /// assert!(DescriptorConfig::new("remote_address", private).rule.is_none());
    /// ```
    #[must_use]
    pub fn is_glob(&self) -> bool {
        matches!(self, Self::Text(text) if text.contains('*'))
    }
}

impl Display for ListEntry {
    /// The key and the values in one text: `path=/login*`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        match &self.value {
            Pattern::Any => Ok(()),
            Pattern::Text(text) => write!(f, "={text}"),
            Pattern::Regex(regex) => write!(f, "={regex}"),
            Pattern::Networks(networks) => {
                let all: Vec<String> = networks.iter().map(ToString::to_string).collect();
                write!(f, "={}", all.join(","))
            }
        }
    }
}

/// Forward auth settings of a domain.
///
/// ```
/// use sluicegate_rules::domain::ForwardAuth;
/// use sluicegate_rules::mapping::{Mapping, Proxies};
///
/// let client_ip = ("remote_address".into(), "client_ip".parse()?);
/// let mapping = Mapping { descriptors: vec![vec![client_ip].into()], hits: None };
/// let auth = ForwardAuth { trusted_proxies: Proxies::default(), mapping, deny_status: Some(403) };
/// assert!(auth.trusted_proxies.trust("127.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The proxies whose forwarding headers are trusted.
    pub trusted_proxies: Proxies,
    /// Maps a request to descriptors.
    pub mapping: Mapping,
    /// The status of a denial, if not the usual one.
    pub deny_status: Option<u16>,
}
