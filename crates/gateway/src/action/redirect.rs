//! Targets of redirects. No request chooses the host that a client is sent to.

use http::Uri;

/// A target with placeholders for path and query.
#[derive(Debug)]
pub(crate) struct RedirectTarget(String);

impl RedirectTarget {
    /// Checks a target.
    ///
    /// # Errors
    /// When a path could be taken for its host.
    pub(crate) fn new(to: &str) -> Result<Self, String> {
        let host = to.split_once("://").map(|(_, rest)| rest);
        let is_chosen = host.is_some_and(|host| {
            let ends = ["/", "?", "#", "{path}", "{query}"].map(|end| host.find(end));
            let end = ends.into_iter().flatten().min().unwrap_or(host.len());
            let authority = &host[..end];
            authority.is_empty() || authority.contains(['{', '\\'])
        });
        match is_chosen || to.starts_with("//") || to.starts_with("/\\") {
            true => Err(format!(
                "redirect: `{to}` would let a request choose the host; write it like `https://example.com{{path}}`"
            )),
            false => Ok(Self(to.to_owned())),
        }
    }

    /// The target of a request. Its path is in normal form: it begins with one slash.
    pub(super) fn location(&self, uri: &Uri) -> String {
        let mut location = String::new();
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find('{') {
            location.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(behind) = rest.strip_prefix("{path}") {
                let path = uri.path();
                // Two slashes would begin a host.
                let path = match location.ends_with('/') {
                    true => path.trim_start_matches('/'),
                    false => path,
                };
                // Browsers take a backslash for a slash.
                location.push_str(&path.replace('\\', "%5C"));
                rest = behind;
            } else if let Some(behind) = rest.strip_prefix("{query}") {
                if let Some(query) = uri.query() {
                    if !location.ends_with(['?', '&']) {
                        location.push(if location.contains('?') { '&' } else { '?' });
                    }
                    location.push_str(query);
                }
                rest = behind;
            } else {
                location.push('{');
                rest = &rest[1..];
            }
        }
        location.push_str(rest);
        location
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn location(to: &str, uri: &str) -> String {
        RedirectTarget::new(to).unwrap().location(&uri.parse().unwrap())
    }

    #[test]
    fn path_and_query_are_those_of_the_request() {
        for (to, uri, expected) in [
            ("https://b.example{path}", "/x/y?z=1", "https://b.example/x/y"),
            ("https://b.example{path}{query}", "/x?z=1", "https://b.example/x?z=1"),
            ("https://b.example{path}?{query}", "/x?z=1", "https://b.example/x?z=1"),
            ("https://b.example{path}?a=1{query}", "/x?z=1", "https://b.example/x?a=1&z=1"),
            ("https://b.example/new/{path}", "/x", "https://b.example/new/x"),
            ("{path}/", "/x", "/x/"),
            ("/{path}", "/x", "/x"),
            ("/new", "/x?z", "/new"),
            ("/{other}", "/x", "/{other}"),
        ] {
            assert_eq!(location(to, uri), expected, "{to}");
        }
    }

    #[test]
    fn a_target_without_a_host_of_its_own_is_refused() {
        for to in ["https://{path}", "http://", "//{path}", "https://{query}.example/"] {
            let error = RedirectTarget::new(to).unwrap_err();
            assert!(error.contains("choose the host"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_to_another_host(path in "/[a-z/\\\\@:.%2F]{0,16}", to in "(\\{path\\}|/\\{path\\}|/x\\{path\\})") {
            let Ok(mut uri) = path.parse::<Uri>() else { return Ok(()) };
            prop_assume!(crate::forward::normalize(&mut uri).is_ok());
            let location = RedirectTarget::new(&to).unwrap().location(&uri);
            prop_assert!(location.starts_with('/'), "{}", location);
            prop_assert!(!location.starts_with("//") && !location.contains('\\'), "{}", location);
        }
    }
}
