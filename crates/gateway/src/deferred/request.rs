//! A deferred request: what is stored of it, and its states.
//!
//! ```text
//!   queued ── running ── done                 the response is stored
//!     │  └──────┘ retry                       no connection, 429, 502, 503, 504
//!     └───────────────── expired, failed      dead letters, until they are redriven or deleted
//! ```

use std::time::Duration;

use http::header::HeaderName;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use serde::{Deserialize, Serialize};
use sluicegate::Timestamp;
use sluicegate::rules::request::{Descriptor, Entry, Request as LimitRequest};
use sluicegate_config::gateway::deferred::QueueConfig;

/// Milliseconds since the UNIX epoch.
pub(crate) type Millis = u64;

/// A deferred request, without its body and the body of its response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeferredRequest {
    /// Unguessable: it is the permission to read the ticket.
    pub(crate) id: String,
    /// Incremented by each change.
    pub(crate) version: u64,
    pub(crate) state: DeferredState,
    /// The requests with the same limits and identity, which are sent in order.
    pub(crate) queue: String,
    /// Order within its queue; 0 until it is stored.
    pub(crate) sequence: u64,
    pub(crate) route: String,
    pub(crate) upstream: String,
    pub(crate) created_at: Millis,
    pub(crate) expires_at: Millis,
    /// When it may be sent again, after a failure.
    pub(crate) due_at: Millis,
    /// When it is deleted, once it is final.
    pub(crate) deleted_at: Option<Millis>,
    pub(crate) attempts: u32,
    /// Why the last attempt failed.
    pub(crate) error: Option<String>,
    pub(crate) head: StoredHead,
    /// Bytes of its body.
    pub(crate) body_bytes: u64,
    pub(crate) charge: StoredCharge,
    pub(crate) delivery: StoredDelivery,
    pub(crate) bounds: StoredBounds,
    pub(crate) response: Option<StoredResponse>,
    pub(crate) callback: Option<StoredCallback>,
}

/// States of a deferred request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeferredState {
    /// It waits for its turn, or for another attempt.
    Queued,
    /// It is being sent.
    Running,
    /// The upstream has answered.
    Done,
    /// The upstream has not answered, however often it was tried.
    Failed,
    /// It is too old to be sent.
    Expired,
}

/// The states as stores list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting,
    Done,
    Dead,
}

/// Head of a request as it is forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredHead {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: StoredHeaders,
}

/// Names and values; each byte of a value is a character.
pub(crate) type StoredHeaders = Vec<(String, String)>;

/// What it charges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCharge {
    pub(crate) domain: String,
    pub(crate) hits: u64,
    pub(crate) descriptors: Vec<StoredDescriptor>,
}

/// A descriptor of its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredDescriptor {
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) hits: Option<u64>,
}

/// How it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredDelivery {
    /// Hash of the part that the server is chosen by.
    pub(crate) key: Option<u64>,
    pub(crate) priority: u8,
    pub(crate) client: u64,
}

/// Bounds of its route when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredBounds {
    pub(crate) attempts_max: u32,
    pub(crate) response_bytes_max: u64,
}

/// Head of the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredResponse {
    pub(crate) status: u16,
    pub(crate) headers: StoredHeaders,
    /// Bytes of its body; `None` if it was too large to be stored.
    pub(crate) body_bytes: Option<u64>,
}

/// Where the result is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCallback {
    pub(crate) url: String,
    pub(crate) attempts: u32,
    /// When it is sent, or sent again; `None` if it is not, or no longer.
    pub(crate) due_at: Option<Millis>,
    pub(crate) is_delivered: bool,
}

impl DeferredState {
    pub(crate) const ALL: [Self; 5] =
        [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Expired];

    /// Its name, in tickets and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }

    pub(crate) const fn stage(self) -> Stage {
        match self {
            Self::Queued | Self::Running => Stage::Waiting,
            Self::Done => Stage::Done,
            Self::Failed | Self::Expired => Stage::Dead,
        }
    }
}

impl DeferredRequest {
    /// Bytes that it takes of the bounds: head and bodies.
    pub(crate) fn bytes(&self) -> u64 {
        let length = |headers: &StoredHeaders| {
            headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>() as u64
        };
        let body = if self.state == DeferredState::Done { 0 } else { self.body_bytes };
        let response = self.response.as_ref().map_or(0, |response| {
            length(&response.headers).saturating_add(response.body_bytes.unwrap_or(0))
        });
        let head = length(&self.head.headers) + self.head.target.len() as u64;
        head.saturating_add(body).saturating_add(response)
    }

    /// When its callback is sent.
    pub(crate) fn callback_due_at(&self) -> Option<Millis> {
        self.callback.as_ref().and_then(|callback| callback.due_at)
    }

    /// It is sent again, as if it had come now.
    pub(crate) fn redrive(&mut self, now: Millis) {
        let age_max = self.expires_at.saturating_sub(self.created_at);
        self.state = DeferredState::Queued;
        (self.sequence, self.attempts, self.due_at) = (0, 0, 0);
        (self.error, self.deleted_at) = (None, None);
        self.expires_at = now.saturating_add(age_max);
        if let Some(callback) = &mut self.callback {
            (callback.attempts, callback.due_at, callback.is_delivered) = (0, None, false);
        }
    }

