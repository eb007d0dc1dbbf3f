//! Files that envoyproxy/ratelimit accepts or rejects, and its messages.
//!
//! The cases record the results of the original (commit 3fb7025); globs with a `*` anywhere and
//! `metadata` follow its later documentation.

use super::*;
use sluicegate_core::mode::Mode;
use sluicegate_rules::domain::{Counter, Joint};
use sluicegate_rules::rule::Metadata;
use sluicegate_rules::rule::{Limits, OnStoreFailure};
use sluicegate_rules::unit::Unit;

const LIMIT: &str = "rate_limit: { unit: minute, requests_per_unit: 5 }";

fn limits(rate_limit: &str) -> Limits {
    rule(&format!("key: k, rate_limit: {{ {rate_limit} }}")).limits
}

fn five_per(unit: Unit) -> Limits {
    Limits::Envoy { requests_per_unit: 5, unit }
}

#[test]
fn a_whole_file() {
    let text = "domain: shop\ndescriptors:\n  - key: user_id\n    value: vip\n    rate_limit:\n      \
                unlimited: true\n      name: vip\n  - key: user_id\n    rate_limit: { unit: HOUR, \
                requests_per_unit: 10, replaces: [{ name: vip }] }\n    shadow_mode: true\n    \
                descriptors:\n      - key: path\n        value: /login*\n        share_threshold: \
                true\n        value_to_metric: yes\n        quota_mode: on\n        \
                detailed_metric: true\n        rate_limit: { unit: day, requests_per_unit: 3 }\n";
    let shop = domain(text);
    assert_eq!((&*shop.name, shop.joint), ("shop", Joint::Joined));
    let [vip, users] = &shop.descriptors[..] else { panic!() };
    assert!(matches!(&vip.value, Pattern::Text(value) if value == "vip"));
    let rule = vip.rule.as_ref().unwrap();
    assert_eq!((&rule.limits, rule.name.as_deref()), (&Limits::Unlimited, Some("vip")));
    assert!(matches!(users.value, Pattern::Any));
    let rule = users.rule.as_ref().unwrap();
    assert_eq!(rule.limits, Limits::Envoy { requests_per_unit: 10, unit: Unit::Hour });
    assert_eq!((rule.mode, rule.on_store_failure), (Mode::Shadow, OnStoreFailure::Error));
    assert_eq!(rule.replaces(), ["vip".into()]);
    let login = &users.descriptors[0];
    assert!(login.value.is_glob() && login.value_to_metric && login.counter == Counter::Shared);
    let rule = login.rule.as_ref().unwrap();
    assert!(rule.quota_mode && rule.detailed_metric && rule.name.is_none());
}

#[test]
fn a_value_may_be_left_out() {
    for value in ["", ", value: \"\"", ", value: ~", ", value: null", ", value: "] {
        let node = node(&format!("key: k{value}, {LIMIT}"));
        assert!(matches!(node.value, Pattern::Any), "{value}");
    }
    for (value, text) in [
        ("'null'", "null"),
        ("5", "5"),
        ("010", "010"),
        ("0xFF", "0xFF"),
        ("1_000", "1_000"),
        ("yes", "yes"),
        ("TRUE", "TRUE"),
        ("'1.5'", "1.5"),
        ("2020-01-01", "2020-01-01"),
        ("10.0.0.1", "10.0.0.1"),
        ("'1:30'", "1:30"),
        ("inf", "inf"),
        ("123e456", "123e456"),
    ] {
        let node = node(&format!("key: k, value: {value}, {LIMIT}"));
        assert!(matches!(&node.value, Pattern::Text(value) if value == text), "{value}");
    }
}

#[test]
fn numbers_that_are_no_whole_ones_are_refused_everywhere() {
    let ours = "this is a number with a fraction or beyond 64 bits";
    for value in
        ["1.5", "1.10", "12e4", "1e3", ".5", "5.", ".inf", ".nan", "089", "9223372036854775808"]
    {
        let message = wrong(&format!("key: k, value: {value}, {LIMIT}"));
        let expected = format!(
            "value: error checking config, {ours}, got `{value}`; put it in quotes to mean the text, \
             like `'{value}'`"
        );
        assert_eq!(message, expected);
        assert!(told(&format!("domain: {value}"))[0].contains("error checking config"));
        // Also where they have no meaning.
        let message = wrong(&format!("key: k, {LIMIT}, unit: {value}"));
        assert!(message.starts_with("unit: error checking config"), "{message}");
    }
}

