//! A request of an access log. Texts are borrowed from the line, or from the buffer for unescaped
//! texts, so that reading a line allocates nothing.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use sluicegate_core::time::{Span, Timestamp};

/// Headers that are stored in the record itself; more than these are stored in a list.
const INLINE_MAX: usize = 4;

/// A list of headers: names in lower case, with their values. It is a slice.
///
/// Not a `SmallVec`: a record with one could not be used as a record with a shorter lifetime.
#[derive(Clone, Default)]
pub struct Headers<'a> {
    inline: [(&'a str, &'a [u8]); INLINE_MAX],
    inline_count: usize,
    /// All of them, once there are more than the record holds.
    list: Vec<(&'a str, &'a [u8])>,
}

/// A request, as far as its line describes it. What a log writes as `-` or as an empty text is
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// When the request arrived; where a format has the time of the response only, that.
    pub at: Timestamp,
    /// Address of the client.
    pub client_ip: Option<IpAddr>,
    /// Method.
    pub method: Option<&'a [u8]>,
    /// `http` or `https`.
    pub scheme: Option<&'a [u8]>,
    /// Host, maybe with a port.
    pub host: Option<&'a [u8]>,
    /// Path and query, as the client sent them.
    pub uri: Option<&'a [u8]>,
    /// Authenticated user.
    pub user: Option<&'a [u8]>,
    /// Status of the response.
    pub status: Option<u16>,
    /// Bytes of the response.
    pub bytes: Option<u64>,
    /// Time until the response was complete.
    pub duration: Option<Span>,
    /// Cost of the request, if the log has one.
    pub hits: Option<u64>,
    /// Logged headers of the request, and columns that are mapped to headers.
    pub headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// The first value of a header.
    ///
    /// ```
    /// use sluicegate_accesslog::{Format, LineParser, Scratch};
    ///
    /// let parser = LineParser::new(&Format::Combined, b"")?;
    /// let line = br#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 2 "-" "curl/8""#;
    /// let mut scratch = Scratch::default();
    /// let record = parser.parse(line, &mut scratch).unwrap().unwrap();
    /// assert_eq!(record.header("User-Agent"), Some(&b"curl/8"[..]));
    /// # Ok::<(), sluicegate_accesslog::FormatError>(())
    /// ```
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value)
    }

    /// The path: the URI without its query.
    #[must_use]
    pub fn path(&self) -> Option<&'a [u8]> {
        let uri = self.uri?;
        Some(memchr::memchr(b'?', uri).map_or(uri, |end| &uri[..end]))
    }
}

// === impl Headers ===

impl<'a> Headers<'a> {
    /// Adds a header. The name has to be in lower case.
    #[inline]
    pub fn push(&mut self, header: (&'a str, &'a [u8])) {
        if let Some(free) = self.inline.get_mut(self.inline_count) {
            *free = header;
            self.inline_count += 1;
            return;
        }
        if self.list.is_empty() {
            self.list.extend(self.inline);
        }
        self.list.push(header);
    }
}

impl<'a> Deref for Headers<'a> {
    type Target = [(&'a str, &'a [u8])];

    #[inline]
    fn deref(&self) -> &Self::Target {
        if self.list.is_empty() { &self.inline[..self.inline_count] } else { &self.list }
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(headers: I) -> Self {
        let mut list = Self::default();
        headers.into_iter().for_each(|header| list.push(header));
        list
    }
}

impl PartialEq for Headers<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Headers<'_> {}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
