//! The guide: all that a limiter does, a page at a time.
//!
//! Read from the top, or take the page you need. The tests run every example.
//!
//! | page | what is on it |
//! |---|---|
//! | [`first_steps`] | which algorithm, what a verdict says, costs |
//! | [`several`] | several limits as one, several limiters as one |
//! | [`waiting`] | waiting for a turn, so many at a time |
//! | [`settling`] | reserve and commit, refunds, bonuses, debts |
//! | [`rules`] | rules for requests: who is under which limits; files of them |
//! | [`changing`] | other limits while everybody goes on; limits in the shadow |
//! | [`testing`] | your own code under test; metrics |
//! | [`many`] | batches, memory, snapshots |
#![cfg_attr(feature = "tower", doc = "| [`http`] | axum, tonic, and by hand |")]
//!
//! What each answer means to the last microsecond is in
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

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/waiting.md")]
pub mod waiting {}
