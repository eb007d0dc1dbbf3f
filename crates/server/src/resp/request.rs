//! Arguments of rule commands:
//! `domain key=value [key=value …] [HITS n] [| key=value …] [COST n] [ID text] …`.

use sluicegate::Span;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate_core::arithmetic::EXACT_MAX;
use smallvec::SmallVec;

use super::frame::Args;
use super::reply::{RespError, parse_int, shown};
use crate::http::BodyLimits;
use crate::idempotency::KEY_BYTES_MAX;
use crate::reservations::{TTL, TTL_MAX, WAIT_TIMEOUT_MAX};

/// Parsed arguments of a rule command.
#[derive(Debug)]
pub(super) struct RuleRequest<'a> {
    pub(super) domain: &'a str,
    entries: SmallVec<[Entry<'a>; 8]>,
    /// End of the entries of each descriptor, and its own hits.
    ends: SmallVec<[(usize, Option<u64>); 4]>,
    /// Own hits of the descriptor that is being read.
    hits: Option<u64>,
    pub(super) options: CommandOptions<'a>,
}

/// Options of a command.
#[derive(Debug, Default)]
pub(super) struct CommandOptions<'a> {
    cost: Option<u64>,
    /// Idempotency key.
    pub(super) id: Option<&'a [u8]>,
    ttl_ms: Option<u64>,
    timeout_ms: Option<u64>,
    /// Whether the rest of a reservation stays reserved.
    pub(super) partial: bool,
    /// Whether the reply lists what each limit got back.
    pub(super) returned: bool,
    /// Operator token.
    pub(super) token: Option<&'a [u8]>,
}

/// Name of an option, which a value follows unless it is a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionName {
    Cost,
    Id,
    Ttl,
    Timeout,
    /// Hits of the descriptor before it.
    Hits,
    /// A flag.
    Partial,
    /// A flag.
    Returned,
    Token,
}

pub(super) type RespDescriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

impl<'a> RuleRequest<'a> {
    /// Parses the arguments, with the options that the command supports.
    pub(super) fn parse(args: Args<'a>, supported: &[OptionName]) -> Result<Self, RespError> {
        let limits = BodyLimits::default();
        let domain = text("the domain", args.get(1).unwrap_or_default(), &limits)?;
        if domain.is_empty() {
            return Err(RespError::invalid("the domain is empty; name the domain of the rules"));
        }
        let (entries, ends) = (SmallVec::new(), SmallVec::new());
        let options = CommandOptions::default();
        let mut request = Self { domain, entries, ends, hits: None, options };
        let mut words = args.skip(2).iter();
        while let Some(word) = words.next() {
            if word == b"|" {
                request.end_descriptor(&limits)?;
            } else if let Some(at) = word.iter().position(|byte| *byte == b'=') {
                let (key, value) = word.split_at(at);
                let key = text("a key", key, &limits)?;
                let value = text("a value", value.get(1..).unwrap_or_default(), &limits)?;
                if key.is_empty() {
                    return Err(not_an_entry(word, supported));
                }
                request.entries.push(Entry::new(key, value));
            } else {
                let option = OptionName::find(word, supported);
                match option.ok_or_else(|| not_an_entry(word, supported))? {
                    OptionName::Hits => request.set_hits(words.next())?,
                    option => request.options.set(option, &mut words)?,
                }
            }
        }
        request.end_descriptor(&limits)?;
        Ok(request)
    }

    fn set_hits(&mut self, value: Option<&[u8]>) -> Result<(), RespError> {
        let value = value.ok_or_else(|| RespError::invalid("HITS needs a value"))?;
        match self.hits.replace(cost("HITS", value)?) {
            None => Ok(()),
            Some(_) => Err(RespError::invalid(
                "HITS occurs twice in a descriptor; remove one of them, or separate descriptors with `|`",
            )),
        }
    }

    fn end_descriptor(&mut self, limits: &BodyLimits) -> Result<(), RespError> {
        let count = self.entries.len() - self.ends.last().map_or(0, |(end, _)| *end);
        if count == 0 {
            return Err(RespError::invalid(
                "a descriptor has no entries; send key=value, and `|` only between descriptors",
            ));
        }
        if count > limits.entries {
            let max = limits.entries;
            return Err(RespError::invalid(format_args!(
                "a descriptor has {count} entries; send at most {max}"
            )));
        }
        if self.ends.len() == limits.descriptors {
            let max = limits.descriptors;
            return Err(RespError::invalid(format_args!(
                "more than {max} descriptors; send fewer"
            )));
        }
        self.ends.push((self.entries.len(), self.hits.take()));
        Ok(())
    }

    pub(super) fn descriptors(&self) -> RespDescriptors<'_> {
        let mut from = 0;
        let descriptors = self.ends.iter().map(|(to, hits)| {
            let entries = self.entries.get(from..*to).unwrap_or_default();
            from = *to;
            Descriptor { hits: *hits, ..Descriptor::of(entries) }
        });
        descriptors.collect()
    }

    /// The request to the engine.
    pub(super) fn request<'b>(&'b self, descriptors: &'b [Descriptor<'b>]) -> Request<'b> {
        Request { domain: self.domain, descriptors, hits: self.options.cost.unwrap_or(1) }
    }
}

