//! One batch to the collector, on a connection of its own: there is one every few seconds, and none can be stale.

use std::fmt::Display;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::options::{Endpoint, Protocol};

/// Why a batch was not taken.
#[derive(Debug)]
pub(super) struct NotTaken(String);

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends a batch, and waits until it is taken.
pub(super) async fn post(
    endpoint: &Endpoint,
    protocol: Protocol,
    headers: &HeaderMap,
    batch: Vec<u8>,
) -> Result<(), NotTaken> {
    let stream = TcpStream::connect((endpoint.host(), endpoint.port)).await;
    let io = TokioIo::new(stream.map_err(|error| not_taken("cannot connect", error))?);
    let broken = |error| not_taken("the connection is broken", error);
    let (status, trailers) = match protocol {
        Protocol::Http => {
            let request = request(endpoint, endpoint.path.as_str(), headers, batch.into());
            let (mut sender, connection) = http1::handshake(io).await.map_err(broken)?;
            let answer = async move { read(sender.send_request(request?).await).await };
            both(answer, connection).await?
        }
        Protocol::Grpc => {
            let request = request(endpoint, &endpoint.uri(), headers, framed(&batch));
            let handshake = http2::handshake(TokioExecutor::new(), io);
            let (mut sender, connection) = handshake.await.map_err(broken)?;
            let answer = async move { read(sender.send_request(as_grpc(request?)).await).await };
            both(answer, connection).await?
        }
    };
    if !status.is_success() {
        return Err(NotTaken(format!("the collector answered {status}")));
    }
    match protocol {
        Protocol::Http => Ok(()),
        Protocol::Grpc => was_taken(&trailers),
    }
}

fn request(
    endpoint: &Endpoint,
    uri: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, NotTaken> {
    let request = Request::post(uri)
        .header(header::HOST, endpoint.authority())
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(body));
    let mut request = request.map_err(|error| not_taken("the endpoint is none", error))?;
    request.headers_mut().extend(headers.clone());
    Ok(request)
}

fn as_grpc(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let headers = request.headers_mut();
    headers.remove(header::HOST);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    request
}

/// Not compressed, and its length.
fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// The connection works as long as the answer is waited for. What it has brought when it ends counts.
async fn both<T>(
    answer: impl Future<Output = T>,
    connection: impl Future<Output = Result<(), hyper::Error>>,
) -> T {
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

/// The status, and the trailers or what was sent in their place.
async fn read(
    response: Result<Response<Incoming>, hyper::Error>,
) -> Result<(StatusCode, HeaderMap), NotTaken> {
    let response = response.map_err(|error| not_taken("no answer", error))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| not_taken("half an answer", error))?;
    Ok((head.status, body.trailers().cloned().unwrap_or(head.headers)))
}

fn was_taken(trailers: &HeaderMap) -> Result<(), NotTaken> {
    const STATUS: HeaderName = HeaderName::from_static("grpc-status");
    let status = trailers.get(STATUS).and_then(|status| status.to_str().ok());
    match status {
        Some("0") => Ok(()),
        Some(status) => Err(NotTaken(format!("the collector answered gRPC status {status}"))),
        None => Err(NotTaken("the collector answered without a gRPC status".to_owned())),
    }
}

fn not_taken(what: &str, error: impl Display) -> NotTaken {
    NotTaken(format!("{what}: {error}"))
}

impl Display for NotTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
