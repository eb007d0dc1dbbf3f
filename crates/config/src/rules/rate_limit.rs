//! `rate_limit`: Envoy's form of a limit.

use sluicegate_rules::rule::Limits;
use sluicegate_rules::unit::Unit;

use super::keys::{Form, Key, Level};
use super::reader::{Found, Reader};
use crate::fields::Value;
use crate::problem::{Position, Reported, quoted, shortened};
use crate::suggest;
use crate::yaml::{Content, Pair};

/// A parsed `rate_limit`.
pub(super) struct RateLimit<'t> {
    pub(super) limits: Limits,
    pub(super) name: &'t str,
    /// The names of the rules that do not count beside this one, and where each is written.
    pub(super) replaces: Vec<(&'t str, Position)>,
}

/// The fields of a `rate_limit` as written, with positions for messages.
#[derive(Default)]
struct RateLimitFields<'t> {
    unit: Option<&'t Pair>,
    unit_text: &'t str,
    requests: Option<&'t Pair>,
    requests_per_unit: u32,
    unlimited: bool,
    name: &'t str,
    replaces: Vec<(&'t str, Position)>,
    /// Whether it has a problem, and whether the unit has one.
    has_problem: bool,
    has_unit_problem: bool,
}

impl Reader<'_> {
    /// Reads `rate_limit`. Only Envoy's form allows duplicates: later ones override the fields that
    /// they set, and null resets all. `None` means no limit.
    pub(super) fn rate_limit<'t>(
        &mut self,
        descriptor: &Value<'t, '_>,
        pairs: &[&'t Pair],
    ) -> Result<Option<RateLimit<'t>>, Reported> {
        let mut written = None;
        let mut read = Ok(());
        let before = self.report.count();
        for (index, pair) in pairs.iter().enumerate() {
            self.replaced = index + 1 < pairs.len();
            let input = descriptor.field(pair);
            match &pair.value.content {
                Content::Mapping(_) => {
                    let (_, written) = written.get_or_insert((*pair, RateLimitFields::default()));
                    let found = self.known(&input, Level::RateLimit);
                    self.rate_limit_fields(&input, &found, written);
                }
                _ if pair.value.is_null() => {
                    written = None;
                    let message = "has no value, so there is no limit here; write `unit` and \
                                   `requests_per_unit` below it (check the indentation), or remove \
                                   it";
                    self.warn_or_refuse(pair.key.at, &input.path, message.to_owned());
                }
                _ => {
                    let must = "`rate_limit` must be a mapping";
                    read = Err(self.mistyped(&input, "config.YamlRateLimit", must, EXAMPLE));
                }
            }
        }
        self.replaced = false;
        read?;
        let Some((pair, mut written)) = written else { return Ok(None) };
        // An unknown key is probably a misspelt required one.
        written.has_problem |= self.report.count() > before;
        self.made(&descriptor.field(pair), written).map(Some)
    }

    fn rate_limit_fields<'t>(
        &mut self,
        mapping: &Value<'t, '_>,
        found: &Found<'t>,
        written: &mut RateLimitFields<'t>,
    ) {
        if let Some(pair) = found.get(Key::Unit) {
            written.unit = Some(pair);
            match self.text(&mapping.field(pair)) {
                Ok(text) => written.unit_text = text,
                Err(Reported) => written.has_unit_problem = true,
            }
        }
        if let Some(pair) = found.get(Key::RequestsPerUnit) {
            written.requests = Some(pair);
            match self.number(&mapping.field(pair)) {
                Ok(number) => written.requests_per_unit = number,
                Err(Reported) => written.has_problem = true,
            }
        }
        if let Some(pair) = found.get(Key::Unlimited) {
            match self.truth(&mapping.field(pair)) {
                Ok(truth) => written.unlimited = truth,
                // Whether a unit is required is unknown.
                Err(Reported) => written.has_unit_problem = true,
            }
        }
        if let Some(pair) = found.get(Key::Name) {
            match self.text(&mapping.field(pair)) {
                Ok(text) => written.name = text,
                Err(Reported) => written.has_problem = true,
            }
        }
        if let Some(pair) = found.get(Key::Replaces) {
            written.replaces = self.names(&mapping.field(pair), &mut written.has_problem);
        }
    }

    /// The names in a list of `{ name }`.
    fn names<'t>(
        &mut self,
        list: &Value<'t, '_>,
        has_problem: &mut bool,
    ) -> Vec<(&'t str, Position)> {
        let mut names = Vec::new();
        if !list.is_list() && !list.node.is_null() {
            let must = "`replaces` must be a list";
            let remedy = "write it like `replaces: [{ name: other }]`";
            self.mistyped(list, "[]config.yamlReplaces", must, remedy);
            *has_problem = true;
        }
        for item in list.items() {
            match self.replaced_name(&item) {
                Ok(name) => names.push((name, item.at())),
                Err(Reported) => *has_problem = true,
            }
        }
        names
    }

    fn replaced_name<'t>(&mut self, item: &Value<'t, '_>) -> Result<&'t str, Reported> {
        if !matches!(item.node.content, Content::Mapping(_)) {
            return Err(self.refuse_item(item));
        }
        let pair = self.known(item, Level::Replaced).get(Key::Name);
        let name = pair.map_or(Ok(""), |pair| self.text(&item.field(pair)))?;
        if name.is_empty() {
            let message = "should not have an empty replaces entry, got no name; write it like `{ \
                           name: other }`";
            return Err(self.refuse(item, message.to_owned()));
        }
        Ok(name)
    }

    /// The limit of the fields.
    fn made<'t>(
        &mut self,
        input: &Value<'t, '_>,
        written: RateLimitFields<'t>,
    ) -> Result<RateLimit<'t>, Reported> {
        let unit = unit_of(written.unit_text);
        let limits = if written.has_unit_problem {
            Err(Reported)
        } else if written.unlimited {
            self.unlimited(input, &written, unit)
        } else {
            self.limited(input, &written, unit)
        };
        let own = |(name, _): &&(&str, Position)| *name == written.name;
        let itself = written.replaces.iter().find(own);
        if let Some((name, at)) = itself {
            let got = quoted(name);
            let message = format!(
                "replaces should not contain name of same descriptor, got {got}; remove it, or name \
                 another rule"
            );
            self.report.add(*at, input.path, message);
            return Err(Reported);
        }
        let RateLimitFields { name, replaces, has_problem, .. } = written;
        if has_problem {
            return Err(Reported);
        }
        Ok(RateLimit { limits: limits?, name, replaces })
    }

    fn unlimited<'t>(
        &mut self,
        input: &Value<'t, '_>,
        written: &RateLimitFields<'t>,
        unit: Option<Unit>,
    ) -> Result<Limits, Reported> {
        if let (Some(pair), Some(unit)) = (written.unit, unit) {
            let got = unit.name();
            let message = format!(
                "should not specify rate limit unit when unlimited, got `{got}`; remove `unit`, or \
                 `unlimited`"
            );
            return Err(self.refuse(&input.field(pair), message));
        }
        for pair in [written.unit, written.requests].into_iter().flatten() {
            let message = "has no effect beside `unlimited: true`; remove one of them".to_owned();
            self.warn_or_refuse(pair.key.at, &input.field(pair).path, message);
        }
        Ok(Limits::Unlimited)
    }

    fn limited<'t>(
        &mut self,
        input: &Value<'t, '_>,
        written: &RateLimitFields<'t>,
        unit: Option<Unit>,
    ) -> Result<Limits, Reported> {
        let Some(unit) = unit else {
            return Err(self.no_unit(input, written));
        };
        let requests_per_unit = written.requests_per_unit;
        // A 0 that is written is a blocklist, and no mistake.
        let forgotten = match written.requests {
            Some(pair) if pair.value.is_null() => Some((pair.value.at, "has no value")),
            Some(_) => None,
            None => Some((input.at(), "is missing")),
        };
        if let Some((at, wrong)) = forgotten.filter(|_| !written.has_problem) {
            let message = format!(
                "`requests_per_unit` {wrong}, which is 0, so every request is denied; write how many \
                 may pass, or `unlimited: true`"
            );
            self.report.warn(at, input.path, message);
        }
        Ok(Limits::Envoy { requests_per_unit, unit })
    }

    fn no_unit<'t>(&mut self, input: &Value<'t, '_>, written: &RateLimitFields<'t>) -> Reported {
        let text = written.unit_text;
        let (name, got) = (shortened(text), quoted(text));
        let hint = unit_meant(text)
            .map_or_else(String::new, |unit| format!("did you mean `{}`? ", unit.name()));
        let units = suggest::one_of(&Unit::ALL.map(Unit::name));
        let others = match self.form {
            Form::Native if written.unit.is_some() => ", or `limits` for other times",
            _ => "",
        };
        match written.unit {
            Some(pair) if !text.is_empty() => {
                let message = format!(
                    "invalid rate limit unit '{name}', got {got}; {hint}use {units}{others}"
                );
                self.refuse(&input.field(pair), message)
            }
            _ => {
                let message = format!(
                    "invalid rate limit unit '', got none; add it, like `unit: minute`: {units}"
                );
                self.refuse(input, message)
            }
        }
    }
}

