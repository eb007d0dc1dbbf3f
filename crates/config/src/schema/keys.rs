//! The mappings that a file of rules is made of, with every key of each.

use serde_json::{Map, Value, json};
use sluicegate_core::mode::ELASTIC_FACTOR_MAX;
use sluicegate_rules::mapping::{DESCRIPTORS_MAX, Part};
use sluicegate_rules::rule::{POOLS_MAX, PRIORITY_MAX};

use super::limits::{example, limits};
use super::values::{
    NETWORK, bits, factor, filled, flag, nothing, percent, requests, set, text, text_or_nothing,
    thresholds, unit, whole, words,
};
use super::{extend, reference, shown, timed, when};
use crate::fields::Field;
use crate::limit::NAME_CHARS_MAX;
use crate::mode::{ABOVE, BELOW, ELASTIC, SOFT, UP_TO};
use crate::rules::descriptor::{ON_IDENTITIES, ON_LIMITS};
use crate::rules::file::NOT_REMOVED;
use crate::rules::forward_auth::{
    DENY_STATUS, DESCRIPTORS, HITS, STATUS_MAX, STATUS_MIN, TRUSTED_PROXIES,
};
use crate::rules::keys::{Form, KEYS, Key, Level};
use crate::rules::pattern::{V4, V4_MAX, V6, V6_MAX};
use crate::rules::pools::{POOL_LIMITS, POOL_NAME};
use crate::rules::rule::{
    COST, HOT_KEYS, HOT_KEYS_WORDS, ID, ON_EXHAUSTED, ON_EXHAUSTED_WORDS, ON_LIMIT,
    ON_LIMITS as ON_LIMIT_WORDS, ON_STORE_FAILURE, ON_STORE_FAILURES, OVERFLOW, OVERFLOWS,
    PRIORITY, SYNC,
};
use crate::rules::{DEPTH_MAX, KEY_CHARS_MAX, VALUE_CHARS_MAX};

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

