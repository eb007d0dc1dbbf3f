//! Commands as they come: arrays of bulk strings, or lines of words.
//!
//! ```text
//!   *2\r\n $4\r\nPING\r\n $2\r\nhi\r\n      what client libraries send
//!   PING hi\r\n                             what people type
//! ```
//!
//! Nothing is believed of what is only announced: a length is held to a bound, and the bytes are waited for where they belong. What has been read of a command is
//! remembered, so that one that comes byte by byte is read once.

use std::fmt;

use smallvec::SmallVec;

use super::words;

/// What a command may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Its name and its arguments.
    pub args: usize,
    /// Bytes of one of them.
    pub bulk_bytes: usize,
    /// Bytes of all of it.
    pub command_bytes: usize,
    /// Bytes of a line of words.
    pub inline_bytes: usize,
}

/// Reads commands.
///
/// ```
/// use sluicegate_server::resp::frame::Reader;
///
/// let mut reader = Reader::default();
/// let bytes = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING\r\n";
/// assert_eq!(reader.read(&bytes[..9]), Ok(None), "more is to come");
/// assert_eq!(reader.read(bytes), Ok(Some(22)));
/// assert_eq!(reader.args(bytes).iter().collect::<Vec<_>>(), [b"ECHO".as_slice(), b"hi"]);
/// assert_eq!(reader.read(&bytes[22..]), Ok(Some(6)));
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    most: Most,
    state: State,
    /// Up to here the command has been read.
    at: usize,
    places: Places,
    /// The words of a line, without their quotes.
    words: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Nothing is known of it.
    #[default]
    Beginning,
    /// So many bulk strings are to come.
    Bulks(usize),
    /// The end of the line is to come.
    Line,
    /// It is there.
    Bulk,
    /// It is there, in `words`.
    Words,
}

/// From where to where each argument is.
pub(super) type Places = SmallVec<[(u32, u32); 8]>;

/// The name of a command, and its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [(u32, u32)],
}

/// A command that outlives the bytes that it was read from.
#[derive(Debug)]
pub(super) struct Owned {
    bytes: Vec<u8>,
    places: Places,
}

/// What came is no command, and nobody knows where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The number of arguments is none, or too large.
    Count,
    /// The length of an argument is none, or too large.
    Length,
    /// This is not the beginning of a bulk string.
    NoBulk(u8),
    /// An argument is longer than it said, or shorter.
    NoEnd,
    /// All of it is too large.
    Size,
    /// A line is too long.
    Line,
    /// A quotation mark is missing, or is in the middle of a word.
    Quotes,
}

/// Digits of a number, and its sign.
const NUMBER_BYTES: usize = 20;

// === impl Reader ===

impl Reader {
    /// One that takes no more than this.
    #[must_use]
    pub fn new(most: Most) -> Self {
        Self { most, ..Self::default() }
    }

    /// From the next command on it takes no more than this.
    pub const fn set_most(&mut self, most: Most) {
        self.most = most;
    }

