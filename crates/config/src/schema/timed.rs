//! Limits by plan, schedules and overrides.

use serde_json::{Map, Value, json};
use sluicegate_rules::overrides::OVERRIDES_MAX;
use sluicegate_rules::schedule::PARTS_MAX;

use super::keys::{mapping, networks, setting};
use super::limits::limits;
use super::values::{filled, text};
use super::{extend, shown};
use crate::limit::algorithms::known::ZONE;
use crate::rules::VALUE_CHARS_MAX;
use crate::rules::keys::Key;
use crate::rules::overrides::{
    BLOCK, FACTOR, LIMITS as OTHER_LIMITS, MATCH, NOTE, NOTE_CHARS_MAX, RULE, UNLIMITED,
    UNTIL as OVERRIDE_END,
};
use crate::rules::plans::{BY, OTHERS, PLAN_CHARS_MAX, PLANS, PLANS_MAX, WORDS};
use crate::rules::schedule::{DAYS_FIELD, FROM, LIMITS, UNTIL};

fn example_limit() -> Value {
    json!({ "algorithm": "token_bucket", "rate": "10/s" })
}

/// Limits, or one of the words.
fn limits_or_word() -> Value {
    json!({
        "if": { "type": ["array", "object"] },
        "then": limits(),
        "else": { "enum": WORDS },
    })
}

/// Limits of all requests, or by plan.
pub(super) fn planned() -> Value {
    json!({
        "type": ["array", "object"],
        "if": { "type": "object", "required": [BY] },
        "then": by_plan(),
        "else": limits(),
    })
}

fn planned_or_word() -> Value {
    json!({
        "if": { "type": ["array", "object"] },
        "then": planned(),
        "else": { "enum": WORDS },
    })
}

fn by_plan() -> Value {
    let plans =
        json!({ "type": "object", "additionalProperties": limits_or_word(), "minProperties": 1 });
    let mut fields = mapping([
        (
            BY,
            shown(
                "Key of the entry on the path whose value is the plan.",
                filled(),
                json!(["plan"]),
            ),
        ),
        (PLANS, shown("Limits of each plan.", plans, json!([{ "free": example_limit() }]))),
        (OTHERS, shown("Limits of requests of any other plan.", limits_or_word(), json!(["deny"]))),
    ]);
    extend(&mut fields, json!({ "required": [BY, PLANS, OTHERS] }));
    fields
}

/// One of the keys of this module.
pub(super) fn property(key: Key) -> Value {
    match key {
        Key::Schedule => schedule(),
        Key::Overrides => overrides(),
        _ => plan_names(),
    }
}

/// The names of plans.
fn plan_names() -> Value {
    shown(
        "Names of the plans that limits are given by.",
        json!({
            "type": "array",
            "items": text(PLAN_CHARS_MAX),
            "minItems": 1,
            "maxItems": PLANS_MAX,
        }),
        json!([["free", "pro", "enterprise"]]),
    )
}

fn schedule() -> Value {
    let mut part = mapping([
        (
            DAYS_FIELD.name,
            setting(
                &DAYS_FIELD,
                filled(),
                "Days of the week on which the time begins; every day if omitted.",
            ),
        ),
        (FROM.name, setting(&FROM, filled(), "Begin; 00:00 if omitted.")),
        (
            UNTIL.name,
            setting(
                &UNTIL,
                filled(),
                "End, on the next day if it is before the begin; 24:00 if omitted.",
            ),
        ),
        (ZONE.name, setting(&ZONE, filled(), "Time zone; UTC if omitted.")),
        (
            LIMITS,
            shown(
                "Limits that hold then, or `unlimited`, or `deny`.",
                planned_or_word(),
                json!([example_limit()]),
            ),
        ),
    ]);
    extend(&mut part, json!({ "required": [LIMITS], "minProperties": 2 }));
    shown(
        "Limits that hold at certain times of the week instead; the first that holds applies.",
        json!({ "type": "array", "items": part, "minItems": 1, "maxItems": PARTS_MAX }),
        json!([[{
            "days": "mon-fri", "from": "09:00", "until": "18:00", "zone": "Europe/Berlin",
            "limits": example_limit(),
        }]]),
    )
}

fn overrides() -> Value {
    let pattern = mapping([
        ("cidr", shown("Network, or a list of networks.", networks(), json!(["10.0.0.0/8"]))),
        ("regex", shown("Regular expression.", text(VALUE_CHARS_MAX), json!(["^test-"]))),
    ]);
    let value = json!({
        "if": { "type": "object" },
        "then": pattern,
        "else": text(VALUE_CHARS_MAX),
    });
    let matches = json!({ "type": "object", "additionalProperties": value, "minProperties": 1 });
    let only_true = || json!({ "enum": [true, "true"] });
    let mut one = mapping([
        (
            MATCH,
            shown(
                "Entries of a descriptor that it is for; `*` matches any text.",
                matches,
                json!([{ "user_id": "acme*" }]),
            ),
        ),
        (
            RULE.name,
            setting(
                &RULE,
                filled(),
                "Id or path of the changed rule, with those below it; all rules if omitted.",
            ),
        ),
        (BLOCK.name, setting(&BLOCK, only_true(), "Denies the requests.")),
        (UNLIMITED.name, setting(&UNLIMITED, only_true(), "Admits the requests uncounted.")),
        (OTHER_LIMITS, shown("Other limits.", limits_or_word(), json!([example_limit()]))),
        (
            FACTOR.name,
            setting(&FACTOR, json!({ "type": ["string", "number"] }), "Multiple of the limits."),
        ),
        (
            OVERRIDE_END.name,
            setting(
                &OVERRIDE_END,
                json!({ "type": "string" }),
                "First moment at which it does not apply any more.",
            ),
        ),
        (NOTE.name, setting(&NOTE, text(NOTE_CHARS_MAX), "Why it was made.")),
    ]);
    extend(&mut one, json!({ "required": [MATCH, OVERRIDE_END.name, NOTE.name] }));
    let exclusive = [BLOCK.name, UNLIMITED.name, OTHER_LIMITS, FACTOR.name];
    let choices: Vec<Value> = exclusive.iter().map(|name| json!({ "required": [name] })).collect();
    extend(&mut one, json!({ "oneOf": choices }));
    let mut schema: Map<String, Value> = Map::new();
    schema.insert("type".to_owned(), json!(["array", "null"]));
    schema.insert("items".to_owned(), one);
    schema.insert("maxItems".to_owned(), json!(OVERRIDES_MAX));
    shown(
        "Other limits, none, or a block for some identities until a time.",
        Value::Object(schema),
        json!([[{
            "match": { "user_id": "mallory" },
            "block": true,
            "until": "2026-12-01T00:00:00Z",
            "note": "ticket 4711",
        }]]),
    )
}
