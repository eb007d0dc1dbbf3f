//! Rules as a person reads them: where they stand (`place`), what they say (`words`), and the same for
//! a program (`json`).

pub(crate) mod json;
pub(crate) mod place;
pub(crate) mod words;
