//! Scalars of a gateway's file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluicegate_core::quota::Rate;
use sluicegate_core::time::Span;

use crate::gateway::keys::COUNT_MAX;
use crate::gateway::placeholder::{self, HEADER_PLACEHOLDERS, REDIRECT_PLACEHOLDERS};
use crate::gateway::upstream::ServerConfig;
use crate::problem::quoted;
use crate::units::{self, UnitError};

type Parsed<T> = Result<T, UnitError>;

fn refuse<T>(must: &str, text: &str, remedy: &str) -> Parsed<T> {
    Err(UnitError::new(format!("{must}, got {}; {remedy}", quoted(text))))
}

pub(super) fn address(text: &str) -> Parsed<SocketAddr> {
    match text.trim().parse() {
        Ok(address) => Ok(address),
        Err(_) => refuse(
            "must be an IP address and a port",
            text,
            "write it like `0.0.0.0:8000` or `[::]:8000`",
        ),
    }
}

/// A text that is not empty.
pub(super) fn text(text: &str) -> Parsed<String> {
    match text.trim() {
        "" => refuse("must not be empty", text, "write a text, or remove the field"),
        _ => Ok(text.to_owned()),
    }
}

/// A text that may be empty.
#[expect(clippy::unnecessary_wraps, reason = "the type of all readers")]
pub(super) fn any_text(text: &str) -> Parsed<String> {
    Ok(text.to_owned())
}

/// A URL of HTTP or HTTPS.
pub(super) fn webhook(text: &str) -> Parsed<String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let has_host = host.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?']));
    if !has_host || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return refuse("must be a URL", text, "write it like `https://example.com/hook`");
    }
    Ok(text.to_owned())
}

pub(super) fn path(text: &str) -> Parsed<PathBuf> {
    match text.trim() {
        "" => refuse("must be a path", text, "write it relative to this file, or absolute"),
        path => Ok(PathBuf::from(path)),
    }
}

/// A time of at most a year: longer ones are mistakes, and timers do not hold all of them.
pub(super) fn duration(text: &str) -> Parsed<Duration> {
    const LONGEST: Duration = Duration::from_secs(366 * 86_400);
    let time = units::span(text).map(Span::to_duration)?;
    match time <= LONGEST {
        true => Ok(time),
        false => refuse("must be at most a year", text, "write it like `30s`"),
    }
}

pub(super) fn duration_or_zero(text: &str) -> Parsed<Duration> {
    match units::span_or_zero(text)?.is_zero() {
        true => Ok(Duration::ZERO),
        false => duration(text),
    }
}

pub(super) fn rate(text: &str) -> Parsed<Rate> {
    match units::rate(text)?.to_rate() {
        Ok(Some(rate)) => Ok(rate),
        Ok(None) => refuse(
            "must admit at least one",
            text,
            "write it like `20/s`, or deny clients with `access.deny`",
        ),
        Err(error) => refuse("cannot be held exactly", text, &format!("{error}; write `20/s`")),
    }
}

/// A whole number of a range.
fn within(text: &str, min: u64, max: u64) -> Parsed<u64> {
    let number = units::whole(text)?;
    match (min..=max).contains(&number) {
        true => Ok(number),
        false => {
            let must = format!("must be from `{min}` to `{max}`");
            refuse(&must, text, "write a number of this range")
        }
    }
}

