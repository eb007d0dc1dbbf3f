//! From a request to the plan of limits that it must pass.
//!
//! - [`domain`] and [`rule`] are the rules as they were written, [`set::RuleSet`] is what requests are matched by.
//! - [`request`] is what is asked, and [`plan::Plan`] what it must pass.
//! - [`mapping`] makes descriptors of a request of HTTP, [`forward_auth`] does so for proxies that ask about theirs.
//! - [`limit::LimitConfig`] is a limit as it is configured: a name, and numbers that hold at any time or
//!   windows that follow a calendar.
//! - [`calendar::Calendar`] knows when the days, weeks, months and years of a time zone begin. Core
//!   knows no time zone: it is handed the boundaries around `now`.
//! - [`network`] knows which addresses belong together.

#![forbid(unsafe_code)]

mod bytes;
pub mod calendar;
pub mod domain;
pub mod explain;
pub mod forward_auth;
pub mod limit;
pub mod mapping;
pub mod metadata;
pub mod network;
pub mod plan;
pub mod request;
pub mod rule;
pub mod set;
pub mod unit;
