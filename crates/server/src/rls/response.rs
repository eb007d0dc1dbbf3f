//! Encoder of `RateLimitResponse`.
//!
//! ```text
//!   RateLimitResponse  overall_code = 1, statuses = 2, response_headers_to_add = 3,
//!                      request_headers_to_add = 4, dynamic_metadata = 6
//!   DescriptorStatus   code = 1, current_limit = 2 { requests_per_unit = 1, unit = 2, name = 3 },
//!                      limit_remaining = 3, duration_until_reset = 4 { seconds = 1 }
//!   HeaderValue        key = 1, value = 2
//! ```

use super::wire::{put_bytes, put_message, put_number};

/// Code of a request or a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Admitted.
    Ok = 1,
    /// Denied.
    OverLimit = 2,
}

/// Status of one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorStatus<'a> {
    /// Its code.
    pub code: Code,
    /// The limit that applies, if any.
    pub limit: Option<CurrentLimit<'a>>,
    /// Remaining quota.
    pub limit_remaining: u32,
    /// Whole seconds until the limit is full.
    pub reset_after_s: Option<u64>,
}

/// A limit, as Envoy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentLimit<'a> {
    /// Requests per unit.
    pub requests_per_unit: u32,
    /// Number of the unit; 0 if no unit of Envoy matches.
    pub unit: i32,
    /// Its name.
    pub name: &'a str,
}

/// Appends the code of the whole request.
pub fn put_overall(code: Code, out: &mut Vec<u8>) {
    put_number(1, code as u64, out);
}

/// Appends the status of one descriptor.
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

/// Appends a header of the response to the client.
pub fn put_response_header(key: &str, value: &str, out: &mut Vec<u8>) {
    put_header(3, key, value, out);
}

/// Appends a header of the request to the upstream.
pub fn put_request_header(key: &str, value: &str, out: &mut Vec<u8>) {
    put_header(4, key, value, out);
}

fn put_header(field: u32, key: &str, value: &str, out: &mut Vec<u8>) {
    put_message(field, out, |out| {
        put_bytes(1, key.as_bytes(), out);
        put_bytes(2, value.as_bytes(), out);
    });
}
