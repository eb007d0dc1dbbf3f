//! The published plot of the levels is drawn from the published measurements.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::path::Path;

use sluicegate_lab::levels::{parse, plot};

#[test]
fn the_published_plot_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let measured = std::fs::read_to_string(folder.join("levels.tsv")).unwrap();
    let measured = parse(&measured).unwrap();
    for level in ["strict", "leased", "eventual 100ms"] {
        assert!(measured.iter().any(|one| one.name == level), "{level} was not measured");
    }
    let (drawn, on_disk) = (plot(&measured).unwrap(), folder.join("levels.svg"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&on_disk, &drawn).unwrap();
    }
    let published = std::fs::read_to_string(&on_disk).unwrap_or_default();
    assert!(published == drawn, "{} is old: run this test with UPDATE=1", on_disk.display());
}
