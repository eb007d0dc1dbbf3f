//! Matching of texts with `*`.

use std::net::IpAddr;

use sluicegate_rules::domain::Pattern;

/// Whether a pattern matches a text; each `*` matches any number of characters.
///
/// The text may itself be a pattern, whose `*` is an ordinary character here. A match then means
/// that the first pattern matches everything that the second does, since only a `*` matches that
/// character.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // The position of the last `*`, and the end of its match.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == text.get(t) {
            p += 1;
            t += 1;
        } else if let Some((index, taken)) = star {
            star = Some((index, taken + 1));
            p = index + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

/// Whether one pattern is known to match everything that another does.
pub(super) fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    match (wide, narrow) {
        (Pattern::Any, _) => true,
        (Pattern::Text(wide), Pattern::Text(narrow)) => {
            // `matches` would take a `*` for the other's letter only, so equal globs are its too.
            wide == narrow || (wide.contains('*') && matches(wide, narrow))
        }
        (Pattern::Regex(wide), Pattern::Text(narrow)) => {
            !narrow.contains('*') && wide.is_match(narrow)
        }
        (Pattern::Networks(wide), Pattern::Networks(narrow)) => {
            narrow.iter().all(|narrow| wide.iter().any(|wide| wide.covers(narrow)))
        }
        (Pattern::Networks(wide), Pattern::Text(narrow)) => {
            let address: Option<IpAddr> = narrow.parse().ok();
            address.is_some_and(|address| wide.iter().any(|wide| wide.contains(address)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_take_anything() {
        let table = [
            ("", "", true),
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("*b*", "abc", true),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "axxcxxb", false),
            ("ab", "a*", false),
            ("a*", "a*b", true),
            ("/v*/", "/v*/", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_cover_others() {
        let text = |text: &str| Pattern::Text(text.to_owned());
        let nets =
            |all: &[&str]| Pattern::Networks(all.iter().map(|one| one.parse().unwrap()).collect());
        let regex = Pattern::Regex(regex::Regex::new("^a").unwrap());
        assert!(covers(&Pattern::Any, &regex));
        assert!(covers(&text("a*"), &text("ab*")) && !covers(&text("ab*"), &text("a*")));
        assert!(covers(&text("a"), &text("a")) && !covers(&text("a"), &text("b")));
        assert!(covers(&regex, &text("abc")) && !covers(&regex, &text("a*")));
        assert!(covers(&nets(&["10.0.0.0/8"]), &nets(&["10.1.0.0/16", "10.2.0.0/16"])));
        assert!(!covers(&nets(&["10.0.0.0/8"]), &nets(&["10.1.0.0/16", "11.0.0.0/16"])));
        assert!(covers(&nets(&["10.0.0.0/8"]), &text("10.9.9.9")));
        assert!(
            !covers(&nets(&["10.0.0.0/8"]), &text("ten")) && !covers(&text("a"), &Pattern::Any)
        );
    }

    proptest! {
        #[test]
        fn what_is_covered_is_matched(
            wide in "[ab*]{0,5}", narrow in "[ab*]{0,5}", filling in "[ab]{0,3}",
        ) {
            let text = narrow.replace('*', &filling);
            if matches(&wide, &narrow) {
                prop_assert!(matches(&wide, &text), "{} covers {}, not {}", wide, narrow, text);
            }
            prop_assert!(matches(&narrow, &text));
        }
    }
}
