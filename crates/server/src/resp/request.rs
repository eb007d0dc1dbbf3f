//! What is asked of the rules: `domain key=value [key=value …] [| key=value …] [COST n] [ID text] …`.

use sluicegate::Span;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate_core::arithmetic::EXACT_MAX;
use smallvec::SmallVec;

use super::frame::Args;
use super::refusal::{Refusal, shown, whole};
use crate::http::Most;
use crate::reservations::{KEY_BYTES_MAX, PATIENCE, PATIENCE_MAX, TTL, TTL_MAX};

/// What is asked of the rules.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) domain: &'a str,
    entries: SmallVec<[Entry<'a>; 8]>,
    /// Where the entries of each descriptor end.
    ends: SmallVec<[usize; 4]>,
    pub(super) said: Said<'a>,
}

/// What was said behind the words of options.
#[derive(Debug, Default)]
pub(super) struct Said<'a> {
    cost: Option<u64>,
    /// The name by which a question that is asked again is known.
    pub(super) id: Option<&'a [u8]>,
    ttl_ms: Option<u64>,
    timeout_ms: Option<u64>,
}

/// An option: a word, and something behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Cost,
    Id,
    Ttl,
    Timeout,
}

pub(super) type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

// === impl Ask ===

impl<'a> Ask<'a> {
    /// Reads it, with the options that may be there; the name of the command is the first of the words.
    pub(super) fn read(args: Args<'a>, options: &[Word]) -> Result<Self, Refusal> {
        let most = Most::default();
        let domain = text("the domain", args.get(1).unwrap_or_default(), &most)?;
        if domain.is_empty() {
            return Err(Refusal::invalid("the domain is empty; write the one of the rules"));
        }
        let (entries, ends) = (SmallVec::new(), SmallVec::new());
        let mut ask = Self { domain, entries, ends, said: Said::default() };
        let mut words = args.behind(2).iter();
        while let Some(word) = words.next() {
            if word == b"|" {
                ask.end_descriptor(&most)?;
            } else if let Some(at) = word.iter().position(|byte| *byte == b'=') {
                let (key, value) = word.split_at(at);
                let key = text("a key", key, &most)?;
                let value = text("a value", value.get(1..).unwrap_or_default(), &most)?;
                if key.is_empty() {
                    return Err(not_an_entry(word, options));
                }
                ask.entries.push(Entry::new(key, value));
            } else if let Some(option) = Word::of(word, options) {
                ask.said.take(option, words.next())?;
            } else {
                return Err(not_an_entry(word, options));
            }
        }
        ask.end_descriptor(&most)?;
        Ok(ask)
    }

    fn end_descriptor(&mut self, most: &Most) -> Result<(), Refusal> {
        let count = self.entries.len() - self.ends.last().copied().unwrap_or(0);
        if count == 0 {
            return Err(Refusal::invalid(
                "a descriptor has no entries; write key=value, and `|` only between two descriptors",
            ));
        }
        if count > most.entries {
            let most = most.entries;
            return Err(Refusal::invalid(format_args!(
                "a descriptor has {count} entries; send at most {most}"
            )));
        }
        if self.ends.len() == most.descriptors {
            let most = most.descriptors;
            return Err(Refusal::invalid(format_args!("more than {most} descriptors; send fewer")));
        }
        self.ends.push(self.entries.len());
        Ok(())
    }

    pub(super) fn descriptors(&self) -> Descriptors<'_> {
        let mut from = 0;
        let descriptors = self.ends.iter().map(|to| {
            let entries = self.entries.get(from..*to).unwrap_or_default();
            from = *to;
            Descriptor::of(entries)
        });
        descriptors.collect()
    }

    /// As the engine is asked.
    pub(super) fn request<'b>(&'b self, descriptors: &'b [Descriptor<'b>]) -> Request<'b> {
        Request { domain: self.domain, descriptors, hits: self.said.cost.unwrap_or(1) }
    }
}

// === impl Said ===

