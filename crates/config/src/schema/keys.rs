//! The mappings that a file of rules is made of, with every key of each.

use serde_json::{Map, Value, json};
use sluicegate_core::mode::ELASTIC_FACTOR_MAX;

use super::limits::{example, limits};
use super::values::forward_auth;
use super::values::{
    NETWORK, bits, factor, filled, flag, nothing, percent, requests, set, text, text_or_nothing,
    unit, whole, words,
};
use super::{extend, reference, shown, when};
use crate::fields::Field;
use crate::limit::NAME_CHARS_MAX;
use crate::mode::{ABOVE, BELOW, ELASTIC, SOFT, UP_TO};
use crate::rules::descriptor::{ON_IDENTITIES, ON_LIMITS};
use crate::rules::keys::{Form, KEYS, Key, Level};
use crate::rules::pattern::{V4, V4_MAX, V6, V6_MAX};
use crate::rules::rule::{
    COST, HOT_KEYS, HOT_KEYS_WORDS, ID, ON_LIMIT, ON_LIMITS as ON_LIMIT_WORDS, ON_STORE_FAILURE,
    ON_STORE_FAILURES, OVERFLOW, OVERFLOWS, SYNC,
};
use crate::rules::{KEY_CHARS_MAX, VALUE_CHARS_MAX};

