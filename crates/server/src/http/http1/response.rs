//! Heads of responses.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, DATE, HOST, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, response};
use http_body::SizeHint;

use super::date::write_date;
use super::request::digits;
use super::{Encoder, has_token, write_header, write_length};

/// What a response depends on beside itself.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct ResponseKind {
    pub(in crate::http) is_head: bool,
    /// Whether the client speaks HTTP/1.0.
    pub(in crate::http) is_http10: bool,
    /// Whether the connection stays open. Changed by the response.
    pub(in crate::http) is_persistent: bool,
}

/// Writes the head of a response whose body has this size, `None` without a body; returns how the
/// end of the body is marked.
pub(in crate::http) fn write_response(
    out: &mut Vec<u8>,
    head: &response::Parts,
    size: Option<SizeHint>,
    kind: &mut ResponseKind,
) -> Encoder {
    let response::Parts { status, headers, .. } = head;
    let is_switch = *status == StatusCode::SWITCHING_PROTOCOLS;
    out.reserve(128 + headers.len() * 48);
    write_status(out, *status, kind.is_http10);
    let has_body = !kind.is_head && can_have_body(*status);
    let (mut length, mut has_date, mut has_persistent, mut has_close) = (None, false, false, false);
    for (name, value) in headers {
        match *name {
            // Of this connection, and written below.
            CONTENT_LENGTH => length = length.or(Some(value)),
            TRANSFER_ENCODING => {}
            TRAILER if kind.is_http10 || !has_body => {}
            CONNECTION => {
                has_close |= has_token(value, "close");
                has_persistent |= has_token(value, "keep-alive");
                write_header(out, name, value);
            }
            _ => {
                has_date |= *name == DATE;
                write_header(out, name, value);
            }
        }
    }
    let encoder = match size.map(|size| size.exact()) {
        _ if !has_body => {
            if can_have_body(*status) {
                write_length_of_head(out, length, size);
            }
            Encoder::None
        }
        None => {
            out.extend_from_slice(b"content-length: 0\r\n");
            Encoder::None
        }
        Some(exact) => match exact.or(length.and_then(|line| digits(line.as_bytes()))) {
            Some(length) => {
                write_length(out, length);
                Encoder::Length(length)
            }
            None if kind.is_http10 => Encoder::UntilClose,
            None => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                Encoder::Chunked
            }
        },
    };
    kind.is_persistent &= !has_close && encoder != Encoder::UntilClose;
    match kind.is_persistent {
        _ if is_switch => {}
        false if !has_close => out.extend_from_slice(b"connection: close\r\n"),
        true if kind.is_http10 && !has_persistent => {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        _ => {}
    }
    if !has_date {
        write_date(out);
    }
    out.extend_from_slice(b"\r\n");
    encoder
}

/// Writes a response without a body that ends the connection.
pub(in crate::http) fn write_error(out: &mut Vec<u8>, status: StatusCode) {
    write_status(out, status, false);
    out.extend_from_slice(b"connection: close\r\ncontent-length: 0\r\n");
    write_date(out);
    out.extend_from_slice(b"\r\n");
}

