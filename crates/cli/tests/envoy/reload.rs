//! Rules change while requests come.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::bed::Bed;
use crate::config::{Front, header};
use crate::support::http;

/// Says stop when it goes, also by a panic: nobody waits for traffic that nobody would end.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_request_fails_while_rules_are_exchanged_and_the_new_ones_hold() {
    let rules = |alice: u32| {
        format!(
            "  - {{ key: user, value: alice, rate_limit: {{ unit: year, requests_per_unit: {alice} }} }}\n\
             \x20 - {{ key: user, rate_limit: {{ unit: year, requests_per_unit: 1000000000 }} }}"
        )
    };
    let front = Front::by_route([header("x-user", "user")]).with("failure_mode_deny", true);
    let mut bed = Bed::start(&rules(1), &[front]);
    assert_eq!(bed.statuses(&[("x-user", "alice")]), [200, 429]);

    let stop = AtomicBool::new(false);
    let address = bed.envoy.listeners[0].clone();
    let traffic = || {
        let mut statuses = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let headers: [(&str, &[u8]); 1] = [("x-user", b"crowd")];
            statuses.push(http::get(&address, "/", &headers).status);
        }
        statuses
    };
    let statuses = thread::scope(|scope| {
        let crowd = [scope.spawn(traffic), scope.spawn(traffic)];
        let ending = Ending(&stop);
        for (limit, statuses) in [(4, [200, 200, 429]), (6, [200, 429, 429])] {
            let said = bed.reload(&rules(limit));
            assert!(said.contains("changed=1 added=0 removed=0 same=1"), "{said}");
            // What was counted stays, denied requests among it: that is Envoy's way.
            assert_eq!(bed.statuses(&[("x-user", "alice")]), statuses, "{limit} a year");
        }
        drop(ending);
        crowd.map(|one| one.join().unwrap()).concat()
    });
    assert!(statuses.len() > 10, "there was traffic");
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
}
