//! The normal form of a path: what is matched and limited is what the upstream gets.
//!
//! `/login`, `/%6Cogin`, `//login` and `/x/../login` are one resource to most servers. They have to
//! be one to routes and limits, and the upstream must not see another. So the path is rewritten
//! before anything reads it (RFC 3986, section 6.2.2):
//!
//! - escapes of unreserved characters are decoded, all others are in capitals, and characters that
//!   a path cannot have are escaped;
//! - empty segments and dot segments are removed, and none leads above the root;
//! - a path that servers are known to read differently is refused: an incomplete escape, `%00`,
//!   overlong UTF-8, and a dot segment beside a parameter or an escaped slash (`/..;x/`, `/..%2F`).
//!
//! Routes match it with the escapes of `@`, `:` and the like decoded, as every server does. Some
//! servers also ignore parameters (`/login;x`), or take `%2F` and `%5C` for slashes: the route has
//! to be the same for both readings, and limits count the second one.
//!
//! The query is not changed.

use std::borrow::Cow;

use http::Uri;
use http::uri::PathAndQuery;

use crate::error::ProxyError;

/// Readings of a path beside its normal form, where they differ from it.
#[derive(Debug, Default)]
pub(crate) struct PathReadings {
    /// With escapes decoded: for routes.
    decoded: Option<String>,
    /// Without parameters, and with escaped slashes as slashes.
    loose: Option<String>,
}

impl PathReadings {
    /// The path that routes match.
    pub(crate) fn decoded<'a>(&'a self, uri: &'a Uri) -> &'a str {
        self.decoded.as_deref().unwrap_or(uri.path())
    }

    /// The target as lenient servers read it, if that is another one.
    pub(crate) fn into_loose(self) -> Option<String> {
        self.loose
    }
}

/// Path and query as lenient servers read them: an extension of a request.
#[derive(Debug, Clone)]
pub(crate) struct LoosePath(pub(crate) String);

/// Gives the path of a request its normal form.
pub(crate) fn normalize(uri: &mut Uri) -> Result<PathReadings, ProxyError> {
    // `OPTIONS *`
    if is_normal(uri.path().as_bytes()) || !uri.path().starts_with('/') {
        return Ok(PathReadings::default());
    }
    let path = normal_form(uri.path())?;
    let decoded = decoded(&path);
    let loose = loose(&decoded)?;
    if path != uri.path() {
        replace_path(uri, &path)?;
    }
    Ok(PathReadings { decoded: (decoded != path).then_some(decoded), loose })
}

/// The form in which a path of the configuration is matched; `None` if no request has it.
pub(crate) fn matched_form(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return None;
    }
    let decoded = decoded(&normal_form(path).ok()?);
    loose(&decoded).ok()?.is_none().then_some(decoded)
}

/// Removes a prefix of whole segments from the path.
pub(super) fn strip_prefix(uri: &mut Uri, prefix: &str) -> Result<(), ProxyError> {
    let prefix = prefix.trim_end_matches('/');
    let rest = match uri.path().strip_prefix(prefix) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => return Ok(()),
    };
    let rest = rest.to_owned();
    replace_path(uri, &rest)
}

fn replace_path(uri: &mut Uri, path: &str) -> Result<(), ProxyError> {
    let path = match uri.query() {
        Some(query) => Cow::Owned(format!("{path}?{query}")),
        None => Cow::Borrowed(path),
    };
    let malformed = ProxyError::BadRequest("The path is malformed.");
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(&*path).map_err(|_| malformed)?);
    *uri = Uri::from_parts(parts).map_err(|_| malformed)?;
    Ok(())
}

