//! Protobuf wire format, field by field.
//!
//! As strict as generated code: a field of another wire type than the schema's, a length beyond the
//! end, a varint of more than 64 bits, invalid UTF-8 and an unterminated group are errors. Unknown
//! fields are skipped.

use std::fmt;

/// Reads the fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireReader<'a> {
    rest: &'a [u8],
}

/// Wire type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireType {
    Varint,
    Fixed64,
    Bytes,
    GroupStart,
    GroupEnd,
    Fixed32,
}

/// Why a message is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The message ends too early.
    CutShort,
    /// A varint has more than 64 bits.
    BadNumber,
    /// Invalid field number or wire type.
    BadField,
    /// A field has another wire type than the schema's.
    WrongKind,
    /// A string is not valid UTF-8.
    NotText,
    /// Groups are nested too deeply.
    TooDeep,
    /// More descriptors or entries than the limits allow.
    TooMany,
}

/// Nesting limit of unknown groups.
const GROUPS_MAX: usize = 64;

impl<'a> WireReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are not read yet.
    pub(super) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Number and wire type of the next field; `None` at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u32, WireType)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let key = u32::try_from(key).map_err(|_| WireError::BadField)?;
        let wire_type = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            3 => WireType::GroupStart,
            4 => WireType::GroupEnd,
            5 => WireType::Fixed32,
            _ => return Err(WireError::BadField),
        };
        match key >> 3 {
            0 => Err(WireError::BadField),
            number => Ok(Some((number, wire_type))),
        }
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        // Nearly every varint is one byte.
        if let [first @ 0..=0x7F, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for index in 0..10 {
            let Some((byte, rest)) = self.rest.split_first() else {
                return Err(WireError::CutShort);
            };
            self.rest = rest;
            // Of the tenth byte only one bit fits.
            if index == 9 && *byte > 1 {
                return Err(WireError::BadNumber);
            }
            number |= u64::from(byte & 0x7F) << (7 * index);
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

    /// Skips an unknown field.
    pub(super) fn skip(&mut self, number: u32, wire_type: WireType) -> Result<(), WireError> {
        match wire_type {
            WireType::Varint => self.varint().map(|_| ()),
            WireType::Fixed64 => self.take(8),
            WireType::Fixed32 => self.take(4),
            WireType::Bytes => self.bytes().map(|_| ()),
            WireType::GroupStart => self.skip_group(number),
            WireType::GroupEnd => Err(WireError::BadField),
        }
    }

    /// A double.
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
                (number, WireType::GroupEnd) if number == *innermost => {
                    open.pop();
                }
                (_, WireType::GroupEnd) => return Err(WireError::BadField),
                (number, WireType::GroupStart) => {
                    if open.len() >= GROUPS_MAX {
                        return Err(WireError::TooDeep);
                    }
                    open.push(number);
                }
                (number, wire_type) => self.skip(number, wire_type)?,
            }
        }
        Ok(())
    }
}

impl WireType {
    /// Requires the schema's wire type.
    #[inline]
    pub(super) fn expect(self, wanted: Self) -> Result<(), WireError> {
        if self == wanted { Ok(()) } else { Err(WireError::WrongKind) }
    }
}

// === writing ===

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends an integer field, unless it is 0, the default.
#[inline]
pub(crate) fn put_number(field: u32, number: u64, out: &mut Vec<u8>) {
    if number > 0 {
        put_varint(u64::from(field << 3), out);
        put_varint(number, out);
    }
}

/// Appends an integer field, also if it is 0: the presence of a `oneof` field selects it.
pub(super) fn put_number_always(field: u32, number: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3), out);
    put_varint(number, out);
}

/// Appends a double field.
pub(super) fn put_double(field: u32, number: f64, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | 1), out);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a bytes or string field.
#[inline]
pub(crate) fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | 2), out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a message field whose content `write` appends.
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

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutShort => "the message ends too early",
            Self::BadNumber => "a varint has more than 64 bits",
            Self::BadField => "a field has an invalid number or wire type",
            Self::WrongKind => "a field has the wrong wire type",
            Self::NotText => "a string is not valid UTF-8",
            Self::TooDeep => "unknown groups are nested too deeply",
            Self::TooMany => "too many descriptors or entries",
        })
    }
}

impl std::error::Error for WireError {}
