//! `overrides`: other limits, none, or a block for some identities until a time.

use sluicegate_rules::domain::{DescriptorConfig, Domain, ListEntry, Pattern};
use sluicegate_rules::overrides::{OVERRIDES_MAX, OverrideChange, TemporaryOverride, affected};
use sluicegate_rules::rule::Limits;
use sluicegate_rules::zone::moment_of;

use super::reader::Reader;
use super::{Source, VALUE_CHARS_MAX, file};
use crate::fields::{Field, Value, unknown};
use crate::problem::{Position, Problems, Report, Reported, quoted};
use crate::suggest;
use crate::units::{self, UnitError};
use crate::yaml::Content;

/// An override, and where it is written.
pub(super) struct PositionedOverride {
    pub(super) one: TemporaryOverride,
    pub(super) source: usize,
    pub(super) at: Position,
    /// Such as `overrides[3]`.
    pub(super) path: String,
}

/// Maximum length of a note, in characters.
pub(crate) const NOTE_CHARS_MAX: usize = 500;

pub(crate) const MATCH: &str = "match";
pub(crate) const LIMITS: &str = "limits";
pub(crate) const RULE: Field<String> =
    Field { name: "rule", example: "requests", read: |text| Ok(text.to_owned()) };
pub(crate) const FACTOR: Field<u64> = Field { name: "factor", example: "2x", read: factor };
pub(crate) const BLOCK: Field<bool> = Field { name: "block", example: "true", read: only_true };
pub(crate) const UNLIMITED: Field<bool> =
    Field { name: "unlimited", example: "true", read: only_true };
pub(crate) const UNTIL: Field<sluicegate_core::time::Timestamp> =
    Field { name: "until", example: "2026-12-01T00:00:00Z", read: until };
pub(crate) const NOTE: Field<String> = Field { name: "note", example: "ticket 4711", read: note };

const EXAMPLE: &str =
    "{ match: { user_id: mallory }, block: true, until: 2026-12-01T00:00:00Z, note: ticket 4711 }";

