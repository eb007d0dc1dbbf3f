//! Calls over HTTP/2, with nothing between them and the `h2` crate.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{HeaderValue, Request, Uri, header};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::ask::{Template, Who, Wire};
use super::slot::Answer;

/// A stream at a time, on a connection that others share.
#[derive(Debug)]
pub(crate) struct Stream {
    connection: SendRequest<Bytes>,
    uri: Uri,
    template: Template,
}

/// A connection with room for so many streams.
pub(crate) async fn connect(
    address: SocketAddr,
    wire: Wire,
    streams: usize,
) -> anyhow::Result<Vec<Stream>> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let (connection, work) = builder.handshake(socket).await?;
    // When it ends, every stream hears of it.
    spawn_local(async { _ = work.await });
    let uri: Uri = format!("http://{address}{}", wire.path()).parse()?;
    let template = Template::of(wire);
    let stream =
        || Stream { connection: connection.clone(), uri: uri.clone(), template: template.clone() };
    Ok((0..streams).map(|_| stream()).collect())
}

impl Stream {
    pub(crate) async fn ask(&mut self, who: Who) -> anyhow::Result<Answer> {
        let message = Bytes::copy_from_slice(self.template.filled(who));
        let mut request = Request::post(self.uri.clone()).body(())?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        std::future::poll_fn(|context| self.connection.poll_ready(context)).await?;
        let (response, mut sending) = self.connection.send_request(request, false)?;
        sending.send_data(message, true)?;
        let response = response.await?;
        if let Some(status) = response.headers().get("grpc-status") {
            bail!("no answer: {status:?} {:?}", response.headers().get("grpc-message"));
        }
        let mut body = response.into_body();
        let mut answer = None;
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            answer = answer.or(said(&piece));
        }
        let trailers = body.trailers().await?.context("a call without trailers")?;
        match trailers.get("grpc-status") {
            Some(status) if status == "0" => answer.context("a call without an answer"),
            status => bail!("the call failed: {status:?} {:?}", trailers.get("grpc-message")),
        }
    }
}

/// The first field of either answer says it: Envoy's code is 1 if it may go, and throttlecrab's `allowed` is too.
fn said(piece: &[u8]) -> Option<Answer> {
    // After the head of the message.
    match piece.get(5..)? {
        [0x08, 1, ..] => Some(Answer::Ok),
        _ => Some(Answer::Over),
    }
}
