//! The client and its operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::builder::{Builder, ClientConfig};
use crate::decision::Decision;
use crate::denials::Denials;
use crate::dispatch::{Call, Dispatcher};
use crate::error::Error;
use crate::request::Request;
use crate::transport::Transport;
use crate::wire;

/// A client of a service. Clones share connections, the breaker and cached denials.
///
/// ```no_run
/// use sluicegate_client::{Client, Request};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sluicegate_client::Error> {
/// let client = Client::new("http://127.0.0.1:8080")?;
/// let alice = Request::new("shop").descriptor([("user", "alice")]);
/// if client.check(&alice).await?.allowed {
///     println!("at your service");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    dispatcher: Dispatcher,
    denials: Mutex<Denials>,
    counters: Counters,
}

/// Maximum checks per request.
const CHECKS_MAX: usize = 1_000;

impl Client {
    /// A client of the service at an address such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// When the address is invalid. No connection is made yet.
    pub fn new(address: impl Into<String>) -> Result<Self, Error> {
        Self::builder(address).build()
    }

    /// A builder with further options.
    pub fn builder(address: impl Into<String>) -> Builder {
        Builder::new(address.into())
    }

    pub(crate) fn with(transport: Transport, address: String, config: ClientConfig) -> Self {
        let dispatcher = Dispatcher::new(transport, address, &config);
        let denials = Mutex::new(Denials::new(config.denials));
        Self {
            inner: Arc::new(Inner { config, dispatcher, denials, counters: Counters::default() }),
        }
    }

    /// Checks a request and charges all its limits if it is allowed.
    ///
    /// # Errors
    /// When the service rejects the request, or does not answer and
    /// [`UnavailablePolicy`](crate::UnavailablePolicy) does not decide.
    pub async fn check(&self, request: &Request) -> Result<Decision, Error> {
        let identity = request.identity();
        if let Some(known) = self.known(&identity, request) {
            return Ok(known);
        }
        let call = self.call("check", "/v1/check", request.body(&identity, ""));
        let call = Call { key: request.key().map(str::to_owned), ..call };
        match self.send::<wire::CheckResponse>(call).await {
            Ok(answer) => Ok(self.remember(identity, request, answer.into())),
            Err(error) => self.by_policy(request, error),
        }
    }

