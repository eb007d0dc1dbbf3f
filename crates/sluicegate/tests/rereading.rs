//! Files of rules that are read again because somebody asked for it, or that come late.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::path::PathBuf;
use std::time::Duration;

use sluicegate::config::files::ReadOptions;
use sluicegate::config::watch::Watch;
use sluicegate::{Change, Engine};

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
