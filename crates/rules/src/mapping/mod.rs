//! Maps an HTTP request to descriptors.
//!
//! ```text
//!   descriptors:
//!     - { remote_address: client_ip }                 a descriptor with one entry
//!     - { plan: header X-Plan or free, path: path }   one with two
//!     - { entries: { tokens: path }, hits: header X-Tokens or 10 }   one with a cost of its own
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
pub use self::part::{Part, PartError, Source, UsageUnit};
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
///         vec![("remote_address".into(), "client_ip".parse()?)].into(),
///         vec![("user".into(), "header X-User".parse()?), ("path".into(), "path".parse()?)].into(),
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
    /// The descriptors.
    pub descriptors: Vec<DescriptorMapping>,
    /// The hits of a request; defaults to one.
    pub hits: Option<Part>,
}

/// A descriptor of a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DescriptorMapping {
    /// Keys and the sources of their values.
    pub entries: Vec<(Box<str>, Part)>,
    /// Its own hits, in place of those of the request.
    pub hits: Option<Part>,
}

/// The descriptors of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described<'a> {
    /// The entries of all descriptors, one after the other.
    entries: Few<(&'a str, Cow<'a, str>)>,
    ends: Few<DescribedEnd>,
    hits: u64,
    missing: Option<&'a Part>,
}

/// A descriptor: its index in the mapping, its keys and values, and hits of its own.
pub type DescribedParts<'d, 'a> = (usize, &'d [(&'a str, Cow<'a, str>)], Option<u64>);

/// Where the entries of a descriptor end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DescribedEnd {
    at: usize,
    /// Its index in the mapping.
    index: usize,
    hits: Option<u64>,
}

/// A part of the request is not valid.
///
/// ```
/// use sluicegate_rules::mapping::{Attributes, Mapping};
///
/// let descriptor = vec![("key".into(), "query key".parse()?)].into();
/// let mapping = Mapping { descriptors: vec![descriptor], hits: None };
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
        for (index, DescriptorMapping { entries, hits }) in self.descriptors.iter().enumerate() {
            let begin = described.entries.len();
            for (key, part) in entries {
                match part.value(request)? {
                    Some(value) => described.entries.push((key, value)),
                    None => {
                        described.missing = Some(part);
                        described.entries.truncate(begin);
                        break;
                    }
                }
            }
            let at = described.entries.len();
            if at > begin {
                let hits = hits.as_ref().map(|part| hits_of(part, request)).transpose()?;
                described.ends.push(DescribedEnd { at, index, hits: hits.flatten() });
            }
        }
        if let Some(part) = &self.hits
            && let Some(hits) = hits_of(part, request)?
        {
            described.hits = hits;
        }
        Ok(described)
    }

    /// All parts of a request that it uses.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        let of_descriptors = self
            .descriptors
            .iter()
            .flat_map(|one| one.entries.iter().map(|(_, part)| part).chain(&one.hits));
        of_descriptors.chain(&self.hits)
    }
}

/// The hits that a part names.
fn hits_of(part: &Part, request: &Attributes<'_>) -> Result<Option<u64>, Unreadable> {
    let Some(value) = part.value(request)? else { return Ok(None) };
    let number = part::number(&value);
    number.map(Some).ok_or_else(|| Unreadable::new(part, Why::NoNumber))
}

impl DescriptorMapping {
    /// The unit of its hits, if they are the usage of a language model.
    #[must_use]
    pub const fn usage_unit(&self) -> Option<UsageUnit> {
        match &self.hits {
            Some(Part { source: Source::Usage(unit), .. }) => Some(*unit),
            _ => None,
        }
    }

    /// Its name in settings and logs: its keys.
    ///
    /// ```
    /// use sluicegate_rules::mapping::DescriptorMapping;
    ///
    /// let entries = vec![("plan".into(), "text free".parse()?), ("user".into(), "bearer".parse()?)];
    /// assert_eq!(DescriptorMapping::from(entries).name(), "plan+user");
    /// # Ok::<(), sluicegate_rules::mapping::PartError>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> String {
        let keys: Vec<&str> = self.entries.iter().map(|(key, _)| &**key).collect();
        keys.join("+")
    }
}

/// One without hits of its own.
impl From<Vec<(Box<str>, Part)>> for DescriptorMapping {
    fn from(entries: Vec<(Box<str>, Part)>) -> Self {
        Self { entries, hits: None }
    }
}

impl Display for DescriptorMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, part)) in self.entries.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{key}: {part}")?;
        }
        self.hits.iter().try_for_each(|hits| write!(f, ", hits: {hits}"))
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
        let begins = std::iter::once(0).chain(self.ends.iter().map(|end| end.at));
        let descriptor = |(begin, end): (usize, &DescribedEnd)| Descriptor {
            hits: end.hits,
            ..Descriptor::of(entries.get(begin..end.at).unwrap_or_default())
        };
        begins.zip(&self.ends).map(descriptor).collect()
    }

    /// The index in the mapping of each descriptor: those with a missing part are left out.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.ends.iter().map(|end| end.index)
    }

    /// Each descriptor with its index in the mapping, its keys and values, and hits of its own.
    ///
    /// ```
    /// use sluicegate_rules::mapping::{Attributes, Mapping};
    ///
    /// let descriptor = vec![("user".into(), "header X-User or nobody".parse()?)].into();
    /// let mapping = Mapping { descriptors: vec![descriptor], hits: Some("text 3".parse()?) };
    /// let none: &[(&str, &[u8])] = &[];
    /// let described = mapping.describe(&Attributes::of(&none))?;
    /// let all: Vec<_> = described.iter().map(|(index, pairs, _)| (index, pairs.to_vec())).collect();
    /// assert_eq!(all, [(0, vec![("user", "nobody".into())])]);
    /// assert_eq!(described.hits(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = DescribedParts<'_, 'a>> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|end| end.at));
        begins.zip(&self.ends).map(|(begin, end)| {
            (end.index, self.entries.get(begin..end.at).unwrap_or_default(), end.hits)
        })
    }

    /// The hits of descriptors without their own.
    #[must_use]
    pub const fn hits(&self) -> u64 {
        self.hits
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
