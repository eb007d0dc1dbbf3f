//! What the recorded calls are compared by.

pub(crate) mod departures;
pub(crate) mod request;
pub(crate) mod told;
