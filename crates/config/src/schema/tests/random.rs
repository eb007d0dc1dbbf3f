//! Random files of both forms, valid as far as the generator can ensure: the schema accepts each
//! file that loads.
//!
//! A file is generated from a tape of bytes, each of which is a choice; past its end, the first and
//! simplest option is chosen. So proptest shrinks the file by cutting the tape.

use std::slice::Iter;

use proptest::prelude::*;

use super::{loads, valid_by_any};
use crate::limit::algorithms::{AlgorithmForm, FORMS};
use crate::rules::keys::{Form, KEYS};

struct Tape<'t>(Iter<'t, u8>);

impl Tape<'_> {
    fn below(&mut self, count: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or_default()) % count
    }

    fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    fn pick<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[self.below(words.len())]
    }

    /// Adds a key with one of the values, once in a while.
    fn maybe(&mut self, text: &mut String, key: &str, values: &[&str]) {
        if self.once_in(4) {
            *text += &format!(", {key}: {}", self.pick(values));
        }
    }
}

// === limits ===

const COUNTS: [&str; 5] = ["50", "1_000", "\"60\"", "'7_0'", "0100"];
const SPANS: [&str; 5] = ["5s", "200ms", "1 min", "\" 2  hours \"", "1_0us"];
const FLAGS: [&str; 5] = ["true", "yes", "~", "off", "False"];

fn values(field: &str) -> &'static [&'static str] {
    match field {
        "rate" => {
            &["10/s", "5 per 30s", "1_000/m", "\" 60 / 2 h\"", "7per5days", "0/µs", "9/months"]
        }
        "rates" => &["[10/m]", "[10/m, 2 per 3s]", "[5/s, '9/h', 0/s]"],
        "initial" => &["0", "1", "\"1\""],
        "refill" => &["greedy", "interval", "'aligned'"],
        "align" => &["clock", "first_hit"],
        "rounding" => &["floor", "\"up\""],
        "slices" => &["2", "\"6\"", "1_0", "60"],
        "count_denied" => &["true", "False", "\"TRUE\""],
        "cold_factor" => &["3", "2.5", "\"1.125\"", "100", "' 4 '"],
        "burst" | "queue" | "permits" | "max" => &COUNTS,
        _ => &SPANS,
    }
}

fn limit(tape: &mut Tape<'_>, form: &AlgorithmForm, index: usize) -> String {
    let mut text = format!("{{ algorithm: {}", form.name);
    tape.maybe(
        &mut text,
        "name",
        &[&format!("n{index}"), &format!("{index}"), &format!("{index}.5")],
    );
    // What depends on another field.
    let calendar = form.fields.contains(&"zone") && tape.once_in(3);
    if calendar {
        text += ", align: calendar";
        tape.maybe(&mut text, "zone", &["UTC", "Europe/Berlin"]);
    }
    let several = form.fields.contains(&"rates") && tape.once_in(2);
    let sliced = form.fields.contains(&"slices") && tape.once_in(2);
    for field in form.fields {
        match *field {
            "rounding" if sliced => {}
            "slices" if !sliced => {}
            "rate" if calendar => {
                let rate = tape.pick(&["10/day", "\"1_0 per week\"", "7/1month", "8/years"]);
                text += &format!(", rate: {rate}");
            }
            "rate" if several => text += &format!(", rates: {}", tape.pick(values("rates"))),
            "rate" | "permits" | "period" | "max" | "lease" | "warm_up" => {
                text += &format!(", {field}: {}", tape.pick(values(field)));
            }
            "rates" | "zone" => {}
            "align" if calendar => {}
            other => tape.maybe(&mut text, other, values(other)),
        }
    }
    text + " }"
}

