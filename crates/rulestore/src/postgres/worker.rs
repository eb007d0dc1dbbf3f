//! The task of a node that follows the database.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Listener, describe};
use super::rows::Head;
use super::{PostgresInner, cache, rows, schema};
use crate::ledger::Command;
use crate::revision::Revision;
use crate::store::StoreEvent;

/// Polls with LISTEN: a lost hint costs no more than this.
const POLL_LISTENING: Duration = Duration::from_millis(750);
/// Polls without it, as behind a pooler of transactions that refuses it.
const POLL_ALONE: Duration = Duration::from_millis(300);
/// Time for the queries of one poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(4);
const MIGRATE_TIMEOUT: Duration = Duration::from_secs(25);
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// Pauses between attempts to connect: the first, doubled up to the last, with jitter.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(3);

/// Follows the database until the task is aborted.
pub(super) async fn run(inner: Arc<PostgresInner>) {
    let node = format!("{:016x}", fastrand::u64(..));
    let mut backoff = BACKOFF_FIRST;
    let mut is_reported = false;
    loop {
        let mut session = Session { inner: &inner, node: &node, was_connected: false, now: None };
        let Err(reason) = session.run(&mut is_reported).await;
        if session.was_connected {
            backoff = BACKOFF_FIRST;
        }
        inner.shared.status.set_connected(false);
        inner.received.set_failure(&reason);
        if !is_reported {
            inner.shared.report(StoreEvent::Disconnected(reason));
            is_reported = true;
        }
        // Nodes that lost the same server do not come back at the same time.
        sleep(backoff.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// One connection.
struct Session<'a> {
    inner: &'a PostgresInner,
    node: &'a str,
    was_connected: bool,
    /// The time of the database at the last poll, and that of this node.
    now: Option<(Timestamp, Instant)>,
}

impl Session<'_> {
    /// Follows until the connection fails: the reason.
    async fn run(&mut self, is_reported: &mut bool) -> Result<std::convert::Infallible, String> {
        let inner = self.inner;
        let mut listener = inner.database.listener().await?;
        bounded(MIGRATE_TIMEOUT, schema::migrate(&mut listener.client)).await?;
        // Hints from here on are received; what came before is read now.
        let is_listening =
            bounded(POLL_TIMEOUT, listener.client.batch_execute(schema::LISTEN)).await.is_ok();
        if listener.client.is_closed() {
            return Err("the connection was closed".to_owned());
        }
        self.poll(&listener).await?;
        self.was_connected = true;
        if *is_reported {
            *is_reported = false;
            inner.shared.report(StoreEvent::Connected);
        }
        if inner.received.active_id().is_none() {
            inner.shared.report(StoreEvent::Empty);
        }
        let every = if is_listening { POLL_LISTENING } else { POLL_ALONE };
        let mut heartbeat_at = Instant::now();
        let mut reported = None;
        loop {
            let enforced = inner.shared.status.enforced();
            if heartbeat_at <= Instant::now() || reported != Some(enforced) {
                self.heartbeat(&listener, enforced).await?;
                heartbeat_at = Instant::now() + HEARTBEAT_EVERY;
                reported = Some(enforced);
            }
            tokio::select! {
                () = listener.notified.notified() => {}
                () = inner.changed.notified() => {}
                () = inner.shared.status.enforced_other_than(enforced) => {}
                () = sleep(self.until_due(every)) => {}
            }
            self.poll(&listener).await?;
        }
    }

    /// Reads what has changed, and activates what is due.
    async fn poll(&mut self, listener: &Listener) -> Result<(), String> {
        let inner = self.inner;
        let head = bounded(POLL_TIMEOUT, rows::head(&listener.client)).await?;
        self.now = Some((head.now, Instant::now()));
        inner.shared.status.set_connected(true);
        let now = inner.shared.now().as_second().unsigned_abs();
        inner.shared.status.contacted_at.store(now, Ordering::Relaxed);
        inner.shared.status.served_from_cache.store(false, Ordering::Relaxed);
        if inner.received.version() != Some(head.version) {
            self.fetch(listener).await?;
        }
        if inner.received.ledger().next_due().is_some_and(|at| at <= head.now) {
            // Any node, once: the row of the head decides. A failure is repeated at the next poll.
            if let Err(error) = inner.commit(Command::ActivateDue).await {
                inner.shared.report(StoreEvent::Failed(error.to_string()));
            }
            self.fetch(listener).await?;
        }
        Ok(())
    }

    async fn fetch(&self, listener: &Listener) -> Result<(), String> {
        let inner = self.inner;
        let fetch = async {
            // One snapshot, so that the files are those of the active revision.
            let client = &listener.client;
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            client.batch_execute(begin).await?;
            let Head { version, active, .. } = rows::head(client).await?;
            let ledger = rows::ledger(client).await?;
            let id = ledger.active.as_ref().map(Revision::id);
            let known = inner.received.active().filter(|stored| Some(stored.revision.id()) == id);
            let active = match (known, active) {
                (Some(known), _) => Some(known),
                (None, Some(active)) => rows::stored(client, active).await?,
                (None, None) => None,
            };
            client.batch_execute("COMMIT").await?;
            Ok((version, ledger, active))
        };
        let (version, ledger, active) = bounded(POLL_TIMEOUT, fetch).await?;
        if !inner.received.set(version, ledger, active.clone()) {
            return Ok(());
        }
        inner.shared.wake();
        if let (Some(active), Some(path)) = (active, &inner.options.cache) {
            let (path, now) = (path.clone(), inner.shared.now());
            let write = move || cache::write(&path, &active, now);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
                let message = format!("the copy of the rules cannot be written: {error}");
                inner.shared.report(StoreEvent::Failed(message));
            }
        }
        Ok(())
    }

    async fn heartbeat(&self, listener: &Listener, enforced: u64) -> Result<(), String> {
        let inner = self.inner;
        let active = inner.received.active_revision();
        let digest = active.filter(|active| active.number == enforced).map(|active| active.digest);
        let beat = rows::heartbeat(
            &listener.client,
            self.node,
            &inner.options.node_name,
            Some(enforced).filter(|enforced| *enforced > 0),
            digest.as_deref().unwrap_or_default(),
        );
        match bounded(POLL_TIMEOUT, beat).await {
            // A user that may only read follows all the same.
            Err(_) if !listener.client.is_closed() => Ok(()),
            result => result,
        }
    }

    /// Time until the next poll: sooner if a revision is due.
    fn until_due(&self, every: Duration) -> Duration {
        let Some(due) = self.inner.received.ledger().next_due() else { return every };
        let Some((now, read_at)) = self.now else { return every };
        let left = Duration::try_from(due.duration_since(now)).unwrap_or_default();
        let left = left.saturating_sub(read_at.elapsed());
        left.clamp(Duration::from_millis(50), every)
    }
}

async fn bounded<T>(
    time: Duration,
    run: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, String> {
    match timeout(time, run).await {
        Ok(result) => result.map_err(|error| describe(&error)),
        Err(_) => Err("the database does not answer in time".to_owned()),
    }
}
