//! What sends spans away, a batch at a time.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::options::{Endpoint, Options};
use super::post::post;
use super::span::Ended;
use super::{Counts, otlp};
use crate::logs::events;

/// The other end of a tracer: what waits, and where it goes.
#[derive(Debug)]
pub struct Exporter {
    options: Options,
    endpoint: Endpoint,
    spans: mpsc::Receiver<Ended>,
    counts: Arc<Counts>,
    /// What is sent next. It stays here until it was taken or refused, so that it is counted when there is no time for either.
    batch: Vec<Ended>,
}

/// Sends spans away until `stop` is ready, and then what still waits, for as long as [`Options::flush`] allows.
///
/// Run it beside the service. What the collector does not take is counted and lost: a collector that is down must not fill our memory, nor
/// our log.
pub async fn export(mut exporter: Exporter, stop: impl Future<Output = ()>) {
    tokio::pin!(stop);
    let flush = exporter.options.flush;
    let end = loop {
        tokio::select! {
            biased;
            () = &mut stop => break Instant::now() + flush,
            more = exporter.gather() => if !more { break Instant::now() + flush },
        }
        let sending = exporter.send();
        tokio::pin!(sending);
        tokio::select! {
            biased;
            () = &mut sending => {}
            // What is on its way may arrive: it is waited for, and not sent again.
            () = &mut stop => {
                let end = Instant::now() + flush;
                let _ = timeout_at(end, sending).await;
                break end;
            }
        }
    };
    exporter.spans.close();
    let _ = timeout_at(end, exporter.send_rest()).await;
    exporter.give_up();
}

impl Exporter {
    pub(super) fn new(options: Options, spans: mpsc::Receiver<Ended>, counts: Arc<Counts>) -> Self {
        let endpoint = options.target();
        Self { options, endpoint, spans, counts, batch: Vec::new() }
    }

    /// Waits for a batch, or for as much of it as comes in time; `false` when nobody will ask any more.
    async fn gather(&mut self) -> bool {
        let most = self.options.batch_max.max(1);
        if self.spans.recv_many(&mut self.batch, most).await == 0 {
            return false;
        }
        let due = sleep(self.options.delay);
        tokio::pin!(due);
        while self.batch.len() < most {
            let room = most - self.batch.len();
            tokio::select! {
                () = &mut due => break,
                count = self.spans.recv_many(&mut self.batch, room) => if count == 0 { break },
            }
        }
        true
    }

    async fn send_rest(&mut self) {
        let most = self.options.batch_max.max(1);
        loop {
            if self.batch.is_empty() && self.spans.recv_many(&mut self.batch, most).await == 0 {
                return;
            }
            self.send().await;
        }
    }

    async fn send(&mut self) {
        let Options { protocol, headers, resource, timeout: patience, .. } = &self.options;
        let bytes = otlp::request(resource, &self.batch);
        let sent = timeout(*patience, post(&self.endpoint, *protocol, headers, bytes)).await;
        let spans = self.batch.len() as u64;
        match sent {
            Ok(Ok(())) => self.counts.export(spans),
            Ok(Err(error)) => self.lose(spans, &error),
            Err(_) => self.lose(spans, &"the collector did not answer in time"),
        }
        self.batch.clear();
    }

    /// What was not sent in time will not be.
    fn give_up(&mut self) {
        let mut spans = self.batch.len() as u64;
        while self.spans.try_recv().is_ok() {
            spans += 1;
        }
        if spans > 0 {
            self.lose(spans, &"there was no time left at the end");
        }
    }

    fn lose(&self, spans: u64, why: &dyn std::fmt::Display) {
        self.counts.lose(spans);
        events::traces_lost(spans, why);
    }
}
