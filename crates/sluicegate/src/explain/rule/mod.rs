//! Rules as a person reads them: where they stand, what they say ([`words`]), and the same for a program ([`json`]).

pub mod json;
mod place;
pub mod words;

pub use place::{Contents, Placed, contents};
pub(crate) use place::{varies, way_of};
