//! The native form: every setting, and conflicts between them.

use super::*;
use sluicegate_core::mode::Mode;
use sluicegate_core::time::Span;
use sluicegate_rules::domain::{Counter, Joint};
use sluicegate_rules::network::Prefix;
use sluicegate_rules::rule::{
    Consistency, Limits, OnLimit, OnStoreFailure, Overflow, SYNC_INTERVAL,
};

const BUCKET: &str = "limits: { algorithm: token_bucket, rate: 10/s, burst: 50 }";
const WINDOW: &str = "limits: [{ name: daily, algorithm: fixed_window, rate: 10/day }]";

fn set(fields: &str) -> RuleConfig {
    rule(&format!("key: k, {BUCKET}, {fields}"))
}

#[test]
fn the_example_of_the_design() {
    let text = "domain: shop\ndescriptors:\n  - key: user_id\n    limits:\n      - { name: burst, \
                algorithm: token_bucket, rate: 10/s, burst: 50 }\n      - { name: daily, algorithm: \
                fixed_window, rate: 10000/day, align: calendar, zone: Europe/Berlin }\n    \
                consistency: leased\n    on_store_failure: local\n  - key: remote_address\n    \
                prefix: { v4: 32, v6: 64 }\n    rate_limit: { unit: minute, requests_per_unit: 600 \
                }\n    mode: { soft: 10% }\n  - key: path\n    value: /login*\n    limits:\n      - { \
                algorithm: sliding_log, rate: 5/m, count_denied: true, min_gap: 200ms }\n";
    let shop = domain(text);
    assert_eq!(shop.joint, Joint::Apart);
    let warnings = warned(text);
    assert!(matches!(&warnings[..], [one] if one.contains("on_store_failure")), "{warnings:?}");
    let [users, addresses, _] = &shop.descriptors[..] else { panic!() };
    let rule = users.rule.as_ref().unwrap();
    assert!(matches!(&rule.limits, Limits::Native(limits) if limits.len() == 2));
    assert_eq!(rule.consistency, Consistency::Leased);
    assert_eq!(addresses.counter, Counter::PerNetwork(Prefix { v4: 32, v6: 64 }));
    let rule = addresses.rule.as_ref().unwrap();
    assert_eq!(rule.mode, Mode::Soft { percent: 10 });
    assert_eq!(rule.on_store_failure, OnStoreFailure::Error, "as Envoy's, unless told");
}

#[test]
fn every_setting_is_read() {
    let plain = rule(&format!("key: k, {BUCKET}"));
    assert_eq!(plain.on_store_failure, OnStoreFailure::Local);
    assert_eq!((plain.cost, plain.mode, plain.name), (1, Mode::Hard, None));

    assert_eq!(set("mode: shadow").mode, Mode::Shadow);
    assert_eq!(set("shadow_mode: true").mode, Mode::Shadow);
    assert_eq!(set("consistency: strict").consistency, Consistency::Strict);
    assert_eq!(set("consistency: leased").consistency, Consistency::Leased);
    let hot = "consistency: { strict: { hot_keys: leased } }";
    assert_eq!(set(hot).consistency, Consistency::StrictUntilHot);
    for unsaid in ["{ strict: }", "{ strict: {} }", "{ strict: { hot_keys: strict } }"] {
        assert_eq!(set(&format!("consistency: {unsaid}")).consistency, Consistency::Strict);
    }
    for (consistency, sync_interval) in [
        ("eventual", SYNC_INTERVAL),
        ("{ eventual: }", SYNC_INTERVAL),
        ("{ eventual: {} }", SYNC_INTERVAL),
        ("{ eventual: { sync_interval: 50ms } }", Span::from_millis(50)),
    ] {
        let rule = rule(&format!("key: k, {WINDOW}, consistency: {consistency}"));
        assert_eq!(rule.consistency, Consistency::Eventual { sync_interval });
    }
    for (word, expected) in [
        ("local", OnStoreFailure::Local),
        ("allow", OnStoreFailure::Allow),
        ("deny", OnStoreFailure::Deny),
        ("error", OnStoreFailure::Error),
    ] {
        assert_eq!(set(&format!("on_store_failure: {word}")).on_store_failure, expected);
    }
    for (word, expected) in
        [("deny", OnLimit::Deny), ("shape", OnLimit::Shape), ("queue", OnLimit::Queue)]
    {
        assert_eq!(set(&format!("on_limit: {word}")).on_limit, expected);
    }
    for (word, expected) in
        [("shared", Overflow::Shared), ("deny", Overflow::Deny), ("allow", Overflow::Allow)]
    {
        assert_eq!(set(&format!("overflow: {word}")).overflow, expected);
    }
    assert_eq!(set("cost: 50").cost, 50);
    assert_eq!(set("id: login").name.as_deref(), Some("login"));
    assert!(set("quota_mode: true").quota_mode && set("detailed_metric: yes").detailed_metric);
    assert!(set("metadata: { tier: gold }").metadata().is_some());
}

