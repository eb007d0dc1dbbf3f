//! Files and their revisions, with a crash at each step.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use sluicegate_config::rules::{Options, Source};
use sluicegate_config::watch::{PollResult, RulesSource, Watch};

use super::{FilesOptions, FilesSource, FilesStore};
use crate::edit::{Activation, Proposal};
use crate::error::StoreError;
use crate::ledger::Command;
use crate::revision::{Revision, RevisionKind};
use crate::shared::Shared;
use crate::store::StoreOptions;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluicegate-rulestore-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, files: &[Source]) {
        for file in files {
            fs::write(self.0.join(&file.name), &file.text).unwrap();
        }
    }

    fn store(&self) -> Arc<FilesStore> {
        store_at(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn store_at(path: &Path) -> Arc<FilesStore> {
    let options = StoreOptions {
        rules: Options::default(),
        require_approval: false,
        clock: Arc::new(|| Timestamp::from_second(1_794_744_000).unwrap()),
        report: Arc::new(|_| {}),
    };
    let files = FilesOptions { paths: vec![path.to_owned()], ..FilesOptions::default() };
    Arc::new(FilesStore::open(&files, Shared::new(&options)))
}

fn source(store: &Arc<FilesStore>) -> FilesSource {
    let layout = store.layout();
    FilesSource::new(store.clone(), Watch::new(&layout.paths, layout.read_options()))
}

fn set(domains: &[(&str, &str)]) -> Vec<Source> {
    let file = |(name, domain): &(&str, &str)| Source {
        name: (*name).to_owned(),
        text: format!("domain: {domain}\n"),
    };
    domains.iter().map(file).collect()
}

fn propose(store: &FilesStore, base: u64, sources: Vec<Source>) -> Result<Revision, StoreError> {
    let proposal = Proposal {
        base: Some(base),
        author: "alice".to_owned(),
        note: "why".to_owned(),
        kind: RevisionKind::Edit,
        restores: None,
        sources,
        activation: Activation::Now,
    };
    store.commit(Command::Propose { proposal, digest: String::new() }).map(Option::unwrap)
}

/// The files as an engine would read them, with relative names.
fn read(store: &Arc<FilesStore>) -> Vec<Source> {
    store.layout().relative(&source(store).read().unwrap())
}

#[test]
fn a_crash_at_any_step_leaves_the_old_or_the_new_revision() {
    let old = set(&[("a.yaml", "a"), ("b.yaml", "b"), ("c.yaml", "c")]);
    let new = set(&[("a.yaml", "a2"), ("b.yaml", "b2"), ("d.yaml", "d")]);
    let mut outcomes = Vec::new();
    for steps in 0.. {
        let folder = Folder::new();
        folder.write(&old);
        let store = folder.store();
        assert_eq!(read(&store), old);
        store.crash_after(steps);
        let completed = propose(&store, 1, new.clone()).is_ok();
        drop(store);
        let store = folder.store();
        let found = read(&store);
        let active = store.ledger().active.unwrap().number;
        assert_eq!((found == old, found == new), (active == 1, active == 2), "{steps}: {found:?}");
        assert_eq!(store.stored(active).unwrap().sources, found, "{steps}");
        // The store goes on.
        propose(&store, active, set(&[("a.yaml", "later")])).unwrap();
        assert_eq!(read(&store), set(&[("a.yaml", "later")]), "{steps}");
        assert_eq!(store.ledger().last, active + 1, "{steps}: no gap, and none twice");
        outcomes.push(active);
        if completed {
            break;
        }
    }
    assert!(outcomes.len() > 10, "{outcomes:?}");
    assert!(outcomes.is_sorted() && outcomes.first() == Some(&1), "{outcomes:?}");
}

#[test]
fn an_edit_from_outside_after_a_crash_is_not_overwritten() {
    let folder = Folder::new();
    folder.write(&set(&[("a.yaml", "a"), ("b.yaml", "b")]));
    let store = folder.store();
    read(&store);
    // The change is committed, and its first file is not written yet.
    let mut steps = 0;
    loop {
        store.crash_after(steps);
        let _ = propose(&store, 1, set(&[("a.yaml", "a2"), ("b.yaml", "b2")]));
        if store.active() == Some(2) {
            break;
        }
        steps += 1;
    }
    drop(store);
    folder.write(&set(&[("b.yaml", "by-hand")]));
    let store = folder.store();
    let found = read(&store);
    assert!(found.contains(&set(&[("b.yaml", "by-hand")])[0]), "{found:?}");
    let active = store.ledger().active.unwrap();
    assert_eq!((active.number, active.kind), (3, RevisionKind::Outside));
}

#[test]
fn two_processes_on_one_directory_do_not_lose_updates() {
    let folder = Folder::new();
    folder.write(&set(&[("a.yaml", "a")]));
    let (one, other) = (folder.store(), folder.store());
    let mut follower = source(&other);
    follower.read().unwrap();
    read(&one);
    propose(&one, 1, set(&[("a.yaml", "one")])).unwrap();
    let refused = propose(&other, 1, set(&[("a.yaml", "other")])).unwrap_err();
    let StoreError::Conflict(conflict) = refused else { panic!("{refused}") };
    assert_eq!(conflict.newer.unwrap().number, 2);
    let PollResult::Changed(Ok(sources)) = follower.poll() else { panic!("it is complete") };
    assert_eq!(other.layout().relative(&sources), set(&[("a.yaml", "one")]));
    propose(&other, 2, set(&[("a.yaml", "other")])).unwrap();
    one.follow_log().unwrap();
    assert_eq!(one.active(), Some(3));
}

#[test]
fn one_file_has_a_history_of_its_own() {
    let folder = Folder::new();
    folder.write(&set(&[("a.yaml", "a"), ("b.yaml", "b")]));
    let store = store_at(&folder.0.join("a.yaml"));
    assert_eq!(read(&store), set(&[("a.yaml", "a")]));
    assert!(folder.0.join(".sluicegate/a.yaml.revisions/log").exists());
    let refused = propose(&store, 1, set(&[("c.yaml", "c")])).unwrap_err();
    assert!(refused.to_string().contains("the rules are the one file `a.yaml`"), "{refused}");
    propose(&store, 1, set(&[("a.yaml", "a2")])).unwrap();
    let store = folder.store();
    assert_eq!(read(&store), set(&[("a.yaml", "a2"), ("b.yaml", "b")]));
}

#[test]
fn nothing_is_created_where_no_rules_are() {
    let folder = Folder::new();
    let store = store_at(&folder.0.join("missing/rules"));
    assert_eq!(store.read_only().unwrap().code, "missing");
    assert!(source(&store).read().is_err());
    assert!(!folder.0.join("missing").exists());
}
