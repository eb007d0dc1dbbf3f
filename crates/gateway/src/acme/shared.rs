//! What nodes share through the store: account, certificates, pending challenges, and the right to
//! order. Private keys are in the store too, so access to it must be restricted.

use std::time::Duration;

use sluicegate_redis::{CallError, Store};
use tokio::time::{Instant, sleep};

/// Longer than one attempt takes: the lock of a node that crashed expires.
pub(super) const LOCK_TTL: Duration = Duration::from_secs(360);
/// Authorities verify within minutes.
const TOKEN_TTL: Duration = Duration::from_secs(600);
/// Longer than any certificate lives.
const STATE_TTL: Duration = Duration::from_secs(400 * 24 * 3_600);
/// Limit of the wait for the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_POLL: Duration = Duration::from_millis(20);

/// Values of all nodes that use one store.
#[derive(Debug, Clone)]
pub(crate) struct SharedState {
    store: Store,
    owner: String,
}

/// The right to order a certificate; other nodes wait for its result.
#[derive(Debug)]
pub(super) struct OrderLock {
    state: SharedState,
    name: String,
}

impl SharedState {
    pub(crate) fn new(store: Store) -> Self {
        // Several managers of one node order different domains.
        let owner = format!("{:016x}", fastrand::u64(..));
        Self { store, owner }
    }

    /// Waits until the first attempt to connect has ended.
    pub(super) async fn connected(&self) {
        let begin = Instant::now();
        while self.store.link().is_connecting() && begin.elapsed() < CONNECT_TIMEOUT {
            sleep(CONNECT_POLL).await;
        }
    }

    /// Reads a value of an authority: its account, or the certificate of a domain.
    pub(super) async fn read(
        &self,
        authority: &str,
        name: &str,
    ) -> Result<Option<String>, CallError> {
        let value = self.store.value(&format!("acme:{authority}:{name}")).await?;
        Ok(value.and_then(|bytes| String::from_utf8(bytes).ok()))
    }

    /// Writes a value of an authority.
    pub(super) async fn write(
        &self,
        authority: &str,
        name: &str,
        text: &str,
    ) -> Result<(), CallError> {
        let name = format!("acme:{authority}:{name}");
        self.store.set_value(&name, text.as_bytes(), STATE_TTL).await
    }

    /// Acquires the right to order a certificate; `None` while another node has it.
    pub(super) async fn lock(
        &self,
        authority: &str,
        domain: &str,
    ) -> Result<Option<OrderLock>, CallError> {
        let lock =
            OrderLock { name: format!("acme:{authority}:{domain}:lock"), state: self.clone() };
        match self.store.lock(&lock.name, &self.owner, LOCK_TTL).await {
            Ok(true) => Ok(Some(lock)),
            Ok(false) => Ok(None),
            Err(error) => {
                // It may have been acquired.
                lock.release().await;
                Err(error)
            }
        }
    }

    /// The key authorization of a token that any node waits for.
    pub(super) async fn token(&self, token: &str) -> Option<String> {
        let value = self.store.value(&format!("acme:token:{token}")).await.ok()??;
        String::from_utf8(value).ok()
    }

    pub(super) async fn add_token(&self, token: &str, value: &str) -> Result<(), CallError> {
        let name = format!("acme:token:{token}");
        self.store.set_value(&name, value.as_bytes(), TOKEN_TTL).await
    }

    pub(super) async fn remove_token(&self, token: &str) {
        // Otherwise it expires.
        let _ = self.store.remove_value(&format!("acme:token:{token}")).await;
    }
}

impl OrderLock {
    /// Releases it; otherwise it expires.
    pub(super) async fn release(self) {
        let _ = self.state.store.unlock(&self.name, &self.state.owner).await;
    }
}
