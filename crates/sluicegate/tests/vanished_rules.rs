//! Files of rules that vanish: the last rules of their domains stay in force.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine_support::{ask_in, check, engine, peek, told};
use sluicegate::clock::ManualClock;
use sluicegate::config::files::ReadOptions;
use sluicegate::config::watch::Watch;
use sluicegate::{Change, Engine, Follower, REMOVAL_GRACE, REPORT_EVERY, WithheldDomain, rules_of};

const SHOP: &str = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: year, requests_per_unit: 5 }\n";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("sluicegate-vanished-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn follow(engine: &Engine, path: &Path) -> Follower {
    let watch = Watch::new([path], ReadOptions::default());
    engine.follow(watch, Default::default()).unwrap().0
}

/// Lets the follower see a change: the first look finds it, the second finds it at rest.
fn settle(follower: &mut Follower) {
    let _ = follower.poll();
    let _ = follower.poll();
}

/// Uses 4 of 5, has `vanish` take the rules away and `restore` put them back.
fn limits_hold(name: &str, vanish: impl Fn(&Folder), restore: impl Fn(&Folder)) {
    // Once as a named file, once as a file of a named directory.
    for watched in ["config/shop.yaml", "config"] {
        let folder = Folder::new(&format!("{name}-{}", watched.len()));
        std::fs::create_dir(folder.path("config")).unwrap();
        folder.write("config/shop.yaml", SHOP);
        let (engine, _) = engine("domain: other");
        let mut follower = follow(&engine, &folder.path(watched));
        assert_eq!(check(&engine, "user=alice x4"), "yes 1");
        vanish(&folder);
        settle(&mut follower);
        assert_eq!(check(&engine, "user=alice"), "yes 0", "{name}, {watched}");
        assert!(check(&engine, "user=alice").starts_with("no"), "{name}, {watched}");
        restore(&folder);
        settle(&mut follower);
        assert!(peek(&engine, "user=alice").starts_with("no"), "{name}, {watched}: counters go on");
        assert_eq!(peek(&engine, "user=bob"), "yes 5", "{name}, {watched}");
    }
}

fn put_back(folder: &Folder) {
    folder.write("config/shop.yaml", SHOP);
}

#[test]
fn a_file_that_is_removed() {
    limits_hold("removed", |f| std::fs::remove_file(f.path("config/shop.yaml")).unwrap(), put_back);
}

#[test]
fn a_file_that_is_renamed() {
    let rename = |f: &Folder, from: &str, to: &str| {
        std::fs::rename(f.path(from), f.path(to)).unwrap();
    };
    limits_hold(
        "renamed",
        |f| rename(f, "config/shop.yaml", "shop.yaml~"),
        |f| rename(f, "shop.yaml~", "config/shop.yaml"),
    );
}

#[test]
fn a_file_that_is_truncated() {
    for (name, text) in [
        ("truncated-at-0", ""),
        ("truncated-behind-domain", "domain: shop\n"),
        ("truncated-behind-descriptors", "domain: shop\ndescriptors:\n"),
        ("truncated-behind-key", "domain: shop\ndescriptors:\n  - key: user\n"),
    ] {
        limits_hold(name, |f| f.write("config/shop.yaml", text), put_back);
    }
}

#[test]
fn a_file_that_is_replaced_by_a_directory() {
    limits_hold(
        "directory",
        |f| {
            std::fs::remove_file(f.path("config/shop.yaml")).unwrap();
            std::fs::create_dir(f.path("config/shop.yaml")).unwrap();
        },
        |f| {
            std::fs::remove_dir(f.path("config/shop.yaml")).unwrap();
            put_back(f);
        },
    );
}

#[test]
fn a_directory_that_is_removed() {
    limits_hold(
        "folder",
        |f| std::fs::rename(f.path("config"), f.path("away")).unwrap(),
        |f| std::fs::rename(f.path("away"), f.path("config")).unwrap(),
    );
}