#[test]
fn patterns_are_read() {
    let matched = |fields: &str| node(&format!("key: k, {fields}, {BUCKET}"));
    assert!(matches!(matched("value: 1.50").value, Pattern::Text(text) if text == "1.50"));
    assert!(
        matches!(matched("regex: '^/v[0-9]+/'").value, Pattern::Regex(regex) if regex.is_match("/v2/x"))
    );
    assert!(matches!(matched("cidr: 10.0.0.0/8").value, Pattern::Networks(all) if all.len() == 1));
    assert!(
        matches!(matched("cidr: [10.0.0.0/8, '::1']").value, Pattern::Networks(all) if all.len() == 2)
    );
    for shared in ["shared: true", "value: 'a*', shared: true", "regex: a, shared: true"] {
        assert_eq!(matched(shared).counter, Counter::Shared);
    }
    assert_eq!(matched("shared: false").counter, Counter::PerValue);
    let prefix = |v4, v6| Counter::PerNetwork(Prefix { v4, v6 });
    assert_eq!(matched("prefix: { v4: 24 }").counter, prefix(24, 128));
    assert_eq!(matched("prefix: { v6: 64 }").counter, prefix(32, 64));
    assert_eq!(matched("cidr: 10.0.0.0/8, prefix: { v4: /24 }").counter, prefix(24, 128));
}

#[test]
fn mistakes_in_settings_are_told() {
    let table = [
        ("cost: 0", "cost: must be at least `1`, got `0`"),
        ("cost: -1", "cost: must be a whole number, got `-1`"),
        ("cost: [1]", "cost: must be one value, got a list; write it like `cost: 5`"),
        ("id: ''", "id: must not be empty"),
        (
            "consistency: lesed",
            "consistency: unknown consistency, got `lesed`; did you mean `leased`?",
        ),
        ("consistency: ", "consistency: unknown consistency, got nothing"),
        ("consistency: { leased: 1 }", "consistency.leased: takes no value, got one"),
        (
            "consistency: { strict: { hot_keys: hot } }",
            "consistency.strict.hot_keys: must be `leased` or `strict`, got `hot`",
        ),
        (
            "consistency: { strict: { hot: leased } }",
            "consistency.strict.hot: unknown field, got `hot`",
        ),
        ("consistency: { strict: leased }", "consistency.strict: `strict` must be"),
        (
            "consistency: { evntual: {} }",
            "consistency.evntual: unknown consistency, got `evntual`; did you mean `eventual`?",
        ),
        (
            "consistency: { eventual: { sync: 5ms } }",
            "consistency.eventual.sync: unknown field, got `sync`",
        ),
        (
            "consistency: { eventual: { sync_interval: 1h } }",
            "consistency.eventual.sync_interval: must last from `1ms` to `1m`, got `1h`",
        ),
        (
            "on_store_failure: lokal",
            "on_store_failure: must be `local`, `allow`, `deny` or `error`, got `lokal`; did you mean `local`?",
        ),
        ("on_limit: wait", "on_limit: must be `deny`, `shape` or `queue`, got `wait`"),
        ("overflow: drop", "overflow: must be `shared`, `deny` or `allow`, got `drop`"),
        ("mode: sotf", "mode: unknown mode, got `sotf`; did you mean `soft`?"),
        ("replaces: x", "replaces: must be a list of ids, got `x`"),
        ("replaces: [{ name: x }]", "replaces[0]: must be one value, got a mapping"),
        ("shared: maybe", "shared: error loading config file: must be `true` or `false`"),
        ("prefix: 24", "prefix: `prefix` must be a mapping, got `24`"),
        ("prefix: {}", "prefix: must have `v4` or `v6`, got neither"),
        ("prefix: { v4: 33 }", "prefix.v4: must be from `0` to `32` bits, got `33`"),
        ("prefix: { v5: 3 }", "prefix.v5: unknown field, got `v5`; did you mean `v4`?"),
        (
            "regex: 'a('",
            "regex: invalid regular expression, unclosed group at character 2, got `a(`",
        ),
        ("regex: ", "regex: must be one value, got nothing"),
        (
            "cidr: 10.1.0.0/8",
            "cidr: has bits set behind its prefix, got `10.1.0.0/8`; write `10.0.0.0/8`",
        ),
        ("cidr: 10.0.0.0/33", "cidr: the number behind the `/` must be from `0` to `32`"),
        ("cidr: []", "cidr: must hold at least one network"),
        (
            "cidr: [10.0.0.0/8, ten]",
            "cidr[1]: is neither an IP address nor a network, got `ten`; write an address such as `192.0.2.7`",
        ),
        ("zzzz: 1", "zzzz: config error, unknown key 'zzzz'"),
        ("limts: []", "limts: config error, unknown key 'limts'; did you mean `limits`?"),
        ("unit: day", "unit: has no effect here, `unit` belongs to `rate_limit`"),
        ("allow: []", "allow: has no effect here, `allow` belongs to the top of the file"),
        ("cost: 1, cost: 2", "cost: is given twice, first on line 3; remove one"),
    ];
    for (fields, begins) in table {
        let message = wrong(&format!("key: k, {BUCKET}, {fields}"));
        assert!(message.starts_with(begins), "{fields}: {message}");
    }
    assert!(
        wrong(&format!("key: 'k*', {BUCKET}")).starts_with("key: must not contain `*`, got `k*`")
    );
}

