//! The client: what can be asked.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::asking::{Asking, Wanted};
use crate::builder::{Builder, Config};
use crate::counts::{Counters, Counts};
use crate::decision::Decision;
use crate::denials::Denials;
use crate::error::Error;
use crate::post::Post;
use crate::request::Request;
use crate::wire;

/// Asks a service. Clones are the same client: they share connections and what they know.
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
    config: Config,
    asking: Asking,
    denials: Mutex<Denials>,
    counters: Counters,
}

/// The most checks that a service takes in one request.
const CHECKS_MAX: usize = 1_000;

// === impl Client ===

impl Client {
    /// A client of the service at an address such as `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// When the address is none. Whether anybody answers there is not looked at yet.
    pub fn new(address: impl Into<String>) -> Result<Self, Error> {
        Self::builder(address).build()
    }

    /// The same with more to say about it.
    pub fn builder(address: impl Into<String>) -> Builder {
        Builder::new(address.into())
    }

    pub(crate) fn with(post: Post, address: String, config: Config) -> Self {
        let asking = Asking::new(post, address, &config);
        let denials = Mutex::new(Denials::new(config.denials));
        Self { inner: Arc::new(Inner { config, asking, denials, counters: Counters::default() }) }
    }

    /// May this go? If so, everything that it is under is charged.
    ///
    /// # Errors
    /// When the service refuses the question, or does not answer and [`WhenAway`](crate::WhenAway) does not decide.
    pub async fn check(&self, request: &Request) -> Result<Decision, Error> {
        let who = request.who();
        if let Some(known) = self.known(&who, request) {
            return Ok(known);
        }
        let wanted = self.wanted("check", "/v1/check", request.body(&who, ""));
        let wanted = Wanted { key: request.key().map(str::to_owned), ..wanted };
        match self.ask::<wire::Answer>(wanted).await {
            Ok(answer) => Ok(self.heard(who, request, answer.into())),
            Err(error) => self.by_policy(request, error),
        }
    }

    /// Would it go? Nothing is charged.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn peek(&self, request: &Request) -> Result<Decision, Error> {
        let wanted = self.wanted("peek", "/v1/peek", request.body(&request.who(), ""));
        match self.ask::<wire::Answer>(wanted).await {
            Ok(answer) => Ok(answer.into()),
            Err(error) => self.by_policy(request, error),
        }
    }

    /// Refunds a charged [`check`](Self::check) of the same request, once, within ten minutes. The
    /// answer holds the limits after it.
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
    /// When the service refuses, or does not answer: no policy can give anything back.
    pub async fn refund(&self, request: &Request) -> Result<Decision, Error> {
        let who = request.who();
        let wanted = self.wanted("refund", "/v1/refund", request.body(&who, ""));
        let wanted = Wanted { key: request.key().map(str::to_owned), ..wanted };
        // It may have been given back even if that is not answered, or not waited for; and who asks meanwhile is still denied.
        self.forget(&who);
        let answer = self.ask::<wire::Answer>(wanted).await;
        self.forget(&who);
        Ok(answer?.into())
    }

    /// Several questions at once, each judged by itself; the answers in their order.
    ///
    /// # Errors
    /// As [`check`](Self::check). If the service refuses one of them it refuses all that were sent with it: up to 1,000 are, and they may
    /// have 1 MiB together.
    pub async fn check_many(&self, requests: &[Request]) -> Result<Vec<Decision>, Error> {
        let mut decisions = Vec::with_capacity(requests.len());
        for requests in requests.chunks(CHECKS_MAX) {
            self.check_some(requests, &mut decisions).await?;
        }
        Ok(decisions)
    }

    async fn check_some(&self, requests: &[Request], out: &mut Vec<Decision>) -> Result<(), Error> {
        let asked = requests.iter().map(|request| {
            let who = request.who();
            let known = self.known(&who, request);
            (request, who, known)
        });
        let asked: Vec<_> = asked.collect();
        let unknown = asked.iter().filter(|(.., known)| known.is_none());
        let bodies: Vec<_> = unknown.map(|(request, who, _)| request.body(who, "")).collect();
        let mut answers = match bodies.is_empty() {
            true => Ok(Vec::new().into_iter()),
            false => {
                let body = format!(r#"{{"checks":[{}]}}"#, bodies.join(","));
                let wanted = self.wanted("check", "/v1/check", body);
                self.ask::<wire::Answers>(wanted).await.map(|all| all.answers.into_iter())
            }
        };
        let too_few = || self.inner.asking.away("check", "left out an answer".to_owned());
        for (request, who, known) in asked {
            let answer = match (known, &mut answers) {
                (Some(known), _) => {
                    out.push(known);
                    continue;
                }
                (None, Ok(answers)) => answers.next().ok_or_else(too_few),
                (None, Err(error)) => Err(error.clone()),
            };
            out.push(match answer {
                Ok(answer) => self.heard(who, request, answer.into()),
                Err(error) => self.by_policy(request, error)?,
            });
        }
        Ok(())
    }

    /// What this client did so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }

    // === what the other ways to ask share ===

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    pub(crate) fn wanted(&self, name: &'static str, path: &'static str, body: String) -> Wanted {
        let Config { timeout, tries, .. } = self.inner.config;
        Wanted { name, path, body, timeout, tries, key: None }
    }

    pub(crate) async fn ask<T: DeserializeOwned>(&self, wanted: Wanted) -> Result<T, Error> {
        let Inner { config, asking, counters, .. } = &*self.inner;
        asking.ask(wanted, config, counters).await
    }

    /// What the service said of this a while ago, if it would say so again.
    pub(crate) fn known(&self, who: &str, request: &Request) -> Option<Decision> {
        let known = self.inner.denials.lock().known(who, request.cost(), Instant::now());
        known.inspect(|_| self.inner.counters.remembered.add())
    }

    /// Keeps in mind what the service said.
    pub(crate) fn heard(&self, who: String, request: &Request, said: Decision) -> Decision {
        self.inner.denials.lock().heard(who, request.cost(), &said, Instant::now());
        said
    }

    /// Something was given back: who was denied may pass now.
    pub(crate) fn forget(&self, who: &str) {
        self.inner.denials.lock().forget(who);
    }

    /// What is answered in place of a service that is away. That it refuses is for the caller to know.
    pub(crate) fn by_policy(&self, request: &Request, error: Error) -> Result<Decision, Error> {
        match self.inner.config.when_away.allows(request).filter(|_| error.is_away()) {
            Some(allowed) => {
                self.inner.counters.by_policy.add();
                Ok(Decision::by_policy(allowed))
            }
            None => Err(error),
        }
    }
}
