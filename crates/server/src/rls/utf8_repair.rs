//! Requests whose texts are none.
//!
//! HTTP lets a client put any byte above 127 into a header. Envoy passes it on in a field that should be UTF-8, and when its question fails it lets the
//! request pass, unless it was told otherwise: whoever writes one such byte would be under no limit at all, not even that of his address. So each
//! byte that is no text is read as the character that is there for it, and the request is limited like every other. Names that differ in
//! such bytes alone share a counter.

use super::wire::{Kind, Reader, WireError};

/// ASCII's own stand-in for what cannot be read. One byte, so that no length changes; and no header can hold it, so it is nobody else's name.
const SUBSTITUTE: u8 = 0x1A;

#[derive(Debug, Clone, Copy)]
enum Message {
    Request,
    Descriptor,
    Entry,
}

/// A copy of a request in which all entries are text. The domain is not: it is written in a configuration, by somebody who can mend it.
pub(super) fn mended(request: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut copy = request.to_vec();
    mend(Message::Request, &mut copy)?;
    Ok(copy)
}

fn mend(message: Message, mut bytes: &mut [u8]) -> Result<(), WireError> {
    loop {
        let mut reader = Reader::new(bytes);
        let Some((number, kind)) = reader.field()? else {
            return Ok(());
        };
        let length = match kind {
            Kind::Bytes => reader.bytes()?.len(),
            _ => {
                reader.skip(number, kind)?;
                0
            }
        };
        let end = bytes.len() - reader.left();
        let (field, rest) = bytes.split_at_mut(end);
        let content = &mut field[end - length..];
        match (message, number) {
            (Message::Request, 2) => mend(Message::Descriptor, content)?,
            (Message::Descriptor, 1) => mend(Message::Entry, content)?,
            (Message::Entry, 1 | 2) => substitute(content),
            _ => {}
        }
        bytes = rest;
    }
}

fn substitute(mut bytes: &mut [u8]) {
    while let Err(error) = str::from_utf8(bytes) {
        let start = error.valid_up_to();
        let end = error.error_len().map_or(bytes.len(), |length| start + length);
        bytes[start..end].fill(SUBSTITUTE);
        bytes = &mut bytes[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_text_is_replaced() {
        for (before, after) in [
            (&b"jos\xe9"[..], &b"jos\x1a"[..]),
            (b"\xc3", b"\x1a"),
            (b"\xff\xfea\xe2\x82", b"\x1a\x1aa\x1a\x1a"),
            ("José €".as_bytes(), "José €".as_bytes()),
            (b"", b""),
        ] {
            let mut bytes = before.to_vec();
            substitute(&mut bytes);
            assert_eq!(bytes, after, "{before:?}");
        }
    }
}
