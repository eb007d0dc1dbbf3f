//! `sluicegate diff`: what a reload changes.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use serde_json::Value;
use support::{Folder, sluicegate};

const OLD: &str = "domain: shop
deny: [{ key: remote_address, value: 192.0.2.0/24 }]
descriptors:
  - key: user
    limits:
      - { name: day, algorithm: fixed_window, rate: 1000/day }
      - { name: burst, algorithm: token_bucket, rate: 10/s, burst: 20 }
  - { key: old, limits: { algorithm: fixed_window, rate: 10/m } }
  - { key: same, limits: { algorithm: fixed_window, rate: 10/m } }
";
const NEW: &str = "domain: shop
deny: [{ key: remote_address, value: 198.51.100.0/24 }]
descriptors:
  - key: user
    mode: shadow
    limits:
      - { name: day, algorithm: fixed_window, rate: 2000/day }
      - { name: burst, algorithm: sliding_window, rate: 10/s }
  - { key: same, limits: { algorithm: fixed_window, rate: 10/m } }
  - { key: new, limits: { algorithm: fixed_window, rate: 10/m } }
";
const TEXT: &str = "domain shop: changed, 1 rule unchanged

  ~ shop/user
    was       day: fixed window 1000/day
    was       burst: token bucket 10/s burst 20
    was       hard
    is        day: fixed window 2000/day
    is        burst: sliding window 10/s
    is        shadow: never denies
    counters  continue in part
              day: continue: what was used stays used
              burst: start anew: the algorithm differs
  + shop/new
    is        fixed window 10/m
    is        hard
    is        strict
    is        a counter for each new
    counters  new
  - shop/old
    was       fixed window 10/m
    was       hard
    was       strict
    was       a counter for each old
    counters  dropped
  ~ deny list
    without   remote_address=192.0.2.0/24
    with      remote_address=198.51.100.0/24

1 rule changed, 1 rule added, 1 rule removed, 1 setting changed, counters of 1 rule start anew
";

#[test]
fn differences_are_shown_with_what_becomes_of_the_counters() {
    let folder = Folder::new();
    let (old, new) = (folder.file("old.yaml", OLD), folder.file("new.yaml", NEW));
    let run = sluicegate(&["diff", &old, &new], "");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(run.stdout, TEXT);
    let run = sluicegate(&["diff", &old, &new, "--json"], "");
    let found: Value = serde_json::from_str(&run.stdout).unwrap();
    let rules = &found["domains"][0]["rules"];
    assert_eq!(rules[0]["counters"], "partly");
    assert_eq!(rules[0]["limits"][1]["counters"], "restarted");
    assert_eq!(rules[1]["new"]["id"], "shop/new");
    assert_eq!(found["domains"][0]["settings"][0]["setting"], "deny_list");
}

#[test]
fn equal_rules_have_no_difference_and_invalid_ones_are_refused() {
    let folder = Folder::new();
    let (old, bad) =
        (folder.file("old.yaml", OLD), folder.file("bad.yaml", "domain: shop\nrules: 1\n"));
    let run = sluicegate(&["diff", &old, &old], "");
    assert_eq!((run.code, run.stdout.as_str()), (0, "no difference\n"));
    let run = sluicegate(&["diff", &old, &bad], "");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("bad.yaml:2:1"), "{}", run.stderr);
    assert_eq!(sluicegate(&["diff", &old, "/nowhere"], "").code, 2);
}

#[test]
fn a_domain_that_vanishes_is_withheld_and_reported() {
    let folder = Folder::new();
    let old = folder.file("old.yaml", OLD);
    let other = folder.file("other.yaml", "domain: other\ndescriptors: []\n");
    let run = sluicegate(&["diff", &old, &other], "");
    assert!(run.stdout.contains("domain shop: removed"), "{}", run.stdout);
    assert!(run.stdout.contains("`shop` stay in force"), "{}", run.stdout);
    let removed = folder.file("removed.yaml", "domain: shop\nremoved: true\n");
    let run = sluicegate(&["diff", &old, &removed], "");
    assert!(run.stdout.contains("domain shop: removed"), "{}", run.stdout);
    assert!(!run.stdout.contains("stay in force"), "{}", run.stdout);
}
