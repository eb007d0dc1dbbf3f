//! On a real server.

use std::time::Duration;

use sluicegate_testkit::redis::Single;

use super::*;
use crate::connection::{Address, Link, LinkOptions};
use crate::store::StoreOptions;

/// A minute in the year 2100: its windows do not end while these tests run.
const MINUTE: u64 = 60_000_000;
const START: u64 = 4_102_444_800_000_000;

fn node(server: &Single, seed: u64) -> Store {
    let ample = Duration::from_secs(5);
    let options = LinkOptions { timeout: ample, connect_timeout: ample, ..LinkOptions::default() };
    let link = Link::open(Address::parse(server.url()).unwrap(), options).unwrap();
    Store::new(link, StoreOptions { seed: Some(seed), ..StoreOptions::default() })
}

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

/// The `n`th minute.
fn window(n: u64, admitted: u64, refunded: u64) -> WindowCounts {
    WindowCounts { start: at(START + n * MINUTE), admitted, refunded }
}

const NONE: WindowCounts = WindowCounts { start: Timestamp::EPOCH, admitted: 0, refunded: 0 };

fn counted(current: WindowCounts, previous: WindowCounts) -> SeriesCounts {
    let over = at(current.start.as_micros() + 2 * MINUTE);
    SeriesCounts { name: "60000000".into(), over, current, previous }
}

fn push(epoch: u64, counted: SeriesCounts) -> SyncRequest {
    SyncRequest { key: b"{k}:e".as_slice().into(), op: SyncOp::Push, epoch, counted: vec![counted] }
}

async fn say(node: &Store, push: SyncRequest) -> SyncReply {
    node.sync(&[push]).await.unwrap().remove(0)
}

async fn look(node: &Store) -> SyncReply {
    let nothing = counted(NONE, NONE);
    say(node, SyncRequest { op: SyncOp::PullAll, counted: Vec::new(), ..push(0, nothing) }).await
}

/// What others have, by the minute.
fn others(heard: &SyncReply) -> Vec<(u64, i64)> {
    let minute = |start: Timestamp| (start.as_micros() - START) / MINUTE;
    let mut all: Vec<_> = heard.others.iter().map(|(_, at, net)| (minute(*at), *net)).collect();
    all.retain(|(_, net)| *net != 0);
    all.sort_unstable();
    all
}

#[tokio::test]
async fn nodes_hear_of_each_other_and_not_of_themselves() {
    let server = Single::start();
    let [one, two, three] = [1, 2, 3].map(|seed| node(&server, seed));
    let heard = say(&one, push(0, counted(window(1, 5, 0), NONE))).await;
    assert_eq!((heard.epoch, others(&heard)), (0, vec![]));
    let heard = say(&two, push(0, counted(window(1, 7, 2), window(0, 3, 0)))).await;
    assert_eq!(others(&heard), [(1, 5)]);
    assert_eq!(others(&look(&one).await), [(0, 3), (1, 5)]);
    assert_eq!(others(&look(&three).await), [(0, 3), (1, 10)]);
}

#[tokio::test]
async fn a_push_that_comes_twice_or_late_changes_nothing() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    let early = push(0, counted(window(1, 5, 1), NONE));
    let late = push(0, counted(window(1, 9, 2), NONE));
    for push in [&early, &late, &early, &late, &late, &early] {
        say(&one, push.clone()).await;
    }
    assert_eq!(others(&look(&two).await), [(1, 7)]);
    // A later window has begun; late counts of the previous one still count there.
    say(&one, push(0, counted(window(2, 1, 0), window(1, 9, 2)))).await;
    say(&one, push(0, counted(window(1, 12, 2), window(0, 4, 0)))).await;
    say(&one, early).await;
    assert_eq!(others(&look(&two).await), [(1, 10), (2, 1)]);
    let own = look(&one).await.own;
    assert_eq!(own, [counted(window(2, 1, 0), window(1, 12, 2))]);
}

