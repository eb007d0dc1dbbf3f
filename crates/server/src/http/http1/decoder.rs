//! Decodes the bodies of requests and responses.

use bytes::{Buf as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::{HEADERS_MAX, header_map};

/// Bytes of a chunk's first line, with its extensions.
const CHUNK_LINE_BYTES_MAX: usize = 4 << 10;
/// Bytes of the extensions of all chunks of a body.
const EXTENSION_BYTES_MAX: usize = 16 << 10;
/// Bytes of the trailers.
const TRAILER_BYTES_MAX: usize = 16 << 10;

/// Decodes a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoder {
    /// All of it was read.
    Done,
    /// Bytes that are left, at least one.
    Length(u64),
    /// In chunks.
    Chunked(ChunkDecoder),
    /// The connection ends with it.
    UntilClose,
}

/// Decodes chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkDecoder {
    next: NextChunk,
    /// Of all chunks so far.
    extension_bytes: usize,
}

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextChunk {
    Size,
    /// Bytes that are left.
    Data(u64),
    /// The end of the line behind the data.
    DataEnd,
    Trailers,
}

/// A step of a decoder.
#[derive(Debug)]
pub enum Decoded {
    /// The next frame of the body.
    Frame(Frame<Bytes>),
    /// More bytes are needed.
    Incomplete,
    /// The body has ended.
    End,
}

impl Decoder {
    /// A body of this length.
    #[must_use]
    pub const fn length(length: u64) -> Self {
        match length {
            0 => Self::Done,
            length => Self::Length(length),
        }
    }

    /// A body in chunks.
    #[must_use]
    pub const fn chunked() -> Self {
        Self::Chunked(ChunkDecoder { next: NextChunk::Size, extension_bytes: 0 })
    }

    /// Whether all of the body was read.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// What is known of the rest.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Done => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunked(_) | Self::UntilClose => SizeHint::new(),
        }
    }

    /// Takes the next frame from the buffer.
    ///
    /// # Errors
    /// When the body is malformed.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, &'static str> {
        loop {
            let decoded = match self {
                Self::Done => Decoded::End,
                Self::UntilClose if buffer.is_empty() => Decoded::Incomplete,
                Self::UntilClose => Decoded::Frame(Frame::data(buffer.split().freeze())),
                Self::Length(left) => match take(buffer, left) {
                    None => Decoded::Incomplete,
                    Some(data) => {
                        *self = Self::length(*left);
                        Decoded::Frame(Frame::data(data))
                    }
                },
                Self::Chunked(chunks) => match chunks.decode(buffer)? {
                    ChunkDecoded::Data(data) => Decoded::Frame(Frame::data(data)),
                    ChunkDecoded::Next(next) => {
                        chunks.next = next;
                        continue;
                    }
                    ChunkDecoded::Incomplete => Decoded::Incomplete,
                    ChunkDecoded::End(frame) => {
                        *self = Self::Done;
                        frame.map_or(Decoded::End, Decoded::Frame)
                    }
                },
            };
            return Ok(decoded);
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// When the body has not.
    pub fn end(&mut self) -> Result<(), &'static str> {
        match self {
            Self::Done => Ok(()),
            Self::UntilClose => {
                *self = Self::Done;
                Ok(())
            }
            Self::Length(_) | Self::Chunked(_) => Err("the body is incomplete"),
        }
    }
}

enum ChunkDecoded {
    Data(Bytes),
    Next(NextChunk),
    Incomplete,
    /// With trailers, if there are any.
    End(Option<Frame<Bytes>>),
}

impl ChunkDecoder {
    fn decode(&mut self, buffer: &mut BytesMut) -> Result<ChunkDecoded, &'static str> {
        Ok(match &mut self.next {
            NextChunk::Size => match parse_size(buffer)? {
                Some((length, size)) => {
                    let digits = buffer.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
                    self.extension_bytes += length - digits - 2;
                    if self.extension_bytes > EXTENSION_BYTES_MAX {
                        return Err("the extensions of the chunks are too large");
                    }
                    buffer.advance(length);
                    let is_last = size == 0;
                    let next = if is_last { NextChunk::Trailers } else { NextChunk::Data(size) };
                    ChunkDecoded::Next(next)
                }
                None => ChunkDecoded::Incomplete,
            },
            NextChunk::Data(0) => ChunkDecoded::Next(NextChunk::DataEnd),
            NextChunk::Data(left) => match take(buffer, left) {
                Some(data) => ChunkDecoded::Data(data),
                None => ChunkDecoded::Incomplete,
            },
            NextChunk::DataEnd => match buffer.get(..2) {
                Some(b"\r\n") => {
                    buffer.advance(2);
                    ChunkDecoded::Next(NextChunk::Size)
                }
                Some(_) => return Err("a chunk is malformed"),
                None => ChunkDecoded::Incomplete,
            },
            NextChunk::Trailers => match parse_trailers(buffer)? {
                Some((length, trailers)) => {
                    buffer.advance(length);
                    ChunkDecoded::End((!trailers.is_empty()).then(|| Frame::trailers(trailers)))
                }
                None => ChunkDecoded::Incomplete,
            },
        })
    }
}

