//! The document that describes all of it to machines.
pub fn document() -> String { String::new() }
pub(super) async fn get() -> String { document() }
