//! The cache of over-limit keys.

use sluicegate_testkit::redis::Single;

use super::{NOW_S, ask, at, daily, kept, link, plain};
use crate::envoy::{EnvoyCounters, EnvoyKeys, EnvoyOp};

fn remembering(server: &Single) -> EnvoyCounters {
    let keys = EnvoyKeys { local_cache_bytes: 100_000, ..plain() };
    EnvoyCounters::new(link(server.url()), None, keys)
}

#[tokio::test]
async fn is_not_asked_for_again_until_its_window_ends() {
    let server = Single::start();
    let counters = remembering(&server);
    for _ in 0..5 {
        ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 2, 1)).await;
    }
    assert_eq!(kept(&server)[0].1, 3, "the third denied, the fourth and fifth were not asked for");
    let counted = counters.count(EnvoyOp::Hit, &[daily("d_k_v_", 2, 1)], at(NOW_S)).await.unwrap();
    assert!(counted[0].is_cached && counted[0].before == 3);
    let tomorrow = at(NOW_S + 86_400);
    let verdicts = counters.apply(EnvoyOp::Hit, &[daily("d_k_v_", 2, 1)], tomorrow).await.unwrap();
    assert!(verdicts[0].is_allowed());
}

#[tokio::test]
async fn is_asked_for_at_once_when_its_limit_is_raised_or_something_is_given_back() {
    let server = Single::start();
    let counters = remembering(&server);
    for _ in 0..4 {
        ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 2, 1)).await;
    }
    // As a reload or an override has it.
    let raised = ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 10, 1)).await;
    assert!(raised.is_allowed() && raised.remaining == Some(6), "{raised:?}");
    assert!(!ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 2, 1)).await.is_allowed());
    ask(&counters, EnvoyOp::Refund, daily("d_k_v_", 2, 3)).await;
    assert!(ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 2, 1)).await.is_allowed());
}
