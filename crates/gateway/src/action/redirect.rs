//! Targets of redirects. No request chooses the host that a client is sent to.

use http::Uri;
use sluicegate_config::gateway::placeholder::{
    REDIRECT_PLACEHOLDERS, TemplatePiece, pieces, unknown_placeholder,
};

/// A target with placeholders for path and query.
#[derive(Debug)]
pub(crate) struct RedirectTarget(Vec<RedirectPiece>);

/// A piece of a target.
#[derive(Debug)]
enum RedirectPiece {
    Text(String),
    Path,
    Query,
}

impl RedirectTarget {
    /// Checks a target.
    ///
    /// # Errors
    /// When a placeholder is unknown, or a path could be taken for its host.
    pub(crate) fn new(to: &str) -> Result<Self, String> {
        let host = to.split_once("://").map(|(_, rest)| rest);
        let is_chosen = host.is_some_and(|host| {
            let ends = ["/", "?", "#", "{path}", "{query}"].map(|end| host.find(end));
            let end = ends.into_iter().flatten().min().unwrap_or(host.len());
            let authority = &host[..end];
            authority.is_empty() || authority.contains(['{', '\\'])
        });
        if is_chosen || to.starts_with("//") || to.starts_with("/\\") {
            return Err(format!(
                "`{to}` would let a request choose the host; write it like `https://example.com{{path}}`"
            ));
        }
        let piece = |piece| match piece {
            TemplatePiece::Text(text) => Ok(RedirectPiece::Text(text.to_owned())),
            TemplatePiece::Placeholder("path") => Ok(RedirectPiece::Path),
            TemplatePiece::Placeholder("query") => Ok(RedirectPiece::Query),
            TemplatePiece::Placeholder(name) => {
                Err(unknown_placeholder(name, &REDIRECT_PLACEHOLDERS))
            }
        };
        pieces(to).into_iter().map(piece).collect::<Result<_, _>>().map(Self)
    }

    /// The target of a request. Its path is in normal form: it begins with one slash.
    pub(super) fn location(&self, uri: &Uri) -> String {
        let mut location = String::new();
        for piece in &self.0 {
            match piece {
                RedirectPiece::Text(text) => location.push_str(text),
                RedirectPiece::Path => {
                    // Two slashes would begin a host.
                    let path = match location.ends_with('/') {
                        true => uri.path().trim_start_matches('/'),
                        false => uri.path(),
                    };
                    // Browsers take a backslash for a slash.
                    location.push_str(&path.replace('\\', "%5C"));
                }
                RedirectPiece::Query => {
                    let Some(query) = uri.query() else { continue };
                    if !location.ends_with(['?', '&']) {
                        location.push(if location.contains('?') { '&' } else { '?' });
                    }
                    location.push_str(query);
                }
            }
        }
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
            ("/{{path}}", "/x", "/{path}"),
        ] {
            assert_eq!(location(to, uri), expected, "{to}");
        }
    }

    #[test]
    fn unknown_placeholders_are_refused() {
        let error = RedirectTarget::new("/{pth}").unwrap_err();
        assert!(error.contains("did you mean `{path}`?"), "{error}");
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
