//! Maps an HTTP request to descriptors.
//!
//! ```text
//!   descriptors:
//!     - { remote_address: client_ip }                 a descriptor with one entry
//!     - { plan: header X-Plan or free, path: path }   one with two
//!   hits: header X-Cost
//! ```
//!
//! Each entry takes its value from a [`Part`] of the request. A descriptor with a missing part is
//! left out. A part that is not valid text is an error: the request must not pass as one without
//! it.
//!
//! Nothing here does I/O. Entries borrow from the request where they can.

mod attributes;
mod hops;
mod part;
#[cfg(test)]
mod tests;
mod uri;

use std::borrow::Cow;
use std::fmt::{self, Display};

use smallvec::SmallVec;

pub use self::attributes::{Attributes, Headers, Identity, address_text};
pub use self::hops::{HOPS_MAX, Proxies, ProxiesError};
pub use self::part::{Part, PartError, Source};
pub use self::uri::{decode_form, query_value, without_query};

use crate::request::{Descriptor, Entry, Request};

/// A list that needs no allocation for the entries or descriptors of most requests.
pub type Few<T> = SmallVec<[T; 3]>;

/// Maximum number of descriptors of a mapping.
pub const DESCRIPTORS_MAX: usize = 64;

/// Maps a request to descriptors.
///
/// ```
/// use sluicegate_rules::mapping::{Attributes, Mapping};
///
/// let mapping = Mapping {
///     descriptors: vec![
///         vec![("remote_address".into(), "client_ip".parse()?)],
///         vec![("user".into(), "header X-User".parse()?), ("path".into(), "path".parse()?)],
///     ],
///     hits: None,
/// };
/// let headers: &[(&str, &[u8])] = &[("x-user", b"42")];
/// let request = Attributes { uri: Some(b"/login?next=/"), ..Attributes::of(&headers) };
/// let described = mapping.describe(&request)?;
/// described.with_request("web", |request| {
///     assert_eq!(request.descriptors.len(), 1, "nobody knows the address");
///     assert_eq!(request.descriptors[0].entries[1].value, "/login");
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// The descriptors, each a list of keys and the sources of their values.
    pub descriptors: Vec<Vec<(Box<str>, Part)>>,
    /// The hits of a request; defaults to one.
    pub hits: Option<Part>,
}

/// The descriptors of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described<'a> {
    /// The entries of all descriptors, one after the other.
    entries: Few<(&'a str, Cow<'a, str>)>,
    /// Where each descriptor ends.
    ends: Few<usize>,
    hits: u64,
    missing: Option<&'a Part>,
}

/// A part of the request is not valid.
///
/// ```
/// use sluicegate_rules::mapping::{Attributes, Mapping};
///
/// let mapping = Mapping { descriptors: vec![vec![("key".into(), "query key".parse()?)]], hits: None };
/// let none: &[(&str, &[u8])] = &[];
/// let request = Attributes { uri: Some(b"/?key=%zz"), ..Attributes::of(&none) };
/// let unreadable = mapping.describe(&request).unwrap_err();
/// assert_eq!(unreadable.to_string(), "`query key` of the request has a `%` without two hexadecimal digits behind it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    part: String,
    why: Why,
}

/// Why a part cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    NotText,
    BadEscape,
    NoNumber,
}

impl Mapping {
    /// Maps a request.
    ///
    /// # Errors
    /// When a part is not valid.
    pub fn describe<'a>(&'a self, request: &Attributes<'a>) -> Result<Described<'a>, Unreadable> {
        let mut described =
            Described { entries: Few::new(), ends: Few::new(), hits: 1, missing: None };
        for descriptor in &self.descriptors {
            let begin = described.entries.len();
            for (key, part) in descriptor {
                match part.value(request)? {
                    Some(value) => described.entries.push((key, value)),
                    None => {
                        described.missing = Some(part);
                        described.entries.truncate(begin);
                        break;
                    }
                }
            }
            if described.entries.len() > begin {
                described.ends.push(described.entries.len());
            }
        }
        if let Some(hits) = &self.hits
            && let Some(value) = hits.value(request)?
        {
            let number = part::number(&value);
            described.hits = number.ok_or_else(|| Unreadable::new(hits, Why::NoNumber))?;
        }
        Ok(described)
    }
}

impl<'a> Described<'a> {
    /// A part whose absence left a descriptor out.
    #[must_use]
    pub const fn missing(&self) -> Option<&'a Part> {
        self.missing
    }

    /// Calls `f` with the request to a domain.
    pub fn with_request<R>(&self, domain: &str, decide: impl FnOnce(&Request<'_>) -> R) -> R {
        let entries = self.entries();
        decide(&self.request(domain, &self.descriptors(&entries)))
    }

    /// All entries; with `descriptors` and `request`, the steps of [`Self::with_request`] for
    /// callers that need a longer lifetime.
    #[must_use]
    pub fn entries(&self) -> Few<Entry<'_>> {
        self.entries.iter().map(|(key, value)| Entry::new(key, value)).collect()
    }

    /// The descriptors, borrowed from `entries`.
    #[must_use]
    pub fn descriptors<'e>(&self, entries: &'e [Entry<'e>]) -> Few<Descriptor<'e>> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied()).zip(&self.ends);
        begins
            .map(|(begin, end)| Descriptor::of(entries.get(begin..*end).unwrap_or_default()))
            .collect()
    }

    /// The request, borrowed from `descriptors`.
    #[must_use]
    pub const fn request<'e>(
        &self,
        domain: &'e str,
        descriptors: &'e [Descriptor<'e>],
    ) -> Request<'e> {
        Request { domain, descriptors, hits: self.hits }
    }
}

impl Unreadable {
    pub(crate) fn new(part: &Part, why: Why) -> Self {
        Self { part: part.source.to_string(), why }
    }
}

impl Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::NotText => "has bytes that are no UTF-8",
            Why::BadEscape => "has a `%` without two hexadecimal digits behind it",
            Why::NoNumber => "is no whole number",
        };
        write!(f, "`{}` of the request {why}", self.part)
    }
}

impl std::error::Error for Unreadable {}
