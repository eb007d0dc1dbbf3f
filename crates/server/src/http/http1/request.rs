//! Heads of requests.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
};
use http::{Method, Request, StatusCode, Uri, Version};
use httparse::ParserConfig;

use super::head::{has_empty_line, header, part, spare_map};
use super::{Decoder, HEADERS_MAX, has_token};

/// Longest URI that the type can hold.
const URI_BYTES_MAX: usize = u16::MAX as usize - 1;

/// The head of a request.
#[derive(Debug)]
pub(in crate::http) struct RequestHead {
    pub(in crate::http) request: Request<()>,
    /// How the end of its body is found.
    pub(in crate::http) decoder: Decoder,
    /// Whether the client keeps the connection open.
    pub(in crate::http) is_persistent: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(in crate::http) expects_continue: bool,
    /// Whether the client takes trailers.
    pub(in crate::http) takes_trailers: bool,
}

/// Reason to refuse a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum HeadError {
    Malformed,
    TooLarge,
    UriTooLong,
}

impl HeadError {
    /// Status of the response.
    pub(in crate::http) const fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
        }
    }
}

/// Parses the heads of requests.
#[derive(Debug)]
pub(in crate::http) struct RequestParser {
    bytes_max: usize,
    /// Bytes of the next head that were there, and incomplete.
    seen: usize,
}

impl RequestParser {
    /// Heads of at most so many bytes.
    pub(in crate::http) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, seen: 0 }
    }

    /// The head at the beginning of these bytes and its length, if it is complete. Otherwise the
    /// next bytes begin with these.
    pub(in crate::http) fn parse(
        &mut self,
        bytes: &[u8],
    ) -> Result<Option<(usize, RequestHead)>, HeadError> {
        let seen = std::mem::replace(&mut self.seen, bytes.len());
        if seen == 0 || has_empty_line(bytes, seen) {
            let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
            let mut parsed = httparse::Request::new(&mut []);
            let config = ParserConfig::default();
            match config.parse_request_with_uninit_headers(&mut parsed, bytes, &mut lines) {
                Ok(httparse::Status::Complete(length)) if length <= self.bytes_max => {
                    self.seen = 0;
                    let head = RequestHead::new(&parsed, bytes, length)?;
                    return Ok(Some((length, head)));
                }
                Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
                    return Err(HeadError::TooLarge);
                }
                Ok(httparse::Status::Partial) => {}
                Err(_) => return Err(HeadError::Malformed),
            }
        }
        if bytes.len() >= self.bytes_max { Err(HeadError::TooLarge) } else { Ok(None) }
    }
}

/// What the headers of a request say about its body and its connection.
struct RequestFraming {
    is_http11: bool,
    length: Option<u64>,
    has_length: bool,
    /// The last coding is `chunked`.
    is_chunked: Option<bool>,
    is_persistent: bool,
    has_close: bool,
    expects_continue: bool,
    takes_trailers: bool,
}

impl RequestHead {
    /// The head of this length at the beginning of these bytes.
    fn new(
        parsed: &httparse::Request<'_, '_>,
        bytes: &[u8],
        length: usize,
    ) -> Result<Self, HeadError> {
        let copy = Bytes::copy_from_slice(bytes.get(..length).ok_or(HeadError::Malformed)?);
        let (Some(method), Some(path), Some(version)) =
            (parsed.method, parsed.path, parsed.version)
        else {
            return Err(HeadError::Malformed);
        };
        if path.len() > URI_BYTES_MAX {
            return Err(HeadError::UriTooLong);
        }
        let malformed = HeadError::Malformed;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| malformed)?;
        let uri = part(&copy, bytes, path.as_bytes()).ok_or(malformed)?;
        let uri = Uri::from_maybe_shared(uri).map_err(|_| malformed)?;
        let mut framing = RequestFraming::new(version == 1);
        let mut headers = spare_map(parsed.headers.len());
        for line in &*parsed.headers {
            let (name, value) = header(&copy, bytes, line).ok_or(malformed)?;
            if framing.read(&name, &value)? {
                headers.append(name, value);
            }
        }
        if framing.is_chunked.is_some() {
            headers.remove(CONTENT_LENGTH);
        }
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() =
            if framing.is_http11 { Version::HTTP_11 } else { Version::HTTP_10 };
        *request.headers_mut() = headers;
        framing.into_head(request)
    }
}

impl RequestFraming {
    const fn new(is_http11: bool) -> Self {
        Self {
            is_http11,
            length: None,
            has_length: false,
            is_chunked: None,
            is_persistent: is_http11,
            has_close: false,
            expects_continue: false,
            takes_trailers: false,
        }
    }

    /// Reads a header; whether it is part of the request.
    #[inline]
    fn read(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<bool, HeadError> {
        match *name {
            TRANSFER_ENCODING => {
                if !self.is_http11 {
                    return Err(HeadError::Malformed);
                }
                let last = value.as_bytes().rsplit(|byte| *byte == b',').next();
                let last = last.unwrap_or_default().trim_ascii();
                self.is_chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
            }
            CONTENT_LENGTH => {
                self.has_length = true;
                // `Transfer-Encoding` has precedence.
                if self.is_chunked.is_some() {
                    return Ok(false);
                }
                let length = digits(value.as_bytes()).ok_or(HeadError::Malformed)?;
                match self.length.replace(length) {
                    Some(other) if other != length => return Err(HeadError::Malformed),
                    // One line is enough.
                    Some(_) => return Ok(false),
                    None => {}
                }
            }
            CONNECTION => {
                self.has_close |= has_token(value, "close");
                self.is_persistent |= has_token(value, "keep-alive");
            }
            EXPECT => {
                self.expects_continue = value.as_bytes().eq_ignore_ascii_case(b"100-continue");
            }
            TE => self.takes_trailers |= has_token(value, "trailers"),
            _ => {}
        }
        Ok(true)
    }

    fn into_head(self, request: Request<()>) -> Result<RequestHead, HeadError> {
        let decoder = match (self.is_chunked, self.length) {
            (Some(true), _) => Decoder::chunked(),
            // Its end cannot be found (RFC 9112, section 6.3).
            (Some(false), _) => return Err(HeadError::Malformed),
            (None, length) => Decoder::length(length.unwrap_or(0)),
        };
        // Another server may have taken the length: what follows may be part of the body.
        let is_ambiguous = self.is_chunked.is_some() && self.has_length;
        Ok(RequestHead {
            request,
            decoder,
            is_persistent: self.is_persistent && !self.has_close && !is_ambiguous,
            expects_continue: self.expects_continue && self.is_http11 && !decoder.is_done(),
            takes_trailers: self.takes_trailers,
        })
    }
}

/// A number of decimal digits alone.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    let digit = |sum: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}