const EXAMPLE: &str = "write it like `rate_limit: { unit: minute, requests_per_unit: 100 }`";

/// The unit of a name. Go compares upper case, which also maps the long s and the dotless i.
fn unit_of(text: &str) -> Option<Unit> {
    Unit::of(text).or_else(|| if text.is_ascii() { None } else { Unit::of(&text.to_uppercase()) })
}

/// The unit probably intended.
fn unit_meant(text: &str) -> Option<Unit> {
    let word = text.trim().to_lowercase();
    let word = word.strip_suffix('s').filter(|word| !word.is_empty()).unwrap_or(&word);
    if word == "hr" {
        return Some(Unit::Hour);
    }
    // `m` is a minute everywhere else.
    let begins = |unit: &Unit| !word.is_empty() && unit.name().starts_with(word);
    Unit::ALL.into_iter().find(begins).or_else(|| {
        let near = suggest::nearest(word, Unit::ALL.map(Unit::name))?;
        Unit::of(near)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_guessed() {
        let table = [
            ("min", "minute"),
            ("minutes", "minute"),
            ("mins", "minute"),
            ("m", "minute"),
            ("s", "second"),
            ("sec", "second"),
            ("hrs", "hour"),
            ("HOURS", "hour"),
            (" day ", "day"),
            ("mnoth", "month"),
            ("mo", "month"),
        ];
        for (text, unit) in table {
            assert_eq!(unit_meant(text).map(Unit::name), Some(unit), "{text}");
        }
        for text in ["", "fortnight", "millisecond", "x"] {
            assert_eq!(unit_meant(text), None, "{text}");
        }
    }
}