impl<'a> Said<'a> {
    /// Only options.
    pub(super) fn read(args: Args<'a>, options: &[Word]) -> Result<Self, Refusal> {
        let mut said = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let option = Word::of(word, options).ok_or_else(|| {
                let (got, known) = (shown(word), Word::list(options));
                Refusal::invalid(format_args!("`{got}` is no option here; there is {known}"))
            })?;
            said.take(option, words.next())?;
        }
        Ok(said)
    }

    /// How long a reservation lasts.
    pub(super) fn ttl(&self) -> Span {
        self.ttl_ms.map_or(TTL, Span::from_millis)
    }

    /// How long to wait at most.
    pub(super) fn timeout(&self) -> Span {
        self.timeout_ms.map_or(PATIENCE, Span::from_millis)
    }

    fn take(&mut self, option: Word, behind: Option<&'a [u8]>) -> Result<(), Refusal> {
        let name = option.name();
        let behind = behind
            .ok_or_else(|| Refusal::invalid(format_args!("{name} needs something behind it")))?;
        let again = match option {
            Word::Cost => self.cost.replace(cost(name, behind)?).is_some(),
            Word::Id => {
                let length = behind.len();
                if !(1..=KEY_BYTES_MAX).contains(&length) {
                    return Err(Refusal::invalid(format_args!(
                        "ID has {length} bytes, and must have 1 to {KEY_BYTES_MAX}; use a random text, such as a UUID"
                    )));
                }
                self.id.replace(behind).is_some()
            }
            Word::Ttl => self.ttl_ms.replace(millis(name, behind, 1, TTL_MAX)?).is_some(),
            Word::Timeout => {
                self.timeout_ms.replace(millis(name, behind, 0, PATIENCE_MAX)?).is_some()
            }
        };
        if again {
            return Err(Refusal::invalid(format_args!(
                "{name} comes twice; leave one of them out"
            )));
        }
        Ok(())
    }
}

// === impl Word ===

impl Word {
    fn of(word: &[u8], options: &[Self]) -> Option<Self> {
        let mut options = options.iter().copied();
        options.find(|option| option.name().as_bytes().eq_ignore_ascii_case(word))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Cost => "COST",
            Self::Id => "ID",
            Self::Ttl => "TTL",
            Self::Timeout => "TIMEOUT",
        }
    }

    const fn shape(self) -> &'static str {
        match self {
            Self::Cost => "COST n",
            Self::Id => "ID text",
            Self::Ttl => "TTL ms",
            Self::Timeout => "TIMEOUT ms",
        }
    }

    fn list(options: &[Self]) -> String {
        options.iter().map(|option| option.shape()).collect::<Vec<_>>().join(", ")
    }
}

/// A number of hits; one that is too large to be held exactly is the largest that is.
pub(super) fn cost(name: &str, word: &[u8]) -> Result<u64, Refusal> {
    let number = whole::<u64>(word).ok_or_else(|| {
        let got = shown(word);
        Refusal::invalid(format_args!("{name} must be a whole number of 64 bits, got `{got}`"))
    })?;
    Ok(number.min(EXACT_MAX))
}

fn millis(name: &str, word: &[u8], least: u64, most: Span) -> Result<u64, Refusal> {
    let most = most.as_micros() / 1_000;
    let millis = whole::<u64>(word).filter(|millis| (least..=most).contains(millis));
    millis.ok_or_else(|| {
        let got = shown(word);
        Refusal::invalid(format_args!("{name} must be {least} to {most} milliseconds, got `{got}`"))
    })
}

fn text<'a>(what: &str, bytes: &'a [u8], most: &Most) -> Result<&'a str, Refusal> {
    if bytes.len() > most.text_bytes {
        let (length, most) = (bytes.len(), most.text_bytes);
        return Err(Refusal::invalid(format_args!(
            "{what} has {length} bytes; send at most {most}"
        )));
    }
    str::from_utf8(bytes).map_err(|_| {
        let got = shown(bytes);
        Refusal::invalid(format_args!(
            "{what} is not UTF-8, got `{got}`; encode it, such as in hexadecimal"
        ))
    })
}

fn not_an_entry(word: &[u8], options: &[Word]) -> Refusal {
    let (got, known) = (shown(word), Word::list(options));
    Refusal::invalid(format_args!(
        "`{got}` is neither an entry nor an option; write key=value, `|` between descriptors, or {known}"
    ))
}
