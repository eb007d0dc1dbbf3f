//! Bytes as the YAML of limits: whatever they are, the reading ends with limits or with problems
//! that have a place in the text.
#![no_main]

mod place;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match sluicegate_config::limit::limits("fuzz", text) {
        Ok(limits) => {
            // What is kept on disk is read as it was written.
            for limit in &limits {
                let mut bytes = Vec::new();
                limit.write(&mut bytes);
                let read = sluicegate_rules::limit::LimitConfig::read(&mut bytes.as_slice());
                assert_eq!(read.as_ref(), Some(limit));
            }
        }
        Err(problems) => {
            assert!(problems.iter().count() > 0);
            problems.iter().for_each(|problem| place::check(problem, "fuzz", text));
        }
    }
});
