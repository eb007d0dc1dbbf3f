//! One question, sent once.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error as LinkError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::connect::Connector;
use crate::wire;

/// Sends questions on connections that it keeps.
#[derive(Debug)]
pub(crate) struct Post {
    links: Client<Connector, Full<Bytes>>,
    /// What paths are put behind.
    address: String,
}

/// A question, as it is sent.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    pub(crate) timeout: Duration,
    pub(crate) idempotency_key: Option<&'a str>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The service did not say anything of use.
    Away(Away),
    /// It said that it will not.
    Refused { status: u16, code: String, message: String },
}

#[derive(Debug)]
pub(crate) struct Away {
    pub(crate) why: String,
    pub(crate) again: Again,
    /// How long it wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

/// Whether it may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It did nothing: nothing can happen twice.
    Safely,
    /// It may have done it: only if it can tell that it is the same question.
    WithKey,
    /// It would say the same again.
    No,
}

/// Connections that are quiet for longer are closed: the service does so after two minutes.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// More quiet ones are closed at once: after a burst nobody needs them.
const IDLE_LINKS_MAX: usize = 100;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl Post {
    pub(crate) fn new(connector: Connector, address: String) -> Self {
        let links = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_LINKS_MAX)
            .build(connector);
        Self { links, address }
    }

    /// Sends a question, and waits for the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        question: &Question<'_>,
    ) -> Result<T, Unanswered> {
        match timeout(question.timeout, self.answer(question)).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("did not answer within {:?}", question.timeout);
                Err(away(why, Again::WithKey))
            }
        }
    }

    async fn answer<T: DeserializeOwned>(&self, question: &Question<'_>) -> Result<T, Unanswered> {
        let request = Request::post(format!("{}{}", self.address, question.path))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = match question.idempotency_key {
            Some(key) => request.header(IDEMPOTENCY_KEY, key),
            None => request,
        };
        let request = request.body(Full::new(question.body.clone()));
        let request =
            request.map_err(|error| away(format!("cannot be asked: {error}"), Again::No))?;
        let response = self.links.request(request).await.map_err(|error| unreached(&error))?;
        let (status, headers, body) = read(response).await?;
        match serde_json::from_slice(&body) {
            // A denial is an answer, whatever its status.
            Ok(answer) => Ok(answer),
            Err(error) if status.is_success() => {
                Err(away(format!("answered what is no answer: {error}"), Again::WithKey))
            }
            Err(_) => Err(refused(status, &headers, &body)),
        }
    }
}

async fn read(response: Response<Incoming>) -> Result<(StatusCode, HeaderMap, Bytes), Unanswered> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| away(format!("broke off: {error}"), Again::WithKey))?;
    Ok((head.status, head.headers, body.to_bytes()))
}

fn unreached(error: &LinkError) -> Unanswered {
    let (why, again) = match error.is_connect() {
        true => ("cannot be reached", Again::Safely),
        false => ("broke off", Again::WithKey),
    };
    let cause = deepest(error);
    away(format!("{why}: {cause}"), again)
}

/// The innermost cause says what happened; those around it only where.
fn deepest<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a dyn std::error::Error {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error
}

fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Unanswered {
    let (code, message) = wire::refusal(body);
    let told = headers.get(RETRY_AFTER).and_then(|told| told.to_str().ok()?.trim().parse().ok());
    let again = match status {
        // Whoever is busy, or is the proxy of somebody who is away.
        StatusCode::SERVICE_UNAVAILABLE => Again::Safely,
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => {
            Again::WithKey
        }
        _ if status.is_server_error() => Again::No,
        _ => return Unanswered::Refused { status: status.as_u16(), code, message },
    };
    let why = format!("answered {}: {message}", status.as_u16());
    Unanswered::Away(Away { why, again, retry_after: told.map(Duration::from_secs) })
}

fn away(why: String, again: Again) -> Unanswered {
    Unanswered::Away(Away { why, again, retry_after: None })
}
