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

/// Words of everyday language that have a technical equivalent; see `CONTRIBUTING.md`.
const BANNED_WORDS: [&str; 22] = [
    "told", "said", "heard", "asked", "tell", "hear", "say", "mend", "way", "desk", "sheet",
    "charter", "seat", "stranger", "patience", "journey", "brim", "who", "whom", "whose", "keep",
    "kept",
];

/// Names of protocols, of other crates and of user-visible fields.
const ALLOWED_NAMES: [&str; 7] = [
    "keep_alive",
    "KEEP_ALIVE",
    "keep_alive_interval",
    "keep_alive_timeout",
    "http2_keep_alive_interval",
    "keep_alive_while_idle",
    "two_way",
];

/// Type names that every module may define.
const COMMON_TYPES: [&str; 5] = ["Error", "Options", "Builder", "Tests", "Inner"];

/// The source files of the product, tests aside, each cut at its test module.
fn sources() -> Vec<(std::path::PathBuf, String)> {
    let is_test = |path: &Path| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        !name.contains("/src/") || name.contains("/tests/") || name.ends_with("tests.rs")
    };
    let found = files(&root().join("crates"), ".rs").into_iter();
    found
        .filter(|path| !is_test(path))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            (path.strip_prefix(root()).unwrap().to_owned(), product)
        })
        .collect()
}

/// The parts of a name: `is_heardOf` has `is`, `heard` and `of`.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        let starts = c == '_' || c.is_uppercase();
        let last = parts.last().unwrap();
        if starts && !last.is_empty() && !last.chars().all(char::is_uppercase) || c == '_' {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().unwrap().push(c);
        }
    }
    parts.into_iter().map(|part| part.to_lowercase()).collect()
}

/// Source text without comments, string literals and attributes; lines stay where they are.
fn code_of(text: &str) -> String {
    let (mut code, mut is_string) = (String::new(), false);
    for line in text.lines() {
        let is_attribute = !is_string && line.trim_start().starts_with("#[");
        let mut previous = ' ';
        for c in line.chars() {
            match c {
                '"' if previous != '\\' && previous != '\'' => is_string = !is_string,
                '/' if previous == '/' && !is_string => break,
                _ if !is_string && !is_attribute => code.push(c),
                _ => {}
            }
            previous = if c == '\\' && previous == '\\' { ' ' } else { c };
        }
        // A string goes on in the next line only behind a backslash.
        is_string &= line.ends_with('\\');
        code.push('\n');
    }
    code
}

#[test]
fn names_are_technical() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (index, line) in code_of(&text).lines().enumerate() {
            for name in words(line) {
                let is_banned = |part: &String| BANNED_WORDS.contains(&part.as_str());
                if !ALLOWED_NAMES.contains(&name) && parts_of(name).iter().any(is_banned) {
                    found.push(format!("{}:{}: `{name}`", path.display(), index + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "use the technical term:\n{}", found.join("\n"));
}

#[test]
fn a_type_name_means_one_thing_in_a_crate() {
    let mut defined = std::collections::BTreeMap::<(String, String), Vec<String>>::new();
    for (path, text) in sources() {
        let name = path.to_string_lossy().into_owned();
        let package = name.split('/').nth(1).unwrap().to_owned();
        for line in text.lines() {
            let line = line.trim_start();
            let line = line.strip_prefix("pub ").unwrap_or(line);
            let line = match line.strip_prefix("pub(") {
                Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
                None => line,
            };
            let kinds = ["struct ", "enum ", "trait "];
            let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else {
                continue;
            };
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let defines = rest[..end.unwrap_or(rest.len())].to_owned();
            if !COMMON_TYPES.contains(&defines.as_str()) {
                defined.entry((package.clone(), defines)).or_default().push(name.clone());
            }
        }
    }
    defined.retain(|_, files| files.len() > 1);
    assert!(defined.is_empty(), "qualify these names: {defined:#?}");
}

#[test]
fn comments_fit_100_columns() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let mut is_code = false;
        for (index, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            if !comment.starts_with("//") {
                continue;
            }
            let body = comment.trim_start_matches(['/', '!']).trim_start();
            if body.starts_with("```") {
                is_code = !is_code;
            }
            // Examples and tables have their own width.
            if !is_code && !body.starts_with('|') && line.chars().count() > 100 {
                found.push(format!("{}:{}", path.display(), index + 1));
            }
        }
    }
    assert!(found.is_empty(), "wrap these comments:\n{}", found.join("\n"));
}
