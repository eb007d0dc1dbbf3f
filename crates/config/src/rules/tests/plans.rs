//! Limits by plan, schedules, and overrides: what they become, and the message for each mistake.

use super::*;
use sluicegate_rules::overrides::OverrideChange;
use sluicegate_rules::resolve::resolve;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::RuleSet;
use sluicegate_rules::zone::moment_of;

const TREE: &str = "domain: d
plans: [free, pro]
descriptors:
  - key: plan
    descriptors:
      - key: user_id
        id: requests
        limits:
          by: plan
          plans:
            free: { algorithm: fixed_window, rate: 10/h }
            pro: [{ algorithm: fixed_window, rate: 100/h }, { algorithm: concurrency, max: 5, lease: 1m }]
          others: deny
        descriptors:
          - key: path
            id: paths
            replaces: [requests]
            limits: { algorithm: fixed_window, rate: 1/h }
";

fn rules_at(text: &str, at: &str) -> RuleSet {
    let resolved = resolve(vec![domain(text)], moment_of(at).unwrap()).unwrap();
    RuleSet::new(resolved.domains).unwrap()
}

#[test]
fn each_plan_has_a_node_and_the_ids_name_it() {
    let rules = rules_at(TREE, "2026-11-20T00:00:00Z");
    let ids: Vec<String> = rules.rules().map(|no| rules.id(no)).collect();
    let expected =
        ["paths@free", "requests@free", "paths@pro", "requests@pro", "paths", "requests"];
    assert_eq!(ids, expected.map(|id| format!("d/{id}")));
    let paths: Vec<String> = rules.rules().map(|no| rules.path_of(no)).collect();
    assert_eq!(paths[1], "d/plan=free/user_id");
    let counts = |no| match &rules.rule(no).limits {
        Limits::Native(limits) => limits.len(),
        _ => 0,
    };
    assert_eq!(rules.rules().map(counts).collect::<Vec<_>>(), [1, 1, 1, 2, 1, 1]);
    let replaced = |no| rules.rule(no).replaces().to_vec().join(" ");
    let others = rules.rules().nth(4).unwrap();
    assert_eq!(replaced(others), "requests requests@free requests@pro", "every plan's is replaced");
    assert!(warned(TREE).is_empty(), "{:?}", warned(TREE));
}

#[test]
fn the_plan_may_be_the_value_of_the_descriptor_itself() {
    let text = "domain: d\nplans: [free]\ndescriptors:\n- key: user\n  descriptors:\n  - key: plan\n    \
                limits: { by: plan, plans: { free: { algorithm: fixed_window, rate: 1/h } }, others: unlimited }\n";
    let rules = rules_at(text, "2026-11-20T00:00:00Z");
    let ids: Vec<String> = rules.rules().map(|no| rules.id(no)).collect();
    assert_eq!(ids, ["d/user/plan=free", "d/user/plan"]);
    assert_eq!(rules.rule(rules.rules().last().unwrap()).limits, Limits::Unlimited);
}

fn with_plan(key: &str, plans: &str, limits: &str) -> String {
    format!(
        "domain: d\n{plans}\ndescriptors:\n- {{ {key}, descriptors: [{{ key: user, limits: {limits} }}] }}\n"
    )
}

