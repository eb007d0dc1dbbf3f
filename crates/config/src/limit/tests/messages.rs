//! The exact message of each problem.

use super::*;

const ALGORITHMS: &str = "choose `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, \
                          `sliding_window`, `smooth_bursty`, `warm_up`, `cycle`, \
                          `concurrency`, `tally` or `unlimited`";

#[test]
fn documents_that_are_no_limits_are_refused() {
    let like = "write it like `{ algorithm: token_bucket, rate: 10/s }`";
    let many = "- algorithm: unlimited\n".repeat(33);
    let table = [
        ("", format!("x:1:1: there is nothing to read; {like}")),
        ("# no\n---\n", format!("x:1:1: there is nothing to read; {like}")),
        (
            "10/s",
            format!("x:1:1: a limit must be a mapping, or a list of them, got `10/s`; {like}"),
        ),
        (
            "[]",
            "x:1:1: must hold 1 to 32 limits, got `0`; write it like `[{ algorithm: token_bucket, \
             rate: 10/s }]`"
                .to_owned(),
        ),
        (
            &many,
            "x:1:1: must hold 1 to 32 limits, got `33`; give the others to another rule".to_owned(),
        ),
        (
            "- algorithm: unlimited\n- 5",
            format!("x:2:3: [1]: a limit must be a mapping, got `5`; {like}"),
        ),
        (
            "- algorithm: unlimited\n- []",
            format!("x:2:3: [1]: a limit must be a mapping, got a list; {like}"),
        ),
        ("-", format!("x:1:2: [0]: a limit must be a mapping, got nothing; {like}")),
        ("{}", format!("x:1:1: algorithm: is missing; {ALGORITHMS}")),
        (
            "algorithm: unlimited\n---\nalgorithm: unlimited",
            "x:2:1: a second document begins here and only one is read; remove the line `---`"
                .to_owned(),
        ),
        (
            "{ algorithm: unlimited",
            "x:1:23: not YAML: while parsing a flow mapping, did not find expected ',' or '}'; \
             check the indentation, quotes and brackets before this place"
                .to_owned(),
        ),
    ];
    for (text, expected) in table {
        assert_eq!(told(text), [expected]);
    }
}