#[test]
fn units_are_read_in_any_case() {
    for unit in Unit::ALL {
        let name = unit.name();
        assert_eq!(limits(&format!("unit: {name}, requests_per_unit: 5")), five_per(unit));
        let upper = name.to_uppercase();
        assert_eq!(limits(&format!("unit: {upper}, requests_per_unit: 5")), five_per(unit));
    }
    assert_eq!(limits("unit: mınute, requests_per_unit: 5"), five_per(Unit::Minute));
    let all = "use `second`, `minute`, `hour`, `day`, `week`, `month` or `year`";
    for (unit, hint) in [
        ("foo", ""),
        ("unknown", ""),
        ("minutes", "did you mean `minute`? "),
        ("min", "did you mean `minute`? "),
        ("' minute '", "did you mean `minute`? "),
        ("1", ""),
        ("true", ""),
    ] {
        let message =
            wrong(&format!("key: k, rate_limit: {{ unit: {unit}, requests_per_unit: 5 }}"));
        let unit = unit.trim_matches('\'');
        let expected =
            format!("rate_limit.unit: invalid rate limit unit '{unit}', got `{unit}`; {hint}{all}");
        assert_eq!(message, expected);
    }
    for missing in ["{}", "{ unit: , requests_per_unit: 5 }", "{ unit: '', requests_per_unit: 5 }"]
    {
        let message = wrong(&format!("key: k, rate_limit: {missing}"));
        assert!(message.starts_with("rate_limit: invalid rate limit unit '', got none; add it"));
    }
}

#[test]
fn numbers_of_requests_are_read_as_go_reads_them() {
    for (text, number) in [
        ("0", 0),
        ("", 0),
        ("~", 0),
        ("-0", 0),
        ("+5", 5),
        ("0x10", 16),
        ("010", 8),
        ("0o10", 8),
        ("0b101", 5),
        ("1_000", 1_000),
        ("4294967295", u32::MAX),
        ("!!int '5'", 5),
    ] {
        let read = limits(&format!("unit: day, requests_per_unit: {text}"));
        assert_eq!(read, Limits::Envoy { requests_per_unit: number, unit: Unit::Day }, "{text}");
    }
    assert_eq!(limits("unit: day"), Limits::Envoy { requests_per_unit: 0, unit: Unit::Day });

    let must = "must be a whole number from `0` to `4294967295`";
    for (text, cannot, remedy) in [
        ("-1", "!!int `-1`", "write `0` to let nothing pass, or a positive number"),
        ("-0x1", "!!int `-0x1`", "write `0` to let nothing pass, or a positive number"),
        (
            "4294967296",
            "!!int `4294967296`",
            "write a smaller number, or `unlimited: true` for no limit",
        ),
        (
            "9223372036854775807",
            "!!int `9223372...`",
            "write a smaller number, or `unlimited: true` for no limit",
        ),
        ("\"5\"", "!!str `5`", "remove the quotes"),
        ("many", "!!str `many`", "write it like `requests_per_unit: 100`"),
        ("true", "!!bool `true`", "write it like `requests_per_unit: 100`"),
        ("{ name: 5 }", "!!map", "write it like `requests_per_unit: 100`"),
    ] {
        let fields = format!("key: k, rate_limit: {{ unit: day, requests_per_unit: {text} }}");
        let expected = format!(
            "rate_limit.requests_per_unit: error loading config file: {must}, cannot unmarshal \
             {cannot} into uint32; {remedy}"
        );
        assert_eq!(wrong(&fields), expected);
    }
    for text in ["1.5", "5.0", "1e3", "089", "9223372036854775808", ".inf"] {
        let fields = format!("key: k, rate_limit: {{ unit: day, requests_per_unit: {text} }}");
        let expected = format!(
            "rate_limit.requests_per_unit: error checking config, {must}, got `{text}`; write it \
             without a fraction or an exponent"
        );
        assert_eq!(wrong(&fields), expected);
    }
}

