//! Pure rate limiting decisions.
//!
//! *May this request go through now, and if not, when?* This crate answers from (limit, state,
//! cost, now) alone. It reads no clock, keeps no lock, does no I/O and uses no float; given the same
//! arguments it gives the same answer, on every store and in every test.
//!
//! - [`limit::Limit`] is an algorithm with its numbers, [`limit::State`] what it keeps of one identity;
//!   the algorithms are described in [`algorithm`].
//! - [`mode::EnforcedLimit`] is a limit as it is enforced: hard, soft, elastic or shadow.
//! - [`account::Account`] is one identity under a plan of several steps: every operation, all or nothing;
//!   [`account::apply_to_all`] is the same for the several identities of one request.
//! - [`verdict::judge`] turns what each limit says into what the plan says.
//! - [`arithmetic`], [`quota`] and [`time`] hold the exact numbers that all of it stands on.
//!
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
pub mod quota;
pub mod record;
pub mod time;
pub mod verdict;
