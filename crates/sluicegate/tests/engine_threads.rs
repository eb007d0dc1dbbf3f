//! Everything at once: requests, reloads, snapshots, sweeps, signals of the load, and a limiter beside the rules.
//!
//! Whoever reloads holds the locks of all limiters whose limits change, while a snapshot takes them one by one and a change of a
//! single limiter takes its own. None of the two holds one while it waits for another, so nobody waits in a circle.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine_support::{ask, check, rules};
use sluicegate::clock::ManualClock;
use sluicegate::limit::FixedWindow;
use sluicegate::{CarryOver, Engine, Limiter, Memory};

const MOST: u64 = 4_000;

/// Every rule is another one in each of two sets, but for `all`, whose number alone changes.
fn texts() -> [String; 2] {
    let text = |number: u64, other: &str, mode: &str| {
        format!(
            "
domain: shop
descriptors:
  - {{ key: all, limits: {{ algorithm: fixed_window, rate: {number}/day }} }}
  - {{ key: user, limits: {{ algorithm: {other}, rate: 100/day }} }}
  - {{ key: elastic, mode: {mode}, limits: {{ algorithm: fixed_window, rate: 100/day }} }}
  - {{ key: envoy, rate_limit: {{ unit: day, requests_per_unit: {number} }} }}
  - {{ key: {other}, rate_limit: {{ unit: day, requests_per_unit: 3 }} }}
"
        )
    };
    [
        text(MOST, "token_bucket", "hard"),
        text(MOST / 2, "sliding_log", "{ elastic: { up_to: 2x, below: 70%, above: 85% } }"),
    ]
}

/// Tells everybody that it is over, also when somebody has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct File(std::path::PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn nobody_waits_in_a_circle_and_nothing_is_lost() {
    let texts = texts();
    let (memory, clock) = (Memory::new(), ManualClock::new());
    let start = |memory: &Memory| {
        Engine::builder(rules(&texts[0])).memory(memory).clock(clock.clone()).build().unwrap()
    };
    let engine = start(&memory);
    let beside = Limiter::builder()
        .name("beside")
        .limit(FixedWindow::per_day(1_000))
        .memory(&memory)
        .clock(clock.clone())
        .build()
        .unwrap();
    let path = std::env::temp_dir().join(format!("sluicegate-threads-{}", std::process::id()));
    let file = File(path);
    let (over, admitted) = (AtomicBool::new(false), AtomicU64::new(0));
    let goes_on = || !over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for thread in 0..2 {
            let (engine, admitted) = (&engine, &admitted);
            scope.spawn(move || {
                let mut turn = 0;
                while goes_on() {
                    turn += 1;
                    let passed = ask("all=1", |request| engine.check(request)).allowed;
                    admitted.fetch_add(u64::from(passed), Ordering::SeqCst);
                    let many =
                        format!("user={thread} | elastic={turn} | envoy=1 | user=0 limit=5/day");
                    ask(&many, |request| engine.check(request));
                    check(engine, "token_bucket=1 | sliding_log=1");
                    ask("user=0 | elastic=1", |request| engine.refund(request));
                }
            });
        }
        scope.spawn(|| {
            while goes_on() {
                engine.set_load(500);
                engine.sweep();
                beside.set_limits([FixedWindow::per_day(2_000)], CarryOver::Used).unwrap();
                beside.hit("somebody");
            }
        });
        let saving = scope.spawn(|| {
            for _ in 0..25 {
                let before = admitted.load(Ordering::SeqCst);
                memory.save(&file.0).unwrap();
                let memory = Memory::restore(&file.0).unwrap();
                let saved = start(&memory);
                let left =
                    ask("all=1", |request| saved.peek(request)).statuses[0].verdict.remaining;
                let used = MOST - u64::try_from(left.unwrap()).unwrap();
                // Each thread may have passed without having told yet.
                let after = admitted.load(Ordering::SeqCst) + 2;
                assert!((before..=after).contains(&used), "{before} <= {used} <= {after}");
            }
        });
        for turn in 0..120 {
            engine.reload(rules(&texts[turn % 2])).unwrap();
        }
        saving.join().unwrap();
    });
    engine.reload(rules(&texts[0])).unwrap();
    while ask("all=1", |request| engine.check(request)).allowed {
        admitted.fetch_add(1, Ordering::SeqCst);
    }
    assert_eq!(admitted.into_inner(), MOST, "exactly, whatever happened meanwhile");
}
