//! Where a value of a column goes: the fields of a record, and the forms in which logs have them.

use std::fmt;

use memchr::memchr;
use sluicegate_core::time::Timestamp;

use crate::record::Record;
use crate::scratch::{Arena, ArenaFull};
use crate::text::{self, Url};
use crate::time::{self, COMMON_BYTES, DateCache, TimeUnit};

/// A field of a record, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A time, with a unit if it is a number.
    Time(Option<TimeUnit>),
    /// A date in UTC, with the time of day in another column.
    Date,
    Clock,
    ClientIp,
    /// Address of the connection, for logs without the address of the client.
    PeerIp,
    Method,
    Scheme,
    Host,
    Uri,
    /// The query, where it is not part of the URI.
    Query,
    /// An absolute URL.
    Url,
    /// A request line.
    Request,
    User,
    Status,
    Bytes,
    Duration(TimeUnit),
    Hits,
    Header(Box<str>),
    /// All members of an object of JSON, each as a header.
    AnyHeader,
    /// An object of JSON whose presence means TLS.
    Tls,
}

/// Names in a mapping; `header.NAME` is the only other one.
const NAMES: [(&str, Target); 25] = [
    ("time", Target::Time(None)),
    ("time_s", Target::Time(Some(TimeUnit::Seconds))),
    ("time_ms", Target::Time(Some(TimeUnit::Millis))),
    ("time_us", Target::Time(Some(TimeUnit::Micros))),
    ("time_ns", Target::Time(Some(TimeUnit::Nanos))),
    ("date", Target::Date),
    ("time_of_day", Target::Clock),
    ("client_ip", Target::ClientIp),
    ("method", Target::Method),
    ("scheme", Target::Scheme),
    ("host", Target::Host),
    ("uri", Target::Uri),
    ("path", Target::Uri),
    ("query", Target::Query),
    ("url", Target::Url),
    ("request", Target::Request),
    ("user", Target::User),
    ("status", Target::Status),
    ("bytes", Target::Bytes),
    ("duration", Target::Duration(TimeUnit::Seconds)),
    ("duration_s", Target::Duration(TimeUnit::Seconds)),
    ("duration_ms", Target::Duration(TimeUnit::Millis)),
    ("duration_us", Target::Duration(TimeUnit::Micros)),
    ("duration_ns", Target::Duration(TimeUnit::Nanos)),
    ("hits", Target::Hits),
];

/// A value of a column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(&'a [u8]),
    Whole(u64),
    Float(f64),
}

/// A record that is filled column by column.
#[derive(Debug, Default)]
pub(crate) struct RecordBuilder<'a> {
    record: Record<'a>,
    at: Option<Timestamp>,
    date: Option<&'a [u8]>,
    clock: Option<&'a [u8]>,
    query: Option<&'a [u8]>,
    peer: Option<std::net::IpAddr>,
    has_tls: bool,
}

impl Target {
    /// The target of a name in a mapping.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Some(header) = name.strip_prefix("header.") {
            let is_token =
                |byte: u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte);
            let is_valid = !header.is_empty() && header.bytes().all(is_token);
            return is_valid.then(|| Self::Header(header.to_ascii_lowercase().into()));
        }
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, target)| target.clone())
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        let quoted: Vec<String> = NAMES.iter().map(|(name, _)| format!("`{name}`")).collect();
        quoted.join(", ")
    }

    /// Whether a column with it has the time.
    pub(crate) const fn is_time(&self) -> bool {
        matches!(self, Self::Time(_) | Self::Date)
    }
}

/// As in a mapping.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Header(name) = self {
            return write!(f, "header.{name}");
        }
        let name = NAMES.iter().find(|(_, target)| target == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or("header.*"))
    }
}

impl<'a> Value<'a> {
    /// The value as a text; numbers are written into the buffer.
    fn text(self, arena: &mut Arena<'a>) -> Result<&'a [u8], ArenaFull> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Whole(number) => arena.store_display(number),
            Self::Float(number) => arena.store_display(number),
        }
    }

    /// A number without a fraction, also if it is written with one, as `374.0`.
    fn whole(self) -> Option<u64> {
        let zeros = |fraction: &[u8]| fraction.iter().all(|digit| *digit == b'0');
        match self {
            Self::Whole(number) => Some(number),
            Self::Float(number) => {
                let is_whole = number.fract() == 0.0 && (0.0..9.0e15).contains(&number);
                is_whole.then_some(number as u64)
            }
            Self::Text(text) => match memchr(b'.', text) {
                None => text::whole_number(text),
                Some(point) if zeros(&text[point + 1..]) => text::whole_number(&text[..point]),
                Some(_) => None,
            },
        }
    }

    fn is_absent(self) -> bool {
        matches!(self, Self::Text(text) if text::present(text).is_none())
    }
}

