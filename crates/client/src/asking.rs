//! A question, asked as often as it takes and as is good for the service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use crate::breaker::{Breaker, Way};
use crate::builder::Config;
use crate::chance::chance;
use crate::counts::Counters;
use crate::error::Error;
use crate::post::{Again, Away, Post, Question, Unanswered};
use crate::retry::Budget;

/// What all calls of a client share on their way out.
#[derive(Debug)]
pub(crate) struct Asking {
    post: Post,
    address: String,
    breaker: Mutex<Breaker>,
    budget: Mutex<Budget>,
    keys: Keys,
}

/// What is to be asked.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// As an error calls it: `check`.
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) body: String,
    /// For each try.
    pub(crate) timeout: Duration,
    pub(crate) tries: u32,
    /// The idempotency key, if the caller has chosen one.
    pub(crate) key: Option<String>,
}

/// Names for questions, of which no two are the same: a number of this client's, and how many there were before.
#[derive(Debug)]
struct Keys {
    client: [u64; 2],
    next: AtomicU64,
}

impl Asking {
    pub(crate) fn new(post: Post, address: String, config: &Config) -> Self {
        let keys = Keys { client: [chance(), chance()], next: AtomicU64::new(0) };
        let budget = Mutex::new(Budget::of(config.again_percent));
        Self { post, address, breaker: Mutex::default(), budget, keys }
    }

    /// The answer, after as many tries as are allowed.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        wanted: Wanted,
        config: &Config,
        counters: &Counters,
    ) -> Result<T, Error> {
        let Wanted { name, path, body, timeout, tries, key } = wanted;
        let way = self.breaker.lock().way(config.patience, Instant::now());
        if way == Way::Barred {
            counters.barred.add();
            let why = "was away several times in a row, and is looked for now and then".to_owned();
            return Err(self.away(name, why));
        }
        self.budget.lock().asked();
        let tries = if way == Way::Probe { 1 } else { tries };
        // Whoever never asks again needs no name for it.
        let generated = || (tries > 1 && config.idempotency_keys).then(|| self.keys.next());
        let key = key.or_else(generated);
        let idempotency_key = key.as_deref();
        let question = Question { path, body: Bytes::from(body), timeout, idempotency_key };
        let mut tried = 0;
        loop {
            tried += 1;
            counters.sent.add();
            let away = match self.post.ask(&question).await {
                Ok(answer) => {
                    self.breaker.lock().answered();
                    return Ok(answer);
                }
                Err(Unanswered::Refused { status, code, message }) => {
                    self.breaker.lock().answered();
                    let of = self.address.clone();
                    return Err(Error::Refused { wanted: name, of, status, code, message });
                }
                Err(Unanswered::Away(away)) => away,
            };
            counters.failed.add();
            let is_worth_it = self.breaker.lock().failed(config.patience, Instant::now());
            let may = is_worth_it && tried < tries && away.is_safe(key.is_some());
            let wait = config.backoff.before(tried, away.retry_after, chance()).filter(|_| may);
            let Some(wait) = wait.filter(|_| self.budget.lock().take()) else {
                let times = if tried > 1 { format!(" ({tried} tries)") } else { String::new() };
                return Err(self.away(name, away.why + &times));
            };
            sleep(wait).await;
            counters.retried.add();
        }
    }

    pub(crate) fn away(&self, wanted: &'static str, why: String) -> Error {
        Error::Away { wanted, of: self.address.clone(), why }
    }
}

impl Away {
    /// Whether nothing happens twice if it is asked again.
    fn is_safe(&self, has_key: bool) -> bool {
        match self.again {
            Again::Safely => true,
            Again::WithKey => has_key,
            Again::No => false,
        }
    }
}

impl Keys {
    fn next(&self) -> String {
        let [a, b] = self.client;
        format!("{a:016x}{b:016x}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}