/// The mapping of a level, without a title.
pub(super) fn level(level: Level) -> Value {
    let valid = KEYS.iter().copied().filter(|key| key.belongs(level, Form::Native));
    let properties: Map<String, Value> =
        valid.map(|key| (key.name().to_owned(), property(key, level))).collect();
    let (kind, required, conditions) = match level {
        Level::Root => (json!("object"), vec![Key::Domain], vec![removed_alone()]),
        Level::Descriptor => (json!("object"), vec![Key::Entry], descriptor()),
        Level::RateLimit => (json!(["object", "null"]), Vec::new(), rate_limit()),
        Level::Replaced => (json!("object"), vec![Key::Name], Vec::new()),
        Level::Listed => (json!("object"), vec![Key::Entry], listed()),
    };
    let mut schema = json!({
        "type": kind,
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        extend(&mut schema, needs(&required));
    }
    if !conditions.is_empty() {
        extend(&mut schema, json!({ "allOf": conditions }));
    }
    schema
}

// === the keys ===

/// A key at a level that it belongs to.
fn property(key: Key, level: Level) -> Value {
    match key {
        Key::Domain | Key::Descriptors | Key::Allow | Key::Deny | Key::Removed => of_file(key),
        Key::ForwardAuth => forward_auth(),
        Key::Entry | Key::Value | Key::Regex | Key::Cidr => of_entry(key),
        Key::Unit | Key::RequestsPerUnit | Key::Unlimited | Key::Name => of_rate_limit(key, level),
        Key::Replaces => replaces(level),
        Key::RateLimit | Key::Limits => of_limits(key),
        Key::Mode | Key::Consistency | Key::Prefix | Key::Metadata => nested(key),
        Key::Id => setting(
            &ID,
            text(NAME_CHARS_MAX),
            "What the rule is called, in place of the way to it.",
        ),
        Key::Cost => setting(&COST, whole(1), "How much one hit weighs; 1 if left out."),
        Key::OnStoreFailure => setting(
            &ON_STORE_FAILURE,
            words(&ON_STORE_FAILURES),
            "What holds while the store cannot be asked: this node's share of the limit (`local`), or \
             every request is allowed, denied or answered with an error.",
        ),
        Key::OnLimit => setting(
            &ON_LIMIT,
            words(&ON_LIMIT_WORDS),
            "What happens to a request above the limit: it is refused (`deny`), waits for its turn \
             (`shape`) or is kept for later (`queue`).",
        ),
        Key::Overflow => setting(
            &OVERFLOW,
            words(&OVERFLOWS),
            "What holds for new keys when the memory store is full: they share one counter, or are \
             denied or allowed.",
        ),
        Key::Shared
        | Key::ShadowMode
        | Key::QuotaMode
        | Key::ShareThreshold
        | Key::DetailedMetric
        | Key::ValueToMetric => switch(key),
    }
}

pub(super) fn setting<T>(field: &Field<T>, schema: Value, description: &str) -> Value {
    shown(description, schema, json!([example(field.example)]))
}

fn of_file(key: Key) -> Value {
    let entries = json!({ "type": "array", "items": reference("entry") });
    match key {
        Key::Domain => shown("Whose rules these are.", text(KEY_CHARS_MAX), json!(["shop"])),
        Key::Allow => shown(
            "Who passes everything, uncounted.",
            entries,
            json!([[{ "key": "remote_address", "cidr": "10.0.0.0/8" }]]),
        ),
        Key::Deny => shown(
            "Who passes nothing; it wins over `allow`.",
            entries,
            json!([[{ "key": "user_id", "value": "mallory" }]]),
        ),
        Key::Removed => shown(
            "Removes the domain from a running service at once; without it, rules that vanish stay in \
             force for a grace period.",
            set(),
            json!([true]),
        ),
        _ => shown(
            "The entries that a request may have here, each with its limits and with those that may \
             follow.",
            json!({ "type": ["array", "null"], "items": reference("descriptor") }),
            json!([[{
                "key": "user_id",
                "limits": [{ "algorithm": "token_bucket", "rate": "10/s" }],
            }]]),
        ),
    }
}

fn of_entry(key: Key) -> Value {
    match key {
        Key::Entry => shown(
            "What is known of a request: the key of an entry.",
            text(KEY_CHARS_MAX),
            json!(["user_id", "remote_address", "path"]),
        ),
        Key::Value => {
            let mut value = text_or_nothing();
            extend(&mut value, json!({ "maxLength": VALUE_CHARS_MAX }));
            let examples = json!(["/login", "/api/*/search*"]);
            shown("The value of the entry, in which a `*` stands for anything.", value, examples)
        }
        Key::Regex => shown(
            "A regular expression that matches anywhere in the value, so mind `^` and `$`.",
            text(VALUE_CHARS_MAX),
            json!(["^/v[0-9]+/"]),
        ),
        _ => shown(
            "A network that the value lies in, or a list of them; the longest wins.",
            json!({
                "type": ["string", "array"],
                "pattern": NETWORK,
                "items": { "type": "string", "pattern": NETWORK },
                "minItems": 1,
            }),
            json!(["10.0.0.0/8", ["10.0.0.0/8", "fd00::/8"]]),
        ),
    }
}

fn of_limits(key: Key) -> Value {
    match key {
        Key::Limits => shown(
            "What may pass: one limit, or a list of them of which all are charged or none.",
            limits(),
            json!([[{ "algorithm": "token_bucket", "rate": "10/s", "burst": 50 }]]),
        ),
        _ => shown(
            "What may pass, in Envoy's form: denied requests count too.",
            reference("rate_limit"),
            json!([{ "unit": "minute", "requests_per_unit": 100 }]),
        ),
    }
}

fn of_rate_limit(key: Key, level: Level) -> Value {
    match (key, level) {
        (Key::Unit, _) => {
            shown("The time that is counted over.", text_or_nothing(), json!(["minute"]))
        }
        (Key::RequestsPerUnit, _) => {
            shown("How many may pass in it; none if left out.", requests(), json!([100]))
        }
        (Key::Unlimited, _) => {
            shown("Whether everything passes, uncounted.", flag(), json!([true]))
        }
        (_, Level::Replaced) => {
            shown("The name of the rule that does not count.", filled(), json!(["per-user"]))
        }
        _ => shown("What the rule is called.", text_or_nothing(), json!(["per-user"])),
    }
}

/// In Envoy's form a list of names in mappings, in the native form a list of ids.
fn replaces(level: Level) -> Value {
    let description = "The rules that do not count in a request that this one matches.";
    if level == Level::RateLimit {
        let names = json!({ "type": ["array", "null"], "items": self::level(Level::Replaced) });
        return shown(description, names, json!([[{ "name": "per-user" }]]));
    }
    let ids = json!({ "type": "array", "items": filled() });
    shown(description, ids, json!([["per-user"]]))
}

fn switch(key: Key) -> Value {
    let description = match key {
        Key::Shared => "Whether all values that are matched share one counter.",
        Key::ShadowMode => {
            "Whether it is judged and counted, and never denied; `mode: shadow` in our own form."
        }
        Key::QuotaMode => {
            "Whether a request is denied only if all rules in this mode that it meets deny."
        }
        Key::ShareThreshold => {
            "Whether all values that the `*` in `value` stands for share one counter."
        }
        Key::DetailedMetric => "Whether metrics are told apart by the values of every entry.",
        _ => "Whether metrics are told apart by the value of this entry.",
    };
    shown(description, flag(), json!([true]))
}

// === values with fields of their own ===

fn nested(key: Key) -> Value {
    match key {
        Key::Mode => mode(),
        Key::Consistency => consistency(),
        Key::Prefix => {
            let v4 = bits(0, V4_MAX.into(), "/?");
            let v6 = bits(0, V6_MAX.into(), "/?");
            let mut fields = mapping([
                (
                    V4.name,
                    setting(&V4, v4, "How many bits of an IPv4 address tell counters apart."),
                ),
                (
                    V6.name,
                    setting(&V6, v6, "How many bits of an IPv6 address tell counters apart."),
                ),
            ]);
            extend(&mut fields, json!({ "minProperties": 1 }));
            let examples = json!([{ "v4": 32, "v6": 64 }]);
            shown("Which addresses share a counter: those of one network.", fields, examples)
        }
        _ => shown(
            "Free data, handed on to whoever asked.",
            json!({ "type": ["object", "null"] }),
            json!([{ "tier": "gold" }]),
        ),
    }
}

fn mode() -> Value {
    let soft = "Up to so much above the limit is admitted, and marked.";
    let mut elastic = mapping([
        (
            UP_TO.name,
            setting(
                &UP_TO,
                factor(ELASTIC_FACTOR_MAX, "x"),
                "How many times the limit passes while the load is low.",
            ),
        ),
        (BELOW.name, setting(&BELOW, percent(), "The load below which more passes.")),
        (
            ABOVE.name,
            setting(&ABOVE, percent(), "The load above which no more than the limit passes."),
        ),
    ]);
    extend(&mut elastic, json!({ "required": [UP_TO.name, BELOW.name, ABOVE.name] }));
    let levels = json!([{ "up_to": "2x", "below": "70%", "above": "85%" }]);
    let mut numbers = mapping([
        (SOFT.name, setting(&SOFT, percent(), soft)),
        (ELASTIC, shown("More than the limit passes while the load is low.", elastic, levels)),
    ]);
    extend(&mut numbers, json!({ "minProperties": 1, "maxProperties": 1 }));
    shown(
        "How strictly: never above the limit (`hard`, if left out), never denied (`shadow`), or with \
         room above it (`soft`, `elastic`).",
        json!({ "anyOf": [{ "enum": ["hard", "shadow"] }, numbers] }),
        json!(["shadow", { "soft": "10%" }]),
    )
}

fn consistency() -> Value {
    let often = "How often nodes tell each other, from 1ms to 1m; 100ms if left out.";
    let eventual_text = "Nodes decide by themselves and tell each other.";
    let interval = setting(&SYNC, reference("duration"), often);
    let eventual = detailed("eventual", eventual_text, SYNC.name, interval, json!("50ms"));
    let heavy = "What happens to keys that are asked for very often: nodes buy ahead for them \
                 (`leased`), or not (`strict`, if left out).";
    let strict_text = "Each decision asks the store.";
    let hot = setting(&HOT_KEYS, words(&HOT_KEYS_WORDS), heavy);
    let strict = detailed("strict", strict_text, HOT_KEYS.name, hot, json!("leased"));
    shown(
        "What nodes promise together: each decision asks the store (`strict`, if left out), nodes buy \
         ahead (`leased`), or they tell each other afterwards (`eventual`).",
        json!({ "anyOf": [{ "enum": ["strict", "leased", "eventual"] }, eventual, strict] }),
        json!([
            "leased",
            { "eventual": { "sync_interval": "50ms" } },
            { "strict": { "hot_keys": "leased" } },
        ]),
    )
}

/// A consistency mode with its single option.
fn detailed(word: &str, description: &str, name: &str, field: Value, example: Value) -> Value {
    let mut detail = mapping([(name, field)]);
    extend(&mut detail, json!({ "type": ["object", "null"] }));
    let mut schema = mapping([(word, shown(description, detail, json!([{ name: example }])))]);
    extend(&mut schema, json!({ "required": [word] }));
    schema
}

/// A mapping with these fields and no others.
pub(super) fn mapping<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let properties: Map<String, Value> =
        fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

// === combinations of keys ===

fn needs(keys: &[Key]) -> Value {
    json!({ "required": keys.iter().map(|key| key.name()).collect::<Vec<_>>() })
}

fn any_of(keys: &[Key]) -> Value {
    json!({ "anyOf": keys.iter().map(|key| needs(&[*key])).collect::<Vec<_>>() })
}

fn is(key: Key, schema: Value) -> Value {
    json!({ "properties": { key.name(): schema } })
}

/// A key that is there, and is so.
fn has(key: Key, schema: Value) -> Value {
    let mut has = is(key, schema);
    extend(&mut has, needs(&[key]));
    has
}

fn with_star() -> Value {
    json!({ "type": "string", "pattern": "\\*" })
}

fn without_star() -> Value {
    json!({ "pattern": "^[^*]*$" })
}

/// At most one of `value`, `regex` and `cidr`; an empty `value` counts as absent.
fn one_pattern() -> [Value; 2] {
    let alone = json!({ Key::Value.name(): nothing(), Key::Cidr.name(): false });
    [
        when(needs(&[Key::Regex]), json!({ "properties": alone })),
        when(needs(&[Key::Cidr]), is(Key::Value, nothing())),
    ]
}

/// A domain that is removed has nothing else.
fn removed_alone() -> Value {
    let others = [Key::Descriptors, Key::Allow, Key::Deny, Key::ForwardAuth];
    let none: Map<String, Value> =
        others.iter().map(|key| (key.name().to_owned(), json!(false))).collect();
    when(needs(&[Key::Removed]), json!({ "properties": none }))
}

fn listed() -> Vec<Value> {
    let mut all = vec![is(Key::Entry, without_star())];
    all.extend(one_pattern());
    all
}

fn rate_limit() -> Vec<Value> {
    let mut condition = when(has(Key::Unlimited, set()), is(Key::Unit, json!({ "not": unit() })));
    extend(&mut condition, json!({ "else": has(Key::Unit, unit()) }));
    vec![condition]
}

fn descriptor() -> Vec<Value> {
    let own = |keys: &[Key]| -> Vec<Key> {
        keys.iter().copied().filter(|key| key.form() == Form::Native).collect()
    };
    let native: Vec<Key> =
        own(KEYS).into_iter().filter(|key| key.belongs(Level::Descriptor, Form::Native)).collect();
    let limited = [Key::Limits, Key::RateLimit];
    let some_star =
        json!({ "anyOf": [has(Key::Value, with_star()), has(Key::Entry, with_star())] });
    let many_values = json!({ "anyOf": [nothing(), with_star()] });
    let for_all = json!({ Key::Prefix.name(): false, Key::Value.name(): many_values });
    let alone = json!({ Key::Prefix.name(): false, Key::Shared.name(): { "not": set() } });
    let mut all = vec![
        when(needs(&[Key::Limits]), is(Key::RateLimit, json!(false))),
        when(needs(&[Key::Mode]), is(Key::ShadowMode, json!(false))),
        when(needs(&[Key::Id]), is(Key::RateLimit, is(Key::Name, nothing()))),
        // Settings require limits here; counter sharing requires limits here or below.
        when(any_of(&own(&ON_LIMITS)), any_of(&limited)),
        when(
            any_of(&own(&ON_IDENTITIES)),
            any_of(&[Key::Limits, Key::RateLimit, Key::Descriptors]),
        ),
        when(has(Key::Shared, set()), json!({ "properties": for_all })),
        when(needs(&[Key::Prefix]), is(Key::Value, many_values)),
        when(has(Key::ShareThreshold, set()), some_star),
        when(has(Key::ShareThreshold, set()), json!({ "properties": alone })),
        // A native key makes the file native.
        when(any_of(&native), is(Key::Entry, without_star())),
    ];
    all.extend(one_pattern());
    all
}
