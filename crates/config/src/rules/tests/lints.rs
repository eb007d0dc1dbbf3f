//! Warnings for configurations that are surely unintended.

use super::*;

const LIMIT: &str = "rate_limit: { unit: day, requests_per_unit: 5 }";
const BUCKET: &str = "limits: { algorithm: token_bucket, rate: 10/s }";

fn lines(top: &str, descriptors: &[&str], limit: &str) -> String {
    let mut text = format!("domain: d\n{top}descriptors:\n");
    for descriptor in descriptors {
        text.push_str(&format!("- {{ {descriptor}, {limit} }}\n"));
    }
    text
}

#[test]
fn patterns_that_can_never_match_are_warned_of() {
    let never =
        |line: usize| format!("can never match, the pattern on line {line} takes every value");
    type Case<'a> = (&'a [&'a str], &'a [(usize, usize)]);
    let table: [Case<'_>; 8] = [
        (&["key: k, value: 'a*'", "key: k, value: 'ab*'"], &[(4, 3)]),
        (&["key: k, value: 'ab*'", "key: k, value: 'a*'"], &[]),
        (&["key: k, value: '*'", "key: k"], &[(4, 3)]),
        (&["key: k", "key: k, value: '*'"], &[(3, 4)]),
        (&["key: k, value: 'a*'", "key: k"], &[]),
        (&["key: k, value: 'a*c*'", "key: k, value: 'abc*d'"], &[(4, 3)]),
        (&["key: k, value: '*x'", "key: k, value: 'a*x'", "key: j, value: 'a*x'"], &[(4, 3)]),
        (&["key: k, value: 'a*'", "key: k, value: abc"], &[]),
    ];
    for (descriptors, expected) in table {
        for (top, limit) in [("", LIMIT), ("", BUCKET)] {
            let warned = warned(&lines(top, descriptors, limit));
            assert_eq!(warned.len(), expected.len(), "{descriptors:?}: {warned:?}");
            for (line, first) in expected {
                let begins = format!("{line}:3: descriptors[{}]: {}", line - 3, never(*first));
                assert!(warned.iter().any(|told| told.starts_with(&begins)), "{warned:?}");
            }
        }
    }
    // In Envoy's form a key and a value are one text.
    let joined = warned(&lines("", &["key: a, value: '*'", "key: a_b, value: 'c*'"], LIMIT));
    assert_eq!(joined.len(), 1, "{joined:?}");
    assert!(
        warned(&lines("", &["key: a, value: '*'", "key: a_b, value: 'c*'"], BUCKET)).is_empty()
    );
}

#[test]
fn many_patterns_are_looked_through_in_time() {
    let descriptors: Vec<String> =
        (0..3_000).map(|n| format!("key: k, value: '*{n}*{}*'", n / 2)).collect();
    let descriptors: Vec<&str> = descriptors.iter().map(String::as_str).collect();
    assert!(!warned(&lines("", &descriptors, LIMIT)).is_empty());
}

#[test]
fn lists_that_decide_are_warned_of() {
    let lists = "allow:\n- { key: ip, cidr: 10.1.0.0/16 }\n- { key: user, value: root }\ndeny:\n- { key: \
                 ip, cidr: 10.0.0.0/8 }\n- { key: user, value: 'mal*' }\n";
    let text = lines(
        lists,
        &["key: user, value: mallory", "key: user, value: root", "key: user", "key: other"],
        BUCKET,
    );
    assert_eq!(
        warned(&text),
        [
            "3:3: allow[0]: has no effect, `deny[0]` on line 6 covers it, and `deny` wins over `allow`; \
             remove one of them",
            "9:3: descriptors[0]: has no effect, `deny[1]` on line 7 denies all that it matches; remove \
             one of them",
            "10:3: descriptors[1]: has no effect, `allow[1]` on line 4 lets all that it matches pass \
             uncounted; remove one of them",
        ]
    );
    let nested = format!(
        "domain: d\ndeny: [{{ key: user, value: x }}]\ndescriptors:\n- {{ key: a, descriptors: [{{ key: \
         user, value: x, {BUCKET} }}] }}\n"
    );
    assert!(warned(&nested)[0].contains("descriptors[0].descriptors[0]: has no effect, `deny[0]`"));
}

#[test]
fn limits_that_let_nothing_pass_are_warned_of() {
    let closed = "limits: [{ algorithm: token_bucket, rate: 10/s }, { name: none, algorithm: \
                  fixed_window, rate: 0/day }]";
    let warned = warned(&lines("", &["key: k"], closed));
    assert_eq!(warned.len(), 1);
    assert!(warned[0].contains("descriptors[0].limits: `none` lets nothing pass"), "{warned:?}");
    let tally = lines("", &["key: k"], "limits: { algorithm: tally, rate: 0/s }");
    assert!(super::warned(&tally)[0].contains("`tally` lets nothing pass"));
}

#[test]
fn a_domain_without_rules_is_warned_of() {
    for text in ["domain: d", "domain: d\ndescriptors: [{ key: k }]"] {
        let warned = warned(text);
        assert_eq!(warned.len(), 1);
        assert!(warned[0].starts_with("1:9: domain: has no rules"), "{warned:?}");
    }
    assert!(warned("domain: d\ndeny: [{ key: k }]").is_empty());
}