/// The limits of a rule, and whether they fit every `consistency`.
fn limits(tape: &mut Tape<'_>) -> (String, bool) {
    if tape.once_in(3) {
        return ("{ algorithm: sliding_window, rate: 90/h }".to_owned(), true);
    }
    let count = 1 + tape.below(3);
    let list: Vec<String> = (0..count)
        .map(|index| {
            let form = &FORMS[tape.below(FORMS.len())];
            limit(tape, form, index)
        })
        .collect();
    match list.as_slice() {
        [one] if tape.once_in(2) => (one.clone(), false),
        _ => (format!("[{}]", list.join(", ")), false),
    }
}

fn rate_limit(tape: &mut Tape<'_>, named: bool) -> String {
    if tape.once_in(5) {
        let mut text = format!("{{ unlimited: {}", tape.pick(&["true", "yes", "On"]));
        tape.maybe(&mut text, "name", if named { &["all", "5"] } else { &["~", "''"] });
        return text + " }";
    }
    let unit = tape.pick(&["minute", "SECOND", "'Hour'", "dAy", "week", "month", "mınute", "year"]);
    let mut text = format!("{{ unit: {unit}");
    let requests = tape.pick(&["100", "1_000", "0x64", "010", "0b11", "4294967295", "+7", "0"]);
    if !tape.once_in(8) {
        text += &format!(", requests_per_unit: {requests}");
    }
    tape.maybe(&mut text, "unlimited", &["false", "~", "no"]);
    tape.maybe(&mut text, "name", if named { &["all", "5"] } else { &["~", "''"] });
    text + " }"
}

// === descriptors ===

/// A key that no other descriptor of its level has.
fn key(tape: &mut Tape<'_>, index: usize, form: Form) -> String {
    match (tape.below(6), form) {
        (3, _) => format!("{}", index + 10),
        (4, _) => format!("\"a {index}\""),
        (5, Form::Native) => format!("{index}.5"),
        (5, Form::Envoy) => format!("k{index}*"),
        _ => format!("k{index}"),
    }
}

fn envoy(tape: &mut Tape<'_>, index: usize, depth: usize) -> String {
    let mut text = format!("{{ key: {}", key(tape, index, Form::Envoy));
    let glob = tape.once_in(3);
    if glob {
        text += &format!(", value: '/x{index}/*'");
        tape.maybe(&mut text, "share_threshold", &FLAGS);
    } else {
        tape.maybe(&mut text, "value", &["a", "5", "yes", "~", "''", "-0x1"]);
    }
    if !tape.once_in(5) {
        text += &format!(", rate_limit: {}", rate_limit(tape, true));
    }
    for flag in ["shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"] {
        tape.maybe(&mut text, flag, &FLAGS);
    }
    tape.maybe(&mut text, "metadata", &["{ tier: gold }", "~", "{ 5: [1.5, { a: ~ }], b: yes }"]);
    below(tape, &mut text, depth, envoy);
    text + " }"
}

