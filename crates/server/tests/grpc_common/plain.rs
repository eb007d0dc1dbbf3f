//! Calls with headers that one can look at.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection.
pub(crate) struct Plain {
    requests: SendRequest<Bytes>,
}

/// What became of a call: its message, and what gRPC says about it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) message: Bytes,
    pub(crate) status: String,
    pub(crate) headers: HeaderMap,
}

impl Plain {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap()).await.unwrap()
    }

    pub(crate) async fn over<S>(socket: S) -> Result<Self, h2::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, connection) = h2::client::handshake(socket).await?;
        tokio::spawn(connection);
        Ok(Self { requests: requests.ready().await? })
    }

    /// Begins a call without its message.
    pub(crate) async fn begin(
        &mut self,
        path: &str,
        more: &[(&'static str, &str)],
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut request = Request::post(format!("http://test{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        self.requests = self.requests.clone().ready().await?;
        self.requests.send_request(request.body(()).unwrap(), false)
    }

    /// A whole call.
    pub(crate) async fn call(
        &mut self,
        path: &str,
        framed: Vec<u8>,
    ) -> Result<Answered, h2::Error> {
        let (response, mut stream) = self.begin(path, &[]).await?;
        stream.send_data(framed.into(), true)?;
        answered(response).await
    }
}

pub(crate) async fn answered(response: ResponseFuture) -> Result<Answered, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let message = read(&mut body).await?;
    let trailers = match head.headers.contains_key("grpc-status") {
        true => None,
        false => body.trailers().await?,
    };
    let mut headers = head.headers;
    headers.extend(trailers.unwrap_or_default());
    let status = headers.get("grpc-status").map_or("", |status| status.to_str().unwrap());
    Ok(Answered { message, status: status.to_owned(), headers })
}

async fn read(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut read = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        read.extend_from_slice(&chunk);
    }
    Ok(read.freeze())
}