#[test]
fn what_excludes_each_other_is_told() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 5 }";
    let table = [
        (format!("{limit}, {BUCKET}"), "limits: stands beside `rate_limit`, got both"),
        (format!("{BUCKET}, mode: hard, shadow_mode: true"), "mode: stands beside `shadow_mode`"),
        (format!("{BUCKET}, value: x, regex: x"), "regex: stands beside another of `value`"),
        (format!("{BUCKET}, cidr: 10.0.0.0/8, regex: x"), "cidr: stands beside another of `value`"),
        (format!("{BUCKET}, shared: true, prefix: {{ v4: 8 }}"), "prefix: stands beside `shared`"),
        (
            format!("{BUCKET}, value: x, shared: true"),
            "shared: has no effect where `value` is one text",
        ),
        (format!("{BUCKET}, value: x, prefix: {{ v4: 8 }}"), "prefix: has no effect where `value`"),
        (
            format!("{BUCKET}, value: 'x*', shared: true, share_threshold: true"),
            "share_threshold: stands beside `shared` or `prefix`",
        ),
        (
            "rate_limit: { unit: day, requests_per_unit: 5, name: a }, id: b".to_owned(),
            "id: stands beside `rate_limit.name`",
        ),
        (
            "cost: 1, rate_limit: { unit: day, requests_per_unit: 5, replaces: [{ name: a }] }, \
             replaces: [b]"
                .to_owned(),
            "replaces: stands beside `rate_limit.replaces`",
        ),
    ];
    for (fields, begins) in table {
        let message = wrong(&format!("key: k, {fields}"));
        assert!(message.starts_with(begins), "{fields}: {message}");
    }
}

#[test]
fn settings_need_limits() {
    let all = [
        "mode: hard",
        "shadow_mode: false",
        "consistency: strict",
        "on_store_failure: deny",
        "on_limit: deny",
        "overflow: deny",
        "cost: 1",
        "id: x",
        "replaces: []",
        "quota_mode: true",
        "detailed_metric: true",
        "metadata: {}",
    ];
    for setting in all {
        // A native key, so that the file is in the native form.
        let text = format!(
            "domain: d\nallow: []\ndescriptors:\n- {{ key: k, {setting}, descriptors: [{{ key: c, \
             {BUCKET} }}] }}\n"
        );
        let told = told(&text);
        assert_eq!(told.len(), 1, "{setting}: {told:?}");
        assert!(told[0].contains("has no effect without `limits` or `rate_limit`"), "{told:?}");
        let key = setting.split(':').next().unwrap();
        let is_of_envoy =
            ["shadow_mode", "quota_mode", "detailed_metric", "metadata"].contains(&key);
        let reason = "`allow` on line 2 makes this file native";
        assert_eq!(told[0].contains(reason), is_of_envoy, "{told:?}");
    }
    for setting in ["shared: true", "prefix: { v4: 24 }"] {
        assert!(
            told(&one(&format!("key: k, {setting}, descriptors: [{{ key: c, {BUCKET} }}]")))
                .is_empty()
        );
        let message = wrong(&format!("key: k, {setting}"));
        assert!(message.contains("has no effect without a limit here or below"), "{message}");
    }
}

