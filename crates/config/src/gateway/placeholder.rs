//! Placeholders in values of headers and targets of redirects.
//!
//! ```text
//!   {client_ip}        the placeholder of this name
//!   {{client_ip}}      the text `{client_ip}`
//!   {"a":1}, {?user}   text: no name is alone between the braces
//! ```

use crate::problem::quoted;
use crate::suggest;
use crate::units::UnitError;

/// Placeholders in values of headers.
pub const HEADER_PLACEHOLDERS: [&str; 3] = ["client_ip", "request_id", "host"];
/// Placeholders in targets of redirects.
pub const REDIRECT_PLACEHOLDERS: [&str; 2] = ["path", "query"];

/// A piece of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplatePiece<'a> {
    /// Literal text.
    Text(&'a str),
    /// The name of a placeholder, known or not.
    Placeholder(&'a str),
}

/// Splits a value into its pieces.
///
/// ```
/// use sluicegate_config::gateway::placeholder::{TemplatePiece::*, pieces};
///
/// assert_eq!(pieces("a={host};"), [Text("a="), Placeholder("host"), Text(";")]);
/// assert_eq!(pieces("{{host}}"), [Text("{host}")]);
/// assert_eq!(pieces(r#"{"a":{}}"#), [Text(r#"{"a":{}}"#)]);
/// ```
#[must_use]
pub fn pieces(text: &str) -> Vec<TemplatePiece<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = rest.get(from..).and_then(|text| text.find('{')).map(|at| at + from) {
        let (before, behind) = rest.split_at(at);
        let (piece, length) = match (enclosed(behind, "{{", "}}"), enclosed(behind, "{", "}")) {
            (Some(name), _) => {
                let literal = behind.get(1..name.len() + 3).unwrap_or_default();
                (TemplatePiece::Text(literal), name.len() + 4)
            }
            (None, Some(name)) => (TemplatePiece::Placeholder(name), name.len() + 2),
            (None, None) => {
                from = at + 1;
                continue;
            }
        };
        if !before.is_empty() {
            pieces.push(TemplatePiece::Text(before));
        }
        pieces.push(piece);
        (rest, from) = (behind.get(length..).unwrap_or_default(), 0);
    }
    if !rest.is_empty() {
        pieces.push(TemplatePiece::Text(rest));
    }
    pieces
}

/// The name that a text begins with, between these braces.
fn enclosed<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inside = text.strip_prefix(open)?;
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let end = inside.find(|c| !is_in_name(c))?;
    let (name, behind) = inside.split_at(end);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (is_name && behind.starts_with(close)).then_some(name)
}

/// Refuses placeholders that are not known.
pub(super) fn check(text: &str, known: &[&str]) -> Result<(), UnitError> {
    let unknown = pieces(text).into_iter().find_map(|piece| match piece {
        TemplatePiece::Placeholder(name) if !known.contains(&name) => Some(name),
        _ => None,
    });
    match unknown {
        Some(name) => Err(UnitError::new(unknown_placeholder(name, known))),
        None => Ok(()),
    }
}

/// The message about a placeholder that is not known.
#[must_use]
pub fn unknown_placeholder(name: &str, known: &[&str]) -> String {
    let got = quoted(&format!("{{{name}}}"));
    let hint = suggest::nearest(name, known.iter().copied());
    let hint = hint.map(|name| format!("did you mean `{{{name}}}`? ")).unwrap_or_default();
    let known: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let literal = quoted(&format!("{{{{{name}}}}}"));
    format!(
        "unknown placeholder, got {got}; {hint}the placeholders are {}; write {literal} for the text \
         itself",
        suggest::all_of(&known)
    )
}

#[cfg(test)]
mod tests {
    use super::TemplatePiece::{Placeholder, Text};
    use super::*;

    #[test]
    fn names_alone_between_braces_are_placeholders() {
        for (text, expected) in [
            ("", vec![]),
            ("gate", vec![Text("gate")]),
            ("{a}{b}", vec![Placeholder("a"), Placeholder("b")]),
            ("{{a}", vec![Text("{"), Placeholder("a")]),
            ("{a}}", vec![Placeholder("a"), Text("}")]),
            ("x{{a}}y", vec![Text("x"), Text("{a}"), Text("y")]),
            ("{{{a}}}", vec![Text("{"), Text("{a}"), Text("}")]),
            (r#"{"a":{host}}"#, vec![Text(r#"{"a":"#), Placeholder("host"), Text("}")]),
        ] {
            assert_eq!(pieces(text), expected, "{text}");
        }
        let literals =
            [r#"{"a":[{"b":"{}"}]}"#, "{?user}", "{+path}", "{1}", "{ host }", "{é}", "{", "}{"];
        for text in literals {
            assert_eq!(pieces(text), [Text(text)], "{text}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_a_suggestion() {
        let message = |text| check(text, &HEADER_PLACEHOLDERS).unwrap_err().into_message();
        assert_eq!(
            message("a {host} {clientip}"),
            "unknown placeholder, got `{clientip}`; did you mean `{client_ip}`? the placeholders are \
             `{client_ip}`, `{request_id}` and `{host}`; write `{{clientip}}` for the text itself"
        );
        assert!(message("{Client-IP}").contains("did you mean `{client_ip}`?"));
        assert!(!message("{path}").contains("did you mean"));
        assert!(check("{{clientip}} {host}", &HEADER_PLACEHOLDERS).is_ok());
    }
}