impl<'a> RecordBuilder<'a> {
    /// Puts a value where it belongs. The first value of a field counts; hits add up.
    pub(crate) fn set(
        &mut self,
        target: &'a Target,
        value: Value<'a>,
        arena: &mut Arena<'a>,
        dates: &mut DateCache,
    ) -> Result<(), &'static str> {
        if value.is_absent() {
            return Ok(());
        }
        let record = &mut self.record;
        match target {
            Target::Time(unit) => {
                let at = at(value, *unit, dates).ok_or(match unit {
                    None => "the time is neither RFC 3339 nor a number since 1970",
                    Some(_) => "the time is not a number since 1970",
                })?;
                self.at.get_or_insert(at);
            }
            Target::ClientIp => {
                let Value::Text(text) = value else { return Err(NO_ADDRESS) };
                // A name or a path of a socket is not an address, and no mistake either.
                record.client_ip = record.client_ip.or_else(|| text::peer_address(text));
            }
            Target::PeerIp => {
                let Value::Text(text) = value else { return Err(NO_ADDRESS) };
                self.peer = self.peer.or_else(|| text::peer_address(text));
            }
            Target::Status => {
                let status = value.whole().filter(|status| *status < 1_000);
                let status = status.ok_or("the status is not a number of at most three digits")?;
                let status = u16::try_from(status).ok().filter(|status| *status > 0);
                record.status = record.status.or(status);
            }
            Target::Bytes => {
                let bytes = value.whole().ok_or("the size of the response is not a number")?;
                record.bytes.get_or_insert(bytes);
            }
            Target::Duration(unit) => {
                let duration = match value {
                    Value::Text(text) => time::duration(text, *unit),
                    Value::Whole(number) => time::duration_whole(number, *unit),
                    Value::Float(number) => time::duration_float(number, *unit),
                };
                let duration = duration.ok_or("the duration is not a number of at least zero")?;
                record.duration.get_or_insert(duration);
            }
            Target::Hits => {
                let hits = value.whole().ok_or("the cost is not a whole number")?;
                record.hits = Some(record.hits.unwrap_or(0).saturating_add(hits));
            }
            Target::Tls => self.has_tls = true,
            _ => {
                let text = value.text(arena).map_err(|ArenaFull| "the number is too long")?;
                self.set_text(target, text);
            }
        }
        Ok(())
    }

    fn set_text(&mut self, target: &'a Target, text: &'a [u8]) {
        let record = &mut self.record;
        match target {
            Target::Date => _ = self.date.get_or_insert(text),
            Target::Clock => _ = self.clock.get_or_insert(text),
            Target::Query => _ = self.query.get_or_insert(text),
            Target::Method => _ = record.method.get_or_insert(text),
            Target::Scheme => _ = record.scheme.get_or_insert(text::scheme(text)),
            Target::Host => _ = record.host.get_or_insert(text),
            Target::Uri => _ = record.uri.get_or_insert(text),
            Target::User => _ = record.user.get_or_insert(text),
            Target::Header(name) => record.headers.push((name, text)),
            Target::Request => {
                if let Some((method, uri)) = text::request_line(text) {
                    record.method.get_or_insert(method);
                    record.uri.get_or_insert(uri);
                }
            }
            Target::Url => match Url::parse(text) {
                Some(url) => {
                    record.scheme.get_or_insert(url.scheme);
                    record.host.get_or_insert(url.host);
                    record.uri.get_or_insert(url.uri);
                }
                None => _ = record.uri.get_or_insert(text),
            },
            _ => {}
        }
    }

    /// Adds a header that has no target of its own.
    pub(crate) fn push_header(&mut self, name: &'a str, value: &'a [u8]) {
        if text::present(value).is_some() {
            self.record.headers.push((name, value));
        }
    }

    /// Notes that the request came over TLS.
    pub(crate) fn set_tls(&mut self) {
        self.has_tls = true;
    }

    /// The record, once all columns are read.
    pub(crate) fn finish(
        mut self,
        arena: &mut Arena<'a>,
        dates: &mut DateCache,
    ) -> Result<Record<'a>, &'static str> {
        if let (Some(date), Some(clock)) = (self.date, self.clock) {
            let at = dates.date_and_clock(date, clock);
            let at = at.ok_or("no date such as `2019-12-04` and time such as `21:02:31`")?;
            self.at.get_or_insert(at);
        }
        self.record.at = self.at.ok_or("no time")?;
        if let (Some(uri), Some(query)) = (self.record.uri, self.query) {
            let whole = uri.iter().chain(b"?").chain(query.strip_prefix(b"?").unwrap_or(query));
            let whole = arena.store(whole.copied());
            self.record.uri = Some(whole.map_err(|ArenaFull| "the URI is too long")?);
        }
        if self.has_tls {
            self.record.scheme.get_or_insert(b"https");
        }
        let forwarded = || self.record.header("x-forwarded-for").and_then(text::last_forwarded);
        self.record.client_ip = self.record.client_ip.or(self.peer).or_else(forwarded);
        Ok(self.record)
    }
}

const NO_ADDRESS: &str = "the address of the client is not an IP address";

fn at(value: Value<'_>, unit: Option<TimeUnit>, dates: &mut DateCache) -> Option<Timestamp> {
    match value {
        Value::Whole(number) => time::unix_whole(number, unit),
        Value::Float(number) => time::unix_float(number, unit),
        Value::Text(text) => match time::unix(text.trim_ascii(), unit) {
            None if unit.is_none() => match <&[u8; COMMON_BYTES]>::try_from(text.trim_ascii()) {
                Ok(text) if text[2] == b'/' => dates.common(text),
                _ => dates.rfc3339(text.trim_ascii()),
            },
            at => at,
        },
    }
}
