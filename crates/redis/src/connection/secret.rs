//! What nobody may read in a log.

use std::fmt;

/// A password. It is never printed.
///
/// ```
/// use sluicegate_redis::Secret;
///
/// assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(..)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Keeps the text to itself.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the server alone.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
