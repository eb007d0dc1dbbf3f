//! The features in the documentation are those of the crate.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[test]
fn the_feature_table_is_complete() {
    let manifest = include_str!("../Cargo.toml");
    let features = manifest.split("[features]").nth(1).unwrap().split("\n[").next().unwrap();
    let declared: Vec<&str> = features
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('=')?.0.trim()))
        .filter(|name| *name != "default")
        .collect();
    let page = include_str!("../src/lib.rs");
    let table = page.split("//! # Features").nth(1).unwrap().split("//! # ").next().unwrap();
    let mut listed: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("//! | `")?.split('`').next()).collect();
    let mut expected = declared.clone();
    expected.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, expected);
    assert!(declared.len() >= 7, "{declared:?}");
}
