//! Expressions of Prometheus: the series that they select, and the labels that they use.

use std::collections::BTreeSet;

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];
/// How names of metrics begin.
const PREFIXES: [&str; 3] = ["sluicegate_", "ratelimit_", "process_"];

/// A series of a page, or a selector of an expression: a name and its labels.
#[derive(Debug)]
pub struct Series<'a> {
    pub name: &'a str,
    labels: Vec<(&'a str, &'a str, &'a str)>,
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// A name and the labels behind it; values have no comma and no brace.
fn series(text: &str) -> Series<'_> {
    let (name, rest) = text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()));
    let labels = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
        let (label, value) = label.split_once('"').unwrap();
        let (label, operator) = label.split_at(label.find(|c| !is_word(c)).unwrap());
        (label, operator, value.trim_end_matches('"'))
    });
    Series { name, labels: labels.collect() }
}

/// The series of a page.
pub fn exported(page: &str) -> Vec<Series<'_>> {
    page.lines().filter(|line| !line.starts_with('#')).map(series).collect()
}

/// The selectors of an expression.
fn selectors(expression: &str) -> Vec<Series<'_>> {
    let starts = |(at, _): &(usize, &str)| !expression[..*at].ends_with(is_word);
    let found = PREFIXES.iter().flat_map(|prefix| expression.match_indices(prefix).filter(starts));
    found.map(|(at, _)| series(&expression[at..])).collect()
}

/// The labels that an alert or a panel uses: `by (…)`, `$labels.…`, `{{…}}`.
fn labels_used(text: &str) -> BTreeSet<&str> {
    let by = text.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(','));
    let named = text.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap());
    let legend = text.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap());
    let legend = legend.filter(|name| name.chars().all(is_word));
    by.map(str::trim).chain(named).chain(legend).filter(|label| !ADDED.contains(label)).collect()
}

impl Series<'_> {
    fn is_selected_by(&self, selector: &Series<'_>) -> bool {
        let matches = |(label, operator, value): &(&str, &str, &str)| {
            let own = self.labels.iter().find(|(name, ..)| name == label);
            own.is_some_and(|(.., own)| match *operator {
                "=" => own == value,
                "!=" => own != value,
                "!~" => value.split('|').all(|value| own != &value),
                "=~" if *value == ".+" => !own.is_empty(),
                other => panic!("the test does not know the operator `{other}` of `{value}`"),
            })
        };
        let mut labels = selector.labels.iter().filter(|(label, ..)| !ADDED.contains(label));
        self.name == selector.name && labels.all(matches)
    }
}

/// Checks that an expression selects series that exist, with the labels that `text` uses; the names
/// of its metrics.
pub fn selected<'e>(expression: &'e str, text: &str, exported: &[Series<'_>]) -> BTreeSet<&'e str> {
    let selectors = selectors(expression);
    for selector in &selectors {
        let found: Vec<_> =
            exported.iter().filter(|series| series.is_selected_by(selector)).collect();
        assert!(!found.is_empty(), "no series for {selector:?} of {text}");
        for label in labels_used(text) {
            let has = |series: &&Series<'_>| series.labels.iter().any(|(own, ..)| *own == label);
            assert!(found.iter().copied().any(|one| has(&one)), "no label {label}: {text}");
        }
    }
    selectors.iter().map(|selector| selector.name).collect()
}

#[test]
fn a_selector_of_something_else_selects_nothing() {
    let exported = series(r#"a_total{route="/*",status="5xx"} 1"#);
    let selects = |text: &str| exported.is_selected_by(&series(text));
    assert!(selects("a_total[5m]") && selects(r#"a_total{status="5xx"}[5m]"#));
    assert!(selects(r#"a_total{status!~"2xx|3xx"}"#) && !selects(r#"a_total{status!~"2xx|5xx"}"#));
    assert!(selects(r#"a_total{job="x",route=~".+"}"#) && !selects(r#"a_total{rule=~".+"}"#));
    assert!(!selects("b_total") && !selects(r#"a_total{status="2xx"}"#));
    assert!(!selects(r#"a_total{class="5xx"}"#), "a label that it does not have");
}
