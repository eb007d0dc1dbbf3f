//! `sluicegate try`, as a person or a script uses it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use support::{root, shell, sluicegate};

const BUCKET: &str = "{ algorithm: token_bucket, rate: 5/s, burst: 2 }";

#[test]
fn answers_one_line_for_each_line() {
    let run =
        sluicegate(&["try", "--limit", BUCKET], "{\"at_us\":0}\n\n{\"at_us\":0,\"cost\":3}\n");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            r#"{"allowed":true,"limit":"token_bucket","remaining":1,"retry_after_us":0,"reset_after_us":200000,"wait_us":0}"#,
            r#"{"allowed":false,"never":true,"max_cost":2,"limit":"token_bucket","remaining":1,"retry_after_us":null,"reset_after_us":200000,"wait_us":0}"#,
        ]
    );
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "denials are answers");
}

#[test]
fn a_bad_line_is_an_error_in_its_place_and_the_rest_goes_on() {
    let lines =
        "{\"at_us\":0}\n{\"at_us\":-1}\nnonsense\n{\"at_us\":0,\"cots\":1}\n{\"at_us\":0}\n";
    let run = sluicegate(&["try", "--limit", BUCKET], lines);
    let printed: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(run.code, 1);
    assert_eq!(printed.len(), 5);
    assert_eq!(
        printed[1],
        r#"{"error":"line 2: `at_us` must be a whole number from 0 to 4503599627370495, got `-1`"}"#
    );
    assert!(printed[2].starts_with(r#"{"error":"line 3: not JSON"#), "{}", printed[2]);
    assert_eq!(
        printed[3],
        r#"{"error":"line 4: unknown field `cots` for `hit`: did you mean `cost`?"}"#
    );
    assert!(printed[4].contains(r#""remaining":0"#), "bad lines leave no trace: {}", printed[4]);
}

#[test]
fn hostile_lines_are_errors_not_crashes() {
    let long = format!("{{\"at_us\":0,\"key\":\"{}\"}}", "k".repeat(3 << 20));
    let deep = "[".repeat(100_000);
    let lines = format!(
        "{long}\n{deep}\n{{\"at_us\":1e300}}\n{{\"at_us\":0,\"cost\":9007199254740992}}\n\u{0}\n"
    );
    let run = sluicegate(&["try", "--limit", BUCKET], &lines);
    assert_eq!(run.stdout.lines().count(), 5, "{}", run.stdout);
    assert!(
        run.stdout.lines().all(|line| line.starts_with(r#"{"error":"line "#)),
        "{}",
        run.stdout
    );
    assert_eq!(run.code, 1);
}

#[test]
fn a_bad_limit_exits_1_and_names_every_problem() {
    let limit = "{ algorithm: token_buckt, rate: 5/x }";
    let run = sluicegate(&["try", "--limit", limit], "");
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("--limit:1:"), "{}", run.stderr);
    assert!(run.stderr.contains("did you mean `token_bucket`?"), "{}", run.stderr);
}

#[test]
fn what_is_broken_exits_2() {
    let run = sluicegate(&["try", "--limit-file", "/nowhere/limit.yaml"], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("cannot open `/nowhere/limit.yaml`"), "{}", run.stderr);
    let run = sluicegate(&["try"], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--example token_bucket"), "{}", run.stderr);
    assert_eq!(sluicegate(&["try", "--no-such-flag"], "").code, 2);
}

#[test]
fn soft_elastic_and_shadow_are_tried_with_mode_and_load() {
    let window = "{ algorithm: fixed_window, rate: 10/m }";
    let hit = |n: usize| "{\"at_us\":0,\"cost\":10}\n".to_owned() + &"{\"at_us\":0}\n".repeat(n);
    let run = sluicegate(&["try", "--limit", window, "--mode", "{ soft: 10% }"], &hit(2));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(
        lines[1].contains(r#""allowed":true"#) && lines[1].contains(r#""soft":true"#),
        "{}",
        lines[1]
    );
    assert!(lines[2].contains(r#""allowed":false"#), "{}", lines[2]);

    let run = sluicegate(&["try", "--limit", window, "--mode", "shadow"], &hit(1));
    let last = run.stdout.lines().last().unwrap();
    assert!(
        last.contains(r#""allowed":true"#) && last.contains(r#""would_allow":false"#),
        "{last}"
    );

    let mode = "{ elastic: { up_to: 2x, below: 70%, above: 85% } }";
    let lines = "{\"at_us\":0,\"cost\":10}\n{\"at_us\":0}\n{\"at_us\":1,\"load\":0.5}\n{\"at_us\":2,\"load\":\"90%\"}\n";
    let run = sluicegate(&["try", "--limit", window, "--mode", mode], lines);
    let allowed: Vec<bool> = run.stdout.lines().map(|l| l.contains(r#""allowed":true"#)).collect();
    assert_eq!(allowed, [true, false, true, false], "{}", run.stdout);
    assert!(run.stdout.lines().nth(2).unwrap().contains(r#""elastic":true"#));
}

#[test]
fn every_worked_example_of_the_help_can_be_pasted() {
    let help = sluicegate(&["try", "--help"], "").stdout;
    let mut pasted = 0;
    let mut rest = help.as_str();
    while let Some(start) = rest.find("sluicegate try --limit '") {
        rest = &rest[start..];
        let Some(end) = rest.find("\nEND\n") else {
            break;
        };
        let run = shell(&rest[..end + 5], &root());
        assert_eq!(run.code, 0, "{}", run.stderr);
        rest = &rest[end + 5..];
        assert!(
            rest.starts_with(&run.stdout),
            "the help promises\n{rest}\nbut it prints\n{}",
            run.stdout
        );
        pasted += 1;
    }
    assert_eq!(pasted, 12, "one for each algorithm, and slices");
}

#[test]
fn a_script_that_is_wrong_says_where() {
    let folder = std::env::temp_dir();
    let path = folder.join(format!("sluicegate-script-{}.txt", std::process::id()));
    let text = format!("# wrong\nlimit {BUCKET}\n0s hit -> allow remaining=1\n0s hit -> deny\n");
    std::fs::write(&path, text).unwrap();
    let run = sluicegate(&["try", "--script", path.to_str().unwrap()], "");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("line 4: expected deny, got allow"), "{}", run.stderr);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let line = "yes '{\"at_us\":0}' | head -n 100000 | sluicegate try --limit '{ algorithm: unlimited }' | head -n 1";
    let run = shell(&format!("set -o pipefail; {line}"), &root());
    assert!(
        !run.stderr.contains("panicked") && !run.stderr.contains("Broken pipe"),
        "{}",
        run.stderr
    );
}

#[test]
fn the_same_lines_get_the_same_answers_from_a_redis_and_nothing_stays_there() {
    let server = sluicegate_testkit::redis::Single::start();
    let lines =
        "{\"at_us\":0}\n{\"at_us\":0,\"cost\":3}\n{\"at_us\":5,\"op\":\"take\",\"cost\":9}\n";
    let here = sluicegate(&["try", "--limit", BUCKET], lines);
    let there = sluicegate(&["try", "--limit", BUCKET, "--store", server.url()], lines);
    assert_eq!((there.code, there.stdout, there.stderr), (0, here.stdout, String::new()));
    assert_eq!(server.cli(&["DBSIZE"]), "0");
}

#[test]
fn a_store_that_nobody_answers_at_is_named_with_the_remedy() {
    let url = {
        let server = sluicegate_testkit::redis::Single::start();
        server.url().replace("redis://", "redis://:secret@")
    };
    let run = sluicegate(&["try", "--limit", BUCKET, "--store", &url], "{\"at_us\":0}\n");
    let address = url.rsplit('@').next().unwrap();
    assert!(run.stderr.contains(address) && run.stderr.contains("start a Redis"), "{}", run.stderr);
    assert!(!run.stderr.contains("secret"), "{}", run.stderr);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
}
