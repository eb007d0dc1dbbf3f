//! Parts of a line: tokens, quoted texts with escapes, numbers, addresses, request lines.

use std::net::{IpAddr, Ipv4Addr};

use memchr::{memchr, memchr2, memrchr};

use crate::parser::LineError;
use crate::record::Record;
use crate::scratch::{Arena, ArenaFull};

/// A position in a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    line: &'a [u8],
    index: usize,
}

/// A text between quotes, escaped as in the line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quoted<'a> {
    raw: &'a [u8],
    is_escaped: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(line: &'a [u8]) -> Self {
        Self { line, index: 0 }
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.line[self.index..]
    }

    pub(crate) const fn fail(&self, reason: &'static str) -> LineError {
        LineError::at(self.index, reason)
    }

    /// Skips bytes, which must be there.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.index = self.line.len().min(self.index + bytes);
    }

    /// Skips a constant part.
    #[inline]
    pub(crate) fn skip(&mut self, part: &[u8], reason: &'static str) -> Result<(), LineError> {
        if !self.rest().starts_with(part) {
            return Err(self.fail(reason));
        }
        self.index += part.len();
        Ok(())
    }

    /// The bytes up to a space or the end of the line; skips the space too.
    #[inline]
    pub(crate) fn token(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        self.advance(end + 1);
        &rest[..end]
    }

    /// The bytes up to a closing byte, which is skipped.
    pub(crate) fn until(&mut self, end: u8, reason: &'static str) -> Result<&'a [u8], LineError> {
        let rest = self.rest();
        let length = memchr(end, rest).ok_or_else(|| self.fail(reason))?;
        self.advance(length + 1);
        Ok(&rest[..length])
    }

    /// A text between quotes, and the space behind it.
    #[inline]
    pub(crate) fn quoted(&mut self, reason: &'static str) -> Result<Quoted<'a>, LineError> {
        self.skip(b"\"", reason)?;
        let (rest, mut from, mut is_escaped) = (self.rest(), 0, false);
        loop {
            let Some(found) = memchr2(b'"', b'\\', &rest[from..]) else {
                return Err(LineError::at(self.line.len(), "the closing quote is missing"));
            };
            let end = from + found;
            if rest[end] == b'"' {
                self.advance(end + 1);
                if self.rest().first() == Some(&b' ') {
                    self.index += 1;
                }
                return Ok(Quoted { raw: &rest[..end], is_escaped });
            }
            is_escaped = true;
            // The next byte belongs to the escape, also if it is a quote.
            from = rest.len().min(end + 2);
        }
    }
}

impl<'a> Quoted<'a> {
    /// The bytes between the quotes.
    pub(crate) const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The text; `None` for `-` and an empty one.
    #[inline]
    pub(crate) fn text(&self, arena: &mut Arena<'a>) -> Result<Option<&'a [u8]>, LineError> {
        self.part(self.raw, arena).map(present)
    }

    /// The request line: method, URI and protocol. A connection without a request, or with
    /// something other than HTTP on it, leaves the record without them.
    #[inline]
    pub(crate) fn request(
        &self,
        record: &mut Record<'a>,
        arena: &mut Arena<'a>,
    ) -> Result<(), LineError> {
        if let Some((method, uri)) = request_line(self.raw) {
            record.method = Some(method);
            record.uri = Some(self.part(uri, arena)?);
        }
        Ok(())
    }

    #[inline]
    fn part(&self, raw: &'a [u8], arena: &mut Arena<'a>) -> Result<&'a [u8], LineError> {
        if !self.is_escaped {
            return Ok(raw);
        }
        arena
            .store_with(raw.len(), |out| unescape(raw, out))
            .map_err(|ArenaFull| LineError::at(0, "the line is too long"))
    }
}

/// Undoes escapes of nginx (`\x22`) and Apache (`\"`, `\\`, `\n`, `\x07`) into a buffer of the same
/// length; returns how much of it is used. Other backslashes stay.
fn unescape(mut raw: &[u8], out: &mut [u8]) -> usize {
    let mut length = 0;
    while let Some(plain) = memchr(b'\\', raw) {
        out[length..length + plain].copy_from_slice(&raw[..plain]);
        let (byte, escape_bytes) = escape(&raw[plain..]);
        out[length + plain] = byte;
        length += plain + 1;
        raw = &raw[plain + escape_bytes..];
    }
    out[length..length + raw.len()].copy_from_slice(raw);
    length + raw.len()
}

/// The byte that an escape stands for, and the length of the escape.
const fn escape(raw: &[u8]) -> (u8, usize) {
    match *raw {
        [_, b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (hex_digit(high) << 4 | hex_digit(low), 4)
        }
        [_, byte @ (b'"' | b'\\'), ..] => (byte, 2),
        [_, b'n', ..] => (b'\n', 2),
        [_, b'r', ..] => (b'\r', 2),
        [_, b't', ..] => (b'\t', 2),
        [_, b'b', ..] => (0x08, 2),
        [_, b'v', ..] => (0x0B, 2),
        [_, b'f', ..] => (0x0C, 2),
        _ => (b'\\', 1),
    }
}

const fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Method and URI of `GET /a b HTTP/1.1`. The protocol may be absent, as in HTTP/0.9.
#[inline]
pub(crate) fn request_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|byte| !is_method_byte(*byte))?;
    if end == 0 || line[end] != b' ' {
        return None;
    }
    let rest = &line[end + 1..];
    let uri = match memrchr(b' ', rest) {
        Some(space) if rest[space + 1..].starts_with(b"HTTP/") => &rest[..space],
        _ => rest,
    };
    (!matches!(uri, b"" | b"-")).then_some((&line[..end], uri))
}

