//! One call, from its headers to its trailers.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use tokio::time::timeout;

use super::status::Status;
use super::{Bounds, frame};
use crate::rls::service::{Scratch, Service};
use crate::telemetry::Door;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
/// As long as most answers.
const ANSWER_BYTES: usize = 128;

/// Answers a call. Whoever has gone away meanwhile misses the answer; what was charged stays charged.
pub(super) async fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    service: Arc<Service>,
    bounds: Bounds,
) {
    let outcome = match timeout(bounds.patience, called(request, &service, bounds)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Status::too_late("the message did not come in time")),
    };
    // Nobody is left to be told of an error here.
    let _ = send(outcome, respond);
}

async fn called(
    request: Request<RecvStream>,
    service: &Service,
    bounds: Bounds,
) -> Result<Vec<u8>, Status> {
    if request.method() != Method::POST || request.uri().path() != SHOULD_RATE_LIMIT {
        let path = request.uri().path();
        return Err(Status::unimplemented(format!("there is no method `{path}`")));
    }
    let message = frame::receive(&mut request.into_body(), bounds.message_bytes).await?;
    thread_local! {
        // Grown once, used for every call that this thread answers.
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    let mut out = Vec::with_capacity(ANSWER_BYTES);
    frame::begin(&mut out);
    SCRATCH.with_borrow_mut(|scratch| {
        service.answer(Door::ShouldRateLimit, &message, scratch, &mut out)
    })?;
    frame::end(&mut out);
    Ok(out)
}

fn send(
    outcome: Result<Vec<u8>, Status>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    let message = match outcome {
        Ok(message) => message,
        Err(status) => {
            let headers = response.headers_mut();
            headers.insert("grpc-status", status.code());
            headers.insert("grpc-message", status.message());
            return respond.send_response(response, true).map(|_| ());
        }
    };
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(Bytes::from(message), false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}
