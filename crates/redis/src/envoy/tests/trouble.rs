//! Counters that cannot be counted on.

use sluicegate_testkit::redis::Single;

use super::{NOW_S, ask, at, daily, link, plain};
use crate::CallError;
use crate::envoy::{EnvoyCounters, EnvoyOp};

/// The key of `d_k_v_` on that day.
const KEY: &str = "d_k_v_1794700800";

#[tokio::test]
async fn a_counter_without_room_for_more_denies() {
    let server = Single::start();
    let counters = EnvoyCounters::new(link(server.url()), None, plain());
    server.cli(&["SET", KEY, &i64::MAX.to_string(), "EX", "1000"]);
    for cost in [0, 1, u64::MAX] {
        let verdict = ask(&counters, EnvoyOp::Hit, daily("d_k_v_", u32::MAX, cost)).await;
        assert!(!verdict.is_allowed(), "{cost}: {verdict:?}");
    }
    // Where envoyproxy/ratelimit has an error for a client that sends too large a number.
    let large = ask(&counters, EnvoyOp::Hit, daily("d_other_", 5, u64::MAX)).await;
    assert!(!large.is_allowed());
}

#[tokio::test]
async fn what_is_no_counter_is_told_in_the_words_of_the_server() {
    let server = Single::start();
    let counters = EnvoyCounters::new(link(server.url()), None, plain());
    let asked = async |op| counters.apply(op, &[daily("d_k_v_", 5, 1)], at(NOW_S)).await;
    for (make, word) in
        [(&["SET", KEY, "many"][..], "not an integer"), (&["LPUSH", KEY, "x"], "WRONGTYPE")]
    {
        server.cli(&["DEL", KEY]);
        server.cli(make);
        for op in [EnvoyOp::Hit, EnvoyOp::Peek, EnvoyOp::Refund] {
            match asked(op).await {
                Err(CallError::Refused(why)) => assert!(why.contains(word), "{op:?}: {why}"),
                other => panic!("{op:?} of {make:?}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn without_a_server_there_is_an_error_and_no_answer() {
    let server = Single::start();
    let second = Single::start();
    let counters = EnvoyCounters::new(link(server.url()), Some(link(second.url())), plain());
    ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 5, 1)).await;
    server.kill();
    // With either of the two down.
    let error =
        counters.apply(EnvoyOp::Hit, &[daily("d_k_v_", 5, 1)], at(NOW_S)).await.unwrap_err();
    assert!(!matches!(error, CallError::Refused(_)), "{error:?}");
}
