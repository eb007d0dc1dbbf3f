//! The headers that Envoy adds: those of the limit that the client should know of.

use super::options::{HeaderNames, Options};
use super::response::{Code, DescriptorStatus, put_request_header, put_response_header};

/// The limit that the headers tell of, as far as statuses were looked at.
///
/// That is the one with the least left, the first of several; but one that denied goes before, the last of several.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Telling {
    chosen: Option<Numbers>,
    denied: bool,
}

#[derive(Debug, Clone, Copy)]
struct Numbers {
    limit: u32,
    remaining: u32,
    reset_after_s: u64,
}

impl Telling {
    /// Looks at one more status. That of a quota denies nothing by itself.
    pub(super) fn look_at(&mut self, status: &DescriptorStatus<'_>, is_quota: bool) {
        let Some(limit) = &status.limit else { return };
        let denies = status.code == Code::OverLimit && !is_quota;
        let least = self.chosen.map_or(u32::MAX, |chosen| chosen.remaining);
        if denies || (!self.denied && status.limit_remaining < least) {
            self.denied |= denies;
            self.chosen = Some(Numbers {
                limit: limit.requests_per_unit,
                remaining: status.limit_remaining,
                reset_after_s: status.reset_after_s.unwrap_or(0),
            });
        }
    }

    /// Appends the headers that were asked for; `retry_after_s` is of a request that is denied, and may come again.
    pub(super) fn put(&self, options: &Options, retry_after_s: Option<u64>, out: &mut Vec<u8>) {
        let Some(chosen) = &self.chosen else { return };
        if let Some(names) = &options.response_headers {
            chosen.put(names, put_response_header, out);
            if let Some(seconds) = retry_after_s {
                put_response_header("Retry-After", &seconds.to_string(), out);
            }
        }
        if let Some(names) = &options.request_headers {
            chosen.put(names, put_request_header, out);
        }
    }
}

impl Numbers {
    fn put(&self, names: &HeaderNames, put: fn(&str, &str, &mut Vec<u8>), out: &mut Vec<u8>) {
        put(&names.limit, &self.limit.to_string(), out);
        put(&names.remaining, &self.remaining.to_string(), out);
        put(&names.reset, &self.reset_after_s.to_string(), out);
    }
}
