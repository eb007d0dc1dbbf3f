//! Parser of commands: arrays of bulk strings, or inline commands.
//!
//! ```text
//!   *2\r\n $4\r\nPING\r\n $2\r\nhi\r\n      sent by client libraries
//!   PING hi\r\n                             typed by people
//! ```
//!
//! Announced lengths are checked against limits, and allocate nothing. The state of an incomplete
//! command is kept, so that one that arrives byte by byte is parsed once.
//!
//! An inline command is split into words; quotes group characters with blanks. Between double
//! quotes `\n`, `\r`, `\t`, `\b`, `\a` and `\xff` are escapes, and `\` quotes any other character;
//! between single quotes only `\'` is an escape.

use std::fmt;

use smallvec::SmallVec;

/// Size limits of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLimits {
    /// Name and arguments.
    pub args: usize,
    /// Bytes of one argument.
    pub bulk_bytes: usize,
    /// Bytes of the command.
    pub command_bytes: usize,
    /// Bytes of an inline command.
    pub inline_bytes: usize,
}

/// Incremental parser of commands.
///
/// ```
/// use sluicegate_server::resp::frame::CommandReader;
///
/// let mut reader = CommandReader::default();
/// let bytes = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n";
/// assert_eq!(reader.read(&bytes[..9]), Ok(None), "incomplete");
/// assert_eq!(reader.read(bytes), Ok(Some(22)));
/// assert_eq!(reader.args(bytes).iter().collect::<Vec<_>>(), [b"ECHO".as_slice(), b"hi"]);
/// assert_eq!(reader.read(&bytes[22..]), Ok(Some(6)));
/// ```
#[derive(Debug, Default)]
pub struct CommandReader {
    limits: CommandLimits,
    state: ParseState,
    /// Bytes of the command that are parsed.
    at: usize,
    ranges: ArgRanges,
    /// Words of an inline command, unquoted.
    words: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ParseState {
    /// At the start of a command.
    #[default]
    Beginning,
    /// So many bulk strings are missing.
    Bulks(usize),
    /// The end of the line is missing.
    Line,
    /// Complete, in the input.
    Bulk,
    /// Complete, in `words`.
    Words,
}

/// Start and end of each argument.
pub(super) type ArgRanges = SmallVec<[(u32, u32); 8]>;

/// Name and arguments of a command.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [(u32, u32)],
}

/// A copy of a command.
#[derive(Debug)]
pub(super) struct OwnedArgs {
    bytes: Vec<u8>,
    ranges: ArgRanges,
}

/// A protocol error, after which the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// Invalid or too large number of arguments.
    Count,
    /// Invalid or too large length of an argument.
    Length,
    /// Not a bulk string.
    ExpectedBulk(u8),
    /// A bulk string without CRLF at its end.
    ExpectedCrlf,
    /// The command is too large.
    Size,
    /// An inline command is too long.
    Line,
    /// Unbalanced quotes.
    Quotes,
}

/// Digits of a number, and its sign.
const NUMBER_BYTES: usize = 20;

impl CommandReader {
    /// A parser with limits.
    #[must_use]
    pub fn new(limits: CommandLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Changes the limits from the next command on.
    pub const fn set_limits(&mut self, limits: CommandLimits) {
        self.limits = limits;
    }

    /// Parses the command at the start of `bytes` and returns its length; `None` if it is
    /// incomplete. The next call takes the same bytes and more, or those after the command. A
    /// command without a name is an empty line, to be ignored.
    ///
    /// # Errors
    /// Protocol errors, after which parsing cannot continue.
    #[inline]
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        if matches!(self.state, ParseState::Bulk | ParseState::Words) {
            self.state = ParseState::Beginning;
        }
        if self.state == ParseState::Beginning {
            self.at = 0;
            self.ranges.clear();
            self.state = match bytes.first() {
                None => return Ok(None),
                Some(b'*') => match number(bytes, 1).map_err(|()| FrameError::Count)? {
                    None => return Ok(None),
                    Some((count, next)) => {
                        // As in Redis, a count of 0 or below is an empty command.
                        let count = usize::try_from(count).unwrap_or(0);
                        if count > self.limits.args {
                            return Err(FrameError::Count);
                        }
                        self.at = next;
                        ParseState::Bulks(count)
                    }
                },
                Some(_) => ParseState::Line,
            };
        }
        match self.state {
            ParseState::Bulks(left) => self.bulks(left, bytes),
            _ => self.line(bytes),
        }
    }