    /// Checks a request without charging it.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn peek(&self, request: &Request) -> Result<Decision, Error> {
        let call = self.call("peek", "/v1/peek", request.body(&request.identity(), ""));
        match self.send::<wire::CheckResponse>(call).await {
            Ok(answer) => Ok(answer.into()),
            Err(error) => self.by_policy(request, error),
        }
    }

    /// Refunds a charged [`check`](Self::check) of the same request, once, within ten minutes.
    /// Returns the limits after the refund.
    ///
    /// Unless the client is an operator, the request needs the
    /// [`idempotency_key`](Request::idempotency_key) of the check, and the same node must answer
    /// both. With several nodes, use [`reserve`](Self::reserve) and cancel.
    ///
    /// ```no_run
    /// # async fn run(client: sluicegate_client::Client) -> Result<(), sluicegate_client::Error> {
    /// use sluicegate_client::Request;
    ///
    /// let request = Request::new("shop").descriptor([("export", "42")]).idempotency_key("b3f1c2d4-0001");
    /// if client.check(&request).await?.allowed {
    ///     // The export fails.
    ///     client.refund(&request).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the service rejects the refund or does not answer; no policy applies.
    pub async fn refund(&self, request: &Request) -> Result<Decision, Error> {
        let identity = request.identity();
        let call = self.call("refund", "/v1/refund", request.body(&identity, ""));
        let call = Call { key: request.key().map(str::to_owned), ..call };
        // The refund may happen without a response; cached denials are dropped before and after.
        self.forget(&identity);
        let answer = self.send::<wire::CheckResponse>(call).await;
        self.forget(&identity);
        Ok(answer?.into())
    }

    /// Checks several requests independently; returns the decisions in their order.
    ///
    /// # Errors
    /// As [`check`](Self::check). The service rejects a batch of up to 1,000 requests (1 MiB) as a
    /// whole.
    pub async fn check_many(&self, requests: &[Request]) -> Result<Vec<Decision>, Error> {
        let mut decisions = Vec::with_capacity(requests.len());
        for requests in requests.chunks(CHECKS_MAX) {
            self.check_some(requests, &mut decisions).await?;
        }
        Ok(decisions)
    }

    async fn check_some(&self, requests: &[Request], out: &mut Vec<Decision>) -> Result<(), Error> {
        let lookups = requests.iter().map(|request| {
            let identity = request.identity();
            let known = self.known(&identity, request);
            (request, identity, known)
        });
        let lookups: Vec<_> = lookups.collect();
        let unknown = lookups.iter().filter(|(.., known)| known.is_none());
        let bodies: Vec<_> =
            unknown.map(|(request, identity, _)| request.body(identity, "")).collect();
        let mut answers = match bodies.is_empty() {
            true => Ok(Vec::new().into_iter()),
            false => {
                let body = format!(r#"{{"checks":[{}]}}"#, bodies.join(","));
                let call = self.call("check", "/v1/check", body);
                self.send::<wire::BatchResponse>(call).await.map(|all| all.answers.into_iter())
            }
        };
        let too_few =
            || self.inner.dispatcher.unavailable("check", "omitted a response".to_owned());
        for (request, identity, known) in lookups {
            let answer = match (known, &mut answers) {
                (Some(known), _) => {
                    out.push(known);
                    continue;
                }
                (None, Ok(answers)) => answers.next().ok_or_else(too_few),
                (None, Err(error)) => Err(error.clone()),
            };
            out.push(match answer {
                Ok(answer) => self.remember(identity, request, answer.into()),
                Err(error) => self.by_policy(request, error)?,
            });
        }
        Ok(())
    }

    /// Counters of this client.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }

    // === shared by the other operations ===

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    pub(crate) fn call(&self, name: &'static str, path: &'static str, body: String) -> Call {
        let ClientConfig { timeout, tries, .. } = self.inner.config;
        Call { name, path, body, timeout, tries, key: None }
    }

    pub(crate) async fn send<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let Inner { config, dispatcher, counters, .. } = &*self.inner;
        dispatcher.dispatch(call, config, counters).await
    }

    /// A cached denial that is still valid.
    pub(crate) fn known(&self, identity: &str, request: &Request) -> Option<Decision> {
        let known = self.inner.denials.lock().known(identity, request.cost(), Instant::now());
        known.inspect(|_| self.inner.counters.remembered.add())
    }

    /// Caches a denial.
    pub(crate) fn remember(
        &self,
        identity: String,
        request: &Request,
        decision: Decision,
    ) -> Decision {
        self.inner.denials.lock().remember(identity, request.cost(), &decision, Instant::now());
        decision
    }

    /// Drops a cached denial after a refund.
    pub(crate) fn forget(&self, identity: &str) {
        self.inner.denials.lock().forget(identity);
    }

    /// The decision of the policy when the service is unavailable.
    pub(crate) fn by_policy(&self, request: &Request, error: Error) -> Result<Decision, Error> {
        match self.inner.config.on_unavailable.allows(request).filter(|_| error.is_unavailable()) {
            Some(allowed) => {
                self.inner.counters.by_policy.add();
                Ok(Decision::by_policy(allowed))
            }
            None => Err(error),
        }
    }
}

// === counters ===

/// Counters of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Requests sent, retries included.
    pub sent: u64,
    /// Retries.
    pub retried: u64,
    /// Requests without an answer.
    pub failed: u64,
    /// Denials answered from the cache.
    pub remembered: u64,
    /// Calls rejected by the open circuit breaker.
    pub short_circuited: u64,
    /// Decisions by [`UnavailablePolicy`](crate::UnavailablePolicy).
    pub by_policy: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: Counter,
    pub(crate) retried: Counter,
    pub(crate) failed: Counter,
    pub(crate) remembered: Counter,
    pub(crate) short_circuited: Counter,
    pub(crate) by_policy: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts {
            sent: self.sent.read(),
            retried: self.retried.read(),
            failed: self.failed.read(),
            remembered: self.remembered.read(),
            short_circuited: self.short_circuited.read(),
            by_policy: self.by_policy.read(),
        }
    }
}
