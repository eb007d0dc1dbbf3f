//! Replies and error replies, in RESP2 or RESP3.

use std::fmt::{self, Write};

use crate::idempotency::{Replayable, StoredResponse};
use crate::telemetry::Fault;

/// Protocol version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RespVersion {
    #[default]
    Resp2,
    Resp3,
}

/// Appends replies to the output of a connection.
pub(super) struct ReplyWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) protocol: RespVersion,
}

impl ReplyWriter<'_> {
    /// A simple string.
    pub(super) fn simple(&mut self, word: &'static str) {
        self.line(b'+', word.as_bytes());
    }

    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// An error, on one line.
    pub(super) fn error(&mut self, error: impl fmt::Display) {
        self.out.push(b'-');
        let from = self.out.len();
        // Writing to memory cannot fail.
        let _ = write!(OutputText(self.out), "{error}");
        let line = self.out.get_mut(from..).unwrap_or_default();
        line.iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b' ');
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

    /// A verbatim string.
    pub(super) fn text(&mut self, text: &str) {
        match self.protocol {
            RespVersion::Resp2 => self.bulk(text.as_bytes()),
            RespVersion::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.end();
            }
        }
    }

    pub(super) fn null(&mut self) {
        let null: &[u8] = match self.protocol {
            RespVersion::Resp2 => b"$-1\r\n",
            RespVersion::Resp3 => b"_\r\n",
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
            RespVersion::Resp2 => self.length(b'*', length * 2),
            RespVersion::Resp3 => self.length(b'%', length),
        }
    }

    /// So many different replies follow, and are one.
    pub(super) fn set(&mut self, length: usize) {
        match self.protocol {
            RespVersion::Resp2 => self.length(b'*', length),
            RespVersion::Resp3 => self.length(b'~', length),
        }
    }

    /// An array of integers, as most replies are.
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

/// Appends an integer; most have one digit.
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

struct OutputText<'a>(&'a mut Vec<u8>);

impl Write for OutputText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Reply to a rule command: five numbers, and for some commands an extra value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Limited, limit, remaining, retry_after, reset_after.
    pub(super) numbers: [i64; 5],
    pub(super) extra: ReplyExtra,
    /// Whether every descriptor was charged, so that a refund of the same command is exact.
    pub(crate) is_refundable: bool,
}

/// The extra value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplyExtra {
    None,
    /// Name of the reservation, or null.
    Ticket(Option<String>),
    /// Refunded hits, or those that stay reserved.
    Hits(u64),
    /// The same, if there are any, and what each limit got back.
    Returned(Option<u64>, Vec<ReturnedLimit>),
    /// Milliseconds, in place of the five numbers.
    Millis(u64),
    /// JSON, in place of the five numbers.
    Json(String),
}

/// Hits that a limit got back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReturnedLimit {
    /// From 1 on.
    pub(super) descriptor: usize,
    /// Its rule; none if the limit came with the request.
    pub(super) rule: Option<String>,
    pub(super) limit: String,
    pub(super) hits: u64,
}

impl Reply {
    pub(super) fn is_limited(&self) -> bool {
        self.numbers[0] != 0
    }

    pub(super) fn put(&self, out: &mut ReplyWriter<'_>) {
        match &self.extra {
            ReplyExtra::None => return out.numbers(self.numbers),
            ReplyExtra::Millis(millis) => return out.int(signed(*millis)),
            ReplyExtra::Json(json) => return out.bulk(json.as_bytes()),
            ReplyExtra::Returned(Some(_), _) => out.array(7),
            ReplyExtra::Ticket(_) | ReplyExtra::Hits(_) | ReplyExtra::Returned(None, _) => {
                out.array(6)
            }
        }
        self.numbers.into_iter().for_each(|number| out.int(number));
        match &self.extra {
            ReplyExtra::Ticket(Some(ticket)) => out.bulk(ticket.as_bytes()),
            ReplyExtra::Hits(hits) => out.int(signed(*hits)),
            ReplyExtra::Returned(hits, limits) => {
                hits.iter().for_each(|hits| out.int(signed(*hits)));
                out.array(limits.len());
                limits.iter().for_each(|limit| limit.put(out));
            }
            _ => out.null(),
        }
    }
}