impl Reader<'_> {
    pub(super) fn overrides(&mut self, list: &Value<'_, '_>) -> Vec<PositionedOverride> {
        if list.node.is_null() {
            return Vec::new();
        }
        let count = list.items().len();
        if !list.is_list() || count > OVERRIDES_MAX {
            let got = if list.is_list() { count.to_string() } else { list.node.described() };
            let message = format!(
                "must be a list of at most {OVERRIDES_MAX} overrides, got {got}; write it like \
                 `overrides: [{EXAMPLE}]`, and put permanent changes into the rules"
            );
            self.refuse(list, message);
            return Vec::new();
        }
        let mut overrides = Vec::with_capacity(count);
        for item in list.items() {
            if let Ok(one) = self.one_override(&item) {
                let (source, at, path) = (self.source, item.at(), item.path.to_string());
                overrides.push(PositionedOverride { one, source, at, path });
            }
        }
        overrides
    }

    fn one_override(&mut self, input: &Value<'_, '_>) -> Result<TemporaryOverride, Reported> {
        let mut fields = input.fields("an override", EXAMPLE, self.report)?;
        let matches = match fields.value(MATCH) {
            Some(matches) => self.matches(&matches),
            None => {
                let remedy = "add whom it is for, like `match: { user_id: mallory }`";
                Err(fields.missing(MATCH, remedy, self.report))
            }
        };
        let rule = fields.optional(&RULE, self.report);
        let limits = fields.value(LIMITS).map(|limits| self.limits_or_word(&limits)).transpose();
        let factor = fields.optional(&FACTOR, self.report);
        let block = fields.optional(&BLOCK, self.report);
        let unlimited = fields.optional(&UNLIMITED, self.report);
        let until = fields.required(&UNTIL, self.report);
        let note = fields.required(&NOTE, self.report);
        let known = [
            MATCH,
            RULE.name,
            LIMITS,
            FACTOR.name,
            BLOCK.name,
            UNLIMITED.name,
            UNTIL.name,
            NOTE.name,
        ];
        fields.finish(self.report, |key| unknown(key, &known))?;
        let (matches, rule, limits, factor) = (matches?, rule?, limits?, factor?);
        let (block, unlimited, until, note) = (block?, unlimited?, until?, note?);
        let changes = [
            block.map(|_| OverrideChange::Block),
            unlimited.map(|_| OverrideChange::Unlimited),
            limits.map(|limits| match limits {
                Limits::Unlimited => OverrideChange::Unlimited,
                limits => OverrideChange::Limits(limits),
            }),
            factor.map(OverrideChange::Factor),
        ];
        let mut changes = changes.into_iter().flatten();
        let (Some(change), None) = (changes.next(), changes.next()) else {
            let message = "must have exactly one of `block`, `unlimited`, `limits` and `factor`; write \
                           one of them, like `block: true`";
            return Err(self.refuse(input, message.to_owned()));
        };
        let one = TemporaryOverride {
            matches,
            rule: rule.map(Into::into),
            change,
            until,
            note: note.into(),
        };
        self.check_listed(input, &one)?;
        Ok(one)
    }

    /// Blocks and exemptions are entries of lists, which decide about the whole request.
    fn check_listed(
        &mut self,
        input: &Value<'_, '_>,
        one: &TemporaryOverride,
    ) -> Result<(), Reported> {
        let message = match one.change {
            OverrideChange::Block if one.rule.is_some() => {
                "a block is for the whole request, got a `rule` too; remove `rule`, or write `limits: \
                 deny` instead of `block`"
            }
            _ if one.is_listed() && one.matches.len() > 1 => {
                "without a rule, one entry decides about the whole request, got several in `match`; \
                 keep one, or name a `rule` and write `limits`"
            }
            _ => return Ok(()),
        };
        Err(self.refuse(input, message.to_owned()))
    }

    /// `{ user_id: "acme*", remote_address: { cidr: 10.0.0.0/8 } }`.
    fn matches(&mut self, input: &Value<'_, '_>) -> Result<Vec<ListEntry>, Reported> {
        let mut fields = input.fields("`match`", "{ user_id: mallory }", self.report)?;
        let all = fields.all();
        if all.is_empty() {
            let message = "must have an entry, got none; write it like `{ user_id: mallory }`";
            return Err(self.refuse(input, message.to_owned()));
        }
        let mut entries = Vec::with_capacity(all.len());
        let mut read = Ok(());
        for (key, value) in all {
            match self.matched_value(&value) {
                Ok(value) => entries.push(ListEntry { key: key.to_owned(), value }),
                Err(reported) => read = Err(reported),
            }
        }
        read.map(|()| entries)
    }

    fn matched_value(&mut self, value: &Value<'_, '_>) -> Result<Pattern, Reported> {
        const EXAMPLE: &str = "{ cidr: 10.0.0.0/8 }";
        if !matches!(value.node.content, Content::Mapping(_)) {
            let text = self.filled(value, "user_id: mallory")?;
            let text = self.check_length(value, text, VALUE_CHARS_MAX)?;
            return Ok(Pattern::Text(text.to_owned()));
        }
        let mut fields = value.fields("a value", EXAMPLE, self.report)?;
        let (cidr, regex) = (fields.value("cidr"), fields.value("regex"));
        fields.finish(self.report, |key| unknown(key, &["cidr", "regex"]))?;
        match (cidr, regex) {
            (Some(cidr), None) => self.networks(&cidr),
            (None, Some(regex)) => self.regex(&regex, VALUE_CHARS_MAX),
            _ => {
                let message = format!("must have `cidr` or `regex`; write it like `{EXAMPLE}`");
                Err(self.refuse(value, message))
            }
        }
    }
}

/// The overrides of a file, read without the other files of its domain.
pub(crate) fn read_overrides(source: &Source) -> Result<Vec<TemporaryOverride>, Problems> {
    let mut report = Report::new(&source.name);
    let read = file::read(0, source, &mut report).ok_or(Reported);
    let read = report.finish(read)?;
    Ok(read.overrides.into_iter().map(|written| written.one).collect())
}

