//! What a client may send, however it is meant: nothing panics, nothing grows without bound, and nobody gets more than the limit.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use engine_support::{ask, check, engine, peek, rules, told};
use sluicegate::backend::Call;
use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use sluicegate::rules::unit::Unit;
use sluicegate::{Checked, Engine, Memory, MemoryBackend, Operation, Timestamp};

const ALL_ALGORITHMS: [&str; 12] = [
    "rate_limit: { unit: minute, requests_per_unit: 3 }",
    "rate_limit: { unit: year, requests_per_unit: 4294967295 }",
    "limits: { algorithm: token_bucket, rate: 3/s }",
    "limits: { algorithm: token_bucket, rate: 3/s, refill: aligned }",
    "limits: { algorithm: leaky_bucket, rate: 3/s, queue: 3 }",
    "limits: { algorithm: fixed_window, rate: 3/s }",
    "limits: { algorithm: sliding_log, rate: 3/s }",
    "limits: { algorithm: sliding_window, rate: 3/s }",
    "limits: { algorithm: smooth_bursty, rate: 3/s }",
    "limits: { algorithm: warm_up, rate: 3/s, warm_up: 10s }",
    "limits: { algorithm: cycle, permits: 3, period: 1s }",
    "limits: { algorithm: concurrency, max: 3, lease: 1m }",
];

const HITS: [u64; 9] =
    [0, 1, 2, u32::MAX as u64, (1 << 53) - 1, 1 << 53, i64::MAX as u64, u64::MAX - 1, u64::MAX];

fn users(rule: &str) -> String {
    format!("domain: shop\ndescriptors:\n  - key: user\n    {rule}\n")
}

/// A request with one descriptor for each of these.
fn with_all<R>(
    descriptors: &[(Vec<Entry<'_>>, Option<u64>)],
    ask: impl FnOnce(&Request<'_>) -> R,
) -> R {
    let descriptors: Vec<Descriptor<'_>> = descriptors
        .iter()
        .map(|(entries, hits)| Descriptor { hits: *hits, ..Descriptor::of(entries) })
        .collect();
    ask(&Request { domain: "shop", descriptors: &descriptors, hits: 1 })
}

#[test]
fn any_number_of_hits_at_any_time() {
    let times = [0, 1, 1_704_067_200_000_000, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for rule in ALL_ALGORITHMS {
        for cost in ["", "\n    cost: 3"] {
            let (engine, _) = engine(&users(&format!("{rule}{cost}")));
            let mut checked = Checked::default();
            for now in times.into_iter().chain(times.into_iter().rev()) {
                for hits in HITS {
                    let text =
                        format!("user=a x{hits} | user=b x{hits} | user=a x1 limit=3/second");
                    ask(&text, |request| {
                        let (snapshot, now) = (engine.snapshot(), Timestamp::from_micros(now));
                        MemoryBackend::apply_now(
                            Operation::Hit,
                            &Call::new(&snapshot, request, now),
                            &mut checked,
                        );
                        MemoryBackend::apply_now(
                            Operation::Peek,
                            &Call::new(&snapshot, request, now),
                            &mut checked,
                        );
                        MemoryBackend::apply_now(
                            Operation::Refund,
                            &Call::new(&snapshot, request, now),
                            &mut checked,
                        );
                        MemoryBackend::apply_now(
                            Operation::Hit,
                            &Call::new(&snapshot, request, now),
                            &mut checked,
                        );
                        checked.clone()
                    });
                }
            }
        }
    }
}

#[test]
fn no_number_of_hits_comes_round_to_a_small_one() {
    for rule in &ALL_ALGORITHMS[2..8] {
        let (engine, _) = engine(&users(rule));
        for hits in HITS.into_iter().filter(|hits| *hits > 3) {
            for _ in 0..3 {
                assert!(check(&engine, &format!("user=a x{hits}")).starts_with("no"), "{rule}");
            }
        }
        assert!(check(&engine, "user=a x3").starts_with("yes"), "{rule}: was not charged");
    }
    // What comes is counted here, and the count does not come round either.
    for request in ["user=a", "user=a limit=3/minute"] {
        let (engine, _) = engine(&users(ALL_ALGORITHMS[0]));
        for hits in [u64::MAX, 1, u64::MAX, u64::MAX, 3, 1 << 53] {
            let told = check(&engine, &format!("{request} x{hits}"));
            assert_eq!(told, "no 0!", "{request} x{hits}");
        }
    }
}

#[test]
fn a_request_of_thousands_of_descriptors() {
    const MANY: usize = 2_000;
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: user, limits: { algorithm: fixed_window, rate: 5/day } }
  - { key: envoy, rate_limit: { unit: day, requests_per_unit: 5 } }
",
    );
    let names: Vec<String> = (0..MANY / 2).map(|user| format!("u{user}")).collect();
    // Each twice, in both forms.
    let entry = |key: &'static str| {
        names.iter().chain(&names).map(move |name| (vec![Entry::new(key, name)], None))
    };
    let all: Vec<_> = entry("user").chain(entry("envoy")).collect();
    let checked = with_all(&all, |request| engine.check(request));
    assert!(checked.allowed);
    let left = |place: usize| checked.statuses[place].verdict.remaining;
    assert_eq!((left(0), left(MANY - 1)), (Some(4), Some(4)), "once");
    assert_eq!((left(MANY), left(2 * MANY - 1)), (Some(4), Some(3)), "twice");
    assert_eq!(engine.memory().entries(), MANY);
    let none = with_all(&[], |request| engine.check(request));
    assert!(none.allowed && none.statuses.is_empty());
    let empty = with_all(&[(Vec::new(), None)], |request| engine.check(request));
    assert_eq!(told(&empty), "yes -", "a descriptor without entries");
}

#[test]
fn entries_without_end_and_keys_of_a_megabyte() {
    let (engine, _) = engine(
        "
domain: shop
deny: [{ key: user, value: 'evil*' }]
descriptors: [{ key: user, limits: { algorithm: fixed_window, rate: 1/day } }]
",
    );
    let deep = vec![Entry::new("user", "a"); 50_000];
    let deeper = with_all(&[(deep.clone(), None)], |request| engine.check(request));
    assert_eq!(told(&deeper), "yes -", "deeper than any rule");
    let limit = Some(Override { requests_per_unit: 1, unit: Unit::Day });
    for told_to_be in ["yes 0", "no 0!"] {
        let descriptors = [Descriptor { limit, ..Descriptor::of(&deep) }];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        assert_eq!(told(&engine.check(&request)), told_to_be);
    }
    let long = "\0".repeat(1 << 20);
    let (one, other) = (format!("{long}1"), format!("{long}2"));
    for value in [&one, &other, &long] {
        for told_to_be in ["yes 0", "no 0!"] {
            let all = [(vec![Entry::new("user", value)], None)];
            assert_eq!(told(&with_all(&all, |request| engine.check(request))), told_to_be);
        }
    }
    let all = [(vec![Entry::new(&one, "a")], None), (vec![Entry::new("user", "evil\0")], None)];
    assert_eq!(told(&with_all(&all, |request| engine.check(request))), "no - -!");
}

#[test]
fn what_is_no_address_is_in_no_network() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: ip, cidr: 10.0.0.0/8, prefix: { v4: 8, v6: 8 }, limits: { algorithm: fixed_window, rate: 1/day } }
  - { key: other, prefix: { v4: 0, v6: 0 }, limits: { algorithm: fixed_window, rate: 1/day } }