impl ReturnedLimit {
    fn put(&self, out: &mut ReplyWriter<'_>) {
        out.array(4);
        out.int(signed(self.descriptor as u64));
        match &self.rule {
            Some(rule) => out.bulk(rule.as_bytes()),
            None => out.null(),
        }
        out.bulk(self.limit.as_bytes());
        out.int(signed(self.hits));
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.rule.as_ref().map_or(0, String::len) + self.limit.len()
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl From<[i64; 5]> for Reply {
    fn from(numbers: [i64; 5]) -> Self {
        Self { numbers, extra: ReplyExtra::None, is_refundable: false }
    }
}

impl Replayable for Reply {
    fn is_charge(&self) -> bool {
        !self.is_limited()
    }

    fn bytes(&self) -> usize {
        match &self.extra {
            ReplyExtra::Ticket(Some(ticket)) => size_of::<Self>() + ticket.len(),
            ReplyExtra::Returned(_, limits) => {
                size_of::<Self>() + limits.iter().map(ReturnedLimit::bytes).sum::<usize>()
            }
            _ => size_of::<Self>(),
        }
    }

    fn store(&self) -> StoredResponse {
        StoredResponse::Resp(self.clone())
    }

    fn restore(stored: StoredResponse) -> Option<Self> {
        match stored {
            StoredResponse::Resp(reply) => Some(reply),
            StoredResponse::Http(_) => None,
        }
    }
}

// === errors ===

/// Error reply, with the codes of Redis where it has any.
#[derive(Debug)]
pub(super) struct RespError {
    pub(super) fault: Fault,
    text: String,
}

impl RespError {
    /// The command is invalid.
    pub(super) fn invalid(text: impl fmt::Display) -> Self {
        Self { fault: Fault::Invalid, text: format!("ERR {text}") }
    }

    /// The service cannot execute it.
    pub(super) fn service(text: impl Into<String>) -> Self {
        Self { fault: Fault::Service, text: text.into() }
    }

    /// The store did not answer.
    pub(super) fn store(error: impl fmt::Display) -> Self {
        Self { fault: Fault::Store, text: format!("TRYAGAIN {error}") }
    }

    /// Overload.
    pub(super) fn overload(text: impl Into<String>) -> Self {
        Self { fault: Fault::Overload, text: text.into() }
    }

    pub(super) fn draining() -> Self {
        Self::overload("TRYAGAIN the service is shutting down; retry later, or on another node")
    }

    pub(super) fn arity(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self::invalid(format_args!("wrong number of arguments for '{name}' command"))
    }

    pub(super) fn no_auth() -> Self {
        Self::service("NOAUTH Authentication required.")
    }

    /// Refund without proof of a charge.
    pub(super) fn unproven() -> Self {
        Self::service(
            "NOPERM no charged check matches this refund: send the ID and all arguments of the SG.CHECK, once, within ten minutes and to the same node; or use SG.RESERVE and SG.CANCEL",
        )
    }

    /// An operator command without the role.
    pub(super) fn no_operator(has_token: bool) -> Self {
        Self::service(match has_token {
            true => "NOPERM this command is for operators; append TOKEN and the operator token",
            false => {
                "NOPERM operator commands are off, since this address can be reached from other machines and no token is set; set SLUICEGATE_ADMIN_TOKEN, or listen on loopback"
            }
        })
    }

    /// Refund of a request that takes a slot.
    pub(super) fn slot_refund(descriptor: usize) -> Self {
        Self::invalid(format_args!(
            "descriptor {} is under a concurrency limit, and a slot is not refunded but released; send the token of its SG.CHECK to SG.CANCEL, and refund the other descriptors without this one",
            descriptor + 1
        ))
    }

    pub(super) fn no_rules() -> Self {
        Self::service("ERR no rules are loaded; the log of the service names the errors to correct")
    }
}

impl fmt::Display for RespError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Client input for an error message: clipped, and escaped unless printable.
pub(super) fn shown(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 64;

    match bytes.get(..BYTES_MAX) {
        Some(beginning) if bytes.len() > BYTES_MAX => format!("{}…", beginning.escape_ascii()),
        _ => match str::from_utf8(bytes) {
            Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
            _ => bytes.escape_ascii().to_string(),
        },
    }
}

/// Parses an integer.
pub(super) fn parse_int<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: RespVersion, write: impl FnOnce(&mut ReplyWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut ReplyWriter { out: &mut out, protocol });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_have_their_digits() {
        for number in [0, 9, 10, 99, 100, -1, -10, 1_234_567_890, i64::MAX, i64::MIN] {
            assert_eq!(
                written(RespVersion::Resp2, |out| out.int(number)),
                format!(":{number}\r\n")
            );
        }
        let five = written(RespVersion::Resp3, |out| out.numbers([0, 16, 15, -1, 2]));
        assert_eq!(five, "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    }

    #[test]
    fn the_two_protocols_differ_where_they_do() {
        for (protocol, null, map, text) in [
            (RespVersion::Resp2, "$-1\r\n", "*4\r\n", "$2\r\nhi\r\n"),
            (RespVersion::Resp3, "_\r\n", "%2\r\n", "=6\r\ntxt:hi\r\n"),
        ] {
            assert_eq!(written(protocol, |out| out.null()), null);
            assert_eq!(written(protocol, |out| out.map(2)), map);
            assert_eq!(written(protocol, |out| out.text("hi")), text);
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let error = written(RespVersion::Resp2, |out| out.error("ERR got `a\r\n+OK\r\n`"));
        assert_eq!(error, "-ERR got `a  +OK  `\r\n");
    }
}