#[cfg(unix)]
#[test]
fn a_config_map_that_is_emptied() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new("config-map");
    for version in ["..one", "..two", "..three"] {
        std::fs::create_dir(folder.path(version)).unwrap();
    }
    folder.write("..one/shop.yaml", SHOP);
    folder.write("..three/shop.yaml", SHOP);
    let publish = |version: &str| {
        symlink(version, folder.path("..tmp")).unwrap();
        std::fs::rename(folder.path("..tmp"), folder.path("..data")).unwrap();
    };
    publish("..one");
    symlink("..data/shop.yaml", folder.path("shop.yaml")).unwrap();
    let (engine, _) = engine("domain: other");
    let mut follower = follow(&engine, &folder.0);
    assert_eq!(check(&engine, "user=alice x5"), "yes 0");

    // As the kubelet does it: first the new version, then stale links are removed.
    publish("..two");
    settle(&mut follower);
    assert!(check(&engine, "user=alice").starts_with("no"), "a dangling link");
    std::fs::remove_file(folder.path("shop.yaml")).unwrap();
    settle(&mut follower);
    assert!(check(&engine, "user=alice").starts_with("no"), "an empty folder");

    publish("..three");
    symlink("..data/shop.yaml", folder.path("shop.yaml")).unwrap();
    settle(&mut follower);
    assert!(check(&engine, "user=alice").starts_with("no"), "counters go on");
    assert_eq!(peek(&engine, "user=bob"), "yes 5");
}

// === how a domain is removed ===

const EMPTY: &str = "domain: shop\n";
const SECOND: Duration = Duration::from_secs(1);

/// A folder with a domain of which alice has used 4 of 5, and another domain beside it.
struct Bed {
    folder: Folder,
    engine: Engine,
    clock: ManualClock,
    follower: Follower,
}

impl Bed {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        folder.write("shop.yaml", SHOP);
        folder.write("web.yaml", &SHOP.replace("shop", "web"));
        let (engine, clock) = engine("domain: other");
        let follower = follow(&engine, &folder.0);
        assert_eq!(check(&engine, "user=alice x4"), "yes 1");
        Self { folder, engine, clock, follower }
    }

    /// The next change, which has been written by now.
    fn change(&mut self) -> Change {
        assert!(self.follower.poll().is_none(), "may still be changing");
        self.follower.poll().expect("is at rest")
    }

    fn withheld(&mut self) -> Vec<WithheldDomain> {
        match self.change() {
            Change::Taken { withheld, .. } => withheld,
            other => panic!("{other:?}"),
        }
    }

    fn peek(&self) -> String {
        peek(&self.engine, "user=alice")
    }

    fn peek_in(&self, domain: &str) -> String {
        told(&ask_in(domain, "user=alice", |request| self.engine.peek(request)))
    }
}

#[test]
fn a_domain_is_removed_after_the_grace_period() {
    for (name, text) in [("absent", None), ("no-rules", Some(EMPTY))] {
        let mut bed = Bed::new(name);
        match text {
            Some(text) => bed.folder.write("shop.yaml", text),
            None => std::fs::remove_file(bed.folder.path("shop.yaml")).unwrap(),
        }
        let withheld = bed.withheld();
        assert_eq!(withheld.len(), 1);
        assert_eq!((&*withheld[0].domain, withheld[0].is_named), ("shop", text.is_some()));
        assert_eq!(withheld[0].removed_in, REMOVAL_GRACE);
        bed.clock.advance(REMOVAL_GRACE - SECOND);
        assert!(matches!(bed.follower.poll(), Some(Change::Withheld(_))));
        assert_eq!(bed.peek(), "yes 1");
        bed.clock.advance(SECOND);
        let Some(Change::Taken { reloaded, withheld, .. }) = bed.follower.poll() else {
            panic!("still there");
        };
        assert_eq!((reloaded.removed, reloaded.same, withheld.len()), (1, 1, 0));
        assert_eq!(bed.peek(), "yes -", "nothing is limited any more");
        assert!(bed.follower.poll().is_none());
        bed.folder.write("shop.yaml", SHOP);
        assert!(bed.withheld().is_empty());
        assert_eq!(bed.peek(), "yes 5", "a domain that was removed starts with new counters");
    }
}

