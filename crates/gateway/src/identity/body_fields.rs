//! Fields of request bodies.
//!
//! A body is read up to a bound, and forwarded as it came. One that servers read differently has no
//! fields: a limit would count another value than the one that the server uses.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use sluicegate_config::gateway::BodyFieldsConfig;
use sluicegate_rules::mapping::Source;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::BufferedBody;
use super::form::Form;
use super::json::UniqueNames;
use crate::body::RequestBody;
use crate::error::ProxyError;
use crate::tokens::TokenPlan;

/// Values by the index of their sources.
pub(super) type FieldValues = Box<[Option<Box<str>>]>;

/// Why fields of a body are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// There is none, or its type is another one.
    OtherType,
    /// It is longer than the bound.
    TooLong,
    /// It is malformed.
    Malformed,
    /// It did not arrive in time.
    Timeout,
    /// The client closed the connection, or broke the framing.
    Aborted,
}

/// The format of a body with fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Form,
}

/// A body that was read.
enum Fields<'a> {
    Json(UniqueNames),
    Form(Form<'a>),
}

/// Whether a source is a field of a body.
pub(super) fn is_field(source: &Source) -> bool {
    Format::of_source(source).is_some()
}

/// The body of a request, as far as it was read before.
pub(super) enum RequestBytes {
    Unread,
    Read(Vec<u8>),
}

/// Bytes of a request to a model that are read with one permit.
const PERMIT_BYTES: usize = 64 << 10;
/// Time for the body of a request to a model.
const MODEL_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the whole body of a request to a model. It is held until it is forwarded.
pub(super) async fn read_model_request(
    head: &Parts,
    body: &mut RequestBody,
    plan: &TokenPlan,
    memory: &Arc<Semaphore>,
) -> Result<Vec<u8>, ProxyError> {
    if !is_json(&head.headers) {
        let message = "A request to a model must be plain JSON with `Content-Type: application/json`, \
                       so that its tokens can be counted.";
        return Err(ProxyError::TokensUnreadable(message));
    }
    let bytes_max = plan.config.body_bytes_max;
    if content_length(&head.headers).is_some_and(|length| length > bytes_max as u64) {
        return Err(ProxyError::BodyTooLarge);
    }
    let mut buffered = BufferedBody::new(std::mem::replace(body, RequestBody::Empty));
    let read = async {
        // For what has come, and not for what a slow client may still send.
        loop {
            let permit = memory.clone().try_acquire_owned();
            buffered.add_permit(permit.map_err(|_| ProxyError::Overload)?);
            let has_ended = buffered.read_up_to(PERMIT_BYTES).await;
            let incomplete = ProxyError::BadRequest("The body of the request is incomplete.");
            let has_ended = has_ended.map_err(|_| incomplete)?;
            if buffered.length() > bytes_max {
                return Err(ProxyError::BodyTooLarge);
            }
            if has_ended {
                return Ok(());
            }
        }
    };
    timeout(MODEL_REQUEST_TIMEOUT, read).await.unwrap_or(Err(ProxyError::BodyTimeout))?;
    let bytes = buffered.bytes();
    *body = RequestBody::Buffered(Box::new(buffered));
    Ok(bytes)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a body and extracts fields.
pub(super) async fn read_fields(
    head: &Parts,
    body: &mut RequestBody,
    read: RequestBytes,
    config: BodyFieldsConfig,
    sources: &[Source],
) -> Result<FieldValues, BodyError> {
    let is_used =
        |format: &Format| sources.iter().any(|source| Format::of_source(source) == Some(*format));
    let format = Format::of_body(&head.headers).filter(is_used).ok_or(BodyError::OtherType)?;
    if body.is_empty() {
        return Err(BodyError::OtherType);
    }
    let bytes = match read {
        RequestBytes::Read(bytes) => bytes,
        RequestBytes::Unread => {
            let length = content_length(&head.headers);
            if length.is_some_and(|length| length > config.bytes_max as u64) {
                return Err(BodyError::TooLong);
            }
            let buffered = buffer(body, config.bytes_max, config.timeout).await?;
            buffered.ok_or(BodyError::TooLong)?
        }
    };
    let fields = match format {
        Format::Json => UniqueNames::parse(&bytes).map(Fields::Json),
        Format::Form => Form::parse(&bytes, head.uri.query()).map(Fields::Form),
    };
    let fields = fields.ok_or(BodyError::Malformed)?;
    Ok(sources.iter().map(|source| fields.value(source)).collect())
}

/// Whether a body is plain JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    Format::of_body(headers) == Some(Format::Json)
}

