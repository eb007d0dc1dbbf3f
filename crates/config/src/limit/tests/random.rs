//! Random text: nothing panics, and what loads can be enforced.

use proptest::prelude::*;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::mode::{EnforcedLimit, Mode};

use super::*;

/// Text that gets far: an algorithm with its own fields, and values that are good or nearly so.
fn limitish() -> impl Strategy<Value = String> {
    prop::sample::select(FORMS.iter().collect::<Vec<_>>()).prop_flat_map(|form| {
        let field = |name: &'static str| {
            let value =
                prop_oneof![8 => good(name), 1 => Just(String::new()), 1 => any::<String>()];
            prop::option::weighted(0.8, value).prop_map(move |value| (name, value))
        };
        let fields: Vec<_> = form.fields.iter().map(|name| field(name)).collect();
        let stranger = prop::option::weighted(0.1, prop::sample::select(algorithms::field_names()));
        (fields, stranger).prop_map(|(fields, stranger)| {
            let mut text = format!("{{ algorithm: {}", form.name);
            for (name, value) in fields {
                text.extend(value.map(|value| format!(", {name}: {value}")));
            }
            text.extend(stranger.map(|name| format!(", {name}: 5")));
            text + " }"
        })
    })
}

/// A value of the right kind for a field, though perhaps not within its bounds.
fn good(name: &str) -> BoxedStrategy<String> {
    let number = prop_oneof![0..100_u64, Just(EXACT_MAX), 0..EXACT_MAX];
    let unit =
        prop::sample::select(vec!["us", "ms", "s", "m", "h", "day", "week", "month", "year"]);
    let span = (prop_oneof![0..100_u64, number.clone()], unit)
        .prop_map(|(number, unit)| format!("{number}{unit}"));
    let rate = (number.clone(), span.clone()).prop_map(|(number, span)| format!("{number}/{span}"));
    let calendrical = Just("100/day".to_owned());
    match name {
        "rate" => prop_oneof![rate, calendrical].boxed(),
        "rates" => prop::collection::vec(rate, 0..10)
            .prop_map(|rates| format!("[{}]", rates.join(", ")))
            .boxed(),
        "cold_factor" => (0..110_000_u64).prop_map(crate::units::show_factor).boxed(),
        "refill" => "greedy|interval|aligned".boxed(),
        "align" => "clock|first_hit|calendar".boxed(),
        "zone" => "UTC|Europe/Berlin|Pacific/Apia".boxed(),
        "rounding" => "floor|up".boxed(),
        "slices" => (0..70_u64).prop_map(|slices| slices.to_string()).boxed(),
        "count_denied" => "true|false".boxed(),
        "forget_after" | "min_gap" | "max_burst" | "warm_up" | "period" | "lease" => span.boxed(),
        _ => number.prop_map(|number| number.to_string()).boxed(),
    }
}

/// A limit that loads can be enforced at any time; otherwise each problem is a whole line.
fn check(text: &str) -> Option<usize> {
    match limits("x", text) {
        Ok(limits) => {
            for now in
                [Timestamp::EPOCH, Timestamp::from_micros(1_800_000_000_000_000), Timestamp::MAX]
            {
                for limit in &limits {
                    assert!(EnforcedLimit::new(limit.at(now), Mode::Hard).is_ok());
                }
            }
            Some(limits.len())
        }
        Err(problems) => {
            assert!(problems.iter().count() > 0);
            for problem in &problems {
                let line = problem.to_string();
                assert!(!line.contains(['\n', '\r']) && !line.ends_with('.'), "{line}");
                assert!(line.contains("; "), "no remedy: {line}");
            }
            None
        }
    }
}

#[test]
fn random_limits_are_not_all_refused() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let texts = (0..2_000).map(|_| limitish().new_tree(&mut runner).unwrap().current());
    let loaded = texts.filter(|text| check(text).is_some()).count();
    assert!((400..1_600).contains(&loaded), "{loaded}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn nearly_good_text_neither_panics_nor_loads_what_cannot_be_enforced(text in limitish()) {
        check(&text);
        check(&format!("- {text}\n- {text}\n"));
    }
}
