//! Sends a call with retries, within the breaker and the retry budget.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use crate::breaker::{Admission, Breaker};
use crate::builder::ClientConfig;
use crate::client::Counters;
use crate::error::Error;
use crate::retry::Budget;
use crate::transport::{Failure, HttpCall, Retry, Transport, Unavailable};

/// State shared by all calls of a client.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    transport: Transport,
    address: String,
    breaker: Mutex<Breaker>,
    budget: Mutex<Budget>,
    keys: Keys,
}

/// A call and its bounds.
#[derive(Debug)]
pub(crate) struct Call {
    /// The name in errors, as `check`.
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) body: String,
    /// Per attempt.
    pub(crate) timeout: Duration,
    pub(crate) tries: u32,
    /// The idempotency key, if the caller has chosen one.
    pub(crate) key: Option<String>,
}

/// Generates idempotency keys: the client's number and a counter.
#[derive(Debug)]
struct Keys {
    client: [u64; 2],
    next: AtomicU64,
}

impl Dispatcher {
    pub(crate) fn new(transport: Transport, address: String, config: &ClientConfig) -> Self {
        // Keys must be unique among all clients: these are seeded by the operating system.
        let unique = || RandomState::new().hash_one(());
        let keys = Keys { client: [unique(), unique()], next: AtomicU64::new(0) };
        let budget = Mutex::new(Budget::of(config.retry_percent));
        Self { transport, address, breaker: Mutex::default(), budget, keys }
    }

    /// Sends the call until it is answered or must not be retried.
    pub(crate) async fn dispatch<T: DeserializeOwned>(
        &self,
        call: Call,
        config: &ClientConfig,
        counters: &Counters,
    ) -> Result<T, Error> {
        let Call { name, path, body, timeout, tries, key } = call;
        let admission = self.breaker.lock().admit(config.breaker, Instant::now());
        if admission == Admission::Reject {
            counters.short_circuited.add();
            let why = "failed several times in a row; the circuit breaker is open".to_owned();
            return Err(self.unavailable(name, why));
        }
        self.budget.lock().add_call();
        let tries = if admission == Admission::Probe { 1 } else { tries };
        // A call without retries needs no key.
        let generated = || (tries > 1 && config.idempotency_keys).then(|| self.keys.next());
        let key = key.or_else(generated);
        let idempotency_key = key.as_deref();
        let call = HttpCall { path, body: Bytes::from(body), timeout, idempotency_key };
        let mut tried = 0;
        loop {
            tried += 1;
            counters.sent.add();
            let failure = match self.transport.send(&call).await {
                Ok(answer) => {
                    self.breaker.lock().answered();
                    return Ok(answer);
                }
                Err(Failure::Refused { status, code, message }) => {
                    self.breaker.lock().answered();
                    let of = self.address.clone();
                    return Err(Error::Refused { operation: name, of, status, code, message });
                }
                Err(Failure::Unavailable(failure)) => failure,
            };
            counters.failed.add();
            let is_closed = self.breaker.lock().failed(config.breaker, Instant::now());
            let may = is_closed && tried < tries && failure.is_safe(key.is_some());
            let wait = config
                .backoff
                .before(tried, failure.retry_after, fastrand::u64(..))
                .filter(|_| may);
            let Some(wait) = wait.filter(|_| self.budget.lock().take()) else {
                let times = if tried > 1 { format!(" ({tried} tries)") } else { String::new() };
                return Err(self.unavailable(name, failure.why + &times));
            };
            sleep(wait).await;
            counters.retried.add();
        }
    }

    pub(crate) fn unavailable(&self, operation: &'static str, why: String) -> Error {
        Error::Unavailable { operation, of: self.address.clone(), why }
    }
}

impl Unavailable {
    /// Whether a retry cannot charge twice.
    fn is_safe(&self, has_key: bool) -> bool {
        match self.retry {
            Retry::Safe => true,
            Retry::WithKey => has_key,
            Retry::Never => false,
        }
    }
}

impl Keys {
    fn next(&self) -> String {
        let [a, b] = self.client;
        format!("{a:016x}{b:016x}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}