#[tokio::test]
async fn what_is_late_of_a_window_that_others_have_left_is_not_taken_from_it() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    say(&one, push(0, counted(window(3, 4, 0), NONE))).await;
    say(&one, push(0, counted(window(5, 1, 0), window(3, 4, 0)))).await;
    // Sent between the two.
    say(&one, push(0, counted(window(4, 2, 0), window(3, 4, 0)))).await;
    assert_eq!(others(&look(&two).await), [(3, 4), (4, 2), (5, 1)]);
    let looks =
        SyncRequest { op: SyncOp::Pull, ..push(0, counted(window(4, 0, 0), window(3, 0, 0))) };
    assert_eq!(others(&say(&two, looks.clone()).await), [(3, 4), (4, 2)]);
    assert_eq!(say(&two, looks).await.own, [], "it asked for others");
    assert_eq!(server.cli(&["HLEN", "{k}:e"]), "4", "who looks leaves no trace");
}

#[tokio::test]
async fn a_node_that_forgot_is_told_what_it_had_counted() {
    let server = Single::start();
    let one = node(&server, 1);
    let had = counted(window(3, 8, 1), window(2, 2, 0));
    say(&one, push(0, had.clone())).await;
    assert_eq!(look(&one).await.own, [had]);
}

#[tokio::test]
async fn a_reset_forgets_what_everybody_has_counted_and_nobody_brings_it_back() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    let old = push(0, counted(window(1, 5, 0), NONE));
    say(&one, old.clone()).await;
    let heard =
        say(&two, SyncRequest { op: SyncOp::Reset, ..push(0, counted(window(1, 0, 0), NONE)) });
    let heard = heard.await;
    assert_eq!((heard.epoch, heard.others.len()), (1, 0));
    let heard = say(&one, old).await;
    assert_eq!(heard.epoch, 1, "so that it begins anew");
    assert_eq!(others(&look(&two).await), []);
    say(&one, push(1, counted(window(1, 2, 0), NONE))).await;
    assert_eq!(others(&look(&two).await), [(1, 2)]);
}

#[tokio::test]
async fn a_store_that_forgot_a_reset_hears_of_it_again() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    say(&one, push(0, counted(window(1, 50, 0), NONE))).await;
    let heard = say(&two, push(4, counted(window(1, 3, 0), NONE))).await;
    assert_eq!((heard.epoch, others(&heard)), (4, vec![]));
    assert_eq!(say(&one, push(0, counted(window(1, 50, 0), NONE))).await.epoch, 4);
    assert_eq!(others(&look(&one).await), [(1, 3)]);
}

#[tokio::test]
async fn what_is_over_is_dropped_and_everything_runs_out() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    let now = look(&one).await.at.as_micros();
    let soon = |over: u64| SeriesCounts {
        name: "60000000".into(),
        over: at(over),
        current: WindowCounts { start: at(now - now % MINUTE), admitted: 5, refunded: 0 },
        previous: NONE,
    };
    say(&one, push(0, soon(now + 2 * MINUTE))).await;
    let ttl: u64 = server.cli(&["PTTL", "{k}:e"]).parse().unwrap();
    assert!((120_000..=180_000).contains(&ttl), "two windows and a minute: {ttl}");
    // As left by a long-stopped node.
    let stale = format!("60000000={},{},7,0,0,0,0", now - 1, now - 2 * MINUTE);
    server.cli(&["HSET", "{k}:e", "deadbeefdeadbeef", &stale]);
    server.cli(&["HSET", "{k}:e", "garbage", "what is this"]);
    server.cli(&["HSET", "{k}:e", "60000000=7", "12,13"]);
    server.cli(&["HSET", "{k}:e", "60000000=8", "no number"]);
    let heard = say(&two, push(0, soon(now + 2 * MINUTE))).await;
    let nets: Vec<i64> = heard.others.iter().map(|(.., net)| *net).collect();
    assert_eq!(nets, [5]);
    let mut fields: Vec<String> =
        server.command(&["HKEYS", "{k}:e"]).items().iter().map(|field| field.to_string()).collect();
    fields.sort();
    let mut wanted = [&one, &two].map(|node| format!("{:016x}", node.node())).to_vec();
    wanted.push(format!("60000000={}", now - now % MINUTE));
    wanted.sort();
    assert_eq!(fields, wanted);
}

