//! A store written to a file and made from it again.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Concurrency, Cycle, FixedWindow, IntoLimit, LeakyBucket, SlidingLog, SlidingWindow,
    SmoothBursty, TokenBucket, WarmUp,
};
use sluicegate::{LimitError, Limiter, Memory, Mode, Op, SnapshotError};
use sluicegate_rules::limit::LimitConfig;

/// A folder of its own for each test, gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sluicegate-{}-{next}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("store.snapshot")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn every_algorithm() -> Vec<LimitConfig> {
    let all = [
        TokenBucket::per_second(3).burst(9).into_limit(),
        TokenBucket::per_second(3).burst(9).initial(2).into_limit(),
        LeakyBucket::per_second(5).queue(6).into_limit(),
        FixedWindow::per_minute(7).into_limit(),
        FixedWindow::per_day(7).in_zone("Europe/Berlin").into_limit(),
        FixedWindow::per_minute(7).from_first_hit().into_limit(),
        SlidingLog::per_minute(5).count_denied().into_limit(),
        SlidingWindow::per_minute(7).into_limit(),
        SmoothBursty::per_second(5).into_limit(),
        WarmUp::per_second(5).over(Duration::from_secs(4)).into_limit(),
        Cycle::of(5).every(Duration::from_secs(10)).into_limit(),
        Concurrency::at_most(3).into_limit(),
    ];
    all.into_iter().map(Result::unwrap).collect()
}

fn limiter(memory: &Memory, clock: &ManualClock, limit: LimitConfig) -> Limiter {
    let builder = Limiter::builder().name("one").limit(limit).memory(memory);
    builder.clock(clock.clone()).build().unwrap()
}

/// Something of everything: hits, a debt, a reservation that is pending.
fn use_it(limiter: &Limiter, clock: &ManualClock) {
    for round in 0..40u64 {
        let user = format!("user:{}", round % 13);
        let _ = limiter.of(&user).cost(round % 4).hit();
        if round % 7 == 0 {
            let _ = limiter.of(&user).cost(3).charge();
        }
        if round % 5 == 0 {
            let _ = limiter.of(&user).cost(2).reserve().map(std::mem::forget);
        }
        clock.advance(Duration::from_millis(130));
    }
}

#[test]
fn what_a_killed_process_of_the_same_number_has_left_is_not_in_the_way() {
    let folder = Folder::new();
    // More than all tests here save.
    for next in 0..500 {
        let left = format!("store.snapshot.{}-{next}.tmp", std::process::id());
        std::fs::write(folder.0.join(left), "half a snapshot").unwrap();
    }
    let memory = Memory::new();
    let limiter =
        Limiter::builder().name("logins").limit(FixedWindow::per_day(5)).memory(&memory).build();
    let limiter = limiter.unwrap();
    limiter.hit("alice");
    assert_eq!(memory.save(folder.file()).unwrap().identities, 1);
    assert!(Memory::restore(folder.file()).is_ok());
}

#[test]
fn a_restored_store_gives_the_same_answers() {
    for limit in every_algorithm() {
        let folder = Folder::new();
        let (memory, clock) = (Memory::new(), ManualClock::new());
        let before = limiter(&memory, &clock, limit.clone());
        use_it(&before, &clock);
        let saved = memory.save(folder.file()).unwrap();
        assert!((1..=13).contains(&saved.identities), "{limit:?}: {saved:?}");
        assert_eq!(saved.bytes, std::fs::metadata(folder.file()).unwrap().len());

        let restored = Memory::restore(folder.file()).unwrap();
        let after = limiter(&restored, &clock, limit.clone());
        for round in 0..200u64 {
            let user = format!("user:{}", round % 17);
            let op = match round % 4 {
                0 => Op::Peek { cost: 1 },
                1 => Op::Reset,
                _ => Op::Acquire {
                    cost: 1 + round % 3,
                    max_wait: sluicegate::Span::MAX,
                    holder: None,
                },
            };
            let ask = |limiter: &Limiter| (limiter.of(&user).ask(op), limiter.of(&user).peek());
            assert_eq!(ask(&before), ask(&after), "{limit:?}, round {round}");
            clock.advance(Duration::from_millis(round * 11));
        }
    }
}

