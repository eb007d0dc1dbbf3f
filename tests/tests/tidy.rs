//! What must hold for the tree itself.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::path::Path;
use std::process::Command;

use sluicegate_tests::{files, root};

const LINES_MAX: usize = 500;

fn each_line(folder: &str, ending: &str, mut look: impl FnMut(&Path, usize, &str)) {
    let found = files(&root().join(folder), ending);
    assert!(!found.is_empty(), "no {ending} files in {folder}");
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap();
        for (index, line) in text.lines().enumerate() {
            look(name, index + 1, line);
        }
    }
}

/// The words of a line of code, its comment aside.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[test]
fn core_depends_on_nothing() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--package", "sluicegate-core", "--edges", "normal,build"])
        .args(["--prefix", "none", "--all-features"])
        .current_dir(root())
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let crates: Vec<&str> = tree.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(crates, ["sluicegate-core"], "no tokio, nothing at all\n{errors}");
}

#[test]
fn core_reads_no_clock_uses_no_float_and_does_no_io() {
    const BANNED: [&str; 16] = [
        "f32",
        "f64",
        "Instant",
        "SystemTime",
        "sleep",
        "thread",
        "fs",
        "net",
        "env",
        "println",
        "eprintln",
        "async",
        "await",
        "unsafe",
        "Mutex",
        "RandomState",
    ];
    each_line("crates/core/src", ".rs", |path, number, line| {
        for word in words(line) {
            assert!(!BANNED.contains(&word), "{}:{number}: `{word}` in core", path.display());
        }
    });
}

#[test]
fn nothing_is_left_half_done() {
    const BANNED: [&str; 3] = ["todo", "unimplemented", "dbg"];
    let look = |path: &Path, number: usize, line: &str| {
        for word in words(line) {
            let called = BANNED.contains(&word) && line.contains(&format!("{word}!("));
            assert!(!called, "{}:{number}: `{word}`", path.display());
        }
        let ignored = line.trim_start().starts_with("#[ignore");
        assert!(!ignored, "{}:{number}: a test that never runs checks nothing", path.display());
    };
    each_line("crates", ".rs", look);
    each_line("tests", ".rs", look);
}

#[test]
fn a_file_holds_one_idea() {
    for folder in ["crates", "tests"] {
        for path in files(&root().join(folder), ".rs") {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(
                lines <= LINES_MAX,
                "{} has {lines} lines, more than {LINES_MAX}",
                path.display()
            );
        }
    }
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let mut pages = files(&root().join("docs"), ".md");
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)));
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().unwrap().join(target);
            assert!(path.exists(), "{}: `{link}` leads nowhere", page.display());
        }
    }
}