#[tokio::test]
async fn what_is_no_hash_is_written_over() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    server.cli(&["SET", "{k}:e", "mine"]);
    say(&one, push(0, counted(window(1, 5, 0), NONE))).await;
    assert_eq!(others(&look(&two).await), [(1, 5)]);
}

/// Corruption of one identity's hash fails no other identity of the call.
#[tokio::test]
async fn corruption_is_confined_to_its_identity() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    let (huge, name) = ("9".repeat(400), format!("{:016x}", one.node()));
    let series = format!("60000000={huge},{START},5,0,0,0,0");
    let sum = format!("{huge},{huge}");
    let minute = format!("60000000={START}");
    let damaged: [(&str, &str); 12] = [
        ("epoch", "inf"),
        ("epoch", "-5"),
        ("epoch", "1e300"),
        ("epoch", &huge),
        (&name, &series),
        (&name, "60000000=1,2"),
        (&name, "nothing=at=all,1,2,3,4,5,6,7"),
        (&minute, &sum),
        (&minute, "-9e99,5"),
        ("a name=4102444800000000", "7,4102444800000001"),
        ("=4102444800000000", "7,4102444800000001"),
        ("60000000=99999999999999999999999999", "7,4102444800000001"),
    ];
    for (index, (field, value)) in (1..).zip(damaged) {
        server.cli(&["HSET", "{bad}:e", field, value]);
        for op in [SyncOp::Push, SyncOp::Pull, SyncOp::PullAll] {
            let both = ["{bad}:e", "{k}:e"].map(|key| SyncRequest {
                key: key.as_bytes().into(),
                op,
                ..push(0, counted(window(0, index, 0), NONE))
            });
            let heard = one.sync(&both).await;
            assert!(heard.is_ok_and(|all| all.len() == 2), "{op:?} with {field}: {value}");
        }
        assert_eq!(others(&look(&two).await), [(0, index as i64)], "{field}: {value}");
    }
}

#[tokio::test]
async fn many_keys_are_told_in_one_call_each_with_series_of_its_own() {
    let server = Single::start();
    let [one, two] = [1, 2].map(|seed| node(&server, seed));
    let pushes: Vec<SyncRequest> = (1..=KEYS_MAX as u64)
        .map(|n| {
            let mut daily = counted(window(0, 2 * n, 0), NONE);
            daily.name = "Europe/Berlin/day".into();
            let counted = vec![counted(window(0, n, 0), NONE), daily];
            let key = format!("{{k{n}}}:e").into_bytes().into();
            SyncRequest { key, op: SyncOp::Push, epoch: 0, counted }
        })
        .collect();
    one.sync(&pushes).await.unwrap();
    let looks: Vec<SyncRequest> =
        pushes.iter().map(|push| SyncRequest { op: SyncOp::PullAll, ..push.clone() }).collect();
    let heard = two.sync(&looks).await.unwrap();
    for (n, heard) in (1..).zip(heard) {
        let nets: Vec<_> = heard.others.iter().map(|(name, _, net)| (&**name, *net)).collect();
        assert_eq!(nets, [("60000000", n), ("Europe/Berlin/day", 2 * n)]);
    }
}

#[tokio::test]
async fn the_greatest_numbers_are_summed_as_far_as_they_can_be_held() {
    let server = Single::start();
    let [one, two, three] = [1, 2, 3].map(|seed| node(&server, seed));
    say(&one, push(0, counted(window(1, EXACT_MAX, 0), NONE))).await;
    say(&two, push(0, counted(window(1, EXACT_MAX, 0), NONE))).await;
    assert_eq!(others(&look(&three).await), [(1, EXACT_MAX as i64)]);
    say(&two, push(0, counted(window(1, EXACT_MAX, EXACT_MAX), NONE))).await;
    assert_eq!(others(&look(&one).await), []);
}
