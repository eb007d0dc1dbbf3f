//! Where reading has come to an end, and why.

use std::fmt::{self, Write as _};
use std::str::Utf8Error;

use serde::de::Error;
use smallvec::SmallVec;

use super::super::options::Most;

/// Why a body is no request, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct NotAsked {
    /// What is wrong, and what to do.
    pub(in crate::http) what: String,
    /// The field, such as `descriptors[0].hits`; empty for the whole body.
    pub(in crate::http) field: String,
    /// From 1 on.
    pub(in crate::http) line: usize,
    /// From 1 on.
    pub(in crate::http) column: usize,
}

/// What reading goes by. Whoever fails says where it is, from the inside out, so that reading what is right costs nothing.
pub(super) struct Reading<'m> {
    pub(super) most: &'m Most,
    /// Descriptors of all checks so far.
    descriptors: usize,
    way_out: SmallVec<[Step; 8]>,
}

/// A step on the way to a value.
#[derive(Debug)]
pub(super) enum Step {
    Field(String),
    At(usize),
}

impl<'m> Reading<'m> {
    pub(super) const fn new(most: &'m Most) -> Self {
        Self { most, descriptors: 0, way_out: SmallVec::new_const() }
    }

    pub(super) fn failed_at(&mut self, step: Step) {
        self.way_out.push(step);
    }

    /// That there are more than there may be.
    pub(super) fn too_many<E: Error>(&self, what: &str, most: usize) -> E {
        E::custom(format_args!("more than {most} {what}; send them in several requests"))
    }

    /// Adds the descriptors of a check in a list. Each gets a status, which is longer than itself.
    pub(super) fn count_descriptors<E: Error>(&mut self, count: usize) -> Result<(), E> {
        self.descriptors = self.descriptors.saturating_add(count);
        let most = self.most.batch_descriptors;
        if self.descriptors > most {
            return Err(self.too_many("descriptors in all checks", most));
        }
        Ok(())
    }

    /// That a name is not too long.
    pub(super) fn bound<E: Error>(&self, name: &str) -> Result<(), E> {
        let (bytes, most) = (name.len(), self.most.text_bytes);
        match bytes <= most {
            true => Ok(()),
            false => Err(E::custom(format_args!("has {bytes} bytes, and a key may have {most}"))),
        }
    }

    /// What to tell about an error.
    pub(super) fn not_asked(&self, error: &serde_json::Error) -> NotAsked {
        let (line, column) = (error.line(), error.column());
        let told = error.to_string();
        let place = format!(" at line {line} column {column}");
        let what = told.strip_suffix(&place).unwrap_or(&told).to_owned();
        let mut field = String::new();
        for step in self.way_out.iter().rev() {
            // Writing to a string cannot fail.
            let _ = match step {
                Step::At(place) => write!(field, "[{place}]"),
                Step::Field(name) if field.is_empty() => write!(field, "{name}"),
                Step::Field(name) => write!(field, ".{name}"),
            };
        }
        NotAsked { what, field, line, column }
    }
}

impl Step {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.chars().take(40).collect())
    }
}

impl NotAsked {
    pub(super) fn not_utf8(body: &[u8], error: &Utf8Error) -> Self {
        let good = body.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + good.iter().rev().take_while(|byte| **byte != b'\n').count();
        let what = "no UTF-8; write what is not with `\\u` escapes".to_owned();
        Self { what, field: String::new(), line, column }
    }
}

impl fmt::Display for NotAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, field, line, column } = self;
        match field.is_empty() {
            true => write!(f, "line {line}, column {column}: {what}"),
            false => write!(f, "line {line}, column {column}, `{field}`: {what}"),
        }
    }
}
