//! The IETF fields: lists of strings with parameters, as RFC 9651 writes them.

use std::fmt::Write as _;

use super::{escape, seconds_to_go};
use crate::Policy;

/// The largest integer of a structured field: fifteen digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// The longest name in a field; the configuration has no longer ones.
const NAME_CHARS_MAX: usize = 64;
/// The longest list of policies. Clients and proxies give all headers together 8 KiB or so.
const LIST_BYTES_MAX: usize = 2_048;

// The first policy always fits: each character of its name takes at most four bytes, written as `%XX`.
const _: () = assert!(NAME_CHARS_MAX * 4 * 3 + 100 < LIST_BYTES_MAX);

/// An item of `RateLimit`: what is left of one policy, and for how many seconds.
pub(super) fn service_limit(name: &str, left: u64, seconds: Option<u64>) -> String {
    let mut item = string(name);
    push_integer(&mut item, "r", left);
    if let Some(seconds) = seconds {
        push_integer(&mut item, "t", seconds);
    }
    item
}

/// The list in `RateLimit-Policy`: those that have a quota; `None` if there are none, since the list must
/// not be empty.
pub(super) fn quota_policies<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<String> {
    let mut list = String::new();
    for policy in policies {
        let Some(item) = quota_policy(policy) else {
            continue;
        };
        if list.len() + item.len() + 2 > LIST_BYTES_MAX {
            break;
        }
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push_str(&item);
    }
    (!list.is_empty()).then_some(list)
}

fn quota_policy(policy: &Policy) -> Option<String> {
    let mut item = string(&policy.name);
    push_integer(&mut item, "q", policy.quota?);
    if policy.algorithm == "concurrency" {
        item.push_str(r#";qu="concurrent-requests""#);
    }
    // Rounded up, a window of 10 ms would be a hundred times too long; one above a second, less than twice.
    if let Some(window) = policy.window.filter(|window| window.as_micros() >= 1_000_000) {
        push_integer(&mut item, "w", seconds_to_go(window));
    }
    Some(item)
}

/// A quoted string, whatever the text: only printable ASCII may stand in it.
fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars().take(NAME_CHARS_MAX) {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => escape::push_percent(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut quoted),
        }
    }
    quoted.push('"');
    quoted
}

fn push_integer(item: &mut String, key: &str, value: u64) {
    // Writing to a string cannot fail.
    let _ = write!(item, ";{key}={}", value.min(INTEGER_MAX));
}