fn native(tape: &mut Tape<'_>, index: usize, depth: usize) -> String {
    let mut text = format!("{{ key: {}", key(tape, index, Form::Native));
    let (pattern, exact) = match tape.below(7) {
        1 => (format!(", value: v{index}"), true),
        2 => (", value: 1.50".to_owned(), true),
        3 => (format!(", value: '/x{index}/*'"), false),
        4 => (", regex: '^/v[0-9]+/'".to_owned(), false),
        5 => (", cidr: 10.0.0.0/8, value: ~".to_owned(), false),
        6 => (", cidr: [fd00::/8, 10.1.2.3, '::ffff:1.2.3.0/120']".to_owned(), false),
        _ => (String::new(), false),
    };
    text += &pattern;
    if pattern.contains('*') && tape.once_in(3) {
        text += ", share_threshold: on";
    } else if !exact && tape.once_in(3) {
        let prefix = "prefix: { v4: 24, v6: '/64' }";
        text += ", ";
        text += tape.pick(&["shared: true", "shared: yes", prefix, "prefix: { v6: 0 }"]);
    }
    let id = tape.once_in(3);
    if id {
        text +=
            &format!(", id: {}{depth}{index}", tape.pick(&["r", "", "'x y'"]).trim_matches('\''));
    }
    let (limits, fits) = limits(tape);
    if tape.once_in(6) && (fits || index > 0) {
        return text + &format!(", limits: {limits}, schedule: {} }}", schedule(tape));
    }
    if tape.once_in(4) {
        text += &format!(", rate_limit: {}", rate_limit(tape, !id));
    } else {
        text += &format!(", limits: {limits}");
        if fits {
            let eventual = "{ eventual: { sync_interval: 50ms } }";
            let hot = "{ strict: { hot_keys: leased } }";
            let all = [
                "strict",
                "leased",
                "eventual",
                eventual,
                "{ eventual: ~ }",
                "{ strict: {} }",
                hot,
            ];
            tape.maybe(&mut text, "consistency", &all);
            let elastic = "{ elastic: { up_to: 1.5, below: 70%, above: '85 %' } }";
            let modes =
                ["{ soft: 10% }", elastic, "{ elastic: { up_to: 2 x, below: 0%, above: 0% } }"];
            tape.maybe(&mut text, "mode", &modes);
            tape.maybe(&mut text, "on_limit", &["deny", "shape", "queue"]);
        } else {
            tape.maybe(&mut text, "mode", &["hard", "shadow"]);
            tape.maybe(&mut text, "on_limit", &["deny"]);
            let pool = "[{ name: credits, limits: { algorithm: fixed_window, rate: 5/h } }]";
            tape.maybe(&mut text, "pools", &[pool]);
            tape.maybe(&mut text, "notify", &["80%", "[50 %, '100%']"]);
        }
    }
    tape.maybe(&mut text, "on_store_failure", &["local", "allow", "deny", "error"]);
    tape.maybe(&mut text, "overflow", &["shared", "deny", "'allow'"]);
    tape.maybe(&mut text, "cost", &["1", "01", "\"1\""]);
    tape.maybe(&mut text, "priority", &["0", "9", "\"5\""]);
    tape.maybe(&mut text, "on_exhausted", &["debt", "end"]);
    tape.maybe(&mut text, "replaces", &["[first]", "[]"]);
    tape.maybe(&mut text, "quota_mode", &FLAGS);
    below(tape, &mut text, depth, native);
    text + " }"
}

/// The descriptors below one.
fn below(
    tape: &mut Tape<'_>,
    text: &mut String,
    depth: usize,
    one: fn(&mut Tape<'_>, usize, usize) -> String,
) {
    if depth >= 3 || !tape.once_in(4) {
        return;
    }
    let count = tape.below(3);
    let list: Vec<String> = (0..count).map(|index| one(tape, index, depth + 1)).collect();
    *text += &match list.as_slice() {
        [] => ", descriptors: ~".to_owned(),
        list => format!(", descriptors: [{}]", list.join(", ")),
    };
}

fn forward_auth(tape: &mut Tape<'_>) -> String {
    let part = |tape: &mut Tape<'_>| {
        let parts = [
            "client_ip",
            "header X-User",
            "' cookie  a '",
            "query key or none",
            "text 5 or so",
            "path",
            "\"uri or a\\u00a0b\"",
        ];
        tape.pick(&parts).to_owned()
    };
    let descriptors: Vec<String> = (0..=tape.below(3))
        .map(|_| format!("{{ first: {}, 5: {} }}", part(tape), part(tape)))
        .collect();
    let mut text = format!("{{ descriptors: [{}]", descriptors.join(", "));
    tape.maybe(&mut text, "trusted_proxies", &["10.0.0.0/8", "['::1', fd00::/8, 127.0.0.1]"]);
    tape.maybe(&mut text, "hits", &["header X-Cost", "text 5", "query n or 7"]);
    tape.maybe(&mut text, "deny_status", &["403", "\"429\"", "5_03"]);
    text + " }"
}

