//! The table of memory.

use super::grid;
use crate::results::Results;

const HEAD: [&str; 7] =
    ["contestant", "ids", "hits each", "bytes per id", "MB", "MB at the worst", "ns per hit"];

/// One row for each contestant and number of ids; nothing if no memory was measured.
pub(crate) fn table(results: &Results) -> String {
    let mut rows = Vec::new();
    for (key, growth) in &results.memory {
        rows.push(vec![
            key.contestant.to_owned(),
            key.ids.to_string(),
            growth.hits_per_id.to_string(),
            format!("{:.0}", growth.bytes as f64 / growth.ids as f64),
            megabytes(growth.bytes),
            megabytes(growth.peak_bytes),
            format!("{:.0}", growth.hit_ns),
        ]);
    }
    if rows.is_empty() { String::new() } else { grid::render(&HEAD, 1, &rows) }
}

/// Millions of bytes, not of 2^20.
fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
