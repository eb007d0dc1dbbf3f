//! From a request to the plan of limits that it must pass.
//!
//! - [`limit::Limit`] is a limit as it is configured: a name, and numbers that hold at any time or
//!   windows that follow a calendar.
//! - [`calendar::Calendar`] knows when the days, weeks, months and years of a time zone begin. Core
//!   knows no time zone: it is handed the boundaries around `now`.

#![forbid(unsafe_code)]

mod bytes;
pub mod calendar;
pub mod limit;
