//! Hits, peeks, refunds and their answers.

use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::Op;
use sluicegate_rules::unit::Unit;
use sluicegate_testkit::redis::{Cluster, Single};

use super::{NOW_S, ask, at, daily, kept, link, plain};
use crate::envoy::{EnvoyCheck, EnvoyCounters, EnvoyKeys, EnvoyOp};

#[tokio::test]
async fn several_nodes_admit_exactly_the_limit_together() {
    let server = Single::start();
    let nodes = (0..4).map(|_| {
        let counters = EnvoyCounters::new(link(server.url()), None, plain());
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..100 {
                let verdict = ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 150, 1)).await;
                admitted += u32::from(verdict.is_allowed());
            }
            admitted
        })
    });
    let nodes: Vec<_> = nodes.collect();
    let mut admitted = 0;
    for node in nodes {
        admitted += node.await.unwrap();
    }
    assert_eq!(admitted, 150);
    // Denied hits count too.
    assert_eq!(kept(&server)[0].1, 400);
}

#[tokio::test]
async fn a_look_leaves_no_trace_and_a_reset_makes_it_as_new() {
    let server = Single::start();
    let counters = EnvoyCounters::new(link(server.url()), None, plain());
    let look = ask(&counters, EnvoyOp::Peek, daily("d_k_v_", 2, 1)).await;
    assert!(look.is_allowed() && look.remaining == Some(2));
    assert!(kept(&server).is_empty());
    for allowed in [true, true, false] {
        let hit = ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 2, 1)).await;
        assert_eq!(hit.is_allowed(), allowed);
    }
    let look = ask(&counters, EnvoyOp::Peek, daily("d_k_v_", 2, 0)).await;
    assert!(!look.is_allowed() && look.beyond == 1);
    assert_eq!(kept(&server)[0].1, 3);
    let reset = ask(&counters, EnvoyOp::Reset, daily("d_k_v_", 2, 1)).await;
    assert!(reset.is_allowed() && reset.remaining == Some(2));
    assert!(kept(&server).is_empty());
}

#[tokio::test]
async fn nothing_below_nothing_is_given_back_and_nothing_is_made() {
    let server = Single::start();
    let counters = EnvoyCounters::new(link(server.url()), None, plain());
    let missing = ask(&counters, EnvoyOp::Refund, daily("d_k_v_", 5, 3)).await;
    assert_eq!(missing.remaining, Some(5));
    assert!(kept(&server).is_empty(), "a counter without an end would stay for ever");
    ask(&counters, EnvoyOp::Hit, daily("d_k_v_", 5, 4)).await;
    let left = ask(&counters, EnvoyOp::Refund, daily("d_k_v_", 5, 3)).await;
    assert_eq!(left.remaining, Some(4));
    let left = ask(&counters, EnvoyOp::Refund, daily("d_k_v_", 5, 3)).await;
    assert_eq!(left.remaining, Some(5));
    let (_, count, ttl) = kept(&server)[0].clone();
    assert!(count == 0 && (86_000..=86_700).contains(&ttl), "{count} for {ttl} s");
}

#[tokio::test]
async fn keys_end_by_chance_within_the_jitter() {
    let server = Single::start();
    let keys = EnvoyKeys { jitter_max_s: 1_000, ..plain() };
    let counters = EnvoyCounters::new(link(server.url()), None, keys);
    let texts: Vec<String> = (0..64).map(|number| format!("d_k_{number}_")).collect();
    let asks: Vec<_> =
        texts.iter().map(|text| EnvoyCheck { text: text.as_bytes(), ..daily("", 1, 1) }).collect();
    counters.apply(EnvoyOp::Hit, &asks, at(NOW_S)).await.unwrap();
    let mut ttls: Vec<u64> = kept(&server).into_iter().map(|(_, _, ttl)| ttl).collect();
    ttls.sort_unstable();
    assert!(ttls[0] >= 86_400 - 60 && ttls[63] < 87_400, "{ttls:?}");
    assert!(ttls[63] - ttls[0] > 500, "64 draws out of 1000 lie further apart: {ttls:?}");
}

