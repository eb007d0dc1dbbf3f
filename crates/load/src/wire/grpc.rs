//! gRPC calls directly on the `h2` crate.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use super::{Received, Slot, connect_tcp, shown};
use crate::request::Template;
use crate::request::{Answer, RequestSpec};

/// One stream at a time on a shared connection.
#[derive(Debug)]
pub(crate) struct Stream {
    shared: Rc<ConnectionState>,
    connection: SendRequest<Bytes>,
    /// Generation of `connection`.
    generation: u64,
    uri: Uri,
    template: Rc<Template>,
    decode: Decode,
    /// Reused buffer of messages.
    written: BytesMut,
    answer: Vec<u8>,
    reconnects: u64,
}

type Decode = fn(&[u8]) -> Result<Answer, String>;

/// State shared by the streams of a connection.
#[derive(Debug)]
struct ConnectionState {
    address: SocketAddr,
    current: RefCell<SendRequest<Bytes>>,
    generation: Cell<u64>,
    /// Held by the one stream that reconnects.
    connecting: Mutex<()>,
}

/// Size of the message buffer.
const WRITTEN: usize = 16 << 10;

/// Bound of a response.
const ANSWER_MAX: usize = 1 << 20;

/// Opens a connection with the given number of streams.
pub(crate) async fn open(
    address: SocketAddr,
    request: &RequestSpec,
    template: &Rc<Template>,
    streams: usize,
) -> Result<Vec<Stream>, String> {
    let connection = connect(address).await?;
    let uri: Uri = format!("http://{address}{}", request.method()).parse().map_err(text)?;
    let decode = match request {
        RequestSpec::Grpc(method) => method.decode,
        _ => decode_rls,
    };
    let shared = Rc::new(ConnectionState {
        address,
        current: RefCell::new(connection.clone()),
        generation: Cell::new(0),
        connecting: Mutex::new(()),
    });
    let stream = || Stream {
        shared: shared.clone(),
        connection: connection.clone(),
        generation: 0,
        uri: uri.clone(),
        template: template.clone(),
        decode,
        written: BytesMut::with_capacity(WRITTEN),
        answer: Vec::new(),
        reconnects: 0,
    };
    Ok((0..streams).map(|_| stream()).collect())
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Bytes>, String> {
    let socket = connect_tcp(address).await.map_err(|error| format!("cannot connect: {error}"))?;
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let made = builder.handshake(socket).await;
    let (connection, work) = made.map_err(|error| format!("not an HTTP/2 server: {error}"))?;
    // Its end fails every stream.
    spawn_local(async { _ = work.await });
    Ok(connection)
}

impl Slot for Stream {
    fn capacity(&self) -> usize {
        1
    }

    async fn send(&mut self, keys: &[u64], out: &mut Vec<Received>) {
        for key in keys {
            let answer = self.call(*key).await;
            out.push(Received::now(answer));
        }
    }

    fn reconnects(&mut self) -> u64 {
        std::mem::take(&mut self.reconnects)
    }
}

impl Stream {
    async fn call(&mut self, key: u64) -> Result<Answer, String> {
        self.ready().await?;
        if self.written.capacity() < self.template.len() {
            self.written.reserve(WRITTEN.max(self.template.len()));
        }
        self.template.write(key, &mut self.written);
        let message = self.written.split().freeze();
        let mut request = Request::new(());
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let (response, mut sending) = self.connection.send_request(request, false).map_err(text)?;
        sending.send_data(message, true).map_err(text)?;
        let response = response.await.map_err(text)?;
        if response.status() != http::StatusCode::OK {
            return Err(format!("HTTP status {}", response.status().as_u16()));
        }
        if let Some(failure) = failed(response.headers()) {
            return Err(failure);
        }
        let mut body = response.into_body();
        self.answer.clear();
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(text)?;
            body.flow_control().release_capacity(piece.len()).map_err(text)?;
            if self.answer.len() + piece.len() > ANSWER_MAX {
                return Err(format!("a response of more than {ANSWER_MAX} bytes"));
            }
            self.answer.extend_from_slice(&piece);
        }
        let trailers = body.trailers().await.map_err(text)?;
        let trailers = trailers.ok_or("the response has no trailers")?;
        if let Some(failure) = failed(&trailers) {
            return Err(failure);
        }
        // After the length prefix.
        let message = self.answer.get(5..).ok_or("the response has no message")?;
        (self.decode)(message)
    }

    /// Waits for a free stream and reconnects if the connection has ended; no request was sent yet.
    async fn ready(&mut self) -> Result<(), String> {
        let connection = &mut self.connection;
        if std::future::poll_fn(|context| connection.poll_ready(context)).await.is_ok() {
            return Ok(());
        }
        let shared = self.shared.clone();
        let _alone = shared.connecting.lock().await;
        if shared.generation.get() == self.generation {
            let made = connect(shared.address).await?;
            *shared.current.borrow_mut() = made;
            shared.generation.set(self.generation + 1);
            self.reconnects += 1;
        }
        self.generation = shared.generation.get();
        self.connection = shared.current.borrow().clone();
        let connection = &mut self.connection;
        std::future::poll_fn(|context| connection.poll_ready(context)).await.map_err(text)
    }
}

/// The gRPC status, unless it is OK.
fn failed(headers: &HeaderMap) -> Option<String> {
    let status = headers.get("grpc-status").filter(|status| *status != "0")?;
    let message = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
    Some(format!("gRPC status {}: {}", shown(status.as_bytes()), shown(message)))
}

/// Field 1 of `RateLimitResponse` is the code: 1 OK, 2 OVER_LIMIT.
fn decode_rls(message: &[u8]) -> Result<Answer, String> {
    match message {
        [0x08, 1, ..] => Ok(Answer::Allowed),
        [0x08, 2, ..] => Ok(Answer::Denied),
        _ => Err(format!("not a RateLimitResponse: `{}`", shown(message))),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
