//! The same messages as JSON, as protobuf writes them in it: names in `camelCase` or as they are, numbers also as texts, `null` for nothing.
//!
//! For `/json`, which people and scripts use; so it goes by way of the bytes, and there is one place that decides.

mod request;
mod response;
mod whole;

pub use request::{NotAsked, request};
pub use response::response;

/// As Envoy's protocol calls them; there is none for a week.
const UNITS: [&str; 7] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"];

/// The name of the unit of a limit that comes with a request.
pub(super) fn unit_of_a_request(number: i32) -> Option<&'static str> {
    UNITS.get(usize::try_from(number).ok()?).copied()
}