/// Methods are tokens; a lone `-` stands for an absent one.
const fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Parts of an absolute URL with a host.
pub(crate) struct Url<'a> {
    pub(crate) scheme: &'a [u8],
    pub(crate) host: &'a [u8],
    pub(crate) uri: &'a [u8],
}

impl<'a> Url<'a> {
    pub(crate) fn parse(url: &'a [u8]) -> Option<Self> {
        let colon = memchr(b':', url)?;
        let rest = url[colon..].strip_prefix(b"://")?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let uri = if end == rest.len() { b"/" } else { &rest[end..] };
        let (scheme, host) = (scheme(&url[..colon]), present(&rest[..end])?);
        let is_scheme = colon > 0 && scheme.iter().all(u8::is_ascii_alphanumeric);
        is_scheme.then_some(Self { scheme, host, uri })
    }
}

/// `http` or `https`; schemes and protocols that run on one of them are that one.
pub(crate) fn scheme(text: &[u8]) -> &[u8] {
    match text {
        b"wss" | b"h2" | b"grpcs" => b"https",
        b"ws" | b"grpc" => b"http",
        _ => text,
    }
}

/// `None` for an absent text.
#[inline]
pub(crate) const fn present(text: &[u8]) -> Option<&[u8]> {
    match text {
        b"" | b"-" => None,
        _ => Some(text),
    }
}

/// A number of digits.
#[inline]
pub(crate) fn whole_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// A status; zero stands for an absent one, as in a log of a connection that the client closed.
#[inline]
pub(crate) fn status(text: &[u8]) -> Option<Option<u16>> {
    match present(text) {
        None => Some(None),
        Some(text) => {
            let status = whole_number(text).filter(|status| *status < 1_000)?;
            Some(u16::try_from(status).ok().filter(|status| *status > 0))
        }
    }
}

/// A number, or `-`.
#[inline]
pub(crate) fn optional_number(text: &[u8]) -> Option<Option<u64>> {
    match present(text) {
        None => Some(None),
        Some(text) => whole_number(text).map(Some),
    }
}

/// An address without a port. IPv4 in IPv6 is IPv4.
#[inline]
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    ipv4(text).map(IpAddr::V4).or_else(|| ipv6(text))
}

fn ipv6(text: &[u8]) -> Option<IpAddr> {
    if text.len() < 2 || memchr(b':', text).is_none() {
        return None;
    }
    // A link-local address may have a zone.
    let end = memchr(b'%', text).unwrap_or(text.len());
    let address: IpAddr = str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some(address.to_canonical())
}

#[inline]
fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let (mut octets, mut count, mut octet, mut digits) = ([0_u8; 4], 0, 0_u16, 0);
    for &byte in text {
        match byte {
            b'0'..=b'9' if digits < 3 && !(digits > 0 && octet == 0) => {
                octet = octet * 10 + u16::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && count < 3 => {
                octets[count] = u8::try_from(octet).ok()?;
                (count, octet, digits) = (count + 1, 0, 0);
            }
            _ => return None,
        }
    }
    if count < 3 || digits == 0 {
        return None;
    }
    octets[3] = u8::try_from(octet).ok()?;
    Some(octets.into())
}

/// An address that may have a port: `192.0.2.7:80`, `[2001:db8::1]:80`, and without brackets.
pub(crate) fn peer_address(text: &[u8]) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix(b"[") {
        return address(&rest[..memchr(b']', rest)?]);
    }
    match memrchr(b':', text) {
        // With one colon it is a port; with several, all may belong to the address.
        Some(colon) if memchr(b':', text) == Some(colon) => address(&text[..colon]),
        _ => address(text),
    }
}

/// The last address of `X-Forwarded-For`: what the nearest proxy has appended. Earlier ones are
/// claims of the client.
pub(crate) fn last_forwarded(value: &[u8]) -> Option<IpAddr> {
    let last = memrchr(b',', value).map_or(value, |comma| &value[comma + 1..]);
    peer_address(last.trim_ascii())
}