#[test]
fn rules_that_return_within_the_grace_period_end_it() {
    let mut bed = Bed::new("return");
    for _ in 0..3 {
        bed.folder.write("shop.yaml", EMPTY);
        assert_eq!(bed.withheld().len(), 1);
        bed.clock.advance(REMOVAL_GRACE - SECOND);
        assert!(matches!(bed.follower.poll(), Some(Change::Withheld(_))));
        bed.folder.write("shop.yaml", SHOP);
        assert!(bed.withheld().is_empty());
        assert_eq!(bed.peek(), "yes 1");
    }
}

#[test]
fn a_reading_that_fails_starts_the_grace_period_anew() {
    let mut bed = Bed::new("invalid");
    bed.folder.write("shop.yaml", EMPTY);
    assert_eq!(bed.withheld().len(), 1);
    bed.clock.advance(REMOVAL_GRACE - SECOND);
    bed.folder.write("shop.yaml", "domain: shop\ndescriptors: [");
    let first = bed.follower.poll();
    assert!(matches!(first, Some(Change::Withheld(_))), "{first:?}");
    assert!(matches!(bed.follower.poll(), Some(Change::Refused(_))));
    bed.clock.advance(REMOVAL_GRACE * 2);
    assert!(matches!(bed.follower.poll(), Some(Change::Refused(_))), "it may hold the rules");
    assert!(matches!(bed.follower.poll(), Some(Change::Withheld(_))));
    assert_eq!(bed.peek(), "yes 1");
    bed.folder.write("shop.yaml", EMPTY);
    assert_eq!(bed.withheld()[0].removed_in, REMOVAL_GRACE);
    assert_eq!(bed.peek(), "yes 1");
}

#[test]
fn a_file_removes_its_domain_at_once_if_it_says_so() {
    let mut bed = Bed::new("explicit");
    bed.folder.write("shop.yaml", "domain: shop\nremoved: true\n");
    assert!(bed.withheld().is_empty());
    assert_eq!((bed.peek(), bed.peek_in("web")), ("yes -".to_owned(), "yes 5".to_owned()));

    // Also a domain that is withheld already, and from another file.
    let mut bed = Bed::new("explicit-later");
    std::fs::remove_file(bed.folder.path("shop.yaml")).unwrap();
    assert_eq!(bed.withheld().len(), 1);
    bed.folder.write("gone.yaml", "domain: shop\nremoved: true\n");
    assert!(bed.withheld().is_empty());
    assert_eq!(bed.peek(), "yes -");
}

#[test]
fn the_api_removes_a_domain_at_once() {
    let mut bed = Bed::new("api");
    bed.folder.write("shop.yaml", EMPTY);
    assert_eq!(bed.withheld().len(), 1);
    bed.engine.reload(rules_of(&SHOP.replace("shop", "web")).unwrap()).unwrap();
    assert_eq!(bed.peek(), "yes -");
    let Change::Taken { withheld, .. } = bed.follower.reread() else { panic!("refused") };
    assert_eq!((withheld.len(), bed.peek()), (0, "yes -".to_owned()));
}

#[test]
fn without_a_grace_period_a_domain_is_removed_at_once() {
    let mut bed = Bed::new("no-grace");
    bed.follower = follow(&bed.engine, &bed.folder.0).with_removal_grace(Duration::ZERO);
    bed.folder.write("shop.yaml", EMPTY);
    assert!(bed.withheld().is_empty());
    assert_eq!(bed.peek(), "yes -");
}

#[test]
fn other_domains_of_the_same_reading_are_taken_over() {
    let mut bed = Bed::new("others");
    std::fs::remove_file(bed.folder.path("shop.yaml")).unwrap();
    bed.folder.write("web.yaml", &SHOP.replace("shop", "web").replace("unit: 5", "unit: 7"));
    bed.folder.write("new.yaml", &SHOP.replace("shop", "new"));
    assert_eq!(bed.withheld().len(), 1);
    assert_eq!(
        ["shop", "web", "new"].map(|domain| bed.peek_in(domain)),
        ["yes 1", "yes 7", "yes 5"]
    );
    // They can change while the domain is withheld, and a hang-up is no removal.
    bed.folder.write("new.yaml", &SHOP.replace("shop", "new").replace("unit: 5", "unit: 9"));
    assert_eq!(bed.withheld().len(), 1);
    assert!(matches!(bed.follower.reread(), Change::Taken { withheld, .. } if withheld.len() == 1));
    assert_eq!(["shop", "new"].map(|domain| bed.peek_in(domain)), ["yes 1", "yes 9"]);
}

