//! Memory of a thread that reads lines: a buffer for texts that have to be unescaped, and the last
//! date, which the next line usually shares.
//!
//! An unescaped text is never longer than the escaped one, so a buffer in proportion to the line
//! holds all of its texts, and [`Arena`] hands out parts of it without allocating.

use std::fmt::{self, Display, Write};

use crate::time::DateCache;

/// Bytes for what is not in the line: separators, and numbers as texts.
const SLACK_BYTES: usize = 64;

/// Memory that is reused from line to line. A record borrows it, so that there is one record at a
/// time for each.
#[derive(Debug, Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    dates: DateCache,
}

/// The free part of the buffer.
#[derive(Debug)]
pub(crate) struct Arena<'a> {
    free: &'a mut [u8],
}

/// Bytes of a number as a text; floating point numbers beyond it identify nothing.
const DIGITS_MAX: usize = 32;

/// A number as a text.
#[derive(Debug)]
struct Digits {
    bytes: [u8; DIGITS_MAX],
    length: usize,
}

impl Write for Digits {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The buffer is full, which no line of a well-formed log causes.
#[derive(Debug)]
pub(crate) struct ArenaFull;

impl Scratch {
    /// Memory for a line of this length.
    pub(crate) fn for_line(&mut self, line_bytes: usize) -> (Arena<'_>, &mut DateCache) {
        // A text may be unescaped and then joined with another one.
        let needed = line_bytes.saturating_mul(2).saturating_add(SLACK_BYTES);
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        (Arena { free: &mut self.bytes }, &mut self.dates)
    }
}

impl<'a> Arena<'a> {
    /// Stores bytes.
    pub(crate) fn store(
        &mut self,
        bytes: impl IntoIterator<Item = u8>,
    ) -> Result<&'a [u8], ArenaFull> {
        let mut length = 0;
        for byte in bytes {
            *self.free.get_mut(length).ok_or(ArenaFull)? = byte;
            length += 1;
        }
        Ok(self.split(length))
    }

    /// Stores what a function writes into a buffer of this length; it returns how much that is.
    #[inline]
    pub(crate) fn store_with(
        &mut self,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<&'a [u8], ArenaFull> {
        let length = write(self.free.get_mut(..bytes_max).ok_or(ArenaFull)?);
        Ok(self.split(length.min(bytes_max)))
    }

    fn split(&mut self, length: usize) -> &'a [u8] {
        let (stored, free) = std::mem::take(&mut self.free).split_at_mut(length);
        self.free = free;
        stored
    }

    /// Stores a number as a text.
    pub(crate) fn store_display(&mut self, number: impl Display) -> Result<&'a [u8], ArenaFull> {
        let mut text = Digits { bytes: [0; DIGITS_MAX], length: 0 };
        write!(text, "{number}").map_err(|fmt::Error| ArenaFull)?;
        self.store_slice(&text.bytes[..text.length])
    }

    /// Stores a text.
    pub(crate) fn store_slice(&mut self, bytes: &[u8]) -> Result<&'a [u8], ArenaFull> {
        self.store_with(bytes.len(), |out| {
            out.copy_from_slice(bytes);
            bytes.len()
        })
    }
}