#[test]
fn each_mistake_has_its_message() {
    let table = [
        // algorithm
        ("rate: 10/s", "1:1: algorithm: is missing; ALGORITHMS"),
        (
            "algorithm:",
            "1:1: algorithm: has no value, got nothing; write it like `algorithm: token_bucket`, \
             or remove the field",
        ),
        (
            "algorithm: [a]",
            "1:12: algorithm: must be one value, got a list; write it like `algorithm: \
             token_bucket`",
        ),
        ("algorithm: magic", "1:12: algorithm: unknown algorithm, got `magic`; ALGORITHMS"),
        (
            "algorithm: unlimted",
            "1:12: algorithm: unknown algorithm, got `unlimted`; did you mean `unlimited`? \
             ALGORITHMS",
        ),
        (
            "algorithm: Unlimited",
            "1:12: algorithm: unknown algorithm, got `Unlimited`; did you mean `unlimited`? \
             ALGORITHMS",
        ),
        // fields that do not belong
        (
            "algorithm: token_bucket\nrate: 10/s\nbrust: 5",
            "3:1: brust: unknown field, got `brust`; did you mean `burst`? the fields here are \
             `algorithm`, `name`, `rate`, `burst`, `initial`, `refill` and `forget_after`",
        ),
        (
            "algorithm: unlimited\nrat: 10/s",
            "2:1: rat: unknown field, got `rat`; the fields here are `algorithm` and `name`",
        ),
        (
            "algorithm: leaky_bucket\nrate: 10/s\nburst: 5",
            "3:1: burst: belongs to `token_bucket`, got it with `leaky_bucket`; remove it, the \
             fields here are `algorithm`, `name`, `rate` and `queue`",
        ),
        (
            "algorithm: concurrency\nmax: 1\nlease: 1s\nforget_after: 1h",
            "4:1: forget_after: belongs to `token_bucket` and `smooth_bursty`, got it with \
             `concurrency`; remove it, the fields here are `algorithm`, `name`, `max` and `lease`",
        ),
        (
            "algorithm: sliding_window\nrate: 10/s\nrate: 20/s",
            "3:1: rate: is given twice, first on line 2; remove one",
        ),
        (
            "algorithm: unlimited\n<<: { burst: 5 }",
            "2:7: burst: belongs to `token_bucket`, got it with `unlimited`; remove it, the fields \
             here are `algorithm` and `name`",
        ),
        // name
        (
            "algorithm: unlimited\nname: ''",
            "2:7: name: must not be empty, got ``; write a word, or leave the field out",
        ),
        (
            "algorithm: unlimited\nname:",
            "2:1: name: has no value, got nothing; write it like `name: burst`, or remove the \
             field",
        ),
        (
            "algorithm: unlimited\nname: \"a\\nb\"",
            "2:7: name: must be on one line, got `a\\nb`; write a plain word",
        ),
        (
            "algorithm: unlimited\nname: {}",
            "2:7: name: must be one value, got a mapping; write it like `name: burst`",
        ),
        (
            "- { name: a, algorithm: unlimited }\n- { name: a, algorithm: unlimited }",
            "2:11: [1].name: must differ from the name on line 1, got `a`; limits are told apart \
             by it, choose another",
        ),
        // token_bucket
        ("algorithm: token_bucket", "1:1: rate: is missing; add it, like `rate: 10/s`"),
        (
            "algorithm: token_bucket\nrate: ~",
            "2:1: rate: has no value, got nothing; write it like `rate: 10/s`, or remove the field",
        ),
        (
            "algorithm: token_bucket\nrate: 10/x",
            "2:7: rate: unknown unit `x`, got `10/x`; use `us`, `ms`, `s`, `m`, `h`, `day`, \
             `week`, `month` or `year`",
        ),
        (
            "algorithm: token_bucket\nrate: 10/s\nburst: 0",
            "3:8: burst: must be at least `1`, got `0`; to let nothing pass write `rate: 0/s`",
        ),
        (
            "algorithm: token_bucket\nrate: 1/day\nburst: 1_000_000",
            "3:8: burst: would take more than 142 years to fill at `1/day`, got `1_000_000`; \
             lower it, or raise `rate`",
        ),
        (
            "algorithm: token_bucket\nrate: 10/s\ninitial: 11",
            "3:10: initial: must be at most `10`, got `11`; lower it, or raise `burst`",
        ),
        (
            "algorithm: token_bucket\nrate: 10/s\nrefill: intervall",
            "3:9: refill: must be `greedy`, `interval` or `aligned`, got `intervall`; did you \
             mean `interval`? write one of these",
        ),
        (
            "algorithm: token_bucket\nrate: 10/s\nforget_after: 0s",
            "3:15: forget_after: must be longer than nothing, got `0s`; write at least `1us`",
        ),
        // leaky_bucket
        (
            "algorithm: leaky_bucket\nrate: 1/30s\nqueue: 1000000000",
            "3:8: queue: would take more than 142 years to fill at `1/30s`, got `1000000000`; \
             lower it, or raise `rate`",
        ),
        (
            "algorithm: leaky_bucket\nrate: 10/s\nqueue: 9007199254740991",
            "3:8: queue: must be at most `9007199254740990`, got `9007199254740991`; lower it, or \
             raise `rate`",
        ),
        // fixed_window
        (
            "algorithm: fixed_window\nrate: 10/s\nalign: calender",
            "3:8: align: must be `clock`, `first_hit` or `calendar`, got `calender`; did you mean \
             `calendar`? write one of these",
        ),
        (
            "algorithm: fixed_window\nrate: 10/day\nzone: UTC",
            "3:7: zone: has a meaning only with `align: calendar`, got `UTC`; remove it, or write \
             `align: calendar`",
        ),
        (
            "algorithm: fixed_window\nrate: 10/24h\nalign: calendar",
            "2:7: rate: must be per exactly one day, week, month or year with `align: calendar`, \
             got `10/24h`; write it like `10000/day`, or use `align: clock`",
        ),
        (
            "algorithm: fixed_window\nrate: 10/day\nalign: calendar\nzone: Europe/Berln",
            "4:7: zone: unknown time zone, got `Europe/Berln`; use a name of the IANA time zone \
             database, like `Europe/Berlin`",
        ),
        // sliding_log
        (
            "algorithm: sliding_log",
            "1:1: rate: is missing; add it, like `rate: 5/m`, or several as `rates: [10/m, 2 per \
             3s]`",
        ),
        (
            "algorithm: sliding_log\nrate: 10/s\nrates: [10/s]",
            "3:8: rates: stands beside `rate`, got both; keep one of them",
        ),
        (
            "algorithm: sliding_log\nrates: 10/s",
            "2:8: rates: must be a list of rates, got `10/s`; write it like `rates: [10/m, 2 per \
             3s]`",
        ),
        (
            "algorithm: sliding_log\nrates: []",
            "2:8: rates: must hold 1 to 8 rates, got `0`; write it like `rates: [10/m, 2 per 3s]`",
        ),
        (
            "algorithm: sliding_log\nrates: [1/s, 2/s, 3/s, 4/s, 5/s, 6/s, 7/s, 8/s, 9/s]",
            "2:8: rates: must hold 1 to 8 rates, got `9`; write it like `rates: [10/m, 2 per 3s]`",
        ),
        (
            "algorithm: sliding_log\nrates: [1/s, 20000/m]",
            "2:14: rates[1]: must be at most `10000`, got `20000/m`; lower its number, or use \
             `sliding_window`, which keeps two counts and no log",
        ),
        (
            "algorithm: sliding_log\nrates: [1/s, ~]",
            "2:14: rates[1]: must be one value, got nothing; write it like `10/s`",
        ),
        (
            "algorithm: sliding_log\nrate: 3000/m\ncount_denied: true",
            "2:7: rate: must be at most `2500`, got `3000/m`; lower its number, or leave out \
             `count_denied`, which needs room for denied hits",
        ),
        (
            "algorithm: sliding_log\nrate: 3000/m\ncount_denied: yes",
            "3:15: count_denied: must be `true` or `false`, got `yes`; write one of these",
        ),
        (
            "algorithm: sliding_log\nrate: 3/m\nmin_gap: 200",
            "3:10: min_gap: has no unit, got `200`; write it like `200ms`, `30s` or `1day`",
        ),
        // sliding_window
        (
            "algorithm: sliding_window\nrate: 3/m\nrounding: down",
            "3:11: rounding: must be `floor` or `up`, got `down`; write one of these",
        ),
        (
            "algorithm: sliding_window\nrate: 3/m\nslices: 61",
            "3:9: slices: must be from `2` to `60`, got `61`; leave it out for two counts, or use \
             `sliding_log` for an exact window",
        ),
        (
            "algorithm: sliding_window\nrate: 3/m\nslices: 1",
            "3:9: slices: must be from `2` to `60`, got `1`; leave it out for two counts, or use \
             `sliding_log` for an exact window",
        ),
        (
            "algorithm: sliding_window\nrate: 3/m\nslices: 6\nrounding: up",
            "4:11: rounding: has no meaning with `slices`, which count whole hits, got `up`; \
             remove one of them",
        ),
        // smooth_bursty
        (
            "algorithm: smooth_bursty\nrate: 3/m\nmax_burst: 143 years",
            "3:12: max_burst: must last at most 142 years, got `143 years`; write a shorter time",
        ),
        // warm_up
        ("algorithm: warm_up\nrate: 3/m", "1:1: warm_up: is missing; add it, like `warm_up: 10s`"),
        (
            "algorithm: warm_up\nrate: 3/m\nwarm_up: 90m",
            "3:10: warm_up: must last at most `1h`, got `90m`; write a shorter time",
        ),
        (
            "algorithm: warm_up\nrate: 3/m\nwarm_up: 1m\ncold_factor: 0.5",
            "4:14: cold_factor: must be from `1` to `100`, got `0.5`; leave it out for `3`",
        ),
        (
            "algorithm: warm_up\nrate: 9007199254740991/s\nwarm_up: 1m\ncold_factor: 2.711",
            "2:7: rate: cannot be held exactly together with this `cold_factor`, got \
             `9007199254740991/s`; write a rounder rate, or leave out `cold_factor`",
        ),
        // cycle, concurrency
        ("algorithm: cycle\npermits: 5", "1:1: period: is missing; add it, like `period: 500ms`"),
        ("algorithm: cycle\nperiod: 5s", "1:1: permits: is missing; add it, like `permits: 50`"),
        (
            "algorithm: cycle\npermits: 1.5\nperiod: 5s",
            "2:10: permits: must be a whole number, got `1.5`; write it like `50` or `1_000`",
        ),
        ("algorithm: concurrency\nmax: 5", "1:1: lease: is missing; add it, like `lease: 30s`"),
        (
            "algorithm: concurrency\nmax: 5000000\nlease: 30s",
            "2:6: max: must be at most `1000000`, got `5000000`; write less",
        ),
        // tally
        ("algorithm: tally", "1:1: rate: is missing; add it, like `rate: 10/s`"),
        (
            "algorithm: tally\nrate: 10/s\nburst: 5",
            "3:1: burst: belongs to `token_bucket`, got it with `tally`; remove it, the fields here \
             are `algorithm`, `name` and `rate`",
        ),
        (
            "algorithm: tallly\nrate: 10/s",
            "1:12: algorithm: unknown algorithm, got `tallly`; did you mean `tally`? ALGORITHMS",
        ),
    ];
    for (text, expected) in table {
        let expected = format!("x:{}", expected.replace("ALGORITHMS", ALGORITHMS));
        assert_eq!(told(text), [expected], "{text}");
    }
}