#[test]
fn truths_are_those_of_yaml_1_1() {
    for truth in ["true", "True", "yes", "y", "on", "ON"] {
        assert_eq!(limits(&format!("unlimited: {truth}")), Limits::Unlimited);
    }
    for truth in ["false", "no", "n", "off", "~", ""] {
        assert_eq!(rule(&format!("key: k, {LIMIT}, shadow_mode: {truth}")).mode, Mode::Hard);
    }
    for (text, cannot, remedy) in [
        ("\"true\"", "!!str `true`", "remove the quotes"),
        ("tRUE", "!!str `tRUE`", "write `true` or `false`"),
        ("1", "!!int `1`", "write `true` or `false`"),
    ] {
        let expected = format!(
            "shadow_mode: error loading config file: must be `true` or `false`, cannot unmarshal \
             {cannot} into bool; {remedy}"
        );
        assert_eq!(wrong(&format!("key: k, {LIMIT}, shadow_mode: {text}")), expected);
    }
}

#[test]
fn unlimited_takes_no_unit() {
    let message = wrong("key: k, rate_limit: { unlimited: true, unit: day }");
    assert!(message.contains("should not specify rate limit unit when unlimited"), "{message}");
    for ignored in ["unit: foo", "unit: unknown", "requests_per_unit: 7"] {
        let text = one(&format!("key: k, rate_limit: {{ unlimited: true, {ignored} }}"));
        let warned = warned(&text);
        assert!(warned[0].contains("has no effect beside `unlimited: true`"), "{warned:?}");
    }
}

#[test]
fn rules_replace_others_by_name() {
    let table = [
        ("[{ name: '' }]", "replaces[0]: should not have an empty replaces entry"),
        ("[{ name: }]", "replaces[0]: should not have an empty replaces entry"),
        ("[{}]", "replaces[0]: should not have an empty replaces entry"),
        ("[{ name: me }]", "replaces should not contain name of same descriptor"),
        ("[me]", "replaces[0]: config error, yaml file contains list of type other than map: me"),
        (
            "me",
            "replaces: error loading config file: `replaces` must be a list, cannot unmarshal !!str `me` into []config.yamlReplaces",
        ),
    ];
    for (replaces, begins) in table {
        let fields = format!(
            "key: k, rate_limit: {{ unit: day, requests_per_unit: 5, name: me, replaces: {replaces} }}"
        );
        let message = wrong(&fields);
        assert!(message.contains(begins), "{message}");
    }
    let named = rule("key: k, rate_limit: { unit: day, requests_per_unit: 5, name: 7 }");
    assert_eq!(named.name.as_deref(), Some("7"));
    // All mistakes at once.
    let text =
        one("key: k, rate_limit: { unit: bad, name: a, replaces: [{ name: a }, { name: '' }] }");
    assert_eq!(told(&text).len(), 3, "{:?}", told(&text));
}

#[test]
fn a_threshold_is_shared_by_a_glob() {
    for shared in ["key: k, value: 'a*'", "key: k, value: '*a'", "key: 'k*'", "key: 'k*', value: v"]
    {
        let node = node(&format!("{shared}, share_threshold: true, {LIMIT}"));
        assert_eq!(node.counter, Counter::Shared, "{shared}");
    }
    for (fields, name) in [("key: k, value: v", "k_v"), ("key: k", "k"), ("key: k, value: ''", "k")]
    {
        let message = wrong(&format!("{fields}, share_threshold: true, {LIMIT}"));
        let expected = format!(
            "share_threshold: share_threshold can only be used with wildcard values (containing \
             '*'), but found key '{name}'; add a `*` to `value`, or remove it"
        );
        assert_eq!(message, expected);
    }
}

#[test]
fn metadata_is_free() {
    let rule = rule(&format!(
        "key: k, {LIMIT}, metadata: {{ tier: gold, n: 1.5, big: 18446744073709551615, ok: yes, none: \
         ~, l: [1, [x]], m: {{ unit: zzz }}, 5: five }}"
    ));
    let map = rule.metadata().unwrap();
    assert_eq!(map.field("tier"), Some(&Metadata::Text("gold".to_owned())));
    assert_eq!(map.field("n"), Some(&Metadata::Number(1.5)));
    assert_eq!(map.field("ok"), Some(&Metadata::Bool(true)));
    assert_eq!(map.field("none"), Some(&Metadata::Null));
    assert_eq!(map.field("5"), Some(&Metadata::Text("five".to_owned())));
    let one = Metadata::Number(1.0);
    let x = Metadata::List(vec![Metadata::Text("x".to_owned())]);
    assert_eq!(map.field("l"), Some(&Metadata::List(vec![one, x])));
    assert!(rule_without_metadata().metadata().is_none());
    assert!(wrong(&format!("key: k, {LIMIT}, metadata: abc")).contains("must be a mapping"));
    let nan = wrong(&format!("key: k, {LIMIT}, metadata: {{ a: .nan }}"));
    assert!(nan.starts_with("metadata.a: error parsing metadata"), "{nan}");
}