#[test]
fn what_has_run_out_is_not_saved() {
    let folder = Folder::new();
    let (memory, clock) = (Memory::new(), ManualClock::new());
    let limiter = limiter(&memory, &clock, TokenBucket::per_second(1).into_limit().unwrap());
    limiter.hit("alice");
    clock.advance(Duration::from_secs(1));
    limiter.hit("bob");
    assert_eq!(memory.save(folder.file()).unwrap().identities, 1);
}

#[test]
fn limits_that_changed_meanwhile_are_changed_as_if_live() {
    let folder = Folder::new();
    let (memory, clock) = (Memory::new(), ManualClock::new());
    let ten = limiter(&memory, &clock, FixedWindow::per_day(10).into_limit().unwrap());
    ten.of("alice").cost(8).hit();
    memory.save(folder.file()).unwrap();

    let restored = Memory::restore(folder.file()).unwrap();
    let twenty = limiter(&restored, &clock, FixedWindow::per_day(20).into_limit().unwrap());
    assert_eq!(twenty.of("alice").peek().remaining, Some(12));

    let restored = Memory::restore(folder.file()).unwrap();
    let other = limiter(&restored, &clock, TokenBucket::per_day(10).into_limit().unwrap());
    assert_eq!(other.of("alice").peek().remaining, Some(10), "another algorithm starts anew");

    let restored = Memory::restore(folder.file()).unwrap();
    let builder = Limiter::builder()
        .name("one")
        .limit(FixedWindow::per_day(10))
        .mode(Mode::Soft { percent: 50 });
    let soft = builder.memory(&restored).clock(clock.clone()).build().unwrap();
    assert_eq!(soft.of("alice").peek().remaining, Some(2));
}

#[test]
fn several_limiters_find_their_own() {
    let folder = Folder::new();
    let memory = Memory::new();
    let clock = ManualClock::new();
    let build = |memory: &Memory, name: &str| {
        let builder = Limiter::builder().name(name).limit(FixedWindow::per_day(10));
        builder.memory(memory).clock(clock.clone()).build().unwrap()
    };
    let (one, two) = (build(&memory, "one"), build(&memory, "two"));
    one.of("alice").cost(3).hit();
    two.of("alice").cost(5).hit();
    memory.save(folder.file()).unwrap();

    let restored = Memory::restore(folder.file()).unwrap();
    let (two, new, one) =
        (build(&restored, "two"), build(&restored, "new"), build(&restored, "one"));
    let left = |limiter: &Limiter| limiter.of("alice").peek().remaining;
    assert_eq!([left(&one), left(&two), left(&new)], [Some(7), Some(5), Some(10)]);

    let again = Limiter::builder().name("one").limit(FixedWindow::per_day(10)).memory(&restored);
    assert_eq!(again.build().unwrap_err(), LimitError::NameTaken { name: "one".to_owned() });
    restored.save(folder.file()).unwrap();
}

#[test]
fn any_damage_is_told_and_never_believed() {
    let folder = Folder::new();
    let (memory, clock) = (Memory::new(), ManualClock::new());
    let takes_two = |limit: &LimitConfig| {
        !["concurrency", "smooth_bursty", "warm_up"].contains(&limit.algorithm())
    };
    let limits = every_algorithm().into_iter().filter(takes_two);
    let before = Limiter::builder().name("one").limits(limits).memory(&memory).clock(clock.clone());
    let before = before.build().unwrap();
    for user in ["alice", "bob"] {
        before.hit(user);
        before.of(user).reserve().map(std::mem::forget).unwrap();
    }
    memory.save(folder.file()).unwrap();
    let intact = std::fs::read(folder.file()).unwrap();
    Memory::restore(folder.file()).unwrap();

    for cut in 0..intact.len() {
        std::fs::write(folder.file(), &intact[..cut]).unwrap();
        let error = Memory::restore(folder.file()).unwrap_err();
        let told = matches!(
            error,
            SnapshotError::Truncated { .. }
                | SnapshotError::Corrupted { .. }
                | SnapshotError::Foreign { .. }
        );
        assert!(told, "cut at {cut}: {error}");
    }
    for place in 0..intact.len() {
        for flip in [1u8, 0x80] {
            let mut damaged = intact.clone();
            damaged[place] ^= flip;
            std::fs::write(folder.file(), &damaged).unwrap();
            assert!(Memory::restore(folder.file()).is_err(), "byte {place} changed");
        }
    }
    let mut longer = intact.clone();
    longer.push(0);
    std::fs::write(folder.file(), longer).unwrap();
    let error = Memory::restore(folder.file()).unwrap_err();
    assert!(matches!(error, SnapshotError::Corrupted { .. }), "{error}");
}