fn u32_of(text: &str, min: u64) -> Parsed<u32> {
    within(text, min, COUNT_MAX).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

pub(super) fn count_from_1(text: &str) -> Parsed<u32> {
    u32_of(text, 1)
}

pub(super) fn count(text: &str) -> Parsed<u32> {
    u32_of(text, 0)
}

pub(super) fn percent(text: &str) -> Parsed<u8> {
    match u8::try_from(units::percent(text)?).ok().filter(|percent| (1..100).contains(percent)) {
        Some(percent) => Ok(percent),
        None => refuse("must be from `1%` to `99%`", text, "write it like `67%`"),
    }
}

/// A number of bytes, with an optional unit.
pub(super) fn bytes(text: &str) -> Parsed<u64> {
    const UNITS: [(&str, u64); 4] =
        [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
    let trimmed = text.trim();
    let unit = UNITS.iter().find_map(|(unit, size)| Some((trimmed.strip_suffix(unit)?, *size)));
    let (digits, size) = unit.unwrap_or((trimmed, 1));
    let count = units::whole(digits.trim_end()).ok().and_then(|count| count.checked_mul(size));
    match count {
        Some(bytes) => Ok(bytes),
        None => {
            refuse("must be a number of bytes", text, "write it like `64KiB`, `10MiB` or `512`")
        }
    }
}

/// Smaller heads do not hold the headers of a browser; larger ones are held in memory.
pub(super) fn header_bytes(text: &str) -> Parsed<usize> {
    const RANGE: std::ops::RangeInclusive<u64> = 8 << 10..=1 << 20;
    match bytes(text)? {
        bytes if RANGE.contains(&bytes) => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        _ => refuse("must be from `8KiB` to `1MiB`", text, "write it like `64KiB`"),
    }
}

/// Larger bodies would be held in memory for each request.
pub(super) fn buffered_bytes(text: &str) -> Parsed<usize> {
    const RANGE: std::ops::RangeInclusive<u64> = 1..=1 << 20;
    match bytes(text)? {
        bytes if RANGE.contains(&bytes) => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        _ => refuse("must be from `1` to `1MiB`", text, "write it like `64KiB`"),
    }
}

/// A request to a model, which is held in memory while it is forwarded.
pub(super) fn model_request_bytes(text: &str) -> Parsed<usize> {
    const RANGE: std::ops::RangeInclusive<u64> = 1 << 10..=64 << 20;
    match bytes(text)? {
        bytes if RANGE.contains(&bytes) => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        _ => refuse("must be from `1KiB` to `64MiB`", text, "write it like `4MiB`"),
    }
}

/// A number of tokens.
pub(super) fn token_count(text: &str) -> Parsed<u64> {
    within(text, 1, 1_000_000_000)
}

/// Larger bodies would be held in memory for each deferred request that is sent.
pub(super) fn stored_bytes(text: &str) -> Parsed<usize> {
    const RANGE: std::ops::RangeInclusive<u64> = 0..=8 << 20;
    match bytes(text)? {
        bytes if RANGE.contains(&bytes) => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        _ => refuse("must be at most `8MiB`", text, "write it like `1MiB`"),
    }
}

pub(super) fn deferred_count(text: &str) -> Parsed<u64> {
    within(text, 1, 1_000_000)
}

pub(super) fn attempts(text: &str) -> Parsed<u32> {
    within(text, 1, 100).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Name of a header, as it is written.
pub(super) fn header_name(text: &str) -> Parsed<String> {
    match is_token(text) {
        true => Ok(text.to_owned()),
        false => refuse("is not the name of a header", text, "write it like `X-Request-Id`"),
    }
}

/// Whether a text is a token of RFC 9110.
pub(super) fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

/// Value of a header.
pub(super) fn header_value(text: &str) -> Parsed<String> {
    let fits = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    match text.bytes().all(fits) {
        true => Ok(text.to_owned()),
        false => refuse("has control characters", text, "write the value on one line"),
    }
}

/// Value of a header, with placeholders.
pub(super) fn header_template(text: &str) -> Parsed<String> {
    placeholder::check(text, &HEADER_PLACEHOLDERS)?;
    header_value(text)
}

/// A host in lower case, or `*.` and a host.
pub(super) fn host(text: &str) -> Parsed<String> {
    let lower = text.trim().to_ascii_lowercase();
    let name = lower.strip_prefix("*.").unwrap_or(&lower);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    if let Some(Ok(_)) = bare.map(str::parse::<std::net::Ipv6Addr>) {
        return Ok(lower);
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || !name.chars().all(fits) || name.starts_with('.') {
        let remedy = "write it without scheme and port, like `api.example.com` or `*.example.com`";
        return refuse("is not a host", text, remedy);
    }
    Ok(lower)
}

/// A name that a certificate can have, without a star; or an IPv4 address.
pub(super) fn server_name(text: &str) -> Parsed<String> {
    let name = host(text)?;
    let is_label = |label: &str| {
        let has_dash_at_end = label.starts_with('-') || label.ends_with('-');
        (1..=63).contains(&label.len()) && !label.contains(['*', '[']) && !has_dash_at_end
    };
    let mut labels = name.strip_suffix('.').unwrap_or(&name).rsplit('.');
    let is_number = labels.clone().next().is_some_and(|last| last.parse::<u64>().is_ok());
    let is_address = name.parse::<std::net::Ipv4Addr>().is_ok();
    match name.len() <= 253 && labels.all(is_label) && (is_address || !is_number) {
        true => Ok(name),
        false => refuse("is not the name of a server", text, "write it like `api.example.com`"),
    }
}

/// A name that an authority can issue a certificate for over HTTP or TLS.
pub(super) fn domain(text: &str) -> Parsed<String> {
    let name = host(text)?;
    if name.starts_with("*.") {
        let remedy = "neither `http-01` nor `tls-alpn-01` can prove it; list the names";
        return refuse("must not be a wildcard", text, remedy);
    }
    let is_address = name.starts_with('[') || name.parse::<std::net::Ipv4Addr>().is_ok();
    match is_address || !name.contains('.') || name.ends_with('.') {
        true => refuse("must be a public name", text, "write it like `api.example.com`"),
        false => Ok(name),
    }
}

/// An e-mail address.
pub(super) fn email(text: &str) -> Parsed<String> {
    let text = text.trim();
    let fits = |part: &str| !part.is_empty() && !part.contains(['@', ' ', ':', ',', '<', '>']);
    match text.split_once('@') {
        Some((user, host)) if fits(user) && fits(host) && host.contains('.') => Ok(text.to_owned()),
        _ => refuse("must be an e-mail address", text, "write it like `ops@example.com`"),
    }
}

pub(super) fn method(text: &str) -> Parsed<String> {
    let is_method = is_token(text) && !text.bytes().any(|byte| byte.is_ascii_lowercase());
    match is_method {
        true => Ok(text.to_owned()),
        false => refuse("is not a method", text, "write it in capitals, like `GET`"),
    }
}

/// A path of a request.
pub(super) fn request_path(text: &str) -> Parsed<String> {
    match text.starts_with('/') && !text.contains(['?', '#', ' ']) {
        true => Ok(text.to_owned()),
        false => refuse(
            "must begin with `/` and have no query",
            text,
            "write it like `/login`, `/users/{id}` or `/static/*`",
        ),
    }
}

/// A path that is sent, or removed from one.
pub(super) fn plain_path(text: &str) -> Parsed<String> {
    match text.starts_with('/') && !text.contains(['#', ' ', '*', '{']) {
        true => Ok(text.to_owned()),
        false => refuse("must be a path that begins with `/`", text, "write it like `/v1`"),
    }
}

pub(super) fn server(text: &str) -> Parsed<ServerConfig> {
    text.trim().parse::<ServerConfig>().map_err(|error| UnitError::new(error.to_string()))
}

/// A status, or a range of them.
pub(super) fn status_range(text: &str) -> Parsed<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let status =
        |text: &str| text.trim().parse::<u16>().ok().filter(|one| (100..=599).contains(one));
    match (status(first), status(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => {
            refuse("must be a status or a range of them", text, "write it like `200-399` or `204`")
        }
    }
}

/// A status, a class such as `2xx`, or a range.
pub(super) fn status_class(text: &str) -> Parsed<(u16, u16)> {
    let class = text.trim().strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
    if let Some(class @ 1..=5) = class {
        return Ok((class * 100, class * 100 + 99));
    }
    status_range(text).or_else(|_| {
        let remedy = "write it like `401`, `5xx` or `200-399`";
        refuse("must be a status, a class or a range", text, remedy)
    })
}

/// A number of hits.
pub(super) fn cost(text: &str) -> Parsed<u64> {
    within(text, 0, (1 << 53) - 1)
}

pub(super) fn response_status(text: &str) -> Parsed<u16> {
    within(text, 200, 599).map(status_of)
}

pub(super) fn denial_status(text: &str) -> Parsed<u16> {
    within(text, 400, 599).map(status_of)
}

pub(super) fn queue_size(text: &str) -> Parsed<usize> {
    within(text, 1, 100_000).map(|size| usize::try_from(size).unwrap_or(usize::MAX))
}

fn status_of(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

pub(super) fn redirect_status(text: &str) -> Parsed<u16> {
    units::choice(text, &[("301", 301), ("302", 302), ("303", 303), ("307", 307), ("308", 308)])
}

/// A target of a redirect: absolute, or a path.
pub(super) fn redirect_target(text: &str) -> Parsed<String> {
    placeholder::check(text, &REDIRECT_PLACEHOLDERS)?;
    let is_absolute = text.starts_with("http://") || text.starts_with("https://");
    let is_path = text.starts_with('/') || text.starts_with("{path}");
    match (is_absolute || is_path) && header_value(text).is_ok() {
        true => Ok(text.to_owned()),
        false => refuse(
            "must be a URL or a path",
            text,
            "write it like `https://example.com{path}` or `/new`",
        ),
    }
}

/// A URL of HTTPS, or of HTTP for tests.
pub(super) fn url(text: &str) -> Parsed<String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(' ')) {
        true => Ok(text.to_owned()),
        false => refuse("must be a URL", text, "write it like `https://ca.example.com/directory`"),
    }
}
