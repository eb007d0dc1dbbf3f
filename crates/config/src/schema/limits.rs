//! The limits: each algorithm is a definition of its own, chosen by `algorithm`, with exactly its
//! fields.

use serde_json::{Map, Value, json};
use sluicegate_core::algorithm::sliding_log::LOG_WINDOWS_MAX;
use sluicegate_core::algorithm::sliding_slices::{SLICES_MAX, SLICES_MIN};
use sluicegate_core::algorithm::warm_up::COLD_FACTOR_MAX;

use super::values::{bits, factor, text, truth, whole, words};
use super::{extend, reference, shown, when};
use crate::fields::Field;
use crate::limit::algorithms::known::{
    ALIGN, ALIGNS, BURST, COLD_FACTOR, FORGET_AFTER, INITIAL, LEASE, MAX, MAX_BURST, PERIOD,
    PERMITS, QUEUE, RATE, REFILL, REFILLS, ROUNDING, ROUNDINGS, SLICES, WARM_UP, ZONE,
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
                "Algorithm; it determines the other fields.",
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
    if form.fields.contains(&SLICES.name) {
        let both = json!([ROUNDING.name, SLICES.name]);
        extend(&mut schema, json!({ "not": { "required": both } }));
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
    shown("Name of the limit in answers and metrics.", text(NAME_CHARS_MAX), example)
}

/// The description of each algorithm; tests check that it is complete.
fn described(algorithm: &str) -> &'static str {
    match algorithm {
        "token_bucket" => "A rate with bursts: tokens refill at the rate, up to `burst`.",
        "leaky_bucket" => "A constant outflow: early requests wait in a bounded queue.",
        "fixed_window" => "A count per window that starts at zero in each window.",
        "sliding_log" => "Exact in any rolling window: stores the time of each hit.",
        "sliding_window" => {
            "Approximates a log with two counts, or with `slices` never exceeds the limit."
        }
        "smooth_bursty" => {
            "A smooth rate that stores unused permits for a while, as Guava's `SmoothBursty`."
        }
        "warm_up" => "A smooth rate that starts slowly after an idle period.",
        "cycle" => "Permits per cycle; later cycles can be booked ahead.",
        "concurrency" => "Concurrent requests.",
        "tally" => "Counts per window as envoyproxy/ratelimit does, denied requests included.",
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
    let several = "Several rates on one log, instead of `rate`.";
    vec![
        field(&RATE, reference("rate"), "Requests per period."),
        (RATES, shown(several, list, json!([["10/m", "2 per 3s"]]))),
    ]
}

fn numbers() -> Vec<(&'static str, Value)> {
    let burst = "Capacity of the bucket; the count of the rate if omitted.";
    let initial = "Tokens of a new bucket; its capacity if omitted.";
    let slices = "Number of slices of the window, each with a count; without it two counts \
                  approximate.";
    let cold = "Slowdown factor after an idle period; 3 if omitted.";
    vec![
        field(&BURST, whole(1), burst),
        field(&INITIAL, whole(0), initial),
        field(&SLICES, bits(SLICES_MIN, SLICES_MAX, ""), slices),
        field(&QUEUE, whole(0), "Length of the queue; 0 if omitted."),
        field(&COLD_FACTOR, factor(COLD_FACTOR_MAX, ""), cold),
        field(&PERMITS, whole(0), "Permits per cycle."),
        field(&MAX, whole(0), "Maximum number of concurrent requests."),
    ]
}

fn times() -> Vec<(&'static str, Value)> {
    let time = |known, description| field(known, reference("duration"), description);
    let forget = "Minimum time before an idle identity is forgotten; 24h if omitted.";
    vec![
        time(&FORGET_AFTER, forget),
        time(&MIN_GAP, "Minimum time between two hits."),
        time(&MAX_BURST, "Time for which unused permits are stored; 1s if omitted."),
        time(&WARM_UP, "Time to reach the rate after an idle period, at most 1h."),
        time(&PERIOD, "Length of a cycle."),
        time(&LEASE, "Time after which a slot that was not released is free again."),
    ]
}

fn choices() -> Vec<(&'static str, Value)> {
    let refill = "Refill one by one (`greedy`), all at once each period (`interval`), or so on the \
                  clock (`aligned`).";
    let align = "Start of windows: on the `clock`, at the `first_hit`, or by the `calendar`.";
    let rounding = "Rounding of fractional hits: down (`floor`) or `up`.";
    let zone = json!({ "type": "string", "minLength": 1 });
    let count_denied = "Whether denied hits count too, which penalizes aggressive clients.";
    vec![
        field(&REFILL, words(&REFILLS), refill),
        field(&ALIGN, words(&ALIGNS), align),
        field(&ZONE, zone, "Time zone of the calendar; UTC if omitted."),
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