fn write_status(out: &mut Vec<u8>, status: StatusCode, is_http10: bool) {
    if status == StatusCode::OK && !is_http10 {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let version: &[u8] = if is_http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " };
    out.extend_from_slice(version);
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The length that the response to a `GET` would have.
fn write_length_of_head(out: &mut Vec<u8>, length: Option<&HeaderValue>, size: Option<SizeHint>) {
    match (length, size.and_then(|size| size.exact())) {
        (Some(length), _) => write_header(out, &CONTENT_LENGTH, length),
        (None, Some(length)) => write_length(out, length),
        (None, None) => {}
    }
}

/// Whether a response of this status has a body, and a length.
fn can_have_body(status: StatusCode) -> bool {
    !(status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED))
}

/// Writes the end of a chunked body with the trailers that `Trailer` announces. What a client reads
/// before the body is no trailer (RFC 9110, section 6.5.1).
pub(in crate::http) fn write_trailers(
    out: &mut Vec<u8>,
    trailers: &HeaderMap,
    announced: &HeaderMap,
) {
    let is_announced = |name: &HeaderName| {
        announced.get_all(TRAILER).iter().any(|line| has_token(line, name.as_str()))
    };
    let is_allowed = |name: &HeaderName| {
        !matches!(
            *name,
            AUTHORIZATION
                | CACHE_CONTROL
                | CONTENT_ENCODING
                | CONTENT_LENGTH
                | CONTENT_RANGE
                | CONTENT_TYPE
                | HOST
                | MAX_FORWARDS
                | SET_COOKIE
                | TRAILER
                | TRANSFER_ENCODING
                | TE
        )
    };
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        if is_allowed(name) && is_announced(name) {
            write_header(out, name, value);
        }
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    const GET: ResponseKind =
        ResponseKind { is_head: false, is_http10: false, is_persistent: true };

    /// The head without its date, how the body ends, and whether the connection goes on.
    fn written(
        response: response::Builder,
        size: Option<SizeHint>,
        mut kind: ResponseKind,
    ) -> (String, Encoder, bool) {
        let (head, ()) = response.header("date", "now").body(()).unwrap().into_parts();
        let mut out = Vec::new();
        let encoder = write_response(&mut out, &head, size, &mut kind);
        let text = String::from_utf8(out).unwrap().replace("date: now\r\n", "");
        (text.replace("\r\n", "|"), encoder, kind.is_persistent)
    }

    fn status(status: u16) -> response::Builder {
        Response::builder().status(status)
    }

    #[test]
    fn the_end_of_a_body_is_that_of_its_size_status_and_client() {
        let (unknown, five) = (Some(SizeHint::new()), Some(SizeHint::with_exact(5)));
        let http10 = ResponseKind { is_http10: true, ..GET };
        let head = ResponseKind { is_head: true, ..GET };
        let of_get = |size, text: &str, encoder| {
            assert_eq!(written(status(200), size, GET), (text.to_owned(), encoder, true));
        };
        of_get(None, "HTTP/1.1 200 OK|content-length: 0||", Encoder::None);
        of_get(five, "HTTP/1.1 200 OK|content-length: 5||", Encoder::Length(5));
        of_get(unknown, "HTTP/1.1 200 OK|transfer-encoding: chunked||", Encoder::Chunked);
        let (text, encoder, is_persistent) = written(status(200), unknown, http10);
        assert_eq!(
            (text.as_str(), encoder),
            ("HTTP/1.0 200 OK|connection: close||", Encoder::UntilClose)
        );
        assert!(!is_persistent);
        let (text, ..) = written(status(200), five, http10);
        assert_eq!(text, "HTTP/1.0 200 OK|content-length: 5|connection: keep-alive||");
        let (text, encoder, _) = written(status(200).header("content-length", 7), None, head);
        assert_eq!(
            (text.as_str(), encoder),
            ("HTTP/1.1 200 OK|content-length: 7||", Encoder::None)
        );
        let (text, ..) = written(status(200), unknown, head);
        assert_eq!(text, "HTTP/1.1 200 OK||");
        for code in [204, 304] {
            let (text, encoder, _) = written(status(code).header("content-length", 7), five, GET);
            assert!(!text.contains("content-length") && encoder == Encoder::None, "{text}");
        }
    }

    #[test]
    fn a_handler_can_close_the_connection() {
        let (text, _, is_persistent) =
            written(status(400).header("connection", "close"), None, GET);
        assert_eq!(text, "HTTP/1.1 400 Bad Request|connection: close|content-length: 0||");
        assert!(!is_persistent);
        let closing = ResponseKind { is_persistent: false, ..GET };
        let (text, ..) = written(status(200), None, closing);
        assert_eq!(text, "HTTP/1.1 200 OK|content-length: 0|connection: close||");
        let upgrade = status(101).header("connection", "upgrade").header("upgrade", "x");
        let (text, ..) = written(upgrade, None, closing);
        assert_eq!(text, "HTTP/1.1 101 Switching Protocols|connection: upgrade|upgrade: x||");
    }

    #[test]
    fn only_announced_trailers_are_written() {
        let (mut trailers, mut announced) = (HeaderMap::new(), HeaderMap::new());
        for name in ["x-sum", "x-other", "content-length"] {
            trailers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        announced.insert(TRAILER, HeaderValue::from_static("X-Sum, Content-Length"));
        let mut out = Vec::new();
        write_trailers(&mut out, &trailers, &announced);
        assert_eq!(String::from_utf8(out).unwrap(), "0\r\nx-sum: 1\r\n\r\n");
    }
}
