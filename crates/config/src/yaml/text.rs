//! Checks of the text before it is parsed, and an interner of short words.

use std::rc::Rc;

use super::{START, TEXT_BYTES_MAX, Unreadable, unreadable};
use crate::problem::Position;

pub(super) fn refuse_long(text: &str) -> Result<(), Unreadable> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let max = TEXT_BYTES_MAX >> 20;
    let message = format!("longer than {max} MiB; split the file");
    Err(unreadable(START, message))
}

/// YAML's printable characters, and no others: the parser takes a NUL for the end.
pub(super) fn refuse_unprintable(text: &str) -> Result<(), Unreadable> {
    let forbidden = |letter: char| {
        let control = letter.is_control() && !matches!(letter, '\t' | '\n' | '\r' | '\u{85}');
        control || matches!(letter, '\u{fffe}' | '\u{ffff}')
    };
    // Nearly all texts are ASCII, which is checked much faster by bytes.
    let plain = |byte: u8| matches!(byte, b' '..=b'~') | matches!(byte, b'\t' | b'\n' | b'\r');
    if text.as_bytes().chunks(64).all(|bytes| bytes.iter().fold(true, |all, b| all & plain(*b))) {
        return Ok(());
    }
    let Some((index, letter)) = text.char_indices().find(|(_, letter)| forbidden(*letter)) else {
        return Ok(());
    };
    let before = text.get(..index).unwrap_or_default();
    let line_start = before.rfind(['\n', '\r']).map_or(0, |last| last + 1);
    let lines = before.replace("\r\n", "\n");
    let at = Position {
        line: lines.matches(['\n', '\r']).count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
    };
    let name = letter.escape_unicode();
    let message = format!(
        "a character that YAML forbids, got `{name}`; remove it, or write it escaped in double \
         quotes"
    );
    Err(unreadable(at, message))
}

/// Interner of the short words of a text: rules repeat a few words many times. Each word has one
/// slot by its hash, and a colliding word replaces it, so distinct words cost no search.
#[derive(Debug, Default)]
pub(super) struct Words {
    slots: Vec<Rc<str>>,
}

/// The number of slots.
const WORDS_MAX: usize = 256;
/// Longer words are seldom repeated.
const WORD_BYTES_MAX: usize = 24;

impl Words {
    /// The text, shared with an equal earlier one if its slot still holds it.
    pub(super) fn share(&mut self, text: &str) -> Rc<str> {
        if text.len() > WORD_BYTES_MAX {
            return Rc::from(text);
        }
        if self.slots.is_empty() {
            self.slots = vec![Rc::from(""); WORDS_MAX];
        }
        let mix = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
        let slot = text.bytes().fold(text.len(), mix) % WORDS_MAX;
        match self.slots.get_mut(slot) {
            Some(known) if **known == *text => Rc::clone(known),
            Some(known) => {
                *known = Rc::from(text);
                Rc::clone(known)
            }
            None => Rc::from(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shared_and_long_texts_are_not() {
        let mut words = Words::default();
        let first = words.share("requests_per_unit");
        assert!(Rc::ptr_eq(&first, &words.share("requests_per_unit")));
        let long = "x".repeat(100);
        assert!(!Rc::ptr_eq(&words.share(&long), &words.share(&long)));
        for number in 0..10_000 {
            let word = number.to_string();
            assert_eq!(*words.share(&word), *word);
        }
    }
}
