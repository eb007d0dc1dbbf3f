//! What is asked.

use crate::unit::Unit;

/// What is asked: a domain, and descriptors of who wants what.
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
    /// Whose rules.
    pub domain: &'a str,
    /// Who wants what.
    pub descriptors: &'a [Descriptor<'a>],
    /// How many hits, unless a descriptor says otherwise.
    pub hits: u64,
}

/// Somebody, as far as one rule is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// What is known, from the general to the particular.
    pub entries: &'a [Entry<'a>],
    /// How many hits, if not those of the request.
    pub hits: Option<u64>,
    /// The limit to enforce in place of the rules.
    pub limit: Option<Override>,
}

/// One thing that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it is: `user_id`.
    pub key: &'a str,
    /// Which one: `42`.
    pub value: &'a str,
}

/// A limit that comes with the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Override {
    /// How many.
    pub requests_per_unit: u32,
    /// In which time.
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
    /// These entries, and nothing else said.
    #[must_use]
    pub const fn of(entries: &'a [Entry<'a>]) -> Self {
        Self { entries, hits: None, limit: None }
    }
}
