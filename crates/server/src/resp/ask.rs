//! What is asked of the rules: `domain key=value [key=value …] [| key=value …] [COST n]`.

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate_core::arithmetic::EXACT_MAX;
use smallvec::SmallVec;

use super::frame::Args;
use super::refusal::{Refusal, shown, whole};
use crate::http::Most;

/// What is asked of the rules.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) domain: &'a str,
    entries: SmallVec<[Entry<'a>; 8]>,
    /// Where the entries of each descriptor end.
    ends: SmallVec<[usize; 4]>,
    cost: Option<u64>,
}

impl<'a> Ask<'a> {
    /// Reads it; the name of the command is the first of the words.
    pub(super) fn read(args: Args<'a>) -> Result<Self, Refusal> {
        let most = Most::default();
        let domain = text("the domain", args.get(1).unwrap_or_default(), &most)?;
        if domain.is_empty() {
            return Err(Refusal::invalid("the domain is empty; write the one of the rules"));
        }
        let (entries, ends) = (SmallVec::new(), SmallVec::new());
        let mut ask = Self { domain, entries, ends, cost: None };
        let mut words = args.behind(2).iter();
        while let Some(word) = words.next() {
            if word == b"|" {
                ask.end_descriptor(&most)?;
            } else if let Some(at) = word.iter().position(|byte| *byte == b'=') {
                let (key, value) = word.split_at(at);
                let key = text("a key", key, &most)?;
                let value = text("a value", value.get(1..).unwrap_or_default(), &most)?;
                if key.is_empty() {
                    return Err(not_an_entry(word));
                }
                ask.entries.push(Entry::new(key, value));
            } else if word.eq_ignore_ascii_case(b"COST") {
                ask.set_cost(words.next())?;
            } else {
                return Err(not_an_entry(word));
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

    fn set_cost(&mut self, word: Option<&[u8]>) -> Result<(), Refusal> {
        let word = word.ok_or_else(|| Refusal::invalid("COST needs a number behind it"))?;
        let cost = whole::<u64>(word).ok_or_else(|| {
            let got = shown(word);
            Refusal::invalid(format_args!("COST must be a whole number of 64 bits, got `{got}`"))
        })?;
        if self.cost.replace(cost.min(EXACT_MAX)).is_some() {
            return Err(Refusal::invalid("COST comes twice; leave one of them out"));
        }
        Ok(())
    }

    /// As the engine is asked.
    pub(super) fn ask<R>(&self, ask: impl FnOnce(&Request<'_>) -> R) -> R {
        let mut from = 0;
        let descriptors = self.ends.iter().map(|to| {
            let entries = self.entries.get(from..*to).unwrap_or_default();
            from = *to;
            Descriptor::of(entries)
        });
        let descriptors: SmallVec<[Descriptor<'_>; 4]> = descriptors.collect();
        let hits = self.cost.unwrap_or(1);
        ask(&Request { domain: self.domain, descriptors: &descriptors, hits })
    }
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

fn not_an_entry(word: &[u8]) -> Refusal {
    let got = shown(word);
    Refusal::invalid(format_args!(
        "`{got}` is neither an entry nor an option; write key=value, `|` between descriptors, or COST n"
    ))
}
