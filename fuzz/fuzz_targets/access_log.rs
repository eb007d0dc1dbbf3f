//! Bytes as an access log of every format: a line is a record or an error, whatever lines were read
//! before.
#![no_main]

#[path = "../../crates/accesslog/tests/properties/same.rs"]
mod same;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| same::same(bytes));
