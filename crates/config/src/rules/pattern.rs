//! Value patterns of descriptors and list entries, and counter sharing.

use regex::{Regex, RegexBuilder};
use sluicegate_rules::domain::{Counter, Pattern};
use sluicegate_rules::network::{Network, NetworkError, Prefix};

use super::keys::{Form, Key};
use super::reader::{Found, Reader};
use crate::fields::{Field, Value, unknown};
use crate::problem::{Reported, on_one_line, quoted};
use crate::units::{self, UnitError};
use crate::yaml::{Content, Pair};

/// Maximum memory of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 1 << 20;

impl Reader<'_> {
    /// The pattern of a mapping with `value`, `regex` or `cidr`.
    pub(super) fn pattern<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        value_chars_max: usize,
    ) -> Result<Pattern, Reported> {
        let mut read = Vec::new();
        if let Some(pair) = found.get(Key::Value) {
            let text = self.text(&input.field(pair));
            let text =
                text.and_then(|text| self.check_length(&input.field(pair), text, value_chars_max));
            match text {
                Ok("") => {}
                Ok(text) => read.push((pair, Ok(Pattern::Text(text.to_owned())))),
                Err(reported) => read.push((pair, Err(reported))),
            }
        }
        if let Some(pair) = found.get(Key::Regex) {
            read.push((pair, self.regex(&input.field(pair), value_chars_max)));
        }
        if let Some(pair) = found.get(Key::Cidr) {
            read.push((pair, self.networks(&input.field(pair))));
        }
        if let [_, (second, _), ..] = read.as_slice() {
            let message = "stands beside another of `value`, `regex` and `cidr`, got both; keep one \
                           of them";
            return Err(self.refuse_pair(input, second, message));
        }
        read.pop().map_or(Ok(Pattern::Any), |(_, pattern)| pattern)
    }

    /// Reports a problem with a pair as a whole.
    pub(super) fn refuse_pair<'t>(
        &mut self,
        input: &Value<'t, '_>,
        pair: &'t Pair,
        message: &str,
    ) -> Reported {
        self.report.add(pair.key.at, input.field(pair).path, message.to_owned());
        Reported
    }

    pub(super) fn regex(
        &mut self,
        input: &Value<'_, '_>,
        chars_max: usize,
    ) -> Result<Pattern, Reported> {
        let text = self.filled(input, "regex: '^/v[0-9]+/'")?;
        let text = self.check_length(input, text, chars_max)?;
        compiled(text).map(Pattern::Regex).map_err(|message| self.refuse(input, message))
    }

    /// One network, or a list of them.
    pub(super) fn networks(&mut self, input: &Value<'_, '_>) -> Result<Pattern, Reported> {
        const EXAMPLE: &str = "cidr: 10.0.0.0/8";
        let mut networks = Vec::new();
        let Content::Sequence(items) = &input.node.content else {
            networks.push(self.network(input, EXAMPLE)?);
            return Ok(Pattern::Networks(networks));
        };
        let mut read = Ok(());
        for item in input.items() {
            match self.network(&item, "10.0.0.0/8") {
                Ok(network) => networks.push(network),
                Err(reported) => read = Err(reported),
            }
        }
        if items.is_empty() {
            let message =
                format!("must hold at least one network, got none; write it like `{EXAMPLE}`");
            return Err(self.refuse(input, message));
        }
        read.map(|()| Pattern::Networks(networks))
    }

    fn network(&mut self, input: &Value<'_, '_>, example: &str) -> Result<Network, Reported> {
        let text = self.filled(input, example)?;
        network_of(text).map_err(|message| self.refuse(input, message))
    }

    /// A text that is there.
    pub(super) fn filled<'t>(
        &mut self,
        input: &Value<'t, '_>,
        example: &str,
    ) -> Result<&'t str, Reported> {
        match &input.node.content {
            Content::Scalar { text, .. } if !input.node.is_null() && !text.is_empty() => Ok(text),
            _ => {
                let got = input.node.described();
                let message = format!("must be one value, got {got}; write it like `{example}`");
                Err(self.refuse(input, message))
            }
        }
    }

    /// The counter sharing set by `shared` and `prefix`; `None` if both are absent.
    pub(super) fn native_counter<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        value: &Pattern,
    ) -> Result<Option<Counter>, Reported> {
        if self.form == Form::Envoy {
            return Ok(None);
        }
        let shared = self.flag(input, found, Key::Shared);
        let prefix = found.get(Key::Prefix).map(|pair| self.prefix(&input.field(pair))).transpose();
        let (shared, prefix) = (shared?, prefix?);
        let exact = matches!(value, Pattern::Text(_)) && !value.is_glob();
        let (key, counter) = match (shared, prefix) {
            (true, Some(_)) => {
                let message = "stands beside `shared`, got both; keep one of them";
                return Err(self.refuse_key(input, found, Key::Prefix, message));
            }
            (true, None) => (Key::Shared, Counter::Shared),
            (false, Some(prefix)) => (Key::Prefix, Counter::PerNetwork(prefix)),
            (false, None) => return Ok(None),
        };
        if exact {
            let message = "has no effect where `value` is one text: it has one counter anyway; \
                           remove it, or match several values";
            return Err(self.refuse_key(input, found, key, message));
        }
        Ok(Some(counter))
    }

    fn prefix(&mut self, input: &Value<'_, '_>) -> Result<Prefix, Reported> {
        const EXAMPLE: &str = "{ v4: 24, v6: 64 }";
        let value = input;
        let mut fields = value.fields("`prefix`", EXAMPLE, self.report)?;
        let v4 = fields.optional(&V4, self.report);
        let v6 = fields.optional(&V6, self.report);
        let finished = fields.finish(self.report, |key| unknown(key, &["v4", "v6"]));
        match (v4, v6, finished) {
            (Ok(None), Ok(None), Ok(())) => {
                let message = format!(
                    "must have `v4` or `v6`, got neither; write it like `prefix: {EXAMPLE}`"
                );
                Err(self.refuse(input, message))
            }
            (Ok(v4), Ok(v6), Ok(())) => {
                Ok(Prefix { v4: v4.unwrap_or(V4_MAX), v6: v6.unwrap_or(V6_MAX) })
            }
            _ => Err(Reported),
        }
    }
}

