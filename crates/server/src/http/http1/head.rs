//! Lines of heads and trailers.

use std::cell::Cell;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers of a message.
pub const HEADERS_MAX: usize = 128;

/// Headers that were parsed from the beginning of a buffer. The values share one copy of it.
#[must_use]
pub fn header_map(
    buffer: &[u8],
    length: usize,
    lines: &[httparse::Header<'_>],
) -> Option<HeaderMap> {
    let copy = Bytes::copy_from_slice(buffer.get(..length)?);
    let mut headers = spare_map(lines.len());
    for line in lines {
        let (name, value) = header(&copy, buffer, line)?;
        headers.append(name, value);
    }
    Some(headers)
}

thread_local! {
    /// A map that was used before, so that it has memory.
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// Largest map that is used again.
const SPARE_HEADERS_MAX: usize = 32;
/// Headers that are usually added to those that were received.
const ADDED_HEADERS: usize = 4;

/// An empty map for so many headers.
pub(super) fn spare_map(headers: usize) -> HeaderMap {
    let spare = SPARE.take().filter(|spare| spare.capacity() >= headers);
    spare.unwrap_or_else(|| HeaderMap::with_capacity(headers + ADDED_HEADERS))
}

/// Takes back a map that is not needed any more.
pub(in crate::http) fn recycle_map(mut headers: HeaderMap) {
    if headers.capacity() <= SPARE_HEADERS_MAX {
        headers.clear();
        SPARE.set(Some(headers));
    }
}

/// A header that was parsed from a buffer; its value shares the copy.
#[inline]
pub(super) fn header(
    copy: &Bytes,
    buffer: &[u8],
    line: &httparse::Header<'_>,
) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
    let value = part(copy, buffer, line.value)?;
    Some((name, HeaderValue::from_maybe_shared(value).ok()?))
}

/// The part of the copy that is this part of the buffer.
#[inline]
pub(super) fn part(copy: &Bytes, buffer: &[u8], part: &[u8]) -> Option<Bytes> {
    if part.is_empty() {
        return Some(Bytes::new());
    }
    let begin = part.as_ptr().addr().checked_sub(buffer.as_ptr().addr())?;
    let end = begin.checked_add(part.len()).filter(|end| *end <= copy.len())?;
    Some(copy.slice(begin..end))
}

/// Writes the line of a header.
#[inline]
pub fn write_header(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a decimal number. The formatter of the standard library takes three times as long.
pub(super) fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    /// Digits of the largest number.
    const DIGITS_MAX: usize = 20;

    let mut digits = [0; DIGITS_MAX];
    let mut begin = DIGITS_MAX;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        begin -= 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(begin..).unwrap_or_default());
}

/// Writes the line of a length.
pub fn write_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    write_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Whether a list in a header has a token.
#[must_use]
pub fn has_token(line: &HeaderValue, token: &str) -> bool {
    let mut tokens = line.as_bytes().split(|byte| *byte == b',');
    tokens.any(|one| one.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Whether an empty line ends behind this many bytes. Until then nothing has to be parsed again, so
/// that a head byte by byte costs no more than its length.
pub(super) fn has_empty_line(bytes: &[u8], from: usize) -> bool {
    // The line may begin in what was seen before.
    let bytes = bytes.get(from.saturating_sub(2)..).unwrap_or_default();
    let mut after_line = false;
    let mut bytes = bytes.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' if after_line => return true,
            b'\n' => after_line = true,
            b'\r' if after_line && bytes.peek() == Some(&&b'\n') => return true,
            _ => after_line = false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 9, 10, 1_234_567_890, u64::MAX] {
            let mut out = Vec::new();
            write_decimal(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }

    #[test]
    fn an_empty_line_is_found_wherever_the_search_begins() {
        for head in [&b"GET / HTTP/1.1\r\nA: b\r\n\r\n"[..], b"GET / HTTP/1.1\nA: b\n\n"] {
            for end in 0..head.len() {
                assert!(!has_empty_line(&head[..end], 0), "{end}");
                for from in 0..=end {
                    assert!(has_empty_line(head, from), "{from}");
                }
            }
        }
    }
}
