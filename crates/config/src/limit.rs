//! The YAML of a limit: one mapping, or a list of them.
//!
//! ```yaml
//! - { name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }
//! - { name: daily, algorithm: fixed_window, rate: 10000/day, align: calendar, zone: Asia/Tokyo }
//! ```
//!
//! This module reads the parts common to all limits: the list, the name and the choice of the
//! algorithm; it also reports unknown fields. `algorithms` reads the fields of each algorithm.

pub(crate) mod algorithms;

use std::collections::HashMap;

use sluicegate_core::limit::Limit;
use sluicegate_rules::limit::LimitConfig;

use self::algorithms::{AlgorithmForm, Allows, FORMS};
use crate::fields::{self, Field, Fields, Value};
use crate::problem::{Problems, Report, Reported, quoted};
use crate::suggest;
use crate::units::UnitError;
use crate::yaml::Content;

/// Maximum number of limits in one list.
pub const LIMITS_MAX: usize = 32;
/// The longest name of a limit, in characters.
pub const NAME_CHARS_MAX: usize = 64;

const EXAMPLE: &str = "{ algorithm: token_bucket, rate: 10/s }";

/// Reads a limit, or a list of them.
///
/// ```
/// use sluicegate_config::limit::limits;
///
/// let one = limits("--limit", "{ name: burst, algorithm: token_bucket, rate: 10/s }").unwrap();
/// assert_eq!(one[0].name(), Some("burst"));
///
/// let text = "{ algorithm: token_bucket, rate: 10/s, burst: 0 }";
/// let problems = limits("--limit", text).unwrap_err();
/// assert_eq!(
///     problems.to_string(),
///     "--limit:1:47: burst: must be at least `1`, got `0`; to let nothing pass write `rate: 0/s`"
/// );
/// ```
///
/// # Errors
/// All problems of the text.
pub fn limits(source_name: &str, text: &str) -> Result<Vec<LimitConfig>, Problems> {
    let mut report = Report::new(source_name);
    let read = fields::document(text, EXAMPLE, &mut report)
        .and_then(|root| limits_of(&Value::root(&root), &mut report));
    report.finish(read)
}

/// Reads the limits of a value: one, or a list of them.
pub(crate) fn limits_of(
    value: &Value<'_, '_>,
    report: &mut Report,
) -> Result<Vec<LimitConfig>, Reported> {
    let mut names = Names::default();
    if !value.is_list() {
        if matches!(value.node.content, Content::Mapping(_)) {
            return limit_of(value, &mut names, report).map(|limit| vec![limit]);
        }
        let got = value.node.described();
        let message = format!(
            "a limit must be a mapping, or a list of them, got {got}; write it like `{EXAMPLE}`"
        );
        return Err(value.refuse(report, message));
    }
    let items = value.items();
    let count = items.len();
    let limits: Vec<_> = items.map(|item| limit_of(&item, &mut names, report)).collect();
    if count == 0 || count > LIMITS_MAX {
        let remedy = if count == 0 {
            format!("write it like `[{EXAMPLE}]`")
        } else {
            "give the others to another rule".to_owned()
        };
        let message = format!("must hold 1 to {LIMITS_MAX} limits, got `{count}`; {remedy}");
        return Err(value.refuse(report, message));
    }
    limits.into_iter().collect()
}

/// The names given so far, and the line of each.
type Names = HashMap<String, usize>;

fn limit_of(
    value: &Value<'_, '_>,
    names: &mut Names,
    report: &mut Report,
) -> Result<LimitConfig, Reported> {
    let mut fields = value.fields("a limit", EXAMPLE, report)?;
    let name = name_of(&mut fields, names, report);
    let (form, chosen) = match form_of(&mut fields, report) {
        Ok(found) => found,
        Err(reported) => {
            algorithms::check_values(&mut fields, report);
            let known = algorithms::field_names();
            let _ = fields.finish(report, |key| fields::unknown(key, &known));
            return Err(reported);
        }
    };
    let allows = (form.read)(&mut fields, report);
    fields.finish(report, |key| form.explain_unknown(key))?;
    chosen?;
    let (name, allows) = (name?, allows?);
    Ok(match allows {
        Allows::Fixed(Limit::Closed) => LimitConfig::closed(name, form.name),
        Allows::Fixed(limit) => LimitConfig::fixed(name, limit),
        Allows::Calendar(rate, calendar) => LimitConfig::calendar(name, rate, calendar),
    })
}

