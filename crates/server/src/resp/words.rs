//! A line as somebody types it: words, and quotation marks around what has blanks in it.
//!
//! Between double marks `\n`, `\r`, `\t`, `\b`, `\a` and `\xff` mean what they mean elsewhere, and any other character behind `\` itself; between single
//! marks `\'` is a mark.

use super::frame::{Broken, Places};

/// Takes a line apart: the words one behind the other, and where each of them is.
pub(super) fn split(
    line: &[u8],
    most: usize,
    words: &mut Vec<u8>,
    places: &mut Places,
) -> Result<(), Broken> {
    words.clear();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(());
        }
        if places.len() == most {
            return Err(Broken::Count);
        }
        let from = words.len();
        rest = word(rest, words)?;
        // A line is far below four gigabytes.
        places.push((from as u32, words.len() as u32));
    }
}

/// Takes a word; what is behind it.
fn word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Broken> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [blank, ..] if blank.is_ascii_whitespace() => return Ok(rest),
            [mark @ (b'"' | b'\''), rest @ ..] => {
                let rest = quoted(*mark, rest, word)?;
                // Behind a closing mark there is a blank, or nothing.
                return match rest.first() {
                    Some(byte) if !byte.is_ascii_whitespace() => Err(Broken::Quotes),
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

/// Takes what is between marks; what is behind the closing one.
fn quoted<'a>(mark: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Broken> {
    loop {
        let (byte, behind) = match rest {
            [] => return Err(Broken::Quotes),
            [byte, rest @ ..] if *byte == mark => return Ok(rest),
            [b'\\', b'\'', rest @ ..] if mark == b'\'' => (b'\'', rest),
            [b'\\', escaped @ ..] if mark == b'"' => escape(escaped)?,
            [byte, rest @ ..] => (*byte, rest),
        };
        word.push(byte);
        rest = behind;
    }
}

fn escape(rest: &[u8]) -> Result<(u8, &[u8]), Broken> {
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
        [] => Err(Broken::Quotes),
    }
}
