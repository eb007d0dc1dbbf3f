//! `dynamic_metadata`: what was asked and what the rules add to it, for filters and logs behind Envoy's rate limit filter.
//!
//! ```text
//!   { domain, hitsAddend?, descriptors: [{ entries: ["key=value", …], limit?, hitsAddend?, level?, over? }, …], metadata?, deniedBy? }
//! ```
//!
//! `level` and `over` are there where the store that nodes share was not asked.
//!
//! A `google.protobuf.Struct` has `fields = 1 { key = 1, value = 2 }`; a `Value` one of `null = 1, number = 2, string = 3, bool = 4,
//! struct = 5, list = 6`; a `ListValue` has `values = 1`.

use sluicegate::rules::metadata::Metadata;
use sluicegate::{Promise, Status};

use super::request::{Ask, AskedLimit};
use super::wire::{put_bytes, put_double, put_message, put_number_always};

/// Appends all of it. `passed` are the metadata of the rules that let their descriptors pass.
pub(super) fn put<'a>(
    ask: &Ask<'_>,
    statuses: &[Status],
    passed: impl Iterator<Item = &'a Metadata>,
    denied_by: Option<&str>,
    out: &mut Vec<u8>,
) {
    let mut merged = None;
    passed.for_each(|more| merge(&mut merged, more));
    put_message(6, out, |out| {
        put_field("domain", out, |out| put_text(ask.domain, out));
        if ask.hits_addend > 0 {
            put_field("hitsAddend", out, |out| put_double(2, f64::from(ask.hits_addend), out));
        }
        put_field("descriptors", out, |out| put_descriptors(ask, statuses, out));
        if let Some(merged) = &merged {
            put_field("metadata", out, |out| put_value(merged, out));
        }
        if let Some(rule) = denied_by {
            put_field("deniedBy", out, |out| put_text(rule, out));
        }
    });
}

fn put_descriptors(ask: &Ask<'_>, statuses: &[Status], out: &mut Vec<u8>) {
    let promise =
        |place: usize| statuses.get(place).map_or(Promise::default(), |status| status.promise);
    let all: Vec<_> = ask.descriptors.iter().enumerate().collect();
    put_list(&all, out, |(place, asked), out| {
        put_message(5, out, |out| {
            put_field("entries", out, |out| {
                put_list(ask.entries(asked), out, |entry, out| {
                    put_text(&format!("{}={}", entry.key, entry.value), out);
                });
            });
            if let Some(limit) = asked.limit {
                put_field("limit", out, |out| put_text(&limit_text(limit), out));
            }
            if let Some(hits) = asked.hits_addend {
                // As near as a `Struct` comes: its numbers are floating.
                put_field("hitsAddend", out, |out| put_double(2, hits as f64, out));
            }
            let promise = promise(*place);
            if promise != Promise::default() {
                put_field("level", out, |out| put_text(promise.level.name(), out));
                put_field("over", out, |out| put_double(2, promise.over as f64, out));
            }
        });
    });
}

/// As protobuf's text format has it.
fn limit_text(limit: AskedLimit) -> String {
    let mut parts = Vec::new();
    if limit.requests_per_unit > 0 {
        parts.push(format!("requests_per_unit:{}", limit.requests_per_unit));
    }
    match limit.unit {
        0 => {}
        unit => match super::json::unit_of_a_request(unit) {
            Some(name) => parts.push(format!("unit:{name}")),
            None => parts.push(format!("unit:{unit}")),
        },
    }
    parts.join(" ")
}

/// Whoever came first is not overruled.
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
