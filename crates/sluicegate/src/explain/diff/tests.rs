use sluicegate_rules::request::{Descriptor, Entry, Request};

use super::*;
use crate::{Engine, rules_of};

const WINDOW: &str = "limits: { algorithm: fixed_window, rate: 10/day }";

/// What the comparison says of the rule for `user`, and whether a reload keeps what `user=1` used.
fn change_and_usage(old: &str, new: &str) -> (CounterChange, bool) {
    let set = |rule: &str| rules_of(&format!("domain: shop\ndescriptors: [{rule}]\n")).unwrap();
    let (before, after) = (set(old), set(new));
    let compared = |set| ComparedRules { set, domains: &[] };
    let found = diff(compared(&before), compared(&after));
    let rule =
        found.domains.iter().flat_map(|domain| &domain.rules).find(|rule| rule.new.is_some());
    let change = rule.map_or(CounterChange::Continued, |rule| rule.counters);
    let engine = Engine::new(set(old)).unwrap();
    let entries = [Entry::new("user", "1")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    for _ in 0..3 {
        assert!(!engine.check(&request).statuses.is_empty());
    }
    engine.reload(set(new)).unwrap();
    let fresh = Engine::new(set(new)).unwrap();
    let left = |engine: &Engine| engine.check(&request).statuses[0].verdict.remaining;
    (change, left(&engine) != left(&fresh))
}

#[test]
fn a_reload_does_what_the_comparison_says() {
    let user = |rest: &str| format!("{{ key: user, {rest} }}");
    let named = |key: &str, rest: &str| format!("{{ key: {key}, id: users, {rest} }}");
    let window = user(WINDOW);
    let larger = user("limits: { algorithm: fixed_window, rate: 20/day }");
    let bucket = user("limits: { algorithm: token_bucket, rate: 10/day }");
    let unlimited = user("limits: { algorithm: unlimited }");
    let shadow = user(&format!("mode: shadow, {WINDOW}"));
    let shared = user(&format!("share_threshold: true, value: '*', {WINDOW}"));
    let any = user(&format!("value: '*', {WINDOW}"));
    let one = user(&format!("value: '1', {WINDOW}"));
    let (by_name, by_other) =
        (named("user", WINDOW), named("user", &format!("value: '*', {WINDOW}")));
    let renamed = user("limits: { name: other, algorithm: fixed_window, rate: 10/day }");
    use CounterChange::{Continued, Converted, Dropped, New, OtherAlgorithm, OtherCounters};
    for (old, new, expected) in [
        (&window, &window, Continued),
        (&window, &larger, Converted),
        (&window, &shadow, Continued),
        (&window, &bucket, OtherAlgorithm),
        (&window, &renamed, OtherAlgorithm),
        (&unlimited, &window, New),
        (&window, &unlimited, Dropped),
        (&any, &shared, OtherCounters),
        (&window, &one, New),
        (&by_name, &by_other, Continued),
    ] {
        let (change, is_used) = change_and_usage(old, new);
        assert_eq!(change, expected, "{old} to {new}");
        if expected != Dropped {
            assert_eq!(is_used, change.is_continued(), "{old} to {new}");
        }
    }
}