/// The normal form of a path.
fn normal_form(path: &str) -> Result<String, ProxyError> {
    let unescaped = unescaped(path.as_bytes())?;
    let mut segments: Vec<&str> = Vec::new();
    let mut is_directory = true;
    for segment in unescaped.split('/') {
        is_directory = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let mut normal = String::with_capacity(unescaped.len());
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if is_directory {
        normal.push('/');
    }
    Ok(normal)
}

/// Whether a path is known to be in normal form, with one reading, as nearly all are.
fn is_normal(path: &[u8]) -> bool {
    let mut last = 0;
    for byte in path {
        if !IS_PLAIN[usize::from(*byte)] || last == b'/' && matches!(byte, b'/' | b'.') {
            return false;
        }
        last = *byte;
    }
    true
}

/// Bytes of a path that need no escape, except `;`, which begins a parameter.
const IS_PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"/-._~!$&'()*+,=:@";
    let mut index = 0;
    while index < others.len() {
        plain[others[index] as usize] = true;
        index += 1;
    }
    plain
};

/// Decodes the escapes of unreserved characters, and escapes what a path cannot have.
fn unescaped(path: &[u8]) -> Result<String, ProxyError> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    let mut last = 0;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let mut byte = *byte;
        if byte == b'%' {
            let malformed = ProxyError::BadRequest("The path has a malformed escape.");
            let (digits, behind) = behind.split_at_checked(2).ok_or(malformed)?;
            rest = behind;
            byte = hex(digits).filter(|byte| *byte != 0).ok_or(malformed)?;
            if is_overlong(last, byte) {
                return Err(ProxyError::BadRequest("The path has overlong UTF-8."));
            }
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    out.push(char::from(byte));
                }
                _ => escape(byte, &mut out),
            }
        } else if IS_PLAIN[usize::from(byte)] || byte == b';' {
            out.push(char::from(byte));
        } else {
            escape(byte, &mut out);
        }
        last = byte;
    }
    Ok(out)
}

/// Whether these bytes begin a character that has a shorter encoding, such as a slash of two bytes.
const fn is_overlong(first: u8, second: u8) -> bool {
    matches!(
        (first, second),
        (0xc0 | 0xc1, 0x80..=0xbf) | (0xe0, 0x80..=0x9f) | (0xf0, 0x80..=0x8f)
    )
}

fn escape(byte: u8, out: &mut String) {
    let digit = |bits: u8| char::from(b"0123456789ABCDEF"[usize::from(bits)]);
    out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

/// Decodes two hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

/// A path in normal form without the escapes of plain characters; `%2F` stays.
fn decoded(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let escaped = piece.split_at_checked(2);
        match escaped.and_then(|(digits, rest)| Some((hex(digits.as_bytes())?, rest))) {
            Some((byte, rest)) if byte != b'/' && IS_PLAIN[usize::from(byte)] => {
                out.push(char::from(byte));
                out.push_str(rest);
            }
            _ => out.extend(["%", piece]),
        }
    }
    out
}