#[test]
fn messages_say_what_it_is_and_what_to_do() {
    let folder = Folder::new();
    let told = |bytes: &[u8]| {
        std::fs::write(folder.file(), bytes).unwrap();
        let error = Memory::restore(folder.file()).unwrap_err();
        assert!(!error.is_missing());
        error.to_string().replace(&folder.file().display().to_string(), "FILE")
    };
    let empty = "counters start at zero, and the next save moves this file aside";
    assert_eq!(
        told(b"GIF89a, and so on"),
        "FILE: this is no snapshot of a sluicegate store; name another file"
    );
    for cut in [b"".as_slice(), b"SLU"] {
        assert_eq!(told(cut), format!("FILE: the snapshot is cut short; {empty}"));
    }
    assert_eq!(
        told(b"SLUICEG\n\x07\0\0\0"),
        format!("FILE: a snapshot of version `7`, and this program reads version `2`; {empty}")
    );
    assert_eq!(
        told(b"SLUICEG\n\x02\0\0\0\0\0"),
        format!("FILE: the snapshot is cut short; {empty}")
    );
    let missing = Memory::restore(folder.0.join("nothing")).unwrap_err();
    assert!(missing.is_missing());
    let no_folder = Memory::restore(folder.0.join("nothing/store")).unwrap_err();
    assert!(matches!(no_folder, SnapshotError::NoFolder { .. }), "{no_folder}");
}

#[test]
fn the_old_file_stays_until_the_new_one_is_there() {
    let folder = Folder::new();
    let (memory, clock) = (Memory::new(), ManualClock::new());
    let limiter = limiter(&memory, &clock, FixedWindow::per_day(9).into_limit().unwrap());
    limiter.hit("alice");
    memory.save(folder.file()).unwrap();
    limiter.hit("bob");
    memory.save(folder.file()).unwrap();
    assert_eq!(folder.names(), ["store.snapshot", "store.snapshot.lock"], "no leftovers");

    let nowhere = folder.0.join("no folder").join("store.snapshot");
    let error = memory.save(&nowhere).unwrap_err();
    assert!(error.to_string().starts_with(&nowhere.display().to_string()), "{error}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it holds the store's secret key");
    }
}

#[test]
fn a_store_is_saved_while_others_decide() {
    let folder = Folder::new();
    let (memory, clock) = (Memory::new(), ManualClock::new());
    let limiter = limiter(&memory, &clock, FixedWindow::per_day(1_000_000).into_limit().unwrap());
    for user in 0..2_000 {
        limiter.hit(format!("user:{user}"));
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (limiter, over) = (&limiter, &over);
            scope.spawn(move || {
                for user in (thread..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    limiter.hit(format!("user:{}", user % 4_000));
                }
            });
        }
        for _ in 0..5 {
            let saved = memory.save(folder.file()).unwrap();
            assert!((2_000..=4_000).contains(&saved.identities), "{saved:?}");
            Memory::restore(folder.file()).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    // What is restored was true at some moment: nobody has used more than they have by now.
    let restored = Memory::restore(folder.file()).unwrap();
    let after = a_million_a_day(&restored, &clock);
    for user in 0..4_000 {
        let user = format!("user:{user}");
        let (now, then) = (limiter.of(&user).peek().remaining, after.of(&user).peek().remaining);
        assert!(then >= now, "{user} had {then:?} left when saved, and has {now:?}");
    }
}

fn a_million_a_day(memory: &Memory, clock: &ManualClock) -> Limiter {
    limiter(memory, clock, FixedWindow::per_day(1_000_000).into_limit().unwrap())
}

#[test]
fn what_does_not_fit_under_the_cap_is_left_out() {
    let folder = Folder::new();
    let (memory, clock) = (Memory::new(), ManualClock::new());
    let before = limiter(&memory, &clock, FixedWindow::per_day(9).into_limit().unwrap());
    for user in 0..100 {
        before.hit(format!("user:{user}"));
    }
    memory.save(folder.file()).unwrap();
    let small = Memory::restore_with_entries(folder.file(), 10).unwrap();
    let _after = limiter(&small, &clock, FixedWindow::per_day(9).into_limit().unwrap());
    assert_eq!(small.entries(), 10);
}
