//! Repairs requests whose strings are not valid UTF-8.
//!
//! HTTP allows any byte above 127 in a header value, and Envoy forwards it in a protobuf string. If
//! such a request failed, Envoy would let it pass by default, so one byte would bypass every limit.
//! Each invalid byte is replaced instead, and the request is limited as usual. Values that differ
//! only in such bytes share a counter.

use super::wire::{WireError, WireReader, WireType};

/// ASCII SUBSTITUTE: one byte, so that lengths stay; no header value can contain it.
const SUBSTITUTE: u8 = 0x1A;

#[derive(Debug, Clone, Copy)]
enum RepairedMessage {
    Request,
    Descriptor,
    Entry,
}

/// A copy of a request in which all entries are valid UTF-8. The domain is not repaired: it comes
/// from a configuration.
pub(super) fn repaired(request: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut copy = request.to_vec();
    repair(RepairedMessage::Request, &mut copy)?;
    Ok(copy)
}

fn repair(message: RepairedMessage, mut bytes: &mut [u8]) -> Result<(), WireError> {
    loop {
        let mut reader = WireReader::new(bytes);
        let Some((number, wire_type)) = reader.field()? else {
            return Ok(());
        };
        let length = match wire_type {
            WireType::Bytes => reader.bytes()?.len(),
            _ => {
                reader.skip(number, wire_type)?;
                0
            }
        };
        let end = bytes.len() - reader.remaining();
        let (field, rest) = bytes.split_at_mut(end);
        let content = &mut field[end - length..];
        match (message, number) {
            (RepairedMessage::Request, 2) => repair(RepairedMessage::Descriptor, content)?,
            (RepairedMessage::Descriptor, 1) => repair(RepairedMessage::Entry, content)?,
            (RepairedMessage::Entry, 1 | 2) => substitute(content),
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
    fn only_invalid_bytes_are_replaced() {
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
