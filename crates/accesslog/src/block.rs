//! Whole lines in blocks that own their bytes, so that one thread reads and others parse.
//!
//! A block ends with the end of a line; what follows is the beginning of the next block. Of a line
//! that is longer than [`LINE_BYTES_MAX`], a little more than that is stored and the rest is
//! discarded while it is read: the parser refuses it by its length, and memory is bounded.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr};

use crate::parser::LINE_BYTES_MAX;

/// Bytes of a block, unless another size is chosen.
pub const BLOCK_BYTES: usize = 1024 * 1024;

/// Bytes that are stored of a line. The last may be a carriage return, which counts as its end.
const LINE_STORED_MAX: usize = LINE_BYTES_MAX + 2;
const _: () = assert!(LINE_STORED_MAX < BLOCK_BYTES, "a block holds any line");

/// Byte order mark of UTF-8, with which some programs begin a file.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Whole lines of a log. A block is a buffer that [`BlockReader::next_block`] fills again.
#[derive(Debug, Default)]
pub struct Block {
    buffer: Vec<u8>,
    length: usize,
    first_line: u64,
}

/// The lines of a block, without their ends (`\n` or `\r\n`).
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    rest: &'a [u8],
}

/// Divides a stream into blocks.
///
/// ```
/// use sluicegate_accesslog::{Block, BlockReader};
///
/// let mut reader = BlockReader::new(&b"first\r\nsecond\nlast"[..]);
/// let mut block = Block::default();
/// let mut lines = Vec::new();
/// while reader.next_block(&mut block)? {
///     lines.extend(block.lines().map(<[u8]>::to_vec));
/// }
/// assert_eq!(lines, [b"first".to_vec(), b"second".to_vec(), b"last".to_vec()]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct BlockReader<R> {
    source: R,
    block_bytes: usize,
    line_stored_max: usize,
    /// The beginning of a line that the last block did not hold.
    carry: Vec<u8>,
    /// Whether bytes are discarded up to the end of a line that is too long.
    is_discarding: bool,
    next_line: u64,
    is_at_start: bool,
    is_at_end: bool,
    /// An error that is returned once the lines before it are.
    error: Option<io::Error>,
}

impl Block {
    /// The lines.
    #[must_use]
    pub fn lines(&self) -> Lines<'_> {
        Lines::of(self.as_bytes())
    }

    /// The bytes of the lines.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// The number of the first line in the log, from 1.
    #[must_use]
    pub const fn first_line(&self) -> u64 {
        self.first_line
    }
}

impl<'a> Lines<'a> {
    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest);
        let line = &self.rest[..end.unwrap_or(self.rest.len())];
        self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

impl<R: Read> BlockReader<R> {
    /// Blocks of a stream.
    pub const fn new(source: R) -> Self {
        Self {
            source,
            block_bytes: BLOCK_BYTES,
            line_stored_max: LINE_STORED_MAX,
            carry: Vec::new(),
            is_discarding: false,
            next_line: 1,
            is_at_start: true,
            is_at_end: false,
            error: None,
        }
    }

    /// Blocks of another size; they hold at least one line of any length.
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes.max(self.line_stored_max + 1);
        self
    }

    /// Fills a block with the next lines; `false` at the end.
    ///
    /// # Errors
    /// When reading fails. The lines before are returned first; a line that the error interrupts
    /// is dropped.
    pub fn next_block(&mut self, block: &mut Block) -> io::Result<bool> {
        block.buffer.resize(self.block_bytes, 0);
        block.length = self.fill(&mut block.buffer);
        if block.length == 0 {
            return self.error.take().map_or(Ok(false), Err);
        }
        block.first_line = self.next_line;
        let ends = memchr_iter(b'\n', block.as_bytes()).count();
        self.next_line = self.next_line.saturating_add(u64::try_from(ends).unwrap_or(u64::MAX));
        Ok(true)
    }

    /// Fills a buffer with whole lines; returns their bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = self.carry.len();
        buffer[..filled].copy_from_slice(&self.carry);
        self.carry.clear();
        // Where the last line begins, of which the end is still to be read.
        let mut line_start = 0;
        while filled < buffer.len() && !self.is_at_end && self.error.is_none() {
            let read = match self.source.read(&mut buffer[filled..]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.error = Some(error);
                    self.is_discarding = false;
                    return line_start;
                }
            };
            self.is_at_end = read == 0;
            let mut end = filled + read;
            if self.is_at_start && end >= BYTE_ORDER_MARK.len() {
                self.is_at_start = false;
                if buffer[..end].starts_with(BYTE_ORDER_MARK) {
                    buffer.copy_within(BYTE_ORDER_MARK.len()..end, 0);
                    end -= BYTE_ORDER_MARK.len();
                    filled = filled.saturating_sub(BYTE_ORDER_MARK.len());
                }
            }
            if self.is_discarding {
                let newline = memchr(b'\n', &buffer[filled..end]);
                self.is_discarding = newline.is_none();
                let resumed = newline.map_or(end, |newline| filled + newline);
                buffer.copy_within(resumed..end, filled);
                end -= resumed - filled;
            }
            if let Some(newline) = memrchr(b'\n', &buffer[filled..end]) {
                line_start = filled + newline + 1;
            }
            filled = end;
            if filled - line_start > self.line_stored_max {
                filled = line_start + self.line_stored_max;
                self.is_discarding = true;
            }
        }
        if self.is_at_end {
            return filled;
        }
        self.carry.extend_from_slice(&buffer[line_start..filled]);
        line_start
    }
}

#[cfg(test)]
mod tests;