fn rule_without_metadata() -> RuleConfig {
    rule(&format!("key: k, {LIMIT}, metadata: ~"))
}

#[test]
fn keys_must_be_known_words() {
    let table = [
        ("zzz: 1", "zzz: config error, unknown key 'zzz'"),
        ("0.25: 1", "0.25: config error, key is not of type string: 0.25, got `0.25`"),
        ("on: 1", "on: config error, key is not of type string: true, got `on`"),
        ("~: 1", "~: config error, key is not of type string: <nil>, got `~`"),
        ("2020-01-01: 1", "2020-01-01: config error, unknown key '2020-01-01'"),
        ("[a]: 1", ": error loading config file: invalid map key"),
        ("'<<': { key: x }", "<<: config error, unknown key '<<'"),
        ("value: [a]", "value[0]: config error, yaml file contains list of type other than map: a"),
        ("value: { zzz: 1 }", "value.zzz: config error, unknown key 'zzz'"),
        (
            "value: { name: a }",
            "value: error loading config file: must be one value, cannot unmarshal !!map into string",
        ),
        (
            "descriptors: x",
            "descriptors: error loading config file: `descriptors` must be a list, cannot unmarshal !!str `x` into []config.YamlDescriptor",
        ),
        (
            "descriptors: { key: x }",
            "descriptors: error loading config file: `descriptors` must be a list, cannot unmarshal !!map into []config.YamlDescriptor",
        ),
        (
            "descriptors: [x]",
            "descriptors[0]: config error, yaml file contains list of type other than map: x",
        ),
        (
            "descriptors: [~]",
            "descriptors[0]: config error, yaml file contains list of type other than map: <nil>",
        ),
        (
            "descriptors: [[{ key: k }, ~, 1.50]]",
            "descriptors[0]: config error, yaml file contains list of type other than map: [map[key:k] <nil> 1.5]",
        ),
        ("descriptors: [{ key: '' }]", "descriptors[0].key: descriptor has empty key"),
        ("descriptors: [{ value: x }]", "descriptors[0]: descriptor has empty key"),
    ];
    for (fields, begins) in table {
        let message = wrong(&format!("key: k, {LIMIT}, {fields}"));
        assert!(message.starts_with(begins), "{message}");
    }
    for rate_limit in ["5", "[{ unit: day }]", "abc"] {
        let message = wrong(&format!("key: k, rate_limit: {rate_limit}"));
        assert!(message.contains("into config.YamlRateLimit"), "{message}");
    }
}

#[test]
fn a_file_needs_a_domain() {
    for text in ["", "# nothing\n", "---\n", "{}", "descriptors: []", "domain:", "domain: ''"] {
        let told = told(text);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("config file cannot have empty domain"), "{told:?}");
    }
    let reserved = told("domain: '@limiter'");
    assert!(reserved[0].contains("is reserved for limiters of the library"), "{reserved:?}");
    for (text, kind) in [("- a", "!!seq"), ("domain:d", "!!str `domain:d`"), ("5", "!!int `5`")] {
        let told = told(text);
        let expected = format!("cannot unmarshal {kind} into map[interface {{}}]interface {{}}; ");
        assert!(told.len() == 1 && told[0].contains(&expected), "{told:?}");
    }
    for text in ["domain: d", "domain: d\ndescriptors:\n", "domain: 5\ndescriptors: []\n"] {
        assert!(domain(text).descriptors.is_empty());
    }
}

#[test]
fn only_the_first_document_counts() {
    let text = "domain: d\n---\n{ broken";
    assert_eq!(domain(text).name, "d");
    assert!(
        warned(text)[1].starts_with("2:1: a second document begins here"),
        "{:?}",
        warned(text)
    );
}