// === the name ===

pub(crate) const NAME: Field<String> = Field { name: "name", example: "burst", read: name };

pub(crate) fn name(text: &str) -> Result<String, UnitError> {
    let (wrong, remedy) = if text.trim().is_empty() {
        ("must not be empty", "write a word, or leave the field out")
    } else if text.chars().count() > NAME_CHARS_MAX {
        ("must have at most 64 characters", "write a shorter one")
    } else if text.contains(char::is_control) {
        ("must be on one line", "write a plain word")
    } else {
        return Ok(text.to_owned());
    };
    let got = quoted(text);
    Err(UnitError::new(format!("{wrong}, got {got}; {remedy}")))
}

const _: () = assert!(NAME_CHARS_MAX == 64);

fn name_of(
    fields: &mut Fields<'_>,
    names: &mut Names,
    report: &mut Report,
) -> Result<Option<String>, Reported> {
    let Some(name) = fields.optional(&NAME, report)? else {
        return Ok(None);
    };
    let line = fields.value(NAME.name).map_or(0, |value| value.at().line);
    if let Some(first) = names.get(&name) {
        let got = quoted(&name);
        let message = format!(
            "must differ from the name on line {first}, got {got}; limits are told apart by it, \
             choose another"
        );
        return Err(fields.refuse(NAME.name, report, message));
    }
    names.insert(name.clone(), line);
    Ok(Some(name))
}

// === the algorithm ===

pub(crate) const ALGORITHM: Field<&'static AlgorithmForm> =
    Field { name: "algorithm", example: "token_bucket", read: form };

fn form(text: &str) -> Result<&'static AlgorithmForm, UnitError> {
    let found = FORMS.iter().find(|form| form.name == text);
    found.ok_or_else(|| {
        let hint = suggest::hint(text, FORMS.iter().map(|form| form.name));
        let (got, all) = (quoted(text), algorithm_names());
        UnitError::new(format!("unknown algorithm, got {got}; {hint}choose {all}"))
    })
}

/// The algorithm that defines the fields, and whether it was named exactly: fields are also checked
/// against the nearest algorithm of a misspelt name.
fn form_of(
    fields: &mut Fields<'_>,
    report: &mut Report,
) -> Result<(&'static AlgorithmForm, Result<(), Reported>), Reported> {
    match fields.optional(&ALGORITHM, report) {
        Ok(Some(form)) => Ok((form, Ok(()))),
        Ok(None) => {
            let remedy = format!("choose {}", algorithm_names());
            Err(fields.missing(ALGORITHM.name, &remedy, report))
        }
        Err(reported) => {
            let value = fields.value(ALGORITHM.name);
            let near = match value.map(|value| &value.node.content) {
                Some(Content::Scalar { text, .. }) => {
                    suggest::nearest(text, FORMS.iter().map(|form| form.name))
                }
                _ => None,
            };
            let form = FORMS.iter().find(|form| Some(form.name) == near);
            form.map(|form| (form, Err(reported))).ok_or(reported)
        }
    }
}

fn algorithm_names() -> String {
    let names: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
    suggest::one_of(&names)
}

impl AlgorithmForm {
    /// The message for a key unknown to this algorithm.
    fn explain_unknown(&self, key: &str) -> String {
        let own: Vec<&str> =
            [ALGORITHM.name, NAME.name].into_iter().chain(self.fields.iter().copied()).collect();
        let owners: Vec<&str> =
            FORMS.iter().filter(|form| form.fields.contains(&key)).map(|form| form.name).collect();
        if owners.is_empty() {
            return fields::unknown(key, &own);
        }
        let (own, owners, name) = (suggest::all_of(&own), suggest::all_of(&owners), self.name);
        format!("belongs to {owners}, got it with `{name}`; remove it, the fields here are {own}")
    }
}

#[cfg(test)]
mod tests;
