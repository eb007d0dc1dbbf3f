//! Words that are met again share their memory: rules repeat a few words many times.
//!
//! Each word has one place by its letters; another word of the same place takes it over. Nothing is ever looked for in
//! a second place, so that a text of words that are all different costs no more than not to remember any.

use std::rc::Rc;

/// The words of a text so far.
#[derive(Debug, Default)]
pub(super) struct Words {
    places: Vec<Rc<str>>,
}

/// How many words are remembered.
const WORDS_MAX: usize = 256;
/// The longest that is: longer ones are seldom repeated.
const WORD_BYTES_MAX: usize = 24;

impl Words {
    /// The text, shared with one that was met before if it is still known.
    pub(super) fn share(&mut self, text: &str) -> Rc<str> {
        if text.len() > WORD_BYTES_MAX {
            return Rc::from(text);
        }
        if self.places.is_empty() {
            self.places = vec![Rc::from(""); WORDS_MAX];
        }
        let mix = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
        let place = text.bytes().fold(text.len(), mix) % WORDS_MAX;
        match self.places.get_mut(place) {
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