/// A decoded path as lenient servers read it, if that is another one.
fn loose(path: &str) -> Result<Option<String>, ProxyError> {
    if !path.contains(';') && !path.contains("%2F") && !path.contains("%5C") {
        return Ok(None);
    }
    let ambiguous = ProxyError::BadRequest("The path can be read in different ways.");
    let mut out = String::with_capacity(path.len());
    let mut is_directory = true;
    for segment in path.split('/').skip(1) {
        let (name, parameter) = segment.split_once(';').unwrap_or((segment, ""));
        if parameter.contains("%2F") || parameter.contains("%5C") {
            return Err(ambiguous);
        }
        let name = name.replace("%2F", "/").replace("%5C", "/");
        for name in name.split('/') {
            is_directory = name.is_empty();
            match name {
                "." | ".." => return Err(ambiguous),
                "" => {}
                name => out.extend(["/", name]),
            }
        }
    }
    if is_directory {
        out.push('/');
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> Option<String> {
        readings(path).map(|(normal, _, _)| normal)
    }

    /// The normal form, and what routes and lenient servers read.
    fn readings(path: &str) -> Option<(String, String, Option<String>)> {
        let mut uri: Uri = path.parse().ok()?;
        let readings = normalize(&mut uri).ok()?;
        let decoded = readings.decoded(&uri).to_owned();
        Some((uri.path().to_owned(), decoded, readings.loose))
    }

    #[test]
    fn a_path_has_one_form() {
        for (path, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/", "/a/"),
            ("//a///b//", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/./a/./", "/a/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/../../a", "/a"),
            ("/%61dmin", "/admin"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb/../c", "/c"),
            ("/a%3bb", "/a%3Bb"),
            ("/%40me", "/%40me"),
            ("/a\\b|{c}\"", "/a%5Cb%7C%7Bc%7D%22"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/%e9t%e9", "/%E9t%E9"),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("/a;x=1/b", "/a;x=1/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("*", "*"),
        ] {
            assert_eq!(normal(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
        let escapes = ["/%", "/%2", "/%zz", "/%u002e", "/a%00b"];
        let dots = ["/a/..;/b", "/a/.;x/b", "/a/%2e%2e;/b", "/a/..%2fb", "/a%5c../b", "/..\\b"];
        let overlong = ["/%c0%ae%c0%ae/b", "/a%c0%afb", "/%e0%80%af", "/%f0%80%80%af"];
        let parameters = ["/a;x%2f..%2fb", "/a;%5c"];
        for path in [&escapes[..], &dots, &overlong, &parameters].concat() {
            assert_eq!(normal(path), None, "{path}");
        }
    }

    #[test]
    fn routes_and_limits_read_a_path_as_servers_do() {
        for (path, decoded, loose) in [
            ("/a/b", "/a/b", None),
            ("/%40me/a%3Ab%2Bc", "/@me/a:b+c", None),
            ("/a%20b%25", "/a%20b%25", None),
            ("/login;x=1", "/login;x=1", Some("/login")),
            ("/a;x/;y", "/a;x/;y", Some("/a/")),
            ("/a%3bb", "/a%3Bb", None),
            ("/a%2fb%5Cc", "/a%2Fb%5Cc", Some("/a/b/c")),
            ("/a%2F%2f", "/a%2F%2F", Some("/a/")),
            ("/;x/a", "/;x/a", Some("/a")),
        ] {
            let (_, found, lenient) = readings(path).unwrap();
            assert_eq!((found.as_str(), lenient.as_deref()), (decoded, loose), "{path}");
        }
    }

    #[test]
    fn a_path_of_the_configuration_is_one_that_requests_have() {
        for (path, form) in [
            ("/users/@me", Some("/users/@me")),
            ("/users/%40me", Some("/users/@me")),
            ("/a//b/", Some("/a/b/")),
            ("/a;b", None),
            ("/a%2Fb", None),
            ("a", None),
        ] {
            assert_eq!(matched_form(path).as_deref(), form, "{path}");
        }
    }

    #[test]
    fn a_prefix_of_whole_segments_is_stripped() {
        for (path, expected) in [
            ("/api/users?x=1", "/users?x=1"),
            ("/api", "/"),
            ("/api?x", "/?x"),
            ("/api/", "/"),
            ("/apis", "/apis"),
            ("/other", "/other"),
        ] {
            let mut uri: Uri = path.parse().unwrap();
            strip_prefix(&mut uri, "/api").unwrap();
            assert_eq!(uri, expected, "{path}");
        }
    }

    #[test]
    fn the_query_and_the_host_stay() {
        let mut uri: Uri = "http://shop.example/a/../b?next=/x/../%2e".parse().unwrap();
        normalize(&mut uri).unwrap();
        assert_eq!(uri, "http://shop.example/b?next=/x/../%2e");
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own(path in "/[a.%/;2eE5cCfF0@~\\\\]{0,24}") {
            if let Some(once) = normal(&path) {
                prop_assert_eq!(normal(&once), Some(once.clone()));
                prop_assert!(once.starts_with('/') && !once.contains("//"));
                let has_dots = once.split('/').any(|segment| matches!(segment, "." | ".."));
                prop_assert!(!has_dots, "{}", once);
            }
        }
    }
}
