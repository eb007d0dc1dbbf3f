//! Several files.

use super::*;
use sluicegate_rules::domain::Joint;

const MERGE: Options = Options { merge_domains: true, quota_mode: false };
const LIMIT: &str = "rate_limit: { unit: day, requests_per_unit: 5 }";

fn file(name: &str, domain: &str, key: &str) -> Source {
    source(name, &format!("domain: {domain}\ndescriptors:\n- {{ key: {key}, {LIMIT} }}\n"))
}

#[test]
fn each_file_is_a_domain() {
    let loaded =
        load(&[file("b", "two", "k"), file("a", "one", "k")], &Options::default()).unwrap();
    let names: Vec<&str> = loaded.domains.iter().map(|domain| &*domain.name).collect();
    assert_eq!(names, ["two", "one"]);
    assert!(load(&[], &Options::default()).unwrap().domains.is_empty());
}

#[test]
fn a_domain_may_be_in_two_files_only_on_demand() {
    let files = [file("a.yaml", "d", "j"), file("b.yaml", "d", "k")];
    let invalid = load(&files, &Options::default()).unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "b.yaml:1:9: domain: duplicate domain 'd' in config file, it is in `a.yaml` on line 1 too; \
         name one of them differently, or set `MERGE_DOMAIN_CONFIG=true` to merge them"
    );
    let loaded = load(&files, &MERGE).unwrap();
    assert_eq!(loaded.domains.len(), 1);
    assert_eq!(loaded.domains[0].descriptors.len(), 2);
    assert_eq!(loaded.domains[0].joint, Joint::Joined);
}

#[test]
fn merged_files_do_not_repeat_each_other() {
    let files = [file("a.yaml", "d", "k"), file("b.yaml", "d", "k")];
    let invalid = load(&files, &MERGE).unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "b.yaml:3:3: descriptors[0]: duplicate descriptor composite key 'd.k', the first is in \
         `a.yaml` on line 3; remove one of them, or give them different values"
    );
}

#[test]
fn one_native_file_makes_a_native_domain() {
    let native = "domain: d\ndescriptors:\n- { key: n, limits: { algorithm: token_bucket, rate: 1/s } \
                  }\n";
    let files = [file("a.yaml", "d", "k"), source("b.yaml", native)];
    let loaded = load(&files, &MERGE).unwrap();
    assert_eq!(loaded.domains[0].joint, Joint::Apart);
    let files = [file("a.yaml", "d", "'k*'"), source("b.yaml", native)];
    assert_eq!(
        load(&files, &MERGE).unwrap_err().to_string(),
        "a.yaml:3:3: descriptors[0].key: must not contain `*` in a domain with keys of our own form, \
         got `k*`; write the `*` in `value`"
    );
}

#[test]
fn the_problems_of_all_files_are_told_in_their_order() {
    let files = [
        source("b.yaml", "domain: d\nzzz: 1\n"),
        source("a.yaml", "domain: e\ndescriptors: [x]\n"),
        source("c.yaml", "{"),
    ];
    let invalid = load(&files, &Options::default()).unwrap_err();
    let sources: Vec<&str> = invalid.problems.iter().map(Problem::source).collect();
    assert_eq!(sources, ["b.yaml", "a.yaml", "c.yaml"]);
}

#[test]
fn names_are_looked_for_in_all_files() {
    let rule = |key: &str, more: &str| {
        format!(
            "domain: d\ndescriptors:\n- {{ key: {key}, limits: {{ algorithm: token_bucket, rate: 1/s \
             }}, {more} }}\n"
        )
    };
    let first = source("a.yaml", &rule("a", "id: login"));
    let good = source("b.yaml", &rule("b", "replaces: [login]"));
    assert!(load(&[first.clone(), good], &MERGE).is_ok());
    let wrong = source("b.yaml", &rule("b", "replaces: [logn]"));
    assert_eq!(
        load(&[first.clone(), wrong], &MERGE).unwrap_err().to_string(),
        "b.yaml:3:72: descriptors[0].replaces: no rule of this domain is called so, got `logn`; did you mean `login`? \
         name one that exists, or remove it"
    );
    let twice = source("b.yaml", &rule("b", "id: login"));
    assert_eq!(
        load(&[first, twice], &MERGE).unwrap_err().to_string(),
        "b.yaml:3:65: descriptors[0].id: must differ from the id on line 3 of `a.yaml`, got `login`; \
         rules are told apart by it, choose another"
    );
}
