//! The request to decide.

use crate::unit::Unit;

/// A request: a domain, and the descriptors to match.
///
/// ```
/// use sluicegate_rules::request::{Descriptor, Entry, Request};
///
/// let entries = [Entry::new("user_id", "42"), Entry::new("path", "/login")];
/// let descriptors = [Descriptor::of(&entries)];
/// let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
/// assert_eq!(request.descriptors[0].entries[1].value, "/login");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The domain whose rules apply.
    pub domain: &'a str,
    /// The descriptors.
    pub descriptors: &'a [Descriptor<'a>],
    /// Hits of descriptors without their own.
    pub hits: u64,
}

/// A list of entries that one rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// The entries, from the general to the specific.
    pub entries: &'a [Entry<'a>],
    /// Its own hits, instead of the request's.
    pub hits: Option<u64>,
    /// The limit to enforce in place of the rules.
    pub limit: Option<Override>,
    /// The only pool of its rule to draw from, by its name. A rule without a pool of this name
    /// applies as if none were named.
    pub pool: Option<&'a str>,
}

/// A key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key: `user_id`.
    pub key: &'a str,
    /// The value: `42`.
    pub value: &'a str,
}

/// A limit that comes with the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Override {
    /// Requests per unit.
    pub requests_per_unit: u32,
    /// The unit of time.
    pub unit: Unit,
}

impl<'a> Entry<'a> {
    /// A key and its value.
    ///
    /// ```
    /// assert_eq!(sluicegate_rules::request::Entry::new("user_id", "42").key, "user_id");
    /// ```
    #[must_use]
    pub const fn new(key: &'a str, value: &'a str) -> Self {
        Self { key, value }
    }
}

impl<'a> Descriptor<'a> {
    /// A descriptor of these entries.
    #[must_use]
    pub const fn of(entries: &'a [Entry<'a>]) -> Self {
        Self { entries, hits: None, limit: None, pool: None }
    }
}
