//! Nodes that hold leases and are killed: short by at most what they held.

use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::fleet::Fleet;
use crate::hammer::{Counts, ask_times_while, ask_until_denied};
use crate::levels::{Cell, cells, key_of, nodes, stop};

const ROUNDS: u64 = 3;
/// Of each round: one of two is killed.
const NODES: usize = 2;
const LIMIT: u64 = 4_000;
const ADA: &str = r#"{"user":"ada"}"#;

fn rules(consistency: &str, limits: &str) -> String {
    format!(
        "
  - key: user
    consistency: {consistency}
    limits: {limits}
    on_store_failure: error
"
    )
}

#[test]
fn a_window_is_short_by_at_most_what_was_outstanding() {
    is_short_by_at_most_what_was_outstanding(&format!(
        "{{ algorithm: fixed_window, rate: {LIMIT}/year }}"
    ));
}

#[test]
fn a_bucket_is_short_by_at_most_what_was_outstanding() {
    is_short_by_at_most_what_was_outstanding(&format!(
        "{{ algorithm: token_bucket, rate: 1/day, burst: {LIMIT} }}"
    ));
}

fn is_short_by_at_most_what_was_outstanding(limits: &str) {
    let server = Single::start();
    let key = key_of("user", "ada");
    let mut total = Counts::default();
    let mut outstanding = 0;
    for round in 0..ROUNDS {
        let [mut dying, mut other] = [(); 2].map(|()| {
            let before = nodes(&server);
            let fleet = Fleet::start(1, server.url(), &rules("leased", limits));
            let name = until("it has said hello", || {
                nodes(&server).into_iter().find(|name| !before.contains(name))
            });
            (fleet, name)
        });
        let services =
            [&mut dying.0, &mut other.0].into_iter().flat_map(|fleet| fleet.services.drain(..));
        let mut services: Vec<_> = services.collect();
        let mut held = 0;
        total += ask_times_while(&services, &[ADA], 10, |progress| {
            progress.await_allowed(200 + 200 * round);
            until("it holds something", || {
                (amount(&cells(&server, &key), &dying.1) > 0).then_some(())
            });
            services[0].signal("KILL");
            held = amount(&cells(&server, &key), &dying.1);
        })[0];
        assert_eq!(services[0].ends(), None, "it was killed");
        // A call that was under way may have come afterwards.
        held = held.max(amount(&cells(&server, &key), &dying.1));
        println!("round {round}: {held} outstanding");
        outstanding += held;
        assert_eq!(services.len(), NODES);
        stop(&mut services[1..]);
    }
    let last = Fleet::start(1, server.url(), &rules("strict", limits));
    total += ask_until_denied(&last.services, ADA);
    let short = LIMIT.checked_sub(total.allowed);
    println!("{limits}: {total:?} of {LIMIT}: short by {short:?}, {outstanding} outstanding");
    let short = short.expect("never above the limit");
    assert!(short <= outstanding + total.in_doubt(), "{short}, {outstanding}, {total:?}");
}

fn amount(cells: &[Cell], node: &str) -> u64 {
    cells.iter().filter(|cell| cell.node == node).map(|cell| cell.amount).sum()
}
