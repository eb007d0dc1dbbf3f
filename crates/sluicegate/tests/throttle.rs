//! Limits that come with the request: over a restart, and from several threads at once.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::limit::FixedWindow;
use sluicegate::throttle::{Throttle, ThrottleParams};
use sluicegate::{Limiter, Memory, SnapshotError, Span, Timestamp, Verdict};
use support::Dice;

/// Some day in 2024, at noon UTC.
const NOON: Timestamp = Timestamp::from_micros(1_717_416_000_000_000);

fn terms(max_burst: i64, count: i64, period_s: i64) -> ThrottleParams {
    ThrottleParams::new(max_burst, count, period_s).unwrap()
}

/// A file of its own for each test, gone when the test is over.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("throttle-{}-{next}.snapshot", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whole microseconds, fractions, some too fine for a lane, years, and a key in debt.
fn many() -> Vec<ThrottleParams> {
    vec![
        terms(15, 30, 60),
        terms(15, 7, 60),
        terms(0, 1, 86_400),
        terms(99, 1_000_003, 86_400 * 365),
        terms(1 << 40, 1 << 20, 1),
        terms(3, 1, 86_400 * 365 * 30),
    ]
}

/// A few hundred calls by keys of which some come with other terms each time.
fn use_it(throttle: &Throttle, seed: u64, now: &mut Timestamp) -> Vec<Verdict> {
    let (mut dice, many) = (Dice(seed), many());
    let mut call = |_| {
        let key = dice.below(60);
        let which = if key < 30 { key } else { dice.below(60) };
        let terms = &many[which as usize % many.len()];
        *now = now.after(Span::from_millis(dice.below(400)));
        throttle.hit(&key.to_le_bytes(), terms, dice.below(4), *now).unwrap()
    };
    (0..400).map(&mut call).collect()
}

#[test]
fn a_restart_keeps_what_was_used() {
    let (file, memory) = (File::new(), Memory::new());
    let throttle = Throttle::new(&memory);
    let mut now = NOON;
    use_it(&throttle, 9, &mut now);
    let saved = memory.save(&file.0).unwrap();
    assert!((40..=60).contains(&saved.identities), "{saved:?}");

    let restored = Memory::restore(&file.0).unwrap();
    let again = Throttle::new(&restored);
    assert!(again.entries() as u64 == saved.identities && restored.entries() == again.entries());
    let (mut one, mut other) = (now, now);
    let expected = use_it(&throttle, 10, &mut one);
    assert_eq!(use_it(&again, 10, &mut other), expected);
    assert!(expected.iter().any(|verdict| !verdict.is_allowed()));
    assert!(expected.iter().any(|verdict| verdict.remaining < Some(0)), "some are in debt");
}

#[test]
fn a_restored_store_has_room_for_as_much_as_it_is_told() {
    let (file, memory) = (File::new(), Memory::new());
    let (throttle, daily) = (Throttle::new(&memory), terms(1, 1, 86_400));
    for key in 0..1_000u64 {
        throttle.hit(&key.to_le_bytes(), &daily, 1, NOON).unwrap();
    }
    memory.save(&file.0).unwrap();
    let restored = Memory::restore_with_entries(&file.0, 100).unwrap();
    let again = Throttle::new(&restored);
    assert_eq!((again.entries(), restored.entries()), (100, 100));
    let hit = |key: u64| again.hit(&key.to_le_bytes(), &daily, 2, NOON);
    let known = (0..1_000).filter(|key| hit(*key).is_ok_and(|verdict| !verdict.is_allowed()));
    assert_eq!(known.count(), 100);
}

#[test]
fn what_has_run_out_is_not_saved() {
    let (file, memory) = (File::new(), Memory::new());
    let throttle = Throttle::new(&memory);
    throttle.hit(b"brief", &terms(0, 1, 1), 1, NOON).unwrap();
    throttle.hit(b"long", &terms(0, 1, 60), 1, NOON).unwrap();
    throttle.hit(b"later", &terms(0, 1, 60), 1, NOON.after(Span::from_secs(2))).unwrap();
    assert_eq!(memory.save(&file.0).unwrap().identities, 2);
}

#[test]
fn a_snapshot_has_limiters_and_a_throttle() {
    let (file, memory) = (File::new(), Memory::new());
    let logins = |memory: &Memory| {
        Limiter::builder().name("logins").limit(FixedWindow::per_day(5)).memory(memory).build()
    };
    let (limiter, throttle) = (logins(&memory).unwrap(), Throttle::new(&memory));
    limiter.hit("alice");
    let now = limiter.now();
    throttle.hit(b"alice", &terms(4, 1, 86_400), 1, now).unwrap();
    assert_eq!(memory.save(&file.0).unwrap().identities, 2);

    let restored = Memory::restore(&file.0).unwrap();
    let (throttle, limiter) = (Throttle::new(&restored), logins(&restored).unwrap());
    assert_eq!(limiter.of("alice").peek().remaining, Some(4));
    let left = throttle.hit(b"alice", &terms(4, 1, 86_400), 0, now).unwrap();
    assert_eq!(left.remaining, Some(4));

    let _second = Throttle::new(&restored);
    let error = restored.save(&file.0).unwrap_err();
    assert!(matches!(error, SnapshotError::SameName { .. }), "{error}");
}

#[test]
fn threads_on_one_key_never_admit_more_than_the_limit() {
    const EACH: u64 = 20_000;
    let throttle = Throttle::new(&Memory::new());
    // Two ways to write one pace, and one fraction of a token in all the time it takes: nothing comes back.
    let both = [terms(EACH as i64 - 1, 1, 86_400), terms(EACH as i64 - 1, 2, 172_800)];
    let admitted: u64 = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let throttle = throttle.clone();
            scope.spawn(move || {
                let hit = |call: u64| {
                    // Their clocks differ by a little, and the terms change now and then.
                    let now = NOON.after(Span::from_micros(call * 2 + thread));
                    let terms = &both[(call / 64 % 2) as usize];
                    throttle.hit(b"one", terms, 1, now).unwrap().is_allowed()
                };
                (0..EACH).filter(|call| hit(*call)).count() as u64
            })
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, EACH);
    assert_eq!(throttle.entries(), 1);
}

#[test]
fn threads_on_many_keys_are_all_counted() {
    let memory = Memory::with_entries(5_000);
    let (throttle, daily) = (Throttle::new(&memory), terms(0, 1, 86_400));
    let admitted: usize = std::thread::scope(|scope| {
        let threads = [0, 1].map(|_| {
            let throttle = throttle.clone();
            scope.spawn(move || {
                let hit = |key: u64| throttle.hit(&key.to_le_bytes(), &daily, 1, NOON);
                (0..10_000)
                    .filter(|key| hit(*key).is_ok_and(|verdict| verdict.is_allowed()))
                    .count()
            })
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((admitted, throttle.entries(), memory.entries()), (5_000, 5_000, 5_000));
}