#[test]
fn names_that_nobody_has_are_warned_of_in_envoys_form() {
    let rule = "rate_limit: { unit: day, requests_per_unit: 5, replaces: [{ name: other }] }";
    let warned = warned(&lines("", &["key: k"], rule));
    assert!(warned[0].contains("no rule of this domain is called so, got `other`"), "{warned:?}");
}

#[test]
fn what_counts_as_strict_all_the_same_is_warned_of() {
    let window = "limits: { algorithm: sliding_window, rate: 10/s }";
    let elastic = "mode: { elastic: { up_to: 2x, below: 70%, above: 85% } }";
    let ways = ["leased", "eventual", "{ strict: { hot_keys: leased } }"];
    for way in ways {
        for (setting, words) in [
            ("mode: shadow", "in the mode `shadow`"),
            ("shadow_mode: true", "in the mode `shadow`"),
            ("mode: { soft: 10% }", "in the mode `soft`"),
            (elastic, "in the mode `elastic`"),
            ("quota_mode: true", "in `quota_mode`"),
        ] {
            let warned =
                warned(&lines("", &[&format!("key: k, consistency: {way}, {setting}")], window));
            assert_eq!(warned.len(), 1, "{way}, {setting}: {warned:?}");
            let begins = format!("descriptors[0].consistency: counts as `strict` {words}, so");
            assert!(warned[0].contains(&begins), "{warned:?}");
        }
        let fits = format!("key: k, mode: hard, consistency: {way}");
        assert_eq!(warned(&lines("", &[&fits], window)), [""; 0]);
    }
    let strict = warned(&lines("", &["key: k, mode: shadow, consistency: strict"], window));
    assert_eq!(strict, [""; 0]);
}

#[test]
fn nodes_that_hear_of_each_other_too_late_are_told() {
    let limit = |rate: &str| format!("limits: {{ algorithm: fixed_window, rate: {rate} }}");
    let warned_of = |interval: &str, rate: &str| {
        let rule = format!("key: k, consistency: {{ eventual: {{ sync_interval: {interval} }} }}");
        warned(&lines("", &[&rule], &limit(rate)))
    };
    assert_eq!(warned_of("500ms", "10/s"), [""; 0]);
    let warned = warned_of("501ms", "10/s");
    let [warning] = &*warned else { panic!("{warned:?}") };
    assert!(warning.contains("every `501ms`, which is more than half of a window of `1s`"));
}

#[test]
fn slots_that_envoy_cannot_release_are_warned_of() {
    const SLOTS: &str = "limits: { algorithm: concurrency, max: 2, lease: 30s }";
    let alone =
        format!("domain: d\ndescriptors:\n- {{ key: a, {SLOTS} }}\n- {{ key: b, {BUCKET} }}\n");
    assert_eq!(warned(&alone), [] as [&str; 0], "clients over HTTP release them");
    let beside = format!("{alone}- {{ key: c, {LIMIT} }}\n");
    let warnings = warned(&beside);
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(warning.contains("holds one for the whole lease, `30s`"), "{warning}");
    assert!(warning.contains("descriptors[0]"), "{warning}");
}

#[test]
fn failure_policies_beside_errors_are_warned_of_once() {
    let with =
        |policy: &str, limit: &str| format!("key: k{policy}, {limit}, on_store_failure: {policy}");
    let domain = |rules: &[String]| {
        let rules: String = rules.iter().map(|rule| format!("- {{ {rule} }}\n")).collect();
        warned(&format!("domain: d\ndescriptors:\n{rules}"))
    };
    let plain = |limit: &str| format!("key: plain, {limit}");
    for policy in ["local", "allow", "deny"] {
        let first = with(policy, LIMIT);
        let warnings = domain(&[first, plain(LIMIT), with("error", LIMIT)]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let expected = format!(
            "descriptors[0].on_store_failure: is not `error`, got `{policy}`, but that of \
             `descriptors[1]` on line 4 is, the default of `rate_limit`: while the store"
        );
        assert!(warnings[0].starts_with("3:") && warnings[0].contains(&expected), "{warnings:?}");
    }
    let explicit = domain(&[with("error", BUCKET), with("deny", BUCKET)]);
    assert_eq!(explicit.len(), 1, "{explicit:?}");
    assert!(explicit[0].contains("that of `descriptors[0]` on line 3 is: while"), "{explicit:?}");
    // Defaults alone, one policy alone, and rules that decide nothing.
    let shadow = format!("key: shadow, shadow_mode: true, {LIMIT}");
    let unlimited = "key: free, rate_limit: { unlimited: true }".to_owned();
    for rules in [
        vec![plain(LIMIT), format!("key: native, {BUCKET}")],
        vec![with("deny", LIMIT), with("local", BUCKET), format!("key: native, {BUCKET}")],
        vec![with("error", LIMIT), plain(LIMIT)],
        vec![with("deny", LIMIT), shadow, unlimited],
    ] {
        assert_eq!(domain(&rules), [""; 0], "{rules:?}");
    }
}
