//! Bytes as the JSON of a `RateLimitRequest`: what is taken for a request is one, for us and for
//! generated code.
#![no_main]

mod answered;
#[path = "../../crates/server/tests/wire/same.rs"]
mod same;

use libfuzzer_sys::fuzz_target;
use sluicegate_server::rls::request::{RateLimitRequest, RequestLimits, WireError};
use sluicegate_server::rls::json;

fuzz_target!(|text: &[u8]| match json::request(text) {
    Ok(bytes) => {
        let read = RateLimitRequest::decode(&bytes, RequestLimits::default());
        assert!(matches!(read, Ok(_) | Err(WireError::TooMany)), "{read:?}");
        same::same(&bytes);
        answered::check(&bytes);
    }
    Err(error) => assert!(!error.to_string().is_empty()),
});
