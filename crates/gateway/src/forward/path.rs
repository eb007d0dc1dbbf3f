//! The normal form of a path: what is matched and limited is what the upstream gets.
//!
//! `/login`, `/%6Cogin`, `//login` and `/x/../login` are one resource to most servers. They have to
//! be one to routes and limits, and the upstream must not see another. So the path is rewritten
//! before anything reads it (RFC 3986, section 6.2.2):
//!
//! - escapes of unreserved characters are decoded, all others are in capitals; `%2F` stays;
//! - empty segments and dot segments are removed, and none leads above the root;
//! - a path that servers are known to read differently is refused: an incomplete escape, `%00`, and
//!   a dot segment with a parameter (`/..;x/`), which some servers take for a dot segment.
//!
//! The query is not changed.

use std::borrow::Cow;

use http::Uri;
use http::uri::PathAndQuery;

use crate::error::ProxyError;

/// Gives the path of a request its normal form.
pub(crate) fn normalize(uri: &mut Uri) -> Result<(), ProxyError> {
    let Cow::Owned(path) = normal_form(uri.path())? else { return Ok(()) };
    replace_path(uri, &path)
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
fn normal_form(path: &str) -> Result<Cow<'_, str>, ProxyError> {
    if is_normal(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    // `OPTIONS *`
    if !path.starts_with('/') {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = unescaped(path.as_bytes())?;
    let mut segments: Vec<&str> = Vec::new();
    let mut is_directory = true;
    for segment in decoded.split('/') {
        is_directory = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment if segment.starts_with(".;") || segment.starts_with("..;") => {
                let reason = "The path has a dot segment with a parameter.";
                return Err(ProxyError::BadRequest(reason));
            }
            segment => segments.push(segment),
        }
    }
    let mut normal = String::with_capacity(decoded.len());
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if is_directory {
        normal.push('/');
    }
    Ok(Cow::Owned(normal))
}

/// Whether a path is known to be in normal form, as nearly all are.
fn is_normal(path: &[u8]) -> bool {
    let mut last = 0;
    for byte in path {
        if *byte == b'%' || last == b'/' && matches!(byte, b'/' | b'.') {
            return false;
        }
        last = *byte;
    }
    true
}

/// Decodes the escapes of unreserved characters; the others are in capitals.
fn unescaped(path: &[u8]) -> Result<String, ProxyError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let malformed = ProxyError::BadRequest("The path has a malformed escape.");
        let (digits, behind) = behind.split_at_checked(2).ok_or(malformed)?;
        rest = behind;
        let value = |digit: u8| char::from(digit).to_digit(16).ok_or(malformed);
        let [high, low] = [value(digits[0])?, value(digits[1])?];
        // Two digits of four bits each.
        let byte = (high << 4 | low) as u8;
        match byte {
            0 => return Err(malformed),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                decoded.push(byte);
            }
            _ => {
                decoded.push(b'%');
                decoded.extend(digits.iter().map(u8::to_ascii_uppercase));
            }
        }
    }
    String::from_utf8(decoded).map_err(|_| ProxyError::BadRequest("The path is malformed."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> Option<String> {
        normal_form(path).ok().map(Cow::into_owned)
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
            ("/a%2F..%2Fb", "/a%2F..%2Fb"),
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
        for path in ["/a/..;/b", "/a/.;x/b", "/a/%2e%2e;/b", "/%", "/%2", "/%zz", "/a%00b"] {
            assert_eq!(normal(path), None, "{path}");
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
        fn a_normal_form_is_its_own(path in "/[a.%/;2eEfF~]{0,24}") {
            if let Some(once) = normal(&path) {
                prop_assert_eq!(normal(&once), Some(once.clone()));
                prop_assert!(once.starts_with('/') && !once.contains("//"));
                let has_dots = once.split('/').any(|segment| matches!(segment, "." | ".."));
                prop_assert!(!has_dots, "{}", once);
            }
        }
    }
}
