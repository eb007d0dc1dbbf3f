//! Bytes as the YAML of limits: parsing returns limits, or problems with a position in the text.
#![no_main]

mod position;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match sluicegate_config::limit::limits("fuzz", text) {
        Ok(limits) => {
            // The stored form round-trips.
            for limit in &limits {
                let mut bytes = Vec::new();
                limit.write(&mut bytes);
                let read = sluicegate_rules::limit::LimitConfig::read(&mut bytes.as_slice());
                assert_eq!(read.as_ref(), Some(limit));
            }
        }
        Err(problems) => {
            assert!(problems.iter().count() > 0);
            problems.iter().for_each(|problem| position::check(problem, "fuzz", text));
        }
    }
});
