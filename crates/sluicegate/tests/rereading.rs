//! Files of rules that are read again because somebody asked for it, or that come late.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::path::PathBuf;
use std::time::Duration;

use sluicegate::config::files::ReadOptions;
use sluicegate::config::watch::Watch;
use sluicegate::{Change, Engine, Reloaded, rules_of};

const SHOP: &str = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unlimited: true } }]\n";

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("sluicegate-{name}-{}", std::process::id())))
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    fn watch(&self) -> Watch {
        Watch::new([&self.0], ReadOptions::default())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn domains(engine: &Engine) -> usize {
    engine.snapshot().rules().domains().count()
}

#[test]
fn files_that_come_late_are_taken_when_they_are_right() {
    let file = File::new("late");
    let engine = Engine::new(Default::default()).unwrap();
    let mut follower = engine.follow_changes(file.watch(), Default::default());
    assert!(follower.poll().is_none(), "that there is none is known");

    file.write("domain: [");
    let told = [follower.poll(), follower.poll()];
    assert!(matches!(told, [None, Some(Change::Refused(_))]), "{told:?}");
    assert_eq!(domains(&engine), 0);

    file.write(SHOP);
    let told = [follower.poll(), follower.poll()];
    assert!(matches!(told, [None, Some(Change::Taken { .. })]), "{told:?}");
    assert_eq!(domains(&engine), 1);
}

#[test]
fn whoever_asks_has_them_read_at_once_and_is_told_also_when_nothing_changed() {
    let file = File::new("asked");
    file.write(SHOP);
    let engine = Engine::new(Default::default()).unwrap();
    let (mut follower, _) = engine.follow(file.watch(), Default::default()).unwrap();
    let Change::Taken { reloaded, .. } = follower.reread() else { panic!("refused") };
    assert_eq!((reloaded.same, reloaded.changed), (1, 0));

    let (sender, changes) = std::sync::mpsc::channel();
    // It would look once a day, if nobody asked.
    let following = follower.start(Duration::from_secs(86_400), move |change| {
        let _ = sender.send(matches!(change, Change::Taken { .. }));
    });
    let following = following.unwrap();
    following.reread();
    assert_eq!(changes.recv(), Ok(true));
    file.write("domain: [");
    following.reread();
    assert_eq!(changes.recv(), Ok(false), "and a bad one is refused");
    assert_eq!(domains(&engine), 1);
}

#[test]
fn what_was_restored_before_there_were_rules_is_saved_again() {
    use sluicegate::Memory;
    use sluicegate::rules::request::{Descriptor, Entry, Request};

    const RULES: &str = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 9 } }]\n";
    let (rules, saved) = (File::new("restored-rules"), File::new("restored"));
    rules.write(RULES);
    let start = |memory: &Memory| {
        let engine = Engine::builder(Default::default()).memory(memory).build().unwrap();
        engine.follow(rules.watch(), Default::default()).unwrap();
        engine
    };
    let memory = Memory::new();
    let entries = [Entry::new("user", "alice")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 4 };
    let engine = start(&memory);
    assert!(engine.check(&request).allowed);
    memory.save(&saved.0).unwrap();
    // Nobody asks while this one is there.
    let memory = Memory::restore(&saved.0).unwrap();
    let _engine = start(&memory);
    assert_eq!(memory.save(&saved.0).unwrap().identities, 1);
    let engine = start(&Memory::restore(&saved.0).unwrap());
    assert_eq!(engine.peek(&request).statuses[0].verdict.remaining, Some(5));
}

#[test]
fn a_reload_counts_every_change() {
    let domain = |rule: &str, more: &str| {
        format!("domain: shop\ndescriptors:\n  - {{ key: user, {rule} }}\n{more}")
    };
    let envoy = "rate_limit: { unit: day, requests_per_unit: 10 }";
    let native = "limits: { algorithm: fixed_window, rate: 10/day }";
    let changed = Reloaded { changed: 1, domains: 1, ..Reloaded::default() };
    // No rule is other than before, but some requests match another one, or none.
    let matching = Reloaded { same: 1, domains: 1, ..Reloaded::default() };
    let with = |rule: &str, setting: &str| domain(&format!("{rule}, {setting}"), "");
    let replacing = envoy.replace("10 }", "10, replaces: [{ name: other }] }");
    for (before, after, expected) in [
        (envoy, with(envoy, "on_store_failure: deny"), changed),
        (envoy, with(envoy, "quota_mode: true"), changed),
        (envoy, domain(&replacing, ""), changed),
        (native, with(native, "cost: 2"), changed),
        (native, with(native, "consistency: leased"), changed),
        (native, domain(native, "  - { key: user, value: bob }\n"), matching),
        (native, domain(native, "deny: [{ key: user, value: bob }]\n"), matching),
    ] {
        let engine = Engine::new(rules_of(&domain(before, "")).unwrap()).unwrap();
        assert_eq!(engine.reload(rules_of(&after).unwrap()), Ok(expected), "{after}");
        let same = Reloaded { same: 1, ..Reloaded::default() };
        assert_eq!(engine.reload(rules_of(&after).unwrap()), Ok(same), "{after}");
    }
}
