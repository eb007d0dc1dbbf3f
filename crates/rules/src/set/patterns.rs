//! The globs and regular expressions of one level; the first in file order that matches wins.
//!
//! A few are tried in turn. Many globs are found by a hash of their literal prefix and suffix, one
//! lookup for each pair of lengths that occurs. Ten thousand paths that end in a star have some
//! thirty such pairs.

use regex::Regex;

use super::table::{Table, hash};

/// The globs and regular expressions of a level.
#[derive(Debug, Clone, Default)]
pub(super) struct Patterns {
    globs: Vec<Tried>,
    expressions: Vec<Expression>,
    index: Option<Box<Index>>,
}

/// A glob and its node.
#[derive(Debug, Clone)]
struct Tried {
    glob: Glob,
    /// Its index among all patterns of the level.
    order: u32,
    /// Length of the key at the start of the text; `None` where it does not matter.
    key_length: Option<usize>,
    node: u32,
    /// Whether the next in the list has the same prefix and suffix; only with an index.
    next_alike: bool,
}

#[derive(Debug, Clone)]
struct Expression {
    key: Box<str>,
    regex: Regex,
    order: u32,
    node: u32,
}

/// Globs by prefix and suffix.
#[derive(Debug, Clone)]
struct Index {
    /// The pairs of prefix and suffix lengths that occur, sorted.
    lengths: Box<[(u8, u8)]>,
    /// Finds the first of those with equal prefix and suffix, which are adjacent.
    first: Table,
}

/// From this number of globs on they are looked up instead of tried.
const TRIED_MAX: usize = 8;
/// The most lengths distinguished; a longer prefix or suffix is cut to the longest of these.
const LENGTH_MAX: usize = 96;

/// An entry, its key and value joined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Joined<'a> {
    pub(super) text: &'a [u8],
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

impl Patterns {
    pub(super) fn add_glob(&mut self, glob: Glob, key_length: Option<usize>, node: u32) {
        let order = self.next_order();
        self.globs.push(Tried { glob, order, key_length, node, next_alike: false });
    }

    pub(super) fn add_expression(&mut self, key: &str, regex: Regex, node: u32) {
        let order = self.next_order();
        self.expressions.push(Expression { key: key.into(), regex, order, node });
    }

    fn next_order(&self) -> u32 {
        u32::try_from(self.globs.len() + self.expressions.len()).unwrap_or(u32::MAX)
    }

    /// Must be called when all have been added.
    pub(super) fn finish(&mut self) {
        if self.globs.len() > TRIED_MAX {
            self.index = Some(Box::new(Index::new(&mut self.globs)));
        }
    }

    /// The node of the first pattern that matches.
    pub(super) fn first(&self, entry: Joined<'_>) -> Option<u32> {
        let glob = match &self.index {
            None => self.globs.iter().find(|tried| tried.matches(entry)),
            Some(index) => index.first(&self.globs, entry),
        };
        let before = glob.map_or(u32::MAX, |tried| tried.order);
        let matches = |expression: &&Expression| {
            *expression.key == *entry.key && expression.regex.is_match(entry.value)
        };
        let earlier = self.expressions.iter().take_while(|expression| expression.order < before);
        let expression = earlier.filter(matches).map(|expression| expression.node).next();
        expression.or(glob.map(|tried| tried.node))
    }
}

impl Tried {
    fn matches(&self, entry: Joined<'_>) -> bool {
        self.key_length.is_none_or(|length| length == entry.key.len())
            && self.glob.matches(entry.text)
    }

    fn prefix(&self) -> &[u8] {
        let prefix = self.glob.prefix();
        &prefix[..prefix.len().min(LENGTH_MAX)]
    }

    fn suffix(&self) -> &[u8] {
        let suffix = self.glob.suffix();
        &suffix[suffix.len() - suffix.len().min(LENGTH_MAX)..]
    }
}

impl Index {
    /// An index of these, which it reorders.
    fn new(globs: &mut [Tried]) -> Self {
        globs.sort_by(|a, b| {
            (a.prefix(), a.suffix(), a.order).cmp(&(b.prefix(), b.suffix(), b.order))
        });
        for index in 1..globs.len() {
            let (one, other) = (&globs[index - 1], &globs[index]);
            let alike = one.prefix() == other.prefix() && one.suffix() == other.suffix();
            globs[index - 1].next_alike = alike;
        }
        let mut hashes = Vec::new();
        let mut lengths = Vec::new();
        let mut is_first = true;
        for (tried, index) in globs.iter().zip(0..) {
            if is_first {
                let (prefix, suffix) = (tried.prefix(), tried.suffix());
                hashes.push((both(begins(prefix), ends(suffix)), index));
                lengths.push((prefix.len() as u8, suffix.len() as u8));
            }
            is_first = !tried.next_alike;
        }
        lengths.sort_unstable();
        lengths.dedup();
        Self { lengths: lengths.into(), first: Table::new(hashes.into_iter()) }
    }

    fn first<'a>(&self, globs: &'a [Tried], entry: Joined<'_>) -> Option<&'a Tried> {
        let text = entry.text;
        let (mut begin, mut end) = ((usize::MAX, 0), (usize::MAX, 0));
        let mut first: Option<&Tried> = None;
        for (prefix, suffix) in &self.lengths {
            let (prefix, suffix) = (usize::from(*prefix), usize::from(*suffix));
            if prefix + suffix > text.len() {
                continue;
            }
            if begin.0 != prefix {
                begin = (prefix, begins(&text[..prefix]));
            }
            if end.0 != suffix {
                end = (suffix, ends(&text[text.len() - suffix..]));
            }
            for index in self.first.candidates(both(begin.1, end.1)) {
                let alike = &mut globs[index as usize..].iter();
                let mut goes_on = true;
                let alike =
                    alike.take_while(|tried| std::mem::replace(&mut goes_on, tried.next_alike));
                let earlier = |tried: &&Tried| first.is_none_or(|first| tried.order < first.order);
                let found = alike.take_while(earlier).find(|tried| tried.matches(entry));
                first = found.or(first);
            }
        }
        first
    }
}

const _: () = assert!(LENGTH_MAX <= u8::MAX as usize);

fn begins(text: &[u8]) -> u64 {
    hash(1, text)
}

fn ends(text: &[u8]) -> u64 {
    hash(2, text)
}

const fn both(begins: u64, ends: u64) -> u64 {
    begins ^ ends.rotate_left(17)
}

/// A text in which each `*` matches any number of characters.
#[derive(Debug, Clone)]
pub(super) struct Glob {
    text: Box<str>,
    /// Length of the text before the first star.
    prefix: usize,
    /// Length of the text behind the last star.
    suffix: usize,
}

impl Glob {
    /// Compiles a text whose first `literal` bytes contain no wildcards; `None` if no star follows
    /// them.
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

/// Whether `text` contains the pieces between the stars of `pattern`, which begins and ends with
/// one, in order. Taking each as early as possible leaves the most text for the others.
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
