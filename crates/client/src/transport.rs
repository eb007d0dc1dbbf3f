//! HTTP transport: one request, one response.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::connect::Connector;
use crate::wire;

/// A pool of connections to the service.
#[derive(Debug)]
pub(crate) struct Transport {
    connections: Client<Connector, Full<Bytes>>,
    /// Prefix of the paths.
    address: String,
}

/// An HTTP request.
#[derive(Debug)]
pub(crate) struct HttpCall<'a> {
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    pub(crate) timeout: Duration,
    pub(crate) idempotency_key: Option<&'a str>,
}

/// Why a call was not answered.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No valid response.
    Unavailable(Unavailable),
    /// The service rejected the call.
    Refused { status: u16, code: String, message: String },
}

#[derive(Debug)]
pub(crate) struct Unavailable {
    pub(crate) why: String,
    pub(crate) retry: Retry,
    /// `Retry-After` of the service.
    pub(crate) retry_after: Option<Duration>,
}

/// Whether the call may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The call had no effect.
    Safe,
    /// The call may have had an effect: only with an idempotency key.
    WithKey,
    /// A retry would fail in the same way.
    Never,
}

/// Idle timeout; the service closes connections after two minutes.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Bound of idle connections.
const IDLE_CONNECTIONS_MAX: usize = 100;

/// Bound of a response.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl Transport {
    pub(crate) fn new(connector: Connector, address: String) -> Self {
        let connections = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Self { connections, address }
    }

    /// Sends a request and decodes the response.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        call: &HttpCall<'_>,
    ) -> Result<T, Failure> {
        match timeout(call.timeout, self.answer(call)).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("did not answer within {:?}", call.timeout);
                Err(unavailable(why, Retry::WithKey))
            }
        }
    }

    async fn answer<T: DeserializeOwned>(&self, call: &HttpCall<'_>) -> Result<T, Failure> {
        let request = Request::post(format!("{}{}", self.address, call.path))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = match call.idempotency_key {
            Some(key) => request.header(IDEMPOTENCY_KEY, key),
            None => request,
        };
        let request = request.body(Full::new(call.body.clone()));
        let request = request
            .map_err(|error| unavailable(format!("cannot be called: {error}"), Retry::Never))?;
        let response =
            self.connections.request(request).await.map_err(|error| unreached(&error))?;
        let (status, headers, body) = read(response).await?;
        match serde_json::from_slice(&body) {
            // A denial is a valid response, whatever its status.
            Ok(answer) => Ok(answer),
            Err(error) if status.is_success() => {
                Err(unavailable(format!("sent an invalid response: {error}"), Retry::WithKey))
            }
            Err(_) => Err(refused(status, &headers, &body)),
        }
    }
}

async fn read(response: Response<Incoming>) -> Result<(StatusCode, HeaderMap, Bytes), Failure> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| unavailable(format!("broke off: {error}"), Retry::WithKey))?;
    Ok((head.status, head.headers, body.to_bytes()))
}

fn unreached(error: &ClientError) -> Failure {
    let (why, retry) = match error.is_connect() {
        true => ("cannot be reached", Retry::Safe),
        false => ("broke off", Retry::WithKey),
    };
    let cause = deepest(error);
    unavailable(format!("{why}: {cause}"), retry)
}

/// The innermost cause of an error.
fn deepest<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a dyn std::error::Error {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error
}

fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    let (code, message) = wire::refusal(body);
    let hints = headers.get(RETRY_AFTER).and_then(|hints| hints.to_str().ok()?.trim().parse().ok());
    let retry = match status {
        // Overloaded, or a proxy without its upstream.
        StatusCode::SERVICE_UNAVAILABLE => Retry::Safe,
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => {
            Retry::WithKey
        }
        _ if status.is_server_error() => Retry::Never,
        _ => return Failure::Refused { status: status.as_u16(), code, message },
    };
    let why = format!("answered {}: {message}", status.as_u16());
    Failure::Unavailable(Unavailable { why, retry, retry_after: hints.map(Duration::from_secs) })
}

fn unavailable(why: String, retry: Retry) -> Failure {
    Failure::Unavailable(Unavailable { why, retry, retry_after: None })
}