/// A file of either form.
fn file(bytes: &[u8]) -> String {
    let tape = &mut Tape(bytes.iter());
    let mut text = format!("domain: {}\n", tape.pick(&["shop", "5", "\"a b\"", "true"]));
    let form = if tape.once_in(2) { Form::Envoy } else { Form::Native };
    if tape.once_in(50) {
        return text + &format!("removed: {}\n", tape.pick(&["true", "yes", "On"]));
    }
    if form == Form::Native {
        for list in ["allow", "deny"] {
            let entries = [
                "[]",
                "[{ key: a, value: b }]",
                "[{ key: 5, cidr: 10.0.0.0/8 }, { key: b, regex: 5 }, { key: c, value: ~ }]",
            ];
            if tape.once_in(3) {
                text += &format!("{list}: {}\n", tape.pick(&entries));
            }
        }
    }
    if form == Form::Native && tape.once_in(3) {
        text += &format!("forward_auth: {}\n", forward_auth(tape));
    }
    if tape.once_in(3) {
        text += &format!("overrides: {}\n", overrides(tape));
    }
    let is_planned = form == Form::Native && tape.once_in(3);
    if is_planned {
        text += "plans: [free, 5]\n";
    }
    text += "descriptors:\n";
    if is_planned {
        text += "- { key: plan, limits: { by: plan, plans: { free: unlimited, 5: { algorithm: \
                 token_bucket, rate: 5/s } }, others: deny } }\n";
    }
    if form == Form::Native {
        text += "- { key: first, id: first, limits: { algorithm: unlimited } }\n";
    }
    for index in 0..=tape.below(3) {
        let descriptor = match form {
            Form::Envoy => envoy(tape, index, 0),
            Form::Native => native(tape, index, 0),
        };
        text += &format!("- {descriptor}\n");
    }
    text
}

fn overrides(tape: &mut Tape<'_>) -> String {
    let change = tape.pick(&["block: true", "unlimited: \"true\""]);
    let value = tape.pick(&["5", "a*", "{ cidr: [10.0.0.0/8] }", "{ regex: ^a }"]);
    let note = tape.pick(&["5", "ticket", "\"a: b\""]);
    let until = "2026-12-01T00:00:00Z";
    let one = format!("{{ match: {{ user: {value} }}, {change}, until: {until}, note: {note} }}");
    tape.pick(&["~", "[]", &format!("[{one}]")]).to_owned()
}

fn schedule(tape: &mut Tape<'_>) -> String {
    let mut text = tape
        .pick(&[
            "limits: deny",
            "limits: unlimited",
            "limits: { algorithm: sliding_window, rate: 9/h }",
        ])
        .to_owned();
    text += tape.pick(&[", days: mon-fri", ", days: \"sat, sunday\"", ", from: 9, until: 18:30"]);
    tape.maybe(&mut text, "zone", &["UTC", "Europe/Berlin"]);
    format!("[{{ {text} }}]")
}

fn tape() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

#[test]
fn random_files_load_and_say_everything() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let files: Vec<String> =
        (0..1_000).map(|_| file(&tape().new_tree(&mut runner).unwrap().current())).collect();
    let loaded: Vec<&String> = files.iter().filter(|text| loads(text)).collect();
    assert!(loaded.len() > 600, "{}", loaded.len());
    let algorithms = FORMS.iter().map(|form| format!("algorithm: {}", form.name));
    let fields = FORMS.iter().flat_map(|form| form.fields).map(|name| format!(", {name}: "));
    let keys = KEYS.iter().map(|key| format!("{}: ", key.name()));
    for word in algorithms.chain(fields).chain(keys) {
        assert!(loaded.iter().any(|text| text.contains(&word)), "none has `{word}`");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_loads_is_valid(tape in tape()) {
        let text = file(&tape);
        if loads(&text) {
            valid_by_any(&text).map_err(TestCaseError::fail)?;
        }
    }
}
