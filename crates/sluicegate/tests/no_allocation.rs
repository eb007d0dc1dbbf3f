//! A check takes no memory once the buffers that are handed in have grown and those who ask are known.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use sluicegate::rules::unit::Unit;
use sluicegate::throttle::{Throttle, ThrottleParams};
use sluicegate::{Checked, Engine, Memory, MemoryBackend, Operation, Span, Timestamp, rules_of};

struct Counting;

thread_local! {
    // Of this thread alone: the harness works beside the test.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed on to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const RULES: &str = "
domain: shop
deny: [{ key: remote_address, cidr: 203.0.113.0/24 }]
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: path
    value: /login*
    rate_limit: { unit: day, requests_per_unit: 0 }
  - key: tenant
    limits:
      - { name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }
      - { name: daily, algorithm: fixed_window, rate: 100/day }
  - key: remote_address
    prefix: { v4: 24 }
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 10 }
";

#[test]
fn a_check_takes_no_memory() {
    let engine = Engine::new(rules_of(RULES).unwrap()).unwrap();
    let all = [("user", "alice"), ("user", "bob"), ("path", "/login/x"), ("tenant", "acme")];
    let [user, other, path, tenant] = all.map(|(key, value)| [Entry::new(key, value)]);
    let unknown = [Entry::new("nobody", "knows"), Entry::new("this", "one")];
    let limit = Some(Override { requests_per_unit: 5, unit: Unit::Minute });
    let requests: [&[Descriptor<'_>]; 5] = [
        &[Descriptor::of(&user)],
        &[Descriptor::of(&tenant)],
        &[Descriptor::of(&user), Descriptor::of(&path), Descriptor::of(&unknown)],
        &[Descriptor { limit, ..Descriptor::of(&user) }],
        // (Where the one denies, the other is only looked at, which does take memory.)
        &[Descriptor::of(&other), Descriptor::of(&tenant)],
    ];
    let mut checked = Checked::default();
    for descriptors in requests {
        let request = Request { domain: "shop", descriptors, hits: 1 };
        let mut ask = || {
            MemoryBackend::apply_now(
                Operation::Hit,
                &engine.call(&engine.snapshot(), &request),
                &mut checked,
            )
        };
        (0..10).for_each(|_| ask());
        let before = TAKEN.get();
        // Most are admitted at first, and denied from some point on.
        (0..80).for_each(|_| ask());
        assert_eq!(TAKEN.get() - before, 0, "{descriptors:?}");
    }
}

#[test]
fn a_throttled_hit_takes_no_memory() {
    let throttle = Throttle::new(&Memory::new());
    // Whole microseconds, a fraction, and one too fine for a lane. Some tokens come back meanwhile.
    for (burst, count, period_s) in [(15, 30, 60), (15, 7, 60), (15, 1_000_003, 31_536_000)] {
        let terms = ThrottleParams::new(burst, count, period_s).unwrap();
        let key = count.to_le_bytes();
        let ask = |call: u64| {
            let now = Timestamp::EPOCH.after(Span::from_millis(call * 100));
            throttle.hit(&key, &terms, 1, now).unwrap();
            throttle.hit(&key, &terms, 0, now).unwrap();
            throttle.hit_batch([(&key[..], &terms, 1)], now, |_, verdict| assert!(verdict.is_ok()));
        };
        (0..10).for_each(ask);
        let before = TAKEN.get();
        (10..90).for_each(ask);
        assert_eq!(TAKEN.get() - before, 0, "{count} in {period_s} s");
    }
}