#[test]
fn mistakes_of_plans_are_named() {
    const ONE: &str = "{ by: plan, plans: { free: deny }, others: deny }";
    let table = [
        (
            "key: plan",
            "plans: [fre]",
            ONE,
            "4:78: descriptors[0].descriptors[0].limits.plans.free: unknown plan, got `free`; did you mean `fre`? the plans of the domain are `fre`",
        ),
        (
            "key: plan",
            "plans: [fre]",
            ONE,
            "plans[0]: no limits are given for this plan, got `fre`; give it some",
        ),
        (
            "key: plan",
            "# none",
            ONE,
            "unknown plan, got `free`; name the plans at the top of the file",
        ),
        (
            "key: tier",
            "plans: [free]",
            ONE,
            "limits.by: must be the key of an entry on the path to this descriptor, got `plan`; write `tier` or `user`",
        ),
        (
            "key: plan, value: free",
            "plans: [free]",
            ONE,
            "limits below are by the plan in `plan`, so it must match any value",
        ),
        (
            "key: plan, shared: true",
            "plans: [free]",
            ONE,
            "cannot share a counter; remove `shared`",
        ),
        (
            "key: plan",
            "plans: [free]",
            "{ by: plan, plans: { free: deny } }",
            "limits.others: is missing: what applies to a request of another plan",
        ),
        (
            "key: plan",
            "plans: [free]",
            "{ by: plan, others: deny }",
            "limits.plans: is missing; add the limits of each plan",
        ),
        (
            "key: plan",
            "plans: [free]",
            "{ by: plan, plans: { free: dney }, others: deny }",
            "limits.plans.free: must be limits, `unlimited` or `deny`, got `dney`",
        ),
        ("key: plan", "plans: [free, free]", ONE, "plans[1]: is named twice, first on line 2"),
        (
            "key: plan",
            "plans: free",
            ONE,
            "plans: must be a list of 1 to 64 names of plans, got `free`",
        ),
        ("key: plan", "plans: [f*]", ONE, "plans[0]: must be one value of the entry, without `*`"),
    ];
    for (key, plans, limits, message) in table {
        let problems = told(&with_plan(key, plans, limits));
        assert!(problems.iter().any(|one| one.contains(message)), "{message}\n{problems:#?}");
    }
    let beside = "domain: d\nplans: [free]\ndescriptors:\n- { key: plan, value: fr*, limits: { algorithm: \
                  fixed_window, rate: 1/h } }\n- { key: plan, limits: { by: plan, plans: { free: deny }, \
                  others: deny } }\n";
    let problems = told(beside);
    assert!(problems[0].contains("4:3: descriptors: matches the plan `free`"), "{problems:?}");
}

const SCHEDULE: &str = "domain: d
plans: [free]
descriptors:
  - key: plan
    limits:
      by: plan
      plans: { free: { algorithm: fixed_window, rate: 10/h } }
      others: unlimited
    schedule:
      - days: mon-fri
        from: 09:00
        until: 18:00
        zone: Europe/Berlin
        limits: { by: plan, plans: { free: { algorithm: fixed_window, rate: 2/h } }, others: deny }
";

#[test]
fn a_schedule_has_limits_by_plan_too() {
    let shown = |at: &str| {
        let rules = rules_at(SCHEDULE, at);
        let one = |no| match &rules.rule(no).limits {
            Limits::Native(limits) => {
                limits[0].at(sluicegate_core::time::Timestamp::EPOCH).capacity()
            }
            _ => None,
        };
        rules.rules().map(one).collect::<Vec<_>>()
    };
    assert_eq!(shown("2026-11-20T07:59:59Z"), [Some(10), None]);
    assert_eq!(shown("2026-11-20T08:00:00Z"), [Some(2), Some(0)]);
    assert_eq!(shown("2026-11-20T17:00:00Z"), [Some(10), None]);
    let error = RuleSet::new(vec![domain(SCHEDULE)]).unwrap_err().to_string();
    assert!(error.contains("change by themselves"), "{error}");
}

#[test]
fn mistakes_of_schedules_are_named() {
    const LIMITS: &str = "limits: { algorithm: fixed_window, rate: 1/h }";
    let table = [
        ("from: 9", "is missing", "schedule[0].limits: is missing; add the limits that hold then"),
        (
            "limits: deny",
            "",
            "schedule[0]: has neither `days` nor `from` and `until`, so it always holds",
        ),
        (
            "limits: deny, days: mon-fry",
            "",
            "days: must be days of the week, got `mon-fry`; did you mean `fri`?",
        ),
        (
            "limits: deny, from: 25:00",
            "",
            "from: must be a time of the day from `00:00` to `24:00`, got `25:00`",
        ),
        ("limits: deny, from: 9, until: 09:00", "", "until: must differ from `from`, got `09:00`"),
        ("limits: deny, from: 24:00", "", "from: must be before the end of the day"),
        ("limits: deny, days: mon, zone: Mars", "", "zone: unknown time zone, got `Mars`"),
        ("limits: deny, day: mon", "", "unknown field, got `day`; did you mean `days`?"),
    ];
    for (part, _, message) in table {
        let problems = told(&one(&format!("key: k, {LIMITS}, schedule: [{{ {part} }}]")));
        assert!(problems.iter().any(|one| one.contains(message)), "{message}\n{problems:#?}");
    }
    let alone = told(&one("key: k, schedule: [{ days: mon, limits: deny }]"));
    assert!(alone[0].contains("schedule: has no effect without `limits`"), "{alone:?}");
    let unfit = told(&one(
        "key: k, consistency: leased, limits: { algorithm: fixed_window, rate: 1/h }, schedule: [{ days: mon, \
         limits: { algorithm: cycle, permits: 5, period: 1m } }]",
    ));
    assert!(unfit[0].contains("consistency: `leased` needs"), "{unfit:?}");
}

