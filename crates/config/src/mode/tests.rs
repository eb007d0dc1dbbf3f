use proptest::prelude::*;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;

use super::*;

fn told(text: &str) -> Vec<String> {
    let problems = mode("x", text).expect_err(text);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn modes_are_read() {
    let gate = |below, above| GateLevels::new(below, above).unwrap();
    let elastic = |up_to, below, above| Mode::Elastic { up_to, gate: gate(below, above) };
    let table = [
        ("hard", Mode::Hard),
        ("'shadow'", Mode::Shadow),
        ("{ soft: 10% }", Mode::Soft { percent: 10 }),
        ("soft: 1000 %", Mode::Soft { percent: 1_000 }),
        ("{ elastic: { up_to: 2x, below: 70%, above: 85% } }", elastic(2_000, 700, 850)),
        ("elastic:\n  up_to: 1.5\n  above: 80%\n  below: 80%\n", elastic(1_500, 800, 800)),
    ];
    for (text, expected) in table {
        assert_eq!(mode("x", text), Ok(expected), "{text}");
    }
}

#[test]
fn each_mistake_has_its_message() {
    let write =
        "write `hard`, `shadow`, `soft: 10%` or `elastic: { up_to: 2x, below: 70%, above: 85% }`";
    let table = [
        ("", "1:1: there is nothing to read; write it like `hard`"),
        ("hrad", "1:1: unknown mode, got `hrad`; did you mean `hard`? WRITE"),
        ("lenient", "1:1: unknown mode, got `lenient`; WRITE"),
        ("[hard]", "1:1: unknown mode, got a list; WRITE"),
        ("{}", "1:1: unknown mode, got an empty mapping; WRITE"),
        ("{ sfot: 10% }", "1:3: sfot: unknown mode, got `sfot`; did you mean `soft`? WRITE"),
        ("{ hard: true }", "1:3: hard: takes no value, got it as a field; write just `hard`"),
        ("soft", "1:1: needs a percentage, got `soft`; write it like `soft: 10%`"),
        (
            "elastic",
            "1:1: needs its levels, got `elastic`; write it like `elastic: { up_to: 2x, below: \
             70%, above: 85% }`",
        ),
        (
            "soft:",
            "1:1: soft: has no value, got nothing; write it like `soft: 10%`, or remove the field",
        ),
        ("soft: 10", "1:7: soft: must be a whole percentage, got `10`; write it like `10%`"),
        (
            "soft: 0%",
            "1:7: soft: must be from `1%` to `1000%`, got `0%`; for nothing above the limit write \
             `hard`",
        ),
        (
            "soft: 1001%",
            "1:7: soft: must be from `1%` to `1000%`, got `1001%`; for nothing above the limit \
             write `hard`",
        ),
        (
            "{ soft: 10%, elastic: { up_to: 2x, below: 70%, above: 85% } }",
            "1:1: a rule has one mode, got `soft` and `elastic`; keep one of them",
        ),
        (
            "elastic: 2x",
            "1:10: elastic: `elastic` must be a mapping, got `2x`; write it like `{ up_to: 2x, \
             below: 70%, above: 85% }`",
        ),
        (
            "elastic: { up_to: 2x, below: 70% }",
            "1:10: elastic.above: is missing; add it, like `above: 85%`",
        ),
        (
            "elastic: { up_to: 0.5x, below: 70%, above: 85% }",
            "1:19: elastic.up_to: must be from `1x` to `1000x`, got `0.5x`; for no more than the \
             limit write `hard`",
        ),
        (
            "elastic: { up_to: twice, below: 70%, above: 85% }",
            "1:19: elastic.up_to: must be a number with at most three decimals, got `twice`; \
             write it like `2x` or `1.5x`",
        ),
        (
            "elastic: { up_to: 2x, below: 90%, above: 85% }",
            "1:30: elastic.below: must not exceed `above`, which is `85%`, got `90%`; it opens \
             below the one and closes above the other",
        ),
        (
            "elastic: { up_to: 2x, below: 70%, abve: 85%, above: 85% }",
            "1:35: elastic.abve: unknown field, got `abve`; did you mean `above`? the fields here \
             are `up_to`, `below` and `above`",
        ),
    ];
    for (text, expected) in table {
        let expected = format!("x:{}", expected.replace("WRITE", write));
        assert_eq!(told(text), [expected], "{text}");
    }
    let all = told("elastic: { up_to: 0, below: low, abov: 5 }");
    assert_eq!(all.len(), 4, "{all:?}");
}

/// A mode that loads has a meaning for a limit that any mode fits.
fn check(text: &str) {
    match mode("x", text) {
        Ok(mode) => assert!(EnforcedLimit::new(Limit::Unlimited, mode).is_ok()),
        Err(problems) => {
            for problem in &problems {
                let line = problem.to_string();
                assert!(line.contains("; ") && !line.contains('\n'), "{line}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn nearly_good_text_does_not_panic(
        percents in prop::array::uniform3("[0-9]{0,17}(\\.[0-9]{0,4})?(%|x)?"),
        key in "soft|elastic|hard|shadow",
    ) {
        let [up_to, below, above] = percents;
        check(&format!("{key}: {up_to}"));
        check(&format!("{key}: {{ up_to: {up_to}, below: {below}, above: {above} }}"));
        check(&format!("elastic: {{ up_to: 2x, below: {below}, above: {above} }}"));
    }
}
