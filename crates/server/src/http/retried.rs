//! Whoever asks again with the same `Idempotency-Key` gets the answer that was given before.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sluicegate::Timestamp;

use super::Answering;
use super::error::Refusal;
use crate::counters::at_once;
use crate::reservations::{Before, KEY_BYTES_MAX, Kept, UnderWay};
use crate::telemetry::Door;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// That an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What a request may have to say about being one that was sent before.
#[derive(Debug)]
pub(in crate::http) struct RetryKey(Option<HeaderValue>);

impl RetryKey {
    #[inline]
    pub(in crate::http) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get(KEY).cloned())
    }

    /// The key, apart from that of the same name at another endpoint.
    fn at(&self, endpoint: Endpoint) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(key) = &self.0 else { return Ok(None) };
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(Refusal::invalid(format!(
                "`Idempotency-Key` has {} bytes, and must have 1 to {KEY_BYTES_MAX}; use a random text, such as a UUID",
                key.len()
            )));
        }
        let mut scoped = vec![endpoint as u8];
        scoped.extend_from_slice(key.as_bytes());
        Ok(Some(scoped))
    }
}

impl Answering {
    /// The answer that was given before under this key; or else this one, which is kept if it changed something.
    #[inline]
    pub(super) async fn once(
        &self,
        endpoint: Endpoint,
        key: &RetryKey,
        body: &[u8],
        now: Timestamp,
        answer: impl Future<Output = Result<Kept, Refusal>>,
    ) -> Result<Kept, Refusal> {
        match key.at(endpoint)? {
            None => answer.await,
            Some(key) if self.service.is_alone() => {
                // It waits for nothing, so whoever else has the same key can wait for it.
                let answer = || at_once(answer).unwrap_or_else(|| Err(still_waits()));
                self.once_under(&key, body, now, answer)
            }
            Some(_) => {
                let _under_way = self.begin(endpoint, key)?;
                if let Some(kept) = self.before(endpoint, key, body, now)? {
                    return Ok(kept);
                }
                let kept = answer.await?;
                self.keep(endpoint, key, body, &kept, now);
                Ok(kept)
            }
        }
    }

    fn once_under(
        &self,
        key: &[u8],
        body: &[u8],
        now: Timestamp,
        answer: impl FnOnce() -> Result<Kept, Refusal>,
    ) -> Result<Kept, Refusal> {
        let mut refused = None;
        let answers = self.service.holds().answers();
        let (kept, again) = answers.answer(key, body, now, || match answer() {
            Ok(kept) if changed(&kept) => {
                let bytes = kept.bytes();
                (kept.for_long(), Some(bytes))
            }
            Ok(kept) => (kept, None),
            Err(refusal) => {
                refused = Some(refusal);
                (Kept::default(), None)
            }
        });
        match (kept, refused) {
            (_, Some(refusal)) => Err(refusal),
            (Ok(kept), None) => Ok(if again { replayed(kept) } else { kept }),
            (Err(Before::Other), None) => Err(other_asked()),
        }
    }

    /// The same for whoever cannot answer at once: nobody else asks under this key meanwhile,
    pub(super) fn begin(
        &self,
        endpoint: Endpoint,
        key: &RetryKey,
    ) -> Result<Option<UnderWay<'_, Kept>>, Refusal> {
        let Some(key) = key.at(endpoint)? else { return Ok(None) };
        self.service.holds().answers().begin(&key).map(Some).ok_or_else(still_waits)
    }

    /// what was answered before,
    pub(super) fn before(
        &self,
        endpoint: Endpoint,
        key: &RetryKey,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Option<Kept>, Refusal> {
        let Some(key) = key.at(endpoint)? else { return Ok(None) };
        match self.service.holds().answers().before(&key, body, now) {
            Ok(kept) => Ok(kept.map(replayed)),
            Err(Before::Other) => Err(other_asked()),
        }
    }

    /// Consumes the stored answer of a charged check with this key and body; whether there was one.
    pub(super) fn take_charge(
        &self,
        key: &RetryKey,
        body: &[u8],
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let Some(key) = key.at(Endpoint::Check)? else { return Ok(false) };
        let answers = self.service.holds().answers();
        Ok(answers.take(&key, body, now, |kept| kept.is_refundable).is_some())
    }

    /// and what it is answered now.
    pub(super) fn keep(
        &self,
        endpoint: Endpoint,
        key: &RetryKey,
        body: &[u8],
        kept: &Kept,
        now: Timestamp,
    ) {
        if let (Ok(Some(key)), true) = (key.at(endpoint), changed(kept)) {
            let (bytes, kept) = (kept.bytes(), kept.clone().for_long());
            self.service.holds().answers().put(&key, body, kept, bytes, now);
        }
    }
}

/// A denial charged nothing: whoever asks again may go.
fn changed(kept: &Kept) -> bool {
    kept.status.is_success()
}

fn replayed(mut kept: Kept) -> Kept {
    kept.headers.insert(REPLAYED, HeaderValue::from_static("true"));
    kept
}

fn other_asked() -> Refusal {
    let message = "something else was asked under this `Idempotency-Key`; use another key for another request";
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message)
}

fn still_waits() -> Refusal {
    let message = "a request with this `Idempotency-Key` is still waiting; ask again when it is answered, or close its connection";
    Refusal::new(StatusCode::CONFLICT, "idempotency_key_in_use", message)
}
