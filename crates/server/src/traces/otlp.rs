//! `ExportTraceServiceRequest`: what a collector is sent.
//!
//! ```text
//!   ExportTraceServiceRequest  resource_spans = 1 { resource = 1 { attributes = 1 }, scope_spans = 2 }
//!   ScopeSpans                 scope = 1 { name = 1, version = 2 }, spans = 2
//!   Span                       trace_id = 1, span_id = 2, parent_span_id = 4, name = 5, kind = 6, start_time_unix_nano = 7,
//!                              end_time_unix_nano = 8, attributes = 9, status = 15 { message = 2, code = 3 }
//!   KeyValue                   key = 1, value = 2 { string = 1, bool = 2, int = 3 }
//! ```

use sluicegate::Timestamp;

use super::span::{Ended, Value};
use crate::rls::wire::{put_bytes, put_message, put_number, put_varint};

const KIND_SERVER: u64 = 2;
const STATUS_ERROR: u64 = 2;

/// The bytes of a batch.
pub(super) fn request(resource: &[(String, String)], spans: &[Ended]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 * (spans.len() + 1));
    put_message(1, &mut out, |out| {
        put_message(1, out, |out| {
            for (key, value) in resource {
                put_message(1, out, |out| {
                    put_bytes(1, key.as_bytes(), out);
                    put_message(2, out, |out| put_bytes(1, value.as_bytes(), out));
                });
            }
        });
        put_message(2, out, |out| {
            put_message(1, out, |out| {
                put_bytes(1, b"sluicegate", out);
                put_bytes(2, env!("CARGO_PKG_VERSION").as_bytes(), out);
            });
            for span in spans {
                put_message(2, out, |out| put_span(span, out));
            }
        });
    });
    out
}

fn put_span(span: &Ended, out: &mut Vec<u8>) {
    put_bytes(1, &span.trace.to_be_bytes(), out);
    put_bytes(2, &span.number.to_be_bytes(), out);
    if let Some(parent) = span.parent {
        put_bytes(4, &parent.to_be_bytes(), out);
    }
    put_bytes(5, span.name.as_bytes(), out);
    put_number(6, KIND_SERVER, out);
    put_time(7, span.begun, out);
    put_time(8, span.ended, out);
    for (key, value) in &span.attributes {
        put_message(9, out, |out| {
            put_bytes(1, key.as_bytes(), out);
            put_message(2, out, |out| put_value(value, out));
        });
    }
    if let Some(why) = &span.failure {
        put_message(15, out, |out| {
            put_bytes(2, why.as_bytes(), out);
            put_number(3, STATUS_ERROR, out);
        });
    }
}

/// Which of them it is must be said even if it is 0, so none goes without saying.
fn put_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Text(text) => put_bytes(1, text.as_bytes(), out),
        Value::Bool(bool) => {
            put_varint(2 << 3, out);
            put_varint(u64::from(*bool), out);
        }
        Value::Number(number) => {
            put_varint(3 << 3, out);
            put_varint(number.cast_unsigned(), out);
        }
    }
}

/// Nanoseconds since the epoch, always eight bytes.
fn put_time(field: u32, at: Timestamp, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | 1), out);
    out.extend_from_slice(&at.as_micros().saturating_mul(1_000).to_le_bytes());
}