",
    );
    assert_eq!(check(&engine, "ip=10.1.2.3"), "yes 0");
    let odd = [
        "",
        "10.0.0.1\0",
        "10.0.0.1/32",
        "10.0.0",
        "10.0.0.01",
        "0x0a.0.0.1",
        "167772161",
        "[::1]",
        "10.0.0.1%eth0",
        "::ffff:10.0.0.1%1",
        "٣.0.0.1",
        "10.0.0.1\u{200b}",
    ];
    for value in odd {
        let ip = [(vec![Entry::new("ip", value)], None)];
        assert_eq!(told(&with_all(&ip, |request| engine.check(request))), "yes -", "{value:?}");
        let other = [(vec![Entry::new("other", value)], None)];
        for told_to_be in ["yes 0", "no 0!"] {
            let checked = with_all(&other, |request| engine.check(request));
            assert_eq!(told(&checked), told_to_be, "{value:?} stands for itself");
        }
    }
    assert_eq!(check(&engine, "ip=::ffff:10.9.9.9"), "no 0!");
}

#[test]
fn other_limits_in_a_request_need_no_more_memory() {
    let (engine, _) = engine(&users(ALL_ALGORITHMS[0]));
    for number in 0..500 {
        check(&engine, &format!("user=a limit={number}/day"));
    }
    assert_eq!(engine.memory().entries(), 1);
    assert_eq!(peek(&engine, "user=a limit=600/day"), "yes 100", "all have been counted");
}

#[test]
fn a_flood_of_identities_finds_the_store_full_and_one_limit_for_all() {
    const ROOM: usize = 64;
    const FLOOD: usize = 3_000;
    for rule in [ALL_ALGORITHMS[0], ALL_ALGORITHMS[2], ALL_ALGORITHMS[5], ALL_ALGORITHMS[6]] {
        for with in ["", " limit=3/minute"] {
            let memory = Memory::with_entries(ROOM);
            let clock = sluicegate::clock::ManualClock::new();
            let engine = Engine::builder(rules(&users(rule))).memory(&memory).clock(clock).build();
            let engine = engine.unwrap();
            let mut admitted = 0;
            for turn in 0..FLOOD {
                admitted +=
                    usize::from(check(&engine, &format!("user={turn}{with}")).starts_with("yes"));
                // Nothing in front, to hide behind; and two newcomers at once.
                let both = format!("user=x{turn}{with} x0 | user=y{turn}{with} x1");
                admitted += usize::from(check(&engine, &both).starts_with("yes"));
            }
            assert!(admitted <= 3 * (ROOM + 1), "{rule}{with}: {admitted}");
            assert!(memory.entries() <= ROOM + 1, "{rule}{with}: {}", memory.entries());
        }
    }
}

#[test]
fn thousands_of_identities_in_one_shard() {
    let shared = |shared: bool| {
        users(&format!("share_threshold: {shared}\n    value: '*'\n    {}", ALL_ALGORITHMS[5]))
    };
    let (engine, _) = engine(&shared(true));
    assert_eq!([check(&engine, "user=a"), check(&engine, "user=b")], ["yes 2", "yes 1"]);
    // The rule goes on in the one shard that was enough for it before.
    engine.reload(rules(&shared(false))).unwrap();
    for left in ["yes 2", "yes 1"] {
        for user in 0..3_000 {
            assert_eq!(check(&engine, &format!("user={user}")), left);
        }
    }
}
