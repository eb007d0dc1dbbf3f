//! Random distributions of generated traffic; the same numbers for the same seed, on every machine
//! with the same mathematical library.
//!
//! - [`Zipf`] draws which client or key, where a few are much more frequent than the others.
//! - [`IntervalDistribution`] draws times between arrivals, from even to bursty, with a mean of 1.
//! - [`standard_normal`] draws noise.

mod interval;
mod zipf;

pub use interval::{IntervalDistribution, standard_normal};
pub use zipf::Zipf;
