//! The published plots of the accuracy study are drawn from the published figures.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::path::Path;

use sluicegate_core::quota::Rate;
use sluicegate_core::time::Span;
use sluicegate_lab::accuracy::{Adversary, adversary, parse_figures, plot_adversary, plot_errors};

fn check(name: &str, drawn: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let on_disk = folder.join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&on_disk, drawn).unwrap();
    }
    let published = std::fs::read_to_string(&on_disk).unwrap_or_default();
    assert!(published == drawn, "{} is old: run this test with UPDATE=1", on_disk.display());
}

#[test]
fn the_published_plots_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let figures = std::fs::read_to_string(folder.join("accuracy_wrong.tsv")).unwrap();
    let figures = parse_figures(&figures).unwrap();
    let slices = figures.iter().filter(|one| one.name.contains("slices"));
    assert_eq!(slices.filter(|one| one.wrongly_admitted == 0).count(), 4);
    let title = format!("Wrong decisions of {} requests, limit 100/m", figures[0].requests);
    check("accuracy_wrong.svg", &plot_errors(&title, &figures).unwrap());

    let rate = Rate::new(100, Span::from_secs(60)).unwrap();
    let runs = adversary(rate);
    let shown = ["fixed_window", "sliding_window", "sliding_window, slices: 6", "sliding_log"];
    let shown: Vec<&Adversary> = runs.iter().filter(|run| shown.contains(&run.name)).collect();
    let plot = plot_adversary(rate.count(), rate.period().as_micros(), &shown).unwrap();
    check("accuracy_adversary.svg", &plot);
}
