//! Keys that are given twice, and templates, as yaml.v2 reads them.

use super::*;
use sluicegate_core::mode::Mode;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::unit::Unit;

const LIMIT: &str = "rate_limit: { unit: minute, requests_per_unit: 5 }";

#[test]
fn of_equal_keys_the_last_counts_and_limits_are_mixed() {
    let limits = |fields: &str| node(fields).rule.map(|rule| rule.limits);
    let of = |requests_per_unit, unit| Some(Limits::Envoy { requests_per_unit, unit });
    let first = "key: k, rate_limit: { unit: minute, requests_per_unit: 1 }";
    let table = [
        (format!("{first}, rate_limit: {{ unit: hour }}"), of(1, Unit::Hour)),
        (format!("{first}, rate_limit: {{ requests_per_unit: 2 }}"), of(2, Unit::Minute)),
        (format!("{first}, rate_limit: ~"), None),
        (
            "key: k, rate_limit: { zzz: 1 }, rate_limit: { unit: hour }".to_owned(),
            of(0, Unit::Hour),
        ),
        (
            "key: k, rate_limit: { unit: hour, unit: day, requests_per_unit: 3 }".to_owned(),
            of(3, Unit::Day),
        ),
    ];
    for (fields, expected) in table {
        assert_eq!(limits(&fields), expected, "{fields}");
        assert!(!warned(&one(&fields)).is_empty(), "{fields}");
    }
    let twice = warned(&one(&format!("key: a, key: b, {LIMIT}")));
    assert_eq!(
        twice,
        [
            "3:13: descriptors[0].key: is given twice, first on line 3, and only the last counts; remove one"
        ]
    );
    let message =
        wrong("key: k, rate_limit: { unit: day, requests_per_unit: x, requests_per_unit: 3 }");
    assert!(message.contains("cannot unmarshal !!str `x` into uint32"), "{message}");
}

#[test]
fn templates_work_as_in_yaml_v2() {
    let base = "domain: d\ndescriptors:\n- &b { key: base, rate_limit: { unit: minute, \
                requests_per_unit: 1, name: n } }\n";
    let read = |descriptor: &str| {
        let mut read = domain(&format!("{base}- {{ {descriptor} }}\n"));
        let node = read.descriptors.remove(1);
        (node.key, node.rule.unwrap())
    };
    let limit = |requests_per_unit, unit| Limits::Envoy { requests_per_unit, unit };
    let (key, rule) = read("<<: *b, value: x");
    assert_eq!((&*key, rule.limits), ("base", limit(1, Unit::Minute)));
    let (key, _) = read("<<: *b, key: other");
    assert_eq!(key, "other");
    let (key, rule) = read("<<: *b, key: other, rate_limit: { unit: day }");
    assert_eq!(
        (&*key, rule.limits, rule.name.as_deref()),
        ("other", limit(1, Unit::Day), Some("n"))
    );
    // By position, as in envoyproxy/ratelimit: a later key overrides an earlier one.
    let text = format!("{base}- {{ key: other, <<: *b, value: x }}\n");
    assert_eq!(domain(&text).descriptors[1].key, "base");
    assert!(warned(&text)[0].contains("is given twice, first on line 4"), "{:?}", warned(&text));
    let list = "<<: [{ value: x }, { value: y, shadow_mode: true }], key: k, rate_limit: { unit: day, \
                requests_per_unit: 1 }";
    let (_, rule) = read(list);
    assert_eq!(rule.mode, Mode::Shadow);
    assert!(told(&one("key: k, <<: 5"))[0].contains("map merge requires map or sequence of maps"));
    assert!(told("x-base: &b {}\ndomain: d")[0].contains("unknown key 'x-base'"));
}
