//! Nodes that come and go while they tell each other what they counted: the total is what it is.

use sluicegate_testkit::redis::{Cluster, Single};
use sluicegate_testkit::until;

use crate::client::{Answer, Client};
use crate::fleet::Fleet;
use crate::levels::stop;
use crate::support::service::Service;

const LIMIT: i64 = 1_000;
const RULES: &str = "
  - key: user
    consistency: { eventual: { sync_interval: 100ms } }
    limits: { algorithm: fixed_window, rate: 1000/year }
    on_store_failure: error
";
const ADA: &str = r#"{"user":"ada"}"#;

#[test]
fn through_one_server() {
    knows_what_others_told_whatever_became_of_them(Single::start().url());
}

#[test]
fn through_a_cluster() {
    knows_what_others_told_whatever_became_of_them(Cluster::start().url());
}

fn knows_what_others_told_whatever_became_of_them(store: &str) {
    let [mut stopped, mut killed, stays] = [(); 3].map(|()| node(store));
    for fleet in [&stopped, &killed, &stays] {
        admits(&fleet.services[0], 100);
    }
    // All of it is told, and a newcomer hears it before it says anything.
    agree(&stays, LIMIT - 300);
    let joined = node(store);
    assert_eq!(joined.left(ADA), [LIMIT - 300]);

    // Who stops tells the rest first.
    admits(&stopped.services[0], 50);
    stop(&mut stopped.services);
    agree(&joined, LIMIT - 350);
    agree(&stays, LIMIT - 350);

    // Who is killed had no time to.
    admits(&killed.services[0], 50);
    killed.services[0].kill();
    let again = [node(store), node(store)];
    let left = again[0].left(ADA)[0];
    println!("{} of 50 were not told", left - (LIMIT - 400));
    assert!((LIMIT - 400..=LIMIT - 350).contains(&left), "{left}");
    for fleet in [&stays, &joined, &again[1]] {
        agree(fleet, left);
    }

    // What is left is had by turns, each time after everybody has heard.
    let mut rest = left;
    for fleet in [&again[0], &stays, &again[1]] {
        agree(fleet, rest);
        admits(&fleet.services[0], 100);
        rest -= 100;
    }
    agree(&joined, rest);
    let mut client = Client::of(&joined.services[0].http).unwrap();
    let last = (0..).take_while(|_| client.check(ADA) == Answer::Allowed).count();
    assert_eq!(last as i64, rest);
    joined.trusts_its_store();
}

#[test]
fn a_store_that_comes_back_with_nothing_is_told_again() {
    let server = Single::start();
    let mut both = Fleet::start(2, server.url(), RULES);
    both.services.iter().for_each(|service| admits(service, 100));
    agree(&both, LIMIT - 200);
    server.kill();
    both.says("the store cannot be reached");
    server.restart();
    both.says("the store answers");
    // Nobody asks them for it any more.
    agree(&node(server.url()), LIMIT - 200);
}

fn node(store: &str) -> Fleet {
    Fleet::start(1, store, RULES)
}

fn admits(service: &Service, times: u64) {
    let mut client = Client::of(&service.http).unwrap();
    for _ in 0..times {
        assert_eq!(client.check(ADA), Answer::Allowed);
    }
}

/// Waits until a node knows that so much is left: never less.
fn agree(fleet: &Fleet, left: i64) {
    until("it has heard of everything", || {
        let told = fleet.left(ADA)[0];
        assert!(told >= left, "{told} are left, by its word, of {left}");
        (told == left).then_some(())
    });
}
