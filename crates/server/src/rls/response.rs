//! `RateLimitResponse`: what Envoy is answered.
//!
//! ```text
//!   RateLimitResponse  overall_code = 1, statuses = 2, response_headers_to_add = 3, request_headers_to_add = 4, dynamic_metadata = 6
//!   DescriptorStatus   code = 1, current_limit = 2 { requests_per_unit = 1, unit = 2, name = 3 }, limit_remaining = 3,
//!                      duration_until_reset = 4 { seconds = 1 }
//!   HeaderValue        key = 1, value = 2
//! ```

use super::wire::{put_bytes, put_message, put_number};

/// Whether something may go, as Envoy counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// It may.
    Ok = 1,
    /// It may not.
    OverLimit = 2,
}

/// What is said of one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorStatus<'a> {
    /// Whether it may go.
    pub code: Code,
    /// The limit that it is under, if it is under one.
    pub limit: Option<CurrentLimit<'a>>,
    /// How many are left.
    pub limit_remaining: u32,
    /// Until the limit is full, in whole seconds.
    pub reset_after_s: Option<u64>,
}

/// A limit, as Envoy is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentLimit<'a> {
    /// How many.
    pub requests_per_unit: u32,
    /// The number of the unit; 0 if there is none for it.
    pub unit: i32,
    /// What it is called.
    pub name: &'a str,
}

/// Appends the code of the whole request.
pub fn put_overall(code: Code, out: &mut Vec<u8>) {
    put_number(1, code as u64, out);
}

/// Appends what is said of one descriptor.
pub fn put_status(status: &DescriptorStatus<'_>, out: &mut Vec<u8>) {
    put_message(2, out, |out| {
        put_number(1, status.code as u64, out);
        if let Some(limit) = &status.limit {
            put_message(2, out, |out| {
                put_number(1, u64::from(limit.requests_per_unit), out);
                put_number(2, u64::try_from(limit.unit).unwrap_or(0), out);
                if !limit.name.is_empty() {
                    put_bytes(3, limit.name.as_bytes(), out);
                }
            });
        }
        put_number(3, u64::from(status.limit_remaining), out);
        if let Some(seconds) = status.reset_after_s {
            put_message(4, out, |out| put_number(1, seconds, out));
        }
    });
}

/// Appends a header for whoever asked Envoy.
pub fn put_response_header(key: &str, value: &str, out: &mut Vec<u8>) {
    put_header(3, key, value, out);
}

/// Appends a header for whoever Envoy asks next.
pub fn put_request_header(key: &str, value: &str, out: &mut Vec<u8>) {
    put_header(4, key, value, out);
}

fn put_header(field: u32, key: &str, value: &str, out: &mut Vec<u8>) {
    put_message(field, out, |out| {
        put_bytes(1, key.as_bytes(), out);
        put_bytes(2, value.as_bytes(), out);
    });
}