#[test]
fn settings_must_fit_the_limits() {
    let limit = |algorithm: &str| format!("limits: {{ algorithm: {algorithm} }}");
    let rate_limit = || "rate_limit: { unit: day, requests_per_unit: 5 }".to_owned();
    let table = [
        (
            limit("sliding_log, rate: 5/s"),
            "consistency: leased",
            "`leased` needs a greedy `token_bucket`, a `fixed_window` or a `sliding_window`, got `sliding_log`",
        ),
        (
            limit("token_bucket, rate: 5/s, refill: interval"),
            "consistency: leased",
            "`leased` needs a greedy `token_bucket`",
        ),
        (limit("concurrency, max: 5, lease: 1s"), "consistency: leased", "`leased` needs"),
        (limit("unlimited"), "consistency: leased", "`leased` needs"),
        (rate_limit(), "consistency: leased", "`leased` needs"),
        (
            limit("sliding_log, rate: 5/s"),
            "consistency: { strict: { hot_keys: leased } }",
            "`hot_keys` needs a greedy `token_bucket`",
        ),
        (
            limit("token_bucket, rate: 5/s"),
            "consistency: eventual",
            "`eventual` needs a `fixed_window` aligned to the clock or the calendar",
        ),
        (
            limit("fixed_window, rate: 5/s, align: first_hit"),
            "consistency: eventual",
            "`eventual` needs",
        ),
        (
            limit("sliding_log, rate: 5/s, count_denied: true"),
            "on_limit: shape",
            "`shape` has no meaning for `sliding_log`",
        ),
        (limit("unlimited"), "on_limit: shape", "`shape` has no meaning for `unlimited`"),
        (limit("tally, rate: 5/m"), "on_limit: shape", "`shape` has no meaning for `tally`"),
        (limit("unlimited"), "on_limit: queue", "`queue` has no meaning for `unlimited`"),
        (rate_limit(), "on_limit: shape", "`shape` has no meaning for `rate_limit`"),
        (
            limit("token_bucket, rate: 5/s"),
            "on_limit: shape, mode: shadow",
            "`shape` has no meaning in the mode `shadow`",
        ),
        (
            limit("smooth_bursty, rate: 5/s"),
            "mode: { soft: 10% }",
            "mode `soft` has no meaning for `smooth_bursty`",
        ),
        (
            rate_limit(),
            "mode: { elastic: { up_to: 2x, below: 70%, above: 85% } }",
            "mode `elastic` has no meaning for `rate_limit`",
        ),
        (
            limit("token_bucket, rate: 5/s"),
            "cost: 6",
            "`token_bucket` can never admit a hit, since it holds at most `5`, got `6`",
        ),
        (
            rate_limit(),
            "cost: 6",
            "`rate_limit` can never admit a hit, since it holds at most `5`, got `6`",
        ),
        (limit("concurrency, max: 5, lease: 1s"), "cost: 6", "`concurrency` can never admit"),
    ];
    for (limits, setting, expected) in table {
        let message = wrong(&format!("key: k, {limits}, {setting}"));
        let (key, message) = message.split_once(": ").unwrap();
        assert!(setting.contains(key), "{setting}: told of {key}");
        assert!(message.starts_with(expected), "{setting}: {message}");
    }
    let fits = [
        (limit("token_bucket, rate: 5/s"), "consistency: leased"),
        (limit("sliding_window, rate: 5/s"), "consistency: leased"),
        (limit("fixed_window, rate: 5/day, align: calendar"), "consistency: eventual"),
        (limit("sliding_window, rate: 5/s"), "consistency: eventual"),
        (limit("token_bucket, rate: 5/s"), "consistency: { strict: { hot_keys: leased } }"),
        (limit("concurrency, max: 5, lease: 1s"), "on_limit: queue"),
        (limit("concurrency, max: 5, lease: 1s"), "on_limit: shape"),
        (limit("leaky_bucket, rate: 5/s, queue: 3"), "on_limit: shape"),
        (rate_limit(), "mode: { soft: 50% }, cost: 7"),
        (limit("smooth_bursty, rate: 5/s"), "cost: 100"),
        (limit("warm_up, rate: 5/s, warm_up: 1m"), "cost: 100"),
        (limit("token_bucket, rate: 0/s"), "cost: 100"),
        (limit("unlimited"), "cost: 100"),
    ];
    for (limits, setting) in fits {
        let told = told(&one(&format!("key: k, {limits}, {setting}")));
        assert!(told.is_empty(), "{setting}: {told:?}");
    }
}