/// Reports overrides that cannot be applied, or change nothing.
pub(super) fn check(domain: &Domain, overrides: &[PositionedOverride], reports: &mut [Report]) {
    let changing: Vec<_> = overrides.iter().filter(|written| !written.one.is_listed()).collect();
    if changing.is_empty() {
        return;
    }
    let found = affected(domain, changing.iter().map(|written| &written.one));
    for (written, found) in changing.into_iter().zip(found) {
        let message = match found {
            Ok(changed) if changed.is_empty() => nothing_changed(domain, &written.one),
            Ok(_) => continue,
            Err(error) => error.to_string(),
        };
        if let Some(report) = reports.get_mut(written.source) {
            report.add(written.at, &written.path, message);
        }
    }
}

fn nothing_changed(domain: &Domain, one: &TemporaryOverride) -> String {
    fn gather(
        nodes: &[DescriptorConfig],
        above: &str,
        known: &mut Vec<String>,
        keys: &mut Vec<String>,
    ) {
        for node in nodes {
            let entry = ListEntry { key: node.key.clone(), value: node.value.clone() };
            let path = format!("{above}{entry}");
            if let Some(rule) = &node.rule {
                known.push(path.clone());
                known.extend(rule.name.as_deref().map(str::to_owned));
            }
            if !keys.contains(&node.key) {
                keys.push(node.key.clone());
            }
            gather(&node.descriptors, &format!("{path}/"), known, keys);
        }
    }
    let (mut known, mut keys) = (Vec::new(), Vec::new());
    gather(&domain.descriptors, "", &mut known, &mut keys);
    if let Some(entry) = one.matches.iter().find(|entry| !keys.contains(&entry.key)) {
        let got = quoted(&entry.key);
        let hint = suggest::hint(&entry.key, keys.iter().map(String::as_str));
        return format!("no descriptor has this key, got {got}; {hint}write a key of the rules");
    }
    match &one.rule {
        Some(rule) => {
            let (got, hint) = (quoted(rule), suggest::hint(rule, known.iter().map(String::as_str)));
            format!(
                "changes no rule with the entries of `match` on its path, got {got}; {hint}write the id or \
                 the path of a rule as `sluicegate check` shows it"
            )
        }
        None => {
            "changes no rule: none has all entries of `match` on its path; write the keys of one"
                .to_owned()
        }
    }
}

// === values ===

fn factor(text: &str) -> Result<u64, UnitError> {
    const MAX: u64 = sluicegate_core::mode::ELASTIC_FACTOR_MAX;
    let factor = units::factor(text)?;
    if (1..=MAX).contains(&factor) {
        return Ok(factor);
    }
    let (max, got) = (units::show_factor(MAX), quoted(text));
    Err(UnitError::new(format!(
        "must be above `0` and at most `{max}`, got {got}; write `limits: deny` to let nothing pass"
    )))
}

fn only_true(text: &str) -> Result<bool, UnitError> {
    match text {
        "true" => Ok(true),
        _ => {
            let got = quoted(text);
            Err(UnitError::new(format!("must be `true`, got {got}; write `true`, or remove it")))
        }
    }
}

fn until(text: &str) -> Result<sluicegate_core::time::Timestamp, UnitError> {
    moment_of(text).ok_or_else(|| {
        let got = quoted(text);
        UnitError::new(format!(
            "must be a date and time with its offset, got {got}; write it like \
             `2026-12-01T00:00:00Z` or `2026-12-01T00:00:00+01:00`"
        ))
    })
}

fn note(text: &str) -> Result<String, UnitError> {
    let count = text.chars().count();
    if count <= NOTE_CHARS_MAX && !text.trim().is_empty() && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(UnitError::new(format!(
        "must be one line of 1 to {NOTE_CHARS_MAX} characters, got {count}; write why, like `ticket 4711`"
    )))
}