#[test]
fn all_mistakes_come_at_once_in_the_order_of_the_text() {
    let text = "\
- { name: a, algorithm: token_buket, rate: 10/x, burst: 0, initial: many }
- { name: a, algorithm: concurrency, max: 5000000, leas: 30s }
- algorithm: magic
  rate: fast
  rates: [1/s, 2]
  foo: 1
- { algorithm: warm_up, rate: ten, warm_up: 2h, cold_factor: 0.5 }
- { algorithm: token_bucket, rate: ten, burst: 5, initial: 6 }
- { algorithm: token_bucket, rate: 1/day, burst: 500000, initial: 500001 }
- { algorithm: fixed_window, rate: 5/h, align: calendar, zone: Atlantis }
";
    let paths: Vec<_> = limits("x", text)
        .unwrap_err()
        .iter()
        .map(|problem| format!("{}:{} {}", problem.line(), problem.column(), problem.path()))
        .collect();
    let expected = [
        "1:25 [0].algorithm",
        "1:44 [0].rate",
        "1:57 [0].burst",
        "1:69 [0].initial",
        "2:3 [1].lease",
        "2:11 [1].name",
        "2:43 [1].max",
        "2:52 [1].leas",
        "3:14 [2].algorithm",
        "4:9 [2].rate",
        "5:16 [2].rates[1]",
        "6:3 [2].foo",
        "7:31 [3].rate",
        "7:45 [3].warm_up",
        "7:62 [3].cold_factor",
        "8:36 [4].rate",
        "8:60 [4].initial",
        "9:50 [5].burst",
        "9:67 [5].initial",
        "10:36 [6].rate",
        "10:64 [6].zone",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn the_table_of_fields_is_what_the_readers_take() {
    // Without its reader, a field would be rejected as unknown by its own algorithm.
    for form in &FORMS {
        for field in form.fields {
            let text = format!("{{ algorithm: {}, {field}: [[]] }}", form.name);
            let told = told(&text);
            assert!(told.iter().all(|told| !told.contains("belongs to")), "{told:?}");
        }
        let all = algorithms::field_names();
        for field in all.iter().filter(|field| !form.fields.contains(field)).skip(2) {
            let told = told(&format!("{{ algorithm: {}, {field}: 5 }}", form.name));
            assert!(told.iter().any(|told| told.contains("belongs to")), "{told:?}");
        }
    }
    // Where the algorithm is unknown every field is still read.
    for field in algorithms::field_names() {
        let told = told(&format!("{{ algorithm: magic, {field}: }}"));
        assert!(told.iter().all(|told| !told.contains("unknown field")), "{told:?}");
    }
}