#[test]
fn lists_are_read() {
    let text = "domain: d\nallow:\n- { key: user_id }\n- { key: a, cidr: [10.0.0.0/8, '::1'] }\ndeny:\n- \
                { key: b, regex: ^x }\n- { key: b, value: y* }\n";
    let lists = domain(text);
    assert!(matches!(lists.allow[0].value, Pattern::Any) && lists.allow[0].key == "user_id");
    assert!(matches!(&lists.allow[1].value, Pattern::Networks(all) if all.len() == 2));
    assert!(matches!(lists.deny[0].value, Pattern::Regex(_)) && lists.deny[1].value.is_glob());
    for (list, message) in [
        ("x", "allow: must be a list, got `x`"),
        ("[x]", "allow[0]: must be a mapping, got `x`"),
        ("[{ value: x }]", "allow[0]: descriptor has empty key"),
        ("[{ key: k, value: x, cidr: 10.0.0.0/8 }]", "allow[0].cidr: stands beside another"),
        (
            "[{ key: k, limits: x }]",
            "allow[0].limits: has no effect here, `limits` belongs to a descriptor",
        ),
        (
            "[{ kye: k }, { key: k }]",
            "allow[0].kye: config error, unknown key 'kye'; did you mean `key`?",
        ),
    ] {
        let told = told(&format!("domain: d\nallow: {list}\n"));
        assert!(told.iter().any(|told| told.contains(message)), "{list}: {told:?}");
    }
}

#[test]
fn descriptors_are_told_apart_by_key_and_by_value() {
    let two = |first: &str, second: &str| {
        format!("domain: d\nallow: []\ndescriptors:\n- {{ {first} }}\n- {{ {second} }}\n")
    };
    assert!(told(&two("key: a, value: b_c", "key: a_b, value: c")).is_empty());
    assert!(told(&two("key: k, value: a", "key: k, regex: a")).is_empty());
    assert!(told(&two("key: k, cidr: 10.0.0.0/8", "key: k, cidr: 10.1.0.0/16")).is_empty());
    for (first, second, message) in [
        ("key: k", "key: k", "duplicate descriptor composite key 'd.k'"),
        ("key: k, value: a", "key: k, value: a", "duplicate descriptor composite key 'd.k_a'"),
        ("key: k, regex: a", "key: k, regex: a", "duplicate descriptor composite key 'd.k_a'"),
        (
            "key: k, cidr: 10.0.0.0/8",
            "key: k, cidr: ['::1', 10.0.0.0/8]",
            "the network `10.0.0.0/8` is matched twice, first on line 4",
        ),
    ] {
        let told = told(&two(first, second));
        assert!(told.len() == 1 && told[0].contains(message), "{told:?}");
    }
    let twice = told(&one("key: k, cidr: [10.0.0.0/8, 10.0.0.0/8]"));
    assert!(twice[0].contains("is matched twice"), "{twice:?}");
}

#[test]
fn what_is_written_counts_more_than_what_a_template_says() {
    let text = format!(
        "domain: d\ndescriptors:\n- &b {{ key: k, value: a, {BUCKET}, cost: 2 }}\n- {{ cost: 3, value: b, \
         <<: *b }}\n"
    );
    let domain = domain(&text);
    let node = &domain.descriptors[1];
    assert!(matches!(&node.value, Pattern::Text(value) if value == "b"));
    assert_eq!(node.rule.as_ref().unwrap().cost, 3);
    // A problem of a template is reported once.
    let wrong = told(&text.replace("cost: 2", "overflow: x"));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| {
        let open = "{ key: k, descriptors: [".repeat(depth - 1);
        format!("domain: d\ndescriptors: [{open}{{ key: k, {BUCKET} }}{}]", "] }".repeat(depth - 1))
    };
    assert!(told(&nested(DEPTH_MAX)).is_empty());
    let told = told(&nested(DEPTH_MAX + 1));
    assert!(told[0].contains("descriptors are nested more than 16 deep"), "{told:?}");
}

#[test]
fn a_second_document_is_an_error() {
    let told = told(&format!("{}---\n", one(&format!("key: k, {BUCKET}"))));
    assert!(told[0].contains("a second document begins here"), "{told:?}");
}
