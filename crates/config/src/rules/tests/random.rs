//! Random text: nothing panics, and every problem has a place in the text.

use proptest::prelude::*;
use sluicegate_rules::set::RuleSet;

use super::*;

fn check(text: &str) {
    let sources = [source("x", text), source("y", "domain: d\ndescriptors: [{ key: k }]")];
    for merge_domains in [false, true] {
        let (problems, warnings) =
            match load(&sources, &Options { merge_domains, ..Options::default() }) {
                Ok(loaded) => {
                    // A loaded file needs no further validation.
                    let set = RuleSet::new(loaded.domains);
                    assert!(set.is_ok(), "{text:?}: {:?}", set.err());
                    (Vec::new(), loaded.warnings)
                }
                Err(invalid) => {
                    assert!(invalid.problems.iter().count() > 0);
                    (invalid.problems.iter().cloned().collect(), invalid.warnings)
                }
            };
        for problem in problems.iter().chain(&warnings) {
            let text = if problem.source() == "x" { text } else { &*sources[1].text };
            in_the_text(problem, text);
            let line = problem.to_string();
            assert!(!line.contains(['\n', '\r']) && !line.ends_with('.'), "{line}");
            assert!(line.contains("; "), "no remedy: {line}");
            let _ = problem::with_source(problem, text);
        }
    }
}

/// The line is one of the text's, and the column at most one behind its end.
fn in_the_text(problem: &Problem, text: &str) {
    let text = text.replace("\r\n", "\n");
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    let line = lines.get(problem.line() - 1);
    let Some(line) = line else { panic!("{problem} is not in {text:?}") };
    let columns = line.chars().count() + 1;
    assert!((1..=columns).contains(&problem.column()), "{problem} is not in {text:?}");
}

/// Text that gets far: keys of all levels with values of all kinds.
fn ruleish() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "domain",
        "descriptors",
        "allow",
        "deny",
        "key",
        "value",
        "regex",
        "cidr",
        "rate_limit",
        "limits",
        "unit",
        "requests_per_unit",
        "unlimited",
        "name",
        "id",
        "mode",
        "shadow_mode",
        "cost",
        "shared",
        "share_threshold",
        "prefix",
        "replaces",
        "consistency",
        "on_store_failure",
        "on_limit",
        "overflow",
        "value_to_metric",
        "metadata",
        "algorithm",
        "rate",
        "eventual",
        "<<",
        "zzz",
        "1.5",
        "~",
    ]);
    let scalar = prop::sample::select(vec![
        "d",
        "minute",
        "5",
        "1.5",
        "true",
        "~",
        "''",
        "'a*'",
        "a*",
        "10.0.0.0/8",
        "^a(",
        "leased",
        "shape",
        "shadow",
        "token_bucket",
        "10/s",
        "*x",
        "&x y",
        "k",
    ]);
    let leaf = scalar.prop_map(str::to_owned);
    let value = leaf.prop_recursive(6, 48, 6, move |inner| {
        let pair = (key.clone(), inner.clone()).prop_map(|(key, value)| format!("{key}: {value}"));
        prop_oneof![
            3 => prop::collection::vec(pair, 0..6).prop_map(|pairs| format!("{{ {} }}", pairs.join(", "))),
            1 => prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
        ]
    });
    let descriptor = (value.clone(), value.clone())
        .prop_map(|(first, second)| format!("{{ key: k, value: {first}, rate_limit: {second} }}"));
    let descriptors = prop::collection::vec(prop_oneof![value.clone(), descriptor], 0..5);
    (descriptors, value).prop_map(|(descriptors, more)| {
        format!("domain: d\ndescriptors: [{}]\nallow: {more}\n", descriptors.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn no_rules_panic(text in ruleish()) {
        check(&text);
        check(&text.replace("allow: ", "descriptors: "));
    }

    #[test]
    fn no_lines_panic(text in "(- |  |key: |value: |rate_limit:|\n|\n  |descriptors:|domain: d|a|\\*|&a |<<: |: |5|'|\")*") {
        check(&text);
    }
}
