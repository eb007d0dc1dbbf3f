//! Requests: a domain, descriptors and a cost.

use std::fmt::Write as _;

use serde_json::Value;

/// A rate-limit request.
///
/// ```
/// use sluicegate_client::{Descriptor, Request, Unit};
///
/// let plain = Request::new("shop").descriptor([("user", "42")]);
/// let dear = plain.clone().hits(10);
/// // From the general to the particular, at a cost of its own, and under a limit that the rules do not know.
/// let team = Descriptor::of([("tenant", "acme"), ("team", "blue")]).hits(2).limited_to(100, Unit::Day);
/// let both = dear.descriptor(team);
/// assert_ne!(plain, both);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a request does nothing until a client sends it"]
pub struct Request {
    domain: String,
    descriptors: Vec<Descriptor>,
    hits: Option<u64>,
    key: Option<String>,
}

/// A descriptor: ordered entries, from the general to the particular.
///
/// ```
/// use sluicegate_client::Descriptor;
///
/// assert_eq!(Descriptor::of([("user", "42")]), [("user", "42")].into());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a descriptor does nothing until it is in a request"]
pub struct Descriptor {
    entries: Vec<(String, String)>,
    hits: Option<u64>,
    limit: Option<(u32, Unit)>,
}

/// Time unit of a limit in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "units of time")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Request {
    /// A request to a domain, without a [`descriptor`](Self::descriptor) yet.
    pub fn new(domain: impl Into<String>) -> Self {
        Self { domain: domain.into(), descriptors: Vec::new(), hits: None, key: None }
    }

    /// Adds a descriptor; the request is allowed if all of them allow it.
    pub fn descriptor(mut self, descriptor: impl Into<Descriptor>) -> Self {
        self.descriptors.push(descriptor.into());
        self
    }

    /// Sets the cost [default: 1].
    pub const fn hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// Sets the idempotency key: [`check`](crate::Client::check) charges a key once, and
    /// [`refund`](crate::Client::refund) proves the charge with it. 1 to 255 bytes, random and
    /// unique per request, such as a UUID: key and request together authorize the refund.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Default cost of the descriptors.
    pub(crate) fn cost(&self) -> u64 {
        self.hits.unwrap_or(1)
    }

    /// All fields except the cost, as JSON fields: the key of cached denials.
    pub(crate) fn identity(&self) -> String {
        let mut identity = String::with_capacity(96);
        let _ = write!(identity, r#""domain":{},"descriptors":["#, text(&self.domain));
        for (index, descriptor) in self.descriptors.iter().enumerate() {
            identity.push_str(if index > 0 { "," } else { "" });
            descriptor.write(&mut identity);
        }
        identity.push(']');
        identity
    }

    /// The request body, with further fields such as `,"ttl_ms":1`.
    pub(crate) fn body(&self, identity: &str, further: &str) -> String {
        let hits = self.hits.map(|hits| format!(r#","hits":{hits}"#)).unwrap_or_default();
        format!("{{{identity}{hits}{further}}}")
    }
}

impl Descriptor {
    /// A descriptor with these entries.
    pub fn of(entries: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self { entries: entries.collect(), hits: None, limit: None }
    }

    /// Sets the cost of this descriptor, in place of the request's.
    pub const fn hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// A limit to enforce in place of the rules.
    pub const fn limited_to(mut self, requests: u32, unit: Unit) -> Self {
        self.limit = Some((requests, unit));
        self
    }

    /// As a list of entries: the short form reserves some keys.
    fn write(&self, out: &mut String) {
        out.push_str(r#"{"entries":["#);
        for (index, (key, value)) in self.entries.iter().enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            let _ = write!(out, r#"{{"key":{},"value":{}}}"#, text(key), text(value));
        }
        out.push(']');
        if let Some(hits) = self.hits {
            let _ = write!(out, r#","hits":{hits}"#);
        }
        if let Some((requests, unit)) = self.limit {
            let unit = unit.name();
            let _ = write!(out, r#","limit":{{"requests_per_unit":{requests},"unit":"{unit}"}}"#);
        }
        out.push('}');
    }
}

impl<K: Into<String>, V: Into<String>, const N: usize> From<[(K, V); N]> for Descriptor {
    fn from(entries: [(K, V); N]) -> Self {
        Self::of(entries)
    }
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// Quotes and escapes a JSON string.
fn text(plain: &str) -> Value {
    Value::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_as_it_is_sent() {
        let request = Request::new("sh\"op")
            .descriptor([("user", "42"), ("user", "\n")])
            .descriptor(Descriptor::of([("hits", "x")]).hits(0).limited_to(5, Unit::Day))
            .hits(3);
        let identity = request.identity();
        assert_eq!(
            request.body(&identity, r#","ttl_ms":9"#),
            r#"{"domain":"sh\"op","descriptors":[{"entries":[{"key":"user","value":"42"},{"key":"user","value":"\n"}]},{"entries":[{"key":"hits","value":"x"}],"hits":0,"limit":{"requests_per_unit":5,"unit":"day"}}],"hits":3,"ttl_ms":9}"#
        );
        assert_eq!(
            Request::new("d").body(&Request::new("d").identity(), ""),
            r#"{"domain":"d","descriptors":[]}"#
        );
    }
}
