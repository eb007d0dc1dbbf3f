//! The limits: each algorithm is a definition of its own, chosen by `algorithm`, with exactly its
//! fields.

use serde_json::{Map, Value, json};
use sluicegate_core::algorithm::sliding_log::LOG_WINDOWS_MAX;
use sluicegate_core::algorithm::warm_up::COLD_FACTOR_MAX;

use super::values::{factor, text, truth, whole, words};
use super::{extend, reference, shown, when};
use crate::fields::Field;
use crate::limit::algorithms::known::{
    ALIGN, ALIGNS, BURST, COLD_FACTOR, FORGET_AFTER, INITIAL, LEASE, MAX, MAX_BURST, PERIOD,
    PERMITS, QUEUE, RATE, REFILL, REFILLS, ROUNDING, ROUNDINGS, WARM_UP, ZONE,
};
use crate::limit::algorithms::log::{COUNT_DENIED, MIN_GAP, RATES};
use crate::limit::algorithms::{AlgorithmForm, FORMS};
use crate::limit::{ALGORITHM, LIMITS_MAX, NAME, NAME_CHARS_MAX};

/// One limit, or a list of them.
pub(super) fn limits() -> Value {
    json!({
        "type": ["array", "object"],
        "items": reference("limit"),
        "minItems": 1,
        "maxItems": LIMITS_MAX,
        "if": { "type": "object" },
        "then": reference("limit"),
    })
}

/// A limit of any algorithm.
pub(super) fn limit() -> Value {
    let names: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
    let branches: Vec<Value> = FORMS
        .iter()
        .map(|form| {
            let chosen = json!({
                "properties": { ALGORITHM.name: { "const": form.name } },
                "required": [ALGORITHM.name],
            });
            when(chosen, reference(form.name))
        })
        .collect();
    json!({
        "type": "object",
        "properties": {
            ALGORITHM.name: shown(
                "How it counts, which also says what fields there are.",
                json!({ "enum": names }),
                json!([ALGORITHM.example]),
            ),
            NAME.name: name(),
        },
        "required": [ALGORITHM.name],
        "allOf": branches,
    })
}

/// Each algorithm with its fields.
pub(super) fn algorithms() -> Map<String, Value> {
    FORMS.iter().map(|form| (form.name.to_owned(), algorithm(form))).collect()
}

