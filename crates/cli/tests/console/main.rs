//! The console, as people use it: a real browser before a real node.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../support/mod.rs"]
mod support;

mod accessible;
mod candidate;
mod edit;
mod identities;
mod node;
mod overview;
mod sessions;