    /// Arguments of the last command, given the bytes that it was parsed from.
    #[inline]
    #[must_use]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        let bytes = if self.state == ParseState::Words { &self.words } else { bytes };
        Args { bytes, ranges: &self.ranges }
    }

    /// Whether the arguments borrow from the parsed bytes.
    #[inline]
    #[must_use]
    pub fn borrows(&self) -> bool {
        self.state == ParseState::Bulk
    }

    /// An argument that borrows from the parsed bytes, and so outlives the next command.
    #[inline]
    #[must_use]
    pub fn borrowed<'a>(&self, index: usize, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (from, to) = *self.ranges.get(index).filter(|_| self.borrows())?;
        bytes.get(from as usize..to as usize)
    }

    #[inline]
    fn bulks(&mut self, left: usize, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        for done in 0..left {
            let Some(from) = self.bulk(bytes)? else {
                self.state = ParseState::Bulks(left - done);
                return Ok(None);
            };
            let to = self.at - 2;
            // Both are below the limit of a command.
            self.ranges.push((from as u32, to as u32));
        }
        self.state = ParseState::Bulk;
        Ok(Some(self.at))
    }

    /// Parses a bulk string and returns its start; it ends two bytes before `self.at`.
    #[inline]
    fn bulk(&mut self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        match bytes.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(FrameError::ExpectedBulk(*other)),
        }
        let number = number(bytes, self.at + 1).map_err(|()| FrameError::Length)?;
        let Some((length, from)) = number else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| FrameError::Length)?;
        if length > self.limits.bulk_bytes {
            return Err(FrameError::Length);
        }
        let end = from + length + 2;
        if end > self.limits.command_bytes {
            return Err(FrameError::Size);
        }
        match bytes.get(end - 2..end) {
            Some(b"\r\n") => {
                self.at = end;
                Ok(Some(from))
            }
            Some(_) => Err(FrameError::ExpectedCrlf),
            None => Ok(None),
        }
    }

    fn line(&mut self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let new = bytes.get(self.at..).unwrap_or_default();
        let end = new.iter().position(|byte| *byte == b'\n').map(|end| self.at + end);
        if end.unwrap_or(bytes.len()) > self.limits.inline_bytes {
            return Err(FrameError::Line);
        }
        let Some(end) = end else {
            self.at = bytes.len();
            self.state = ParseState::Line;
            return Ok(None);
        };
        let line = bytes.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        split_words(line, self.limits.args, &mut self.words, &mut self.ranges)?;
        self.state = ParseState::Words;
        Ok(Some(end + 1))
    }
}

/// Parses an integer and its CRLF; returns it and the index behind.
#[inline]
fn number(bytes: &[u8], from: usize) -> Result<Option<(i64, usize)>, ()> {
    let bytes = bytes.get(from..).unwrap_or_default();
    let is_negative = bytes.first() == Some(&b'-');
    let sign = usize::from(is_negative);
    let mut number = 0i64;
    for (index, byte) in bytes.iter().enumerate().skip(sign).take(NUMBER_BYTES) {
        match byte {
            b'0'..=b'9' => {
                let more =
                    number.checked_mul(10).and_then(|ten| ten.checked_add((byte & 15).into()));
                number = more.ok_or(())?;
            }
            b'\r' if index > sign => {
                return match bytes.get(index + 1) {
                    None => Ok(None),
                    Some(b'\n') => {
                        let number = if is_negative { -number } else { number };
                        Ok(Some((number, from + index + 2)))
                    }
                    Some(_) => Err(()),
                };
            }
            _ => return Err(()),
        }
    }
    if bytes.len() < NUMBER_BYTES + sign { Ok(None) } else { Err(()) }
}

