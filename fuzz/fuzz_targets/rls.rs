//! Bytes as a `RateLimitRequest`: they are read as generated code reads them, and whatever they
//! are, the service answers or refuses.
#![no_main]

mod answered;
mod fields;
#[path = "../../crates/server/tests/wire/same.rs"]
mod same;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| {
    same::same(bytes);
    answered::check(bytes);
});

// Every other time fields are moved about and the lengths around them put right, so that what is
// inside is reached.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    match fields::mutated(&data[..size], seed) {
        Some(bytes) if seed.is_multiple_of(2) && bytes.len() <= max_size.min(data.len()) => {
            data[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
});
