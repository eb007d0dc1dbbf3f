//! Rules that change while they are in use.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine_support::{ask, check, engine, peek, rules, told};
use sluicegate::backend::Call;
use sluicegate::clock::ManualClock;
use sluicegate::config::files::ReadOptions;
use sluicegate::config::watch::Watch;
use sluicegate::rules::plan::Target;
use sluicegate::{Change, Engine, Follower, Memory, MemoryBackend, Operation, Reloaded};

fn users(limits: &str) -> String {
    format!("domain: shop\ndescriptors:\n  - key: user\n    {limits}\n")
}

fn window(number: u64) -> String {
    users(&format!("limits: {{ algorithm: fixed_window, rate: {number}/day }}"))
}

fn envoy(number: u64) -> String {
    users(&format!("rate_limit: {{ unit: day, requests_per_unit: {number} }}"))
}

#[test]
fn what_was_used_stays_used_when_numbers_change() {
    for form in [window, envoy] {
        let (engine, _) = engine(&form(10));
        assert_eq!(check(&engine, "user=a x8"), "yes 2");
        let changed = Reloaded { changed: 1, domains: 1, ..Reloaded::default() };
        assert_eq!(engine.reload(rules(&form(20))), Ok(changed));
        assert_eq!(peek(&engine, "user=a"), "yes 12");
        engine.reload(rules(&form(5))).unwrap();
        assert!(check(&engine, "user=a").starts_with("no"));
        assert_eq!(check(&engine, "user=b"), "yes 4");
    }
}

#[test]
fn what_has_not_changed_is_left_alone() {
    let (engine, _) = engine(&window(10));
    check(&engine, "user=a x8");
    let same = Reloaded { same: 1, added: 1, domains: 1, ..Reloaded::default() };
    let more = format!(
        "{}  - key: other\n    rate_limit: {{ unit: day, requests_per_unit: 1 }}\n",
        window(10)
    );
    assert_eq!(engine.reload(rules(&more)), Ok(same));
    assert_eq!(peek(&engine, "user=a"), "yes 2");
    let removed = Reloaded { same: 1, removed: 1, domains: 1, ..Reloaded::default() };
    assert_eq!(engine.reload(rules(&window(10))), Ok(removed));
    assert_eq!(peek(&engine, "user=a"), "yes 2");
}

#[test]
fn a_rule_keeps_its_counts_wherever_it_stands_in_the_file() {
    let two = |first: &str, second: &str| {
        let rule = |key: &str| {
            format!("  - {{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 10 }} }}\n")
        };
        format!("domain: shop\ndescriptors:\n{}{}", rule(first), rule(second))
    };
    let (engine, _) = engine(&two("user", "tenant"));
    check(&engine, "user=a x8 | tenant=t x3");
    assert_eq!(engine.reload(rules(&two("tenant", "user"))).unwrap().same, 2);
    assert_eq!(peek(&engine, "user=a | tenant=t"), "yes 2 7");
}