// === inline commands ===

/// Splits a line into words.
fn split_words(
    line: &[u8],
    max: usize,
    words: &mut Vec<u8>,
    ranges: &mut ArgRanges,
) -> Result<(), FrameError> {
    words.clear();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(());
        }
        if ranges.len() == max {
            return Err(FrameError::Count);
        }
        let from = words.len();
        rest = word(rest, words)?;
        // The limit of a line is far below 4 GiB.
        ranges.push((from as u32, words.len() as u32));
    }
}

/// Reads a word; returns the rest.
fn word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], FrameError> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [blank, ..] if blank.is_ascii_whitespace() => return Ok(rest),
            [quote @ (b'"' | b'\''), rest @ ..] => {
                let rest = quoted(*quote, rest, word)?;
                // Only a blank may follow the closing quote.
                return match rest.first() {
                    Some(byte) if !byte.is_ascii_whitespace() => Err(FrameError::Quotes),
                    _ => Ok(rest),
                };
            }
            [byte, rest @ ..] => {
                word.push(*byte);
                rest
            }
        };
    }
}

/// Reads to the closing quote; returns the rest.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], FrameError> {
    loop {
        let (byte, rest_after) = match rest {
            [] => return Err(FrameError::Quotes),
            [byte, rest @ ..] if *byte == quote => return Ok(rest),
            [b'\\', b'\'', rest @ ..] if quote == b'\'' => (b'\'', rest),
            [b'\\', escaped @ ..] if quote == b'"' => escape(escaped)?,
            [byte, rest @ ..] => (*byte, rest),
        };
        word.push(byte);
        rest = rest_after;
    }
}

fn escape(rest: &[u8]) -> Result<(u8, &[u8]), FrameError> {
    let hex = |digit: &u8| char::from(*digit).to_digit(16);
    match rest {
        [b'x', high, low, rest @ ..] if hex(high).is_some() && hex(low).is_some() => {
            let byte = hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0);
            Ok((byte as u8, rest))
        }
        [b'n', rest @ ..] => Ok((b'\n', rest)),
        [b'r', rest @ ..] => Ok((b'\r', rest)),
        [b't', rest @ ..] => Ok((b'\t', rest)),
        [b'b', rest @ ..] => Ok((0x08, rest)),
        [b'a', rest @ ..] => Ok((0x07, rest)),
        [other, rest @ ..] => Ok((*other, rest)),
        [] => Err(FrameError::Quotes),
    }
}

impl<'a> Args<'a> {
    /// Number of arguments, including the name.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no name.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// An argument; the name is the first.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let (from, to) = *self.ranges.get(index)?;
        self.bytes.get(from as usize..to as usize)
    }

    /// All arguments.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.ranges.iter().filter_map(move |(from, to)| bytes.get(*from as usize..*to as usize))
    }

    /// The arguments from an index on.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        Self { bytes: self.bytes, ranges: self.ranges.get(count..).unwrap_or_default() }
    }
}

impl OwnedArgs {
    pub(super) fn of(args: Args<'_>) -> Self {
        let mut owned = Self { bytes: Vec::new(), ranges: ArgRanges::new() };
        for arg in args.iter() {
            let from = owned.bytes.len() as u32;
            owned.bytes.extend_from_slice(arg);
            owned.ranges.push((from, owned.bytes.len() as u32));
        }
        owned
    }

    pub(super) fn args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, ranges: &self.ranges }
    }
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self { args: 1_024, bulk_bytes: 64 << 10, command_bytes: 1 << 20, inline_bytes: 64 << 10 }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::Count => f.write_str("invalid multibulk length"),
            Self::Length => f.write_str("invalid bulk length"),
            Self::ExpectedBulk(got) => write!(f, "expected '$', got '{}'", got.escape_ascii()),
            Self::ExpectedCrlf => f.write_str("expected CRLF behind a bulk string"),
            Self::Size => f.write_str("too big a command"),
            Self::Line => f.write_str("too big inline request"),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl std::error::Error for FrameError {}
