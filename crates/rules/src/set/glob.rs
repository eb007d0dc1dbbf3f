//! Texts in which each `*` stands for any number of characters.

/// A glob, taken apart at its stars.
#[derive(Debug)]
pub(super) struct Glob {
    text: Box<str>,
    /// How long the text before the first star is.
    prefix: usize,
    /// How long the text behind the last star is.
    suffix: usize,
}

impl Glob {
    /// The glob of a text whose first bytes, so many, stand for themselves even if they are stars; `None` if there is no star
    /// behind them.
    pub(super) fn new(text: &str, literal: usize) -> Option<Self> {
        let stars = text.get(literal..)?;
        let prefix = literal + stars.find('*')?;
        let suffix = stars.len() - stars.rfind('*')? - 1;
        Some(Self { text: text.into(), prefix, suffix })
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.text.as_bytes()[..self.prefix]
    }

    pub(super) fn suffix(&self) -> &[u8] {
        &self.text.as_bytes()[self.text.len() - self.suffix..]
    }

    /// Whether it matches all of a text.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        if text.len() < self.prefix + self.suffix
            || !text.starts_with(self.prefix())
            || !text.ends_with(self.suffix())
        {
            return false;
        }
        let pattern = self.text.as_bytes();
        let middle = &text[self.prefix..text.len() - self.suffix];
        holds_in_order(&pattern[self.prefix..pattern.len() - self.suffix], middle)
    }
}

/// Whether the pieces between the stars of `pattern`, which begins and ends with one, stand in `text` one after the other. Taking
/// each as early as it comes leaves the most room for the others.
fn holds_in_order(pattern: &[u8], text: &[u8]) -> bool {
    let mut rest = text;
    for piece in pattern.split(|byte| *byte == b'*').filter(|piece| !piece.is_empty()) {
        let Some(at) = rest.windows(piece.len()).position(|window| window == piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern, 0).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, yes, no) in [
            ("/login*", vec!["/login", "/login/x"], vec!["/logi", "x/login"]),
            ("*.jpg", vec![".jpg", "a.jpg"], vec!["jpg", "a.jpg2"]),
            ("a*b*c", vec!["abc", "aXbYc", "abbc", "abcbc"], vec!["ab", "acb", "ac"]),
            ("*", vec!["", "anything"], vec![]),
            ("ab*ba", vec!["abba", "abxba"], vec!["aba", "ab"]),
            ("**a**", vec!["a", "xax"], vec!["", "b"]),
        ] {
            assert!(yes.iter().all(|text| matches(pattern, text)), "{pattern}");
            assert!(!no.iter().any(|text| matches(pattern, text)), "{pattern}");
        }
        assert!(Glob::new("no star", 0).is_none());
    }

    #[test]
    fn a_star_that_stands_for_itself() {
        let glob = Glob::new("a*_b*", 3).unwrap();
        assert!(glob.matches(b"a*_b") && glob.matches(b"a*_bb"));
        assert!(!glob.matches(b"ab_b") && !glob.matches(b"a_b"));
        assert!(Glob::new("a*_b", 3).is_none());
    }

    /// Tries everything.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', after)), _) => {
                (0..=text.len()).any(|length| naive(after, &text[length..]))
            }
            (Some((a, pattern)), Some((b, text))) => a == b && naive(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_trying_everything(pattern in "[ab*]{0,7}\\*[ab*]{0,4}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), naive(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
