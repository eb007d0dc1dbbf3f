//! Replies, as the client has chosen to hear them.

use std::fmt::{self, Write};

/// Which of the two protocols a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// Replies that are not sent yet.
pub(super) struct Replies<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) protocol: Protocol,
}

impl Replies<'_> {
    /// One of a few words that are known.
    pub(super) fn simple(&mut self, word: &'static str) {
        self.line(b'+', word.as_bytes());
    }

    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// An error is one line, whatever it speaks of.
    pub(super) fn error(&mut self, error: impl fmt::Display) {
        self.out.push(b'-');
        let from = self.out.len();
        // To write to memory never fails.
        let _ = write!(Text(self.out), "{error}");
        let said = self.out.get_mut(from..).unwrap_or_default();
        said.iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b' ');
        self.end();
    }

    #[inline]
    pub(super) fn int(&mut self, number: i64) {
        self.out.push(b':');
        digits(number, self.out);
        self.end();
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// A text that a person is to read.
    pub(super) fn text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.end();
            }
        }
    }

    pub(super) fn null(&mut self) {
        let null: &[u8] = match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        };
        self.out.extend_from_slice(null);
    }

    /// So many replies follow, and are one.
    pub(super) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// So many pairs of replies follow, and are one.
    pub(super) fn map(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', length * 2),
            Protocol::Resp3 => self.length(b'%', length),
        }
    }

    /// So many different replies follow, and are one.
    pub(super) fn set(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', length),
            Protocol::Resp3 => self.length(b'~', length),
        }
    }

    /// The whole numbers that most answers are.
    #[inline]
    pub(super) fn numbers<const N: usize>(&mut self, numbers: [i64; N]) {
        self.array(N);
        for number in numbers {
            self.int(number);
        }
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.out.push(kind);
        digits(i64::try_from(length).unwrap_or(i64::MAX), self.out);
        self.end();
    }

    fn line(&mut self, kind: u8, bytes: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(bytes);
        self.end();
    }

    #[inline]
    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends a number. Most have one digit.
#[inline]
fn digits(number: i64, out: &mut Vec<u8>) {
    if let Ok(digit @ 0..=9) = u8::try_from(number) {
        return out.push(b'0' + digit);
    }
    if number < 0 {
        out.push(b'-');
    }
    let (mut digits, mut from) = ([0; 20], 20);
    let mut rest = number.unsigned_abs();
    while rest > 0 {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[from..]);
}

struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(protocol: Protocol, say: impl FnOnce(&mut Replies<'_>)) -> String {
        let mut out = Vec::new();
        say(&mut Replies { out: &mut out, protocol });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_have_their_digits() {
        for number in [0, 9, 10, 99, 100, -1, -10, 1_234_567_890, i64::MAX, i64::MIN] {
            assert_eq!(said(Protocol::Resp2, |out| out.int(number)), format!(":{number}\r\n"));
        }
        let five = said(Protocol::Resp3, |out| out.numbers([0, 16, 15, -1, 2]));
        assert_eq!(five, "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    }

    #[test]
    fn the_two_protocols_differ_where_they_do() {
        for (protocol, null, map, text) in [
            (Protocol::Resp2, "$-1\r\n", "*4\r\n", "$2\r\nhi\r\n"),
            (Protocol::Resp3, "_\r\n", "%2\r\n", "=6\r\ntxt:hi\r\n"),
        ] {
            assert_eq!(said(protocol, |out| out.null()), null);
            assert_eq!(said(protocol, |out| out.map(2)), map);
            assert_eq!(said(protocol, |out| out.text("hi")), text);
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let error = said(Protocol::Resp2, |out| out.error("ERR got `a\r\n+OK\r\n`"));
        assert_eq!(error, "-ERR got `a  +OK  `\r\n");
    }
}
