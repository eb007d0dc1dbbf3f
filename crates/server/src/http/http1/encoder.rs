//! Encodes the bodies of requests and responses.

use std::io::Write as _;

/// How the end of a body is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoder {
    /// No body.
    None,
    /// Bytes that are left.
    Length(u64),
    /// In chunks.
    Chunked,
    /// The connection ends with it.
    UntilClose,
}

/// A body is longer or shorter than announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthMismatch;

impl Encoder {
    /// Writes a piece of the body.
    ///
    /// # Errors
    /// When the body is longer than announced.
    pub fn encode(&mut self, out: &mut Vec<u8>, piece: &[u8]) -> Result<(), LengthMismatch> {
        // An empty chunk would be the end.
        if !piece.is_empty() {
            self.begin_piece(out, piece.len())?;
            out.extend_from_slice(piece);
            out.extend_from_slice(self.piece_end());
        }
        Ok(())
    }

    /// Writes what precedes a piece of this length, at least one.
    ///
    /// # Errors
    /// When the body is longer than announced.
    pub fn begin_piece(&mut self, out: &mut Vec<u8>, length: usize) -> Result<(), LengthMismatch> {
        match self {
            Self::None => return Err(LengthMismatch),
            Self::Length(left) => *left = left.checked_sub(length as u64).ok_or(LengthMismatch)?,
            Self::Chunked => {
                // Writing to memory cannot fail.
                let _ = write!(out, "{length:x}\r\n");
            }
            Self::UntilClose => {}
        }
        Ok(())
    }

    /// What follows a piece.
    #[must_use]
    pub const fn piece_end(&self) -> &'static [u8] {
        match self {
            Self::Chunked => b"\r\n",
            Self::None | Self::Length(_) | Self::UntilClose => b"",
        }
    }

    /// Writes the end of a body without trailers.
    ///
    /// # Errors
    /// When the body is shorter than announced.
    pub fn finish(&self, out: &mut Vec<u8>) -> Result<(), LengthMismatch> {
        match self {
            Self::Length(left) if *left > 0 => return Err(LengthMismatch),
            Self::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
            Self::None | Self::Length(_) | Self::UntilClose => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(mut encoder: Encoder, pieces: &[&str]) -> Result<String, LengthMismatch> {
        let mut out = Vec::new();
        for piece in pieces {
            encoder.encode(&mut out, piece.as_bytes())?;
        }
        encoder.finish(&mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_body_is_as_long_as_announced() {
        let text = |text: &str| Ok(text.to_owned());
        assert_eq!(encoded(Encoder::Length(3), &["ab", "", "c"]), text("abc"));
        assert_eq!(encoded(Encoder::UntilClose, &["ab", "c"]), text("abc"));
        assert_eq!(
            encoded(Encoder::Chunked, &["ab", "", "c"]),
            text("2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        );
        assert_eq!(encoded(Encoder::None, &[]), text(""));
        assert_eq!(encoded(Encoder::Length(3), &["ab"]), Err(LengthMismatch));
        assert_eq!(encoded(Encoder::Length(3), &["abcd"]), Err(LengthMismatch));
        assert_eq!(encoded(Encoder::None, &["a"]), Err(LengthMismatch));
    }
}