pub(crate) const V4_MAX: u8 = 32;
pub(crate) const V6_MAX: u8 = 128;
pub(crate) const V4: Field<u8> =
    Field { name: "v4", example: "24", read: |text| bits(text, V4_MAX) };
pub(crate) const V6: Field<u8> =
    Field { name: "v6", example: "64", read: |text| bits(text, V6_MAX) };

fn bits(text: &str, max: u8) -> Result<u8, UnitError> {
    let number = units::whole(text.strip_prefix('/').unwrap_or(text))?;
    u8::try_from(number).ok().filter(|number| *number <= max).ok_or_else(|| {
        let got = quoted(text);
        UnitError::new(format!("must be from `0` to `{max}` bits, got {got}; write a smaller one"))
    })
}

/// Parses a network, or returns the problem.
pub(crate) fn network_of(text: &str) -> Result<Network, String> {
    text.parse().map_err(|error| {
        let got = quoted(text);
        match error {
            NetworkError::NoAddress => {
                format!(
                    "is neither an IP address nor a network, got {got}; write an address such as \
                     `192.0.2.7` or `::1`, or a network such as `10.0.0.0/8` or `fd00::/8`"
                )
            }
            NetworkError::BadLength { max } => format!(
                "the number behind the `/` must be from `0` to `{max}`, got {got}; write it like \
                 `/{}`",
                if max == V4_MAX { 24 } else { 64 }
            ),
            NetworkError::BitsBeyond { network } => format!(
                "has bits set behind its prefix, got {got}; write `{network}` for the whole network, \
                 or a longer prefix"
            ),
            other => format!("{other}, got {got}; write it like `10.0.0.0/8`"),
        }
    })
}

/// Compiles an expression, or returns the problem.
fn compiled(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build().map_err(|error| {
        let got = quoted(text);
        match error {
            regex::Error::CompiledTooBig(_) => format!(
                "takes more than 1 MiB of memory, got {got}; write smaller numbers in `{{…}}`, or \
                 fewer classes like `\\w`"
            ),
            other => {
                let (wrong, index) = explained(&other.to_string());
                format!(
                    "invalid regular expression, {wrong}{index}, got {got}; check the brackets, and \
                     put a `\\` before what is meant as it is"
                )
            }
        }
    })
}

/// Extracts the parser's message from its multi-line output: the pattern, a `^` under the index,
/// the error.
fn explained(drawing: &str) -> (String, String) {
    let wrong = drawing.lines().rev().find_map(|line| line.strip_prefix("error: "));
    let index = drawing.lines().find_map(|line| {
        let spaces = line.strip_suffix(|c| c == '^')?.trim_end_matches('^');
        spaces.chars().all(|c| c == ' ').then(|| spaces.len().saturating_sub(3))
    });
    let wrong = wrong.map_or_else(|| on_one_line(drawing), on_one_line);
    (wrong, index.map_or_else(String::new, |index| format!(" at character {index}")))
}

const _: () = assert!(REGEX_BYTES_MAX == 1 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_explained() {
        let table = [
            ("^/v[0-9+/", "unclosed character class at character 4"),
            ("a(b", "unclosed group at character 2"),
            ("*", "repetition operator missing expression at character 1"),
            ("a{2,1}", "invalid repetition count range"),
        ];
        for (text, expected) in table {
            let message = compiled(text).unwrap_err();
            let begins = format!("invalid regular expression, {expected}");
            assert!(message.starts_with(&begins), "{message}");
        }
        let large = compiled("(\\w{1000}){1000}").unwrap_err();
        assert!(large.starts_with("takes more than 1 MiB"), "{large}");
        assert!(compiled("^/v[0-9]+/").is_ok());
    }
}