const ENVOY: &str = "domain: d
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
";

#[test]
fn files_of_envoy_have_overrides_and_stay_in_its_form() {
    let text = format!(
        "{ENVOY}overrides:\n  - {{ match: {{ user: acme* }}, factor: 2.5, until: 2026-12-01T00:00:00Z, note: sale }}\n"
    );
    let loaded = domain(&text);
    assert_eq!(loaded.joint, sluicegate_rules::domain::Joint::Joined);
    assert_eq!(loaded.overrides[0].change, OverrideChange::Factor(2_500));
    let rules = rules_at(&text, "2026-11-20T00:00:00Z");
    let limits: Vec<_> =
        rules.rules().map(|no| (rules.id(no), rules.rule(no).limits.clone())).collect();
    let per_minute = |requests_per_unit| Limits::Envoy {
        requests_per_unit,
        unit: sluicegate_rules::unit::Unit::Minute,
    };
    assert_eq!(limits[0], ("d/user=acme*".to_owned(), per_minute(25)));
    assert_eq!(limits[1], ("d/user".to_owned(), per_minute(10)));
}

#[test]
fn a_file_of_overrides_alone_belongs_to_the_domain_of_another() {
    let block = "domain: d\noverrides: [{ match: { user: eve }, block: true, until: 2026-12-01T00:00:00Z, note: n }]\n";
    for files in [[block, ENVOY], [ENVOY, block]] {
        let sources = files.map(|text| source("f", text));
        let loaded = load(&sources, &Options::default()).unwrap();
        assert_eq!((loaded.domains.len(), loaded.domains[0].overrides.len()), (1, 1));
        assert_eq!(loaded.domains[0].descriptors.len(), 1);
    }
    let sources = [block, ENVOY, ENVOY].map(|text| source("f", text));
    let invalid = load(&sources, &Options::default()).unwrap_err();
    assert!(invalid.to_string().contains("duplicate domain"), "{invalid}");
}

#[test]
fn mistakes_of_overrides_are_named() {
    const WHEN: &str = "until: 2026-12-01T00:00:00Z, note: n";
    let table = [
        (
            "match: { user: eve }, block: true, note: n".to_owned(),
            "overrides[0].until: is missing; add it, like `until: 2026-12-01T00:00:00Z`",
        ),
        (
            "match: { user: eve }, block: true, until: 2026-12-01T00:00:00Z".to_owned(),
            "note: is missing",
        ),
        (
            "match: { user: eve }, block: true, until: tomorrow, note: n".to_owned(),
            "until: must be a date and time with its offset, got `tomorrow`",
        ),
        (
            format!("match: {{ user: eve }}, {WHEN}"),
            "must have exactly one of `block`, `unlimited`, `limits` and `factor`",
        ),
        (
            format!("match: {{ user: eve }}, block: true, factor: 2, {WHEN}"),
            "must have exactly one of",
        ),
        (format!("block: true, {WHEN}"), "match: is missing; add whom it is for"),
        (format!("match: {{}}, block: true, {WHEN}"), "match: must have an entry, got none"),
        (
            format!("match: {{ user: eve, ip: 5 }}, block: true, {WHEN}"),
            "one entry decides about the whole request",
        ),
        (
            format!("match: {{ user: eve }}, rule: user, block: true, {WHEN}"),
            "a block is for the whole request, got a `rule` too",
        ),
        (
            format!("match: {{ usr: eve }}, factor: 2, {WHEN}"),
            "no descriptor has this key, got `usr`; did you mean `user`?",
        ),
        (
            format!("match: {{ user: eve }}, rule: usr, factor: 2, {WHEN}"),
            "changes no rule with the entries of `match` on its path, got `usr`; did you mean `user`?",
        ),
        (
            format!("match: {{ user: 'a*b' }}, factor: 2, {WHEN}"),
            "limits can be changed for one value, a prefix such as `acme*` or a network",
        ),
        (format!("match: {{ user: eve }}, factor: 0, {WHEN}"), "factor: must be above `0`"),
        (
            format!("match: {{ user: eve }}, block: false, {WHEN}"),
            "block: must be `true`, got `false`",
        ),
        (
            format!("match: {{ user: eve }}, blok: true, {WHEN}"),
            "unknown field, got `blok`; did you mean `block`?",
        ),
    ];
    for (fields, message) in table {
        let problems = told(&format!("{ENVOY}overrides: [{{ {fields} }}]\n"));
        assert!(problems.iter().any(|one| one.contains(message)), "{message}\n{problems:#?}");
    }
}
