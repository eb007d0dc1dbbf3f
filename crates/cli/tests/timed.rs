//! Overrides that end under `sluicegate serve`, and what `check` and `explain` show of them.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use sluicegate::Span;
use sluicegate::clock::SystemClock;
use sluicegate_rules::zone::show_moment;
use support::service::Service;
use support::{Folder, sluicegate};

fn in_seconds(seconds: u64) -> String {
    show_moment(SystemClock::get().read().after(Span::from_secs(seconds)))
}

#[test]
fn a_block_ends_without_a_change_of_the_file() {
    let folder = Folder::new();
    let until = in_seconds(8);
    let text = format!(
        "domain: shop\ndescriptors: [{{ key: user, rate_limit: {{ unit: year, requests_per_unit: 5 }} }}]\n\
         overrides: [{{ match: {{ user: alice }}, block: true, until: {until}, note: ticket 4711 }}]\n"
    );
    let file = folder.file("shop.yaml", &text);
    let mut service = Service::with(&["--rules", &file], &[]);
    // 403 by the deny list; the window of the limit does not end while the test runs.
    let denied = service.check("shop", "alice");
    assert_ne!(denied, 200, "until {until}");
    assert_eq!(service.check("shop", "bob"), 200);
    let line = service.says("rules changed by their schedule");
    assert!(line.contains("changed=0 added=0 removed=0 same=1 domains=1"), "{line}");
    assert_eq!(service.check("shop", "alice"), 200);
    for _ in 0..4 {
        assert_eq!(service.check("shop", "bob"), 200);
    }
    assert_eq!(service.check("shop", "bob"), 429, "counters continue");
    assert!(in_seconds(0) >= until);
}

#[test]
fn the_moment_of_check_must_be_one() {
    let folder = Folder::new();
    let file = folder.file("shop.yaml", "domain: shop\n");
    let out = sluicegate(&["check", "--at", "tomorrow", &file], "");
    assert_eq!(out.code, 2);
    let expected = "a date and time with its offset, like `2026-12-01T09:00:00Z`";
    assert!(out.stderr.contains(expected), "{}", out.stderr);
}
