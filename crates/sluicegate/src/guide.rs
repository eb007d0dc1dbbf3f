//! The guide: every feature of the limiter, one page each.
//!
//! The tests run every example.
//!
//! | page | content |
//! |---|---|
//! | [`first_steps`] | choosing an algorithm, reading a verdict, costs |
//! | [`several`] | several limits, several limiters |
//! | [`waiting`] | waiting for admission, limiting concurrency |
//! | [`settling`] | reserve and commit, refunds, bonuses, debts |
//! | [`stores`] | memory or Redis through one API |
//! | [`rules`] | limits for requests by rules, rules files |
//! | [`changing`] | changing limits at runtime, shadow mode |
//! | [`testing`] | testing your own code, metrics |
//! | [`many`] | batches, memory usage, snapshots |
#![cfg_attr(feature = "tower", doc = "| [`http`] | axum, tonic, and responses without tower |")]
//!
//! Every decision is defined to the microsecond in
//! [SEMANTICS.md](https://github.com/sluicegate/sluicegate/blob/main/docs/SEMANTICS.md).

#[doc = include_str!("guide/changing.md")]
pub mod changing {}

#[doc = include_str!("guide/first_steps.md")]
pub mod first_steps {}

#[cfg(feature = "tower")]
#[doc = include_str!("guide/http.md")]
pub mod http {}

#[doc = include_str!("guide/many.md")]
pub mod many {}

#[doc = include_str!("guide/rules.md")]
pub mod rules {}

#[doc = include_str!("guide/settling.md")]
pub mod settling {}

#[doc = include_str!("guide/several.md")]
pub mod several {}

#[doc = include_str!("guide/stores.md")]
pub mod stores {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/waiting.md")]
pub mod waiting {}
