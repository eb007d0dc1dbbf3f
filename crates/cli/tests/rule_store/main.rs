//! The rule store of `sluicegate serve`, in files and in PostgreSQL, through its API.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../support/mod.rs"]
mod support;

mod api;
mod candidate;
mod files;
mod postgres;
