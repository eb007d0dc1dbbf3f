//! Snapshot files: who owns them, and what becomes of those that cannot be restored.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::fs;
use std::path::PathBuf;

use sluicegate::limit::FixedWindow;
use sluicegate::snapshot::{Restoration, SnapshotFile};
use sluicegate::{Limiter, Memory, SnapshotError};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("sluicegate-snapshot-file-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("counts")
    }

    /// The files that were moved aside.
    fn set_aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.display().to_string().contains("counts.damaged-")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn logins(memory: &Memory) -> Limiter {
    Limiter::builder().name("logins").limit(FixedWindow::per_day(5)).memory(memory).build().unwrap()
}

/// A store in which alice has used 4 of 5.
fn used() -> (Memory, Limiter) {
    let memory = Memory::new();
    let limiter = logins(&memory);
    assert!(limiter.of("alice").cost(4).hit().is_allowed());
    (memory, limiter)
}

#[test]
fn a_file_has_one_owner_at_a_time() {
    let folder = Folder::new("owner");
    let (memory, _limiter) = used();
    let file = SnapshotFile::open(folder.file()).unwrap();
    file.save(&memory).unwrap();
    for refused in
        [SnapshotFile::open(folder.file()).map(drop), memory.save(folder.file()).map(drop)]
    {
        let error = refused.unwrap_err();
        assert!(matches!(error, SnapshotError::InUse { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("counts: another process saves to this file"), "{message}");
    }
    drop(file);
    memory.save(folder.file()).unwrap();
    let (memory, restoration) = SnapshotFile::open(folder.file()).unwrap().restore(100).unwrap();
    assert!(matches!(restoration, Restoration::Restored));
    assert_eq!(logins(&memory).of("alice").peek().remaining, Some(1));
}

#[test]
fn a_file_that_cannot_be_restored_is_never_replaced() {
    let folder = Folder::new("damaged");
    let (memory, _limiter) = used();
    memory.save(folder.file()).unwrap();
    let intact = fs::read(folder.file()).unwrap();
    let mut expected = Vec::new();
    for cut in [0, 1, 7, 8, 12, 40, intact.len() - 1] {
        expected.push(intact[..cut].to_vec());
        fs::write(folder.file(), &intact[..cut]).unwrap();
        // The two ways to save take turns.
        if cut % 2 == 0 {
            let file = SnapshotFile::open(folder.file()).unwrap();
            let (_, restoration) = file.restore(100).unwrap();
            let Restoration::Failed { moved_to, .. } = restoration else { panic!("{cut}") };
            assert_eq!(fs::read(moved_to).unwrap(), &intact[..cut]);
            file.save(&memory).unwrap();
        } else {
            memory.save(folder.file()).unwrap();
        }
        let mut found: Vec<Vec<u8>> =
            folder.set_aside().iter().map(|path| fs::read(path).unwrap()).collect();
        found.sort();
        assert_eq!(found, expected, "cut at {cut}");
        Memory::restore(folder.file()).unwrap();
    }
}

#[test]
fn what_is_no_snapshot_is_left_alone() {
    let folder = Folder::new("foreign");
    let (memory, _limiter) = used();
    fs::write(folder.file(), "somebody's letter").unwrap();
    for refused in
        [SnapshotFile::open(folder.file()).map(drop), memory.save(folder.file()).map(drop)]
    {
        assert!(matches!(refused, Err(SnapshotError::Foreign { .. })), "{refused:?}");
    }
    assert_eq!(fs::read_to_string(folder.file()).unwrap(), "somebody's letter");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "and nothing is put beside it");
    let refused = SnapshotFile::open(&folder.0).map(drop);
    assert!(matches!(refused, Err(SnapshotError::Foreign { .. })), "{refused:?}");
    let refused = SnapshotFile::open(folder.0.join("none/counts")).map(drop);
    assert!(matches!(refused, Err(SnapshotError::NoFolder { .. })), "{refused:?}");
}

#[test]
fn threads_of_one_process_take_turns() {
    let folder = Folder::new("threads");
    let (memory, _limiter) = used();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..10).for_each(|_| assert_eq!(memory.save(folder.file()).unwrap().identities, 1))
            });
        }
    });
    assert!(folder.set_aside().is_empty());
    Memory::restore(folder.file()).unwrap();
}

#[test]
fn leftovers_of_a_killed_process_are_removed() {
    let folder = Folder::new("leftovers");
    for name in ["counts.1-0.tmp", "counts.4711-12.tmp", "counts.bak.tmp", "other.1-0.tmp"] {
        fs::write(folder.0.join(name), "half").unwrap();
    }
    let _file = SnapshotFile::open(folder.file()).unwrap();
    let mut left: Vec<String> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["counts.bak.tmp", "counts.lock", "other.1-0.tmp"]);
}
