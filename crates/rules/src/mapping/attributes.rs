//! The attributes of a request, and its parts by source.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use super::part::Source;
use super::{Why, uri};

/// The attributes of a request; `None` for unknown ones.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The address of the client.
    pub client_ip: Option<IpAddr>,
    /// Its method.
    pub method: Option<&'a [u8]>,
    /// `http` or `https`.
    pub scheme: Option<&'a [u8]>,
    /// The host that it is for, maybe with a port.
    pub host: Option<&'a [u8]>,
    /// Path and query as they came, or a whole URI.
    pub uri: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a dyn Headers,
    /// What only the gateway knows.
    pub identity: Option<&'a dyn Identity>,
}

/// What only the gateway knows of a request: verified credentials, TLS, body, route.
pub trait Identity: Sync {
    /// The value of a [source](Source::is_gateway_only), if there is one. A credential that was
    /// not verified has none.
    fn value<'a>(&'a self, source: &Source) -> Option<Cow<'a, str>>;
}

/// Access to the headers of a request.
pub trait Headers: Sync {
    /// Calls `each` with every line of a header, in their order. The name is compared in any case.
    fn each_line<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8]));
}

/// Names and values, in their order.
impl Headers for &[(&str, &[u8])] {
    fn each_line<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        let lines = self.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        lines.for_each(|(_, value)| each(value));
    }
}

impl<'a> Attributes<'a> {
    /// A request of which only the headers are known.
    #[must_use]
    pub fn of(headers: &'a dyn Headers) -> Self {
        Self {
            client_ip: None,
            method: None,
            scheme: None,
            host: None,
            uri: None,
            headers,
            identity: None,
        }
    }

    /// A part of it, if it is there.
    pub(super) fn part(&self, source: &'a Source) -> Result<Option<Cow<'a, str>>, Why> {
        let plain = |bytes: &'a [u8]| Why::text(bytes.trim_ascii()).map(Cow::Borrowed);
        let text = match source {
            Source::ClientIp => {
                self.client_ip.map(|address| Ok(address_text(address.to_canonical()).into()))
            }
            Source::Method => self.method.map(plain),
            Source::Scheme => self.scheme.map(|scheme| plain(scheme).map(small)),
            Source::Host => self.host.map(|host| Why::text(host).map(|host| small(bare(host)))),
            Source::Path => self.uri.map(|uri| Ok(uri::path(uri))),
            Source::Uri => self.uri.map(plain),
            Source::Query(name) => self.uri.and_then(|uri| uri::query(uri, name)),
            Source::Bearer => self.bearer().map(plain),
            Source::Header(name) => self.header(name),
            Source::Cookie(name) => self.cookie(name).map(plain),
            Source::Text(text) => Some(Ok(Cow::Borrowed(&**text))),
            Source::Jwt(_)
            | Source::ApiKey
            | Source::ApiKeyAttribute(_)
            | Source::Json(_)
            | Source::Form(_)
            | Source::Ja4
            | Source::Asn
            | Source::Country
            | Source::PathTemplate
            | Source::Route
            | Source::ClientCertificate
            | Source::Usage(_) => self.identity.and_then(|identity| identity.value(source)).map(Ok),
        };
        text.transpose()
    }

    fn header(&self, name: &str) -> Option<Result<Cow<'a, str>, Why>> {
        let mut all: Option<Cow<'a, [u8]>> = None;
        self.headers.each_line(name, &mut |line| {
            let line = line.trim_ascii();
            match &mut all {
                None => all = Some(Cow::Borrowed(line)),
                Some(all) => {
                    let all = all.to_mut();
                    all.extend_from_slice(b", ");
                    all.extend_from_slice(line);
                }
            }
        });
        Some(match all? {
            Cow::Borrowed(line) => Why::text(line).map(Cow::Borrowed),
            Cow::Owned(all) => String::from_utf8(all).map(Cow::Owned).map_err(|_| Why::NotText),
        })
    }

    fn cookie(&self, name: &str) -> Option<&'a [u8]> {
        let mut found = None;
        self.headers.each_line("cookie", &mut |line| {
            let mut pairs = line.split(|byte| *byte == b';').filter_map(|pair| {
                let equals = pair.iter().position(|byte| *byte == b'=')?;
                let (key, value) = pair.split_at_checked(equals)?;
                Some((key.trim_ascii(), value.get(1..)?.trim_ascii()))
            });
            found = found.or_else(|| pairs.find(|(key, _)| *key == name.as_bytes()));
        });
        found.map(|(_, value)| value)
    }

    fn bearer(&self) -> Option<&'a [u8]> {
        const SCHEME: &[u8] = b"bearer ";
        let mut first = None;
        self.headers.each_line("authorization", &mut |line| {
            first.get_or_insert(line.trim_ascii());
        });
        let (scheme, token) = first?.split_at_checked(SCHEME.len())?;
        scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
    }
}

/// A host without its port, and without the dot that a name may end with.
fn bare(host: &str) -> &str {
    let host = host.trim();
    if host.starts_with('[') {
        let end = host.find(']').map_or(host.len(), |end| end + 1);
        return host.get(..end).unwrap_or(host);
    }
    let host = match host.split_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    host.strip_suffix('.').unwrap_or(host)
}

fn small<'a>(text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
    let text = text.into();
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => text,
    }
}

impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes")
            .field("client_ip", &self.client_ip)
            .field("method", &self.method.map(<[u8]>::escape_ascii).map(|text| text.to_string()))
            .field("uri", &self.uri.map(<[u8]>::escape_ascii).map(|text| text.to_string()))
            .finish_non_exhaustive()
    }
}

/// The text of an address. That of IPv4 is written without the formatter, which takes ten times as
/// long: every request of a limit by address needs it.
///
/// ```
/// use sluicegate_rules::mapping::address_text;
///
/// assert_eq!(address_text([192, 0, 2, 10].into()), "192.0.2.10");
/// assert_eq!(address_text("2001:DB8::1".parse()?), "2001:db8::1");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn address_text(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return address.to_string() };
    let mut text = String::with_capacity("255.255.255.255".len());
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        if octet >= 100 {
            text.push(char::from(b'0' + octet / 100));
        }
        if octet >= 10 {
            text.push(char::from(b'0' + octet / 10 % 10));
        }
        text.push(char::from(b'0' + octet % 10));
    }
    text
}