#[test]
fn lists_are_withheld_like_rules() {
    let lists = "domain: shop\ndeny: [{ key: user, value: mallory }]\ndescriptors:\n";
    let denies = |bed: &Bed| check(&bed.engine, "user=mallory").starts_with("no");
    let mut bed = Bed::new("lists");
    let rules = SHOP.strip_prefix("domain: shop\ndescriptors:\n").unwrap();
    bed.folder.write("shop.yaml", &format!("{lists}{rules}"));
    assert!(bed.withheld().is_empty());
    bed.folder.write("shop.yaml", lists);
    assert_eq!(bed.withheld().len(), 1, "the list is there, the rules are not");
    assert_eq!((denies(&bed), bed.peek()), (true, "yes 1".to_owned()));
    bed.clock.advance(REMOVAL_GRACE);
    assert!(
        matches!(bed.follower.poll(), Some(Change::Taken { withheld, .. }) if withheld.is_empty())
    );
    assert_eq!((denies(&bed), bed.peek()), (true, "yes -".to_owned()));
    bed.folder.write("shop.yaml", EMPTY);
    assert_eq!(bed.withheld().len(), 1);
    assert!(denies(&bed));
}

#[test]
fn withheld_domains_are_reported_again_and_again_with_file_and_remedy() {
    let mut bed = Bed::new("report");
    bed.folder.write("shop.yaml", EMPTY);
    let file = bed.folder.path("shop.yaml").display().to_string();
    let shown: Vec<String> = bed.withheld().iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [format!(
            "{file}: domain `shop` has no rules any more; its last rules stay in force and the domain \
             is removed in 10m: restore the rules, or write `domain: shop` with `removed: true` to \
             remove it now"
        )]
    );
    let mut reports = 0;
    for _ in 0..300 {
        bed.clock.advance(SECOND);
        match bed.follower.poll() {
            None => {}
            Some(Change::Withheld(domains)) => {
                reports += 1;
                assert_eq!(domains[0].removed_in, REMOVAL_GRACE - REPORT_EVERY * reports);
            }
            Some(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(reports, 5, "once a minute");
}

#[test]
fn a_directory_that_is_emptied_removes_nothing_and_is_reported_again_and_again() {
    let mut bed = Bed::new("emptied");
    for file in ["shop.yaml", "web.yaml"] {
        std::fs::remove_file(bed.folder.path(file)).unwrap();
    }
    let change = bed.change();
    let Change::Refused(error) = &change else { panic!("{change:?}") };
    assert!(error.to_string().contains("there are no files in this directory"), "{error}");
    let mut reports = 0;
    for _ in 0..REMOVAL_GRACE.as_secs() * 2 {
        bed.clock.advance(SECOND);
        reports += usize::from(matches!(bed.follower.poll(), Some(Change::Refused(_))));
    }
    assert_eq!(reports, 20, "once a minute");
    assert_eq!((bed.peek(), bed.peek_in("web")), ("yes 1".to_owned(), "yes 5".to_owned()));
    bed.folder.write("web.yaml", &SHOP.replace("shop", "web"));
    assert_eq!(bed.withheld().len(), 1, "the grace period begins with the first file");
}

#[test]
fn files_that_were_never_valid_are_reported_again_and_again() {
    let folder = Folder::new("never");
    let (engine, clock) = engine("domain: other");
    let watch = Watch::new([&folder.0], ReadOptions::default());
    let mut follower = engine.follow_changes(watch, Default::default());
    assert!(follower.poll().is_none(), "the caller knows");
    for _ in 0..3 {
        clock.advance(REPORT_EVERY);
        assert!(matches!(follower.poll(), Some(Change::Refused(_))));
        assert!(follower.poll().is_none());
    }
}
