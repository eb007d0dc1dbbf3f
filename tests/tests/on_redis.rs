//! The specification on a real Redis: every script gets the core's answers from the store that many nodes share.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use sluicegate_lab::redis::RedisTrial;
use sluicegate_lab::script::Script;
use sluicegate_testkit::redis::Single;
use sluicegate_tests::{files, root};

#[test]
fn every_script_gets_the_answers_it_expects() {
    let server = Single::start();
    let scripts = files(&root().join("tests/specs"), ".txt");
    assert!(scripts.len() > 100, "only {} scripts were found", scripts.len());
    let mut failures = Vec::new();
    for (number, path) in scripts.iter().enumerate() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let script = Script::parse(&name, &std::fs::read_to_string(path).unwrap()).unwrap();
        let (limits, namespace) = (script.limits.clone(), format!("spec:{number}:"));
        let mut redis = RedisTrial::new(server.url(), &namespace, limits, script.mode).unwrap();
        let differences = script.check_with(|line| redis.run(line));
        failures.extend(differences.into_iter().map(|d| format!("{name}, on Redis: {d}")));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert_eq!(server.cli(&["DBSIZE"]), "0", "a trial takes everything away that it has left");
}