#[test]
fn the_algorithm_of_a_rule_is_switched_live() {
    let (engine, clock) = engine(&window(10));
    check(&engine, "user=a x8");
    for limits in [
        "limits: { algorithm: token_bucket, rate: 10/day }",
        "limits: { algorithm: sliding_log, rate: 10/day }",
        "rate_limit: { unit: day, requests_per_unit: 10 }",
        "limits: [{ algorithm: sliding_window, rate: 10/day }, { name: m, algorithm: token_bucket, rate: 10/m }]",
        "limits: { algorithm: concurrency, max: 10, lease: 1m }",
        "limits: { algorithm: fixed_window, rate: 10/day }",
    ] {
        assert_eq!(engine.reload(rules(&users(limits))).unwrap().changed, 1, "{limits}");
        assert_eq!(peek(&engine, "user=a"), "yes 10", "{limits}: another algorithm begins anew");
        assert_eq!(check(&engine, "user=a x10"), "yes 0", "{limits}");
        assert!(check(&engine, "user=a").starts_with("no"), "{limits}");
        clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_rule_goes_from_shadow_to_hard_with_its_counts() {
    let mode = |mode: &str| {
        users(&format!("mode: {mode}\n    limits: {{ algorithm: fixed_window, rate: 2/day }}"))
    };
    let (engine, _) = engine(&mode("shadow"));
    for _ in 0..5 {
        assert!(check(&engine, "user=a").starts_with("yes"));
    }
    engine.reload(rules(&mode("hard"))).unwrap();
    assert_eq!(check(&engine, "user=a"), "no 0!");
}

#[test]
fn what_happens_without_room_can_be_changed() {
    let overflow = |what: &str| {
        let text = users(&format!(
            "overflow: {what}\n    limits: {{ algorithm: fixed_window, rate: 2/day }}"
        ));
        rules(&text)
    };
    let engine =
        Engine::builder(overflow("deny")).memory(&Memory::with_entries(1)).build().unwrap();
    assert_eq!(check(&engine, "user=a"), "yes 1");
    assert_eq!(check(&engine, "user=b"), "no -!");
    assert_eq!(engine.reload(overflow("allow")).unwrap().changed, 1);
    assert_eq!(check(&engine, "user=b"), "yes -");
    assert_eq!(check(&engine, "user=a"), "yes 0", "and who has room keeps it");
}

#[test]
fn a_load_that_was_heard_before_anybody_came_counts() {
    let text = users(
        "limits: { algorithm: fixed_window, rate: 1/day }\n    mode: { elastic: { up_to: 2x, below: 70%, above: 85% } }",
    );
    let (engine, clock) = engine(&text);
    engine.set_load(500);
    assert!(check(&engine, "user=a").starts_with("yes"));
    assert!(check(&engine, "user=a").starts_with("yes"), "twice as much");
    clock.advance(Duration::from_secs(10));
    assert!(check(&engine, "user=b").starts_with("yes"));
    assert!(check(&engine, "user=b").starts_with("no"), "an old signal is none");
}

#[test]
fn a_request_is_judged_by_the_rules_of_its_snapshot_or_later_ones() {
    let (engine, _) = engine(&window(10));
    check(&engine, "user=a x8");
    let before = engine.snapshot();
    engine.reload(rules(&window(20))).unwrap();
    let mut checked = sluicegate::Checked::default();
    ask("user=a", |request| {
        MemoryBackend::apply_now(
            Operation::Hit,
            &Call::new(&before, request, engine.now()),
            &mut checked,
        );
        checked.clone()
    });
    assert_eq!(told(&checked), "yes 11", "there is one count, and it is under the later limit");
    assert_eq!(peek(&engine, "user=a"), "yes 11");
}

#[test]
fn many_rules_keep_their_counts_apart_and_through_a_reload() {
    let many = |number: u32| {
        let mut text = "domain: shop\ndescriptors:\n".to_owned();
        for tenant in 0..300 {
            text.push_str(&format!(
                "  - key: tenant\n    value: t{tenant}\n    rate_limit: {{ unit: day, requests_per_unit: {} }}\n    \
                 descriptors: [{{ key: user, limits: {{ algorithm: token_bucket, rate: {}/day }} }}]\n",
                number + tenant,
                number + tenant
            ));
        }
        text
    };
    let (engine, _) = engine(&many(100));
    for tenant in 0..300 {
        assert_eq!(
            check(&engine, &format!("tenant=t{tenant} x50")),
            format!("yes {}", 50 + tenant)
        );
        let user = format!("tenant=t{tenant},user=u x60");
        assert_eq!(check(&engine, &user), format!("yes {}", 40 + tenant));
    }
    assert_eq!(engine.reload(rules(&many(200))).unwrap().changed, 600);
    for tenant in 0..300 {
        let both = format!("tenant=t{tenant} | tenant=t{tenant},user=u");
        assert_eq!(peek(&engine, &both), format!("yes {} {}", 150 + tenant, 140 + tenant));
    }
}

#[test]
fn a_rule_that_becomes_elastic_knows_of_the_last_load() {
    let mode = |mode: &str| {
        users(&format!("limits: {{ algorithm: fixed_window, rate: 1/day }}\n    mode: {mode}"))
    };
    let elastic = mode("{ elastic: { up_to: 2x, below: 70%, above: 85% } }");
    let (engine, _) = engine(&mode("hard"));
    assert!(check(&engine, "user=a").starts_with("yes"));
    engine.set_load(500);
    engine.reload(rules(&elastic)).unwrap();
    assert!(check(&engine, "user=b").starts_with("yes"));
    assert!(check(&engine, "user=b").starts_with("yes"), "twice as much");
}

#[test]
fn a_load_in_between_leaves_a_rule_open_that_nobody_has_asked_for() {
    let text = users(
        "limits: { algorithm: fixed_window, rate: 1/day }\n    mode: { elastic: { up_to: 2x, below: 70%, above: 85% } }",
    );
    let (engine, _) = engine(&text);
    engine.set_load(500);
    engine.set_load(800);
    assert!(check(&engine, "user=a").starts_with("yes"));
    assert!(check(&engine, "user=a").starts_with("yes"));
}

#[test]
fn in_envoys_form_a_name_is_only_what_a_rule_is_called() {
    let named = |name: &str| {
        users(&format!("rate_limit: {{ name: {name}, unit: day, requests_per_unit: 10 }}"))
    };
    let (engine, _) = engine(&named("one"));
    check(&engine, "user=a x8");
    engine.reload(rules(&named("two"))).unwrap();
    assert_eq!(peek(&engine, "user=a"), "yes 2");
}

/// Somebody with an older set may be the first to come to a rule.
#[test]
fn whoever_comes_first_with_older_rules_is_saved_under_those_of_its_states() {
    let folder = Folder::new("late");
    let path = folder.0.join("saved");
    let newer = users("limits: { algorithm: token_bucket, rate: 10/day }");
    let clock = ManualClock::new();
    let start = |text: &str, memory: &Memory| {
        Engine::builder(rules(text)).memory(memory).clock(clock.clone()).build().unwrap()
    };
    let memory = Memory::new();
    let first = start(&window(10), &memory);
    let before = first.snapshot();
    first.reload(rules(&newer)).unwrap();
    let mut checked = sluicegate::Checked::default();
    ask("user=a x3", |request| {
        MemoryBackend::apply_now(
            Operation::Hit,
            &Call::new(&before, request, first.now()),
            &mut checked,
        );
        checked.clone()
    });
    assert_eq!(check(&first, "user=a x4"), "yes 6", "another algorithm begins anew");
    memory.save(&path).unwrap();
    let second = start(&newer, &Memory::restore(&path).unwrap());
    assert_eq!(peek(&second, "user=a"), "yes 6");
}

#[test]
fn a_rule_that_was_gone_and_is_back_is_saved_once() {
    let folder = Folder::new("back");
    let memory = Memory::new();
    let engine = Engine::builder(rules(&window(10))).memory(&memory).build().unwrap();
    check(&engine, "user=a");
    let before = engine.snapshot();
    engine.reload(rules("domain: other")).unwrap();
    engine.reload(rules(&window(10))).unwrap();
    check(&engine, "user=a");
    assert_eq!(memory.save(folder.0.join("saved")).unwrap().identities, 1, "of the new one");
    drop(before);
}

// === under load ===

/// Two rule sets in turn, while threads ask: each request is matched wholly by one of them, nobody ever finds no rule, and in all no more
/// passes than the larger of the two allows.
#[test]
fn nobody_sees_half_a_rule_set_and_nothing_is_lost_or_won() {
    const LARGER: u64 = 3_000;
    let both = |name: &str, number: u64| {
        format!(
            "domain: shop
descriptors:
  - {{ key: user, id: {name}-user, limits: {{ algorithm: fixed_window, rate: {number}/day }} }}
  - {{ key: all, limits: {{ name: all, algorithm: fixed_window, rate: {number}/day }} }}
  - {{ key: tenant, id: {name}-tenant, rate_limit: {{ unit: day, requests_per_unit: 4000000 }} }}
"
        )
    };
    let texts = [both("odd", 2_000), both("even", LARGER)];
    let (engine, _) = engine(&texts[1]);
    let (stop, admitted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, stop, admitted) = (&engine, &stop, &admitted);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let text = format!("user={thread} | tenant=t");
                    let checked = ask(&text, |request| engine.check(request));
                    assert!(checked.statuses.iter().all(|s| matches!(s.target, Target::Rule(_))));
                    let all = ask("all=1", |request| engine.check(request));
                    admitted.fetch_add(u64::from(all.allowed), Ordering::Relaxed);
                    assert!(matches!(all.statuses[0].target, Target::Rule(_)));
                }
            });
        }
        for turn in 0..60 {
            engine.reload(rules(&texts[turn % 2])).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    while ask("all=1", |request| engine.check(request)).allowed {
        admitted.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(admitted.into_inner(), LARGER, "exactly, whatever was changed meanwhile");
}

/// The names of the rules that a request meets are all of one set.
#[test]
fn the_rules_of_one_request_are_of_one_set() {
    let both = |name: &str| {
        format!(
            "domain: shop
descriptors:
  - {{ key: user, id: {name}-user, limits: {{ algorithm: fixed_window, rate: 5000000/day }} }}
  - {{ key: tenant, id: {name}-tenant, limits: {{ algorithm: fixed_window, rate: 5000000/day }} }}
"
        )
    };
    let texts = [both("odd"), both("even")];
    let (engine, _) = engine(&texts[1]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut checked = sluicegate::Checked::default();
            while !stop.load(Ordering::Relaxed) {
                let snapshot = engine.snapshot();
                ask("user=a | tenant=t", |request| {
                    MemoryBackend::apply_now(
                        Operation::Hit,
                        &Call::new(&snapshot, request, engine.now()),
                        &mut checked,
                    );
                    checked.clone()
                });
                let name = |status: &sluicegate::Status| match status.target {
                    Target::Rule(no) => snapshot.rules().id(no),
                    other => panic!("{other:?}"),
                };
                let names: Vec<String> = checked.statuses.iter().map(name).collect();
                let odd = names.iter().filter(|name| name.contains("odd")).count();
                assert!(odd == 0 || odd == 2, "{names:?}");
            }
        });
        for turn in 0..200 {
            engine.reload(rules(&texts[turn % 2])).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

// === files ===

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sluicegate-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn follow(&self, engine: &Engine) -> Follower {
        let watch = Watch::new([&self.0], ReadOptions::default());
        let (follower, warnings) = engine.follow(watch, Default::default()).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        follower
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What came of the next change: the first look finds it, the second finds it at rest.
fn next(follower: &mut Follower) -> Change {
    assert!(follower.poll().is_none(), "may still be changing");
    follower.poll().expect("is at rest")
}

#[test]
fn files_are_followed_and_a_bad_one_changes_nothing() {
    let folder = Folder::new("follow");
    folder.write("rules.yaml", &window(10));
    let (engine, _) = engine("domain: other");
    let mut follower = folder.follow(&engine);
    check(&engine, "user=a x8");

    folder.write("rules.yaml", &window(20));
    assert!(matches!(
        next(&mut follower),
        Change::Taken { reloaded: Reloaded { changed: 1, .. }, .. }
    ));
    assert_eq!(peek(&engine, "user=a"), "yes 12");

    folder.write("rules.yaml", &users("rate_limt: { unit: day }"));
    let Change::Refused(error) = next(&mut follower) else { panic!("taken") };
    let told = error.to_string();
    assert!(
        told.contains("rules.yaml:4:5") && told.contains("did you mean `rate_limit`?"),
        "{told}"
    );
    assert_eq!(peek(&engine, "user=a"), "yes 12", "the old rules go on");
    for _ in 0..3 {
        assert!(follower.poll().is_none(), "told once");
    }

    std::fs::remove_file(folder.0.join("rules.yaml")).unwrap();
    folder.write("more.yaml", &window(30));
    assert!(matches!(next(&mut follower), Change::Taken { .. }));
    assert_eq!(peek(&engine, "user=a"), "yes 22", "in another file, it is the same rule");
}

#[cfg(unix)]
#[test]
fn a_config_map_is_exchanged_in_one_step() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new("configmap");
    let version = |name: &str, number: u64| {
        std::fs::create_dir(folder.0.join(name)).unwrap();
        folder.write(&format!("{name}/shop.yaml"), &window(number));
    };
    version("..one", 10);
    symlink("..one", folder.0.join("..data")).unwrap();
    symlink("..data/shop.yaml", folder.0.join("shop.yaml")).unwrap();
    let (engine, _) = engine("domain: other");
    let mut follower = folder.follow(&engine);
    check(&engine, "user=a x8");

    version("..two", 20);
    symlink("..two", folder.0.join("..tmp")).unwrap();
    std::fs::rename(folder.0.join("..tmp"), folder.0.join("..data")).unwrap();
    assert!(matches!(next(&mut follower), Change::Taken { .. }));
    assert_eq!(peek(&engine, "user=a"), "yes 12");
}

#[test]
fn a_thread_that_follows_ends_when_it_is_dropped() {
    let folder = Folder::new("thread");
    folder.write("rules.yaml", &window(10));
    let (engine, _) = engine("domain: other");
    let (sender, changes) = std::sync::mpsc::channel();
    let follower = folder.follow(&engine);
    let following = follower.start(Duration::from_millis(1), move |change| {
        let _ = sender.send(matches!(change, Change::Taken { .. }));
    });
    folder.write("rules.yaml", &window(20));
    assert_eq!(changes.recv(), Ok(true));
    drop(following);
    assert!(changes.recv().is_err(), "nobody is left to tell");
}

// === snapshots ===

#[test]
fn counts_survive_a_restart_also_those_that_nobody_asked_for() {
    let folder = Folder::new("snapshot");
    let path = folder.0.join("saved");
    let text = format!(
        "{}  - {{ key: other, value: one, rate_limit: {{ unit: day, requests_per_unit: 9 }} }}\n",
        window(10)
    );
    let start = |memory: &Memory, clock| {
        Engine::builder(rules(&text)).memory(memory).clock(clock).build().unwrap()
    };
    let (_, clock) = engine("domain: other");
    let memory = Memory::new();
    let first = start(&memory, clock.clone());
    check(&first, "user=a x8 | other=one x4");
    memory.save(&path).unwrap();

    let memory = Memory::restore(&path).unwrap();
    let second = start(&memory, clock.clone());
    assert_eq!(peek(&second, "user=a"), "yes 2");
    memory.save(&path).unwrap();

    let third = start(&Memory::restore(&path).unwrap(), clock);
    assert_eq!(peek(&third, "user=a | other=one"), "yes 2 5");
}
