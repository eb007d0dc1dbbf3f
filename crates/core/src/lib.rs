//! Pure rate limiting decisions.
//!
//! *May this request pass now, and if not, when?* This crate answers from (limit, state, cost, now)
//! alone. It reads no clock, takes no lock, does no I/O and uses no float: the same arguments give
//! the same answer, on every store and in every test.
//!
//! - [`limit::Limit`] is an algorithm with its numbers, [`limit::State`] its state for one
//!   identity; the algorithms are described in [`algorithm`].
//! - [`mode::EnforcedLimit`] is a limit with its mode: hard, soft, elastic or shadow.
//! - [`account::Account`] is one identity under a plan of several limits: every operation, all or
//!   nothing; [`account::apply_to_all`] does the same for several identities of one request.
//! - [`verdict::judge`] combines the decisions of the limits into a verdict.
//! - [`arithmetic`], [`quota`] and [`time`] hold the exact numbers.
//! ```
//! use sluicegate_core::account::{Account, Moment};
//! use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
//! use sluicegate_core::algorithm::token_bucket::TokenBucket;
//! use sluicegate_core::limit::Limit;
//! use sluicegate_core::mode::{Mode, EnforcedLimit};
//! use sluicegate_core::op::Op;
//! use sluicegate_core::quota::Rate;
//! use sluicegate_core::time::{Span, Timestamp};
//! use sluicegate_core::verdict::Outcome;
//!
//! // 10 per second with bursts of 50, and 10,000 a day: both, or neither.
//! let second = Rate::new(10, Span::from_secs(1))?;
//! let day = Rate::new(10_000, Span::from_secs(86_400))?;
//! let plan = [
//!     EnforcedLimit::new(Limit::TokenBucket(TokenBucket::new(second, 50)?), Mode::Hard)?,
//!     EnforcedLimit::new(Limit::FixedWindow(FixedWindow::new(day, Align::Clock)), Mode::Hard)?,
//! ];
//! let mut alice = Account::default();
//! let now = Moment::at(Timestamp::from_micros(1_700_000_000_000_000));
//! let answer = alice.apply(&plan, Op::Hit { cost: 60, holder: None }, now)?;
//! assert_eq!(answer.verdict.outcome, Outcome::Never { max_cost: 50 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::todo,
    clippy::unreachable
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::unwrap_used, clippy::panic))]

pub mod account;
pub mod algorithm;
pub mod arithmetic;
pub mod change;
mod codec;
pub mod lease;
pub mod limit;
pub mod mode;
pub mod op;
pub mod packed;
pub mod parameters;
pub mod quota;
pub mod record;
pub mod time;
pub mod verdict;
