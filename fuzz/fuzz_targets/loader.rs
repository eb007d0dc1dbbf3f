//! Bytes as one or several rule files: loading returns rules that compile, or problems with a
//! position in one of the files.
#![no_main]

mod position;

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use sluicegate_config::problem::Problem;
use sluicegate_config::rules::{Options, Source, load};
use sluicegate_rules::request::{Descriptor, Entry, Request};
use sluicegate_rules::set::RuleSet;

/// Separator of two files: a comment in YAML.
const SEPARATOR: &str = "#----\n";

fuzz_target!(|text: &str| {
    check(&[source(0, text)], false);
    if text.contains(SEPARATOR) {
        let files: Vec<Source> =
            text.split(SEPARATOR).zip(0..).map(|(t, no)| source(no, t)).collect();
        check(&files, false);
        check(&files, true);
    }
});

fn source(no: usize, text: &str) -> Source {
    Source { name: format!("file{no}.yaml"), text: text.to_owned() }
}

fn check(sources: &[Source], merge_domains: bool) {
    let texts: HashMap<&str, &str> = sources.iter().map(|s| (&*s.name, &*s.text)).collect();
    let has_position = |problem: &Problem| match texts.get(problem.source()) {
        Some(text) => position::check(problem, problem.source(), text),
        None => panic!("`{}` is not a source: {problem}", problem.source()),
    };
    match load(sources, &Options { merge_domains, ..Options::default() }) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(has_position);
            let set = RuleSet::new(loaded.domains).expect("what loads can be compiled");
            // All loaded rules can be matched, explained and named.
            let entries = [Entry::new("key", "value"), Entry::new("user_id", "10.0.0.1")];
            let descriptors = [Descriptor::of(&entries), Descriptor::of(&entries[1..])];
            for domain in set.domains() {
                let _ = set.explain(&Request { domain, descriptors: &descriptors, hits: 1 });
            }
            set.rules().for_each(|no| drop(set.path_of(no)));
        }
        Err(invalid) => {
            assert!(invalid.problems.iter().count() > 0);
            invalid.problems.iter().chain(&invalid.warnings).for_each(has_position);
        }
    }
}
