//! The picture of the levels is drawn from the numbers beside it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::path::Path;

use sluicegate_lab::levels::{picture, read};

#[test]
fn the_picture_is_what_the_code_draws_of_what_was_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let measured = std::fs::read_to_string(folder.join("levels.tsv")).unwrap();
    let measured = read(&measured).unwrap();
    for level in ["strict", "leased", "eventual 100ms"] {
        assert!(measured.iter().any(|one| one.name == level), "{level} was not measured");
    }
    let (drawn, on_disk) = (picture(&measured), folder.join("levels.svg"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&on_disk, &drawn).unwrap();
    }
    let published = std::fs::read_to_string(&on_disk).unwrap_or_default();
    assert!(published == drawn, "{} is old: run this test with UPDATE=1", on_disk.display());
}
