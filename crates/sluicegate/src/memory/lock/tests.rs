//! The lock in real threads. Every way in which two can meet is tried in `loom_tests.rs`.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::Mutex;

#[test]
fn nobody_is_inside_with_another() {
    let turns = if cfg!(miri) { 50 } else { 20_000 };
    // Two numbers that are the same whenever nobody is inside.
    let both = Mutex::new((0u64, 0u64));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..turns {
                    let mut both = both.lock();
                    both.0 += 1;
                    assert_eq!(both.0, both.1 + 1);
                    both.1 += 1;
                }
            });
        }
    });
    assert_eq!(both.into_inner(), (4 * turns, 4 * turns));
}

#[test]
fn who_only_tries_does_not_wait() {
    let lock = Mutex::new(());
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    assert!(lock.is_locked());
    drop(guard);
    assert!(lock.try_lock().is_some());
    assert!(!lock.is_locked());
}

#[test]
fn a_panic_inside_lets_go() {
    let lock = Mutex::new(1);
    let inside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = lock.lock();
        panic!("inside");
    }));
    assert!(inside.is_err());
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn waiting_for_the_lock_leaves_an_unpark_to_whom_it_was_meant_for() {
    let lock = Mutex::new(());
    let (tell, hear) = channel();
    thread::scope(|scope| {
        let guard = lock.lock();
        let waiting = scope.spawn(|| {
            let before = tell.clone();
            // As if somebody had woken this thread just before it came to the lock.
            thread::current().unpark();
            before.send("about to wait").unwrap();
            drop(lock.lock());
            thread::park();
            tell.send("woken").unwrap();
        });
        hear.recv().unwrap();
        // Long enough for it to nap.
        for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
            thread::yield_now();
        }
        drop(guard);
        let woken = hear.recv_timeout(Duration::from_secs(5));
        waiting.thread().unpark();
        assert_eq!(woken, Ok("woken"));
    });
}
