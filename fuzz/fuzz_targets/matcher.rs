//! Bytes as a small tree of rules and as requests: the compiled set agrees with a naive matcher.
//!
//! Both, and the reading of the bytes, are those of the property test in `crates/rules`.
#![no_main]

#[path = "../../crates/rules/src/set/tests/agree.rs"]
mod agree;
#[path = "../../crates/rules/src/set/tests/naive.rs"]
mod naive;
#[path = "../../crates/rules/src/set/tests/trees.rs"]
mod trees;

use libfuzzer_sys::fuzz_target;
// The modules above are part of that crate too, and call it by this name.
use sluicegate_rules as rules;

fuzz_target!(|bytes: &[u8]| agree::check(bytes));
