//! The specification: a script for every operation on every algorithm, or a refusal with its reason.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::discriminant;
use std::path::PathBuf;

use sluicegate_config::limit::limits;
use sluicegate_core::limit::Limit;
use sluicegate_core::op::OpKind;
use sluicegate_core::time::Timestamp;
use sluicegate_lab::examples::EXAMPLES;
use sluicegate_lab::memory::MemoryTrial;
use sluicegate_lab::script::Script;
use sluicegate_tests::{files, made_by_code, root};

/// Every algorithm with a limit to ask.
fn algorithms() -> Vec<(&'static str, Limit)> {
    let limit = |text: &str| limits("spec", text).unwrap()[0].at(Timestamp::EPOCH);
    let of_example = |name: &str| {
        let example = EXAMPLES.iter().find(|example| example.algorithm == name).unwrap();
        limit(&example.script().unwrap().limit_text)
    };
    EXAMPLES.iter().map(|example| (example.algorithm, of_example(example.algorithm))).collect()
}

fn file_of(algorithm: &str, op: OpKind) -> PathBuf {
    root().join("tests/specs").join(algorithm).join(format!("{}.txt", op.name().replace(' ', "_")))
}

#[test]
fn every_script_gets_the_answers_it_expects() {
    let scripts = files(&root().join("tests/specs"), ".txt");
    assert!(scripts.len() > 100, "only {} scripts were found", scripts.len());
    let mut failures = Vec::new();
    for path in scripts {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        match Script::parse(&name, &text) {
            Ok(script) => {
                assert!(!script.lines.is_empty(), "{name} asks nothing");
                assert!(!script.title.is_empty(), "{name} does not say what it shows");
                failures.extend(script.check().into_iter().map(|d| format!("{name}: {d}")));
                let mut memory = MemoryTrial::new(script.limits.clone(), script.mode).unwrap();
                let on_memory = script.check_with(|line| memory.run(line));
                failures.extend(on_memory.into_iter().map(|d| format!("{name}, on memory: {d}")));
            }
            Err(errors) => failures.extend(errors),
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_operation_on_every_algorithm_has_a_script_that_uses_it() {
    let mut missing = Vec::new();
    for (algorithm, limit) in algorithms() {
        for op in OpKind::ALL {
            let path = file_of(algorithm, op);
            let Ok(text) = std::fs::read_to_string(&path) else {
                missing.push(path.display().to_string());
                continue;
            };
            let script = Script::parse(algorithm, &text).unwrap();
            // One algorithm has two kinds of limits.
            let is_kind = |other: &Limit| discriminant(other) == discriminant(&limit);
            let used = script.limits.iter().any(|l| is_kind(&l.at(Timestamp::EPOCH)));
            assert!(used, "{} is not about {algorithm}", path.display());
            let word = op.name().split(' ').next().unwrap();
            let asks = |line: &str| line.split_whitespace().nth(1) == Some(word);
            assert!(text.lines().any(asks), "{} never asks for {word}", path.display());
            if limit.refuses(op).is_some() {
                let refused = text.lines().any(|line| asks(line) && line.contains("-> error"));
                assert!(refused, "{} does not show the refusal", path.display());
            }
        }
    }
    assert!(missing.is_empty(), "no script at\n{}", missing.join("\n"));
}

#[test]
fn the_matrix_in_the_docs_is_up_to_date() {
    let algorithms = algorithms();
    let mut text = String::from(
        "# Operations, algorithms, stores\n\n\
         Each cell links the script that specifies it: read it, or run it with\n\
         `sluicegate try --script FILE`. The same files run against every store: the core\n\
         on virtual time, the engine's memory store, and Redis. *Refused* is an answer too, and its script shows the reason.\n\n",
    );
    text.push_str("| |");
    for (algorithm, _) in &algorithms {
        write!(text, " `{algorithm}` |").unwrap();
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(algorithms.len()));
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for op in OpKind::ALL {
        write!(text, "\n| `{}` |", op.name()).unwrap();
        for (algorithm, limit) in &algorithms {
            let path = file_of(algorithm, op);
            let link = path.strip_prefix(root()).unwrap().display().to_string();
            let word = match limit.refuses(op) {
                Some(reason) => {
                    let case = format!("`{}` on `{algorithm}`", op.name());
                    reasons.entry(reason).or_default().push(case);
                    "refused"
                }
                None => "script",
            };
            write!(text, " [{word}](../{link}) |").unwrap();
        }
    }
    text.push_str("\n\n## What is refused, and why\n\n");
    for (reason, cases) in reasons {
        writeln!(text, "- {}: {reason}.", cases.join(", ")).unwrap();
    }
    made_by_code(&root().join("docs/MATRIX.md"), &text).unwrap();
}