/// A key at a level that it belongs to.
fn property(key: Key, level: Level) -> Value {
    let entries = || json!({ "type": "array", "items": reference("entry") });
    let (description, schema, examples) = match key {
        Key::Mode => return mode(),
        Key::Consistency => return consistency(),
        Key::Prefix => return prefix(),
        Key::ForwardAuth => return forward_auth(),
        Key::Domain => ("Name of the domain.", text(KEY_CHARS_MAX), json!(["shop"])),
        Key::Allow => (
            "Entries whose requests are admitted without being counted.",
            entries(),
            json!([[{ "key": "remote_address", "cidr": "10.0.0.0/8" }]]),
        ),
        Key::Deny => (
            "Entries whose requests are denied; takes precedence over `allow`.",
            entries(),
            json!([[{ "key": "user_id", "value": "mallory" }]]),
        ),
        Key::Removed => (
            "Removes the domain from a running service at once; without it, rules that vanish stay in \
             force for a grace period.",
            set(),
            json!([true]),
        ),
        Key::Descriptors => (
            "Entries of a request at this level, each with its limits and nested descriptors.",
            json!({ "type": ["array", "null"], "items": reference("descriptor") }),
            json!([[{
                "key": "user_id",
                "limits": [{ "algorithm": "token_bucket", "rate": "10/s" }],
            }]]),
        ),
        Key::Entry => (
            "Key of an entry of the request.",
            text(KEY_CHARS_MAX),
            json!(["user_id", "remote_address", "path"]),
        ),
        Key::Value => {
            let mut value = text_or_nothing();
            extend(&mut value, json!({ "maxLength": VALUE_CHARS_MAX }));
            let examples = json!(["/login", "/api/*/search*"]);
            ("Value of the entry; `*` matches any text.", value, examples)
        }
        Key::Regex => (
            "Regular expression that matches anywhere in the value; anchor it with `^` and `$`.",
            text(VALUE_CHARS_MAX),
            json!(["^/v[0-9]+/"]),
        ),
        Key::Cidr => (
            "Network that contains the value, or a list of networks; the longest prefix wins.",
            networks(),
            json!(["10.0.0.0/8", ["10.0.0.0/8", "fd00::/8"]]),
        ),
        Key::Limits => (
            "One limit, or a list of limits that are charged all or none, or limits by plan.",
            timed::planned(),
            json!([[{ "algorithm": "token_bucket", "rate": "10/s", "burst": 50 }]]),
        ),
        Key::RateLimit => (
            "Limit in Envoy's form; denied requests count too.",
            reference("rate_limit"),
            json!([{ "unit": "minute", "requests_per_unit": 100 }]),
        ),
        Key::Schedule | Key::Plans | Key::Overrides => return timed::property(key),
        Key::Pools => return pools(),
        Key::Notify => (
            "Thresholds of the quota, in ascending order; an event is reported when an identity \
             reaches one.",
            thresholds(),
            json!([["50%", "80%", "100%"]]),
        ),
        Key::Unit => ("Window of the limit.", text_or_nothing(), json!(["minute"])),
        Key::RequestsPerUnit => ("Requests per window; 0 if omitted.", requests(), json!([100])),
        Key::Unlimited => {
            ("Whether all requests are admitted without being counted.", flag(), json!([true]))
        }
        Key::Name if level == Level::Replaced => {
            ("Name of the replaced rule.", filled(), json!(["per-user"]))
        }
        Key::Name => ("Name of the rule.", text_or_nothing(), json!(["per-user"])),
        // In Envoy's form a list of mappings with names, in the native form a list of ids.
        Key::Replaces => {
            let (schema, examples) = if level == Level::RateLimit {
                let names = self::level(Level::Replaced);
                let names = json!({ "type": ["array", "null"], "items": names });
                (names, json!([[{ "name": "per-user" }]]))
            } else {
                (json!({ "type": "array", "items": filled() }), json!([["per-user"]]))
            };
            ("Rules that are not applied to requests that match this one.", schema, examples)
        }
        Key::Metadata => (
            "Free-form data that is returned to the client.",
            json!({ "type": ["object", "null"] }),
            json!([{ "tier": "gold" }]),
        ),
        Key::Id => {
            let description = "Identifier of the rule; the path to it if omitted.";
            return setting(&ID, text(NAME_CHARS_MAX), description);
        }
        Key::Cost => return setting(&COST, whole(1), "Cost of one hit; 1 if omitted."),
        Key::OnStoreFailure => {
            let description = "Decision while the store is unavailable: by this node's share of the \
                               limit (`local`), or every request is allowed, denied or answered \
                               with an error.";
            return setting(&ON_STORE_FAILURE, words(&ON_STORE_FAILURES), description);
        }
        Key::OnLimit => {
            let description = "Handling of requests above the limit: denied (`deny`), delayed \
                               (`shape`) or queued (`queue`).";
            return setting(&ON_LIMIT, words(&ON_LIMIT_WORDS), description);
        }
        Key::Priority => {
            let description = "Importance of the requests where they wait, from 0 to 9; those of a \
                               higher one go first. 5 if omitted.";
            return setting(&PRIORITY, bits(0, PRIORITY_MAX.into(), ""), description);
        }
        Key::OnExhausted => {
            let description = "Handling of a stream of a language model that exhausts the limits: it \
                               finishes, and the limits go into debt (`debt`), or it is ended \
                               (`end`). `debt` if omitted.";
            return setting(&ON_EXHAUSTED, words(&ON_EXHAUSTED_WORDS), description);
        }
        Key::Overflow => {
            let description = "Handling of new keys when the memory store is full: they share one \
                               counter, or are denied or allowed.";
            return setting(&OVERFLOW, words(&OVERFLOWS), description);
        }
        Key::Shared => ("Whether all matched values share one counter.", flag(), json!([true])),
        Key::ShadowMode => (
            "Whether denials are counted but not enforced; `mode: shadow` in the native form.",
            flag(),
            json!([true]),
        ),
        Key::QuotaMode => (
            "Whether a request is denied only if all matched rules in this mode deny it.",
            flag(),
            json!([true]),
        ),
        Key::ShareThreshold => (
            "Whether all values that match the `*` in `value` share one counter.",
            flag(),
            json!([true]),
        ),
        Key::DetailedMetric => (
            "Whether metrics name the values of all entries, if `--metric-values` is on.",
            flag(),
            json!([true]),
        ),
        Key::ValueToMetric => (
            "Whether metrics name the values of this entry, if `--metric-values` is on.",
            flag(),
            json!([true]),
        ),
    };
    shown(description, schema, examples)
}

pub(super) fn setting<T>(field: &Field<T>, schema: Value, description: &str) -> Value {
    shown(description, schema, json!([example(field.example)]))
}

/// A network or a list of networks.
pub(super) fn networks() -> Value {
    json!({
        "type": ["string", "array"],
        "pattern": NETWORK,
        "items": { "type": "string", "pattern": NETWORK },
        "minItems": 1,
    })
}

// === values with fields of their own ===

fn pools() -> Value {
    let mut pool = mapping([
        (POOL_NAME.name, setting(&POOL_NAME, text(NAME_CHARS_MAX), "Name of the pool.")),
        (
            POOL_LIMITS,
            shown(
                "Limits of the pool.",
                limits(),
                json!([[{ "algorithm": "fixed_window", "rate": "500000/year" }]]),
            ),
        ),
    ]);
    extend(&mut pool, json!({ "required": [POOL_NAME.name, POOL_LIMITS] }));
    shown(
        "Pools that requests draw from, in this order, when `limits` deny them.",
        json!({ "type": "array", "items": pool, "minItems": 1, "maxItems": POOLS_MAX }),
        json!([[{
            "name": "credits",
            "limits": [{ "algorithm": "fixed_window", "rate": "500000/year" }],
        }]]),
    )
}