fn algorithm(form: &AlgorithmForm) -> Value {
    let described = described(form.name);
    let chosen = shown(described, json!({ "const": form.name }), json!([form.name]));
    let mut properties = Map::new();
    properties.insert(ALGORITHM.name.to_owned(), chosen);
    properties.insert(NAME.name.to_owned(), name());
    let known = fields();
    for name in form.fields {
        let field = known.iter().find(|(known, _)| known == name);
        properties
            .insert((*name).to_owned(), field.map_or(json!(true), |(_, field)| field.clone()));
    }
    // A log has one rate or several.
    let either = form.fields.contains(&RATES);
    let needed = |name: &&str| NEEDED.contains(name) && !(either && *name == RATE.name);
    let required: Vec<&str> =
        std::iter::once(ALGORITHM.name).chain(form.fields.iter().copied().filter(needed)).collect();
    let mut schema = json!({
        "description": described,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if either {
        let one = json!([{ "required": [RATE.name] }, { "required": [RATES] }]);
        extend(&mut schema, json!({ "oneOf": one }));
    }
    if form.fields.contains(&ZONE.name) {
        let calendar = json!({
            "properties": { ALIGN.name: { "const": "calendar" } },
            "required": [ALIGN.name],
        });
        extend(&mut schema, when(json!({ "required": [ZONE.name] }), calendar));
    }
    schema
}

fn name() -> Value {
    let example = json!([NAME.example]);
    shown("What the limit is called in answers and metrics.", text(NAME_CHARS_MAX), example)
}

/// The description of each algorithm; tests check that it is complete.
fn described(algorithm: &str) -> &'static str {
    match algorithm {
        "token_bucket" => {
            "A rate with bursts: tokens come at the rate, and up to `burst` are kept."
        }
        "leaky_bucket" => {
            "An even outflow: what comes too early waits in a queue of bounded length."
        }
        "fixed_window" => "So many per window, and each window starts anew.",
        "sliding_log" => {
            "Never more than so many in any stretch of time, exactly: it remembers each hit."
        }
        "sliding_window" => "Nearly as exact as a log, with two counts in place of it.",
        "smooth_bursty" => "An even pace that stores unused permits for a while, as Guava's does.",
        "warm_up" => "An even pace that starts slowly after a pause.",
        "cycle" => "So many permits in each cycle, which may be booked ahead.",
        "concurrency" => "So many at a time.",
        "tally" => "Counts per window as envoyproxy/ratelimit does, also what is denied.",
        "unlimited" => "No limit.",
        _ => "",
    }
}

// === fields ===

/// Fields required by every algorithm that has them.
const NEEDED: [&str; 6] =
    [RATE.name, WARM_UP.name, PERMITS.name, PERIOD.name, MAX.name, LEASE.name];

/// Every field of any limit.
pub(super) fn fields() -> Vec<(&'static str, Value)> {
    [rates(), numbers(), times(), choices()].concat()
}

fn rates() -> Vec<(&'static str, Value)> {
    let list = json!({
        "type": "array",
        "items": reference("rate"),
        "minItems": 1,
        "maxItems": LOG_WINDOWS_MAX,
    });
    let several = "Several rates on one log, in place of `rate`.";
    vec![
        field(&RATE, reference("rate"), "How many may pass in which time."),
        (RATES, shown(several, list, json!([["10/m", "2 per 3s"]]))),
    ]
}

fn numbers() -> Vec<(&'static str, Value)> {
    let burst = "How many tokens the bucket holds; the number of the rate if left out.";
    let initial = "How many tokens a new bucket has; as many as it holds if left out.";
    let cold = "How many times slower it is after a pause; 3 if left out.";
    vec![
        field(&BURST, whole(1), burst),
        field(&INITIAL, whole(0), initial),
        field(&QUEUE, whole(0), "How many may wait; none if left out."),
        field(&COLD_FACTOR, factor(COLD_FACTOR_MAX, ""), cold),
        field(&PERMITS, whole(0), "How many permits a cycle has."),
        field(&MAX, whole(0), "How many at a time."),
    ]
}

fn times() -> Vec<(&'static str, Value)> {
    let time = |known, description| field(known, reference("duration"), description);
    let forget = "How long somebody who does nothing is remembered, at the least; 24h if left out.";
    vec![
        time(&FORGET_AFTER, forget),
        time(&MIN_GAP, "How far apart two hits must be."),
        time(&MAX_BURST, "For how long unused permits are stored; 1s if left out."),
        time(&WARM_UP, "How long it takes to reach the rate after a pause, at most 1h."),
        time(&PERIOD, "How long a cycle lasts."),
        time(&LEASE, "After how long a slot that was not given back is free again."),
    ]
}

fn choices() -> Vec<(&'static str, Value)> {
    let refill = "Whether tokens come one by one (`greedy`), all at once each period (`interval`), \
                  or so on the clock (`aligned`).";
    let align = "Whether windows begin on the `clock`, with the `first_hit`, or by the `calendar`.";
    let rounding = "Whether a part of a hit counts as none (`floor`) or as one (`up`).";
    let zone = json!({ "type": "string", "minLength": 1 });
    let count_denied = "Whether denied hits count too, which keeps those out who hammer.";
    vec![
        field(&REFILL, words(&REFILLS), refill),
        field(&ALIGN, words(&ALIGNS), align),
        field(&ZONE, zone, "The time zone of the calendar; UTC if left out."),
        field(&ROUNDING, words(&ROUNDINGS), rounding),
        field(&COUNT_DENIED, truth(), count_denied),
    ]
}

fn field<T>(field: &Field<T>, schema: Value, description: &str) -> (&'static str, Value) {
    (field.name, shown(description, schema, json!([example(field.example)])))
}

/// An example as YAML has it: a number, true or false, or a text.
pub(super) fn example(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => json!(text),
    }
}
