//! A request of an access log. Texts are borrowed from the line, or from the buffer for unescaped
//! texts, so that reading a line allocates nothing.

use std::net::IpAddr;

use sluicegate_core::time::{Span, Timestamp};
use smallvec::SmallVec;

/// Headers with their values; names are in lower case. Up to four are stored in the record itself.
pub type Headers<'a> = SmallVec<[(&'a str, &'a [u8]); 4]>;

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