    /// It is final: kept for a while, and its result is sent.
    pub(crate) fn finish(&mut self, state: DeferredState, now: Millis, retention: Duration) {
        self.state = state;
        let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        self.deleted_at = Some(now.saturating_add(retention));
        if let Some(callback) = &mut self.callback {
            callback.due_at = Some(now);
        }
    }
}

impl StoredHead {
    /// Of a request as it is forwarded.
    pub(crate) fn new(head: &Parts) -> Self {
        let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        Self {
            method: head.method.as_str().to_owned(),
            target: target.to_owned(),
            headers: stored_headers(&head.headers),
        }
    }

    /// The head to send; `None` if it is damaged.
    pub(crate) fn to_parts(&self) -> Option<Parts> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::from_bytes(self.method.as_bytes()).ok()?;
        head.uri = self.target.parse::<Uri>().ok()?;
        head.headers = read_headers(&self.headers)?;
        Some(head)
    }
}

/// Headers to store.
pub(crate) fn stored_headers(headers: &HeaderMap) -> StoredHeaders {
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// Stored headers; `None` if they are damaged.
pub(crate) fn read_headers(stored: &StoredHeaders) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in stored {
        let bytes: Vec<u8> = value.chars().map(u8::try_from).collect::<Result<_, _>>().ok()?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(&bytes).ok()?);
    }
    Some(headers)
}

impl StoredCharge {
    /// What a request charges.
    pub(crate) fn new(request: &LimitRequest<'_>) -> Self {
        let entry = |entry: &Entry<'_>| (entry.key.to_owned(), entry.value.to_owned());
        let descriptor = |one: &Descriptor<'_>| StoredDescriptor {
            entries: one.entries.iter().map(entry).collect(),
            hits: one.hits,
        };
        Self {
            domain: request.domain.to_owned(),
            hits: request.hits,
            descriptors: request.descriptors.iter().map(descriptor).collect(),
        }
    }

    /// The entries of all descriptors.
    pub(crate) fn entries(&self) -> Vec<Vec<Entry<'_>>> {
        fn entries(one: &StoredDescriptor) -> Vec<Entry<'_>> {
            one.entries.iter().map(|(key, value)| Entry::new(key, value)).collect()
        }
        self.descriptors.iter().map(entries).collect()
    }

    /// The descriptors of these entries.
    pub(crate) fn descriptors<'a>(&self, entries: &'a [Vec<Entry<'a>>]) -> Vec<Descriptor<'a>> {
        let stored = self.descriptors.iter().zip(entries);
        stored
            .map(|(one, entries)| Descriptor { hits: one.hits, ..Descriptor::of(entries) })
            .collect()
    }

    /// The request of these descriptors.
    pub(crate) fn request<'a>(&'a self, descriptors: &'a [Descriptor<'a>]) -> LimitRequest<'a> {
        LimitRequest { domain: &self.domain, descriptors, hits: self.hits }
    }
}

impl StoredBounds {
    pub(crate) fn new(config: &QueueConfig) -> Self {
        Self {
            attempts_max: config.attempts_max,
            response_bytes_max: config.response_bytes_max as u64,
        }
    }
}

/// A time in milliseconds.
pub(crate) const fn millis(time: Timestamp) -> Millis {
    time.as_micros() / 1_000
}

/// The same as a time.
pub(crate) const fn timestamp(millis: Millis) -> Timestamp {
    Timestamp::from_micros(millis.saturating_mul(1_000))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A request of a queue.
    pub(crate) fn request(id: &str, queue: &str) -> DeferredRequest {
        DeferredRequest {
            id: id.to_owned(),
            version: 0,
            state: DeferredState::Queued,
            queue: queue.to_owned(),
            sequence: 0,
            route: "jobs".to_owned(),
            upstream: "app".to_owned(),
            created_at: 1_000,
            expires_at: 100_000,
            due_at: 0,
            deleted_at: None,
            attempts: 0,
            error: None,
            head: StoredHead {
                method: "POST".to_owned(),
                target: "/jobs?a=b".to_owned(),
                headers: vec![("x-name".to_owned(), "J\u{f6}rg".to_owned())],
            },
            body_bytes: 5,
            charge: StoredCharge { domain: "api".to_owned(), hits: 1, descriptors: Vec::new() },
            delivery: StoredDelivery { key: None, priority: 5, client: 0 },
            bounds: StoredBounds { attempts_max: 8, response_bytes_max: 100 },
            response: None,
            callback: None,
        }
    }

    #[test]
    fn a_head_is_sent_as_it_was_stored() {
        let stored = request("a", "q").head;
        let head = stored.to_parts().unwrap();
        assert_eq!((head.method.as_str(), head.uri.to_string().as_str()), ("POST", "/jobs?a=b"));
        assert_eq!(head.headers["x-name"].as_bytes(), b"J\xf6rg");
        assert_eq!(StoredHead::new(&head), stored);
        let damaged = StoredHead { method: "\n".to_owned(), ..stored };
        assert!(damaged.to_parts().is_none());
    }

    #[test]
    fn a_request_is_stored_as_json() {
        let one = request("a", "q");
        let text = serde_json::to_vec(&one).unwrap();
        assert_eq!(serde_json::from_slice::<DeferredRequest>(&text).unwrap(), one);
        assert_eq!(one.bytes(), 6 + 4 + 5 + 9 + 5, "one header, the target, the body");
    }
}
