//! The published files and pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::typed::Types;
use super::{loads, typed, valid, valid_by_any};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, ending: &str) -> Vec<(String, String)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = paths.filter(|path| path.extension().is_some_and(|found| found == ending));
    let mut files: Vec<_> = named
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn examples_are_valid_and_the_one_with_mistakes_is_not() {
    let examples = files(&root().join("docs/examples"), "yaml");
    assert!(examples.len() >= 3);
    for (name, text) in examples {
        let by_schema = valid_by_any(&text);
        assert_eq!(loads(&text), by_schema.is_ok(), "{name}: {by_schema:?}");
    }
}

#[test]
fn what_the_guide_shows_is_valid() {
    let mut count = 0;
    for (page, text) in files(&root().join("docs/guide"), "md") {
        for block in text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let text = match block {
                _ if block.starts_with("domain:") => block.to_owned(),
                _ if block.starts_with("- key:") => format!("domain: x\ndescriptors:\n{block}"),
                _ => continue,
            };
            assert!(loads(&text), "{page}: {text}");
            valid_by_any(&text).unwrap();
            count += 1;
        }
    }
    assert!(count >= 8, "{count}");
}

/// Errors that no schema detects: they concern the meaning of a text or the relation of distant
/// parts.
const UNSEEN: [&str; 9] = [
    "bad_regex",
    "duplicate_descriptor",
    "forward_auth_nowhere",
    "host_bits",
    // A duplicate key: the editor's parser reports it.
    "indentation_of_descriptors",
    "leased_log",
    "never_matches",
    "time_zone",
    "version_as_value",
];

#[test]
fn most_mistakes_are_seen_by_the_schema_too() {
    let mut unseen = BTreeSet::new();
    for (name, text) in files(&root().join("crates/config/tests/mistakes"), "yaml") {
        // The editor itself reports invalid YAML.
        let unreadable = typed::json(&text, Types::Yaml12).is_none();
        if !unreadable && valid(&text, Types::Yaml12).is_ok() {
            unseen.insert(name);
        }
    }
    let known: BTreeSet<String> = UNSEEN.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(unseen, known, "put into `UNSEEN` what no schema can say, and teach it the rest");
}
