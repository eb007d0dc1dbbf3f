//! `dynamic_metadata`: the request and the metadata of its rules, for filters and logs behind
//! Envoy's rate limit filter.
//!
//! ```text
//!   { domain, hitsAddend?, metadata?, deniedBy?,
//!     descriptors: [{ entries: ["key=value", …], limit?, hitsAddend?, level?, over? }, …] }
//! ```
//!
//! `level` and `over` are present where the shared store did not decide.
//!
//! A `google.protobuf.Struct` has `fields = 1 { key = 1, value = 2 }`; a `Value` one of `null = 1`,
//! `number = 2`, `string = 3`, `bool = 4`, `struct = 5`, `list = 6`; a `ListValue` has `values =
//! 1`.

use sluicegate::rules::rule::Metadata;
use sluicegate::{Promise, Status};

use super::request::{RateLimitOverride, RateLimitRequest};
use super::wire::{put_bytes, put_double, put_message, put_number_always};

/// Appends the metadata. `statuses` are those of all descriptors, and `passed` the metadata
/// of the rules that admitted their descriptors.
pub(super) fn put<'a>(
    request: &RateLimitRequest<'_>,
    statuses: &[&Status],
    passed: impl Iterator<Item = &'a Metadata>,
    denied_by: Option<&str>,
    out: &mut Vec<u8>,
) {
    let mut merged = None;
    passed.for_each(|more| merge(&mut merged, more));
    put_message(6, out, |out| {
        put_field("domain", out, |out| put_text(request.domain, out));
        if request.hits_addend > 0 {
            put_field("hitsAddend", out, |out| put_double(2, f64::from(request.hits_addend), out));
        }
        put_field("descriptors", out, |out| put_descriptors(request, statuses, out));
        if let Some(merged) = &merged {
            put_field("metadata", out, |out| put_value(merged, out));
        }
        if let Some(rule) = denied_by {
            put_field("deniedBy", out, |out| put_text(rule, out));
        }
    });
}

fn put_descriptors(request: &RateLimitRequest<'_>, statuses: &[&Status], out: &mut Vec<u8>) {
    let promise =
        |index: usize| statuses.get(index).map_or(Promise::default(), |status| status.promise);
    let all: Vec<_> = request.descriptors.iter().enumerate().collect();
    put_list(&all, out, |(index, descriptor), out| {
        put_message(5, out, |out| {
            put_field("entries", out, |out| {
                put_list(request.entries(descriptor), out, |entry, out| {
                    put_text(&format!("{}={}", entry.key, entry.value), out);
                });
            });
            if let Some(limit) = descriptor.limit {
                put_field("limit", out, |out| put_text(&limit_text(limit), out));
            }
            if let Some(hits) = descriptor.hits_addend {
                // Numbers of a `Struct` are doubles.
                put_field("hitsAddend", out, |out| put_double(2, hits as f64, out));
            }
            let promise = promise(*index);
            if promise != Promise::default() {
                put_field("level", out, |out| put_text(promise.level.name(), out));
                put_field("over", out, |out| put_double(2, promise.over as f64, out));
            }
        });
    });
}

/// The limit in protobuf's text format.
fn limit_text(limit: RateLimitOverride) -> String {
    let mut parts = Vec::new();
    if limit.requests_per_unit > 0 {
        parts.push(format!("requests_per_unit:{}", limit.requests_per_unit));
    }
    match limit.unit {
        0 => {}
        unit => match super::json::unit_name(unit) {
            Some(name) => parts.push(format!("unit:{name}")),
            None => parts.push(format!("unit:{unit}")),
        },
    }
    parts.join(" ")
}

/// The first value of a field wins.
fn merge(into: &mut Option<Metadata>, more: &Metadata) {
    match (into, more) {
        (None, _) if !matches!(more, Metadata::Map(_)) => {}
        (into @ None, more) => *into = Some(more.clone()),
        (Some(into), more) => merge_maps(into, more),
    }
}

fn merge_maps(into: &mut Metadata, more: &Metadata) {
    let (Metadata::Map(fields), Metadata::Map(more)) = (into, more) else { return };
    for (name, value) in more {
        match fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => merge_maps(known, value),
            None => fields.push((name.clone(), value.clone())),
        }
    }
}

// === values ===

fn put_field(name: &str, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    put_message(1, out, |out| {
        put_bytes(1, name.as_bytes(), out);
        put_message(2, out, value);
    });
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_bytes(3, text.as_bytes(), out);
}

fn put_list<T>(all: &[T], out: &mut Vec<u8>, mut value: impl FnMut(&T, &mut Vec<u8>)) {
    put_message(6, out, |out| {
        all.iter().for_each(|one| put_message(1, out, |out| value(one, out)))
    });
}

fn put_value(value: &Metadata, out: &mut Vec<u8>) {
    match value {
        Metadata::Null => put_number_always(1, 0, out),
        Metadata::Bool(truth) => put_number_always(4, u64::from(*truth), out),
        Metadata::Number(number) => put_double(2, *number, out),
        Metadata::Text(text) => put_text(text, out),
        Metadata::List(all) => put_list(all, out, put_value),
        Metadata::Map(fields) => put_message(5, out, |out| {
            fields.iter().for_each(|(name, value)| {
                put_field(name, out, |out| put_value(value, out));
            });
        }),
    }
}
