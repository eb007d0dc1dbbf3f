//! The scalars of a file of rules, as patterns and bounds.
//!
//! A keyword of JSON Schema applies to one type and ignores all others: `pattern` applies to texts
//! and `minimum` to numbers. So one schema covers both a number and its notation as a text (`1_000`
//! is a text in YAML 1.2).

use serde_json::{Map, Value, json};
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_rules::rule::NOTIFY_MAX;
use sluicegate_rules::unit::Unit;

use super::{extend, reference};
use crate::rules::reader::REQUESTS_MAX;
use crate::units::UNITS;

/// Whitespace as Rust trims it; JavaScript's `\s` does not include U+0085.
const BLANKS: &str = r"[\s\x85]*";
/// Digits with single underscores between them.
const DIGITS: &str = "[0-9]+(?:_[0-9]+)*";

/// Keywords shared by several fields.
pub(super) fn definitions() -> Map<String, Value> {
    let named = [
        ("rate", json!({ "type": "string", "pattern": rate_pattern() })),
        ("duration", json!({ "type": "string", "pattern": span_pattern() })),
        ("percentage", json!({ "type": "string", "pattern": percent_pattern() })),
        ("unit", units_of_envoy()),
        ("flag", either()),
        ("set", set_flag()),
    ];
    named.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

// === texts ===

/// A non-empty text; YAML may assign it another type.
pub(super) fn filled() -> Value {
    json!({ "type": ["string", "number", "boolean"], "minLength": 1 })
}

/// Such a text of bounded length.
pub(super) fn text(chars_max: usize) -> Value {
    let mut text = filled();
    extend(&mut text, json!({ "maxLength": chars_max }));
    text
}

/// A text, or null.
pub(super) fn text_or_nothing() -> Value {
    json!({ "type": ["string", "number", "boolean", "null"] })
}

/// A text that counts as absent.
pub(super) fn nothing() -> Value {
    json!({ "enum": ["", null] })
}

/// One of a few words.
pub(super) fn words<T>(table: &[(&str, T)]) -> Value {
    let words: Vec<&str> = table.iter().map(|(word, _)| *word).collect();
    json!({ "enum": words })
}

/// A network, or a single address.
pub(super) const NETWORK: &str = "^[0-9A-Fa-f:.]+(?:/[0-9]+)?$";

// === true and false ===

/// True in YAML 1.1, texts in YAML 1.2.
pub(super) const YES: [&str; 8] = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON"];
/// False in YAML 1.1, texts in YAML 1.2.
pub(super) const NO: [&str; 8] = ["n", "N", "no", "No", "NO", "off", "Off", "OFF"];

/// True, false or null, as in Envoy's form.
pub(super) fn flag() -> Value {
    reference("flag")
}

fn either() -> Value {
    let words = [YES, NO].concat().join("|");
    json!({ "type": ["boolean", "null", "string"], "pattern": format!("^(?:{words})$") })
}

/// A flag that is set.
pub(super) fn set() -> Value {
    reference("set")
}

fn set_flag() -> Value {
    let yes = std::iter::once(json!(true)).chain(YES.map(|word| json!(word)));
    json!({ "enum": yes.collect::<Vec<_>>() })
}

/// True or false, as in a limit.
pub(super) fn truth() -> Value {
    json!({ "type": ["boolean", "string"], "pattern": "^(?:true|True|TRUE|false|False|FALSE)$" })
}

// === numbers ===

/// A whole number.
pub(super) fn whole(least: u64) -> Value {
    bits(least, EXACT_MAX, "")
}

/// A whole number behind an optional mark.
pub(super) fn bits(least: u64, max: u64, mark: &str) -> Value {
    json!({
        "type": ["integer", "string"],
        "minimum": least,
        "maximum": max,
        "pattern": format!("^{mark}{BLANKS}{DIGITS}{BLANKS}$"),
    })
}

/// A number with at most three decimals, with or without the mark; the maximum is in thousandths.
pub(super) fn factor(max: u64, mark: &str) -> Value {
    let mark = if mark.is_empty() { String::new() } else { format!("(?:{mark}{BLANKS})?") };
    json!({
        "type": ["number", "string"],
        "minimum": 1,
        "maximum": max.div_euclid(1_000),
        "pattern": format!("^{BLANKS}[0-9]+(?:\\.[0-9]{{1,3}})?{BLANKS}{mark}$"),
    })
}

/// A whole percentage.
pub(super) fn percent() -> Value {
    reference("percentage")
}

fn percent_pattern() -> String {
    format!("^{BLANKS}{DIGITS}{BLANKS}%{BLANKS}$")
}

/// A number of bytes, with an optional unit.
pub(super) fn bytes_pattern() -> String {
    format!("^{BLANKS}{DIGITS}{BLANKS}(?:B|KiB|MiB|GiB)?{BLANKS}$")
}

/// A whole number of YAML 1.1; a text only where YAML 1.2 does not parse it as a number, as in
/// `1_000`, so that a quoted number is rejected.
pub(super) fn requests() -> Value {
    json!({
        "type": ["integer", "null", "string"],
        "minimum": 0,
        "maximum": REQUESTS_MAX,
        "pattern": "^(?:[-+]|[0-9])[0-9_]*[_xXoObB][0-9A-Fa-fxXoO_]*$",
    })
}

/// The times that a rate of Envoy's form counts over, in any case.
pub(super) fn unit() -> Value {
    reference("unit")
}

fn units_of_envoy() -> Value {
    let names = Unit::ALL.map(Unit::name);
    let any_case: Vec<String> =
        names.iter().map(|name| name.chars().map(any_case).collect()).collect();
    let pattern = format!("^(?:{})$", any_case.join("|"));
    json!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": pattern }] })
}

/// All characters with the same upper case, by which Go compares units.
fn any_case(letter: char) -> String {
    let others = match letter {
        's' => "ſ",
        'i' => "ı",
        _ => "",
    };
    format!("[{letter}{}{others}]", letter.to_ascii_uppercase())
}

// === times ===

fn span_pattern() -> String {
    let units = units();
    format!("^{BLANKS}{DIGITS}{BLANKS}(?:{units}){BLANKS}$")
}

fn rate_pattern() -> String {
    let units = units();
    let per = format!(r"(?:/|per[\s\x85]){BLANKS}(?:{DIGITS}{BLANKS})?|per{DIGITS}{BLANKS}");
    format!("^{BLANKS}{DIGITS}{BLANKS}(?:{per})(?:{units}){BLANKS}$")
}

fn units() -> String {
    UNITS.iter().flat_map(|unit| unit.names).copied().collect::<Vec<_>>().join("|")
}

/// A percentage, or a list of them.
pub(super) fn thresholds() -> Value {
    json!({
        "type": ["string", "array"],
        "items": percent(),
        "minItems": 1,
        "maxItems": NOTIFY_MAX,
        "if": { "type": "string" },
        "then": percent(),
    })
}