/// Compares with a tally of the core, across window boundaries.
#[tokio::test]
async fn says_what_the_core_says() {
    let server = Single::start();
    let counters = EnvoyCounters::new(link(server.url()), None, plain());
    let steps = [(Unit::Second, 3), (Unit::Minute, 7), (Unit::Day, 40)].map(|(unit, most)| {
        let tally = Limit::Tally(Tally::new(u64::from(most), unit.span()).unwrap());
        (unit, most, EnforcedLimit::new(tally, Mode::Hard).unwrap(), Account::default())
    });
    let (mut steps, mut now, mut chance) = (steps, at(NOW_S), 7_u64);
    let mut denied = 0;
    for _ in 0..1_500 {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = chance >> 33;
        now = now.after(sluicegate_core::time::Span::from_millis(bits % 700));
        let (unit, requests_per_unit, step, account) = &mut steps[(bits >> 10) as usize % 3];
        let cost = (bits >> 14) % 4;
        let (op, theirs) = match (bits >> 18) % 12 {
            0 => (EnvoyOp::Peek, Op::Peek { cost }),
            1 => (EnvoyOp::Refund, Op::Refund { cost }),
            2 if bits.is_multiple_of(5) => (EnvoyOp::Reset, Op::Reset),
            _ => (EnvoyOp::Hit, Op::Hit { cost, holder: None }),
        };
        let text: &[u8] = unit.name().as_bytes();
        let one = EnvoyCheck {
            text,
            unit: *unit,
            requests_per_unit: *requests_per_unit,
            shadow: false,
            cost,
        };
        let ours = counters.apply(op, &[one], now).await.unwrap()[0];
        let theirs = account.apply(&[*step], theirs, Moment::at(now)).unwrap().verdict;
        assert_eq!(ours, theirs, "{op:?} {cost} of {} at {now:?}", unit.name());
        denied += u32::from(!ours.is_allowed());
    }
    assert!((100..1_400).contains(&denied), "{denied} of 1500 denied");
}

#[tokio::test]
async fn in_the_shadow_it_is_said_what_would_be() {
    let server = Single::start();
    let counters = EnvoyCounters::new(link(server.url()), None, plain());
    let shadow = EnvoyCheck { shadow: true, ..daily("d_k_v_", 1, 1) };
    let first = ask(&counters, EnvoyOp::Hit, shadow).await;
    assert!(first.is_allowed() && first.shadow.is_some_and(|outcome| outcome.is_allowed()));
    let second = ask(&counters, EnvoyOp::Hit, shadow).await;
    assert!(second.is_allowed() && second.shadow.is_some_and(|outcome| !outcome.is_allowed()));
}

/// More keys than fit into one pipeline, on all nodes of a Cluster, with duplicates.
#[tokio::test]
async fn a_request_may_have_counters_on_all_nodes_of_a_cluster() {
    let cluster = Cluster::start();
    let counters = EnvoyCounters::new(link(cluster.url()), None, plain());
    let texts: Vec<String> = (0..300).map(|number| format!("d_k_{number}_")).collect();
    let twice = texts.iter().chain(&texts);
    let asks: Vec<_> =
        twice.map(|text| EnvoyCheck { text: text.as_bytes(), ..daily("", 3, 2) }).collect();
    let verdicts = counters.apply(EnvoyOp::Hit, &asks, at(NOW_S)).await.unwrap();
    assert!(verdicts[..300].iter().all(|verdict| verdict.remaining == Some(1)));
    assert!(verdicts[300..].iter().all(|verdict| !verdict.is_allowed() && verdict.beyond == 1));
    let count = cluster.nodes().iter().filter(|node| node.cli(&["DBSIZE"]) != "0").count();
    assert!(count >= 3, "only {count} nodes have keys");
}
