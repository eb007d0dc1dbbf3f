//! Heads of requests and responses.

use std::mem::MaybeUninit;

use bytes::{Buf as _, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::Body as _;
use httparse::ParserConfig;
use sluicegate_server::http::http1::{
    Decoder, Encoder, HEADERS_MAX, has_token, header_map, write_header, write_length,
};

use super::RequestKind;
use crate::body::RequestBody;
use crate::upstream::send_error::SendError;

/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    pub(super) decoder: Decoder,
    /// Whether the server keeps the connection open.
    pub(super) is_persistent: bool,
}

/// Writes the head of a request with this body; returns how the end of the body is marked.
pub(super) fn write(out: &mut Vec<u8>, head: &Parts, body: &RequestBody) -> Encoder {
    let Parts { method, uri, headers, .. } = head;
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(host) = uri.authority()
        && !headers.contains_key(HOST)
    {
        out.extend_from_slice(b"host: ");
        out.extend_from_slice(host.as_str().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in headers {
        // Those about the length are of this connection.
        if name != CONTENT_LENGTH && name != TRANSFER_ENCODING {
            write_header(out, name, value);
        }
    }
    let encoder = match body.size_hint().exact() {
        _ if body.is_empty() => Encoder::None,
        Some(length) => Encoder::Length(length),
        None => Encoder::Chunked,
    };
    let length = match encoder {
        Encoder::Length(length) => Some(length),
        // Methods that usually have a body state that its length is zero.
        Encoder::None | Encoder::UntilClose => {
            let has_length = headers.contains_key(CONTENT_LENGTH)
                || matches!(*method, Method::POST | Method::PUT | Method::PATCH);
            has_length.then_some(0)
        }
        Encoder::Chunked => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            None
        }
    };
    if let Some(length) = length {
        write_length(out, length);
    }
    out.extend_from_slice(b"\r\n");
    encoder
}

/// Takes the head of a response from the buffer, if it is complete.
pub(super) fn parse(
    buffer: &mut BytesMut,
    request: RequestKind,
) -> Result<Option<ResponseHead>, SendError> {
    let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, buffer, &mut lines);
    let length = match status.map_err(|_| SendError::Failed)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial if buffer.len() < HEAD_BYTES_MAX => return Ok(None),
        httparse::Status::Partial => return Err(SendError::Failed),
    };
    let headers = header_map(buffer, length, parsed.headers).ok_or(SendError::Failed)?;
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(SendError::Failed)?;
    let is_http11 = parsed.version == Some(1);
    buffer.advance(length);
    if status == StatusCode::SWITCHING_PROTOCOLS && !request.is_upgrade {
        return Err(SendError::Failed);
    }
    let has_body = !(request.is_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED));
    let decoder = match has_body {
        true => framing(&headers, is_http11).ok_or(SendError::Failed)?,
        false => Decoder::Done,
    };
    let mut connection = headers.get_all(CONNECTION).iter();
    let is_persistent = is_http11
        && !matches!(decoder, Decoder::UntilClose)
        && !connection.any(|line| has_token(line, "close"));
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(Some(ResponseHead { response, decoder, is_persistent }))
}

/// How the end of a response is marked (RFC 9112, section 6.3). Ambiguous responses are refused:
/// the next proxy could read them differently.
fn framing(headers: &HeaderMap, is_http11: bool) -> Option<Decoder> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let (encoding, length) = (encodings.next(), lengths.next());
    match (encoding, length) {
        (None, None) => Some(Decoder::UntilClose),
        (Some(encoding), None) => {
            let is_chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
            (is_chunked && is_http11 && encodings.next().is_none()).then_some(Decoder::chunked())
        }
        (None, Some(length)) => {
            let text = length.to_str().ok()?;
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let is_same = lengths.all(|other| other == length);
            (is_number && is_same).then(|| text.parse().ok().map(Decoder::length)).flatten()
        }
        (Some(_), Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const GET: RequestKind = RequestKind { is_head: false, is_upgrade: false };

    fn parsed(text: &str) -> Result<Option<ResponseHead>, SendError> {
        parse(&mut BytesMut::from(text), GET)
    }

    fn decoder(headers: &str) -> Option<Decoder> {
        let head = parsed(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")).ok()?;
        Some(head.unwrap().decoder)
    }

    #[test]
    fn the_length_of_a_response_is_unambiguous() {
        assert_eq!(decoder(""), Some(Decoder::UntilClose));
        assert_eq!(decoder("Content-Length: 5\r\n"), Some(Decoder::length(5)));
        assert_eq!(decoder("Content-Length: 0\r\n"), Some(Decoder::Done));
        assert_eq!(decoder("Content-Length: 5\r\ncontent-length: 5\r\n"), Some(Decoder::length(5)));
        assert_eq!(decoder("Transfer-Encoding: Chunked\r\n"), Some(Decoder::chunked()));
        for ambiguous in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
        ] {
            assert_eq!(decoder(ambiguous), None, "{ambiguous}");
        }
        assert!(parsed("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn a_head_is_taken_when_it_is_complete() {
        let text = "HTTP/1.1 204 No Content\r\nServer: a\r\nX-Empty:\r\n\r\nrest";
        for end in 0..text.len() - "rest".len() {
            assert!(parsed(&text[..end]).unwrap().is_none(), "{end}");
        }
        let mut buffer = BytesMut::from(text);
        let head = parse(&mut buffer, GET).unwrap().unwrap();
        assert_eq!(&buffer[..], b"rest");
        assert_eq!((head.decoder, head.is_persistent), (Decoder::Done, true));
        assert_eq!(head.response.headers()["server"], "a");
        assert_eq!(head.response.headers()["x-empty"], "");
    }

    #[test]
    fn heads_that_are_malformed_or_too_large_are_refused() {
        assert!(parsed("HTTP/2 200 OK\r\n\r\n").is_err());
        assert!(parsed("HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n").is_err());
        assert!(parsed("HTTP/1.1 101 Switching Protocols\r\n\r\n").is_err(), "not asked for");
        assert!(parsed(&format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_BYTES_MAX))).is_err());
        let many = "A: b\r\n".repeat(HEADERS_MAX + 1);
        assert!(parsed(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
    }

    #[test]
    fn a_connection_is_kept_by_http_1_1_unless_the_server_closes() {
        let is_persistent = |text: &str| parsed(text).unwrap().unwrap().is_persistent;
        assert!(is_persistent("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"));
        assert!(!is_persistent("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n"));
        assert!(!is_persistent(
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, Close\r\n\r\n"
        ));
        assert!(!is_persistent("HTTP/1.1 200 OK\r\n\r\n"));
    }

    #[test]
    fn a_request_has_one_length() {
        let request = Request::post("http://a.test/x?y=1").header("content-length", "7");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        assert_eq!(write(&mut out, &head, &RequestBody::Empty), Encoder::None);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "POST /x?y=1 HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0\r\n\r\n");
    }
}