    /// Reads a command at the beginning of `bytes`: how long it is, or nothing if more is to come. Then it is asked again with the same bytes and more behind
    /// them; after a command, with what is behind it. One without a name is an empty line, and means nothing.
    ///
    /// # Errors
    /// When it is none. Then there is no use in going on.
    #[inline]
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        if matches!(self.state, State::Bulk | State::Words) {
            self.state = State::Beginning;
        }
        if self.state == State::Beginning {
            self.at = 0;
            self.places.clear();
            self.state = match bytes.first() {
                None => return Ok(None),
                Some(b'*') => match number(bytes, 1).map_err(|()| Broken::Count)? {
                    None => return Ok(None),
                    Some((count, next)) => {
                        // As for Redis, none and less than none are nothing.
                        let count = usize::try_from(count).unwrap_or(0);
                        if count > self.most.args {
                            return Err(Broken::Count);
                        }
                        self.at = next;
                        State::Bulks(count)
                    }
                },
                Some(_) => State::Line,
            };
        }
        match self.state {
            State::Bulks(left) => self.bulks(left, bytes),
            _ => self.line(bytes),
        }
    }

    /// The arguments of the command that was read, with the bytes that it was read from.
    #[inline]
    #[must_use]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        let bytes = if self.state == State::Words { &self.words } else { bytes };
        Args { bytes, places: &self.places }
    }

    /// Whether the arguments lie in the bytes that were read, and not here.
    #[inline]
    #[must_use]
    pub fn borrows(&self) -> bool {
        self.state == State::Bulk
    }

    /// One of the arguments, if it lies in the bytes that were read: it outlives what is read next.
    #[inline]
    #[must_use]
    pub fn borrowed<'a>(&self, place: usize, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (from, to) = *self.places.get(place).filter(|_| self.borrows())?;
        bytes.get(from as usize..to as usize)
    }

    #[inline]
    fn bulks(&mut self, left: usize, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        for done in 0..left {
            let Some(from) = self.bulk(bytes)? else {
                self.state = State::Bulks(left - done);
                return Ok(None);
            };
            let to = self.at - 2;
            // Both are below the bound of a command.
            self.places.push((from as u32, to as u32));
        }
        self.state = State::Bulk;
        Ok(Some(self.at))
    }

    /// A bulk string: where it begins. It ends two bytes before where the command goes on.
    #[inline]
    fn bulk(&mut self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        match bytes.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(Broken::NoBulk(*other)),
        }
        let number = number(bytes, self.at + 1).map_err(|()| Broken::Length)?;
        let Some((length, from)) = number else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| Broken::Length)?;
        if length > self.most.bulk_bytes {
            return Err(Broken::Length);
        }
        let end = from + length + 2;
        if end > self.most.command_bytes {
            return Err(Broken::Size);
        }
        match bytes.get(end - 2..end) {
            Some(b"\r\n") => {
                self.at = end;
                Ok(Some(from))
            }
            Some(_) => Err(Broken::NoEnd),
            None => Ok(None),
        }
    }

    fn line(&mut self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        let new = bytes.get(self.at..).unwrap_or_default();
        let end = new.iter().position(|byte| *byte == b'\n').map(|end| self.at + end);
        if end.unwrap_or(bytes.len()) > self.most.inline_bytes {
            return Err(Broken::Line);
        }
        let Some(end) = end else {
            self.at = bytes.len();
            self.state = State::Line;
            return Ok(None);
        };
        let line = bytes.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        words::split(line, self.most.args, &mut self.words, &mut self.places)?;
        self.state = State::Words;
        Ok(Some(end + 1))
    }
}

/// A number and the end of its line: what it is, and where it goes on behind it.
#[inline]
fn number(bytes: &[u8], from: usize) -> Result<Option<(i64, usize)>, ()> {
    let bytes = bytes.get(from..).unwrap_or_default();
    let is_negative = bytes.first() == Some(&b'-');
    let sign = usize::from(is_negative);
    let mut number = 0i64;
    for (place, byte) in bytes.iter().enumerate().skip(sign).take(NUMBER_BYTES) {
        match byte {
            b'0'..=b'9' => {
                let more =
                    number.checked_mul(10).and_then(|ten| ten.checked_add((byte & 15).into()));
                number = more.ok_or(())?;
            }
            b'\r' if place > sign => {
                return match bytes.get(place + 1) {
                    None => Ok(None),
                    Some(b'\n') => {
                        let number = if is_negative { -number } else { number };
                        Ok(Some((number, from + place + 2)))
                    }
                    Some(_) => Err(()),
                };
            }
            _ => return Err(()),
        }
    }
    if bytes.len() < NUMBER_BYTES + sign { Ok(None) } else { Err(()) }
}

// === impl Args ===

impl<'a> Args<'a> {
    /// How many there are, the name included.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is not even a name.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// One of them; the name is the first.
    #[inline]
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&'a [u8]> {
        let (from, to) = *self.places.get(place)?;
        self.bytes.get(from as usize..to as usize)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.places.iter().filter_map(move |(from, to)| bytes.get(*from as usize..*to as usize))
    }

    /// Those behind the first few.
    #[must_use]
    pub fn behind(&self, first: usize) -> Self {
        Self { bytes: self.bytes, places: self.places.get(first..).unwrap_or_default() }
    }
}

// === impl Owned ===

impl Owned {
    pub(super) fn of(args: Args<'_>) -> Self {
        let mut owned = Self { bytes: Vec::new(), places: Places::new() };
        for arg in args.iter() {
            let from = owned.bytes.len() as u32;
            owned.bytes.extend_from_slice(arg);
            owned.places.push((from, owned.bytes.len() as u32));
        }
        owned
    }

    pub(super) fn args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, places: &self.places }
    }
}

// === impl Most ===

impl Default for Most {
    fn default() -> Self {
        Self { args: 1_024, bulk_bytes: 64 << 10, command_bytes: 1 << 20, inline_bytes: 64 << 10 }
    }
}

// === impl Broken ===

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::Count => f.write_str("invalid multibulk length"),
            Self::Length => f.write_str("invalid bulk length"),
            Self::NoBulk(got) => write!(f, "expected '$', got '{}'", got.escape_ascii()),
            Self::NoEnd => f.write_str("expected CRLF behind a bulk string"),
            Self::Size => f.write_str("too big a command"),
            Self::Line => f.write_str("too big inline request"),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl std::error::Error for Broken {}
