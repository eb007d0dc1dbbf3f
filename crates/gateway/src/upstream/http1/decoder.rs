//! Bodies of responses.

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use super::head::{HEAD_BYTES_MAX, HEADERS_MAX, header_map};

/// Bytes of a chunk's first line, with its extensions.
const CHUNK_LINE_BYTES_MAX: usize = 4 << 10;

/// Decodes a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoder {
    /// All of it was read.
    Done,
    /// Bytes that are left, at least one.
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    Size,
    /// Bytes that are left, at least one.
    Data(u64),
    /// The end of the line behind the data.
    DataEnd,
    Trailers,
}

/// A step of a decoder.
#[derive(Debug)]
pub(super) enum Decoded {
    Frame(Frame<Bytes>),
    /// More bytes are needed.
    Incomplete,
    End,
}

impl Decoder {
    pub(super) const fn length(length: u64) -> Self {
        match length {
            0 => Self::Done,
            length => Self::Length(length),
        }
    }

    pub(super) const fn chunked() -> Self {
        Self::Chunked(Chunk::Size)
    }

    pub(super) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Done => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunked(_) | Self::UntilClose => SizeHint::new(),
        }
    }

    /// Takes the next frame from the buffer.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, &'static str> {
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
                Self::Chunked(chunk) => match chunk.decode(buffer)? {
                    ChunkDecoded::Data(data) => Decoded::Frame(Frame::data(data)),
                    ChunkDecoded::Next(next) => {
                        *chunk = next;
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
    pub(super) fn end(&mut self) -> Result<(), &'static str> {
        match self {
            Self::Done => Ok(()),
            Self::UntilClose => {
                *self = Self::Done;
                Ok(())
            }
            Self::Length(_) | Self::Chunked(_) => Err("the response is incomplete"),
        }
    }
}

enum ChunkDecoded {
    Data(Bytes),
    Next(Chunk),
    Incomplete,
    /// With trailers, if there are any.
    End(Option<Frame<Bytes>>),
}

impl Chunk {
    fn decode(&mut self, buffer: &mut BytesMut) -> Result<ChunkDecoded, &'static str> {
        Ok(match self {
            Self::Size => match httparse::parse_chunk_size(buffer) {
                Ok(httparse::Status::Complete((length, size))) => {
                    buffer.advance(length);
                    let next = if size == 0 { Self::Trailers } else { Self::Data(size) };
                    ChunkDecoded::Next(next)
                }
                Ok(httparse::Status::Partial) if buffer.len() < CHUNK_LINE_BYTES_MAX => {
                    ChunkDecoded::Incomplete
                }
                _ => return Err("a chunk of the response is malformed"),
            },
            Self::Data(0) => ChunkDecoded::Next(Self::DataEnd),
            Self::Data(left) => match take(buffer, left) {
                Some(data) => ChunkDecoded::Data(data),
                None => ChunkDecoded::Incomplete,
            },
            Self::DataEnd => match buffer.get(..2) {
                Some(b"\r\n") => {
                    buffer.advance(2);
                    ChunkDecoded::Next(Self::Size)
                }
                Some(_) => return Err("a chunk of the response is malformed"),
                None => ChunkDecoded::Incomplete,
            },
            Self::Trailers => {
                let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
                match httparse::parse_headers(buffer, &mut lines) {
                    Ok(httparse::Status::Complete((length, lines))) => {
                        let trailers = header_map(buffer, length, lines);
                        let trailers = trailers.ok_or("a trailer of the response is malformed")?;
                        buffer.advance(length);
                        let frame = (!trailers.is_empty()).then(|| Frame::trailers(trailers));
                        ChunkDecoded::End(frame)
                    }
                    Ok(httparse::Status::Partial) if buffer.len() < HEAD_BYTES_MAX => {
                        ChunkDecoded::Incomplete
                    }
                    _ => return Err("the trailers of the response are malformed or too large"),
                }
            }
        })
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
    use http::HeaderMap;
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
        let trailers = format!("0\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
        for text in ["x\r\n", "1\r\nabc\r\n", "fffffffffffffffff\r\n", &endless, &trailers] {
            assert!(decoded(Decoder::chunked(), text.as_bytes(), &[7]).is_err(), "{text:.20}");
        }
    }
}