/// The whole body, if it is not longer than the bound; it can still be forwarded.
async fn buffer(
    body: &mut RequestBody,
    bytes_max: usize,
    time: Duration,
) -> Result<Option<Vec<u8>>, BodyError> {
    let mut buffered = BufferedBody::new(std::mem::replace(body, RequestBody::Empty));
    let read = timeout(time, buffered.read_up_to(bytes_max)).await;
    let bytes = match read {
        Err(_) => return Err(BodyError::Timeout),
        Ok(Err(_)) => return Err(BodyError::Aborted),
        Ok(Ok(is_complete)) => is_complete.then(|| buffered.bytes()),
    };
    *body = RequestBody::Buffered(Box::new(buffered));
    Ok(bytes)
}

impl Format {
    const fn of_source(source: &Source) -> Option<Self> {
        match source {
            Source::Json(_) => Some(Self::Json),
            Source::Form(_) => Some(Self::Form),
            _ => None,
        }
    }

    /// The format of a plain body in UTF-8.
    fn of_body(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(CONTENT_TYPE).iter();
        let (Some(text), None) = (lines.next(), lines.next()) else { return None };
        let text = text.to_str().ok()?.to_ascii_lowercase();
        // Servers differ in which type of a list they use.
        if text.contains(',') || headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let mut parts = text.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let is_utf8 = |part: &str| match part.split_once('=') {
            Some((name, value)) if name.trim() == "charset" => {
                value.trim().trim_matches('"') == "utf-8"
            }
            _ => true,
        };
        if !parts.all(is_utf8) {
            return None;
        }
        match essence {
            "application/json" => Some(Self::Json),
            "application/x-www-form-urlencoded" => Some(Self::Form),
            _ => essence.ends_with("+json").then_some(Self::Json),
        }
    }
}

impl Fields<'_> {
    fn value(&self, source: &Source) -> Option<Box<str>> {
        match (self, source) {
            (Self::Json(body), Source::Json(name)) => body.field(name),
            (Self::Form(form), Source::Form(name)) => form.field(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_plain_bodies_have_fields() {
        let form = Some(Format::Form);
        let json = Some(Format::Json);
        for (text, expected) in [
            ("application/json", json),
            ("Application/JSON; charset=utf-8", json),
            ("application/problem+json", json),
            ("application/json; charset=\"UTF-8\"", json),
            ("application/json; charset=utf-7", None),
            ("application/json; charset = utf-7", None),
            ("application/json; charset=utf-8; charset=utf-7", None),
            ("application/json; a=b, text/plain", None),
            ("text/plain", None),
            ("application/jsonp", None),
            ("application/x-www-form-urlencoded", form),
            ("Application/X-WWW-Form-URLEncoded;charset=UTF-8", form),
            ("application/x-www-form-urlencoded; charset=iso-8859-1", None),
            ("application/x-www-form-urlencoded; charset=utf-16", None),
            ("application/x-www-form-urlencoded, application/json", None),
            ("application/x-www-form-urlencoded; a=b, multipart/form-data; boundary=c", None),
            ("application/x-www-form-urlencoded+json", json),
            ("multipart/form-data; boundary=x", None),
        ] {
            let value = HeaderValue::from_static(text);
            let mut headers: HeaderMap = [(CONTENT_TYPE, value.clone())].into_iter().collect();
            assert_eq!(Format::of_body(&headers), expected, "{text}");
            headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            assert_eq!(Format::of_body(&headers), None, "two types");
            headers.insert(CONTENT_TYPE, value);
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert_eq!(Format::of_body(&headers), None, "compressed");
        }
        assert_eq!(Format::of_body(&HeaderMap::new()), None);
    }
}
