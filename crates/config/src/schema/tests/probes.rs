//! Every field and key with unusual values: the schema accepts all that the loader accepts and
//! rejects most of the rest.

use super::typed::Types;
use super::{Judged, judged, limit, valid, valid_by_any, with_limit};
use crate::limit::algorithms::FORMS;
use crate::rules::keys::{Form, KEYS, Key, Level};

/// Values of every type and notation.
const PROBES: [&str; 100] = [
    "",
    "~",
    "null",
    "\"\"",
    "'null'",
    "true",
    "True",
    "\"true\"",
    "TRUE",
    "false",
    "yes",
    "Yes",
    "on",
    "no",
    "OFF",
    "y",
    "\"yes\"",
    "0",
    "1",
    "-0",
    "-1",
    "5",
    "+5",
    "\"5\"",
    "\" 5 \"",
    "\"5\\N\"",
    "05",
    "010",
    "0x10",
    "0X1f",
    "0o17",
    "0b101",
    "-0b0",
    "+0x5",
    "0_x1",
    "1_000",
    "\"1_000\"",
    "1__0",
    "_5",
    "5_",
    "1.5",
    "1.10",
    "\"1.5\"",
    "5.",
    ".5",
    "1e3",
    ".inf",
    ".nan",
    "32",
    "33",
    "/24",
    "128",
    "129",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551616",
    "10/s",
    "\" 10 / s \"",
    "10 per 30s",
    "10per 5 m",
    "10per5m",
    "1_000/day",
    "0/s",
    "10/0s",
    "10/µs",
    "\"10\\tper\\u2003hour\"",
    "5s",
    "0s",
    "200ms",
    "1 day",
    "\" 5 minutes \"",
    "90m",
    "1h",
    "2h",
    "10%",
    "\"10 %\"",
    "0%",
    "1001%",
    "2x",
    "1.5x",
    "\"2 x\"",
    "0.5x",
    "1.0001",
    "word",
    "a*",
    "minute",
    "MINUTE",
    "mınute",
    "ſecond",
    "deny",
    "shared",
    "calendar",
    "10.0.0.0/8",
    "fd00::/8",
    "[]",
    "[5]",
    "{}",
    "[10/s, 5/m]",
];
/// Values of keys that hold more than a scalar.
const NESTED: [&str; 37] = [
    "[10.0.0.0/8, 10.0.0.1]",
    "[[]]",
    "[~]",
    "[a]",
    "[a, 5, yes]",
    "[{}]",
    "[{ name: a }]",
    "[{ name: 5 }]",
    "[{ name: ~ }]",
    "[{ name: a, key: b }]",
    "[{ key: a }]",
    "[{ key: a* }]",
    "[{ key: a, value: b, cidr: 10.0.0.0/8 }]",
    "[{ key: a, value: '', cidr: 10.0.0.0/8 }]",
    "[{ key: a, regex: b }]",
    "[{ key: a, rate_limit: ~ }]",
    "{ a: [1.5, { b: ~ }], 5: x }",
    "hard",
    "shadow",
    "soft",
    "{ soft: 10% }",
    "{ soft: 10%, elastic: ~ }",
    "{ elastic: { up_to: 2, below: 70%, above: 85% } }",
    "{ elastic: { up_to: 2x, below: 70% } }",
    "strict",
    "leased",
    "eventual",
    "{ eventual: ~ }",
    "{ eventual: {} }",
    "{ eventual: { sync_interval: 50ms } }",
    "{ strict: ~ }",
    "{ strict: { hot_keys: leased } }",
    "{ strict: { hot_keys: eventual } }",
    "{ v4: 24 }",
    "{ v4: /24, v6: ' 64 ' }",
    "{ unit: Day }",
    "{ algorithm: tally, rate: 5/s }",
];

/// The results of many texts.
#[derive(Debug, Default)]
struct Count {
    accepted: usize,
    refused: usize,
    /// Of the rejected ones.
    seen: usize,
}

impl Count {
    fn check(&mut self, text: &str) {
        match judged(text) {
            Judged::Loads => {
                self.accepted += 1;
                valid_by_any(text).unwrap();
            }
            Judged::Misplaced => {}
            Judged::Refused => {
                self.refused += 1;
                self.seen += usize::from(valid(text, Types::Yaml12).is_err());
            }
        }
    }
}

