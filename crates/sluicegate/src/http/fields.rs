//! The IETF fields: lists of strings with parameters, as RFC 9651 writes them.

use super::{escape, number, seconds_to_go};
use crate::Policy;

/// The largest integer of a structured field: fifteen digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// The longest name in a field; the configuration has no longer ones.
const NAME_CHARS_MAX: usize = 64;
/// The longest list of policies. Clients and proxies give all headers together 8 KiB or so.
const LIST_BYTES_MAX: usize = 2_048;
/// Room for what follows a name, nearly always.
const PARAMETERS_BYTES: usize = 40;

// The first policy always fits: each character of its name takes at most four bytes, written as `%XX`.
const _: () = assert!(NAME_CHARS_MAX * 4 * 3 + 100 < LIST_BYTES_MAX);

/// An item of `RateLimit`: what is left of one policy, and for how many seconds.
pub(super) fn service_limit(name: &str, left: u64, seconds: Option<u64>) -> String {
    let mut item = String::with_capacity(name.len() + PARAMETERS_BYTES);
    push_string(&mut item, name);
    push_integer(&mut item, ";r=", left);
    if let Some(seconds) = seconds {
        push_integer(&mut item, ";t=", seconds);
    }
    item
}

/// The list in `RateLimit-Policy`: those that have a quota; `None` if there are none, since the list must
/// not be empty.
pub(super) fn quota_policies<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<String> {
    let mut list = String::new();
    for policy in policies {
        let Some(quota) = policy.quota else {
            continue;
        };
        list.reserve(policy.name.len() + PARAMETERS_BYTES);
        let so_far = list.len();
        if so_far > 0 {
            list.push_str(", ");
        }
        push_quota_policy(&mut list, policy, quota);
        if list.len() > LIST_BYTES_MAX {
            list.truncate(so_far);
            break;
        }
    }
    (!list.is_empty()).then_some(list)
}

fn push_quota_policy(list: &mut String, policy: &Policy, quota: u64) {
    push_string(list, &policy.name);
    push_integer(list, ";q=", quota);
    if policy.algorithm == "concurrency" {
        list.push_str(r#";qu="concurrent-requests""#);
    }
    // Rounded up, a window of 10 ms would be a hundred times too long; one above a second, less than twice.
    if let Some(window) = policy.window.filter(|window| window.as_micros() >= 1_000_000) {
        push_integer(list, ";w=", seconds_to_go(window));
    }
}

/// Appends a quoted string, whatever the text: only printable ASCII may stand in it.
fn push_string(out: &mut String, text: &str) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    out.push('"');
    if text.len() <= NAME_CHARS_MAX && text.as_bytes().iter().all(is_plain) {
        out.push_str(text);
    } else {
        for c in text.chars().take(NAME_CHARS_MAX) {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                ' '..='~' => out.push(c),
                _ => escape::push_percent(c.encode_utf8(&mut [0; 4]).as_bytes(), out),
            }
        }
    }
    out.push('"');
}

fn push_integer(out: &mut String, name: &str, value: u64) {
    out.push_str(name);
    number::with_digits(value.min(INTEGER_MAX), |digits| out.push_str(digits));
}
