//! Calls over HTTP/2, with nothing between them and the `h2` crate.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use super::{Heard, Slot, connected, heard, shown};
use crate::request::{Answer, Ask};
use crate::template::Template;

/// A call at a time, on a connection that others share.
#[derive(Debug)]
pub(crate) struct Stream {
    shared: Rc<Shared>,
    connection: SendRequest<Bytes>,
    /// Of the connection that this one has.
    generation: u64,
    uri: Uri,
    template: Rc<Template>,
    judge: Judge,
    /// Where messages are written; what has been sent is used again.
    written: BytesMut,
    answer: Vec<u8>,
    reconnects: u64,
}

type Judge = fn(&[u8]) -> Result<Answer, String>;

/// What the streams of a connection have in common.
#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    current: RefCell<SendRequest<Bytes>>,
    generation: Cell<u64>,
    /// Held by the one who connects again, so that not all do.
    connecting: Mutex<()>,
}

/// Messages are written into pieces of this size, each used again when all that was in it is sent.
const WRITTEN: usize = 16 << 10;

/// No answer of a limiter is longer.
const ANSWER_MAX: usize = 1 << 20;

/// A connection with room for so many calls.
pub(crate) async fn open(
    address: SocketAddr,
    ask: &Ask,
    template: &Rc<Template>,
    streams: usize,
) -> Result<Vec<Stream>, String> {
    let connection = connect(address).await?;
    let uri: Uri = format!("http://{address}{}", ask.method()).parse().map_err(text)?;
    let judge = match ask {
        Ask::Grpc(method) => method.judge,
        _ => said_by_envoys_protocol,
    };
    let shared = Rc::new(Shared {
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
        judge,
        written: BytesMut::with_capacity(WRITTEN),
        answer: Vec::new(),
        reconnects: 0,
    };
    Ok((0..streams).map(|_| stream()).collect())
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Bytes>, String> {
    let socket = connected(address).await.map_err(|error| format!("cannot connect: {error}"))?;
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let made = builder.handshake(socket).await;
    let (connection, work) = made.map_err(|error| format!("no HTTP/2 there: {error}"))?;
    // When it ends, every stream hears of it.
    spawn_local(async { _ = work.await });
    Ok(connection)
}

impl Slot for Stream {
    fn room(&self) -> usize {
        1
    }

    async fn ask(&mut self, keys: &[u64], out: &mut Vec<Heard>) {
        for key in keys {
            let said = self.call(*key).await;
            out.push(heard(said));
        }
    }

    fn reconnects(&mut self) -> u64 {
        std::mem::take(&mut self.reconnects)
    }
}

// === impl Stream ===

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
                return Err(format!("an answer of more than {ANSWER_MAX} bytes"));
            }
            self.answer.extend_from_slice(&piece);
        }
        let trailers = body.trailers().await.map_err(text)?;
        let trailers = trailers.ok_or("a call without trailers")?;
        if let Some(failure) = failed(&trailers) {
            return Err(failure);
        }
        // After the head of the message.
        let message = self.answer.get(5..).ok_or("a call without an answer")?;
        (self.judge)(message)
    }

    /// Waits until the connection takes a call; one that has ended is made anew, and nothing was asked in vain.
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

/// How the call ended, unless it ended well.
fn failed(headers: &HeaderMap) -> Option<String> {
    let status = headers.get("grpc-status").filter(|status| *status != "0")?;
    let message = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
    Some(format!("gRPC status {}: {}", shown(status.as_bytes()), shown(message)))
}

/// The first field of `RateLimitResponse` is the code: 1 it may go, 2 it may not.
fn said_by_envoys_protocol(message: &[u8]) -> Result<Answer, String> {
    match message {
        [0x08, 1, ..] => Ok(Answer::Allowed),
        [0x08, 2, ..] => Ok(Answer::Denied),
        _ => Err(format!("no code of Envoy's protocol in `{}`", shown(message))),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