#[test]
fn every_field_of_a_limit() {
    let mut count = Count::default();
    for form in &FORMS {
        for probed in ["name", "algorithm"].iter().chain(form.fields) {
            let others = form.fields.iter().copied();
            let others: Vec<&str> = others
                .filter(|name| name != probed && !["rates", "zone", "initial"].contains(name))
                .collect();
            for probe in PROBES {
                count.check(&with_limit(&format!(
                    "{}, {probed}: {probe}",
                    limit(form.name, others.clone())
                )));
                let without_rate = others.iter().copied().filter(|name| *name != "rate");
                count.check(&with_limit(&format!(
                    "{}, {probed}: {probe}",
                    limit(form.name, without_rate)
                )));
            }
        }
    }
    assert!(count.accepted > 300 && count.seen * 100 > count.refused * 95, "{count:?}");
}

/// A file with this key and value at a level, with the given siblings.
fn at(level: Level, beside: &str, key: Key, value: &str) -> String {
    let pair = format!("{}: {value}{beside}", key.name());
    match level {
        Level::Root => format!("{{ {pair} }}"),
        Level::Descriptor => format!("{{ domain: x, descriptors: [{{ {pair} }}] }}"),
        Level::RateLimit => {
            format!("{{ domain: x, descriptors: [{{ key: a, rate_limit: {{ {pair} }} }}] }}")
        }
        Level::Replaced => {
            let beside = format!(", replaces: [{{ {pair} }}]");
            at(Level::RateLimit, &beside, Key::Unit, "day")
        }
        Level::Listed => format!("{{ domain: x, deny: [{{ {pair} }}] }}"),
    }
}

/// The siblings that a key may have at its level.
fn beside(level: Level) -> &'static [&'static str] {
    match level {
        Level::Root => &["", ", domain: x", ", domain: x, allow: []"],
        Level::Descriptor => &[
            "",
            ", key: a",
            ", key: a, rate_limit: { unit: day }",
            ", key: a*, rate_limit: { unit: day, name: b }",
            ", key: a, limits: { algorithm: fixed_window, rate: 50/day }",
            ", key: a, value: b*, limits: { algorithm: fixed_window, rate: 50/day }",
            ", key: a, value: '', shared: yes, limits: { algorithm: fixed_window, rate: 50/day }",
            ", key: a, prefix: { v4: 8 }, descriptors: [{ key: b, rate_limit: { unit: day } }]",
            ", key: a, shadow_mode: true, rate_limit: { unit: day }",
        ],
        Level::RateLimit => {
            &["", ", unit: day", ", unlimited: true", ", unlimited: on, unit: x", ", unlimited: ~"]
        }
        Level::Replaced => &[""],
        Level::Listed => &["", ", key: a", ", key: a, value: b", ", key: a, cidr: 10.0.0.0/8"],
    }
}

#[test]
fn every_key_at_its_level() {
    let mut count = Count::default();
    for level in [Level::Root, Level::Descriptor, Level::RateLimit, Level::Replaced, Level::Listed]
    {
        for key in KEYS.iter().copied().filter(|key| key.belongs(level, Form::Native)) {
            for beside in beside(level) {
                // A duplicate key is a different problem.
                if beside.contains(&format!(", {}: ", key.name())) {
                    continue;
                }
                for probe in PROBES.iter().chain(&NESTED) {
                    count.check(&at(level, beside, key, probe));
                }
            }
        }
    }
    assert!(count.accepted > 2_000 && count.seen * 100 > count.refused * 90, "{count:?}");
}

/// Valid values of a descriptor's key, and some invalid ones.
fn values(key: Key) -> Vec<String> {
    let property = &crate::schema::keys::level(Level::Descriptor)["properties"][key.name()];
    let examples = property["examples"].as_array().unwrap().iter().map(ToString::to_string);
    examples.chain(["true", "~", "no"].map(str::to_owned)).collect()
}

#[test]
fn every_two_keys_of_a_descriptor() {
    let mut count = Count::default();
    let keys: Vec<(Key, Vec<String>)> = KEYS
        .iter()
        .filter(|key| key.belongs(Level::Descriptor, Form::Native) && **key != Key::Entry)
        .map(|key| (*key, values(*key)))
        .collect();
    let window = "{ algorithm: fixed_window, rate: 50/day }";
    let limits = ["", ", rate_limit: { unit: day }", &format!(", limits: {window}")];
    for (place, (one, ones)) in keys.iter().enumerate() {
        for (other, others) in keys.iter().skip(place + 1) {
            let limited = |key: &Key| matches!(key, Key::RateLimit | Key::Limits);
            let most = if limited(one) || limited(other) { 1 } else { limits.len() };
            for (limit, value) in
                limits.iter().take(most).flat_map(|l| ones.iter().map(move |v| (l, v)))
            {
                for second in others {
                    let beside = format!(", {}: {second}, key: x{limit}", other.name());
                    count.check(&at(Level::Descriptor, &beside, *one, value));
                }
            }
        }
    }
    assert!(count.accepted > 1_000 && count.seen * 100 > count.refused * 90, "{count:?}");
}
