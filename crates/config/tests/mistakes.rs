//! Mistakes as people make them, and what they are told: `mistakes/<name>.yaml`, or a directory of
//! files, with exactly what is printed in `mistakes/<name>.txt`. `UPDATE=1` writes those anew.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sluicegate_config::files::{ReadOptions, read};
use sluicegate_config::problem::{Problem, with_source};
use sluicegate_config::rules::{Options, Source, load};

#[test]
fn every_mistake_is_told_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut wrong = Vec::new();
    let cases = cases(&folder);
    assert!(cases.len() >= 18, "{} cases", cases.len());
    for case in cases {
        let told = told(&folder, &case);
        let expected = case.with_extension("txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&expected, &told).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != told {
            wrong.push(format!("{}:\n{told}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 writes anew:\n{}", wrong.join("\n"));
}

#[test]
fn what_is_told_names_place_and_remedy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    for case in cases(&folder) {
        let told = told(&folder, &case);
        assert!(!told.is_empty(), "{} is no mistake", case.display());
        for line in told.lines().filter(|line| line.contains(".yaml:")) {
            assert!(line.contains("; ") && !line.ends_with('.'), "no remedy: {line}");
        }
    }
}

/// The mistakes: files and directories that are no expectations.
fn cases(folder: &Path) -> BTreeSet<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_none_or(|extension| extension != "txt")).collect()
}

fn told(folder: &Path, case: &Path) -> String {
    let mut sources = read(case, &ReadOptions::default()).unwrap();
    for source in &mut sources {
        let name = Path::new(&source.name).strip_prefix(folder).unwrap();
        source.name = name.to_str().unwrap().to_owned();
    }
    let (problems, warnings) = match load(&sources, &Options::default()) {
        Ok(loaded) => (Vec::new(), loaded.warnings),
        Err(invalid) => (invalid.problems.iter().cloned().collect(), invalid.warnings),
    };
    let mut told: Vec<String> = problems.iter().map(|problem| shown(problem, &sources)).collect();
    told.extend(warnings.iter().map(|warning| format!("warning: {}", shown(warning, &sources))));
    told.concat()
}

fn shown(problem: &Problem, sources: &[Source]) -> String {
    let source = sources.iter().find(|source| source.name == problem.source()).unwrap();
    with_source(problem, &source.text)
}
