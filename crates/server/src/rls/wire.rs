//! The bytes of a protobuf message, field by field.
//!
//! Strict where generated code is: a field of another kind than the message has, a length beyond the end, a number of more than 64 bits, text that is not
//! UTF-8 and a group that does not end are all errors. What is not known is skipped.

use std::fmt;

/// Reads a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// What follows a field's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Varint,
    Fixed64,
    Bytes,
    GroupStart,
    GroupEnd,
    Fixed32,
}

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// They end too early.
    CutShort,
    /// A number is too large, or has no end.
    BadNumber,
    /// A field of number 0, or of a kind that there is not.
    BadField,
    /// A field is of another kind than the message has.
    WrongKind,
    /// A text is not UTF-8.
    NotText,
    /// Groups inside each other, more than anybody needs.
    TooDeep,
    /// More of something than is accepted.
    TooMany,
}

/// How deeply groups that nobody knows may be nested.
const GROUPS_MAX: usize = 64;

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// How many bytes are still to be read.
    pub(super) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// The number and the kind of the next field; `None` at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u32, Kind)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let key = u32::try_from(key).map_err(|_| WireError::BadField)?;
        let kind = match key & 7 {
            0 => Kind::Varint,
            1 => Kind::Fixed64,
            2 => Kind::Bytes,
            3 => Kind::GroupStart,
            4 => Kind::GroupEnd,
            5 => Kind::Fixed32,
            _ => return Err(WireError::BadField),
        };
        match key >> 3 {
            0 => Err(WireError::BadField),
            number => Ok(Some((number, kind))),
        }
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        // Nearly every number is one byte.
        if let [first @ 0..=0x7F, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for place in 0..10 {
            let Some((byte, rest)) = self.rest.split_first() else {
                return Err(WireError::CutShort);
            };
            self.rest = rest;
            // Of the tenth byte one bit is left.
            if place == 9 && *byte > 1 {
                return Err(WireError::BadNumber);
            }
            number |= u64::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(WireError::BadNumber)
    }

    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = usize::try_from(self.varint()?).map_err(|_| WireError::CutShort)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(WireError::CutShort)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a str, WireError> {
        str::from_utf8(self.bytes()?).map_err(|_| WireError::NotText)
    }

    /// Skips a field that nobody knows.
    pub(super) fn skip(&mut self, number: u32, kind: Kind) -> Result<(), WireError> {
        match kind {
            Kind::Varint => self.varint().map(|_| ()),
            Kind::Fixed64 => self.take(8),
            Kind::Fixed32 => self.take(4),
            Kind::Bytes => self.bytes().map(|_| ()),
            Kind::GroupStart => self.skip_group(number),
            Kind::GroupEnd => Err(WireError::BadField),
        }
    }

    /// A floating number.
    pub(super) fn double(&mut self) -> Result<f64, WireError> {
        let (number, rest) = self.rest.split_first_chunk().ok_or(WireError::CutShort)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*number))
    }

    fn take(&mut self, count: usize) -> Result<(), WireError> {
        self.rest = self.rest.get(count..).ok_or(WireError::CutShort)?;
        Ok(())
    }

    fn skip_group(&mut self, number: u32) -> Result<(), WireError> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            match self.field()?.ok_or(WireError::CutShort)? {
                (number, Kind::GroupEnd) if number == *innermost => {
                    open.pop();
                }
                (_, Kind::GroupEnd) => return Err(WireError::BadField),
                (number, Kind::GroupStart) => {
                    if open.len() >= GROUPS_MAX {
                        return Err(WireError::TooDeep);
                    }
                    open.push(number);
                }
                (number, kind) => self.skip(number, kind)?,
            }
        }
        Ok(())
    }
}

impl Kind {
    /// This kind, as the message has it.
    #[inline]
    pub(super) fn must_be(self, wanted: Self) -> Result<(), WireError> {
        if self == wanted { Ok(()) } else { Err(WireError::WrongKind) }
    }
}

// === writing ===

/// Appends a number.
#[inline]
pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a field that holds a number, unless it is 0, which goes without saying.
#[inline]
pub(crate) fn put_number(field: u32, number: u64, out: &mut Vec<u8>) {
    if number > 0 {
        put_varint(u64::from(field << 3), out);
        put_varint(number, out);
    }
}

/// Appends a field that holds a number, also if it is 0: where one of several fields is there, that says which.
pub(super) fn put_number_always(field: u32, number: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3), out);
    put_varint(number, out);
}

/// Appends a field that holds a floating number.
pub(super) fn put_double(field: u32, number: f64, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | 1), out);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a field that holds bytes.
#[inline]
pub(crate) fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | 2), out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a field that holds a message, which `write` appends.
#[inline]
pub(crate) fn put_message(field: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(u64::from(field << 3 | 2), out);
    // Most messages are shorter than 128 bytes, and then their length is one byte.
    let length_at = out.len();
    out.push(0);
    write(out);
    let length = out.len() - length_at - 1;
    if length < 0x80 {
        out[length_at] = length as u8;
        return;
    }
    let mut longer = Vec::with_capacity(10);
    put_varint(length as u64, &mut longer);
    out.splice(length_at..=length_at, longer);
}

// === impl WireError ===

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutShort => "the message ends too early",
            Self::BadNumber => "a number has more than 64 bits",
            Self::BadField => "a field has a number or a kind that there is not",
            Self::WrongKind => "a field is of another kind than the message has",
            Self::NotText => "a text is not UTF-8",
            Self::TooDeep => "unknown groups are nested too deeply",
            Self::TooMany => "more descriptors or entries than are accepted",
        })
    }
}

impl std::error::Error for WireError {}
