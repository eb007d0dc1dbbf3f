//! Headers that a route sets and removes, with placeholders, and the id of a request.

use std::net::IpAddr;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue};
use sluicegate_config::gateway::placeholder::{
    HEADER_PLACEHOLDERS, TemplatePiece, pieces, unknown_placeholder,
};
use sluicegate_config::gateway::route::HeaderChanges;

/// Bytes of a request id that is accepted from a proxy.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// They say where a message ends: a route must not change them.
const FRAMING: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE];

/// Changes, compiled.
#[derive(Debug, Default)]
pub(crate) struct HeaderEdits {
    set: Vec<(HeaderName, Vec<HeaderPiece>)>,
    remove: Vec<HeaderName>,
}

/// A part of a value.
#[derive(Debug, PartialEq, Eq)]
enum HeaderPiece {
    Text(String),
    ClientIp,
    RequestId,
    Host,
}

/// What placeholders stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placeholders<'a> {
    pub(crate) client: Option<IpAddr>,
    pub(crate) request_id: Option<&'a HeaderValue>,
    pub(crate) host: &'a str,
}

impl HeaderEdits {
    /// Compiles changes; `None` if there are none.
    ///
    /// # Errors
    /// All headers that cannot be changed, such as `set.Connection`, with the reason.
    pub(crate) fn new(changes: &HeaderChanges) -> Result<Option<Self>, Vec<(String, String)>> {
        let name = |text: &String| {
            let name = HeaderName::from_bytes(text.as_bytes());
            let name = name.map_err(|_| format!("`{text}` is not the name of a header"))?;
            match FRAMING.contains(&name) {
                true => Err(format!("`{text}` cannot be changed: it frames messages; remove it")),
                false => Ok(name),
            }
        };
        let mut errors = Vec::new();
        let mut edits = Self::default();
        for (key, value) in &changes.set {
            match name(key).and_then(|name| Ok((name, compile(value)?))) {
                Ok(change) => edits.set.push(change),
                Err(message) => errors.push((format!("set.{key}"), message)),
            }
        }
        for key in &changes.remove {
            match name(key) {
                Ok(name) => edits.remove.push(name),
                Err(message) => errors.push((format!("remove.{key}"), message)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let is_empty = edits.set.is_empty() && edits.remove.is_empty();
        Ok((!is_empty).then_some(edits))
    }

    /// Applies them.
    pub(crate) fn apply(&self, headers: &mut HeaderMap, values: Placeholders<'_>) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, pieces) in &self.set {
            let mut value = Vec::new();
            for piece in pieces {
                match piece {
                    HeaderPiece::Text(text) => value.extend_from_slice(text.as_bytes()),
                    HeaderPiece::ClientIp => {
                        let client = values.client.map(|client| client.to_string());
                        value.extend_from_slice(client.unwrap_or_default().as_bytes());
                    }
                    HeaderPiece::RequestId => {
                        let id = values.request_id.map(HeaderValue::as_bytes);
                        value.extend_from_slice(id.unwrap_or_default());
                    }
                    HeaderPiece::Host => value.extend_from_slice(values.host.as_bytes()),
                }
            }
            // A header is never left to the client: what it sent under this name is removed.
            match HeaderValue::from_maybe_shared(bytes::Bytes::from(value)) {
                Ok(value) => _ = headers.insert(name.clone(), value),
                Err(_) => _ = headers.remove(name),
            }
        }
    }
}

fn compile(text: &str) -> Result<Vec<HeaderPiece>, String> {
    let piece = |piece| match piece {
        TemplatePiece::Text(text) => Ok(HeaderPiece::Text(text.to_owned())),
        TemplatePiece::Placeholder("client_ip") => Ok(HeaderPiece::ClientIp),
        TemplatePiece::Placeholder("request_id") => Ok(HeaderPiece::RequestId),
        TemplatePiece::Placeholder("host") => Ok(HeaderPiece::Host),
        TemplatePiece::Placeholder(name) => Err(unknown_placeholder(name, &HEADER_PLACEHOLDERS)),
    };
    pieces(text).into_iter().map(piece).collect()
}

/// The id of a request: that of a trusted proxy, or a new one.
pub(crate) fn request_id(headers: &HeaderMap, name: &HeaderName, is_trusted: bool) -> HeaderValue {
    let is_valid = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    match headers.get(name).filter(|_| is_trusted).filter(is_valid) {
        Some(known) => known.clone(),
        // Hexadecimal digits are a valid value.
        None => HeaderValue::try_from(format!("{:032x}", fastrand::u128(..)))
            .unwrap_or(HeaderValue::from_static("0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: HeaderName = HeaderName::from_static("x-request-id");

    fn edits(set: &[(&str, &str)], remove: &[&str]) -> Result<Option<HeaderEdits>, String> {
        let changes = HeaderChanges {
            set: set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            remove: remove.iter().map(|name| (*name).into()).collect(),
        };
        HeaderEdits::new(&changes).map_err(|errors| format!("{errors:?}"))
    }

    #[test]
    fn placeholders_are_replaced() {
        let id = HeaderValue::from_static("abc");
        let values = Placeholders {
            client: Some([192, 0, 2, 1].into()),
            request_id: Some(&id),
            host: "a.example",
        };
        let set = [
            ("X-All", "{client_ip}/{request_id}/{host}!{{host}}"),
            ("Server", "gate"),
            ("X-E", ""),
        ];
        let edits = edits(&set, &["X-Powered-By"]).unwrap().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-powered-by", HeaderValue::from_static("php"));
        headers.append("server", HeaderValue::from_static("a"));
        headers.append("server", HeaderValue::from_static("b"));
        edits.apply(&mut headers, values);
        assert_eq!(headers["x-all"], "192.0.2.1/abc/a.example!{host}");
        assert_eq!(headers.get_all("server").iter().collect::<Vec<_>>(), ["gate"]);
        assert!(!headers.contains_key("x-powered-by"));
    }

    #[test]
    fn unknown_placeholders_are_refused() {
        let error = edits(&[("X-Client", "{clientip}")], &[]).unwrap_err();
        assert!(error.contains("`{clientip}`; did you mean `{client_ip}`?"), "{error}");
    }

    #[test]
    fn nothing_to_change_costs_nothing_and_framing_stays() {
        assert!(edits(&[], &[]).unwrap().is_none());
        for name in ["Content-Length", "transfer-encoding"] {
            assert!(edits(&[(name, "1")], &[]).unwrap_err().contains("frames messages"));
            assert!(edits(&[], &[name]).is_err());
        }
    }

    #[test]
    fn an_id_is_believed_of_trusted_proxies_only() {
        let mut headers = HeaderMap::new();
        headers.insert(ID, HeaderValue::from_static("from-proxy"));
        assert_eq!(request_id(&headers, &ID, true), "from-proxy");
        let generated = request_id(&headers, &ID, false);
        assert_eq!(generated.len(), 32);
        assert_ne!(generated, request_id(&headers, &ID, false));
        for bad in ["", "a b", &"x".repeat(129)] {
            headers.insert(ID, HeaderValue::from_str(bad).unwrap());
            assert_eq!(request_id(&headers, &ID, true).len(), 32, "{bad}");
        }
    }
}
