//! The globs and regular expressions of one level: which is the first, in the order of the file, that matches?
//!
//! A few are simply tried. Of many globs only those can match whose text before the first star begins the text and whose text
//! behind the last star ends it; so they are found by a hash of both, once for each pair of lengths that occurs. Ten thousand paths
//! that end in a star have some thirty such pairs.

use regex::Regex;

use super::glob::Glob;
use super::table::{Table, hash};

/// The globs and regular expressions of a level.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    globs: Vec<Tried>,
    expressions: Vec<Expression>,
    index: Option<Box<Index>>,
}

/// A glob and what it leads to.
#[derive(Debug)]
struct Tried {
    glob: Glob,
    /// Its place among all patterns of the level.
    order: u32,
    /// How long the key at the beginning of the text is; `None` where that does not matter.
    key_length: Option<usize>,
    node: u32,
    /// Whether the next in the list begins and ends as this one does; only where there is an index.
    next_alike: bool,
}

#[derive(Debug)]
struct Expression {
    key: Box<str>,
    regex: Regex,
    order: u32,
    node: u32,
}

/// Globs by what they begin and end with.
#[derive(Debug)]
struct Index {
    /// How long beginnings and ends are that occur together, in order.
    lengths: Box<[(u8, u8)]>,
    /// Finds the first of those that begin and end alike; they stand one behind the other.
    first: Table,
}

/// From how many globs on they are looked up instead of tried.
const TRIED_MAX: usize = 8;
/// The most lengths that are told apart; a longer beginning or end is cut to the longest of these.
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

    /// To be called when all have been added.
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

// === impl Index ===

impl Index {
    /// An index of these, which are put into another order for it.
    fn new(globs: &mut [Tried]) -> Self {
        globs.sort_by(|a, b| {
            (a.prefix(), a.suffix(), a.order).cmp(&(b.prefix(), b.suffix(), b.order))
        });
        for place in 1..globs.len() {
            let (one, other) = (&globs[place - 1], &globs[place]);
            let alike = one.prefix() == other.prefix() && one.suffix() == other.suffix();
            globs[place - 1].next_alike = alike;
        }
        let mut hashes = Vec::new();
        let mut lengths = Vec::new();
        let mut is_first = true;
        for (tried, place) in globs.iter().zip(0..) {
            if is_first {
                let (prefix, suffix) = (tried.prefix(), tried.suffix());
                hashes.push((both(begins(prefix), ends(suffix)), place));
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
            for place in self.first.candidates(both(begin.1, end.1)) {
                let alike = &mut globs[place as usize..].iter();
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
