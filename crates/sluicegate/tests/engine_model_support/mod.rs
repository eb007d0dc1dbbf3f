//! A naive engine, written from docs/SEMANTICS.md alone, and what the real one is compared with it by.
//!
//! It shares no code with the engine or with the compiled rules: it walks the trees as they were written, and keeps an account of
//! the core for everybody in one map.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod anything;
pub mod changes;
pub mod counted;
pub mod matching;
pub mod model;