impl<'a> CommandOptions<'a> {
    /// Parses arguments that are only options.
    pub(super) fn parse(args: Args<'a>, supported: &[OptionName]) -> Result<Self, RespError> {
        let mut options = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let option = OptionName::find(word, supported).ok_or_else(|| {
                let (got, known) = (shown(word), OptionName::list(supported));
                RespError::invalid(format_args!(
                    "`{got}` is not an option here; supported are {known}"
                ))
            })?;
            options.set(option, &mut words)?;
        }
        Ok(options)
    }

    /// Lifetime of a reservation.
    pub(super) fn ttl(&self) -> Span {
        self.ttl_ms.map_or(TTL, Span::from_millis)
    }

    /// Timeout of a waiting command; `None` for the default.
    pub(super) fn timeout(&self) -> Option<Span> {
        self.timeout_ms.map(Span::from_millis)
    }

    fn set(
        &mut self,
        option: OptionName,
        words: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), RespError> {
        let name = option.name();
        let value = match option {
            OptionName::Partial | OptionName::Returned => b"".as_slice(),
            _ => {
                let needs_value = || RespError::invalid(format_args!("{name} needs a value"));
                words.next().ok_or_else(needs_value)?
            }
        };
        let is_duplicate = match option {
            OptionName::Partial => std::mem::replace(&mut self.partial, true),
            OptionName::Returned => std::mem::replace(&mut self.returned, true),
            OptionName::Token => self.token.replace(value).is_some(),
            // Of a descriptor.
            OptionName::Hits => false,
            OptionName::Cost => self.cost.replace(cost(name, value)?).is_some(),
            OptionName::Id => {
                let length = value.len();
                if !(1..=KEY_BYTES_MAX).contains(&length) {
                    return Err(RespError::invalid(format_args!(
                        "ID has {length} bytes, and must have 1 to {KEY_BYTES_MAX}; use a random text, such as a UUID"
                    )));
                }
                self.id.replace(value).is_some()
            }
            OptionName::Ttl => self.ttl_ms.replace(millis(name, value, 1, TTL_MAX)?).is_some(),
            OptionName::Timeout => {
                self.timeout_ms.replace(millis(name, value, 0, WAIT_TIMEOUT_MAX)?).is_some()
            }
        };
        if is_duplicate {
            return Err(RespError::invalid(format_args!(
                "{name} occurs twice; remove one of them"
            )));
        }
        Ok(())
    }
}

impl OptionName {
    fn find(word: &[u8], supported: &[Self]) -> Option<Self> {
        supported.iter().copied().find(|option| option.is(word))
    }

    /// Whether a word is its name.
    pub(super) fn is(self, word: &[u8]) -> bool {
        self.name().as_bytes().eq_ignore_ascii_case(word)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Cost => "COST",
            Self::Id => "ID",
            Self::Ttl => "TTL",
            Self::Timeout => "TIMEOUT",
            Self::Hits => "HITS",
            Self::Partial => "PARTIAL",
            Self::Returned => "RETURNED",
            Self::Token => "TOKEN",
        }
    }

    const fn shape(self) -> &'static str {
        match self {
            Self::Cost => "COST n",
            Self::Id => "ID text",
            Self::Ttl => "TTL ms",
            Self::Timeout => "TIMEOUT ms",
            Self::Hits => "HITS n",
            Self::Partial => "PARTIAL",
            Self::Returned => "RETURNED",
            Self::Token => "TOKEN text",
        }
    }

    fn list(options: &[Self]) -> String {
        options.iter().map(|option| option.shape()).collect::<Vec<_>>().join(", ")
    }
}

/// Parses hits, saturated at the largest number that is exact in a double.
pub(super) fn cost(name: &str, word: &[u8]) -> Result<u64, RespError> {
    let number = parse_int::<u64>(word).ok_or_else(|| {
        let got = shown(word);
        RespError::invalid(format_args!("{name} must be a 64-bit integer, got `{got}`"))
    })?;
    Ok(number.min(EXACT_MAX))
}

/// Parses a lifetime in milliseconds.
pub(super) fn ttl(word: &[u8]) -> Result<Span, RespError> {
    millis("the lifetime", word, 1, TTL_MAX).map(Span::from_millis)
}

fn millis(name: &str, word: &[u8], min: u64, max: Span) -> Result<u64, RespError> {
    let max = max.as_micros() / 1_000;
    let millis = parse_int::<u64>(word).filter(|millis| (min..=max).contains(millis));
    millis.ok_or_else(|| {
        let got = shown(word);
        RespError::invalid(format_args!("{name} must be {min} to {max} milliseconds, got `{got}`"))
    })
}

fn text<'a>(name: &str, bytes: &'a [u8], limits: &BodyLimits) -> Result<&'a str, RespError> {
    if bytes.len() > limits.text_bytes {
        let (length, max) = (bytes.len(), limits.text_bytes);
        return Err(RespError::invalid(format_args!(
            "{name} has {length} bytes; send at most {max}"
        )));
    }
    str::from_utf8(bytes).map_err(|_| {
        let got = shown(bytes);
        RespError::invalid(format_args!(
            "{name} is not UTF-8, got `{got}`; encode it, such as in hexadecimal"
        ))
    })
}

fn not_an_entry(word: &[u8], options: &[OptionName]) -> RespError {
    let (got, known) = (shown(word), OptionName::list(options));
    RespError::invalid(format_args!(
        "`{got}` is neither an entry nor an option; send key=value, `|` between descriptors, or {known}"
    ))
}
