//! Rules: matches a request to the plan of limits that it must pass.
//!
//! - [`domain`] and [`rule`] are the configured rules, [`set::RuleSet`] is their compiled form.
//! - [`request`] is the input of a decision, [`plan::Plan`] the limits that it must pass.
//! - [`mapping`] maps an HTTP request to descriptors; [`domain::ForwardAuth`] configures it.
//! - [`limit::LimitConfig`] is a configured limit: a name, and numbers that hold at any time or
//!   windows that follow a calendar.
//! - [`calendar::Calendar`] computes when the days, weeks, months and years of a time zone begin.
//!   Core has no time zones: it receives the boundaries around `now`.
//! - [`typed`] parses descriptors as people type them.
//! - [`schedule`] and [`overrides`] are the parts of the configuration that depend on the time;
//!   [`resolve::resolve`] computes the rules of a moment, and when they change next.
//! - [`network`] is IP networks and prefixes.
//! - [`slots`] leaves concurrency limits out.

#![forbid(unsafe_code)]

mod bytes;
pub mod calendar;
pub mod domain;
pub mod explain;
pub mod limit;
pub mod mapping;
pub mod network;
pub mod overrides;
pub mod plan;
pub mod request;
pub mod resolve;
pub mod rule;
pub mod schedule;
pub mod set;
pub mod slots;
pub mod typed;
pub mod unit;
pub mod zone;
