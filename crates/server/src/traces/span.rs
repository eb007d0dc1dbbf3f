//! A span: from when to when, and what there is to say about it.

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate::Timestamp;
use smallvec::SmallVec;

use super::Inner;

/// The most that is said about a span.
const ATTRIBUTES_MAX: usize = 16;
/// The most bytes of a text: a domain can be as long as a client likes.
const TEXT_BYTES_MAX: usize = 256;

/// A span that has begun. Without an [`end`](Self::end) it never was.
#[derive(Debug)]
#[must_use = "without an end it never was"]
pub struct Span {
    span: Ended,
    tracer: Arc<Inner>,
}

/// Something said about a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Bool(bool),
}

/// A span with everything that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) name: &'static str,
    pub(super) trace: u128,
    pub(super) number: u64,
    pub(super) parent: Option<u64>,
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) attributes: SmallVec<[(&'static str, Value); 4]>,
    /// Why there was no answer.
    pub(super) failure: Option<Cow<'static, str>>,
}

// === impl Span ===

impl Span {
    pub(super) fn new(span: Ended, tracer: Arc<Inner>) -> Self {
        Self { span, tracer }
    }

    /// Says something about it. Long texts are cut, and the seventeenth thing is left out.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if self.span.attributes.len() < ATTRIBUTES_MAX {
            self.span.attributes.push((key, value.into().cut()));
        }
    }

    /// There was no answer. A denial is one.
    pub fn fail(&mut self, why: impl Into<Cow<'static, str>>) {
        self.span.failure = Some(cut(why.into()));
    }

    /// It is over, and is sent away when its turn comes. Nobody waits for that.
    pub fn end(mut self, now: Timestamp) {
        // A clock may go back; a span may not.
        self.span.ended = now.max(self.span.begun);
        self.tracer.end(self.span);
    }
}

// === impl Ended ===

impl Ended {
    pub(super) fn begin(
        name: &'static str,
        trace: u128,
        number: u64,
        parent: Option<u64>,
        now: Timestamp,
    ) -> Self {
        let (attributes, failure) = (SmallVec::new(), None);
        Self { name, trace, number, parent, begun: now, ended: now, attributes, failure }
    }
}

// === impl Value ===

impl Value {
    fn cut(self) -> Self {
        match self {
            Self::Text(text) => Self::Text(cut(text)),
            other => other,
        }
    }
}

fn cut(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    Cow::Owned(beginning(&text).to_owned())
}

/// As much of a text as is kept, in whole characters.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        // Copied anyway, so no more than is kept.
        Self::Text(Cow::Owned(beginning(text).to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<Cow<'static, str>> for Value {
    fn from(text: Cow<'static, str>) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}
