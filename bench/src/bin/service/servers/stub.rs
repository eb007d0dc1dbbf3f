//! A rate limit service that does nothing: it reads no request, and answers all of them with the same bytes.

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use tokio::net::TcpStream;

/// A message of 18 bytes: code 1, and one status: code 1, a limit of 3 a minute, 2 are left, 42 s to its reset.
const ANSWER: &[u8] =
    b"\0\0\0\0\x12\x08\x01\x12\x0e\x08\x01\x12\x04\x08\x03\x10\x02\x18\x02\x22\x02\x08\x2a";

pub(super) async fn serve() -> anyhow::Result<()> {
    let (listener, address) = super::listener().await?;
    println!("{}", serde_json::json!({ "grpc": address.to_string() }));
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(connection(socket));
    }
}

async fn connection(socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    builder.max_concurrent_streams(1_000);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(async move { _ = call(request, respond).await });
    }
}

async fn call(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    while let Some(piece) = body.data().await {
        body.flow_control().release_capacity(piece?.len())?;
    }
    let mut response = Response::new(());
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    let mut sending = respond.send_response(response, false)?;
    sending.send_data(Bytes::from_static(ANSWER), false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    sending.send_trailers(trailers)
}