/// The length of a chunk's first line, and its size. httparse takes no digits for zero, and a line
/// feed for a part of an extension.
fn parse_size(buffer: &[u8]) -> Result<Option<(usize, u64)>, &'static str> {
    let is_malformed = buffer.first().is_some_and(|byte| !byte.is_ascii_hexdigit());
    match httparse::parse_chunk_size(buffer) {
        _ if is_malformed => Err("a chunk is malformed"),
        Ok(httparse::Status::Complete((length, size))) => {
            let line = buffer.get(..length.saturating_sub(2)).unwrap_or_default();
            match line.contains(&b'\n') {
                true => Err("a chunk is malformed"),
                false => Ok(Some((length, size))),
            }
        }
        Ok(httparse::Status::Partial) if buffer.len() < CHUNK_LINE_BYTES_MAX => Ok(None),
        _ => Err("a chunk is malformed"),
    }
}

/// The length of the trailers, with the empty line behind them.
fn parse_trailers(buffer: &[u8]) -> Result<Option<(usize, HeaderMap)>, &'static str> {
    if buffer.starts_with(b"\r\n") {
        return Ok(Some((2, HeaderMap::new())));
    }
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::parse_headers(buffer, &mut lines) {
        Ok(httparse::Status::Complete((length, lines))) if length <= TRAILER_BYTES_MAX => {
            let block = buffer.get(..length).unwrap_or_default();
            // Lines of a head may end with a line feed alone, those of a body may not.
            let mut ends = block.split_inclusive(|byte| *byte == b'\n');
            let trailers = header_map(buffer, length, lines);
            let trailers = trailers.filter(|_| ends.all(|line| line.ends_with(b"\r\n")));
            Ok(Some((length, trailers.ok_or("a trailer is malformed")?)))
        }
        Ok(httparse::Status::Partial) if buffer.len() < TRAILER_BYTES_MAX => Ok(None),
        _ => Err("the trailers are malformed or too large"),
    }
}

/// Takes what is there of `left` bytes.
fn take(buffer: &mut BytesMut, left: &mut u64) -> Option<Bytes> {
    if buffer.is_empty() {
        return None;
    }
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    *left -= count as u64;
    Some(buffer.split_to(count).freeze())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes text that arrives in pieces of these lengths; the rest is of the next response.
    fn decoded(
        mut decoder: Decoder,
        text: &[u8],
        pieces: &[usize],
    ) -> Result<(Vec<u8>, HeaderMap, Vec<u8>), &'static str> {
        let (mut body, mut trailers, mut buffer) = (Vec::new(), HeaderMap::new(), BytesMut::new());
        let (mut text, mut pieces) = (text, pieces.iter().cycle());
        loop {
            match decoder.decode(&mut buffer)? {
                Decoded::Frame(frame) => match frame.into_data() {
                    Ok(data) => body.extend_from_slice(&data),
                    Err(frame) => trailers = frame.into_trailers().unwrap(),
                },
                Decoded::End => {
                    buffer.extend_from_slice(text);
                    return Ok((body, trailers, buffer.to_vec()));
                }
                Decoded::Incomplete if text.is_empty() => {
                    decoder.end()?;
                }
                Decoded::Incomplete => {
                    let count = pieces.next().copied().unwrap_or(1).clamp(1, text.len());
                    let (piece, rest) = text.split_at(count);
                    buffer.extend_from_slice(piece);
                    text = rest;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_body_is_the_same_in_any_pieces(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            pieces in proptest::collection::vec(1_usize..30, 1..8),
            has_trailer: bool,
        ) {
            let whole = chunks.concat();
            let rest = b"HTTP/1.1 200 OK".to_vec();
            let mut text = whole.clone();
            text.extend_from_slice(&rest);
            let length = Decoder::length(whole.len() as u64);
            let (body, _, left) = decoded(length, &text, &pieces).unwrap();
            prop_assert_eq!((&body, &left), (&whole, &rest));

            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend_from_slice(format!("{:X};ext=1\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n");
            if has_trailer {
                text.extend_from_slice(b"X-Sum: 42\r\n");
            }
            text.extend_from_slice(b"\r\n");
            let cut = text[..text.len() - 1].to_vec();
            text.extend_from_slice(&rest);
            let (body, trailers, left) = decoded(Decoder::chunked(), &text, &pieces).unwrap();
            prop_assert_eq!((&body, &left), (&whole, &rest));
            prop_assert_eq!(trailers.contains_key("x-sum"), has_trailer);
            prop_assert!(decoded(Decoder::chunked(), &cut, &pieces).is_err());

            let (body, ..) = decoded(Decoder::UntilClose, &whole, &pieces).unwrap();
            prop_assert_eq!(body, whole);
        }
    }

    #[test]
    fn malformed_chunks_are_errors() {
        let endless = format!("1;{}", "x".repeat(CHUNK_LINE_BYTES_MAX));
        let trailers = format!("0\r\nA: {}", "x".repeat(TRAILER_BYTES_MAX));
        let extended = format!("1;{}\r\na\r\n", "x".repeat(1_000)).repeat(17) + "0\r\n\r\n";
        for text in [
            "x\r\n",
            "\r\n\r\n",
            " 1\r\na\r\n0\r\n\r\n",
            "1\r\nabc\r\n",
            "1;a\nb\r\na\r\n0\r\n\r\n",
            "1\na\r\n0\r\n\r\n",
            "0\r\nA: b\nC: d\r\n\r\n",
            "0\r\nA: b\r\n\n",
            "0\r\n\n",
            "fffffffffffffffff\r\n",
            &endless,
            &trailers,
            &extended,
        ] {
            for pieces in [1, 7, 100_000] {
                let decoded = decoded(Decoder::chunked(), text.as_bytes(), &[pieces]);
                assert!(decoded.is_err(), "{text:.40}");
            }
        }
    }
}