#[test]
fn descriptors_are_told_apart_by_key_and_value_as_one_text() {
    let two = |first: &str, second: &str| {
        format!("domain: d\ndescriptors:\n- {{ {first} }}\n- {{ {second} }}\n")
    };
    for (first, second, name) in [
        ("key: k", "key: k", "d.k"),
        ("key: k, value: v", "key: k, value: v", "d.k_v"),
        ("key: a, value: b_c", "key: a_b, value: c", "d.a_b_c"),
        ("key: a, value: b", "key: a_b", "d.a_b"),
        ("key: k, value: 1", "key: k, value: '1'", "d.k_1"),
    ] {
        let expected = format!(
            "4:3: descriptors[1]: duplicate descriptor composite key '{name}', the first is on line \
             3; remove one of them, or give them different values"
        );
        assert_eq!(told(&two(first, second)), [expected]);
    }
    let nested =
        "key: k, value: v, descriptors: [{ key: a }, { key: a, descriptors: [{ key: z }] }]";
    assert!(told(&one(nested))[0].contains("composite key 'd.k_v.a', the first is on line 3"));
    assert!(told(&two("key: k, value: a", "key: k, value: b")).is_empty());
}

#[test]
fn keys_at_the_wrong_level_are_warned_of() {
    for (fields, name, home) in [
        ("domain: x", "domain", "the top of the file"),
        ("unit: day", "unit", "`rate_limit`"),
        ("requests_per_unit: 5", "requests_per_unit", "`rate_limit`"),
        ("replaces: [{ name: x }]", "replaces", "`rate_limit`"),
        ("name: x", "name", "`rate_limit`"),
    ] {
        let warned = warned(&one(&format!("key: k, {LIMIT}, {fields}")));
        let expected = format!(
            ": descriptors[0].{name}: has no effect here, `{name}` belongs to {home}; move it there \
             (check the indentation), or remove it"
        );
        assert!(warned.len() == 1 && warned[0].ends_with(&expected), "{warned:?}");
    }
    let text = "domain: d\nkey: k\ndescriptors:\n- { key: k, rate_limit: { unit: day, key: x, \
                requests_per_unit: 1 } }\n";
    assert_eq!(warned(text).len(), 2);
    // The nested levels are checked regardless.
    let message = wrong(&format!("key: k, {LIMIT}, domain: {{ zzz: 1 }}"));
    assert!(message.contains("unknown key 'zzz'"), "{message}");
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let without = "has no effect without `rate_limit`; add one, or remove this";
    for flag in ["shadow_mode", "quota_mode", "detailed_metric"] {
        let children = format!("descriptors: [{{ key: c, {LIMIT} }}]");
        let told = warned(&one(&format!("key: k, {flag}: true, {children}")));
        assert_eq!(told, [format!("3:13: descriptors[0].{flag}: {without}")]);
        assert!(warned(&one(&format!("key: k, {flag}: false, {children}"))).is_empty());
        let told = warned(&one(&format!("key: k, value_to_metric: true, {children}")));
        assert!(told.is_empty(), "acts on those below: {told:?}");
    }
    let zero = warned(&one("key: k, rate_limit: { unit: day, requests_per_unit: 0 }"));
    assert!(zero.is_empty(), "a blocklist: {zero:?}");
    let null = warned(&one("key: k, rate_limit: { unit: day, requests_per_unit: }"));
    assert!(null[0].contains("has no value, which is 0, so every request is denied"), "{null:?}");
    let missing = warned(&one("key: k, rate_limit: { unit: day }"));
    assert!(missing[0].contains("is missing, which is 0, so every request is denied"));
    let null = warned(&one("key: k, rate_limit: "));
    assert!(null[1].contains("has no value, so there is no limit here"), "{null:?}");
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| {
        let open = "{ key: k, descriptors: [".repeat(depth - 1);
        format!("domain: d\ndescriptors: [{open}{{ key: k, {LIMIT} }}{}]", "] }".repeat(depth - 1))
    };
    assert!(told(&nested(31)).is_empty());
    assert!(told(&nested(32))[0].contains("nested more than 64 deep"));
    let long = "ä".repeat(1_024);
    for fields in [format!("key: {long}"), format!("key: k, value: {long}")] {
        assert!(told(&one(&format!("{fields}, {LIMIT}"))).is_empty());
        let message = wrong(&format!("{fields}x, {LIMIT}"));
        assert!(message.contains("must have at most 1024 characters, got 1025: `ä"), "{message}");
    }
}
