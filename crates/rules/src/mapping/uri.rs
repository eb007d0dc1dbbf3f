//! Path normalization and query parameters.
//!
//! `/login`, `/%6Cogin`, `//login` and `/x/../login` are one resource to most servers, so they must
//! be one to a limit. A path is normalized: escapes decoded, empty and dot segments removed. An
//! escape that is significant stays, in capitals: `%2F`, `%25`, control characters, and bytes that
//! are no UTF-8. So no path is refused, and paths differ in normal form if a server distinguishes
//! them, except by such segments.

use std::borrow::Cow;

use super::Why;

/// The path of a URI, or of what comes in its place.
pub(super) fn path(uri: &[u8]) -> Cow<'_, str> {
    let uri = origin_form(uri.trim_ascii());
    let end = uri.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(uri.len());
    let path = uri.get(..end).unwrap_or_default();
    match std::str::from_utf8(path) {
        Ok(text) if is_simple(path) => Cow::Borrowed(text),
        _ => Cow::Owned(segments(&unescaped(path))),
    }
}

/// The first parameter of a name, if there is one.
pub(super) fn query<'a>(uri: &'a [u8], name: &str) -> Option<Result<Cow<'a, str>, Why>> {
    let uri = uri.trim_ascii();
    let end = uri.iter().position(|byte| *byte == b'#').unwrap_or(uri.len());
    let uri = uri.get(..end).unwrap_or_default();
    let begin = uri.iter().position(|byte| *byte == b'?')?;
    let pairs = uri.get(begin + 1..)?.split(|byte| *byte == b'&');
    let mut pairs = pairs.map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (key, value) = pair.split_at_checked(equals).unwrap_or((pair, b""));
        (key, value.get(1..).unwrap_or_default())
    });
    // An undecodable name matches none.
    let (_, value) = pairs.find(|(key, _)| decoded(key).is_ok_and(|key| key == name))?;
    Some(decoded(value))
}

/// The decoded value of the first parameter of a name, as `query NAME` reads it.
///
/// ```
/// use sluicegate_rules::mapping::query_value;
///
/// assert_eq!(query_value("/?a=1&k%65y=b%20c", "key").as_deref(), Some("b c"));
/// assert_eq!(query_value("/?key=%zz", "key"), None);
/// ```
#[must_use]
pub fn query_value<'a>(uri: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query(uri.as_bytes(), name)?.ok()
}

/// Decodes a name or value of a form or query; `None` if it has an invalid escape, or is not UTF-8.
///
/// ```
/// use sluicegate_rules::mapping::decode_form;
///
/// assert_eq!(decode_form(b"a+b%2B%C3%A9").as_deref(), Some("a b+é"));
/// assert_eq!((decode_form(b"100%"), decode_form(b"%ff")), (None, None));
/// ```
#[must_use]
pub fn decode_form(text: &[u8]) -> Option<Cow<'_, str>> {
    decoded(text).ok()
}

/// Path and query without all parameters of a name; `None` if there is none.
///
/// ```
/// use sluicegate_rules::mapping::without_query;
///
/// assert_eq!(without_query("/?a=1&k%65y=b&c", "key").as_deref(), Some("/?a=1&c"));
/// assert_eq!(without_query("/?key=b", "key").as_deref(), Some("/"));
/// assert_eq!(without_query("/?a=1", "key"), None);
/// ```
#[must_use]
pub fn without_query(uri: &str, name: &str) -> Option<String> {
    let (path, query) = uri.split_once('?')?;
    let is_other = |pair: &&str| {
        let key = pair.split_once('=').map_or(*pair, |(key, _)| key);
        !decoded(key.as_bytes()).is_ok_and(|key| key == name)
    };
    let others: Vec<&str> = query.split('&').filter(is_other).collect();
    if others.len() == query.split('&').count() {
        return None;
    }
    let query = others.join("&");
    Some(if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
}

/// The URI without scheme and host.
fn origin_form(uri: &[u8]) -> &[u8] {
    if uri.starts_with(b"/") {
        return uri;
    }
    let Some(colon) = uri.windows(3).position(|bytes| bytes == b"://") else { return uri };
    let rest = uri.get(colon + 3..).unwrap_or_default();
    match rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')) {
        Some(end) if rest.get(end) == Some(&b'/') => rest.get(end..).unwrap_or_default(),
        _ => b"/",
    }
}

/// Whether a path is known to be in normal form.
fn is_simple(path: &[u8]) -> bool {
    let plain = |byte: &u8| (b'!'..0x7f).contains(byte) && *byte != b'%' || *byte >= 0x80;
    let pairs = || path.windows(2);
    path.starts_with(b"/")
        && path.iter().all(plain)
        && !pairs().any(|pair| pair == b"//" || pair == b"/.")
}

/// Decodes escapes, except significant ones.
fn unescaped(path: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => match behind
                .split_at_checked(2)
                .and_then(|(digits, after)| Some((hex(digits)?, after)))
            {
                // A slash that separates nothing.
                Some((b'/', after)) => {
                    escape(b'/', &mut bytes);
                    rest = after;
                }
                Some((byte, after)) => {
                    put(byte, &mut bytes);
                    rest = after;
                }
                None => put(b'%', &mut bytes),
            },
            byte => put(*byte, &mut bytes),
        }
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let mut escaped = Vec::new();
            escape(*byte, &mut escaped);
            text.extend(escaped.into_iter().map(char::from));
        }
    }
    text
}

fn put(byte: u8, out: &mut Vec<u8>) {
    if byte == b'%' || byte.is_ascii_control() { escape(byte, out) } else { out.push(byte) }
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
    let digit = |bits: u8| DIGITS.get(usize::from(bits)).copied().unwrap_or(b'0');
    out.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
}

/// Removes empty and dot segments.
fn segments(path: &str) -> String {
    if !path.starts_with('/') {
        return path.to_owned();
    }
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_open = true;
    for segment in path.split('/') {
        ends_open = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut out = String::with_capacity(path.len());
    for segment in &segments {
        out.push('/');
        out.push_str(segment);
    }
    if ends_open || segments.is_empty() {
        out.push('/');
    }
    out
}

/// Decodes a name or value of a query; `None` if it is not valid UTF-8.
fn decoded(text: &[u8]) -> Result<Cow<'_, str>, Why> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Why::text(text).map(Cow::Borrowed);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                let (digits, after) = behind.split_at_checked(2).ok_or(Why::BadEscape)?;
                bytes.push(hex(digits).ok_or(Why::BadEscape)?);
                rest = after;
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Why::NotText)
}

/// Decodes two hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}
