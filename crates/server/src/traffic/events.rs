//! Events of this node for open consoles: a stream of Server-Sent Events for each.
//!
//! ```text
//!   publish -> ring of 256 events -> one task for each stream -> client
//! ```
//!
//! A client that falls 256 events behind gets the event `dropped`, and its stream ends; it may
//! reconnect. Nothing is rendered while no stream is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::broadcast;

/// Open streams.
pub const STREAMS_MAX: usize = 64;
/// Events that a client may be behind.
const BEHIND_MAX: usize = 256;
/// Denials per second that are published; of more, the first.
pub const DENIALS_PER_SECOND: u32 = 20;

/// Events of a node. Clones share them.
#[derive(Debug, Clone)]
pub struct Events {
    inner: Arc<EventsInner>,
}

#[derive(Debug)]
struct EventsInner {
    ring: broadcast::Sender<Bytes>,
    streams: AtomicUsize,
    next_id: AtomicU64,
    /// Denials that may be published in this second.
    denials: AtomicU32,
}

/// One open stream.
#[derive(Debug)]
pub struct EventReceiver {
    ring: broadcast::Receiver<Bytes>,
    events: Events,
}

impl Events {
    /// Publishes an event to all open streams.
    pub fn publish(&self, kind: &str, data: impl FnOnce() -> Value) {
        if self.has_streams() {
            let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
            // Fails without a receiver, which is no error.
            let _ = self.inner.ring.send(encode(kind, Some(id), &data()));
        }
    }

    /// Whether any stream is open.
    #[inline]
    #[must_use]
    pub fn has_streams(&self) -> bool {
        self.inner.streams.load(Ordering::Relaxed) > 0
    }

    /// Whether a denial is to be published.
    #[inline]
    #[must_use]
    pub fn takes_denial(&self) -> bool {
        let take = |left: u32| left.checked_sub(1);
        self.has_streams()
            && self.inner.denials.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Begins a new second.
    pub(super) fn tick(&self) {
        self.inner.denials.store(DENIALS_PER_SECOND, Ordering::Relaxed);
    }

    /// Opens a stream; `None` if too many are open.
    #[must_use]
    pub fn open(&self) -> Option<EventReceiver> {
        let add = |streams: usize| (streams < STREAMS_MAX).then_some(streams + 1);
        self.inner.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(EventReceiver { ring: self.inner.ring.subscribe(), events: self.clone() })
    }
}

impl Default for Events {
    fn default() -> Self {
        let inner = EventsInner {
            ring: broadcast::Sender::new(BEHIND_MAX),
            streams: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            denials: AtomicU32::new(DENIALS_PER_SECOND),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl EventReceiver {
    /// The next event; `Err` with the number of lost ones if the client was too slow.
    ///
    /// # Errors
    /// When events were lost.
    pub async fn next(&mut self) -> Result<Bytes, u64> {
        match self.ring.recv().await {
            Ok(event) => Ok(event),
            Err(broadcast::error::RecvError::Lagged(lost)) => Err(lost),
            // The sender lives as long as this value.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        self.events.inner.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An event as it is sent. JSON has no line breaks.
pub(crate) fn encode(kind: &str, id: Option<u64>, data: &Value) -> Bytes {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    format!("event: {kind}\n{id}data: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(event: Result<Bytes, u64>) -> String {
        String::from_utf8(event.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn every_open_stream_gets_every_event() {
        let events = Events::default();
        events.publish("tick", || panic!("no stream is open"));
        let mut streams = [events.open().unwrap(), events.open().unwrap()];
        events.publish("tick", || json!({ "text": "two\nlines" }));
        for stream in &mut streams {
            assert_eq!(
                text(stream.next().await),
                "event: tick\nid: 1\ndata: {\"text\":\"two\\nlines\"}\n\n"
            );
        }
        drop(streams);
        assert!(!events.has_streams());
    }

    #[tokio::test]
    async fn a_slow_stream_learns_that_it_lost_events() {
        let events = Events::default();
        let mut stream = events.open().unwrap();
        for number in 0..BEHIND_MAX + 3 {
            events.publish("tick", || number.into());
        }
        assert_eq!(stream.next().await, Err(3));
    }

    #[test]
    fn streams_and_denials_are_bounded() {
        let events = Events::default();
        assert!(!events.takes_denial(), "no stream is open");
        let streams: Vec<_> = (0..STREAMS_MAX).map(|_| events.open().unwrap()).collect();
        assert!(events.open().is_none());
        let taken = |events: &Events| (0..100).filter(|_| events.takes_denial()).count();
        assert_eq!((taken(&events), taken(&events)), (DENIALS_PER_SECOND as usize, 0));
        events.tick();
        assert_eq!(taken(&events), DENIALS_PER_SECOND as usize);
        drop(streams);
        assert!(events.open().is_some());
    }
}