fn prefix() -> Value {
    let (v4, v6) = (bits(0, V4_MAX.into(), "/?"), bits(0, V6_MAX.into(), "/?"));
    let mut fields = mapping([
        (V4.name, setting(&V4, v4, "Prefix length of IPv4 addresses.")),
        (V6.name, setting(&V6, v6, "Prefix length of IPv6 addresses.")),
    ]);
    extend(&mut fields, json!({ "minProperties": 1 }));
    let examples = json!([{ "v4": 32, "v6": 64 }]);
    shown("Addresses of one network share a counter.", fields, examples)
}

fn mode() -> Value {
    let soft = "Excess above the limit that is admitted and marked.";
    let mut elastic = mapping([
        (
            UP_TO.name,
            setting(
                &UP_TO,
                factor(ELASTIC_FACTOR_MAX, "x"),
                "Multiple of the limit that is admitted while the load is low.",
            ),
        ),
        (BELOW.name, setting(&BELOW, percent(), "Load below which more is admitted.")),
        (ABOVE.name, setting(&ABOVE, percent(), "Load above which only the limit is admitted.")),
    ]);
    extend(&mut elastic, json!({ "required": [UP_TO.name, BELOW.name, ABOVE.name] }));
    let levels = json!([{ "up_to": "2x", "below": "70%", "above": "85%" }]);
    let mut numbers = mapping([
        (SOFT.name, setting(&SOFT, percent(), soft)),
        (ELASTIC, shown("Admits more than the limit while the load is low.", elastic, levels)),
    ]);
    extend(&mut numbers, json!({ "minProperties": 1, "maxProperties": 1 }));
    shown(
        "Enforcement: at the limit (`hard`, the default), never denied (`shadow`), or with excess \
         (`soft`, `elastic`).",
        json!({ "anyOf": [{ "enum": ["hard", "shadow"] }, numbers] }),
        json!(["shadow", { "soft": "10%" }]),
    )
}

fn consistency() -> Value {
    let often = "Interval of synchronization between nodes, from 1ms to 1m; 100ms if omitted.";
    let eventual_text = "Nodes decide locally and synchronize their counts.";
    let interval = setting(&SYNC, reference("duration"), often);
    let eventual = detailed("eventual", eventual_text, SYNC.name, interval, json!("50ms"));
    let heavy = "Handling of hot keys: nodes lease quota for them (`leased`), or not (`strict`, the \
                 default).";
    let strict_text = "Each decision is a call to the store.";
    let hot = setting(&HOT_KEYS, words(&HOT_KEYS_WORDS), heavy);
    let strict = detailed("strict", strict_text, HOT_KEYS.name, hot, json!("leased"));
    shown(
        "Consistency between nodes: each decision is a call to the store (`strict`, the default), \
         nodes lease quota (`leased`), or they synchronize counts afterwards (`eventual`).",
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

fn forward_auth() -> Value {
    let entries = json!({
        "type": "object",
        "additionalProperties": part(),
        "propertyNames": { "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[^*]*$" },
        "minProperties": 1,
        "maxProperties": DEPTH_MAX,
    });
    let descriptors =
        json!({ "type": "array", "items": entries, "minItems": 1, "maxItems": DESCRIPTORS_MAX });
    let status = bits(STATUS_MIN.into(), STATUS_MAX.into(), "");
    let mut fields = mapping([
        (
            TRUSTED_PROXIES,
            shown(
                "Networks of proxies whose forwarded client address is trusted; the loopback if omitted.",
                networks(),
                json!([["127.0.0.0/8", "10.0.0.0/8"]]),
            ),
        ),
        (
            DESCRIPTORS,
            shown(
                "Descriptors of a request, each with the source of the value of each key. A \
                 descriptor with a missing value is omitted.",
                descriptors,
                json!([[{ "remote_address": "client_ip" }, { "user": "header X-User", "path": "path" }]]),
            ),
        ),
        (HITS.name, setting(&HITS, part(), "Hits per request; 1 if omitted.")),
        (
            DENY_STATUS.name,
            setting(&DENY_STATUS, status, "HTTP status of denials; nginx requires 403."),
        ),
    ]);
    extend(&mut fields, json!({ "required": [DESCRIPTORS] }));
    shown(
        "Forward authentication for proxies: nginx, Caddy, Traefik.",
        fields,
        json!([{ "descriptors": [{ "remote_address": "client_ip" }] }]),
    )
}

/// A part of a request.
fn part() -> Value {
    let plain: Vec<&str> = Part::WORDS.into_iter().filter(|word| !named(word)).collect();
    let named = "(?:header|cookie|query)\\s+\\S+";
    let pattern =
        format!("^\\s*(?:text\\s+\\S|(?:{}|{named})(?:\\s+or\\s+\\S|\\s*$))", plain.join("|"));
    json!({ "type": "string", "pattern": pattern, "maxLength": VALUE_CHARS_MAX })
}

fn named(word: &str) -> bool {
    matches!(word, "header" | "cookie" | "query" | "text")
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
    let others = NOT_REMOVED;
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
        when(
            needs(&[Key::Pools]),
            json!({
                "properties": {
                    Key::RateLimit.name(): false,
                    Key::QuotaMode.name(): { "not": set() },
                    Key::OnLimit.name(): { "const": "deny" },
                },
            }),
        ),
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
